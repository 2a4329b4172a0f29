"""What is remembered from look to look: it saves work, and hides nothing."""

import errno
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deviceplugin_generic import GenericPlugin, GenericSettings, Roots
from deviceplugin_generic.configuration import globs
from deviceplugin_generic.configuration.loading import Devices
from deviceplugin_generic.discovery.cache import FULL_LOOK, Cache
from deviceplugin_generic.discovery.health import Checker
from deviceplugin_generic.discovery.tree import Tree
from generic.plugin import Make
from hardware.failing_calls import failing_calls
from hardware.tree import Hardware

ENTRIES = """
- {name: plain, groups: [{paths: [{path: ROOT/dev/n*}]}]}
- {name: zipped, id: serial, groups: [{paths: [{path: ROOT/dev/n*, limit: 2},
    {path: ROOT/dev/sub*/x, optional: true}, {path: ROOT/dev/n1, type: Mount}]}]}
- {name: usb, groups: [{usb: [{vendor: 1a86, product: '7523'}], nodes: [tty]}]}
- {name: tty, groups: [{select: {subsystem: tty, driver: 'ch*'}}]}
- {name: model, groups: [{select: {subsystem: tty, properties: {MODEL: a}}}]}
- {name: state, groups: [{select: {subsystem: tty, attributes: {state: '0'}}}]}
- {name: health, health: {open: true, interval: 1ms}, groups: [{paths: [{path: ROOT/dev/n2}]}]}
"""
TARGETS = ["/dev/null", "/dev/zero", "nowhere", "/etc", "/dev", "/etc/passwd"]
NAMES = st.sampled_from(["n1", "n2", "n3", "sub1/x", "sub2/x", "other"])
PORTS = st.sampled_from(["1-1", "1-2"])


def usb_path(port: str) -> str:
    return f"pci0000:00/0000:00:14.0/usb1/{port}"


def put(hardware: Hardware, name: str, target: str) -> None:
    """Put a link in place of what is there, or a file."""
    remove(hardware, name)
    path = hardware.dev / name
    path.parent.mkdir(exist_ok=True)
    path.symlink_to(target)


def remove(hardware: Hardware, name: str) -> None:
    (hardware.dev / name).unlink(missing_ok=True)


def plug(hardware: Hardware, port: str, serial: str, tty: str) -> None:
    """Plug in another adapter, under whatever number; sysfs knows /dev/null as its tty too."""
    unplug(hardware, port)
    number = 10 * int(port[-1]) + int(tty[-1])
    path = hardware.usb(port, "1a86:7523", number, serial=serial and f"{serial}{port}")
    interface = hardware.behind_usb(
        path, "1.0", "tty", f"{port}{tty}", driver="ch341", index=tty[-1], properties={"MODEL": "a"}
    )
    (interface / "state").write_text("0")
    know_null_as(hardware, interface)
    hardware.event()


def know_null_as(hardware: Hardware, folder: Path | None) -> None:
    link = hardware.sys / "dev/char/1:3"
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    if folder is not None:
        link.symlink_to(folder)


def unplug(hardware: Hardware, port: str) -> None:
    if (hardware.sys / "devices" / usb_path(port)).exists():
        know_null_as(hardware, None)
        hardware.unplug(usb_path(port))


def write(hardware: Hardware, pattern: str, text: str) -> None:
    """Change what udev or sysfs says of all devices; the kernel sends no event of that."""
    for path in sorted(hardware.sys.parent.glob(pattern)):
        path.write_text(text)


def bind(hardware: Hardware, driver: str) -> None:
    """Bind USB interfaces to another driver, which takes their ttys away and makes new ones."""
    for link in (hardware.sys / "devices").rglob("*:1.0/driver"):
        link.unlink()
        link.symlink_to(f"../{driver}")
        ttys = link.parent / "tty"
        shutil.copytree(ttys, ttys.with_name("new"), symlinks=True)
        shutil.rmtree(ttys)
        ttys.with_name("new").rename(ttys)
    hardware.event()


CHANGES: st.SearchStrategy[Callable[[Hardware], None]] = st.one_of(
    st.builds(lambda n, t: lambda hw: put(hw, n, t), NAMES, st.sampled_from(TARGETS)),
    st.builds(lambda n: lambda hw: remove(hw, n), NAMES),
    st.builds(
        lambda p, s, t: lambda hw: plug(hw, p, s, t),
        PORTS,
        st.sampled_from(["", "S1"]),
        st.sampled_from(["t0", "t1"]),
    ),
    st.builds(lambda p: lambda hw: unplug(hw, p), PORTS),
    st.builds(
        lambda text: lambda hw: write(hw, "udev/c*", text), st.sampled_from(["E:MODEL=a", ""])
    ),
    st.builds(
        lambda text: lambda hw: write(hw, "sys/devices/**/state", text), st.sampled_from("01")
    ),
    st.builds(lambda name: lambda hw: bind(hw, name), st.sampled_from(["ch341", "cp210x"])),
    st.just(Hardware.event),
    st.just(lambda _hw: None),
)


