"""What holders use of their devices, as a plugin measures it: in /devices and on the page."""

import threading
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import pytest
from typing_extensions import override

from deviceplugin._app import probes
from deviceplugin_testing.fixture import Kubelet, Node
from deviceplugin_testing.simulator import Pod
from patience import PATIENCE, eventually
from scripted_plugin import RESOURCE, ScriptedPlugin

USED = {"memory_used_bytes": 2.0**30, "utilization_ratio": 0.25}


class Metered(ScriptedPlugin):
    def __init__(self, *devices: str, meter: Callable[["Metered"], Any] | None = None) -> None:
        super().__init__(*devices)
        self.meter = meter or (lambda plugin: dict.fromkeys(plugin.named(), USED))

    def named(self) -> list[tuple[str, ...]]:
        return [holder[:5] for holder in self.holders()]

    @override
    def usage(self) -> Mapping[tuple[str, ...], Mapping[str, float]]:
        return self.meter(self)


def people(node: Node) -> list[Any]:
    resources = {one["name"]: one for one in node.host.inventory()["resources"]}
    return [one["holders"] for one in resources[RESOURCE]["devices"]]


def test_what_holders_use_is_reported_beside_them_also_after_a_reload(kubelet: Kubelet) -> None:
    door = {"namespace": "default", "pod": "door", "container": "main"}
    quick = {"pod_resources_interval": timedelta(milliseconds=50), "http_address": "127.0.0.1:0"}
    others = ScriptedPlugin(resource="x.io/y")
    with kubelet.running(Metered("a", "b"), others, **quick) as node:
        node.wait_for(RESOURCE, {"a", "b"})
        eventually(lambda: not node.host.ready(), "the plugin")
        assert node.kubelet.run(Pod.of("door", main={RESOURCE: 1}))
        eventually(lambda: [{**door, "usage": USED}] in people(node), "the usage")
        assert [] in people(node)
        node.host.replace([Metered("a", "b"), others])
        eventually(lambda: [{**door, "usage": USED}] in people(node), "the usage")


def test_where_holders_are_unknown_a_plugin_is_given_none(kubelet: Kubelet) -> None:
    plugin = Metered("a")
    socket = kubelet.simulated.root / "nowhere/kubelet.sock"
    with kubelet.running(plugin, pod_resources_socket=socket) as node:
        node.wait_for(RESOURCE, {"a"})
        assert ((), [None]) == (plugin.holders(), people(node))


def broken(_: Metered) -> Mapping[tuple[str, ...], Mapping[str, float]]:
    raise OSError("no bus")


@pytest.mark.parametrize(
    "meter",
    [broken, *(lambda _, it=it: it for it in (None, {"a": {"b": "c"}}, {"a": {"b": "nan"}}))],
)
def test_a_plugin_that_cannot_say_costs_these_numbers_alone(
    kubelet: Kubelet,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    meter: Callable[[Metered], Any],
) -> None:
    monkeypatch.setattr(probes, "_TIMEOUT", PATIENCE)
    plugin = Metered("a")
    with kubelet.running(plugin) as node:
        node.wait_for(RESOURCE, {"a"})
        for plugin.meter, logged in [(meter, 1), (meter, 1), (lambda _: {}, 1), (meter, 2)]:
            assert 1 == len(people(node))
            assert logged == caplog.messages.count("plugin usage unavailable")


def test_a_plugin_that_hangs_is_not_waited_for(
    kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probes, "_TIMEOUT", 0.01)
    answers = threading.Event()
    with kubelet.running(Metered("a", meter=lambda _: answers.wait() and {})) as node:
        node.wait_for(RESOURCE, {"a"})
        for _ in range(5):
            people(node)
        answers.set()
