"""A recording has what plugins read, and nothing else; loaded again, it is the same machine."""

import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout
from functools import partial
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace

import pytest

from deviceplugin.__main__ import main
from deviceplugin.kit.hardware import Tree
from deviceplugin.tools.record import _devices
from deviceplugin_generic import explain
from hardware.recording import RECORDINGS, load, play
from hardware.tree import Hardware

Record = Callable[..., str]


@pytest.fixture
def hardware(tmp_path: Path) -> Hardware:
    return Hardware(tmp_path / "hardware")


@pytest.fixture
def record(hardware: Hardware, capsys: pytest.CaptureFixture[str]) -> Record:
    """Return what records ``hardware``."""

    def recorded(*flags: str) -> str:
        assert 0 == main(["record", f"--root={hardware.sys.parent}", *flags])
        return capsys.readouterr().out

    return recorded


def lines(text: str, start: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(start)]


def machine(hardware: Hardware) -> None:
    """Make two sticks with one serial number, a camera, and a card for a virtual machine."""
    for number, port in enumerate(("1-2", "1-3"), 5):
        usb = hardware.usb(port, "10c4:ea60", number, serial="SECRET A/1")
        link = f"serial/by-id/usb-SECRET_A_1-if{number}"
        properties = {
            "ID_SERIAL_SHORT": "SECRET_A_1",
            "ID_SERIAL": "x_SECRET_A_1",
            "ID_FS_UUID": "u",
        }
        hardware.behind_usb(
            usb, "1.0", "tty", f"ttyUSB{number}", links=(link,), properties=properties
        )
    camera = hardware.usb("1-4", "046d:0825", 9, serial="C1")
    for index in ("0", "1"):
        hardware.behind_usb(camera, "1.0", "video4linux", f"video{index}", index=index)
    hardware.pci("0000:03:00.0", "8086:1572", "020000", group="7", driver="vfio-pci", numa=1)
    hardware.device("virtual/misc/kvm", "misc", node="kvm")


def explained(root: Path) -> str:
    """Return what the generic plugin sees of a machine."""
    with redirect_stdout(io.StringIO()) as out:
        assert 0 == explain(["--all", "--root", str(root)])
    return out.getvalue()


def test_a_recording_that_is_loaded_is_the_same_machine(
    hardware: Hardware, record: Record, tmp_path: Path
) -> None:
    machine(hardware)
    text = record()
    load(text, Hardware(tmp_path / "loaded"))
    assert explained(hardware.sys.parent) == explained(tmp_path / "loaded")
    assert "S: serial/by-id/usb-SECRET_A_1-if5" in text
    assert "E: ID_SERIAL=x_SECRET_A_1" in text


def test_masked_serial_numbers_are_the_same_word_everywhere(
    hardware: Hardware, record: Record, tmp_path: Path
) -> None:
    machine(hardware)
    text = record("--mask-serials")
    assert "SECRET" not in text
    assert "C1" not in text
    assert ["A: serial=SERIAL1\\n", "A: serial=SERIAL1\\n"] == [
        line for line in lines(text, "A: serial=") if line.endswith("1\\n")
    ]
    assert "S: serial/by-id/usb-SERIAL1-if5" in text
    assert "E: ID_SERIAL=x_SERIAL1" in text
    # That of a root hub is the address of its controller.
    assert "A: serial=0000:00:14.0\\n" in text
    assert "P: /devices/pci0000:00/0000:00:14.0/usb1" in text
    load(text, Hardware(tmp_path / "loaded"))
    assert "is also that of the same model in port 1-3" in " ".join(
        explained(tmp_path / "loaded").split("\n  # ")
    )


def test_different_serial_numbers_are_different_words(hardware: Hardware, record: Record) -> None:
    for number, serial in enumerate(("A B 1", "A_B_1", "A_B_12", "1", "x"), 2):
        usb = hardware.usb(f"1-{number}", "10c4:ea60", number, serial=serial)
        properties = {"ID_SERIAL_SHORT": f"only-udev-{number}"}
        hardware.behind_usb(usb, "1.0", "tty", f"ttyUSB{number}", properties=properties)
    text = record("--mask-serials")
    assert [f"A: serial=SERIAL{number}\\n" for number in range(1, 6)] == [
        line for line in lines(text, "A: serial=") if "SERIAL" in line
    ]
    assert [f"E: ID_SERIAL_SHORT=SERIAL{number}" for number in range(6, 11)] == lines(
        text, "E: ID_SERIAL_SHORT"
    )


def test_masking_without_serial_numbers_changes_nothing(hardware: Hardware, record: Record) -> None:
    hardware.pci("0000:03:00.0", "8086:1572", "020000")
    plain = record().partition("\n")[2]
    assert plain == record("--mask-serials").partition("\n")[2]


def test_only_listed_files_are_recorded(hardware: Hardware, record: Record) -> None:
    machine(hardware)
    folder = hardware.sys / "devices/pci0000:00/0000:03:00.0"
    (folder / "config").write_bytes(b"\x86\x80\0\0")
    (folder / "vpd").write_text("TOPSECRET\n")
    (folder / "label").write_bytes(b"a\0b")
    (folder / "mode").write_text("x" * 5000)
    (folder / "net/eth0").mkdir(parents=True)
    (folder / "net/eth0/address").write_text("52:54:00:12:34:56\n")
    hardware.device("virtual/mem/null", "mem", node="null")
    hardware.device("virtual/tty/tty1", "tty", node="tty1")
    text = record()
    found = [word for word in ("TOPSECRET", "52:54", "ID_FS_UUID", "null", "tty1") if word in text]
    assert [] == found
    assert not lines(text, "A: label") + lines(text, "A: mode") + lines(text, "A: config")


