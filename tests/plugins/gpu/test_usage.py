"""Who uses a GPU, and how much: NVML's processes, control groups, and what the kubelet says."""

import time
from collections.abc import Iterable
from datetime import timedelta

import pytest

from deviceplugin_gpu import usage
from deviceplugin_gpu.plugin import GpuPlugin
from deviceplugin_testing.fixture import Kubelet
from deviceplugin_testing.simulator import Pod
from gpu.rig import GPU, GpuRig, uuid
from node_processes import NESTED, NodeProcesses, scope
from patience import eventually

GIB = 2**30
Values = dict[tuple[str, ...], float]
MIG = "gpu 0 mig=on\nmig 0 gi=1 profile=1g.5gb uuid=MIG-1\nmig 0 gi=2 profile=1g.5gb uuid=MIG-2\n"


class Usage:
    """A node whose plugin measures what containers use."""

    def __init__(self, rig: GpuRig) -> None:
        self.rig = rig
        self.node = NodeProcesses(rig.roots.proc, rig.path / "logs")
        self.node.link("ml/train/main", 1, 1)
        self.node.link("ml/serve/main", 2, 2)
        self.rig.now = 0.0
        self.plugin = rig.plugin(container_logs=self.node.logs)

    def has(self, text: str, *holders: str) -> "Usage":
        """Have GPUs and their processes, and holders ``device namespace pod container``."""
        self.rig.fake.write(text)
        list(self.plugin.discover())
        held = [(GPU, *holder.split()) for holder in holders]
        self.plugin.holders = lambda: held
        return self

    def run(self, pid: int, container: int, started: float = 1.0) -> None:
        """Have a process in a container of the pod of the same number."""
        self.node.add(pid, f"/../../..{scope(container, container, '')}", started=started)

    def values(self, plugin: GpuPlugin | None = None) -> Values:
        """Return what is measured now, by metric and labels."""
        self.rig.now = (self.rig.now or 0) + 10
        plugin = plugin or self.plugin
        plugin.metrics()
        if asking := plugin._driver.usage.recent.asking:
            asking.join()
        return {
            (family.name.removeprefix("deviceplugin_gpu_"), *sample.labels.values()): sample.value
            for family in plugin.metrics()
            for sample in family.samples
            if "container_" in family.name or "unattributed" in family.name
        }


@pytest.fixture
def used(rig: GpuRig) -> Usage:
    return Usage(rig)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [vars(one)["problem"] for one in caplog.records if one.message == "GPU usage incomplete"]


def row(container: str, *, on: int = 0, device: str = "") -> tuple[str, ...]:
    """Return the labels of what a container uses of the GPU ``on``, of which it has ``device``."""
    return (uuid(on), *((GPU, device) if device else ("", "")), *container.split("/"))


def test_what_processes_of_a_container_use_is_summed_by_gpu(used: Usage) -> None:
    for pid, container in [(1001, 1), (1002, 1), (1003, 2)]:
        used.run(pid, container)
    used.node.add(1004, "/../../../../system.slice/x.service")
    used.has(
        "gpu 0-1\n"
        "process 0-1 pid=1001 used=1GiB sm=20\n"  # on two GPUs
        "process 0 pid=1001 used=1GiB kind=graphics\n"  # in two lists
        "process 0 pid=1002 used=2GiB sm=30\n"
        "process 0 pid=1003 used=3GiB kind=mps\n"
        "process 0 pid=1004 used=4GiB sm=5\n"
        "process 0 pid=1005 used=5GiB sm=5\n",  # it has ended
        f"{uuid(0)}::10 ml train main",
        f"{uuid(0)}::2 ml train main",
    )
    first = row("ml/train/main", device=f"{uuid(0)}::2")
    assert {
        ("container_memory_used_bytes", *first): 3 * GIB,
        ("container_utilization_ratio", *first): 0.5,
        ("container_memory_used_bytes", *row("ml/train/main", on=1)): GIB,
        ("container_utilization_ratio", *row("ml/train/main", on=1)): 0.2,
        # It has this GPU without the kubelet's knowing.
        ("container_memory_used_bytes", *row("ml/serve/main")): 3 * GIB,
        ("container_utilization_ratio", *row("ml/serve/main")): 0,
        ("unattributed_memory_used_bytes", uuid(0)): 4 * GIB,
    } == used.values()


