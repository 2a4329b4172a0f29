"""What single checks make of what they see."""

import errno
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from deviceplugin.checks import Finding, Hardware, Node, Verdict
from deviceplugin.tools.doctor import _sockets
from deviceplugin.tools.doctor._check import run
from deviceplugin.tools.doctor.checks import _kubelet, _machine, all_checks
from deviceplugin_gpu.nvml.library import DIRECTORIES, SONAME
from deviceplugin_testing.simulator import SimulatedKubelet
from hardware.healthy_node import PROC, write

DRIVER = ["sys/module/nvidia/refcnt", "dev/nvidiactl", "dev/nvidia0"]


@pytest.fixture
def bare(root: Path) -> Node:
    """A node without a kubelet."""
    return Node.at_root(root)


def findings(node: Node, check: str) -> list[Finding]:
    (chosen,) = [each for each in all_checks() if each.name == check]
    return [result.finding for result in run(node, [chosen])]


def verdicts(node: Node, check: str) -> list[str]:
    return [finding.verdict.value for finding in findings(node, check)]


@pytest.mark.parametrize(
    ("plugin", "paths"),
    [
        ("gpu", [*DRIVER, "usr/lib64/libnvidia-ml.so.1"]),
        *(
            ("gpu", [*DRIVER, f"{directory}/{SONAME}"])
            for directory in (DIRECTORIES[0], f"driver-root/{DIRECTORIES[-1]}")
        ),
        ("fpga", ["sys/class/fpga/intel-fpga-dev.0/intel-fpga-port.0/id", "dev/intel-fpga-port.0"]),
    ],
)
def test_hardware_that_is_complete_is_ok(bare: Node, plugin: str, paths: list[str]) -> None:
    for path in paths:
        write(bare.at(path))
    assert ["ok", "ok"] == verdicts(replace(bare, plugins=frozenset({plugin})), plugin)


@pytest.mark.parametrize("place", ["run/nvidia/driver", "usr/local/nvidia"])
def test_a_library_that_the_plugin_does_not_find_is_told_with_its_place(
    bare: Node, place: str
) -> None:
    for path in DRIVER:
        write(bare.at(path))
    write(bare.at(f"{place}/usr/lib64/{SONAME}"))
    there, missing = findings(bare, "gpu")
    assert (Verdict.OK, Verdict.FAILURE) == (there.verdict, missing.verdict)
    assert f"there is one below /{place}: " in missing.found


def test_the_cards_of_a_fault_are_told_with_their_drivers(bare: Node) -> None:
    device = bare.at("sys/bus/pci/devices/0000:5e:00.0")
    write(device / "vendor", "0x8086\n")
    write(device / "class", "0x120000\n")
    write(bare.at("sys/module/vfio_pci/refcnt"))
    assert "cards: 0000:5e:00.0 (no driver)" in findings(bare, "fpga")[1].found
    write(bare.at("sys/module/nvgrace_gpu_vfio_pci/refcnt"))
    write(bare.at("sys/module/vfio_pci_core/refcnt"))
    found = findings(bare, "fpga")[1].found
    assert "loaded instead: nvgrace_gpu_vfio_pci, vfio_pci; " in found


def looked(node: Node, classes: tuple[str, ...], *signs: str) -> list[Finding]:
    """Return what is found where there must be cards of these classes."""
    hardware = Hardware(
        plugin="x", what="X", vendor="0x1002", pci_class=classes, signs=signs, needs=()
    )
    return list(hardware.look(replace(node, plugins=frozenset({"x"}))))


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        ("0x030000", ["1 on the PCI bus", "there are "]),
        ("0x120000", ["1 on the PCI bus", "there are "]),
        (
            "0x040300",
            ["none found: no PCI device of vendor 0x1002 and class 0x03 or 0x12, and no /dev/x"],
        ),
    ],
)
def test_hardware_can_be_of_several_classes(bare: Node, kind: str, found: list[str]) -> None:
    device = bare.at("sys/bus/pci/devices/0000:5e:00.0")
    write(device / "vendor", "0x1002\n")
    write(device / "class", f"{kind}\n")
    assert found == [one.found for one in looked(bare, ("0x03", "0x12"), "dev/x")]


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("devices: [{name: serial, groups: [{paths: [{path: /proc/self}]}]}]", "ok"),
        ("devices: [{name: serial, groups: [{usb: [{vendor: '0403', product: '6001'}]}]}]", "ok"),
        ("devices: [{name: serial, groups: [{paths: [{path: /none, optional: true}]}]}]", "ok"),
        ("devices: [{name: serial, groups: [{paths: [{path: '/a[^b]**c'}]}]}]", "warning"),
        ("[{devicematch: '^self$', nummaxdevices: 1}]", "warning"),
        ("[{devicematch: '^tty[0-9]$', nummaxdevices: 1}]", "ok"),
        ("devices: [{name: serial, groups: [1, {paths: [2, {path: 3}, {path: /}]}]}]", "failure"),
        ("devices: [{name: serial, groups: [{usb: [{vendor: '1'}]}]}]", "failure"),
        ("devices: [{groups: [{paths: [{path: /proc}]}]}]", "failure"),
        ("devices: [1]", "failure"),
        ("[]", "warning"),
        ("", "failure"),
    ],
)
def test_a_generic_configuration(bare: Node, text: str, verdict: str) -> None:
    write(bare.at("etc/generic-device-plugin/config.yaml"), text)
    write(bare.at("dev/tty1"))
    assert [verdict] == verdicts(bare, "generic")


