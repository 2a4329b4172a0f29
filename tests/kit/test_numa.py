"""One rule for NUMA nodes, and never a mixture in one resource."""

import json
import logging
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import deviceplugin as dp
from deviceplugin._app.preview import show
from deviceplugin._discovery.resources import Topologies
from deviceplugin.kit import numa
from deviceplugin_testing.fixture import Kubelet
from deviceplugin_testing.simulator import KubeletConfig, Pod
from scripted_plugin import RESOURCE, ScriptedPlugin, sick

NEAR = dp.Device("near", topology=dp.Topology((0,)))
FAR = dp.Device("far", topology=dp.Topology((1,)))
NOWHERE = dp.Device("nowhere")


def bare(*devices: dp.Device) -> list[dp.Device]:
    return [replace(device, topology=None) for device in devices]


# What the kernel says.


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["1\n"], 1),
        (["", "many", "0", "3"], 0),
        (["-1", "0"], None),
        (["1023"], 1023),
        (["1024"], None),
        (["9" * 5000, "1"], 1),
        ([], None),
    ],
)
def test_the_nearest_number_decides_and_is_a_node_or_nothing(
    texts: list[str], expected: int | None
) -> None:
    assert expected == numa.nearest_node(texts)


def test_a_device_without_a_node_has_that_of_what_it_is_plugged_into(tmp_path: Path) -> None:
    folder = tmp_path / "devices/pci0000:00/0000:03:00.0"
    (folder / "drm/card0").mkdir(parents=True)
    (folder / "numa_node").write_text("1\n")
    assert 1 == numa.node("devices/pci0000:00/0000:03:00.0/drm/card0", sysfs=tmp_path)
    assert numa.node("devices/none", sysfs=tmp_path) is None


def test_no_node_is_no_topology() -> None:
    assert (None, dp.Topology((0,))) == (numa.topology(None), numa.topology(0))


# What the kubelet is told.


def test_topology_of_all_devices_stays() -> None:
    assert ([NEAR, FAR], "") == numa.even([NEAR, FAR])
    assert ([NOWHERE], "") == numa.even([NOWHERE])
    assert ([], "") == numa.even(iter(()))


def test_a_device_without_topology_takes_it_from_all_and_is_named() -> None:
    devices, reason = numa.even([NEAR, NOWHERE, FAR])
    assert bare(NEAR, NOWHERE, FAR) == devices
    assert "1 of 3 devices have no NUMA node: nowhere" == reason
    many = [NEAR, *(dp.Device(f"d{number}", topology=dp.Topology()) for number in range(4))]
    assert "4 of 5 devices have no NUMA node: d0, d1, d2, ..." == numa.even(many).reason
    assert [*bare(NEAR), *many[1:]] == numa.even(many).devices


def test_one_that_is_not_given_to_pods_does_no_harm() -> None:
    devices = [NEAR, sick("gone", "it is gone")]
    assert (devices, "") == numa.even(devices)


# What the framework does with it.


def test_a_mixture_is_told_once_until_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    topologies = Topologies()
    for _ in range(3):
        assert bare(NEAR, NOWHERE) == topologies.even(RESOURCE, [NEAR, NOWHERE])
    (record,) = caplog.records
    assert ("topology not advertised", logging.WARNING) == (record.getMessage(), record.levelno)
    assert {
        "resource": RESOURCE,
        "reason": "1 of 2 devices have no NUMA node: nowhere",
        "advice": "the kubelet rejects pods over a mixture: give a NUMA node to all or to none",
    }.items() <= vars(record).items()
    assert [NEAR] == topologies.even(RESOURCE, [NEAR])
    topologies.even(RESOURCE, [NEAR, NOWHERE])
    topologies.forget(RESOURCE)
    topologies.even(RESOURCE, [NEAR, NOWHERE])
    assert 3 == len(caplog.records)


def test_the_same_devices_stay_the_same_objects() -> None:
    topologies = Topologies()
    first = topologies.even(RESOURCE, [NEAR, NOWHERE])
    again = topologies.even(RESOURCE, [NEAR, NOWHERE, FAR])
    assert [id(device) for device in first] == [id(device) for device in again[:2]]
    sicker = replace(NEAR, health=dp.Health.unhealthy("hot"))
    assert bare(sicker, NOWHERE, FAR) == topologies.even(RESOURCE, [sicker, NOWHERE, FAR])


def test_a_kubelet_admits_pods_over_a_mixture(caplog: pytest.LogCaptureFixture) -> None:
    plugin = ScriptedPlugin(NEAR, NOWHERE)
    config = KubeletConfig(topology_policy="restricted", numa_nodes=(0, 1))
    # Not tmp_path: the path of a Unix socket has 107 bytes at most.
    with (
        TemporaryDirectory() as folder,
        Kubelet(Path(folder), config) as restricted,
        restricted.running(plugin) as node,
    ):
        node.wait_for(RESOURCE, {"near", "nowhere"})
        # Told as it was found, this pod is rejected: see tests/simulator/test_topology.py.
        outcome = node.kubelet.admit(Pod.of("p", main={RESOURCE: 2}))
        assert outcome, outcome.message
        plugin.set(NEAR, replace(NOWHERE, topology=dp.Topology((1,))))

        def told() -> list[list[int]]:
            (resource,) = node.host.inventory()["resources"]
            return [device["numa_nodes"] for device in resource["devices"]]

        node.kubelet.wait(lambda: [[0], [1]] == told())
    assert 1 == sum("topology not advertised" == record.getMessage() for record in caplog.records)


def test_once_shows_what_the_kubelet_would_be_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == show([ScriptedPlugin(NEAR, NOWHERE)], "json")
    out, err = capsys.readouterr()
    assert [[], []] == [one["numa_nodes"] for one in json.loads(out)["resources"][0]["devices"]]
    text = f"{RESOURCE}: 1 of 2 devices have no NUMA node: nowhere"
    assert f"ScriptedPlugin: topology not advertised: {text}\n" == err