@pytest.mark.parametrize(
    ("gpu", "process", "started", "expected"),
    [
        ("", "used=1GiB sm=40", 1.0, (GIB, 0.4)),
        ("", "used=1GiB sm=40 age=9000", 1.0, (GIB, 0.4)),
        ("", "sm=40", 1.0, (None, 0.4)),
        ("", "used=0 sm=0", 1.0, (0, 0)),
        ("", "used=1", 1.0, (1, 0)),  # idle, as the whole GPU is
        ("utilization=7", "used=1", 1.0, (1, None)),  # somebody was not
        ("", "used=1 sm=40 age=90000", 1.0, (1, 0)),  # a sample of long ago
        ("", "used=1 sm=250", 1.0, (1, None)),
        ("", "used=1 sm=40 age=5000", -2.0, (1, None)),  # a sample of another that had this id
        ("", "used=1GiB sm=40", 100.0, (None, None)),  # it started after NVML listed its id
    ],
)
def test_what_is_not_known_is_absent_and_not_0(
    used: Usage, gpu: str, process: str, started: float, expected: tuple[float | None, ...]
) -> None:
    uptime = 0 if started == 1 else time.clock_gettime(time.CLOCK_BOOTTIME)
    used.run(1001, 1, uptime + started)
    used.has(f"gpu 0 {gpu}\nprocess 0 pid=1001 {process}\n")
    used.values()
    found = used.values()
    names = ("container_memory_used_bytes", "container_utilization_ratio")
    assert expected == tuple(found.get((name, *row("ml/train/main"))) for name in names)


def test_one_unknown_process_makes_the_sum_of_its_container_unknown(used: Usage) -> None:
    for pid, container in [(1001, 1), (1002, 1), (1003, 2)]:
        used.run(pid, container)
    used.has(
        "gpu 0\n"
        "process 0 pid=1001 used=1 sm=70\nprocess 0 pid=1002 sm=60\nprocess 0 pid=1003 used=1\n"
    )
    assert {
        ("container_utilization_ratio", *row("ml/train/main")): 1.0,
        ("container_memory_used_bytes", *row("ml/serve/main")): 1,
        ("container_utilization_ratio", *row("ml/serve/main")): 0,
    } == used.values()


@pytest.mark.parametrize("device", ["MIG-1", "MIG-1::0", uuid(0)])
def test_a_mig_device_has_the_memory_of_its_own_processes(
    used: Usage, caplog: pytest.LogCaptureFixture, device: str
) -> None:
    used.run(1001, 1)
    used.run(1002, 2)
    text = f"{MIG}process 0 pid=1001 used=1 gi=1\nprocess 0 pid=1002 used=2 gi=2 sm=40\n"
    used.has(text, f"{device} ml train main")
    assert {
        ("container_memory_used_bytes", "MIG-1", GPU, device, "ml", "train", "main"): 1,
        ("container_memory_used_bytes", "MIG-2", "", "", "ml", "serve", "main"): 2,
    } == used.values()
    assert [f"{uuid(0)}: nvmlDeviceGetProcessUtilization: Not Supported (NVML error 3)"] == said(
        caplog
    )


def test_of_a_whole_gpu_the_sum_of_parts_is_known_if_each_is(used: Usage) -> None:
    used.run(1001, 1)
    holder = (GPU, uuid(0), "ml", "train", "main")
    used.has(
        f"{MIG}process 0 pid=1001 used=1 gi=1\nprocess 0 pid=1001 gi=2\n", " ".join(holder[1:])
    )
    used.values()
    assert {holder: {}} == used.plugin.usage()
    used.has(f"{MIG}process 0 pid=1001 used=1 gi=1\nprocess 0 pid=1001 used=2 gi=2\n")
    used.plugin.holders = lambda: [holder]
    used.values()
    assert {holder: {"memory_used_bytes": 3}} == used.plugin.usage()


def test_a_gpu_that_does_not_answer_costs_its_own_numbers_and_one_line(
    used: Usage, caplog: pytest.LogCaptureFixture
) -> None:
    used.run(1001, 1)
    used.has("gpu 0-3\n")
    used.has(
        "gpu 0-3\ngpu 3 state=lost\nprocess 0-3 pid=1001 used=1\n"
        "fault nvmlDeviceGetComputeRunningProcesses_v3 gpu=0 rc=3\n"
        "fault nvmlDeviceGetGraphicsRunningProcesses_v3 gpu=1 rc=4\n"
        "fault nvmlDeviceGetMPSComputeRunningProcesses_v3 gpu=2 rc=3\n"
        "fault nvmlDeviceGetProcessUtilization gpu=2 rc=4\n"
    )
    refused = "Insufficient Permissions (NVML error 4)"
    expected = {("container_memory_used_bytes", *row("ml/train/main", on=2)): 1}
    assert [expected] * 2 == [used.values(), used.values()]
    assert [
        f"{uuid(0)}: nvmlDeviceGetComputeRunningProcesses_v3: Not Supported (NVML error 3)",
        f"{uuid(1)}: nvmlDeviceGetGraphicsRunningProcesses_v3: {refused}",
        f"{uuid(2)}: nvmlDeviceGetProcessUtilization: {refused}",
    ] == said(caplog)


