"""``generic-device-plugin explain``: what it prints is a configuration that finds what it says."""

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

import deviceplugin as dp
from deviceplugin.checks import Node, Verdict
from deviceplugin_generic import explain
from deviceplugin_generic.discovery.access import access
from deviceplugin_generic.doctor import look
from discovered import found
from generic.plugin import Machine, make_node
from hardware.recording import RECORDINGS, play
from patience import PATIENCE

COMMAND = Path(sys.executable).with_name("generic-device-plugin")
Explain = Callable[..., str]


@pytest.fixture
def run(machine: Machine, capsys: pytest.CaptureFixture[str]) -> Explain:
    """Return what explains the devices of the machine, and returns the output."""

    def explained(*words: str) -> str:
        assert 0 == explain(["--root", str(machine.sys.parent), *words])
        return capsys.readouterr().out

    return explained


def advertised(machine: Machine, text: str) -> dict[str, dp.Device]:
    """Return what the plugin advertises by a configuration."""
    return found(machine.plugin_of(machine.dev.parent / "config.yaml", text))


def entries(text: str) -> dict[str, dict[str, object]]:
    return {one["name"]: one["groups"][0] for one in yaml.safe_load(text)["devices"]}


def names(devices: dict[str, dp.Device]) -> dict[str, list[str]]:
    """Return the names of the nodes of each device."""
    return {
        one: [*dict.fromkeys(Path(node.host_path).name for node in device.nodes)]
        for one, device in devices.items()
    }


def warnings(text: str) -> list[str]:
    joined = re.sub(r"\n  # (?!(Warning|Recognized|Its|Ids))", " ", text)
    return re.findall(r"# Warning: (.*)\.$", joined, re.MULTILINE)


def stick(machine: Machine, port: str, device: int, serial: str, name: str = "") -> str:
    """Plug in a serial adapter."""
    usb = machine.usb(port, "10c4:ea60", device, serial=serial)
    machine.behind_usb(usb, "1.0", "tty", name or f"ttyUSB{device}")
    return usb


def test_a_usb_device_is_selected_by_its_serial_number(machine: Machine, run: Explain) -> None:
    usb = stick(machine, "1-2", 5, "0001A")
    (machine.sys / "devices" / usb / "product").write_text("CP2102 UART Bridge\n")
    text = run()
    select = {"subsystem": "usb", "vendor": "10c4", "product": "ea60", "serial": "0001A"}
    assert {"cp2102-uart-bridge-tty": {"select": select, "nodes": ["tty"]}} == entries(text)
    assert "Its id is now cp2102-uart-bridge-tty-0001A." in text
    assert [] == warnings(text)
    machine.unplug(usb)
    stick(machine, "1-4.1", 9, "0001A")
    (device,) = advertised(machine, text).values()
    assert ("cp2102-uart-bridge-tty-0001A", True) == (device.id, bool(device.health))


def test_a_device_without_a_serial_number_is_selected_by_its_port(
    machine: Machine, run: Explain
) -> None:
    usb = stick(machine, "1-2", 5, "")
    text = run()
    assert ["it has no serial number"] == warnings(text)
    assert "in another port it is not found" in text
    assert ["usb-10c4-ea60-tty-1-2"] == list(advertised(machine, text))
    machine.unplug(usb)
    stick(machine, "1-3", 6, "")
    assert {} == advertised(machine, text)


def test_devices_with_one_serial_number_are_told_apart_by_their_ports(
    machine: Machine, run: Explain
) -> None:
    stick(machine, "1-2", 5, "77A")
    stick(machine, "1-3", 6, "77A")
    text = run()
    assert [
        "its serial number 77A is also that of the same model in port 1-3",
        "its serial number 77A is also that of the same model in port 1-2",
    ] == warnings(text)
    assert {
        "usb-10c4-ea60-tty-1-2-1-2": ["ttyUSB5"],
        "usb-10c4-ea60-tty-1-3-1-3": ["ttyUSB6"],
    } == names(advertised(machine, text))


