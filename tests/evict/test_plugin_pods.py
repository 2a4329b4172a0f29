"""Which plugins a command asks: those of the pods that run, where they say that they are."""

import json
import queue
import signal
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.certificates import make, needs_openssl
from cluster.scripted_api import Answer, Asked, Script, running
from deviceplugin._http.access import Access
from deviceplugin._http.certificate import Certificate
from deviceplugin.apiserver import ApiServer, _watch
from deviceplugin.tools import _plugin_pods
from deviceplugin.tools._devices_page import NoAnswerError
from deviceplugin.tools._plugin_pods import Plugin, plugin_of
from deviceplugin.tools.evict._cli import main as evict
from deviceplugin.tools.evict._cli import visit
from deviceplugin.tools.evict._evictor import Budget, Evictor
from deviceplugin.tools.evict._pods import Patience, Pods
from deviceplugin.tools.startup_taint._cli import main as startup_taint
from deviceplugin_testing.simulator._control_plane.api_server.objects import merged
from http_server import serving
from patience import eventually

LABELS = "app.kubernetes.io/component=device-plugin,app.kubernetes.io/name=gpu-device-plugin"
PODS = "/api/v1/namespaces/gpu/pods"
KEY = "startup.deviceplugin.dev/gpu-device-plugin"
NO_FILES: dict[str, Path | None] = {"plugin_token_file": None, "plugin_ca_file": None}
OPTIONS = Namespace(node=None, plugin=None, namespace="gpu", selector=LABELS, **NO_FILES)


def pod(node: str, ip: str = "127.0.0.1", port: int = 9494, **changes: Any) -> dict[str, Any]:
    ports = [{"name": "dra", "containerPort": 1}, {"name": "http", "containerPort": port}]
    item: dict[str, Any] = {
        "metadata": {"name": f"plugin-{node}", "namespace": "gpu", "resourceVersion": "5"},
        "spec": {"nodeName": node, "containers": [{"name": "other"}, {"ports": ports}]},
        "status": {
            "phase": "Running",
            "podIP": ip,
            "conditions": [{"type": "Other", "status": "x"}, {"type": "Ready", "status": "y"}],
            "containerStatuses": [{"containerID": "c1"}, {}],
        },
    }
    for place, value in changes.items():
        item[place] |= value
    return item


@pytest.mark.parametrize(
    ("item", "url"),
    [
        (pod("n1"), "http://127.0.0.1:9494"),
        (pod("n1", "2001:db8::7", 80), "http://[2001:db8::7]:80"),
        (pod("n1", spec={"containers": [{}]}), "http://127.0.0.1:9494"),
        (pod(""), None),
        (pod("n1", ""), None),
        (pod("n1", status={"phase": "Pending"}), None),
        (pod("n1", metadata={"deletionTimestamp": "now"}), None),
        (pod("n1") | {"status": None}, None),
    ],
)
def test_a_pod_that_runs_has_a_plugin(item: dict[str, Any], url: str | None) -> None:
    found = plugin_of(item)
    assert url == (found and found.url)
    assert found is None or found.node == "n1"


def test_a_start_and_getting_ready_change_what_is_known_of_a_pod() -> None:
    states = [
        pod("n1"),
        pod("n1", status={"containerStatuses": [{"containerID": "c2"}]}),
        pod("n1", status={"conditions": [{"type": "Ready", "status": "False"}]}),
        pod("n1", status={"conditions": None, "containerStatuses": None}),
    ]
    assert 4 == len({plugin_of(one) for one in states})
    assert plugin_of(pod("n1")) == plugin_of(pod("n1", metadata={"resourceVersion": "6"}))


@needs_openssl
@pytest.mark.parametrize("selected", [True, False])
def test_a_plugin_with_tls_is_asked_with_its_token(
    script: Script, tmp_path: Path, *, selected: bool
) -> None:
    token, ours = tmp_path / "token", tmp_path / "ours"
    for each in (token, ours):
        each.write_text("secret\n")
    make(tmp_path)  # for 127.0.0.1
    files = {"plugin_token_file": ours, "plugin_ca_file": tmp_path / "ca.crt"}
    certificate = Certificate(tmp_path / "ca.crt", tmp_path / "key.pem")
    with serving(access=Access(token, ()), certificate=certificate) as server:
        script.otherwise = lambda _asked: listed(pod("n1", "127.0.0.1", server.port))
        alone = {"node": "n1", "selector": None, "plugin": f"https://127.0.0.1:{server.port}"}
        options = Namespace(**vars(OPTIONS) | files | ({} if selected else alone))
        with _plugin_pods.plugins(options, ApiServer(script.url)) as plugins:
            eventually(lambda: {"n1"} == plugins().keys(), "the list")
            assert [] == plugins()["n1"].says(lambda page: page["resources"], "/readyz")
            ours.write_text("other")
            with pytest.raises(NoAnswerError, match="401"):
                plugins()["n1"].says(lambda page: page)


