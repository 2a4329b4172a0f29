"""No container without its device node: what a discovery saw is looked at before it is given."""

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from threading import Event

import grpc
import pytest
from typing_extensions import override

import deviceplugin as dp
from deviceplugin._attribution.hardware import HeldHardware
from deviceplugin_testing.fixture import Kubelet
from patience import PATIENCE, eventually
from scripted_plugin import RESOURCE, ScriptedPlugin

Make = Callable[[Path], object]
GONE = (
    'FAILED_PRECONDITION: invalid {} request for "example.com/thing": device node {} of a is gone'
)


def node(path: Path) -> None:
    os.mknod(path, 0o020600, os.makedev(1, 3))


def link(path: Path) -> None:
    """Make a link to a directory, which counts as a node does, and needs no root."""
    path.with_name("target").mkdir(exist_ok=True)
    path.symlink_to("target")


def unlink_target(path: Path) -> None:
    path.with_name("target").rmdir()


NEEDS_ROOT = pytest.mark.skipif(os.getuid() != 0, reason="making device nodes needs root")
WAYS = [
    pytest.param(node, Path.unlink, id="node", marks=NEEDS_ROOT),
    pytest.param(Path.mkdir, Path.rmdir, id="directory"),
    pytest.param(link, Path.unlink, id="link"),
    pytest.param(link, unlink_target, id="what a link leads to"),
]


def a(path: Path, *more: Path) -> dp.Device:
    return dp.Device("a", nodes=[dp.DeviceNode(str(one)) for one in (path, *more)])


def refusal(call: Callable[..., object], *ids: str) -> str:
    try:
        call(*ids)
    except grpc.RpcError as error:
        return f"{error.code().name}: {error.details()}"
    return ""


@pytest.mark.parametrize(("make", "remove"), WAYS)
def test_a_node_that_is_gone_is_refused_until_it_is_back(
    make: Make, remove: Make, kubelet: Kubelet, tmp_path: Path
) -> None:
    path = tmp_path / "a"
    make(path)
    plugin = ScriptedPlugin(a(path, tmp_path / "made-later"))
    with kubelet.running(plugin) as running:
        running.wait_for(RESOURCE, {"a"})
        assert "" == refusal(running.allocate, "a")
        remove(path)
        for _ in range(2):  # the plugin goes on listing it at later discoveries
            assert GONE.format("allocation", path) == refusal(running.allocate, "a")
            plugin.set(a(path, tmp_path / "made-later"), "another")
            running.wait_for(RESOURCE, {"a", "another"})
        path.unlink(missing_ok=True)
        make(path)
        assert "" == refusal(running.allocate, "a", "another")


class Slow(ScriptedPlugin):
    """Discovers nothing while it is not ``free``."""

    def __init__(self, *devices: dp.Device) -> None:
        self.free, self.waits = Event(), Event()
        self.free.set()
        super().__init__(*devices)

    @override
    def discover(self) -> Iterable[dp.Device]:
        if not self.free.is_set():
            self.waits.set()
            self.free.wait(PATIENCE)
        return super().discover()


@NEEDS_ROOT
@pytest.mark.parametrize("way", ["number", "number behind a link", "link", "node for a link"])
def test_a_path_that_another_device_has_is_refused_until_the_next_discovery(
    kubelet: Kubelet, tmp_path: Path, way: str
) -> None:
    path = target = tmp_path / "a"
    if way != "number":
        target = tmp_path / "b"
        path.symlink_to(target)
    node(target)
    replaced = target if way.startswith("number") else path
    plugin = Slow(a(path))
    with kubelet.running(plugin) as running:
        running.wait_for(RESOURCE, {"a"})
        assert "" == refusal(running.allocate, "a")
        plugin.free.clear()
        assert plugin.waits.wait(PATIENCE)
        replaced.unlink()
        if way == "link":
            path.symlink_to("c")
            replaced = tmp_path / "c"
        os.mknod(replaced, 0o020600, os.makedev(1, 5))
        found = GONE.format("allocation", path).replace("gone", "that of another device now")
        assert found == refusal(running.allocate, "a")
        plugin.free.set()
        eventually(lambda: refusal(running.allocate, "a") == "")


@NEEDS_ROOT
def test_a_node_that_another_plugin_has_seen_as_it_is_is_not_refused(tmp_path: Path) -> None:
    hardware, path = HeldHardware(), tmp_path / "a"
    for plugin, minor in (("late", 3), ("P", 5)):
        path.unlink(missing_ok=True)
        os.mknod(path, 0o020600, os.makedev(1, minor))
        hardware.identify(plugin, {RESOURCE: {"a": a(path)}})
    hardware.check_nodes([a(path)])
    path.unlink()
    os.mknod(path, 0o020600, os.makedev(1, 7))
    hardware.check_nodes([a(path)], may_differ=True)
    with pytest.raises(dp.AllocationError, match="is that of another device now"):
        hardware.check_nodes([a(path)])


class Making(ScriptedPlugin):
    """Makes its node before a container starts, if told to."""

    makes = True

    @override
    def pre_start(self, devices: Sequence[dp.Device]) -> None:
        if self.makes:
            Path(devices[0].nodes[0].host_path).mkdir()


def test_a_node_that_pre_start_makes_is_looked_at_after_that(
    kubelet: Kubelet, tmp_path: Path
) -> None:
    path = tmp_path / "a"
    path.mkdir()
    plugin = Making(a(path))
    with kubelet.running(plugin) as running:
        running.wait_for(RESOURCE, {"a"})
        path.rmdir()
        assert "" == refusal(running.allocate, "a")
        assert "" == refusal(running.pre_start, "a")
        path.rmdir()
        plugin.makes = False
        assert GONE.format("pre-start", path) == refusal(running.pre_start, "a")


@pytest.fixture
def hardware(tmp_path: Path) -> HeldHardware:
    """The node of ``a`` has been seen."""
    found = HeldHardware()
    (tmp_path / "a").mkdir()
    found.identify("P", {RESOURCE: {"a": a(tmp_path / "a")}})
    return found


def test_a_refusal_discovers_again_at_once_and_a_node_left_out_may_be_gone(
    hardware: HeldHardware, tmp_path: Path
) -> None:
    calls = list[str]()
    hardware.changes.add(lambda: calls.append("discover"))
    hardware.check_nodes([a(tmp_path / "a")] * 2)
    (tmp_path / "a").rmdir()
    hardware.check_nodes([a(tmp_path / "a")], dp.Allocation())
    assert [] == calls
    with pytest.raises(dp.AllocationError) as caught:
        hardware.check_nodes([a(tmp_path / "a")])
    assert (("a",), ["discover"]) == (caught.value.device_ids, calls)


def test_what_is_not_in_memory_is_never_looked_at(root: Path) -> None:
    """A file system that is on a disk or on another machine can hang."""
    hardware = HeldHardware()
    (root / "a").mkdir()
    hardware.identify("P", {RESOURCE: {"a": a(root / "a")}})
    (root / "a").rmdir()
    hardware.check_nodes([a(root / "a")])


def test_what_cannot_be_looked_at_is_not_refused(
    hardware: HeldHardware, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "lstat", refuse)
    hardware.check_nodes([a(tmp_path / "a")])
