"""What devices, the kernel, a container runtime, and who fills the node's folders hand over."""

import json
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, Final

from containers.answering_runtime import of_containerd
from deviceplugin._inventory.validation import natural_key
from deviceplugin.checks import Node
from deviceplugin.checks._runtime_files import Reader
from deviceplugin.checks._runtime_socket import of_answer
from deviceplugin.kit.containers import Processes
from deviceplugin.kit.drm import Hangs
from deviceplugin.kit.state import State
from deviceplugin.kit.sysfs import Sysfs
from deviceplugin_fpga.hook import bitstreams, container_request, files
from deviceplugin_fpga.hook.files import HookError
from deviceplugin_generic import GenericPlugin, GenericSettings, Roots
from deviceplugin_generic.configuration.loading import Devices, Domains
from deviceplugin_generic.discovery.cache import Cache
from deviceplugin_gpu.configuration.settings import GpuSettings
from deviceplugin_gpu.doctor.daemon_reload import look_at_reload
from fpga.bitstreams import aocx, gbs, metadata, signed
from fpga.trees import AFU, INTERFACE
from fuzzing.samples import Form, Sample, Seed, seeds
from fuzzing.target import Read, Target, as_object, reads, reads_file
from hardware.tree import Hardware
from node_processes import NodeProcesses, scope


def _bitstream(path: Path) -> None:
    data = bitstreams.load(path)
    assert data is not None
    bitstreams.parse(path, data)


def _metadata(content: bytes) -> None:
    header = b"XeonFPGA\xb7GBSv001" + struct.pack("<I", len(content))
    bitstreams.parse(Path("a.gbs"), header + content + b"image")


def _checksum(path: Path) -> None:
    files.check(path.with_suffix(""), b"image")


def _state(content: bytes) -> None:
    container_request.read(BytesIO(content))


def _config(path: Path) -> None:
    container_request.read(BytesIO(json.dumps({"bundle": str(path.parent)}).encode()))


_STATE: Final = {"ociVersion": "1.0", "id": "a", "status": "creating", "bundle": "/nowhere"}
_CONTAINER: Final = {
    "process": {"env": ["PATH=/bin", f"FPGA_REGION_1={INTERFACE}", f"FPGA_AFU_1={AFU}"]},
    "linux": {
        "devices": [
            {"path": "/dev/dfl-port.0", "type": "c", "major": 241, "minor": 0},
            {"path": "/dev/intel-fpga-port.1", "type": "c", "major": 242, "minor": 1},
        ]
    },
}


@contextmanager
def _events(folder: Path) -> Iterator[Read]:
    address = "0000:03:00.0"
    (folder / "devices" / address).mkdir(parents=True)
    hangs = Hangs(Sysfs(folder))

    def read(sample: Sample) -> None:
        found = as_object(sample.content) or {}
        hangs.heard({key: _of_kernel(str(value)) for key, value in found.items()})
        hangs.check(folder / "devices" / address)
        Hangs(Sysfs(folder), json.loads(json.dumps(hangs.remembered)))

    yield read


def _of_kernel(text: str) -> str:
    """Return a string that the kernel could send: any bytes but zero, as pyudev decodes them."""
    return os.fsdecode(text.replace("\0", "").encode(errors="surrogatepass"))


_EVENT: Final = {
    "ACTION": "change",
    "DEVPATH": "/devices/0000:03:00.0/drm/card0",
    "SUBSYSTEM": "drm",
    "WEDGED": "rebind,bus-reset",
}


def _saved(path: Path) -> None:
    nothing: list[Any] = []
    State(path, 1).load(lambda found: sorted(map(natural_key, found["names"])), nothing)
    for aside in path.parent.glob("*.unreadable"):
        aside.unlink()


_ENTRIES: Final = (
    json.dumps(
        {
            "name": "stick",
            "id": "serial",
            "groups": [{"select": {"subsystem": "tty", "driver": "ftdi_sio"}}],
            "env": {"STICK_{index}": "{serial}"},
            "mounts": [{"path": "/srv/{serial}", "mountPath": "/data"}],
        }
    ),
    '{"name": "whole", "groups": [{"usb": [{"vendor": "0403", "product": "6001"}]}]}',
)


@contextmanager
def _usb(folder: Path) -> Iterator[Read]:
    """Discover two adapters of which one says what the sample has."""
    hardware = Hardware(folder / "node")
    paths = [
        hardware.usb(f"1-{number}", "0403:6001", number + 1, serial=f"A{number}")
        for number in (1, 2)
    ]
    for number, path in enumerate(paths, 1):
        hardware.behind_usb(path, "1.0", "tty", f"ttyUSB{number}", driver="ftdi_sio")
    own = hardware.sys / "devices" / paths[1]
    settings = GenericSettings(device=Devices.parse(_ENTRIES), domain=Domains(("squat.ai",)))
    roots = Roots(hardware.dev, hardware.sys, hardware.udev)
    files = {one.name: one for one in own.iterdir() if one.is_file()}
    files |= {"node": own / "1-2:1.0/tty/ttyUSB2/uevent", "udev": max(hardware.udev.iterdir())}

    def read(sample: Sample) -> None:
        for name, value in (as_object(sample.content) or {}).items():
            if name in files:
                files[name].write_bytes(str(value).encode(errors="surrogatepass"))
        hardware.event()
        devices = {one.id: one for one in GenericPlugin(settings, roots, cache=Cache()).discover()}
        assert any(one.health and "A1" in one.envs.values() for one in devices.values())
        for device in devices.values():
            assert device.id.isascii()
            assert device.id.isprintable()
            assert "/" not in device.id
            for mount in device.mounts if device.health else ():
                assert f"/srv/{Path(mount.host_path).name}" == os.path.normpath(mount.host_path)

    yield read