def test_a_root_that_looks_like_a_pattern_is_none(tmp_path: Path) -> None:
    bare = Node.at_root(tmp_path / "[a]*")
    write(bare.at("dev/tty1"))
    entry = "devices: [{name: serial, groups: [{paths: [{path: '/dev/tty[0-9]'}]}]}]"
    write(bare.at("etc/generic-device-plugin/config.yaml"), entry)
    assert "1 of 1 paths match" == next(finding.found for finding in findings(bare, "generic"))


def test_no_link_leads_out_of_a_root_that_is_not_this_machines(bare: Node, tmp_path: Path) -> None:
    outside = write(tmp_path / "outside/x", "here")
    write(bare.at("run/cdi/x"), "there")
    for link, target in (
        ("var/run", "/run"),
        ("opt/a", "/var/run/cdi"),
        ("opt/up", f"../../../..{outside.parent}"),
        ("opt/out", f"{outside.parent}"),
        ("opt/round", "round"),
    ):
        (bare.root / link).parent.mkdir(exist_ok=True)
        (bare.root / link).symlink_to(target)
    assert bare.root / "run/cdi" == bare.at("/opt/a")
    for pattern, expected in (
        ("/var/run/cdi/*", ["run/cdi/x"]),
        ("opt/*/x", ["run/cdi/x"]),
        ("opt/out/x", []),
        ("opt/r*d", ["opt/round"]),
        ("opt/round/*", []),
    ):
        assert [bare.root / one for one in expected] == [*bare.matches(pattern)], pattern
    assert ["there", "", "", "", ""] == [
        bare.peek(f"opt/{one}") for one in ("a/x", "up/x", "out/x", "round/x", "n" * 300)
    ]
    assert Path("/proc/self/stat") == Node.at_root(Path("/")).at("proc/self/stat")


def test_a_card_without_a_driver_is_named_while_another_has_one(bare: Node) -> None:
    for address, driver in (("0000:5e:00.0", "fine"), ("0000:5f:00.0", ""), ("0000:5f:00.1", "")):
        device = bare.at(f"sys/bus/pci/devices/{address}")
        write(device / "vendor", "0x1002\n")
        write(device / "class", "0x030000\n")
        if driver:
            (device / "driver").symlink_to(f"../../drivers/{driver}")
    (bare.at("sys/bus/pci/devices/0000:5f:00.1") / "physfn").symlink_to("../0000:5f:00.0")
    found = looked(bare, ("0x03",))
    assert ["3 on the PCI bus", "there are ", "has no driver, and others have"] == [
        finding.found for finding in found
    ]
    assert "0000:5f:00.0" == found[-1].looked_at


def test_yaml_that_cannot_be_read_here_is_not_judged(
    bare: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "deviceplugin._config.documents.yaml_nodes", None)
    write(bare.at("etc/cdi/a.yaml"), "x: [")
    assert "unknown" in verdicts(bare, "cdi")


NET = {"hostInterfaceName": "eth1", "name": "net0"}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"cdiVersion": "1"}, "cdiVersion '1' is not a version such as '0.5.0'"),
        ({"cdiVersion": None}, "cdiVersion is missing"),
        ({"devices": [{"name": "a", "containerEdits": {"env": None}}]}, "invalid device a, empty"),
        ({"containerEdits": {"hooks": [{"hookName": "x"}]}}, "hooks: path is empty"),
        (
            {"devices": [{"name": "a", "containerEdits": {"netDevices": [NET]}}]},
            "the spec version must be at least v1.1.0",
        ),
        ({"devices": [1]}, "is not a specification: "),
        ({"cdiVersion": "v7.0.0", "new": 1}, ""),  # one to come may have fields to come
    ],
)
def test_a_cdi_specification_that_runtimes_refuse(
    bare: Node, change: dict[str, object], text: str
) -> None:
    device = {"name": 1, "containerEdits": {"env": ["A=b"], "mounts": None}}
    good = {"cdiVersion": "0.5.0", "kind": "example.com/gpu", "devices": [device]}
    write(bare.at("etc/cdi/a.json"), json.dumps(good | change))
    found = next(one for one in findings(bare, "cdi") if one.looked_at.endswith("a.json"))
    assert found.found.startswith(text or "has 1 devices")


