"""A node is broken in one way; the doctor names the fault, and nothing else."""

import os
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

from deviceplugin.checks import Finding, Node, Verdict
from deviceplugin.tools.doctor._check import run
from deviceplugin.tools.doctor.checks import all_checks
from deviceplugin_testing.simulator import SimulatedKubelet
from hardware.healthy_node import RESOURCE, write
from patience import eventually

CHECKPOINT = "var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"
MOUNT = "40 22 8:2 {source} {point} {options} - ext4 /dev/sdb1 rw\n"

Break = Callable[[Node], Node | None]


def troubles(node: Node) -> list[tuple[str, Finding]]:
    found = [(result.check, result.finding) for result in run(node, all_checks())]
    return [(check, f) for check, f in found if f.verdict is not Verdict.OK]


def test_nothing_is_wrong_with_a_good_node(node: Node) -> None:
    assert [] == troubles(node)


@dataclass(frozen=True)
class Fault:
    name: str
    do: Break
    text: str
    """Part of what is found."""
    checks: str
    """Those that find something, in order; what is a failure in capitals."""


FAULTS: list[Fault] = []


def fault(text: str, checks: str) -> Callable[[Break], Break]:
    def add(function: Break) -> Break:
        FAULTS.append(Fault(function.__name__, function, text, checks))
        return function

    return add


@fault("does not exist", "PLUGIN-DIRECTORY MODE POD-RESOURCES")
def no_kubelet_at_all(node: Node) -> None:
    move_away(node.plugin_dir)
    move_away(node.registry_dir)
    node.pod_resources_socket.unlink()


def move_away(directory: Path) -> None:
    """Remove a directory at once: the kubelet may still write to it."""
    directory.rename(directory.with_name("away-" + directory.name))


@fault("is not a directory", "PLUGIN-DIRECTORY")
def a_file_in_place_of_the_directory(node: Node) -> None:
    move_away(node.plugin_dir)
    write(node.plugin_dir)


@fault("mounted read-only", "PLUGIN-DIRECTORY")
def a_mount_that_is_read_only(node: Node) -> None:
    point = node.plugin_dir.resolve()
    line = MOUNT.format(source="/plugins", point=point, options="ro,relatime")
    write(node.at("proc/self/mountinfo"), line)


@fault("has been deleted on the node", "PLUGIN-DIRECTORY")
def a_directory_that_was_deleted_under_its_mount(node: Node) -> None:
    point = str(node.plugin_dir.resolve()).replace("-", "\\055")
    source = "/var/lib/kubelet/device-plugins//deleted"
    line = MOUNT.format(source=source, point=point, options="rw")
    write(node.at("proc/self/mountinfo"), line)


@fault("everybody may write to it (mode 0777)", "plugin-directory")
def a_directory_for_everybody(node: Node) -> None:
    node.plugin_dir.chmod(0o777)


@fault("it belongs to user 4711", "plugin-directory")
def a_directory_of_somebody_else(node: Node) -> None:
    os.chown(node.plugin_dir, 4711, -1)


@fault("it does not exist", "KUBELET-SOCKET")
def no_kubelet_socket(node: Node) -> None:
    (node.plugin_dir / "kubelet.sock").unlink()


@fault("and yet the kubelet runs: it answers on", "KUBELET-SOCKET")
def a_directory_that_is_not_the_kubelets_any_more(node: Node) -> None:
    node.plugin_dir.rename(node.plugin_dir.with_name("before"))
    node.plugin_dir.mkdir(mode=0o750)


@fault("is another directory than the one that the kubelet (process 812) has", "KUBELET")
def a_directory_with_something_mounted_over_it(node: Node) -> None:
    node.at(f"proc/812/root{node.settings.plugin_dir}").mkdir(parents=True)


@fault("it is not a socket", "KUBELET-SOCKET")
def a_file_in_place_of_the_kubelet_socket(node: Node) -> None:
    (node.plugin_dir / "kubelet.sock").unlink()
    write(node.plugin_dir / "kubelet.sock")