_VALUES: Final = {
    "serial": "A2\n",
    "idVendor": "0403\n",
    "idProduct": "6001\n",
    "busnum": "1\n",
    "devnum": "3\n",
    "uevent": "MAJOR=240\nDEVNAME=bus/usb/001/003\n",
    "dev": "240:9\n",
    "node": "MAJOR=240\nDEVNAME=ttyUSB2\n",
    "udev": "E:ID_SERIAL=A2\nS:serial/by-id/a",
}

_TOML: Final = Form(".toml", str)
_CONTAINERD: Final = b"""version = 3
imports = ["*.toml", "x[^a]*/../y.toml"]
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.nvidia.options]
BinaryName = "/usr/bin/nvidia-container-runtime"
"""
_BUNDLE: Final = {
    "process": {"env": ["NVIDIA_VISIBLE_DEVICES=GPU-1"]},
    "hooks": {"prestart": [{"path": "/usr/bin/nvidia-container-runtime-hook"}]},
    "annotations": {"io.kubernetes.pod.name": "train-0"},
    "linux": {
        "cgroupsPath": "a.slice:crio:b",
        "devices": [{"path": "/dev/nvidia0", "major": 195, "minor": 0}],
        "resources": {"devices": [{"allow": False, "access": "rwm"}]},
    },
}
_CRIO: Final = "run/containers/storage/overlay-containers/a/userdata/config.json"


def _configured(path: Path) -> None:
    Reader(path.parent).containerd(f"/{path.name}", is_2=None)


def _answered(content: bytes) -> None:
    of_answer(json.loads(content), is_2=True)


@contextmanager
def _bundle(folder: Path) -> Iterator[Read]:
    path = folder / _CRIO
    path.parent.mkdir(parents=True)

    def read(sample: Sample) -> None:
        path.write_bytes(sample.content)
        for one in look_at_reload(Node.at_root(folder), None, GpuSettings()):
            assert one.found.isprintable()

    yield read


_PROCESS: Final = {"stat": f"7 (a) S{' 0' * 30}", "cgroup": f"0::/../../..{scope(1, 1, '')}"}


@contextmanager
def _process(folder: Path) -> Iterator[Read]:
    node = NodeProcesses(folder / "proc", folder / "logs")
    node.link("a/b/c", 1, 1)

    def read(sample: Sample) -> None:
        for name in _PROCESS:
            text = str((as_object(sample.content) or {}).get(name))
            file = node.proc / "7" / name
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(text.encode(errors="replace"))
        Processes(node.proc, node.logs).find([7], 1e9)

    yield read


_GBS: Final = Form(".gbs", str)
_AOCX: Final = Form(".aocx", str)
_SUM: Final = Form(".sha256", str)
_IMAGE_SUM: Final = b"6105d6cc76af400325e94d588ce511be5bfdbb73b437dc51eca43917d7a43e3d  sample"

TARGETS: Final = (
    Target(
        "bitstream",
        [
            *(Seed(one, _GBS) for one in (gbs(), gbs(image=signed(b"image")))),
            *(Seed(aocx(AFU, bits=bits), _AOCX) for bits in (32, 64)),
        ],
        reads_file(_bitstream),
        (HookError,),
    ),
    Target("metadata of a bitstream", seeds(metadata()), reads(_metadata), (HookError,)),
    Target(
        "checksum of a bitstream", [Seed(_IMAGE_SUM, _SUM)], reads_file(_checksum), (HookError,)
    ),
    Target("state of a container", seeds(_STATE), reads(_state), (HookError,)),
    Target(
        "configuration of a container",
        seeds(_CONTAINER),
        reads_file(_config, "config"),
        (HookError,),
    ),
    Target("file of containerd", [Seed(_CONTAINERD, _TOML)], reads_file(_configured)),
    Target(
        "answer of containerd",
        seeds({"enableCDI": True, "cdiSpecDirs": ["/a"], **of_containerd()}),
        reads(_answered),
        (OSError, ValueError, RecursionError),
    ),
    Target("specification of a container", seeds(_BUNDLE), _bundle),
    Target("event of the kernel", seeds(_EVENT), _events),
    Target("process", seeds(_PROCESS), _process),
    Target("state of a plugin", seeds({"version": 1, "names": ["a", "b"]}), reads_file(_saved)),
    Target("values of a USB device", seeds(_VALUES), _usb),
)