def test_other_files_among_specifications_are_left_alone(bare: Node) -> None:
    write(bare.at("etc/cdi/README"))
    bare.at("var/run/cdi/directory.json").mkdir(parents=True)
    assert ["failure"] == verdicts(bare, "cdi")
    assert "cannot be read: Is a directory" == findings(bare, "cdi")[0].found


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["kubelet", "--root-dir=/x"], "/x"),
        (["kubelet", "--root-dir", "/x", "y"], "/x"),
        (["kubelet", "--no--root-dir=/x", "--root-dir"], "/var/lib/kubelet"),
        (["kubelet"], "/var/lib/kubelet"),
    ],
)
def test_the_root_of_the_kubelet_is_read(bare: Node, words: list[str], expected: str) -> None:
    write(bare.at("proc/812/comm"), "kubelet\n")
    write(bare.at("proc/812/cmdline"), "\0".join([*words, ""]))
    (found,) = findings(bare, "kubelet")
    usual = f"runs, with its files in {expected}"
    assert found.found == (usual if "var" in expected else f"runs with --root-dir {expected}")


def test_a_machine_that_shows_little_is_not_judged(bare: Node) -> None:
    write(bare.at("proc/812/comm"), "init")
    for name in ("sys/fs", "self"):
        bare.at("proc").joinpath(name).rename(bare.at("proc").joinpath(f"{name}-away"))
    assert ["unknown"] == verdicts(bare, "kubelet")
    assert ["unknown", "unknown"] == verdicts(bare, "inotify")
    assert ["unknown", "unknown"] == verdicts(bare, "open-files")


@pytest.mark.parametrize(
    ("enforce", "context", "verdict"),
    [
        ("0", "container_t", "ok"),
        ("1", "system_u:system_r:container_device_plugin_t:s0\0", "ok"),
        ("1", "system_u:system_r:mine_t:s0", "warning"),
        ("1", "", "warning"),
    ],
)
def test_selinux_matters_if_it_is_enforcing(
    bare: Node, enforce: str, context: str, verdict: str
) -> None:
    write(bare.at("sys/fs/selinux/enforce"), enforce)
    write(bare.at("proc/self/attr/current"), context)
    assert [verdict] == verdicts(bare, "selinux")


def test_a_path_that_is_too_long_is_no_dead_socket(tmp_path: Path) -> None:
    import socket

    long = tmp_path / ("x" * 100)
    long.mkdir()
    descriptor = os.open(long, os.O_PATH)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"/proc/self/fd/{descriptor}/s")
    os.close(descriptor)
    assert _sockets.State.UNCLEAR is _sockets.state_of(long / "s", 1)


def test_a_queue_that_is_full_is_busy(root: Path) -> None:
    import socket

    path = root / "s"
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as first:
        server.bind(str(path))
        server.listen(0)
        first.connect(str(path))
        assert _sockets.State.BUSY is _sockets.state_of(path, 0.05)


def test_a_check_that_cannot_look_says_so(bare: Node) -> None:
    def refuse(path: Path) -> os.statvfs_result:
        raise PermissionError(errno.EPERM, "no", str(path))

    bare.plugin_dir.mkdir(parents=True)
    (found,) = findings(replace(bare, statvfs=refuse), "disk")
    expected = (Verdict.UNKNOWN, str(bare.plugin_dir), "cannot be examined: no", "run as root.")
    assert expected == (found.verdict, found.looked_at, found.found, found.do)


@pytest.mark.parametrize(
    ("check", "status", "texts"),
    [
        ("plugin-directory", 1, ["may not read and write it", "runAsUser: 0"]),
        ("kubelet-socket", 1, ["may not connect to it", "runs as this user (", "runAsUser: 0"]),
        ("pod-resources", 0, ["may not connect to it", "whether the kubelet answers is unknown"]),
    ],
)
def test_a_user_who_may_not_is_told_and_the_kubelet_is_not_said_to_be_away(
    root: Path, kubelet: SimulatedKubelet, check: str, status: int, texts: list[str]
) -> None:
    for path in [kubelet.plugin_dir, *kubelet.plugin_dir.parents[:4]]:
        path.chmod(0o755)
    if os.geteuid():
        kubelet.plugin_dir.chmod(0o555)
    (kubelet.plugin_dir / "kubelet.sock").chmod(0o600 if os.geteuid() == 0 else 0)
    kubelet.pod_resources_socket.parent.chmod(0o700 if os.geteuid() == 0 else 0)
    program = (
        "import os, sys; from deviceplugin.tools.doctor._cli import main; "
        "os.geteuid() or os.setuid(65534); sys.exit(main(sys.argv[1:]))"
    )
    words = [sys.executable, "-c", program, f"--root={root}", f"--only={check}"]
    found = subprocess.run(words, check=False, capture_output=True, text=True)
    kubelet.pod_resources_socket.parent.chmod(0o700)
    assert status == found.returncode, found.stderr
    assert all(text in found.stdout for text in texts), found.stdout


