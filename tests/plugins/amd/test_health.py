"""Each GPU has its own health, and is healthy again when what was wrong is over."""

import errno
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from typing_extensions import override

import deviceplugin as dp
from amd.machines import MI210, SMALL
from amd.tree import AmdTree, Build
from deviceplugin.checks import Node
from deviceplugin.kit.sysfs import Sysfs
from deviceplugin_amd import AmdPlugin, doctor, handover
from deviceplugin_amd.handover import Handover
from deviceplugin_testing.fixture import FailingKernel, Kubelet
from deviceplugin_testing.simulator import Pod
from discovered import reasons, unhealthy
from hardware import kernel_events

FIRST, SECOND, *_ = SMALL.addresses


def hear(plugin: AmdPlugin, tree: AmdTree, address: str, ways: str) -> None:
    """Have the driver say that a GPU has hung."""
    path = tree.cards[address].folder.relative_to(tree.sys)
    event = {"SUBSYSTEM": "drm", "DEVPATH": f"/{path}/drm/card1", "WEDGED": ways}
    plugin._errors.heard(event)


def test_uncorrectable_errors_since_the_first_look_make_one_gpu_unhealthy(tree: AmdTree) -> None:
    tree.count(FIRST, "umc", ue=3)
    plugin = tree.plugin(ignore_errors=("pcie_bif",))
    assert {} == unhealthy(plugin)
    tree.count(FIRST, "umc", ue=5, ce=70)
    tree.count(SECOND, "gfx", ue=0, ce=2)
    tree.count(SECOND, "pcie_bif", ue=1, ce=1)
    assert {FIRST: "umc: 2 uncorrectable errors"} == unhealthy(plugin)
    (family,) = plugin.metrics()
    assert {"corrected": 72, "uncorrectable": 5} == {
        sample.labels["severity"]: sample.value for sample in family.samples
    }
    for errors, expected in ((0, {}), (1, {FIRST: "umc: 1 uncorrectable errors"})):
        tree.count(FIRST, "umc", ue=errors)  # the counter has begun anew
        assert expected == unhealthy(plugin)
    hear(plugin, tree, FIRST, "none")  # the driver has recovered it
    assert {} == unhealthy(plugin)


PENDING = "1 bad memory pages are still to be taken out of use"


@pytest.mark.parametrize(
    ("flags", "threshold", "expected"),
    [
        ("RRR", "", ""),
        ("RPF", "", "1 bad memory pages could not be taken out of use"),
        ("RRP", "", PENDING),
        ("R" * 8, "10", ""),
        ("R" * 9, "10", "9 bad memory pages: the driver stops it at 10"),
        ("R" * 9 + "P", "10", f"{PENDING}; 10 bad memory pages: the driver stops it at 10"),
        # The driver computes the limit, or has none, and does not say so in sysfs.
        *(("R" * 999, threshold, "") for threshold in ("-1", "0", "many")),
    ],
)
def test_a_gpu_with_many_bad_pages_is_degraded(
    tree: AmdTree, flags: str, threshold: str, expected: str
) -> None:
    pages = [f"0x{number:08x} : 0x00001000 : {flag}" for number, flag in enumerate(flags)]
    folder = tree.cards[FIRST].folder / "ras"
    (folder / "gpu_vram_bad_pages").write_text("".join(f"{page}\n" for page in pages))
    if threshold:
        path = tree.sys / "module/amdgpu/parameters/bad_page_threshold"
        path.parent.mkdir(parents=True)
        path.write_text(f"{threshold}\n")
    (health,) = (one.health for one in tree.plugin().discover() if one.id == FIRST)
    state = "healthy" if not expected else "unhealthy" if "F" in flags else "degraded"
    assert (state, expected) == (health.state, health.reason)


def test_errors_are_remembered_over_a_restart_and_until_the_driver_is_bound_anew(
    tree: AmdTree,
) -> None:
    assert {} == unhealthy(tree.plugin())
    tree.count(FIRST, "umc", ue=1)
    assert [FIRST] == [*unhealthy(tree.plugin())]
    assert [FIRST] == [*unhealthy(tree.plugin())]
    tree.bind_anew(FIRST)
    assert {} == unhealthy(tree.plugin())


def test_a_wedged_gpu_is_unhealthy_until_the_driver_is_bound_anew(tree: AmdTree) -> None:
    plugin = tree.plugin()
    hear(plugin, tree, SECOND, "rebind")
    tree.bind_anew(SECOND)
    assert {} == unhealthy(plugin)
    hear(plugin, tree, SECOND, "rebind,bus-reset")
    expected = {SECOND: "wedged: its driver asks for rebind,bus-reset"}
    assert expected == unhealthy(plugin)
    assert expected == unhealthy(tree.plugin())  # another process
    tree.bind_anew(SECOND)
    assert {} == unhealthy(plugin)