@pytest.mark.parametrize(
    ("driver", "first", "problem"),
    [
        ("580.95.05", "/", "processes of other pods are not visible: the pod needs hostPID: true"),
        ("470.1", "/../../../../init.scope",
         "this node is a container: driver 470.1 writes ids of processes as the machine does"),
        ("515.43", "/../../../../init.scope", ""),
        ("", "none", "/proc/1/cgroup: No such file or directory"),
    ],
)  # fmt: skip
def test_without_the_hosts_processes_nothing_is_measured_and_one_line_says_why(
    used: Usage, caplog: pytest.LogCaptureFixture, driver: str, first: str, problem: str
) -> None:
    used.run(1001, 1)
    used.node.see("/", first=first, namespace=NESTED)
    if first == "none":
        (used.node.proc / "1/cgroup").unlink()
    used.has(f"driver version={driver}\ngpu 0\nprocess 0 pid=1001 used=1 sm=40\n")
    # The samples of utilization are not translated.
    memory = {("container_memory_used_bytes", *row("ml/train/main")): 1}
    expected = {} if problem else memory
    assert [expected] * 2 == [used.values(), used.values()]
    found = [one.replace(str(used.rig.path), "") for one in said(caplog)]
    assert ([problem] if problem else []) == found


def test_it_is_asked_for_only_if_the_setting_says_so(used: Usage) -> None:
    used.has("gpu 0\nprocess 0 pid=1001 used=1\n")
    plugin = used.rig.plugin()
    list(plugin.discover())
    assert ({}, {}) == (used.values(plugin), plugin.usage())
    assert not [name for name in used.rig.fake.calls() if "Process" in name]


def test_an_nvml_that_hangs_costs_these_numbers_alone(used: Usage) -> None:
    text = "gpu 0\nprocess 0 pid=1001 used=1\n"
    used.run(1001, 1)
    assert 2 == len(used.has(text).values())
    hangs = "fault nvmlDeviceGetComputeRunningProcesses_v3 delay=1000000\n"
    used.rig.fake.write(text + hangs)
    for passed, expected in [(30, 2), (29, 2), (1, 0)]:
        used.rig.now = (used.rig.now or 0) + passed
        families = {family.name: family.samples for family in used.plugin.metrics()}
        assert 1 == len(families["deviceplugin_gpu_healthy"])
        assert expected == sum(len(families[n]) for n in families if "container_" in n)
    used.rig.fake.write(text)
    assert 2 == len(used.values())


def test_there_are_at_most_as_many_rows_as_a_scraper_takes(
    used: Usage, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "_MOST", 2)
    lines = ["gpu 0"]
    for one in range(3, 8):
        used.node.link(f"ml/p{one}/main", one, one)
        used.run(1000 + one, one)
        lines.append(f"process 0 pid={1000 + one} used=1 sm=1")
    used.has("\n".join([*lines, ""]))
    assert 4 == len(used.values())
    assert ["3 containers more than 2"] == said(caplog)


def test_the_kubelets_pods_are_charged_for_shares_in_metrics_and_in_devices(
    used: Usage, kubelet: Kubelet
) -> None:
    sharing = {"timeSlicing": {"resources": [{"name": "gpu", "replicas": 2}]}}
    plugin = used.rig.plugin(container_logs=used.node.logs, sharing=sharing)
    used.node.link("default/train/main", 3, 3)
    used.run(1001, 3)
    used.rig.fake.write("gpu 0\nprocess 0 pid=1001 used=1GiB sm=40\n")
    quick = {"pod_resources_interval": timedelta(milliseconds=50), "http_address": "127.0.0.1:0"}
    with kubelet.running(plugin, **quick) as node:
        node.wait_for(GPU, {f"{uuid(0)}::0", f"{uuid(0)}::1"})
        eventually(lambda: not node.host.ready(), "the plugin")
        assert node.kubelet.run(Pod.of("train", main={GPU: 1}))
        eventually(plugin.holders, "the holder")

        def people() -> Iterable[object]:
            (resource,) = node.host.inventory()["resources"]
            return [one for device in resource["devices"] for one in device["holders"]]

        named = {"namespace": "default", "pod": "train", "container": "main"}
        numbers = {"memory_used_bytes": GIB, "utilization_ratio": 0.4}
        eventually(lambda: [{**named, "usage": numbers}] == people(), "the usage")
        labels = row("default/train/main", device=f"{uuid(0)}::0")
        assert GIB == used.values(plugin)["container_memory_used_bytes", *labels]
