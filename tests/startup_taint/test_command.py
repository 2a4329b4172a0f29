"""The command itself: how it starts, what it asks its plugin, how it ends."""

import pytest

import deviceplugin as dp
from cluster.scripted_api import Answer, Script, running
from deviceplugin._platform.boot import boot_id
from deviceplugin.tools._plugin_pods import Plugin
from deviceplugin.tools.startup_taint import _keeper
from deviceplugin.tools.startup_taint._cli import main
from deviceplugin.tools.startup_taint._keeper import Readiness
from deviceplugin_testing.fixture import Kubelet
from scripted_plugin import RESOURCE, ScriptedPlugin

KEY = "startup.deviceplugin.dev/gpu-device-plugin"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([f"--taint={KEY}"], "--node"),
        (["--node=n"], "--taint"),
        (["--node=n", "--taint=gpu"], "'gpu' is not DOMAIN/NAME, such as startup.deviceplugin"),
        (["--node=n", "--taint=a.b/c\n"], "is not DOMAIN/NAME"),
        (["--node=n", f"--taint=a.b/{'c' * 64}"], "is not DOMAIN/NAME"),
        (["--node=n", "--taint=node.kubernetes.io/not-ready"], "belongs to Kubernetes"),
        (["--node=n", "--taint=kubernetes.io/x"], "belongs to Kubernetes"),
        (["--node=n", "--taint=node.cluster.x-k8s.io/x"], "give --api"),  # another's
        (
            ["--node=n", "--taint=startup-taint.cluster-autoscaler.kubernetes.io/gpu"],
            "this is not a pod: KUBERNETES_SERVICE_HOST and _PORT are not set; give --api",
        ),
        (["--node=n", f"--taint={KEY}", "--api=x"], "'x' is not http:// or https://"),
        (["--node=n", f"--taint={KEY}", "--interval=1h"], "'1h' is not between 1s and 1m"),
        (["--node=n", f"--taint={KEY}", "--empty-after=48h"], "'48h' is not between 1s and 24h"),
    ],
)
def test_a_wrong_command_line_is_told(
    words: list[str], text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert 2 == main(words)
    assert text in capsys.readouterr().err


def readiness(url: str) -> Readiness:
    return _keeper.readiness(Plugin("n1", url))


@pytest.mark.parametrize(("ids", "resources"), [((), {}), (("cam0", "cam1"), {RESOURCE: True})])
def test_what_a_plugin_answers_is_understood(
    kubelet: Kubelet, ids: tuple[str, ...], resources: dict[str, bool]
) -> None:
    with kubelet.running(ScriptedPlugin(*ids), http_address="127.0.0.1:0") as node:
        if ids:
            node.wait_for(RESOURCE, {*ids})
        url = f"http://127.0.0.1:{node.host.http_port}"
        node.kubelet.wait(lambda: not readiness(url).problem, what="the plugin to be ready")
        assert Readiness(resources=resources, boot=boot_id()) == readiness(f"{url}/devices")


def test_a_plugin_whose_discovery_fails_is_not_ready_and_says_why(kubelet: Kubelet) -> None:
    plugin = ScriptedPlugin()
    plugin.fail(dp.DiscoveryError("library says: no"))
    with kubelet.running(plugin, http_address="127.0.0.1:0") as node:
        url = f"http://127.0.0.1:{node.host.http_port}"
        node.kubelet.wait(lambda: "library says" in readiness(url).problem, what="the reason")
        found = readiness(url)
    text = "503 Service Unavailable: no discovery has succeeded yet: ScriptedPlugin: library says"
    assert Readiness(f"{url}: {text}: no") == found
    assert readiness(url).problem.startswith(f"{url}: "), "it is gone by now"


def page(problem: str, dra: object = None, **more: object) -> object:
    devices = [{"healthy": True}]
    resource = {"name": "x", "registered": False, "problem": problem, "devices": devices}
    return {"resources": [{**resource, **more}], "dra": dra}


def published(*, published: bool, problem: str = "") -> object:
    return {"published": published, "problem": problem}


@pytest.mark.parametrize(
    ("by_plugin", "healthy"),
    [
        ({}, True),
        ({"offered": {"device-plugin": 1}}, True),
        ({"offered": {"device-plugin": 0}}, False),
    ],
)
def test_devices_that_the_plugin_withholds_from_the_kubelet_are_not_waited_for(
    by_plugin: dict[str, object], *, healthy: bool
) -> None:
    answer = page("", published(published=True), registered=True, **by_plugin)
    with running(Script()) as script:
        script.otherwise = lambda _: Answer.of(answer)
        assert Readiness(resources={"x": healthy}) == readiness(script.url)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ([], "is not a list of a plugin's devices"),
        ({"resources": [{"name": "x"}]}, "is not a list of a plugin's devices"),
        (page("gone"), "x: gone"),
        (page(""), ""),  # it need not be registered
        (page("", published(published=True)), ""),
        (page("", published(published=False)), "DRA: slices not published yet"),
        (
            page("", published(published=False, problem="403")),
            "DRA: slices not published yet: 403",
        ),
        (page("", {"problem": ""}), "is not a list of a plugin's devices"),
    ],
)
def test_what_is_not_the_answer_of_a_ready_plugin_is_told(body: object, problem: str) -> None:
    with running(Script()) as script:
        script.otherwise = lambda asked: Answer.of(body if asked.path == "/devices" else {})
        told = (
            Readiness(f"{script.url}: {problem}") if problem else Readiness(resources={"x": None})
        )
        assert told == readiness(script.url)
        assert ["/readyz", "/devices"] == [asked.path for asked in script.asked]
