"""Parts of a whole plugin on a simulated node of a cluster, and what its plugin knows of them."""

from collections.abc import Callable
from pathlib import Path

import pytest
from typing_extensions import override

from deviceplugin import Device
from deviceplugin._app.made_parts import MadeParts
from deviceplugin._dra.naming import device_name, pool_name
from deviceplugin._inventory.published import Resource
from drivers.cakes import RESOURCE, Cakes, Kitchen
from patience import eventually
from scripted_plugin import ScriptedPlugin
from served.cluster_node import NODE, ServedNode, running, served

HALF = "cake/half@0"
POOL = pool_name(NODE, RESOURCE)


def known_at(plugin: Cakes, **made: str) -> Callable[[], bool]:
    """Return whether the last discovery knew exactly these parts."""
    return lambda: plugin.seen[-1:] == [made]


def inventory(node: ServedNode) -> dict[str, object]:
    (resource,) = node.host.inventory()["resources"]
    return {one["id"]: one.get("part") for one in resource["devices"]}


@pytest.mark.slow
def test_a_pod_gets_a_part_that_outlives_the_plugin_and_is_removed_with_the_pod(
    root: Path,
) -> None:
    plugin = Cakes(kitchen := Kitchen("cake"))
    with served(root, plugin, protocol="dra") as node:
        node.await_offer()
        assert 7 == len(inventory(node))
        pod = node.claim(POOL, device_name(HALF))
        assert "cut-1" == node.got(pod).envs["CUT"]
        eventually(known_at(plugin, **{HALF: "cut-1"}), "a discovery after the change")
        reloaded = Cakes(kitchen)
        node.host.replace([reloaded])
        eventually(known_at(reloaded, **{HALF: "cut-1"}), "that the new plugin knows it")
        settings = node.host._settings
        node.host.stop()
        again = Cakes(kitchen)
        with running(type(node.host)([again], settings)):
            eventually(lambda: again.seen, "the first discovery")
            assert {HALF: "cut-1"} == again.seen[0]
            node.end(pod)
            eventually(known_at(again), "a discovery after the removal")
            assert [("make", HALF), ("unmake", HALF, "cut-1")] == kitchen.calls


class Others(ScriptedPlugin):
    """A plugin of other parts."""

    @override
    def make_part(self, part: Device) -> Device:
        return part


def test_a_plugin_knows_its_own_parts_and_those_that_may_be_its_own() -> None:
    cakes, pies, plain = Cakes(Kitchen()), Others(), ScriptedPlugin()
    pies.resource = "example.com/pie"
    resources = {RESOURCE: Resource(RESOURCE, cakes)}
    discoveries = [Discovered(one) for one in (cakes, pies, plain)]
    made = MadeParts(lambda: resources, discoveries)  # type: ignore[arg-type]
    found = {(RESOURCE, "a"): "1", ("example.com/pie", "b"): "2", ("x.io/y", "c"): "3"}
    made.set(found)
    assert ({"a": "1", "c": "3"}, {"b": "2", "c": "3"}) == (cakes.made, pies.made)
    assert ({}, [1, 1, 0]) == (plain.made, [one.fired for one in discoveries])
    made.set(found)
    assert [1, 1, 0] == [one.fired for one in discoveries], "it is no news"
    newer = Cakes(Kitchen())
    made.introduce(newer)
    assert {"a": "1", "c": "3"} == newer.made


class Discovered:
    """As much of a discovery as is needed here."""

    def __init__(self, plugin: Cakes | ScriptedPlugin) -> None:
        self.plugin, self.fired = plugin, 0

    def rediscover(self) -> None:
        self.fired += 1