@pytest.fixture
def script() -> Iterator[Script]:
    with running(Script()) as script:
        yield script


def listed(*items: dict[str, Any]) -> Answer:
    return Answer.of({"metadata": {"resourceVersion": "5"}, "items": [*items]})


class Stream:
    """A watch that lasts until the test ends it."""

    def __init__(self) -> None:
        self.parts: queue.Queue[bytes | None] = queue.Queue()

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.parts.get, None)

    def send(self, kind: str, item: dict[str, Any]) -> None:
        self.parts.put(json.dumps({"type": kind, "object": item}).encode() + b"\n")


def test_pods_come_and_go(script: Script) -> None:
    stream = Stream()
    answers = iter([listed(pod("n1"), pod("n2", "")), Answer(parts=stream)])
    script.otherwise = lambda _asked: next(answers, Answer(parts=[b""]))
    with _plugin_pods.plugins(OPTIONS, ApiServer(script.url)) as plugins:
        eventually(lambda: {"n1"} == plugins().keys(), "the list")
        stream.send("MODIFIED", pod("n2", "127.0.0.2"))
        eventually(lambda: {"n1", "n2"} == plugins().keys(), "the second")
        stream.send("DELETED", pod("n1"))
        eventually(lambda: {"n2"} == plugins().keys(), "the first to go")
        stream.parts.put(None)
    first, second = script.asked[:2]
    assert {PODS} == {first.path, second.path}
    assert {LABELS} == {first.query["labelSelector"], second.query["labelSelector"]}
    assert ("5", "true") == (second.query["resourceVersion"], second.query["watch"])


@pytest.mark.parametrize("order", [1, -1])
def test_of_two_pods_on_a_node_the_one_that_is_ready_is_asked(script: Script, order: int) -> None:
    """Such as an old one, beside a new one that never gets ready."""
    conditions = [{"type": "Ready", "status": "True"}]
    old = pod("n1", "127.0.0.2", metadata={"name": "old"}, status={"conditions": conditions})
    script.answers += [listed(*[old, pod("n1")][::order])]
    script.otherwise = lambda _asked: Answer(parts=[b""])
    with _plugin_pods.plugins(OPTIONS, ApiServer(script.url)) as plugins:
        eventually(plugins, "the list")
        assert "http://127.0.0.2:9494" == plugins()["n1"].url


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (Answer(403, "pods is forbidden"), "apply the Role and its binding"),
        (listed({"metadata": {"name": "p", "resourceVersion": "1"}}), "is not a list of objects"),
        (listed(pod("n1", spec={"containers": 1})), "is not a list of objects"),
    ],
)
def test_pods_that_cannot_be_listed_are_told_once_and_asked_for_again(
    script: Script,
    answer: Answer,
    text: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_watch, "_FIRST_WAIT", 0.01)
    script.answers += [answer, answer, listed(pod("n1"))]
    script.otherwise = lambda _asked: Answer(parts=[b""])
    with _plugin_pods.plugins(OPTIONS, ApiServer(script.url)) as plugins:
        eventually(plugins, "the list")
    told = [one for one in caplog.records if "plugin pods" in one.getMessage()]
    assert ["plugin pods unavailable, retrying"] == [one.getMessage() for one in told]
    assert text in told[0].__dict__["error"]


