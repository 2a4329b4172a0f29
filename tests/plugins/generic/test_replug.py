"""A stick that comes back under another number, from its entry to the status of its pod."""

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

import deviceplugin as dp
from deviceplugin_testing.fixture import Kubelet, Node
from deviceplugin_testing.simulator import Pod
from generic.plugin import Machine
from patience import eventually

PAGE = Path(__file__).parents[3] / "plugins/generic/docs/replug.md"
QUICK = timedelta(milliseconds=50)
RESOURCE = "squat.ai/stick"
POD, NEXT = (Pod.of(name, main={RESOURCE: 1}) for name in ("first", "next"))
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="making device nodes needs root")


class Stick:
    """A stick with a terminal, in one port. Its nodes are real if ``real``."""

    def __init__(self, root: Path, *, real: bool) -> None:
        self.machine = Machine(root, real=real)
        (self.machine.dev / "by-id").mkdir()
        self.link = self.machine.dev / "by-id/stick"
        self._usb = ""
        self.enumerate(5)

    def enumerate(self, number: int) -> None:
        """Have the stick under a number on the bus, and its terminal under a lower one."""
        if self._usb:
            self.machine.unplug(self._usb)
        self._usb = self.machine.usb("1-4", "1a6e:089a", number, serial="S1")
        tty = f"ttyUSB{number - 5}"
        self.machine.behind_usb(self._usb, "1.0", "tty", tty)
        self.link.unlink(missing_ok=True)
        self.link.symlink_to(f"../{tty}")


@pytest.mark.parametrize(
    ("more", "group", "name", "real"),
    [
        ("id: port", "usb: [{vendor: 1a6e, product: 089a}]", "bus/usb/001/005", False),
        ("id: serial", "usb: [{vendor: 1a6e, product: 089a}]", "bus/usb/001/005", True),
        ("policy: pack", "select: {subsystem: tty}", "ttyUSB0", False),
        ("policy: pack", "select: {subsystem: usb, serial: S1}, nodes: [usb, tty]", "", True),
        ("policy: pack", "paths: [{path: LINK}]", "by-id/stick", True),
    ],
)
@needs_root
def test_the_pod_is_told_that_its_node_is_gone_and_the_next_one_gets_the_new_one(
    kubelet: Kubelet, root: Path, more: str, group: str, name: str, real: bool
) -> None:
    stick = Stick(root / "machine", real=real)
    if not real:
        stick.machine.dev = Path("/dev/not-mounted")  # the default deployment has sysfs only
    text = group.replace("LINK", str(stick.link))
    plugin = stick.machine.plugin(f"{{name: stick, {more}, groups: [{{{text}}}]}}")
    stick.machine.dev = root / "machine/dev"
    settings = {"pod_resources_interval": QUICK, "discovery_interval": QUICK}
    with kubelet.running(plugin, **settings) as node:
        eventually(lambda: is_there(node), "the stick")
        (device_id,) = node.kubelet.healthy(RESOURCE)
        assert node.kubelet.run(POD)
        stick.enumerate(6)
        eventually(lambda: "stale: " in only(node.host.inventory())["reason"], "the report")
        node.wait_for(RESOURCE, set(), {device_id})
        device = only(node.host.inventory())
        assert device["reason"].startswith("stale: pod default/first has")
        assert (name in device["reason"], "by-id" in name) == (True, device["stale"]["by_link"])
        node.kubelet.terminate(POD)
        node.wait_for(RESOURCE, {device_id})
        assert node.kubelet.run(NEXT)
        given = [one.host_path for one in node.allocate(device_id).nodes]
        assert not any(path.endswith(("005", "ttyUSB0")) for path in given)
        assert only(node.host.inventory())["healthy"]


def is_there(node: Node) -> bool:
    return RESOURCE in node.kubelet.registered and bool(node.kubelet.healthy(RESOURCE))


def only(inventory: Any) -> Any:
    (device,) = inventory["resources"][0]["devices"]
    return device


@needs_root
@pytest.mark.slow
def test_the_recipe_of_the_page_gives_all_nodes_that_there_can_be(root: Path) -> None:
    stick = Stick(root / "machine", real=True)
    port = stick.machine.sys / "bus/usb/devices/1-4"
    folder = stick.machine.dev / "all-usb/001"
    folder.mkdir(parents=True)
    for number in range(128):
        os.mknod(folder / f"{number + 1:03}", 0o020660, os.makedev(189, number))
    text = PAGE.read_text().partition("```yaml\n")[2].partition("```")[0]
    text = text.replace("/dev/all-usb", str(folder.parent)).replace(
        "/sys/bus/usb/devices/1-4", str(port)
    )
    (entry,) = yaml.safe_load(text)["devices"]
    plugin = stick.machine.plugin(yaml.safe_dump(entry))
    (device,) = plugin.discover()
    assert dp.Health() == device.health
    # Runtimes give what is in a directory that is a device.
    assert (dp.DeviceNode(str(folder), "/dev/bus/usb/001", "rw"),) == device.nodes
    port.unlink()
    fresh = stick.machine.plugin(yaml.safe_dump(entry))
    assert [False] == [bool(one.health) for one in fresh.discover()]