@fault("nobody listens on it, and yet", "KUBELET-SOCKET")
def a_kubelet_that_serves_only_half(node: Node) -> None:
    leave_socket(node.plugin_dir / "kubelet.sock")


@fault("does not answer as a kubelet does", "KUBELET-SOCKET")
def another_socket_in_place_of_the_kubelets(node: Node) -> None:
    path = node.plugin_dir / "kubelet.sock"
    path.unlink()
    path.symlink_to(node.pod_resources_socket)


@fault("does not answer as a kubelet does: DEADLINE_EXCEEDED", "KUBELET-SOCKET")
def a_kubelet_that_is_stuck(node: Node) -> Node:
    path = node.plugin_dir / "kubelet.sock"
    path.unlink()
    deaf(path)
    return replace(node, timeout=DEAF)


@fault("nobody listens on gone.sock", "leftover-sockets")
def a_plugin_that_was_killed(node: Node) -> None:
    leave_socket(node.plugin_dir / "gone.sock")
    (node.plugin_dir / "fixed.sock").symlink_to("gone.sock")  # another name of the same one


@fault("nobody listens on reg.sock", "registry-directory")
def a_driver_that_was_killed(node: Node) -> None:
    leave_socket(node.registry_dir / "reg.sock")


@fault("there is no", "MODE")
def a_mode_without_its_directory(node: Node) -> Node:
    node.registry_dir.rmdir()
    return replace(node, settings=replace(node.settings, registration="watcher"))


@fault("does not exist", "pod-resources checkpoint")
def a_pod_resources_directory_that_is_not_mounted(node: Node) -> None:
    shutil.rmtree(node.pod_resources_socket.parent)


@fault("nobody listens on it", "POD-RESOURCES checkpoint")
def a_pod_resources_socket_of_an_earlier_kubelet(node: Node) -> None:
    leave_socket(node.pod_resources_socket)


@fault("no answer: DEADLINE_EXCEEDED", "POD-RESOURCES checkpoint")
def a_pod_resources_socket_that_does_not_answer(node: Node) -> Node:
    node.pod_resources_socket.unlink()
    deaf(node.pod_resources_socket)
    return replace(node, timeout=DEAF)


@fault("is not JSON", "CHECKPOINT")
def a_checkpoint_that_was_cut_short(node: Node) -> None:
    write(node.at(CHECKPOINT), node.read(CHECKPOINT)[:40])


@fault("its content does not match its checksum", "CHECKPOINT")
def a_checkpoint_that_was_edited(node: Node) -> None:
    write(node.at(CHECKPOINT), node.read(CHECKPOINT).replace('"a"', '"c"'))


@fault("looked for /sys/module/nvidia, /proc/driver/nvidia/version", "GPU GPU")
def a_gpu_without_its_driver(node: Node) -> None:
    card(node, "0000:3b:00.0", "0x10de", "0x030200", driver="nouveau")
    write(node.at("sys/module/nouveau/refcnt"))


@fault("none found", "GPU")
def no_gpu_where_there_should_be_one(node: Node) -> Node:
    return replace(node, plugins=frozenset({"gpu"}))


@fault("no class directory of a driver", "FPGA")
def an_fpga_without_its_driver(node: Node) -> None:
    card(node, "0000:5e:00.0", "0x8086", "0x120000", driver="vfio-pci")


@fault("no device file of a port", "FPGA")
def fpga_device_files_that_are_not_mounted(node: Node) -> None:
    node.at("sys/class/fpga_region/region0/dfl-port.0").mkdir(parents=True)


@fault("does not exist", "SECTIONS GENERIC")
def a_configuration_that_is_not_mounted(node: Node) -> Node:
    return replace(node, config=node.at("config.json"))


@fault("is in", "cdi")
def a_cdi_device_that_is_old_in_etc(node: Node) -> None:
    write(node.at("etc/cdi/gpu.json"), SPEC)
    node.at("var").joinpath("run").symlink_to("/run")  # of this machine, not of that node
    write(node.at("run/cdi/gpu.json"), SPEC)