@pytest.mark.parametrize(
    ("code", "text", "verdict"),
    [
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "the kubelet refuses to answer now: x", "warning"),
        (grpc.StatusCode.UNIMPLEMENTED, "GetAllocatableResources is not offered: x", "warning"),
        (grpc.StatusCode.UNAVAILABLE, "no answer: UNAVAILABLE x", "failure"),
    ],
)
def test_how_the_kubelet_declines_is_told_apart(
    code: grpc.StatusCode, text: str, verdict: str
) -> None:
    found = _kubelet._judge_list(Path("/s"), _sockets.Answer(code, "x"), "")
    assert (verdict, text) == (found.verdict, found.found)


def test_a_package_that_is_missing_is_named(bare: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_machine, "_PACKAGES", ("grpcio", "no-such-package"))
    found = findings(bare, "versions")[2]
    assert (Verdict.FAILURE, "no-such-package") == (found.verdict, found.looked_at)


@pytest.mark.parametrize(
    ("state", "do"),
    [
        (_sockets.State.DENIED, "run the plugin, and this command, as root"),
        (_sockets.State.BUSY, "the kubelet hangs"),
    ],
)
def test_what_to_do_depends_on_the_socket(
    bare: Node, monkeypatch: pytest.MonkeyPatch, state: _sockets.State, do: str
) -> None:
    bare.plugin_dir.mkdir(parents=True)
    monkeypatch.setattr(_kubelet, "state_of", lambda *_: state)
    (found,) = findings(bare, "kubelet-socket")
    assert (Verdict.FAILURE, state.value) == (found.verdict, found.found)
    assert found.do.startswith(do)


def test_plugins_registry_alone_will_do_if_it_is_a_directory(bare: Node) -> None:
    bare.registry_dir.mkdir(parents=True)
    assert ["ok"] == verdicts(bare, "plugin-directory")
    (found,) = findings(bare, "mode")
    assert f"would be watcher, because {bare.registry_dir} exists" == found.found
    bare.registry_dir.rmdir()
    write(bare.registry_dir)
    assert ["is not a directory"] == [f.found for f in findings(bare, "registry-directory")]


def test_a_process_that_ends_meanwhile_is_left_out(bare: Node) -> None:
    write(bare.at("proc/900/status"), f"Uid:\t{os.geteuid()}\n")
    bare.at("proc/900/fd").mkdir()
    bare.at("proc/900/fd/3").symlink_to("anon_inode:inotify")  # and no fdinfo of it any more
    write(bare.at("proc/901/status"), f"Name:\tx\nUid:\t{os.geteuid()}\n")
    write(bare.at("proc/902/status"), "Name:\tx\n")
    assert findings(bare, "inotify")[0].found.startswith("0 of 128")


JUNK = [
    "", "\0", "x", "-1", "9" * 40, "[]", "{}", "null", '{"Data": null}', "\udcff",
    "[" * 400, "\t" + "[" * 1200,  # deep for YAML; for JSON, while YAML ends at the tab
    '{"Data": {}, "Checksum": 1}', "Uid:", "Uid: x", "a b c d e f - ", "1 2 3", "devices: {a: b}",
    '{"cdiVersion": [], "kind": {}, "devices": {}}', "devices: [[]]",
    "devices: [{name: [1], groups: [{paths: [{path: ../..}]}]}]", "? {}\n: 1",
    'devices: [{groups: [{paths: [{path: "/a\\0b"}, {path: ///}, {path: "**/.."}]}]}]',
]  # fmt: skip


@pytest.mark.parametrize("junk", JUNK, ids=range(len(JUNK)))
def test_no_file_on_the_node_makes_the_doctor_fail(bare: Node, junk: str) -> None:
    names = [*PROC, "900/status"]
    names = [f"proc/{name}" for name in names] + [
        "var/lib/kubelet/device-plugins/kubelet_internal_checkpoint",
        "etc/cdi/a.json",
        "etc/cdi/b.yaml",
        "etc/generic-device-plugin/config.yaml",
        "sys/bus/pci/devices/x/vendor",
        "sys/fs/selinux/enforce",
    ]
    for name in names:
        path = write(bare.at(name))
        path.write_bytes(junk.encode(errors="surrogateescape"))
    found = {result.check for result in run(bare, all_checks())}
    silent = {"kubelet-socket", "leftover-sockets"}  # there is a directory, and nothing in it
    assert {check.name for check in all_checks()} - silent == found - silent