def test_a_serial_number_that_another_model_has_changes_the_id_only(
    machine: Machine, run: Explain
) -> None:
    stick(machine, "1-2", 5, "77A")
    machine.usb("1-3", "0bda:2838", 6, serial="77A")
    text = run("10c4:ea60")
    (warning,) = warnings(text)
    assert warning.startswith("its serial number 77A is also that of another model in port 1-3, so")
    assert ["usb-10c4-ea60-tty-77A@1-2"] == list(advertised(machine, text))


@pytest.mark.parametrize(
    ("serials", "warning"),
    [
        (
            ["00000001", "0", "123456789", "0123456789ABCDEF", "AAAA"],
            "{} looks like a serial number that all devices of this model",
        ),
        (
            ["A\x01B", "A\u2028B", "A\ufffdB"],
            "its serial number has characters that cannot be written",
        ),
        (["a*b", "[1]", "a?", "a\\b", "{id}", "1e5", "'\"#", "ünï"], ""),
    ],
    ids=["placeholders", "unprintable", "patterns"],
)
def test_a_serial_number_matches_only_itself(
    machine: Machine, run: Explain, serials: list[str], warning: str
) -> None:
    usb = machine.usb("1-2", "0bda:2838", 5, serial="x")
    machine.usb("1-3", "0bda:2838", 6, serial="1")
    for serial in serials:
        (machine.sys / "devices" / usb / "serial").write_text(serial)
        text = run("1-2")
        found = warnings(text)
        assert bool(warning) == bool(found)
        assert all(one.startswith(warning.format(serial)) for one in found)
        assert {str(machine.dev / "bus/usb/001/005")} == {
            node.host_path for device in advertised(machine, text).values() for node in device.nodes
        }


def test_what_a_device_says_of_itself_cannot_become_an_entry(
    machine: Machine, run: Explain
) -> None:
    usb = stick(machine, "1-2", 5, "0001A")
    evil = "x\n  - name: evil\u2028  - name: worse\x85 \x1b[31m"
    (machine.sys / "devices" / usb / "product").write_text(evil)
    text = run()
    assert ["x-name-evil-name-worse-31m-tty"] == list(entries(text))
    assert all(line.isprintable() for line in text.splitlines())


def test_parts_of_a_device_and_cards_of_a_model_are_devices_of_one_entry(
    machine: Machine, run: Explain
) -> None:
    usb = stick(machine, "1-2", 5, "FT4")
    machine.behind_usb(usb, "1.1", "tty", "ttyUSB6")
    camera = machine.usb("1-4", "046d:0825", 4, serial="C1")
    for index in ("0", "1"):  # of which the first delivers images
        machine.behind_usb(camera, "1.0", "video4linux", f"video{index}", index=index)
    for bus in ("03", "04"):
        machine.pci(f"0000:{bus}:00.0", "1002:73bf", "030000", driver="amdgpu")
        path = f"pci0000:00/0000:{bus}:00.0/drm/renderD{bus}"
        machine.device(path, "drm", node=f"dri/renderD{bus}")
    text = run()
    assert ["it has 2 ports, each of which is a device"] == warnings(text)
    assert "PCI 1002:73bf with the driver amdgpu, 2 functions at 0000:03:00.0" in text
    assert {
        "usb-10c4-ea60-tty-FT4:1.0": ["ttyUSB5"],
        "usb-10c4-ea60-tty-FT4:1.1": ["ttyUSB6"],
        "usb-046d-0825-video4linux-C1": ["video0"],
        "amdgpu-drm-0000:03:00.0": ["renderD03"],
        "amdgpu-drm-0000:04:00.0": ["renderD04"],
    } == names(advertised(machine, text))


def test_functions_for_virtual_machines_are_proposed_by_their_drivers_with_their_groups(
    machine: Machine, run: Explain
) -> None:
    drivers = ("vfio-pci", "nvgrace-gpu-vfio-pci", "mlx5_vfio_pci")
    for number, driver in enumerate(drivers, 1):
        address = f"0000:0{number}:00.0"
        machine.pci(address, "10de:2342", "030200", group=str(number), driver=driver)
    text = run()
    assert {*drivers} == {one["select"]["driver"] for one in entries(text).values()}  # type: ignore[index]
    assert [["vfio", str(number)] for number in (1, 2, 3)] == sorted(
        names(advertised(machine, text)).values()
    )