SPEC = (
    '{"cdiVersion": "0.5.0", "kind": "example.com/gpu", "devices": '
    '[{"name": "0", "containerEdits": {"env": ["A=b"]}}]}'
)


@fault("128 of 128 are used", "INOTIFY")
def inotify_instances_that_are_used_up(node: Node) -> None:
    write(node.at("proc/900/status"), f"Name:\tgreedy\nUid:\t{os.geteuid()}\t0\t0\t0\n")
    for number in range(128):
        write(node.at(f"proc/900/fdinfo/{number}"), "inotify wd:1 ino:2\n")
        node.at("proc/900/fd").mkdir(exist_ok=True)
        node.at(f"proc/900/fd/{number}").symlink_to("anon_inode:inotify")


@fault("120 of 128 are used", "inotify")
def inotify_instances_that_are_nearly_used_up(node: Node) -> None:
    inotify_instances_that_are_used_up(node)
    for number in range(8):
        (node.root / f"proc/900/fd/{number}").unlink()


def room(node: Node, *, free: int = 10**6, inodes: int = 10**6) -> Node:
    result = os.statvfs_result((4096, 4096, 10**6, free, free, 10**6, inodes, inodes, 0, 255))
    return replace(node, statvfs=lambda _: result)


@fault("s in the future", "clock")
def a_clock_that_was_set_back(node: Node) -> None:
    os.utime(node.at(CHECKPOINT), (node.wall() + 3600,) * 2)


@fault("it jumped by +49", "clock")
def a_clock_that_jumps(node: Node) -> Node:
    steps = iter(range(100))
    now = node.wall()
    return replace(node, wall=lambda: now + 50 * next(steps))


def put(files: dict[str, str], node: Node) -> None:
    for path, text in files.items():
        write(node.at(path), text)


GENERIC = "etc/generic-device-plugin/config.yaml"
DRIVER = dict.fromkeys(("proc/driver/nvidia/version", "dev/nvidiactl", "dev/nvidia0"), "")
NO_PRODUCT = "devices: [{name: serial, groups: [{usb: [{vendor: '0403'}]}]}]"
NO_TTY = "devices: [{name: serial, groups: [{paths: [{path: /dev/ttyUSB*}]}]}]"
NO_VIDEO = "- {devicematch: '^video[0-9]*$', nummaxdevices: 2}"
SMARTER = "[{devicematch: nvidia-gpu, nummaxdevices: 1}, {devicematch: snd, nummaxdevices: 1}]"
CONFINED = {
    "sys/fs/selinux/enforce": "1",
    "proc/self/attr/current": "system_u:system_r:container_t:s0:c1,c2\0",
}
FILES: list[tuple[str, str, str, dict[str, str]]] = [
    (
        *("another_root", "runs with --root-dir /data/kubelet", "kubelet"),
        {"proc/812/cmdline": "kubelet\0--root-dir\0/data/kubelet\0"},
    ),
    (
        *("gpu_device_files_not_mounted", "no device file of the driver", "GPU"),
        {"proc/driver/nvidia/version": "", "usr/lib64/libnvidia-ml.so.1": ""},
    ),
    ("a_library_that_is_not_mounted", "no libnvidia-ml.so.1", "GPU", DRIVER),
    ("no_yaml", "not valid", "GENERIC", {GENERIC: "devices: [}"}),
    ("no_devices", "has no devices", "GENERIC", {GENERIC: "domain: example.com"}),
    ("an_empty_list", "has no devices: its list is empty", "generic", {GENERIC: "devices: []"}),
    (
        *("refused", "line 1: devices[0].groups[0].usb[0]: product is missing", "GENERIC"),
        {GENERIC: NO_PRODUCT},
    ),
    ("nothing_matches", "nothing matches /dev/ttyUSB*", "generic", {GENERIC: NO_TTY}),
    ("no_smarter_match", "nothing below /dev matches", "generic", {GENERIC: NO_VIDEO}),
    (
        *("a_smarter_rule_left_out", "nvidia-gpu is not for this plugin", "generic"),
        {GENERIC: SMARTER, "dev/snd/pcmC0D0p": ""},
    ),
    ("yml_of_cdi", "ends in .yml", "cdi", {"var/run/cdi/gpu.yml": SPEC}),
    ("cdi_cut_short", "is not valid JSON", "CDI", {"var/run/cdi/gpu.json": SPEC[:20]}),
    ("cdi_twice", "and", "CDI", {"etc/cdi/one.json": SPEC, "etc/cdi/two.yaml": SPEC}),
    (
        *("a_low_limit_of_open_files", "a process may have 256", "open-files"),
        {"proc/self/limits": "Max open files   256    4096   files\n"},
    ),
    (
        *("no_file_handles", "99990 of 100000", "OPEN-FILES"),
        {"proc/sys/fs/file-nr": "99990 0 100000\n"},
    ),
    (
        *("confined", "is enforcing, and this process has the type container_t", "selinux"),
        CONFINED,
    ),
]
FAULTS += [Fault(name, partial(put, files), text, checks) for name, text, checks, files in FILES]
FAULTS += [
    Fault("a_full_disk", partial(room, free=0), "0 MiB are free", "DISK"),
    Fault("a_disk_nearly_full", partial(room, free=10**4), "39 MiB are free", "disk"),
    Fault("no_inodes", partial(room, inodes=3), "3 inodes are free", "DISK"),
    Fault(
        "a_clock_that_was_never_set",
        lambda node: replace(node, wall=lambda: 1000.0),
        "it is 1970-01-01 00:16 UTC",
        "CLOCK",
    ),
]


