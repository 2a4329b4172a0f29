"""MIG devices from a claim to a container: the framework, a simulated kubelet, the fake driver.

The claims are allocated by the tests, and also wrongly, as no scheduler would.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deviceplugin._dra.naming import device_name, pool_name
from drivers.dual_node import NODE, DualNode
from gpu.fake_nvml import FakeGpu, Fleet
from gpu.rig import GPU, GpuRig
from patience import eventually

DRIVER = "nvidia-gpu.device-plugins"
ID, OTHER = FakeGpu(0).uuid, FakeGpu(1).uuid
HALF = f"{ID}/3g.40gb@4"


@pytest.fixture
def node(root: Path, rig: GpuRig) -> Iterator[DualNode]:
    """A node with two H100, of which parts can be made."""
    h100: dict[str, Any] = {"name": "NVIDIA H100 80GB HBM3", "memory": 81559, "compute": "9.0"}
    rig.has(Fleet.of(2, **h100))
    with DualNode(root) as found:
        start(found, rig)
        yield found


def start(node: DualNode, rig: GpuRig) -> None:
    node.plugin = rig.plugin(mig_on_demand="switch")  # type: ignore[assignment]
    node.start(protocol="dra", driver_name=DRIVER)
    eventually(lambda: {device_name(one) for one in (ID, HALF)} <= node.by_dra())


def run(node: DualNode, name: str, *ids: str) -> None:
    """Create a pod whose claim has these devices."""
    node.make.claim_of(name, [{"name": "r", "exactly": {"deviceClassName": "gopher"}}])
    place = {"driver": DRIVER, "pool": pool_name(NODE, GPU), "request": "r"}
    results = [{**place, "device": device_name(one)} for one in ids]
    allocation = {"devices": {"results": results}}
    node.cluster.change(
        "ResourceClaim", name, lambda claim: claim["status"].update(allocation=allocation)
    )
    container = {"name": "main", "image": "none", "resources": {"claims": [{"name": "d"}]}}
    node.make.pod_with(name, name, containers=[container])


def end(node: DualNode, name: str) -> None:
    node.remove(name)
    eventually(lambda: node.cluster.get("Pod", name) is None)


def visible(node: DualNode, name: str) -> list[str]:
    """Return what the container of a pod sees, once it runs."""
    node.wait_for_phase(name, "Running")
    (options,) = node.kubelet.pod(node.node.pod(name)).started.values()
    assert options
    return options.envs["NVIDIA_VISIBLE_DEVICES"].split(",")


@pytest.mark.slow
def test_a_pod_gets_parts_that_go_with_it(node: DualNode, rig: GpuRig) -> None:
    run(node, "one", HALF)
    (first,) = visible(node, "one")
    assert first.startswith("MIG-00000000-0001")
    run(node, "two", f"{ID}/1g.10gb@0", f"{OTHER}/7g.80gb@0")
    assert ["MIG-00000000-0002", "MIG-00000001-0001"] == [one[:17] for one in visible(node, "two")]
    node.stop()
    start(node, rig)
    end(node, "one")
    eventually(lambda: "gone 0 gi=1" in rig.fake.made())
    assert "gone 0 gi=2" not in rig.fake.made()
    end(node, "two")
    off = {f"gpu {slot} mig=off mig-pending=off" for slot in (0, 1)}
    eventually(lambda: off <= {*rig.fake.made()})
    run(node, "whole", ID)
    assert [ID] == visible(node, "whole")


@pytest.mark.slow
def test_nothing_is_made_beside_what_a_pod_has(
    node: DualNode, rig: GpuRig, caplog: pytest.LogCaptureFixture
) -> None:
    run(node, "whole", ID)
    assert [ID] == visible(node, "whole")
    run(node, "half", HALF)
    eventually(lambda: "without room" in "".join(str(vars(one)) for one in caplog.records))
    assert [] == rig.fake.made()
    end(node, "whole")
    assert 1 == len(visible(node, "half"))


@pytest.mark.slow
def test_what_failed_in_the_middle_is_removed_and_made_when_it_can_be(
    node: DualNode, rig: GpuRig
) -> None:
    rig.fake.fail("nvmlGpuInstanceCreateComputeInstance", 999)
    run(node, "half", HALF)
    eventually(lambda: {"gone 0 gi=1", "gpu 0 mig=off mig-pending=off"} <= {*rig.fake.made()})
    rig.fake.mend()
    assert 1 == len(visible(node, "half"))
    end(node, "half")
    eventually(lambda: "gpu 0 mig=off mig-pending=off" == rig.fake.made()[-1])