def test_the_kernels_event_is_heard(tree: AmdTree, monkeypatch: pytest.MonkeyPatch) -> None:
    place = f"/devices/pci0000:00/{FIRST}/drm/card1"
    kernel_events.pretend(monkeypatch, "drm", DEVPATH=place, WEDGED="bus-reset")
    plugin = tree.plugin()
    list(plugin.discover())
    assert 2 <= len([*plugin.changes(kernel_events.Turns(4))])
    assert {FIRST: "wedged: its driver asks for bus-reset"} == unhealthy(plugin)


def test_a_gpu_in_reset_is_unhealthy_and_keeps_its_resource(build: Build) -> None:
    tree = build()
    plugin = tree.plugin(resource_naming_strategy="mixed")
    assert {"amd.com/spx_nps1"} == {device.resource for device in plugin.discover()}
    path = tree.cards[FIRST].folder / "current_compute_partition"
    tree.kernel.faults[path] = errno.EPERM
    devices = list(plugin.discover())
    assert {"amd.com/spx_nps1"} == {device.resource for device in devices}
    assert {FIRST: "in reset"} == {one.id: one.health.reason for one in devices if not one.health}
    del tree.kernel.faults[path]
    assert {} == unhealthy(plugin)


@pytest.mark.parametrize("text", ["Query currently inaccessible\n", "ue: 0\nce: 1\nde: 4\n", "\n"])
def test_a_register_that_says_nothing_is_no_verdict(tree: AmdTree, text: str) -> None:
    (tree.cards[FIRST].folder / "ras/umc_err_count").write_text(text)
    assert {} == unhealthy(tree.plugin())


@pytest.mark.parametrize("error", [0, errno.EIO, errno.ENODEV, errno.EACCES])
def test_a_register_that_is_odd_or_cannot_be_read_is_of_its_gpu_alone(
    tree: AmdTree, error: int
) -> None:
    path = tree.cards[FIRST].folder / "ras/gfx_err_count"
    path.write_text("ue: many\n")
    if error:
        tree.kernel.faults[path] = error
    told = os.strerror(error) if error else "'ue: many' is not a number of errors"
    expected = {} if error == errno.EACCES else {FIRST: f"{path}: {told}"}
    assert expected == unhealthy(tree.plugin())
    assert {} == unhealthy(tree.plugin(ignore_errors=("gfx",)))


def test_a_gpu_without_a_node_of_kfd_is_told(build: Build) -> None:
    tree = build(MI210, links=False)
    first = tree.node("0000:63:00.0")
    path = tree.folder(first) / "properties"
    path.write_text(path.read_text().replace("drm_render_minor 128", "drm_render_minor 150"))
    assert {"0000:63:00.0": "KFD has no node for it"} == unhealthy(tree.plugin())
    (tree.kfd / "topology").rename(tree.kfd / "gone")
    assert {"the kernel has no KFD"} == {*unhealthy(tree.plugin()).values()}
    (tree.dev / "dri/renderD128").unlink()
    assert f"{tree.dev}/dri/renderD128 does not exist" in unhealthy(tree.plugin())["0000:63:00.0"]
    (tree.dev / "kfd").unlink()
    found = unhealthy(tree.plugin())
    assert [True] * 8 == [f"{tree.dev}/kfd does not exist" in one for one in found.values()]


def test_a_gpu_without_drm_devices_is_unhealthy(tree: AmdTree) -> None:
    plugin = tree.plugin()
    (tree.dev / "dri/card1").unlink()  # only the render node is needed
    assert {} == unhealthy(plugin)
    nodes = [node.container_path for node in next(iter(plugin.discover())).nodes]
    assert ["/dev/kfd", "/dev/dri/renderD128"] == nodes
    for path in (tree.cards[FIRST].folder / "drm").iterdir():
        path.rename(tree.sys / path.name)
    assert "it has no render node" in unhealthy(plugin)[FIRST]
    assert {"/dev/kfd"} == {node.container_path for node in next(iter(plugin.discover())).nodes}


def test_what_may_be_over_at_the_next_look_must_last(tree: AmdTree) -> None:
    plugin = tree.plugin(error_patience=timedelta(hours=1))
    assert {} == unhealthy(plugin)
    tree.kernel.faults[tree.cards[FIRST].folder / "ras/gfx_err_count"] = errno.EIO
    tree.count(SECOND, "umc", ue=1)
    assert [SECOND] == [*unhealthy(plugin)]