def test_what_is_made_of_a_network_card_is_proposed_for_itself(
    machine: Machine, run: Explain
) -> None:
    machine.pci("0000:3b:00.0", "15b3:101d", "020000", driver="mlx5_core")
    parent = "pci0000:00/0000:3b:00.0"
    sub = f"{parent}/mlx5_core.sf.2"
    machine.device(sub, "auxiliary", attributes={"sfnum": "88"}, is_bus=True)
    verbs = f"{sub}/infiniband_verbs/uverbs1"
    machine.device(verbs, "infiniband_verbs", node="infiniband/uverbs1")
    machine.vhost_vdpa(
        machine.device(f"{parent}/vdpa0", "vdpa", driver="vhost_vdpa", is_bus=True), 3
    )
    assert {
        "vdpa0-0000:3b:00.0/vdpa0": ["vhost-vdpa-3"],
        "mlx5-core-sf-2-infiniband-verbs-0000:3b:00.0/sf88": ["uverbs1"],
    } == names(advertised(machine, run()))


def test_a_sound_card_comes_with_all_its_nodes(machine: Machine, run: Explain) -> None:
    machine.device("virtual/sound/timer", "sound", node="snd/timer")
    machine.pci("0000:00:1f.3", "8086:a0c8", "040300", driver="snd_hda_intel")
    card = "pci0000:00/0000:00:1f.3/sound/card0"
    machine.device(card, "sound")
    board = "platform/soc/audio/sound/card1"
    machine.device(board, "sound")
    for place, number in ((card, 0), (board, 1)):
        for name in (f"controlC{number}", f"pcmC{number}D0p"):
            machine.device(f"{place}/{name}", "sound", node=f"snd/{name}")
    assert {
        "snd-hda-intel-sound-0000:00:1f.3": ["controlC0", "pcmC0D0p", "timer"],
        "card1-sound-card1": ["controlC1", "pcmC1D0p"],
    } == names(advertised(machine, run()))


def test_consoles_and_disks_are_not_listed_unless_asked_for(machine: Machine, run: Explain) -> None:
    machine.device("virtual/tty/tty1", "tty", node="tty1")
    machine.device("platform/serial8250/tty/ttyS9", "tty", node="ttyS9", attributes={"type": "0"})
    machine.device("platform/serial8250/tty/ttyS0", "tty", node="ttyS0", attributes={"type": "4"})
    machine.device("virtual/mem/null", "mem", node="null")
    machine.device("virtual/misc/hpet", "misc", node="hpet")
    machine.device("virtual/block/loop0", "block", node="loop0")
    machine.device("virtual/misc/kvm", "misc", node="kvm")
    machine.device("virtual/misc/tun", "misc", node="net/tun")
    machine.device("platform/LNXPWRBN:00/input/event0", "input", node="input/event0")
    assert ["kvm", "tun", "ttys0"] == list(entries(run()))
    assert {"event0", "hpet", "kvm", "loop0", "null", "tty1", "ttys0", "ttys9", "tun"} == set(
        entries(run("--all"))
    )
    assert ["loop0", "hpet"] == list(entries(run("hpet", "/dev/loop0")))
    assert {"tty1", "ttys0", "ttys9"} == set(entries(run("--all", "--subsystem", "tty")))


@pytest.mark.parametrize(
    "words",
    [
        *(["/dev/ttyUSB5"], ["/dev/serial/by-id/usb-0001A"], ["ttyusb5"], ["10C4:ea60"]),
        *(["0001a"], ["1-2"], ["nothing", "bridge"]),
    ],
)
def test_words_choose_devices(machine: Machine, run: Explain, words: list[str]) -> None:
    usb = stick(machine, "1-2", 5, "0001A")
    (machine.sys / "devices" / usb / "product").write_text("Bridge\n")
    machine.usb("1-3", "0bda:2838", 55, serial="SDR")
    machine.device("virtual/misc/kvm", "misc", node="kvm")
    link = machine.dev / "serial/by-id/usb-0001A"
    link.parent.mkdir(parents=True)
    link.symlink_to("../../ttyUSB5")
    assert ["bridge-tty"] == list(entries(run(*words)))


