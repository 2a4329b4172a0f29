"""The peers' programs and this plugin on the same nodes: where they are right, all say the same.

With ``SRIOV_PLUGIN=path/to/sriovdp`` and ``RDMA_SHARED_PLUGIN=path/to/k8s-rdma-shared-dp``, as root
on Linux. Where one is not right, a test shows what it does instead, for the page.
"""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest

from containers.unshare import POSSIBLE
from deviceplugin.kit.environment import KUBEVIRT
from kubelets.on_node import OnNode, on_node
from patience import eventually
from rdma.machines import CONNECTX6, E810, SAMPLE, Machine
from rdma.tree import Build, RdmaTree

SRIOV: Final = os.environ.get("SRIOV_PLUGIN", "")
SHARED: Final = os.environ.get("RDMA_SHARED_PLUGIN", "")
OURS: Final = str(Path(sys.executable).with_name("rdma-device-plugin"))
ENVIRONMENT: Final = {
    "RDMA_NO_KERNEL": "1",
    "DP_DISCOVERY_INTERVAL": "1s",  # a tree of files sends no events
}
DEVINFO: Final = "k8s.cni.cncf.io/devinfo/dp"

pytestmark = pytest.mark.skipif(not POSSIBLE, reason="needs root and unshare, for /sys and /dev")
needs_sriov = pytest.mark.skipif(not SRIOV, reason="SRIOV_PLUGIN does not name the SR-IOV plugin")
needs_shared = pytest.mark.skipif(not SHARED, reason="RDMA_SHARED_PLUGIN does not name the plugin")


class Plugin:
    """One of them, on a kubelet of its own."""

    def __init__(self, node: OnNode) -> None:
        self.node, self.kubelet = node, node.kubelet

    def answers(self, resource: str) -> dict[str, Any]:
        """Return what a container gets with each device: nodes, rights, and variables."""
        return {id_: self.answer(resource, id_) for id_ in self.kubelet.devices(resource)}

    def answer(self, resource: str, *ids: str) -> Any:
        answer = self.kubelet.allocate(resource, list(ids))
        nodes = {(one.host_path, one.container_path, one.permissions) for one in answer.devices}
        envs = {
            key: json.loads(value) if key.endswith("_INFO") else value
            for key, value in answer.envs.items()
            if not key.startswith(KUBEVIRT)  # which no peer has
        }
        return nodes, envs

    def numa(self, resource: str) -> dict[str, tuple[int, ...]]:
        """Return the NUMA nodes of each device."""
        listed = self.kubelet._manager.devices[resource]
        return {id_: tuple(node.ID for node in one.topology.nodes) for id_, one in listed.items()}

    def devinfo(self) -> dict[str, Any]:
        """Return what is there for Multus."""
        folder = self.node.run / DEVINFO
        return {path.name: json.loads(path.read_text()) for path in folder.glob("*")}


@contextmanager
def running(program: str, tree: RdmaTree, configuration: object) -> Iterator[Plugin]:
    with TemporaryDirectory(prefix="dp") as folder:
        file = Path(folder, "config.json")
        file.write_text(json.dumps(configuration))
        flags = [f"--config={file}"] if program == OURS else ["-config-file", str(file)]
        names = {name for address in tree.folders for name in tree.names(address)}
        with on_node(
            tree.sys.parent, program, *flags, interfaces=names, environment=ENVIRONMENT
        ) as node:
            yield Plugin(node)


def listed(plugin: Plugin, resource: str) -> set[str]:
    """Return the ids of a resource, once there are any."""
    return set(eventually(lambda: plugin.kubelet.devices(resource), resource))


def nic(**selectors: object) -> dict[str, object]:
    return {"resourceList": [{"resourceName": "nic", "selectors": selectors}]}


@needs_sriov
@pytest.mark.parametrize(
    ("machine", "selectors"),
    [
        (SAMPLE, {"vendors": ["15b3"]}),
        (SAMPLE, {"pfNames": ["ens1f0np0#2-3"], "drivers": ["vfio-pci"]}),
        (SAMPLE, {"pfNames": ["ENS1F0NP0#0,2-3"]}),
        (SAMPLE, {"rootDevices": ["0000:3b:00.0#1"], "isRdma": True}),
        (SAMPLE, {"pciAddresses": ["0000:3b:00.2", "0000:5e:00.0"]}),
        (SAMPLE, {"devices": ["1592"], "isRdma": True}),
        (SAMPLE, {"linkTypes": ["ether"], "drivers": ["vfio-pci"]}),
        (CONNECTX6, {"vendors": ["15b3"], "isRdma": True}),
        (CONNECTX6, {"drivers": ["mlx5_core"], "linkTypes": ["ether"]}),
        (E810, {"vendors": ["8086"], "devices": ["1889"], "pfNames": ["enp81s0f3#4-7"]}),
        (E810, {"drivers": ["vfio-pci"], "needVhostNet": True}),
    ],
)
def test_both_offer_the_same_functions_with_the_same_nodes_and_variables(
    build: Build, machine: Machine, selectors: dict[str, object]
) -> None:
    tree = build(machine)
    for name in ("vhost-net", "net/tun"):
        tree.hardware.node(name)
    configuration, resource = nic(**selectors), "intel.com/nic"
    with (
        running(SRIOV, tree, configuration) as theirs,
        running(OURS, tree, configuration) as ours,
    ):
        assert listed(theirs, resource) == listed(ours, resource)
        assert theirs.numa(resource) == ours.numa(resource)
        assert theirs.answers(resource) == ours.answers(resource)
        everything = sorted(listed(theirs, resource))
        assert theirs.answer(resource, *everything) == ours.answer(resource, *everything)
        eventually(lambda: theirs.devinfo() == ours.devinfo(), "the same device information")


