"""Holding a device that is offered through DRA: a taint keeps claims off it, and evicts nobody."""

from pathlib import Path
from typing import Any

import pytest

import deviceplugin as dp
from deviceplugin.kit.sharing import share_id
from patience import eventually
from scripted_plugin import ScriptedPlugin
from served.cluster_node import DRIVER, ServedNode, served

RESOURCE = "example.com/gopher"
WHY = "its fan is replaced"


def taints(node: ServedNode) -> dict[str, list[Any]]:
    """Return the taints in the slices, by the name of the device."""
    return {
        device["name"]: device.get("taints", [])
        for one in node.cluster.list("ResourceSlice")
        for device in one["spec"].get("devices", ())
    }


def place_of(node: ServedNode, id_: str) -> tuple[str, str]:
    (place,) = [place for place, (_, each) in node.offered().items() if each == id_]
    return place


def ask(node: ServedNode, do: str, device: str) -> str:
    """Ask for something, and return the state of the hold."""
    (hold,) = node.host.ask_hold({"do": do, "device": device, "reason": WHY})["holds"]
    return str(hold["state"])


def state(node: ServedNode) -> str:
    (hold,) = node.host.ask_hold({"do": "list"})["holds"]
    return str(hold["state"])


def test_a_held_device_has_a_taint_and_its_pod_stays_even_with_no_execute(root: Path) -> None:
    plugin = ScriptedPlugin("gary", "gina", resource=RESOURCE)
    with served(root, plugin, protocol="dra", on_unhealthy="no-execute") as node:
        node.await_offer()
        pod, other = node.claim(*place_of(node, "gary")), place_of(node, "gina")
        node.got(pod)
        name = place_of(node, "gary")[1]
        ask(node, "hold", "gary")
        expected = [(f"{DRIVER}/held", "NoSchedule")]
        eventually(lambda: [(t["key"], t["effect"]) for t in taints(node)[name]] == expected)
        assert [] == taints(node)[other[1]]
        eventually(lambda: state(node) == "waiting for its users")
        assert "Running" == node.status(pod)["phase"]
        node.end(pod)
        eventually(lambda: state(node) == "let go")
        ask(node, "release", "gary")
        eventually(lambda: taints(node)[name] == [])


def test_a_claim_that_was_allocated_before_the_hold_waits_until_the_release(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plugin = ScriptedPlugin("gary", resource=RESOURCE)
    with served(root, plugin, protocol="dra") as node:
        node.await_offer()
        place = place_of(node, "gary")
        ask(node, "hold", "gary")
        pod = node.claim(*place)  # its scheduler has not seen the taint yet
        eventually(
            lambda: any(f"held: {WHY}" in str(vars(one).get("error")) for one in caplog.records)
        )
        assert "Running" != node.status(pod)["phase"]
        ask(node, "release", "gary")
        node.got(pod)


def test_all_shares_of_a_device_are_held(root: Path) -> None:
    shares = [dp.Device(share_id("gary", n), share_of="gary", hardware=["g"]) for n in range(2)]
    with served(root, ScriptedPlugin(*shares, resource=RESOURCE), protocol="dra") as node:
        node.await_offer()
        ask(node, "hold", "gary")
        eventually(lambda: [len(one) for one in taints(node).values()] == [1])
        eventually(lambda: state(node) == "let go")


def test_taints_say_why_in_a_word(root: Path) -> None:
    sick = dp.Device("gary", health=dp.Health.unhealthy("XID 79", "xid_79"))
    odd = dp.Device("gina", health=dp.Health.unhealthy("?", f" {70 * 'x'}: ü/"))
    plugin = ScriptedPlugin("gary", "gina", resource=RESOURCE)
    with served(root, plugin, protocol="dra") as node:
        node.await_offer()
        names = {one: place_of(node, one)[1] for one in ("gary", "gina")}
        plugin.set(sick, odd)

        def found(one: str) -> list[tuple[str, str, str]]:
            all_of_it = taints(node)[names[one]]
            return [(t["key"], t.get("value", ""), t["timeAdded"]) for t in all_of_it]

        ((key, value, since),) = eventually(lambda: found("gary"))
        assert (f"{DRIVER}/unhealthy", "xid_79") == (key, value)
        assert [62 * "x"] == [value for _, value, _ in found("gina")]  # a blank was before it
        plugin.set(dp.Device("gary", health=dp.Health.unhealthy("XID 119", "xid_119")), odd)
        # Another cause is no other taint: what a claim tolerates for some time goes on.
        eventually(lambda: found("gary") == [(f"{DRIVER}/unhealthy", "xid_119", since)])
        ask(node, "hold", "gary")
        eventually(lambda: [one[:2] for one in found("gary")] == [(f"{DRIVER}/held", "hold")])