def plugin_of(hardware: Hardware) -> GenericPlugin:
    text = ENTRIES.replace("ROOT", str(hardware.dev.parent))
    return GenericPlugin(
        GenericSettings(device=Devices.parse([text])),
        Roots(hardware.dev, hardware.sys, hardware.udev),
    )


@settings(deadline=None, max_examples=12)
@given(st.lists(st.lists(CHANGES, min_size=1, max_size=3), min_size=2, max_size=8))
def test_after_any_changes_a_look_finds_what_a_first_look_would(
    looks: list[list[Callable[[Hardware], None]]],
) -> None:
    with TemporaryDirectory() as folder:
        hardware = Hardware(Path(folder))
        put(hardware, "n1", "/dev/null")
        plug(hardware, "1-1", "S1", "t0")
        plugin = plugin_of(hardware)
        for changes in looks:
            for change in changes:
                change(hardware)
            fresh = plugin_of(hardware)
            assert list(fresh.discover()) == list(plugin.discover())
            assert fresh.watch_paths == plugin.watch_paths


class Looks:
    """Looks at one entry, and tells which of them read it again."""

    def __init__(self, hardware: Hardware, entry: str) -> None:
        (self.entry,) = Devices.parse([entry]).configuration.entries
        self.roots = Roots(hardware.dev, hardware.sys, hardware.udev)
        self.now, self.names = 0.0, globs.Names()
        self.cache = Cache(lambda: self.now)
        self.shares = self.look()

    def look(self) -> object:
        tree = Tree(self.roots, self.names)
        self.cache.begin(tree)
        return self.cache.shares(self.entry, "a.b", tree, Checker())

    def is_read_again(self) -> bool:
        before, self.shares = self.shares, self.look()
        return before is not self.shares


def test_an_entry_is_read_again_only_if_something_of_it_changed(hardware: Hardware) -> None:
    hardware.node("n1")
    looks = Looks(hardware, f"{{name: ab, groups: [{{paths: [{{path: {hardware.dev}/n*}}]}}]}}")
    assert not looks.is_read_again()
    hardware.event()
    hardware.node("other")
    assert not looks.is_read_again()
    hardware.node("n2")
    assert looks.is_read_again()
    put(hardware, "n2", "/dev/zero")
    assert looks.is_read_again()
    assert not looks.is_read_again()


def test_a_node_is_read_again_when_it_is_another_device_of_the_same_number(
    hardware: Hardware,
) -> None:
    put(hardware, "n1", "/dev/null")
    plug(hardware, "1-1", "S1", "t0")
    looks = Looks(hardware, f"{{name: ab, groups: [{{paths: [{{path: {hardware.dev}/n1}}]}}]}}")
    hardware.event()
    assert not looks.is_read_again()
    plug(hardware, "1-1", "S1", "t0")
    assert looks.is_read_again()


def test_a_selector_is_read_again_after_each_event_of_the_kernel(hardware: Hardware) -> None:
    looks = Looks(hardware, "{name: ab, groups: [{select: {subsystem: tty}}]}")
    assert not looks.is_read_again()
    hardware.event()
    assert looks.is_read_again()
    assert not looks.is_read_again()
    (hardware.sys / "kernel/uevent_seqnum").unlink()  # a kernel that counts no events
    assert looks.is_read_again()
    assert looks.is_read_again()


@pytest.mark.parametrize(
    "entry",
    [
        "{name: ab, groups: [{paths: [{path: /dev/null}]}]}",
        "{name: ab, groups: [{select: {subsystem: tty}}]}",
    ],
)
def test_every_few_minutes_everything_is_read_again(hardware: Hardware, entry: str) -> None:
    looks = Looks(hardware, entry)
    looks.now += FULL_LOOK - 1
    assert not looks.is_read_again()
    looks.now += 1
    assert looks.is_read_again()
    assert not looks.is_read_again()


def test_an_unchanged_look_gives_the_devices_of_the_last(make: Make, hardware: Hardware) -> None:
    hardware.node("n1")
    plugin = make(f"{{name: ab, groups: [{{paths: [{{path: {hardware.dev}/n*}}]}}]}}")
    first = plugin.discover()
    assert plugin.discover() is first
    hardware.node("n2")
    assert 2 == len(list(plugin.discover()))


def test_what_could_not_be_read_for_a_moment_is_read_again(hardware: Hardware, make: Make) -> None:
    usb = hardware.usb("1-1", "0403:6001", 2)
    hardware.behind_usb(usb, "1.0", "tty", "ttyUSB0", driver="ftdi_sio")
    plugin = make("{name: ab, groups: [{select: {subsystem: tty, vendor: '0403'}}]}")
    with failing_calls(hardware.sys) as calls:
        calls.fail(hardware.sys / "devices" / usb / "idVendor", errno.EIO)
        with calls.on():
            assert [] == list(plugin.discover())
        calls.mend()
        assert 1 == len(list(plugin.discover()))