@needs_sriov
def test_neither_takes_a_card_for_its_virtual_functions(build: Build) -> None:
    both = [
        {"resourceName": "card", "selectors": {"pfNames": ["ens3"]}},
        {"resourceName": "root", "selectors": {"rootDevices": ["0000:5e:00.0"]}},
        {"resourceName": "rest", "selectors": {"drivers": ["ice"]}},
    ]
    tree = build()
    for program in (SRIOV, OURS):
        with running(program, tree, {"resourceList": both}) as plugin:
            assert {"0000:5e:00.0"} == listed(plugin, "intel.com/rest")
            assert ["intel.com/rest"] == list(plugin.kubelet._manager.devices)


@needs_sriov
def test_theirs_takes_the_first_of_two_names_for_one_card(build: Build) -> None:
    configuration = nic(pfNames=["ens1f0np0#0", "ens1f0np0#3"])
    with (
        running(SRIOV, build(), configuration) as theirs,
        running(OURS, build(), configuration) as ours,
    ):
        assert {"0000:3b:00.2"} == listed(theirs, "intel.com/nic")
        assert {"0000:3b:00.2", "0000:3b:00.5"} == listed(ours, "intel.com/nic")


@needs_sriov
def test_theirs_never_notices_a_function_that_is_created_later(build: Build) -> None:
    tree = build()
    port = tree.machine.ports[0]
    tree.destroy(port, 0)
    configuration = nic(vendors=["15b3"], devices=["101e"])
    with (
        running(SRIOV, tree, configuration) as theirs,
        running(OURS, tree, configuration) as ours,
    ):
        before = listed(theirs, "intel.com/nic")
        assert before == listed(ours, "intel.com/nic")
        tree.create(port, 0)
        eventually(lambda: listed(ours, "intel.com/nic") == before | {"0000:3b:00.2"}, "it")
        assert before == listed(theirs, "intel.com/nic")


def shared(**selectors: object) -> dict[str, object]:
    entry = {"resourceName": "hca", "rdmaHcaMax": 3, "selectors": selectors}
    return {"periodicUpdateInterval": 0, "configList": [entry]}


@needs_shared
@pytest.mark.parametrize(
    ("machine", "selectors"),
    [
        (SAMPLE, {"vendors": ["15b3"], "deviceIDs": ["101d"]}),
        (SAMPLE, {"vendors": ["15b3"], "deviceIDs": ["101e"]}),
        (SAMPLE, {"ifNames": ["ens1f0np0", "ens1f0v1"]}),
        (CONNECTX6, {"vendors": ["15b3"], "drivers": ["mlx5_core"]}),
    ],
)
def test_both_give_all_shared_devices_to_each_container(
    build: Build, machine: Machine, selectors: dict[str, object]
) -> None:
    tree = build(machine)
    with (
        running(SHARED, tree, shared(**selectors)) as theirs,
        running(OURS, tree, shared(**selectors)) as ours,
    ):
        assert {"0", "1", "2"} == listed(theirs, "rdma/hca")
        assert {"hca::0", "hca::1", "hca::2"} == listed(ours, "rdma/hca")
        (nodes, envs), (own, variables) = (
            theirs.answer("rdma/hca", "1"),
            ours.answer("rdma/hca", "hca::1"),
        )
        assert {(host, inside, "rw") for host, inside, _ in nodes} == own
        assert ({}, {}) == (envs, variables)
        assert {"rwm"} == {rights for _, _, rights in nodes}


@needs_shared
def test_theirs_has_no_device_without_management_datagrams(build: Build) -> None:
    tree = build()
    with (
        running(SHARED, tree, shared(drivers=["ice"])) as theirs,
        running(OURS, tree, shared(drivers=["ice"])) as ours,
    ):
        assert 3 == len(listed(ours, "rdma/hca"))
        eventually(lambda: "rdma/hca" in theirs.kubelet._manager.devices, "its registration")
        assert [] == list(theirs.kubelet.devices("rdma/hca"))