def test_a_word_that_nothing_matches_is_an_error(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    root = ["--root", str(machine.sys.parent)]
    assert 1 == explain([*root, "/dev/ttyUSB9"])
    assert 1 == explain(root)
    assert 1 == explain([*root, "--all", "--subsystem", "nfc"])
    assert 2 == explain(["--root", str(machine.dev)])
    assert 2 == explain(["--rot", "/"])
    assert [
        "generic-device-plugin explain: nothing here is /dev/ttyUSB9",
        "generic-device-plugin explain: no device that a pod may need; --all shows others",
        "generic-device-plugin explain: nothing here is --subsystem nfc",
        f"generic-device-plugin explain: {machine.dev}/sys: is not a directory",
    ] == [line for line in capsys.readouterr().err.splitlines() if "explain: " in line][:4]


def of_node(text: str) -> str:
    """Return what an entry's comment says of a pod, in one line."""
    said = re.findall(r"^  # (A pod asks for (?:.|\n  # )*)", text, re.MULTILINE)
    return " | ".join(one.replace("\n  # ", " ") for one in said)


@pytest.mark.parametrize(
    ("mode", "group", "said"),
    [
        (0o660, 20, ". One that is not root needs supplementalGroups: [20]."),
        (0o660, 54321, ". One that is not root needs supplementalGroups: [54321]."),
        (0o660, 0, ". One that is not root needs supplementalGroups: [0]."),
        (0o666, 20, ", and may be any user."),
        (0o664, 20, ". One that is not root needs supplementalGroups: [20]."),
        (0o600, 20, ". Warning: only the owner can open /dev/ttyUSB5 (0600 of user 0), whatever"),
        (0o640, 20, ". Warning: only the owner can open /dev/ttyUSB5 (0640 of user 0), whatever"),
        (None, 20, ". Which groups it needs is not visible here: on the node, ls -ln /dev/ttyUSB5"),
    ],
)
def test_an_entry_says_which_group_opens_its_node(
    machine: Machine, run: Explain, mode: int | None, group: int, said: str
) -> None:
    stick(machine, "1-2", 5, "0001A")
    (machine.dev / "ttyUSB5").unlink()
    if mode is not None:
        make_node(machine.dev / "ttyUSB5", mode, group)
    assert of_node(run()).startswith(f"A pod asks for devic.es/usb-10c4-ea60-tty: 1{said}")


def test_a_pod_with_all_devices_is_as_the_page_shows_and_valid(
    machine: Machine, run: Explain
) -> None:
    usb = stick(machine, "1-2", 5, "0001A", "ttyUSB0")
    camera = machine.usb("1-4", "046d:0825", 4, serial="C1")
    machine.behind_usb(camera, "1.0", "video4linux", "video0", index="0")
    for at, product in ((usb, "CP2102"), (camera, "C270")):
        (machine.sys / "devices" / at / "product").write_text(f"{product}\n")
    make_node(machine.dev / "ttyUSB0", 0o660, 20)
    make_node(machine.dev / "video0", 0o660, 44)
    page = (Path(__file__).parents[3] / "plugins/generic/docs/pods.md").read_text()
    text = run("--pod", "/dev/ttyUSB0", "/dev/video0")
    shown = page.partition("explain --pod /dev/ttyUSB0 /dev/video0\n")[2].partition("```")[0]
    assert shown == text
    kubernetes_validate.validate(yaml.safe_load(text), "1.32", strict=True)


def test_a_pod_says_what_is_not_possible(machine: Machine, run: Explain) -> None:
    for number in range(6):
        machine.device(f"virtual/misc/uinput{number}", "misc", node=f"u{number}")
        make_node(machine.dev / f"u{number}")
    machine.device("virtual/misc/kvm", "misc", node="kvm")
    (machine.dev / "kvm").unlink()
    text = run("--all", "--pod")
    heading = " ".join(line[2:] for line in text.splitlines() if line.startswith("# "))
    assert "/dev/u3 (0600 of user 0) and 2 more, whatever groups a pod has" in heading
    assert "not visible here: on the node, ls -ln /dev/kvm says it" in heading
    pod = yaml.safe_load(text)
    kubernetes_validate.validate(pod, "1.32", strict=True)
    assert "supplementalGroups" not in pod["spec"]["securityContext"]


def test_the_directory_of_sound_cards_is_all_nodes_in_it(machine: Machine) -> None:
    for name, mode, group in (("a/x", 0o660, 29), ("a/y", 0o660, 63), ("a/z", 0o666, 0)):
        make_node(machine.dev / name, mode, group)
    (machine.dev / "a/link").symlink_to("/dev/null")
    found = access([dp.DeviceNode(f"{machine.dev}/a"), dp.DeviceNode("/dev/a/x")], machine.dev)
    assert {29: ("/dev/a/x",), 63: ("/dev/a/y",)} == found.groups
    assert ({}, ()) == (found.closed, found.unseen)
    for permissions, groups in (("r", set()), ("rwm", {20}), ("m", set())):
        make_node(machine.dev / "b", 0o664, 20)
        read = access([dp.DeviceNode("/dev/b", permissions=permissions)], machine.dev)
        assert groups == {*read.groups}


EXPECTED = {
    "coral": {"apex-apex-0000:02:00.0"},
    "hub": {"security-key-by-yubico-hidraw-1-2.3"},
    "i915": {"i915-drm-0000:4d:00.0"},
    "misc": {"kvm-kvm::0", "tun-tun::0", "vhost-net-vhost-net::0"},
}


@pytest.mark.parametrize("name", [path.stem for path in RECORDINGS.glob("*.umockdev")])
def test_every_recording_gives_a_valid_configuration(
    machine: Machine, run: Explain, name: str
) -> None:
    play(name, machine)
    if name in EXPECTED:
        assert EXPECTED[name] <= advertised(machine, run()).keys()
    text = run("--all")
    devices = advertised(machine, text)
    assert len(entries(text)) == len({one.resource for one in devices.values()})


def test_a_reader_that_goes_away_is_not_an_error(machine: Machine) -> None:
    for number in range(2, 60):
        machine.usb(f"1-{number}", "0bda:2838", number, serial=f"S{number}X" * 20)
    done = subprocess.run(
        f"{COMMAND} explain --root {machine.sys.parent} | head -1",
        shell=True,
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE,
    )
    assert ("", 1) == (done.stderr, len(done.stdout.splitlines()))


PATHS = {"groups": [{"paths": [{"path": "/proc/self"}]}]}


def given(root: Path, entry: Mapping[str, object]) -> str:
    """Return what the doctor says that an entry gives away; empty if nothing."""
    where = root / "etc/generic-device-plugin"
    where.mkdir(parents=True, exist_ok=True)
    (where / "config.yaml").write_text(json.dumps({"devices": [{"name": "ab", **entry}]}))
    found = [one for one in look(Node.at_root(root)) if "gives containers" in one.found]
    assert all(one.verdict is Verdict.WARNING and "root on the node" in one.means for one in found)
    return " ".join(one.found.removeprefix("gives containers ") for one in found)


ROOTS = [
    *("/", "//", "/etc", "/etc/", "/etc/ssh/sshd_config", "/var", "/var/lib"),
    *("/var/lib/kubelet/pki", "/dev", "/proc", "/run", "/var/run", "/var/run/docker.sock"),
    *("/run/containerd/containerd.sock", "/root/.ssh", "/home", "/usr/local"),
    *("/var/lib/{port}", "/run/{serial}", "/etc/sticks/{serial}", "/var/run/{serial}"),
]
NEEDED = [
    *("/srv/sticks/{serial}", "/var/lib/zwave/{port}", "/run/udev", "/etcetera", "/dev/snd"),
    *("/var/running", "/home/pi/data", "/run/stick-{serial}", "/opt/vendor/lib", "/sys/class"),
    *("/var/lib/kubelets", "/mnt/etc"),
]
DISKS = [
    *("/dev/mem", "/dev/sda", "/dev/sd*", "/dev/*", "/dev/nvme0n1", "/dev/[s-v]d[ab]"),
    *("/dev/mapper/*", "/dev/disk/by-id/x", "/dev/../dev/port", "/dev/dm-3", "/dev/vda1"),
]
NODES = ["/dev/ttyUSB*", "/dev/snd", "/dev/video0", "/dev/memory_x"]


@pytest.mark.parametrize(("way", "kind"), [(False, "writable"), (True, "read-only")])
def test_a_mount_by_which_a_pod_is_root_is_a_warning(tmp_path: Path, way: bool, kind: str) -> None:
    mounts = [{"path": one, "mountPath": "/data", "readOnly": way} for one in [*NEEDED, *ROOTS]]
    expected = ", ".join(f"{path} ({kind})" for path in ROOTS)
    assert expected == given(tmp_path, {**PATHS, "mounts": mounts})


def test_a_node_of_memory_or_of_a_disk_is_a_warning(tmp_path: Path) -> None:
    groups = [{"paths": [{"path": path}]} for path in [*NODES, *DISKS]]
    assert ", ".join(DISKS) == given(tmp_path, {"groups": groups})


def test_every_way_to_give_a_path_counts(tmp_path: Path) -> None:
    select = {"select": {"subsystem": "block", "name": "sda"}, "with": ["/dev/mem"]}
    mounted = {"paths": [{"path": "/etc/*", "type": "Mount", "readOnly": True}]}
    expected = "/etc/* (read-only), /dev/mem, devices of the subsystem block"
    assert expected == given(tmp_path, {"groups": [mounted, select]})


def test_rules_of_smarter_and_commands_count_too(tmp_path: Path) -> None:
    assert not given(tmp_path, {**PATHS, "health": {"command": ["/bin/check", "x"]}})
    found = [one.found for one in look(Node.at_root(tmp_path))]
    assert "runs /bin/check in the plugin, as root" in found
    (tmp_path / "dev").mkdir()
    for name in ("sda", "ttyUSB0"):
        (tmp_path / "dev" / name).touch()
    for pattern, more in (("^tty", []), (".*", [Verdict.WARNING])):
        rule = f"[{{devicematch: '{pattern}', nummaxdevices: 1}}]"
        (tmp_path / "etc/generic-device-plugin/config.yaml").write_text(rule)
        assert [Verdict.OK, *more] == [one.verdict for one in look(Node.at_root(tmp_path))]


ENTRIES = """devices:
- {name: sel, groups: [{select: {subsystem: tty}}]}
- {name: path, groups: [{paths: [{path: /dev/ttyUSB*}]}], health: {command: [/bin/false]}}
- {name: none, groups: [{paths: [{path: /dev/none}]}]}
"""
GIVES = "device_ownership_from_security_context = true"
CRI = "[plugins.'io.containerd.cri.v1.runtime']"
RUNTIMES = [
    ("etc/containerd/config.toml", "", f"{GIVES} below {CRI} ([plugins.'io.containerd.grpc.v1"),
    ("srv/none", "", "in /etc/containerd/config.toml, and restart it"),
    ("etc/crio/crio.conf", "", f"{GIVES} below [crio.runtime] in /etc/crio/crio.conf.d"),
    ("var/lib/rancher/k3s/agent/etc/containerd/config.toml", "", "/etc/rancher/k3s/config.yaml"),
    ("var/lib/rancher/rke2/agent/etc/containerd/config.toml", "", "/etc/rancher/rke2/config.yaml"),
    ("etc/containerd/config.toml", f"version = 3\n{CRI}\n{GIVES}\n", ""),
    ("etc/crio/crio.conf", f"[crio.runtime]\n{GIVES}\n", ""),
]


def who(machine: Machine, file: str, text: str) -> list[tuple[str, str, str]]:
    """Return what the doctor says of who may open nodes."""
    root = machine.sys.parent
    for name, content in ((file, text), ("etc/generic-device-plugin/config.yaml", ENTRIES)):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    found = [one for one in look(Node.at_root(root)) if one.found.count("/dev/ttyUSB0")]
    return [(one.looked_at.rpartition(" ")[2], one.found, one.do) for one in found]


@pytest.mark.parametrize(("file", "text", "do"), RUNTIMES)
def test_the_doctor_says_what_gives_a_node_of_root_to_a_pods_user(
    machine: Machine, file: str, text: str, do: str
) -> None:
    stick(machine, "1-2", 0, "0001A")
    make_node(machine.dev / "ttyUSB0")
    found = who(machine, file, text)
    assert ["sel", "path"] == [name for name, _, _ in found]
    for _, said, advice in found:
        assert "/dev/ttyUSB0 (0600 of user 0)" in said
        known = f"; {GIVES.partition(' ')[0]}: {'not known here' if 'srv' in file else 'off'}"
        assert said.endswith(known) == bool(do)
        assert (do in advice) if do else not advice


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        (0o660, ["/dev/ttyUSB0: a pod that is not root needs the group 20"] * 2),
        (0o666, []),
        (None, ["/dev/ttyUSB0: which group it has is not visible here"]),
    ],
)
def test_the_doctor_says_which_group_a_pod_needs(
    machine: Machine, mode: int | None, said: list[str]
) -> None:
    stick(machine, "1-2", 0, "0001A")
    (machine.dev / "ttyUSB0").unlink()
    if mode is not None:
        make_node(machine.dev / "ttyUSB0", mode, 20)
    assert said == [one for _, one, _ in who(machine, "etc/containerd/config.toml", "")]


