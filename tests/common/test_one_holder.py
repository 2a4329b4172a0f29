"""One piece of hardware has one holder: with a kubelet, over its sockets."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import grpc
import pytest
from typing_extensions import override

import deviceplugin as dp
from deviceplugin._attribution.podresources import Holdings, PodResources
from deviceplugin._platform.checkpoint import FILE_NAME
from deviceplugin.errors import KubeletUnavailableError
from deviceplugin_testing.fixture import Kubelet, Node
from deviceplugin_testing.simulator import Pod
from patience import eventually
from scripted_plugin import RESOURCE, ScriptedPlugin

QUICK = timedelta(milliseconds=50)
FIRST, SECOND = (Pod.of(name, main={RESOURCE: 1}) for name in ("first", "second"))


@contextmanager
def running(kubelet: Kubelet, *plugins: dp.Plugin, **changes: Any) -> Iterator[Node]:
    settings = {"pod_resources_interval": QUICK, "http_address": "127.0.0.1:0", **changes}
    with kubelet.running(*plugins, **settings) as node:
        wait_ready(node)
        yield node


def wait_ready(node: Node) -> None:
    """Wait until the kubelet has devices: before that, it admits pods without any."""

    def is_ready() -> bool:
        names = node.kubelet.registered
        has_lists = bool(names) and all(map(node.kubelet.lists_received, names))
        return has_lists and not node.host.ready()

    eventually(is_ready, "the plugin to be ready")


def stick(device_id: str, *paths: Path) -> dp.Device:
    return dp.Device(device_id, nodes=[dp.DeviceNode(str(path)) for path in paths])


@pytest.fixture
def paths(tmp_path: Path) -> Sequence[Path]:
    """Two files, which stand for device nodes."""
    found = [tmp_path / name for name in ("one", "two")]
    for path in found:
        path.touch()
    return found


def reasons(node: Node) -> dict[str, str]:
    """The devices that are not healthy, each with the reason."""
    return {
        device["id"]: device["reason"]
        for resource in node.host.inventory()["resources"]
        for device in resource["devices"]
        if not device["healthy"]
    }


def wait_for_reasons(node: Node) -> None:
    """Wait until the first pod's device is closed under both of its ids."""
    expected = {
        "one": "its device node is offered as one+two now",
        "one+two": "held as one by pod default/first",
    }
    eventually(lambda: expected == reasons(node), str(expected))


def wait_admitted(node: Node, pod: Pod) -> None:
    """Try until the kubelet has the list with which it admits ``pod``."""

    def admitted() -> bool:
        node.kubelet.tick()
        outcome = node.kubelet.run(pod)
        if not outcome:
            node.kubelet.delete(pod)
        return bool(outcome)

    eventually(admitted, "the pod to be admitted")


@pytest.mark.parametrize("http_address", ["127.0.0.1:0", "off"])
def test_a_new_id_is_no_new_device(
    kubelet: Kubelet, paths: Sequence[Path], http_address: str
) -> None:
    one, two = paths
    plugin = ScriptedPlugin(stick("one", one))
    with running(kubelet, plugin, http_address=http_address) as node:
        assert node.kubelet.run(FIRST)
        plugin.set(stick("one+two", one, two))
        wait_for_reasons(node)
        node.wait_for(RESOURCE, set(), {"one", "one+two"})
        assert not node.kubelet.run(SECOND)
        with pytest.raises(grpc.RpcError, match="held as one by pod default/first"):
            node.allocate("one+two")
        node.kubelet.terminate(FIRST)
        node.kubelet.delete(SECOND)
        expected = {"one+two"}
        eventually(lambda: expected == node.kubelet.healthy(RESOURCE), f"{expected} healthy")
        wait_admitted(node, SECOND)


def test_what_was_given_out_before_a_restart_is_still_held(
    kubelet: Kubelet, paths: Sequence[Path]
) -> None:
    one, two = paths
    with running(kubelet, ScriptedPlugin(stick("one", one))) as node:
        assert node.kubelet.run(FIRST)
    with running(kubelet, ScriptedPlugin(stick("one+two", one, two))) as node:
        wait_for_reasons(node)
        assert not node.kubelet.run(SECOND)


# A device that is back under another number, while its container has the node that is gone.


def state(node: Node, pod: Pod) -> tuple[str, object, str]:
    """The only device in the status of its pod, the uid of a pod with an old node, the metric."""
    (device,) = node.host.inventory()["resources"][0]["devices"]
    health = node.kubelet.device_health(pod)["main"][RESOURCE][device["id"]]
    lines = node.host._metrics.expose("")[1].decode().splitlines()
    name = f'deviceplugin_devices_stale{{resource="{RESOURCE}"}} '
    (number,) = [line.removeprefix(name) for line in lines if line.startswith(name)]
    return health, device.get("stale", {}).get("uid"), number


