"""The same flags for NVIDIA's plugin and for this one: they have to say the same.

With ``NVIDIA_PLUGIN=path/to/nvidia-device-plugin``, as root on Linux, and for labels with
``NVIDIA_GFD=path/to/gpu-feature-discovery``. ``PEER_SEEDS=0:20`` says which random
configurations. What is known to differ stands in docs/coming-from-nvidia.md.
"""

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import grpc
import pytest

from containers.unshare import POSSIBLE
from deviceplugin_testing.simulator import SimulatedKubelet
from gpu.driver_root import DriverRoot
from gpu.fake_nvml import FakeGpu, FakeMig, FakeNvml, Fleet
from patience import eventually

PEER: Final = os.environ.get("NVIDIA_PLUGIN", "")
GFD: Final = os.environ.get("NVIDIA_GFD", "")
SEEDS: Final = range(*map(int, os.environ.get("PEER_SEEDS", "0:20").split(":")))
OURS: Final = str(Path(sys.executable).with_name("gpu-device-plugin"))
NAMESPACE: Final = """
mount -t tmpfs none /var/lib
mkdir -p /var/lib/kubelet/device-plugins
mount --bind "$1" /var/lib/kubelet/device-plugins
mount -t tmpfs none /run
mkdir /run/cdi
mount -t tmpfs none /proc/driver
mkdir /proc/driver/nvidia-caps
cp "$2" /proc/driver/nvidia-caps/mig-minors
shift 2
exec "$@"
"""
"""The directories of the kubelet and of CDI, and the MIG capabilities, as both plugins see them."""
PER_LINK, PER_PATH = 100, 10

pytestmark = [
    pytest.mark.skipif(not PEER, reason="NVIDIA_PLUGIN does not name NVIDIA's plugin"),
    pytest.mark.skipif(not POSSIBLE, reason="needs root and unshare, for the kubelet's directory"),
]


@dataclass
class Case:
    """A node, and flags for both plugins."""

    fleet: Fleet
    flags: list[str] = field(default_factory=list)
    file: dict[str, Any] = field(default_factory=dict)


MIGS: Final = (
    ("1g.5gb",) * 7,
    ("3g.20gb", "2g.10gb", "1g.5gb"),
    ("1g.5gb", "1g.5gb+me", "2g.10gb"),
    ("7g.40gb",),
)
FLAGS: Final = {
    "device-id-strategy": ("uuid", "index"),
    "device-list-strategy": (
        *("envvar", "volume-mounts", "cdi-annotations,cdi-cri", "cdi-cri"),
        "envvar,cdi-annotations",
    ),
    "shared-devices-allocation-policy": ("distributed", "packed"),
    **dict.fromkeys(
        ("pass-device-specs", "gds-enabled", "mofed-enabled", "gdrcopy-enabled"), ("true", "false")
    ),
}


def _case(seed: int) -> Case:
    chance = random.Random(seed)
    strategy = chance.choice(["none", "none", "single", "mixed"])
    case = Case(_fleet(chance, strategy), [f"--mig-strategy={strategy}"])
    for name, values in FLAGS.items():
        if chance.random() < 0.8:
            case.flags.append(f"--{name}={chance.choice(values)}")
    if "cdi" in f"{case}":  # names that are indices are not ours
        case.flags.append("--device-id-strategy=uuid")
    if chance.random() < 0.3:
        case.flags.append("--imex-channel-ids=0")
    if chance.random() < 0.5:
        shared = ["gpu", "mig-1g.5gb"] if strategy == "mixed" else ["gpu"]
        case.file["sharing"] = {
            "timeSlicing": {
                "renameByDefault": chance.random() < 0.5,
                "failRequestsGreaterThanOne": chance.random() < 0.3,
                "resources": [{"name": one, "replicas": chance.randint(2, 5)} for one in shared],
            }
        }
    return case