def test_a_gpu_that_goes_and_comes_back_is_healthy(tree: AmdTree, kubelet: Kubelet) -> None:
    plugin = tree.plugin()
    everything = {*SMALL.addresses}
    with kubelet.running(plugin, discovery_interval=timedelta(milliseconds=50)) as node:
        node.wait_for("amd.com/gpu", everything)
        tree.vanish(FIRST)
        node.wait_for("amd.com/gpu", everything - {FIRST}, unhealthy={FIRST})
        tree.plug_in(FIRST)
        tree.topology()
        node.wait_for("amd.com/gpu", everything)


def test_changes_without_an_event_are_noticed(
    tree: AmdTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel_events.pretend(monkeypatch)
    plugin = tree.plugin()
    list(plugin.discover())
    assert [None] == [*plugin.changes(kernel_events.Turns(4))]  # it begins to listen
    tree.topology()
    assert 2 <= len([*plugin.changes(kernel_events.Turns(4))])


def test_an_odd_state_file_is_set_aside(
    tree: AmdTree, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("state") / "health.json"
    path.write_text('{"version": 1, "gpus": {"0000:05:00.0": {"identity": "x"}}}')
    assert 4 == len(reasons(tree.plugin(state_file=path)))
    assert path.with_name("health.json.unreadable").exists()


def test_a_gpu_that_is_pulled_between_two_reads_costs_no_other(build: Build) -> None:
    tree = build()
    pulled = tree.cards[SMALL.addresses[0]].folder / "drm"

    class Pulling(FailingKernel):
        @override
        def names(self, path: str) -> list[str]:
            found = super().names(path)
            if Path(path) == pulled:
                self.faults[pulled] = errno.ENOENT
            return found

    tree.kernel = Pulling()
    tree.sysfs = Sysfs(tree.sys, tree.kernel)
    assert {*SMALL.addresses} == {device.id for device in tree.plugin().discover()}


GIB = 1 << 30
LEFT = "still in use by process 4711 (1.5 GiB), though no pod has it"


def by_id(plugin: AmdPlugin) -> dict[str, dp.Device]:
    return {device.id: device for device in plugin.discover()}


class Clock:
    """Passes when somebody pauses, and does then what a test wants."""

    def __init__(self) -> None:
        self.now = 0.0
        self.meanwhile: Callable[[], None] = lambda: None

    def __call__(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.now += seconds
        self.meanwhile()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def plugin(tree: AmdTree, clock: Clock) -> AmdPlugin:
    return tree.plugin(Handover(tree.sysfs, clock, clock.pause))


def test_what_a_pod_left_behind_makes_its_gpu_unhealthy_until_it_is_gone(
    tree: AmdTree, plugin: AmdPlugin
) -> None:
    devices = by_id(plugin)
    plugin.allocate([devices[FIRST]])
    tree.use(tree.node(FIRST), 4711, 3 * GIB // 2)
    assert {} == unhealthy(plugin)  # while it is the pod's own
    plugin.released([devices[FIRST]])
    assert {FIRST: LEFT} == unhealthy(plugin)
    assert {FIRST: LEFT} == unhealthy(plugin)
    tree.end(4711)
    assert {} == unhealthy(plugin)
    plugin.allocate([devices[FIRST]])


def test_a_gpu_that_is_still_in_use_is_not_allocated(
    tree: AmdTree, plugin: AmdPlugin, clock: Clock
) -> None:
    devices = by_id(plugin)
    tree.use(tree.node(FIRST), 4711, 3 * GIB // 2)
    assert {} == unhealthy(plugin)  # who holds it is not known
    with pytest.raises(dp.AllocationError) as refused:
        plugin.allocate([devices[FIRST], devices[SECOND]])
    assert f"{FIRST}: {LEFT}" == str(refused.value)
    assert 5 <= clock.now < 6
    assert {FIRST: LEFT} == unhealthy(plugin)
    plugin.allocate([devices[SECOND]])
    clock.now, clock.meanwhile = 0, lambda: tree.end(4711)
    plugin.allocate([devices[FIRST]])  # waits for a process that is ending
    assert 0 < clock.now < 1


@pytest.mark.parametrize("is_wanted", [True, False])
def test_without_privilege_or_where_not_wanted_nobody_looks_who_uses_a_gpu(
    tree: AmdTree, is_wanted: bool
) -> None:
    plugin = tree.plugin(clean_handover=is_wanted)
    if is_wanted:
        tree.refuse()
    devices = by_id(plugin)
    tree.use(tree.node(FIRST), 4711, GIB)
    plugin.allocate([devices[FIRST]])
    plugin.released([devices[FIRST]])
    assert {} == unhealthy(plugin)


def test_a_queue_is_use_and_an_open_file_is_not(tree: AmdTree, plugin: AmdPlugin) -> None:
    devices = by_id(plugin)
    tree.use(tree.node(FIRST), 12, 0)
    plugin.allocate([devices[FIRST]])
    tree.use(tree.node(SECOND), 13, 0, queue=True)
    plugin.released([devices[SECOND]])
    assert {SECOND: "still in use by process 13 (a queue), though no pod has it"} == (
        unhealthy(plugin)
    )


def test_a_share_is_looked_at_when_nobody_has_another_one(tree: AmdTree, clock: Clock) -> None:
    plugin = tree.plugin(Handover(tree.sysfs, clock, clock.pause), shares=2)
    devices = by_id(plugin)
    one, two = devices[f"{FIRST}::0"], devices[f"{FIRST}::1"]
    plugin.allocate([one])
    tree.use(tree.node(FIRST), 4711, 3 * GIB // 2)
    plugin.allocate([two])
    plugin.released([one])
    assert {} == unhealthy(plugin)
    plugin.released([two])
    assert {f"{FIRST}::0": LEFT, f"{FIRST}::1": LEFT} == unhealthy(plugin)


def test_a_discovery_is_asked_for_when_a_gpu_becomes_clean_or_not(
    tree: AmdTree, plugin: AmdPlugin
) -> None:
    def due_before_and_after_a_look() -> list[object]:
        before = plugin._is_due()
        by_id(plugin)
        return [before, plugin._is_due(), plugin._until_due()]

    devices = by_id(plugin)
    assert [False, False, 5] == due_before_and_after_a_look()
    tree.use(tree.node(FIRST), 4711, GIB)
    plugin.released([devices[FIRST]])
    assert [True, False, 0.5] == due_before_and_after_a_look()
    tree.end(4711)
    assert [True, False, 5] == due_before_and_after_a_look()
    tree.use(tree.node(FIRST), 4711, GIB)
    plugin.released([devices[FIRST]])
    tree.end(4711)
    tree.divide(FIRST, "DPX")  # what it was is forgotten
    assert [True, False, 5] == due_before_and_after_a_look()


def test_after_a_pod_the_kubelet_sees_its_gpu_unhealthy_until_it_is_clean(
    tree: AmdTree, kubelet: Kubelet
) -> None:
    plugin = tree.plugin(include=(FIRST,))
    pod = Pod.of("training", main={"amd.com/gpu": 1})
    quick = timedelta(milliseconds=50)
    with kubelet.running(plugin, pod_resources_interval=quick, discovery_interval=quick) as node:
        node.wait_for("amd.com/gpu", {FIRST})
        node.kubelet.run(pod)
        tree.use(tree.node(FIRST), 4711, GIB)
        node.kubelet.terminate(pod)
        node.wait_for("amd.com/gpu", set(), unhealthy={FIRST})
        tree.end(4711)
        node.wait_for("amd.com/gpu", {FIRST})


def test_the_page_says_how_long_an_allocation_waits() -> None:
    page = (Path(__file__).parents[3] / "plugins/amd/README.md").read_text()
    assert f"waits for up to {handover._LIMIT:g} s" in page


def bad(tree: AmdTree) -> list[tuple[str, str]]:
    found = doctor.look(Node.at_root(tree.sys.parent))
    return [(one.verdict.value, one.found) for one in found if one.verdict != "ok"]


def test_the_doctor_says_what_is_missing(
    tree: AmdTree, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "4 on the PCI bus" == next(iter(doctor.look(Node.at_root(tree.sys.parent)))).found
    assert [] == bad(tree)
    skipped = build()
    (skipped.cards[FIRST].folder / "current_compute_partition").write_text("CPX\n")
    assert [("warning", "it is cpx_nps1, and its KFD nodes are 1 of another style")] == bad(skipped)
    (tree.dev / "kfd").unlink()
    assert [("failure", "no device file of KFD; looked for /dev/kfd")] == bad(tree)
    (tree.sys / "module/amdgpu").rename(tree.sys / "module/radeon")
    for card in tree.cards.values():
        (card.folder / "driver").unlink()
    ((verdict, found),) = bad(tree)
    assert "failure" == verdict
    assert "loaded instead: radeon; cards: 0000:05:00.0 (no driver)" in found
    hidden = build()
    hidden.refuse()
    monkeypatch.setattr(doctor, "Sysfs", lambda _root: hidden.sysfs)
    ((verdict, found),) = bad(hidden)
    assert "warning" == verdict
    assert found.endswith("/properties: Operation not permitted")
