"""Each GPU has its own health, and is healthy again when what was wrong is over."""

import errno
from datetime import timedelta
from pathlib import Path

import pytest

from deviceplugin_intelgpu import IntelGpuPlugin
from deviceplugin_testing.fixture import Kubelet
from discovered import degraded, found, unhealthy
from hardware import kernel_events
from intelgpu.machines import SMALL
from intelgpu.tree import Build, IntelTree

INTEGRATED, FLEX, ARC, OTHER_ARC = (card.address for card in SMALL.cards)


@pytest.fixture
def tree(build: Build) -> IntelTree:
    return build()


@pytest.fixture
def plugin(tree: IntelTree) -> IntelGpuPlugin:
    return tree.plugin()


def hear(plugin: IntelGpuPlugin, address: str, **said: str) -> None:
    """Have the driver of a GPU send an event."""
    place = f"/devices/pci{address[:4]}:00/{address}/drm/card1"
    plugin._memory.heard({"SUBSYSTEM": "drm", "DEVPATH": place, **said})


def test_a_wedged_gpu_is_unhealthy_until_the_driver_is_bound_anew(
    tree: IntelTree, plugin: IntelGpuPlugin
) -> None:
    hear(plugin, ARC, WEDGED="rebind,bus-reset")
    expected = {ARC: "wedged: its driver asks for rebind,bus-reset"}
    assert expected == unhealthy(plugin) == unhealthy(plugin)
    assert expected == unhealthy(tree.plugin())  # another process
    tree.bind_anew(ARC)
    assert {} == unhealthy(plugin)
    hear(plugin, ARC, WEDGED="bus-reset")
    assert [ARC] == [*unhealthy(plugin)]
    hear(plugin, ARC, WEDGED="none")  # its driver has recovered it
    assert {} == unhealthy(plugin)


def test_a_reset_that_i915_does_not_end_is_a_hang_but_not_at_once(tree: IntelTree) -> None:
    hasty = tree.plugin(state_file=None)
    hear(hasty, FLEX, ERROR="1")
    hear(hasty, FLEX, RESET="1")
    assert {FLEX: "its driver has begun a reset and not ended it"} == unhealthy(hasty)
    hear(hasty, FLEX, ERROR="0")
    assert {} == unhealthy(hasty)
    plugin = tree.plugin(error_patience=timedelta(hours=1))
    assert {} == unhealthy(plugin)
    hear(plugin, FLEX, ERROR="1")
    assert {} == unhealthy(plugin)
    hear(plugin, FLEX, ERROR="1", WEDGED="rebind")  # it has failed
    assert {FLEX: "wedged: its driver asks for rebind"} == unhealthy(plugin)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Survivability mode type: Runtime\n", "in survivability mode (Runtime)"),
        ("Survivability mode type: Boot\nCapability: 0x1 - 0x2\n", "in survivability mode (Boot)"),
        ("", "in survivability mode"),
    ],
)
def test_a_gpu_in_survivability_mode_is_unhealthy(
    tree: IntelTree, plugin: IntelGpuPlugin, text: str, expected: str
) -> None:
    path = tree.folder(ARC) / "survivability_mode"
    path.write_text(text)
    assert {ARC: expected} == unhealthy(plugin)
    tree.kernel.faults[path] = errno.EACCES  # it is root's
    assert {ARC: "in survivability mode"} == unhealthy(plugin)
    tree._unnumber(ARC)  # as a card is that came up in it
    skipped = tree.plugin()
    assert ARC not in found(skipped)
    reason = "it is in survivability mode: its firmware has to be repaired"
    assert [f"{ARC}: {reason}"] == skipped.shortfalls


def test_the_health_that_firmware_reports_counts(tree: IntelTree, plugin: IntelGpuPlugin) -> None:
    for text, expected in (
        ("ok\n", {}),
        ("warning\n", {}),
        ("critical\n", {ARC: "its firmware reports critical health"}),
        ("fine\n", {ARC: "gpu_health: 'fine' is unknown"}),
    ):
        (tree.folder(ARC) / "gpu_health").write_text(text)
        assert expected == unhealthy(plugin)


def test_a_warning_of_the_firmware_must_last_and_be_over_for_as_long(tree: IntelTree) -> None:
    path = tree.folder(ARC) / "gpu_health"
    patient = tree.plugin(error_patience=timedelta(hours=1), state_file=None)
    hasty = tree.plugin(state_file=None)
    for text, expected in (("warning\n", "dd"), ("ok\n", "hd"), ("warning\n", "dd")):
        path.write_text(text)
        assert expected == "".join(found(one)[ARC].health.state[0] for one in (hasty, patient))
    assert {ARC: "its firmware reports a warning"} == degraded(patient)


@pytest.mark.parametrize("error", [errno.EIO, errno.ENODEV, errno.EACCES])
def test_a_register_that_cannot_be_read_is_of_its_gpu_alone_and_must_last(
    tree: IntelTree, error: int
) -> None:
    patient = tree.plugin(error_patience=timedelta(hours=1), state_file=None)
    assert {} == unhealthy(patient)
    path = tree.folder(ARC) / "gpu_health"
    path.write_text("ok\n")
    tree.kernel.faults[path] = error
    assert {} == unhealthy(patient)
    assert [ARC] == [*unhealthy(tree.plugin(state_file=None))]


def test_the_kernels_event_is_heard(
    plugin: IntelGpuPlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = f"/devices/pci0000:00/{ARC}/drm/card1"
    kernel_events.pretend(monkeypatch, "drm", DEVPATH=place, WEDGED="bus-reset")
    list(plugin.discover())
    assert 2 <= len([*plugin.changes(kernel_events.Turns(4))])
    assert {ARC: "wedged: its driver asks for bus-reset"} == unhealthy(plugin)


def test_an_odd_state_file_is_set_aside(tree: IntelTree, tmp_path: Path) -> None:
    path = tmp_path / "odd.json"
    path.write_text('{"version": 1, "cards": {}, "hangs": {"0000:5e:00.0": "rebind"}}')
    assert {} == unhealthy(tree.plugin(state_file=path))
    assert path.with_name("odd.json.unreadable").exists()


def test_a_gpu_that_goes_and_comes_back_is_healthy(tree: IntelTree, kubelet: Kubelet) -> None:
    plugin = tree.plugin()
    xe = "gpu.intel.com/xe"
    with kubelet.running(plugin, discovery_interval=timedelta(milliseconds=50)) as node:
        node.wait_for(xe, {ARC, OTHER_ARC})
        node.wait_for("gpu.intel.com/i915", {INTEGRATED, FLEX})
        tree.vanish(ARC)
        node.wait_for(xe, {OTHER_ARC}, unhealthy={ARC})
        tree.plug_in(ARC)
        node.wait_for(xe, {ARC, OTHER_ARC})
        tree.divide(ARC, 2)
        virtual = {ARC[:-1] + "1", ARC[:-1] + "2"}
        node.wait_for(xe, {OTHER_ARC, *virtual}, unhealthy={ARC})
