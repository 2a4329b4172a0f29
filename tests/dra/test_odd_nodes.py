"""A node of a simulated cluster in odd states: no pods, lost records, two processes."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from typing_extensions import override

import deviceplugin as dp
from cluster.dra_objects import RESOURCE
from deviceplugin._app.dra import Dra
from deviceplugin._app.host import Host
from deviceplugin_testing.fixture._node import PLUGIN_POD
from drivers.dual_node import IDS, DualNode, Gophers, gopher
from patience import PATIENCE, eventually

ALL = set(IDS)
DRIVER = "gopher.example.com"


# A node without any pod. The plugin's own is the only one elsewhere.


def test_a_node_without_pods_offers_its_devices(node: DualNode) -> None:
    node.kubelet.delete(PLUGIN_POD)
    node.start(protocol="dra")
    node.wait_for(plugin=set(), dra=ALL)
    assert node.host
    eventually(lambda: node.host and not node.host.ready(), "readiness")
    assert 1 == len(node.run("one"))


def test_a_kubelet_that_does_not_know_its_pods_yet_is_why_nothing_is_offered(
    plugin_node: DualNode,
) -> None:
    held = plugin_node.run("one")
    plugin_node.stop()
    plugin_node.kubelet.restart(readmit=False)
    plugin_node.start(protocol="dra")
    why = "DRA: waiting for pod resources: it is not known what pods hold"
    eventually(lambda: plugin_node.host and why in plugin_node.host.ready(), "the reason")
    assert plugin_node.host
    assert why in "".join(plugin_node.host.troubles())
    assert set() == plugin_node.by_dra()
    plugin_node.kubelet.readmit()
    plugin_node.wait_for(plugin=set(), dra=ALL - held)
    eventually(lambda: plugin_node.host and not plugin_node.host.ready(), "readiness")


# A record that cannot be read.


def records(root: Path) -> list[str]:
    return sorted(one.name for one in (root / "plugins" / DRIVER / "claims").iterdir())


def damage_the_record(
    node: DualNode, root: Path, damaged: Callable[[str], str] = lambda _: "{"
) -> str:
    """Let a pod run by a claim, stop the plugin, and damage the claim's record."""
    node.start(protocol="dra")
    node.wait_for(plugin=set(), dra=ALL)
    (held,) = node.run("one")
    node.stop()
    (name,) = records(root)
    file = root / "plugins" / DRIVER / "claims" / name
    file.write_text(damaged(file.read_text()))
    return held


def test_the_devices_of_a_lost_record_are_withheld_as_long_as_their_pod_is_there(
    node: DualNode, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    held = damage_the_record(node, root)
    node.start(protocol="dra")
    node.wait_for(plugin=set(), dra=ALL - {held})
    assert records(root)[0].endswith(".json.bad")
    node.end("one")
    node.wait_for(plugin=set(), dra=ALL)
    eventually(lambda: not records(root), "the release")
    event = "claim released without its record"
    (logged,) = [vars(one) for one in caplog.records if one.message == event]
    assert held in logged["devices"]


@pytest.mark.slow
def test_a_lost_record_without_a_pod_does_not_keep_the_driver_for_ever(
    node: DualNode, root: Path
) -> None:
    folder = root / "plugins" / DRIVER / "claims"
    folder.mkdir(parents=True)
    (folder / "uid.json.bad").write_text("{")
    node.start(pod_resources_interval=node.settings().pod_resources_interval)
    node.wait_for(plugin=ALL, dra=set())
    eventually(lambda: not node.sockets(), "the end of the driver")
    eventually(lambda: not list(folder.iterdir()), "the removal")


def test_a_claim_outlives_a_downgrade_to_a_release_that_cannot_read_its_record(
    node: DualNode, root: Path
) -> None:
    version, newer = '"version": 1,', '"version": 99,'
    held = damage_the_record(node, root, lambda text: text.replace(version, newer))
    node.start()
    node.wait_for(plugin=ALL - {held}, dra=set())
    node.stop()
    (name,) = records(root)
    file = root / "plugins" / DRIVER / "claims" / name
    assert newer in file.read_text()
    file.write_text(file.read_text().replace(newer, version))  # what the newer release makes of it
    node.start(protocol="dra")
    node.wait_for(plugin=set(), dra=ALL)  # the API server knows that the claim has it
    assert [name.removesuffix(".bad")] == records(root)
    node.end("one")
    node.wait_for(plugin=set(), dra=ALL)
    eventually(lambda: not records(root), "the release")


# Two processes of one driver.


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["dra", "device-plugin"])
def test_a_second_process_serves_and_says_so_and_leaves_the_slices_alone(
    dra_node: DualNode, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (held,) = dra_node.run("one")
    before = dra_node.cluster.list("ResourceSlice")
    asked, usual = [], Dra._offers

    def noted(dra: Dra) -> object:
        asked.append(usual(dra))
        return asked[-1]

    monkeypatch.setattr(Dra, "_offers", noted)
    second = Host([dra_node.plugin], dra_node.settings(protocol=protocol))
    thread = threading.Thread(target=second.run)
    thread.start()
    try:
        why = "DRA: another process of this driver publishes the slices"
        eventually(lambda: why in second.troubles(), "the reason")
        eventually(lambda: second.inventory()["resources"], "its devices")
        if protocol == "dra":
            eventually(lambda: not second.ready(), "that it is ready")
            eventually(lambda: None in asked, "the publisher to ask for slices")
        assert before == dra_node.cluster.list("ResourceSlice")
    finally:
        second.stop()
        thread.join(PATIENCE)
    assert before == dra_node.cluster.list("ResourceSlice")
    assert {held} == dra_node.held("one")


# Parameters, from the API server to the container.


@dataclass(frozen=True)
class Say:
    greeting: str = "hello"


class Talking(Gophers):
    parameters = Say

    @override
    def allocate_with(self, devices: Sequence[dp.Device], parameters: Say) -> dp.Allocation:
        return self.allocate(devices) + dp.Allocation(envs={"SAY": parameters.greeting})


def test_a_pod_gets_what_its_claim_says_and_one_whose_claim_is_wrong_waits_and_harms_nobody(
    node: DualNode, caplog: pytest.LogCaptureFixture
) -> None:
    node.plugin = Talking(*map(gopher, IDS), resource=RESOURCE)
    node.start(protocol="dra")
    node.wait_for(plugin=set(), dra=ALL)
    for name, key in (("right", "greeting"), ("wrong", "greting")):
        body = {"apiVersion": f"{DRIVER}/v1", "kind": "Say", key: "good day"}
        config = [{"opaque": {"driver": DRIVER, "parameters": body}}]
        request = {"name": "r", "exactly": {"deviceClassName": "gopher"}}
        node.make.claim_of(name, [request], config=config)
        container = {"name": "main", "image": "none", "resources": {"claims": [{"name": "d"}]}}
        node.make.pod_with(name, name, containers=[container])
    node.wait_for_phase("right", "Running")
    options = node.kubelet.pod(node.node.pod("right")).started["main"]
    assert options
    assert "good day" == options.envs["SAY"]
    why = (
        "claim default/wrong: request r: in the claim itself: parameters.greting: unknown key: did "
        "you mean 'greeting'?"
    )
    eventually(lambda: why in [getattr(one, "error", "") for one in caplog.records], "the reason")
    # Whose fault it is, is known: no traceback is needed.
    assert not [one for one in caplog.records if one.exc_info]
    assert "Pending" == node.make.status("wrong")["phase"]
    assert 1 == len(node.run("two"))
    node.remove("wrong")
    assert 1 == len(node.run("three"))