def _fleet(chance: random.Random, strategy: str) -> Fleet:
    count = chance.randint(1, 6)
    if strategy == "none":
        pairs = [(a, b) for a in range(count) for b in range(a)]
        linked = [pair for pair in pairs if chance.random() < 0.4]
        links = {pair: chance.randint(1, 2) for pair in linked}
        paths = {pair: chance.choice(["single", "hostbridge", "node"]) for pair in pairs}
        return Fleet.of(count, links=links, paths=paths, mig="unsupported")
    layouts = [chance.choice(MIGS) for _ in range(count)]
    if strategy == "single":
        layouts = [MIGS[0]] * count
    whole = {0} if strategy == "mixed" and chance.random() < 0.5 else set()
    return Fleet(
        tuple(
            FakeGpu(slot, () if slot in whole else _migs(layout), {} if slot in whole else ON)
            for slot, layout in enumerate(layouts)
        )
    )


ON: Final = {"mig": "on"}


def _migs(layout: Sequence[str]) -> tuple[FakeMig, ...]:
    return tuple(FakeMig(number, profile) for number, profile in enumerate(layout, 1))


@contextmanager
def _running(
    program: str, case: Case, fake: FakeNvml, library: Path, driver: Path
) -> Iterator[SimulatedKubelet]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="dp")))
        kubelet = stack.enter_context(SimulatedKubelet(folder))
        config, minors, log = (folder / name for name in ("config.yaml", "minors", "log"))
        config.write_text(json.dumps({"version": "v1", **case.file}))
        minors.write_text(_minors(case.fleet))
        words = [program, *case.flags, f"--config-file={config}"]
        process = stack.enter_context(
            subprocess.Popen(
                ["unshare", "-m", "sh", "-ec", NAMESPACE, "sh", kubelet.plugin_dir, minors, *words],
                env={
                    **fake.environment(library),
                    "DP_HTTP_ADDRESS": "off",
                    "DP_STATE_FILE": "",
                    "DRIVER_ROOT_CTR_PATH": str(driver),
                },
                stdout=subprocess.DEVNULL,
                stderr=stack.enter_context(log.open("w")),
            )
        )
        stack.callback(process.kill)
        yield kubelet


def _minors(fleet: Fleet) -> str:
    lines = []
    for gpu in fleet.gpus:
        for mig in gpu.migs:
            instance = f"gpu{gpu.slot}/gi{mig.gi}"
            lines.append(f"{instance}/access {100 * gpu.slot + 2 * mig.gi}")
            lines.append(f"{instance}/ci{mig.ci}/access {100 * gpu.slot + 2 * mig.gi + 1}")
    return "\n".join([*lines, "config 1", "monitor 2", ""])


def _told(kubelet: SimulatedKubelet, resource: str, ids: Sequence[str]) -> object:
    """Return what a container gets, in an order of its own, and without duplicates."""
    try:
        answer = kubelet.allocate(resource, ids)
    except grpc.RpcError:
        return "refused"
    envs = {key: sorted(value.split(",")) for key, value in answer.envs.items()}
    mounts = {(mount.container_path, mount.host_path) for mount in answer.mounts}
    nodes = {(one.container_path, one.host_path, one.permissions) for one in answer.devices}
    # The end of an annotation's key is random there.
    notes = {
        (key.rpartition("_")[0], *sorted(value.split(",")))
        for key, value in answer.annotations.items()
    }
    return envs, mounts, nodes, notes, {one.name for one in answer.cdi_devices}


def _score(fleet: Fleet, ids: Sequence[str]) -> int:
    """Return how near whole GPUs are to each other, as the reference counts it."""
    slots = [gpu.slot for gpu in fleet.gpus if gpu.uuid in ids]
    total = 0
    for a in slots:
        for b in [slot for slot in slots if slot < a]:
            level = fleet.paths.get((a, b), "node")
            rank = ["system", "node", "hostbridge", "multiple", "single", "internal"].index(level)
            total += PER_LINK * fleet.links.get((a, b), 0) + PER_PATH * (rank + 1)
    return total


def _is_whole(ids: Sequence[str]) -> bool:
    return all(one.startswith("GPU-") and "::" not in one for one in ids)


def _gpus(ids: Sequence[str]) -> set[str]:
    """Return the slots of the GPUs that replicas and MIG devices are of, as their UUIDs say it."""
    return {one.split("-")[1] for one in ids}