def card(node: Node, address: str, vendor: str, kind: str, *, driver: str) -> None:
    device = node.at(f"sys/bus/pci/devices/{address}")
    write(device / "vendor", vendor)
    write(device / "class", kind)
    (device / "driver").symlink_to(f"../../drivers/{driver}")


def leave_socket(path: Path) -> None:
    """Make a socket that nobody listens on."""
    path.unlink(missing_ok=True)
    with closing(socket.socket(socket.AF_UNIX)) as dead:
        dead.bind(str(path))


DEAF = 3.0
"""Seconds after which nothing was said, and in which all others answer."""
LISTENING: list[socket.socket] = []


def deaf(path: Path) -> None:
    """Listen on ``path`` and never say anything."""
    server = socket.socket(socket.AF_UNIX)
    LISTENING.append(server)
    server.bind(str(path))
    server.listen(8)


@pytest.fixture(autouse=True)
def hang_up() -> Iterator[None]:
    yield
    while LISTENING:
        LISTENING.pop().close()


WAIT = {"a_kubelet_that_is_stuck", "a_pod_resources_socket_that_does_not_answer"}
CASES = [
    pytest.param(one, id=one.name, marks=[pytest.mark.slow] if one.name in WAIT else [])
    for one in FAULTS
]


@pytest.mark.parametrize("fault", CASES)
def test_the_fault_is_named(node: Node, fault: Fault) -> None:
    found = troubles(fault.do(node) or node)
    assert any(fault.text in finding.found for _, finding in found), found
    named = [check.upper() if f.verdict is Verdict.FAILURE else check for check, f in found]
    assert fault.checks.split() == named
    assert all(f.do for _, f in found)
    assert all(f.means for _, f in found if f.verdict is not Verdict.UNKNOWN)


def test_a_resource_whose_plugin_has_gone_is_named(node: Node, kubelet: SimulatedKubelet) -> None:
    kubelet.hang_up(RESOURCE)
    expected = ["pod-resources", "checkpoint"]
    eventually(lambda: expected == [check for check, _ in troubles(node)], "both checks")
    found = troubles(node)
    assert "has no healthy device of any plugin" in found[0][1].found
    assert RESOURCE == found[1][1].looked_at
    assert "1 containers have some" in found[1][1].found
