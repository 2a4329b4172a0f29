"""Our plugins on a simulated node of a cluster: defects of the kubelet, health, old kubelets."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

import deviceplugin as dp
from deviceplugin_testing.simulator import KubeletConfig
from patience import eventually
from served.cluster_node import DRIVER, ServedNode, served

RESOURCE = "example.com/gopher"


@pytest.fixture
def root() -> Iterator[Path]:
    """Short, because the path of a socket has 107 bytes at most."""
    path = Path(tempfile.mkdtemp(prefix="dp"))
    yield path
    shutil.rmtree(path)


class Gophers(dp.Plugin):
    """Two gophers that have to be woken up before a container gets them."""

    resource = RESOURCE

    def __init__(self) -> None:
        self.sick: dict[str, str] = {}
        self.woken: list[list[str]] = []

    @override
    def discover(self) -> Iterator[dp.Device]:
        for name in ("gary", "gina"):
            reason = self.sick.get(name)
            health = dp.Health.unhealthy(reason) if reason else dp.Health()
            yield dp.Device(name, nodes=[dp.DeviceNode(f"/dev/{name}")], health=health)

    @override
    def pre_start(self, devices: Any) -> None:
        self.woken.append([device.id for device in devices])


def nodes(node: ServedNode, pod: str) -> set[str]:
    """Return the device nodes that the pod got."""
    return {one.host_path for one in node.got(pod).devices}


# T1.


def test_a_plugin_with_pre_start_does_not_prevent_pods_that_get_its_resource_from_claims(
    root: Path,
) -> None:
    plugin = Gophers()
    with served(root, plugin, protocol="dra") as node:
        node.await_offer()
        node.offer(RESOURCE)
        pod = node.pod(RESOURCE)
        given = nodes(node, pod)
        (held,) = node.held(pod)
        assert {f"/dev/{held}"} == given
        assert [held] in plugin.woken
        known = node.node.pod(pod)
        node.kubelet.exit_container(known, "main")
        assert node.kubelet.start_container(known, "main")


# Health.


# Old kubelets.


def test_a_kubelet_that_knows_v1beta1_only_is_served(root: Path) -> None:
    config = KubeletConfig(version="1.33", dra=True)
    with served(root, Gophers(), protocol="dra", config=config) as node:
        node.await_offer()
        eventually(lambda: node.kubelet.dra.drivers, "the driver")
        assert "v1beta1.DRAPlugin" == node.kubelet.dra.service(DRIVER)
        place, (_, id_) = next(iter(node.offered().items()))
        pod = node.claim(*place)
        assert {f"/dev/{id_}"} == nodes(node, pod)


# Losses.


def test_slices_are_back_after_the_kubelet_has_deleted_them(root: Path) -> None:
    with served(root, Gophers(), protocol="dra") as node:
        node.await_offer()
        before = node.offered()
        deleted = node.kubelet.metrics.slice_deletions[""]
        node.kubelet.restart()
        node.kubelet.wait(lambda: node.kubelet.metrics.slice_deletions[""] > deleted)
        eventually(lambda: node.offered() == before, "the slices")


def test_a_pod_runs_again_after_a_reboot(root: Path) -> None:
    with served(root, Gophers(), protocol="dra") as node:
        node.await_offer()
        node.offer(RESOURCE)
        pod = node.pod(RESOURCE)
        before = nodes(node, pod)
        node.kubelet.reboot()
        state = node.kubelet.pod(node.node.pod(pod))
        eventually(lambda: state.running, "the pod")
        assert before == nodes(node, pod)
