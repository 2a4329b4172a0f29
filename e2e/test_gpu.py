"""The GPU plugin from installation to removal, on a fake driver."""

import subprocess
from pathlib import Path

import pytest

from deviceplugin_testing.simulator import Pod
from gpu.fake_library import build_or_skip
from gpu.fake_nvml import FakeNvml, Fleet
from homes.simulated_node import Node

RESOURCE = "nvidia.com/gpu"
pytestmark = pytest.mark.gpu


class GpuNode:
    """A node whose fake driver has four GPUs in two linked pairs."""

    def __init__(self, node: Node, library: Path, environment: pytest.MonkeyPatch) -> None:
        self.node, self.kubelet = node, node.kubelet
        self.fake = FakeNvml(node.root / "nvml", Fleet.of(4, links={(0, 2): 4, (1, 3): 4}))
        self.gpus = [gpu.uuid for gpu in self.fake.fleet.gpus]
        for name, value in self.fake.environment(library).items():
            environment.setenv(name, value)

    def start(self, *flags: str) -> "subprocess.Popen[str]":
        process = self.node.start(
            "gpu-device-plugin",
            f"--state-file={self.node.root}/health.json",
            "--discovery-interval=200ms",
            *flags,
        )
        self.kubelet.wait_for(RESOURCE, self.gpus)
        self.kubelet.tick()
        return process


@pytest.fixture
def gpus(
    node: Node, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> GpuNode:
    library = build_or_skip(tmp_path_factory.getbasetemp().parent / "fake-nvml")
    return GpuNode(node, library, monkeypatch)


def test_a_pod_gets_a_linked_pair_and_sees_no_other_gpu(gpus: GpuNode) -> None:
    gpus.start()
    assert 4 == gpus.kubelet.allocatable(RESOURCE)
    pod = Pod.of("training", main={RESOURCE: 2})
    assert gpus.kubelet.run(pod)
    options = gpus.kubelet.run_options(pod, "main")
    assert options is not None
    visible = options.envs["NVIDIA_VISIBLE_DEVICES"].split(",")
    assert visible in ([gpus.gpus[0], gpus.gpus[2]], [gpus.gpus[1], gpus.gpus[3]])


def test_a_lost_gpu_is_given_to_nobody_and_comes_back(gpus: GpuNode) -> None:
    gpus.start()
    gpus.fake.change(1, state="lost")
    gpus.kubelet.wait_for(RESOURCE, [*gpus.gpus[:1], *gpus.gpus[2:]], gpus.gpus[1:2])
    outcome = gpus.kubelet.admit(Pod.of("greedy", main={RESOURCE: 4}))
    assert "requested number of devices unavailable" in outcome.message
    assert gpus.kubelet.run(Pod.of("modest", main={RESOURCE: 3}))
    gpus.fake.change(1, state="ok")
    gpus.kubelet.wait_for(RESOURCE, gpus.gpus)


def test_an_ill_gpu_is_ill_after_a_restart_of_kubelet_and_plugin(gpus: GpuNode) -> None:
    process = gpus.start()
    while not gpus.kubelet.unhealthy(RESOURCE):
        gpus.fake.xid(3, 62)
        try:
            gpus.kubelet.wait_for(RESOURCE, gpus.gpus[:3], gpus.gpus[3:], timeout=1)
        except TimeoutError:
            assert None is process.poll()
    gpus.kubelet.restart()
    gpus.kubelet.wait_for(RESOURCE, gpus.gpus[:3], gpus.gpus[3:])
    process.kill()
    process.wait()
    gpus.node.start(
        "gpu-device-plugin", f"--state-file={gpus.node.root}/health.json", "--recovery-time=1h"
    )
    gpus.kubelet.wait_for(RESOURCE, gpus.gpus[:3], gpus.gpus[3:])


def test_a_pod_keeps_its_gpu_over_a_restart_of_the_plugin(gpus: GpuNode) -> None:
    process = gpus.start()
    pod = Pod.of("keeper", main={RESOURCE: 1})
    assert gpus.kubelet.run(pod)
    process.kill()
    process.wait()
    gpus.kubelet.wait_for(RESOURCE, (), gpus.gpus)
    gpus.start()
    assert gpus.kubelet.run(Pod.of("others", main={RESOURCE: 3}))
    assert not gpus.kubelet.admit(Pod.of("late", main={RESOURCE: 1}))
    assert "Running" == gpus.kubelet.pod(pod).phase


def test_an_uninstalled_plugin_leaves_nothing_behind(gpus: GpuNode) -> None:
    events = gpus.node.uninstall(gpus.start())
    assert [] == list(gpus.kubelet.plugin_dir.glob("nvidia*"))
    assert ["registered", "started", "stopping"] == sorted(
        event for event in events if not event.startswith(("device ", "GPU found"))
    )