def _devices(ids: Sequence[str]) -> set[str]:
    """Return the UUIDs of the GPUs and MIG devices that replicas are of."""
    return {one.partition("::")[0] for one in ids}


@pytest.mark.parametrize("seed", SEEDS)
def test_both_plugins_say_the_same(
    seed: int, tmp_path: Path, nvml_library: Path, compiled: Path
) -> None:
    case, chance = _case(seed), random.Random(seed)
    DriverRoot(tmp_path / "driver", compiled).install()
    fake = FakeNvml(tmp_path / "nvml", case.fleet)
    with ExitStack() as stack:
        theirs, ours = (
            stack.enter_context(_running(program, case, fake, nvml_library, tmp_path / "driver"))
            for program in (PEER, OURS)
        )
        eventually(lambda: theirs.registered, f"a registration of the peer ({case})")
        eventually(lambda: theirs.registered == ours.registered, "the same resources")
        for resource in sorted(theirs.registered):
            eventually(partial(theirs.healthy, resource), "devices")
            eventually(partial(_agree, theirs, ours, resource), f"the same devices of {resource}")
            _compare(case, chance, theirs, ours, resource)


def _agree(theirs: SimulatedKubelet, ours: SimulatedKubelet, resource: str) -> bool:
    return theirs.devices(resource) == ours.devices(resource)


def _compare(
    case: Case,
    chance: random.Random,
    theirs: SimulatedKubelet,
    ours: SimulatedKubelet,
    resource: str,
) -> None:
    known = sorted(theirs.devices(resource))
    for _ in range(8):
        ids = chance.sample(known, chance.randint(1, min(4, len(known))))
        assert _told(theirs, resource, ids) == _told(ours, resource, ids), (case, ids)
        available = chance.sample(known, chance.randint(1, len(known)))
        size = chance.randint(1, len(available))
        their_choice, our_choice = (
            one.prefer(resource, available, [], size) for one in (theirs, ours)
        )
        assert (size, size) == (len(set(their_choice)), len(set(our_choice)))
        assert set(our_choice) <= set(available)
        if _is_whole(available):
            assert _score(case.fleet, their_choice) <= _score(case.fleet, our_choice), case
        else:
            _compare_spread(case, their_choice, our_choice)


def _compare_spread(case: Case, theirs: Sequence[str], ours: Sequence[str]) -> None:
    """Unless packed, ours are of as many GPUs and MIG devices as theirs, or of more."""
    packed = any("packed" in one for one in case.flags)
    assert packed or len(_gpus(theirs)) <= len(_gpus(ours)), (case, theirs, ours)
    assert packed or len(_devices(theirs)) <= len(_devices(ours)), (case, theirs, ours)


@pytest.mark.skipif(not GFD, reason="NVIDIA_GFD does not name gpu-feature-discovery")
@pytest.mark.parametrize("seed", SEEDS)
def test_both_label_the_node_the_same(seed: int, tmp_path: Path, nvml_library: Path) -> None:
    case = _case(seed)
    environ = FakeNvml(tmp_path / "nvml", case.fleet).environment(nvml_library)
    config, theirs, ours = (tmp_path / name for name in ("config.yaml", "theirs", "ours"))
    config.write_text(json.dumps({"version": "v1", "sharing": case.file.get("sharing", {})}))
    there = ["--oneshot", "--use-node-feature-api=false", f"--output-file={theirs}"]
    here = ["--once", "--state-file=", f"--labels-file={ours}"]
    for program, *words in ([GFD, *there], [OURS, *here]):
        command = [program, case.flags[0], f"--config-file={config}", *words]
        subprocess.run(command, env=environ, capture_output=True, check=True)
    assert _labels(theirs) == _labels(ours)


def _labels(file: Path) -> dict[str, str]:
    """Return the labels that do not depend on the time, and on the machine of the tests."""
    lines = [line.partition("=") for line in file.read_text().splitlines()]
    others = ("gfd.timestamp", "gpu.machine", "vgpu.present")
    return {name: value for name, _, value in lines if not name.endswith(others)}