def test_odd_texts_stay_in_their_lines(hardware: Hardware, record: Record, tmp_path: Path) -> None:
    usb = hardware.usb("1-2", "10c4:ea60", 5)
    odd = "a\nP: /devices/evil\r\\n b"
    (hardware.sys / "devices" / usb / "product").write_text(odd)
    text = record()
    assert not lines(text, "P: /devices/evil")
    loaded = Hardware(tmp_path / "loaded")
    load(text, loaded)
    assert odd == (loaded.sys / "devices" / usb / "product").read_bytes().decode().removesuffix(
        "\n"
    )


def given(monkeypatch: pytest.MonkeyPatch, *found: Callable[[Tree], Iterable[str]]) -> None:
    """Make these the only functions that plugins have for recordings."""
    entries = [
        SimpleNamespace(name=str(number), load=partial(lambda one: one, read))
        for number, read in enumerate(found)
    ]
    monkeypatch.setattr(_devices, "entry_points", lambda **_: entries)


def test_what_a_plugin_reads_is_recorded(
    hardware: Hardware, record: Record, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = hardware.device("virtual/kfd/kfd", "kfd", node="kfd")
    for path, text in (("topology/nodes/1/gpu_id", "77"), ("topology/nodes/1/secret", "no")):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(f"{text}\n")
    properties = {"LAMP": "red", "ID_FS_UUID": "u"}
    usb = hardware.usb("1-2", "10c4:ea60", 5)
    hardware.behind_usb(usb, "1.0", "tty", "ttyUSB0", properties=properties)

    def read(tree: Tree) -> Iterable[str]:
        for node in tree.sysfs.names("class/kfd/kfd/topology/nodes"):
            tree.sysfs.number(f"class/kfd/kfd/topology/nodes/{node}/gpu_id")
        yield "LAMP"

    given(monkeypatch, read)
    text = record()
    assert ["A: topology/nodes/1/gpu_id=77\\n"] == lines(text, "A: topology")
    assert ["E: LAMP=red"] == lines(text, "E: LAMP") + lines(text, "E: ID_FS")
    loaded = Hardware(tmp_path / "loaded")
    load(text, loaded)
    assert "77\n" == (loaded.sys / "devices/virtual/kfd/kfd/topology/nodes/1/gpu_id").read_text()


def test_parts_of_pci_devices_that_a_plugin_finds_are_recorded(
    hardware: Hardware, record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = hardware.pci("0000:03:00.0", "8086:1572", "020000").relative_to(hardware.sys / "devices")
    for path in (f"{card}/net/eth0", "virtual/net/docker0"):
        hardware.device(path, "net", attributes={"mtu": "1500"})

    def read(tree: Tree) -> Iterable[str]:
        return {one.attribute("no such") for one in tree.subsystem("net")} - {""}

    given(monkeypatch)
    assert not lines(record(), "E: SUBSYSTEM=net")
    given(monkeypatch, read)
    text = record()
    assert ["E: SUBSYSTEM=net"] == lines(text, "E: SUBSYSTEM=net")
    assert "eth0" in text
    assert "docker0" not in text


def test_a_plugin_that_fails_spoils_nothing(
    hardware: Hardware,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    usb = hardware.usb("1-2", "10c4:ea60", 5)
    (hardware.sys / "devices" / usb / "lamp").write_text("on\n")

    def fail(_: Tree) -> Iterable[str]:
        raise ValueError("no")

    def read(tree: Tree) -> Iterable[str]:
        return {one.attribute("lamp") for one in tree.subsystem("usb")} - {"", "on"}

    given(monkeypatch, fail, read)
    assert 0 == main(["record", f"--root={hardware.sys.parent}"])
    out, err = capsys.readouterr()
    assert "A: lamp=on" in out
    assert err.startswith("deviceplugin record: the plugin 0: ValueError: no")


def test_what_cannot_be_recorded_is_named(
    hardware: Hardware, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 1 == main(["record", f"--root={hardware.sys.parent}"])
    assert 2 == main(["record", f"--root={hardware.dev}"])
    broken = EntryPoint("lamp", "no_such_module:read", _devices.GROUP)
    monkeypatch.setattr(_devices, "entry_points", lambda **_: [broken])
    hardware.pci("0000:03:00.0", "8086:1572", "020000")
    assert 2 == main(["record", f"--root={hardware.sys.parent}"])
    empty, none, unknown = capsys.readouterr().err.splitlines()
    assert empty.endswith("/sys: no devices are found")
    assert none.endswith("/sys is not a directory")
    assert "the plugin lamp cannot be imported: " in unknown


@pytest.mark.parametrize("name", [path.stem for path in RECORDINGS.glob("*.umockdev")])
def test_recordings_of_real_machines_survive_a_round(
    hardware: Hardware, record: Record, tmp_path: Path, name: str
) -> None:
    play(name, hardware)
    load(record(), Hardware(tmp_path / "loaded"))
    assert explained(hardware.sys.parent) == explained(tmp_path / "loaded")


def test_this_machine_is_recorded() -> None:
    program = Path(sys.executable).with_name("deviceplugin")
    words = [str(program), "record", "--mask-serials"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode in {0, 1}, json.dumps(done.stderr)