@pytest.mark.parametrize("main", [evict, startup_taint])
@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "give --node NAME for one node, or --selector LABELS for all of a plugin"),
        (["--node=n", "--selector=a=b", "--namespace=x"], "give --node NAME for one node, or"),
        (["--node=n", "--namespace=x"], "--namespace: is for --selector"),
        (["--selector=a=b"], "--namespace : is not the name of a namespace"),
        (["--selector=a=b", "--namespace=../x"], "--namespace ../x: is not the name of a name"),
        (["--selector=a", "--namespace=x"], "--selector a: is not KEY=VALUE"),
        (["--selector=a in (b)", "--namespace=x"], "--selector a in (b): is not KEY=VALUE"),
        (
            ["--selector=a=b", "--namespace=x", "--plugin-token-file=/t"],
            "--plugin-token-file: with --selector it needs --plugin-ca-file",
        ),
        (
            ["--selector=a=b", "--namespace=x", "--plugin=http://x"],
            "--plugin: is for --node; with --selector the pods say where they are",
        ),
    ],
)
def test_options_that_do_not_go_together_are_told(
    main: Any, words: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    more = [f"--taint={KEY}"] if main is startup_taint else []
    assert 2 == main([*more, "--api=http://127.0.0.1:1", *words])
    assert text in capsys.readouterr().err


def test_what_is_decoded_is_reduced_or_told(script: Script) -> None:
    script.otherwise = lambda asked: Answer(text="[1, 2]" if asked.path == "/devices" else "ok")
    assert 3 == Plugin("n1", script.url).says(sum, "/readyz")
    with pytest.raises(NoAnswerError, match="is not a list of a plugin's devices"):
        Plugin("n1", script.url).says(lambda page: page["resources"])
    assert ["/readyz", "/devices", "/devices"] == [asked.path for asked in script.asked]


class Nodes:
    """Two nodes with the taint, and a pod of the plugin on each, which all serve at one port."""

    def __init__(self, script: Script) -> None:
        port = int(script.url.rpartition(":")[2])
        self.pods = [pod("n1", "127.0.0.1", port), pod("n2", "127.0.0.1", port)]
        taint = {"key": KEY, "effect": "NoSchedule"}
        self.nodes: dict[str, Any] = {
            name: {
                "metadata": {"name": name, "resourceVersion": "1"},
                "spec": {"taints": [taint]},
                "status": {"capacity": {"x.io/a": "1"}, "allocatable": {"x.io/a": "1"}},
            }
            for name in ("n1", "n2", "n3")
        }
        self.stream = Stream()

    def answer(self, asked: Asked) -> Answer:
        if asked.path == PODS:
            return Answer(parts=self.stream) if "watch" in asked.query else listed(*self.pods)
        if asked.path in {"/readyz", "/devices"}:
            devices = [{"id": "a", "healthy": True}]
            resource = {"name": "x.io/a", "registered": True, "problem": "", "devices": devices}
            return Answer.of({"resources": [resource]})
        name = asked.path.removeprefix("/api/v1/nodes/")
        if asked.method == "PATCH":
            self.nodes[name] = merged(self.nodes[name], asked.body)
        return Answer.of(self.nodes[name])


def test_one_process_is_for_all_nodes_that_have_the_plugin(script: Script) -> None:
    nodes = Nodes(script)
    script.otherwise = nodes.answer
    words = [f"--taint={KEY}", "--namespace=gpu", f"--selector={LABELS}", "--interval=1s"]
    process = subprocess.Popen(
        [sys.executable, "-m", "deviceplugin", "startup-taint", f"--api={script.url}", *words],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    with process.stderr:
        lines = [process.stderr.readline() for _ in range(3)]
        process.send_signal(signal.SIGTERM)
        assert 0 == process.wait(30)
        nodes.stream.parts.put(None)
        assert "" == process.stderr.read()
    assert {"n1", "n2"} == {
        name for name, one in nodes.nodes.items() if not one["spec"].get("taints")
    }
    assert all("startup taint removed" in line for line in lines[1:])
    assert {"n1", "n2"} == {json.loads(line)["node"] for line in lines[1:]}


def test_a_plugin_that_does_not_answer_is_told_with_its_node(
    script: Script, caplog: pytest.LogCaptureFixture
) -> None:
    pods = Pods(ApiServer(script.url), "n1")
    ask = visit(Patience(lambda _: 600.0), Evictor(pods, Budget(1, 1)))
    for _ in range(3):
        assert 0.0 == ask(Plugin("n1", script.url))
    (told,) = caplog.records
    assert ("plugin of a node unreachable", "n1") == (told.getMessage(), told.__dict__["node"])
    assert f"{script.url}: " in told.__dict__["error"]
