"""Switching the protocol under pods, on a node of a simulated cluster: nothing is lost."""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import yaml

from cluster.whole_node import Protocol, WholeNode
from patience import eventually

ROLE = Path(__file__).parents[2] / "deployments/components/dra/rbac.yaml"
DEVICES = ["a", "b", "c", "d"]
OURS = "deviceplugin-dra"
"""How the client of the plugin calls itself."""
READS = ("get", "list", "watch")


@pytest.fixture
def whole(root: Path) -> Iterator[WholeNode]:
    with WholeNode(root, DEVICES) as running:
        offered(running)
        yield running


def offered(whole: WholeNode) -> None:
    """Wait until the wanted protocol offers all devices, and the other none."""
    dra = whole.protocol == "dra"
    expected = ([], DEVICES) if dra else (DEVICES, [])
    count = 0 if dra else len(DEVICES)

    def is_so() -> bool:
        found = (whole.offered_by_plugin(), whole.offered_by_dra())
        return found == expected and whole.allocatable() == count

    whole.step_until(is_so, f"{whole.protocol} offering all devices")


def has_devices(whole: WholeNode, pod: str, count: int) -> bool:
    return len(whole.running().get(pod, [])) == count


def is_long(read: Callable[[], list[str]], count: int) -> bool:
    return len(read()) == count


def in_dra(whole: WholeNode) -> None:
    whole.switch("dra")
    offered(whole)


def be_seen(whole: WholeNode) -> None:
    """Wait until the plugin has seen which pod has which device, if it serves the kubelet.

    A pod that it has never seen with its device holds that much longer.
    """
    if whole.protocol == "dra":
        return
    asked = whole.kubelet.metrics.pod_resources_endpoint_requests
    before = asked["total"]
    # The first answer may be from before, and a List may have been too early for the pod.
    eventually(lambda: asked["total"] >= before + 4, "questions to the kubelet")


def ours(whole: WholeNode) -> Counter[tuple[str, str]]:
    """Return the requests of the plugin."""
    asked = [one for one in whole.cluster.requests if one.client == OURS]
    return Counter((one.verb, one.resource) for one in asked)


@pytest.mark.parametrize("protocol", ["device-plugin", "dra"])
@pytest.mark.slow
def test_a_switch_under_pods_that_hold_all_devices_hands_each_over_when_its_pod_ends(
    whole: WholeNode, protocol: Protocol
) -> None:
    if protocol == "dra":
        in_dra(whole)
    names = [whole.pod() for _ in DEVICES]
    whole.step_until(lambda: len(whole.running()) == len(DEVICES), "pods")
    before, starts = whole.running(), whole.booked.starts
    be_seen(whole)

    whole.switch("dra" if protocol == "device-plugin" else "device-plugin")
    other = whole.offered_by_dra if protocol == "device-plugin" else whole.offered_by_plugin
    for step, name in enumerate(names, 1):
        whole.node.finish(name)
        whole.step_until(partial(is_long, other, step), "the device of the pod")
        held = {pod: devices for pod, devices in before.items() if pod not in names[:step]}
        assert held == whole.running()
    assert starts == whole.booked.starts
    offered(whole)


@pytest.mark.slow
def test_what_others_do_to_slices_and_cdi_files_is_undone(whole: WholeNode) -> None:
    in_dra(whole)
    (found,) = whole.cluster.list("ResourceSlice")
    whole.cluster.delete("ResourceSlice", found["metadata"]["name"])
    eventually(lambda: whole.offered_by_dra() == DEVICES, "the slice")
    (found,) = whole.cluster.list("ResourceSlice")
    whole.cluster.change(
        "ResourceSlice", found["metadata"]["name"], lambda one: one["spec"].update(devices=[])
    )
    eventually(lambda: whole.offered_by_dra() == DEVICES, "the device")

    name = whole.pod()
    whole.step_until(lambda: name in whole.running(), "the pod")
    before = whole.running()
    files = sorted(path.name for path in (whole.root / "cdi").iterdir())
    whole.lose_cdi_files()
    eventually(
        lambda: files == sorted(path.name for path in (whole.root / "cdi").iterdir()),
        "the file",
        timeout=10,  # long before the check for events that were lost, every 30 s
    )
    whole.restart_container(name)
    assert before == whole.running()

    whole.kubelet.restart()  # it deletes the slices of the node
    whole.step_until(lambda: whole.offered_by_dra() == DEVICES, "slices")


@pytest.mark.slow
def test_the_plugin_asks_the_api_server_for_little_and_by_the_rights_of_its_role(
    whole: WholeNode,
) -> None:
    in_dra(whole)
    name = whole.pod()
    whole.step_until(lambda: name in whole.running(), "the pod")
    checked = "the list some seconds after the driver was registered"
    whole.step_until(lambda: ours(whole)["list", "resourceslices"] == 2, checked)
    whole.step_until(lambda: ours(whole)["patch", "resourceclaims/status"] == 1, "the status")
    before = ours(whole)
    for _ in range(10):
        whole.step()
        whole.pause(0.1)
    assert before == ours(whole)
    assert 1 == before["watch", "resourceslices"]
    assert 2 == before["get", "resourceclaims"], "to prepare it, and for its status"

    whole.set_health("d", "it smokes")
    whole.step_until(lambda: len(whole.offered_by_dra()) == len(DEVICES) - 1, "the taint")
    whole.node.finish(name)
    whole.set_health("d")
    whole.switch("device-plugin")
    offered(whole)
    (role,) = (one for one in yaml.safe_load_all(ROLE.read_text()) if one["kind"] == "ClusterRole")
    allowed = {(verb, one["resources"][0]) for one in role["rules"] for verb in one["verbs"]}
    # Without a token, which has the node's UID, the plugin reads the node. What the policy asks for
    # is no request.
    asked = {
        ("publish", "resourceslices/driver"),
        ("associated-node:patch", "resourceclaims/driver"),
    }
    assert allowed - asked | {("get", "nodes")} == set(ours(whole))


@pytest.mark.slow
def test_the_api_server_is_away_and_the_device_plugin_goes_on(whole: WholeNode) -> None:
    in_dra(whole)
    claimed = whole.pod(by_claim=True)
    whole.step_until(lambda: claimed in whole.running(), "the pod with a claim")
    whole.switch("device-plugin")
    whole.step_until(lambda: whole.allocatable() == len(DEVICES) - 1, "the other devices")
    name = whole.pod()
    whole.cluster.settle()
    whole.node.step()
    whole.cluster.go_away()
    whole.cluster.cut_watches()
    before = whole.running()
    whole.restart_container(claimed)
    whole.restart_container(name)
    assert before == whole.running()
    assert {claimed, name} == set(before)
    whole.cluster.come_back()


@pytest.mark.slow
def test_one_of_a_thousand_devices_fails_and_one_slice_is_written(root: Path) -> None:
    names = [f"d{number:03}" for number in range(1000)]
    with WholeNode(root, names) as whole:
        whole.step_until(lambda: len(whole.offered_by_plugin()) == 1000, "devices")
        whole.switch("dra")
        whole.step_until(lambda: len(whole.offered_by_dra()) == 1000, "slices")
        before = ours(whole)
        assert 16 == len(whole.cluster.list("ResourceSlice"))
        whole.set_health("d500", "it smokes")
        whole.step_until(lambda: len(whole.offered_by_dra()) == 999, "the taint")
        whole.pause(0.3)
        written = ours(whole) - before
        assert {"update": 1} == {verb: n for (verb, _), n in written.items() if verb not in READS}
