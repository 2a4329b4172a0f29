"""What is remembered from look to look: it saves work, and hides nothing."""

import errno
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deviceplugin_generic.configuration import globs
from deviceplugin_generic.configuration.loading import Devices
from deviceplugin_generic.discovery.cache import FULL_LOOK, Cache
from deviceplugin_generic.discovery.health import Checker
from deviceplugin_generic.discovery.tree import Tree
from generic.plugin import Machine
from hardware.failing_calls import failing_calls
from hardware.tree import renew

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


def put(machine: Machine, name: str, target: str) -> None:
    """Put a link in place of what is there, or a file."""
    remove(machine, name)
    path = machine.dev / name
    path.parent.mkdir(exist_ok=True)
    path.symlink_to(target)


def remove(machine: Machine, name: str) -> None:
    (machine.dev / name).unlink(missing_ok=True)


def plug(machine: Machine, port: str, serial: str, tty: str) -> None:
    """Plug in another adapter, under whatever number; sysfs knows /dev/null as its tty too."""
    unplug(machine, port)
    number = 10 * int(port[-1]) + int(tty[-1])
    path = machine.usb(port, "1a86:7523", number, serial=serial and f"{serial}{port}")
    interface = machine.behind_usb(
        path, "1.0", "tty", f"{port}{tty}", driver="ch341", index=tty[-1], properties={"MODEL": "a"}
    )
    (interface / "state").write_text("0")
    know_null_as(machine, interface)
    machine.event()


def know_null_as(machine: Machine, folder: Path | None) -> None:
    link = machine.sys / "dev/char/1:3"
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    if folder is not None:
        link.symlink_to(folder)


def unplug(machine: Machine, port: str) -> None:
    path = f"pci0000:00/0000:00:14.0/usb1/{port}"
    if (machine.sys / "devices" / path).exists():
        know_null_as(machine, None)
        machine.unplug(path)


def write(machine: Machine, pattern: str, text: str) -> None:
    """Change what udev or sysfs says of all devices; the kernel sends no event of that."""
    for path in sorted(machine.sys.parent.glob(pattern)):
        path.write_text(text)


def bind(machine: Machine, driver: str) -> None:
    """Bind USB interfaces to another driver, which takes their ttys away and makes new ones."""
    for link in (machine.sys / "devices").rglob("*:1.0/driver"):
        link.unlink()
        link.symlink_to(f"../{driver}")
        renew(link.parent / "tty")
    machine.event()


def change(function: Callable[..., object], **given: st.SearchStrategy[str]) -> Any:
    return st.builds(partial, st.just(function), **given)


CHANGES: st.SearchStrategy[Callable[[Machine], object]] = st.one_of(
    change(put, name=NAMES, target=st.sampled_from(TARGETS)),
    change(remove, name=NAMES),
    change(plug, port=PORTS, serial=st.sampled_from(["", "S1"]), tty=st.sampled_from(["t0", "t1"])),
    change(unplug, port=PORTS),
    change(write, pattern=st.just("udev/c*"), text=st.sampled_from(["E:MODEL=a", ""])),
    change(write, pattern=st.just("sys/devices/**/state"), text=st.sampled_from("01")),
    change(bind, driver=st.sampled_from(["ch341", "cp210x"])),
    st.just(Machine.event),
    st.just(lambda _machine: None),
)


@settings(deadline=None, max_examples=12)
@given(st.lists(st.lists(CHANGES, min_size=1, max_size=3), min_size=2, max_size=8))
def test_after_any_changes_a_look_finds_what_a_first_look_would(
    looks: list[list[Callable[[Machine], object]]],
) -> None:
    with TemporaryDirectory() as folder:
        machine = Machine(Path(folder))
        put(machine, "n1", "/dev/null")
        plug(machine, "1-1", "S1", "t0")
        entries = ENTRIES.replace("ROOT", str(machine.dev.parent))
        plugin = machine.plugin(entries)
        for changes in looks:
            for one in changes:
                one(machine)
            fresh = machine.plugin(entries)
            assert list(fresh.discover()) == list(plugin.discover())
            assert fresh.watch_paths == plugin.watch_paths


class Looks:
    """Looks at one entry, and tells which of them read it again."""

    def __init__(self, machine: Machine, entry: str) -> None:
        (self.entry,) = Devices.parse([entry]).configuration.entries
        self.roots = machine.roots
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


def test_an_entry_is_read_again_only_if_something_of_it_changed(machine: Machine) -> None:
    machine.node("n1")
    looks = Looks(machine, f"{{name: ab, groups: [{{paths: [{{path: {machine.dev}/n*}}]}}]}}")
    assert not looks.is_read_again()
    machine.event()
    machine.node("other")
    assert not looks.is_read_again()
    machine.node("n2")
    assert looks.is_read_again()
    put(machine, "n2", "/dev/zero")
    plug(machine, "1-1", "S1", "t0")
    assert looks.is_read_again()
    plug(machine, "1-1", "S1", "t0")  # another device of the same number
    assert looks.is_read_again()
    assert not looks.is_read_again()


def test_a_selector_is_read_again_after_each_event_of_the_kernel(machine: Machine) -> None:
    looks = Looks(machine, "{name: ab, groups: [{select: {subsystem: tty}}]}")
    assert not looks.is_read_again()
    machine.event()
    assert looks.is_read_again()
    assert not looks.is_read_again()
    (machine.sys / "kernel/uevent_seqnum").unlink()  # a kernel that counts no events
    assert looks.is_read_again()
    assert looks.is_read_again()


@pytest.mark.parametrize(
    "entry",
    [
        "{name: ab, groups: [{paths: [{path: /dev/null}]}]}",
        "{name: ab, groups: [{select: {subsystem: tty}}]}",
    ],
)
def test_every_few_minutes_everything_is_read_again(machine: Machine, entry: str) -> None:
    looks = Looks(machine, entry)
    looks.now += FULL_LOOK - 1
    assert not looks.is_read_again()
    looks.now += 1
    assert looks.is_read_again()
    assert not looks.is_read_again()


def test_an_unchanged_look_gives_the_devices_of_the_last(machine: Machine) -> None:
    plugin = machine.plugin("{name: ab, groups: [{paths: [{path: /dev/null}]}]}")
    assert plugin.discover() is plugin.discover()


def test_what_could_not_be_read_for_a_moment_is_read_again(machine: Machine) -> None:
    usb = machine.usb("1-1", "0403:6001", 2)
    machine.behind_usb(usb, "1.0", "tty", "ttyUSB0", driver="ftdi_sio")
    plugin = machine.plugin("{name: ab, groups: [{select: {subsystem: tty, vendor: '0403'}}]}")
    with failing_calls(machine.sys) as calls:
        calls.fail(machine.sys / "devices" / usb / "idVendor", errno.EIO)
        with calls.on():
            assert [] == list(plugin.discover())
        calls.mend()
        assert 1 == len(list(plugin.discover()))