@pytest.mark.parametrize("http_address", ["127.0.0.1:0", "off"])
def test_a_pod_with_a_node_that_is_gone_is_named_and_its_successor_gets_the_new_one(
    kubelet: Kubelet, tmp_path: Path, http_address: str
) -> None:
    first, second = tmp_path / "usb5", tmp_path / "usb6"
    first.touch()
    gone = f"stale: pod default/first has {first}, which is gone: restart the pod"
    plugin = ScriptedPlugin(stick("s", first))
    with running(kubelet, plugin, http_address=http_address) as node:
        assert node.kubelet.run(FIRST)
        first.rename(second)
        plugin.set(stick("s", second))
        eventually(lambda: {"s": gone} == reasons(node), gone)
        node.wait_for(RESOURCE, set(), {"s"})
        assert ("Unhealthy", FIRST.uid, "1.0") == state(node, FIRST)
        node.kubelet.terminate(FIRST)
        node.wait_for(RESOURCE, {"s"})
        wait_admitted(node, SECOND)
        assert ("Healthy", None, "0.0") == state(node, SECOND)


def test_a_plugin_that_restarts_meanwhile_knows_it_by_the_checkpoint(
    kubelet: Kubelet, tmp_path: Path
) -> None:
    first, second = tmp_path / "usb5", tmp_path / "usb6"
    first.touch()
    with running(kubelet, ScriptedPlugin(stick("s", first))) as node:
        assert node.kubelet.run(FIRST)
    first.rename(second)
    with running(kubelet, ScriptedPlugin(stick("s", second))) as node:
        eventually(lambda: "s" in reasons(node), "the pod to be named")
        assert reasons(node)["s"].startswith("stale: pod default/first has")
        node.wait_for(RESOURCE, set(), {"s"})


# A kubelet that has lost its checkpoint, and with it what pods hold.


class ExclusivePlugin(ScriptedPlugin):
    exclusive = True


class FirstPlugin(ScriptedPlugin):
    """Prefers the first devices."""

    @override
    def prefer(
        self, available: Sequence[dp.Device], required: Sequence[dp.Device], size: int
    ) -> Iterable[dp.Device]:
        return available[:size]


def lose_checkpoint(node: Node) -> None:
    node.kubelet.stop()
    eventually(node.host.ready, "the plugin to notice")
    (node.kubelet.plugin_dir / FILE_NAME).unlink()
    node.kubelet.start()


def wait_known(node: Node, *holders: str) -> None:
    """Wait until these pods are known to hold a device."""

    def known() -> bool:
        holdings = node.host._tracker.current()
        return holdings is not None and set(holders) == {one.pod for one in holdings.holds or ()}

    eventually(known, f"{holders} to be known")


@pytest.mark.parametrize("kind", [ScriptedPlugin, FirstPlugin])
def test_a_forgotten_device_is_given_out_last(
    kubelet: Kubelet, kind: type[ScriptedPlugin], caplog: pytest.LogCaptureFixture
) -> None:
    with running(kubelet, kind("a", "b", "c")) as node:
        assert node.kubelet.run(Pod.of("first", main={RESOURCE: 2}))
        wait_known(node, "first")
        mine = {one.device for one in node.host._tracker.current().holds or ()}  # type: ignore[union-attr]
        lose_checkpoint(node)
        node.wait_for(RESOURCE, {"a", "b", "c"})
        wait_admitted(node, SECOND)
        wait_known(node, "first", "second")
        holds = node.host._tracker.current().holds or ()  # type: ignore[union-attr]
        assert {"a", "b", "c"} - mine == {one.device for one in holds if one.pod == "second"}
        event = "device of a running pod forgotten by the kubelet"
        eventually(lambda: 2 == caplog.messages.count(event), "a line for each device")
        node.kubelet.terminate(Pod.of("first", main={RESOURCE: 2}))
        wait_known(node, "second")
        assert 2 == caplog.messages.count(event)


def test_an_exclusive_device_that_is_forgotten_is_refused(kubelet: Kubelet) -> None:
    with running(kubelet, ExclusivePlugin("a")) as node:
        assert node.kubelet.run(FIRST)
        wait_known(node, "first")
        lose_checkpoint(node)
        node.wait_for(RESOURCE, {"a"})
        with pytest.raises(grpc.RpcError, match=r"held by another pod: a \(default/first\)"):
            node.allocate("a")
        node.kubelet.terminate(FIRST)
        wait_known(node)
        node.allocate("a")


def test_a_kubelet_that_restarts_with_its_checkpoint_has_forgotten_nothing(
    kubelet: Kubelet, caplog: pytest.LogCaptureFixture
) -> None:
    with running(kubelet, ScriptedPlugin("a", "b")) as node:
        assert node.kubelet.run(FIRST)
        wait_known(node, "first")
        node.restart_kubelet()
        node.wait_for(RESOURCE, {"a", "b"})
        wait_admitted(node, SECOND)
        wait_known(node, "first", "second")
        assert "device of a running pod forgotten by the kubelet" not in caplog.messages


def test_what_another_kubelet_answers_in_place_of_the_one_that_was_asked_forgets_nothing(
    kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def get(_service: object, pods: object) -> Holdings:
        asked.append(pods)
        return Holdings(frozenset(), frozenset({("default", "first")}))

    def restarted(_service: object, _kubelet: object) -> NoReturn:
        raise KubeletUnavailableError("the kubelet restarted meanwhile")

    with running(kubelet, ScriptedPlugin("a")) as node:
        assert node.kubelet.run(FIRST)
        held = node.host._tracker.held
        eventually(lambda: {"a"} == held(RESOURCE), "the checkpoint to be read")
        monkeypatch.setattr(PodResources, "get", get)
        monkeypatch.setattr(PodResources, "check_same", restarted)
        eventually(lambda: len(asked) > 1, "the answer to the first question to be judged")
        assert {"a"} == held(RESOURCE)