DEVICES = [
    """
name: serial
groups: [{{paths: [{{path: {0}/ttyUSB*}}]}}, {{paths: [{{path: {0}/ttyACM*}}]}}]
""",
    "{{name: fuse, groups: [{{count: 3, paths: [{{path: {0}/fuse}}]}}]}}",
    "{{name: audio, groups: [{{count: 2, paths: [{{path: {0}/snd}}]}}]}}",
    """
name: capture
groups:
  - paths: [{{path: {0}/controlC0}}, {{path: {0}/pcmC0D0c}}]
  - paths:
      - {{path: {0}/controlC1, mountPath: /dev/snd/controlC0}}
      - {{path: {0}/pcmC1D0c, mountPath: /dev/snd/pcmC0D0c}}
""",
    '{{"name": "both ", "groups": [{{"paths": [{{"path": " {0}/fuse "}}]}}]}}',
]


def test_a_manifest_of_generic_device_plugin_gives_the_same_resources_and_ids(
    machine: Machine,
) -> None:
    words = ["--domain", "x.io", "--listen", ":8080", "--plugin-directory=/x", "--log-level=none"]
    for name in ("ttyUSB0", "ttyUSB1", "ttyACM0", "fuse", "controlC1", "pcmC1D0c"):
        machine.node(name)
    make_node(machine.dev / "snd/controlC0")
    dev = str(machine.dev)
    flags = [word for text in DEVICES for word in ("--device", text.format(dev))]
    done = subprocess.run(
        [COMMAND, *words, *flags, "--once", "--output=json"],
        capture_output=True,
        text=True,
        check=True,
    )
    found = {
        (one["name"], device["id"], device["healthy"])
        for one in json.loads(done.stdout)["resources"]
        for device in one["devices"]
    }
    expected = {
        "serial": [f"0{dev}/ttyACM0", f"0{dev}/ttyUSB0", f"0{dev}/ttyUSB1"],
        "fuse": [f"{share}{dev}/fuse" for share in range(3)],
        "audio": [f"0{dev}/snd", f"1{dev}/snd"],
        "capture": [f"0{dev}/controlC1{dev}/pcmC1D0c"],
        "both": [f"0{dev}/fuse"],
    }
    assert found == {
        (f"x.io/{name}", hashlib.sha1(text.encode()).hexdigest(), True)
        for name, texts in expected.items()
        for text in texts
    }
