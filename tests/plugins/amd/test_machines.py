"""The plugin finds what the records of real machines say."""

import errno
from collections import Counter
from datetime import timedelta

import pytest

import deviceplugin as dp
from amd.machines import MI210, MI300X, MI308, SMALL, VEGA, Machine
from amd.tree import AmdTree, Build
from deviceplugin_amd import AmdPlugin
from deviceplugin_amd.snapshot import Reader
from deviceplugin_testing.fixture import Kubelet
from discovered import reasons, unhealthy


@pytest.mark.parametrize(
    ("machine", "single", "mixed", "numa"),
    [
        (VEGA, {"amd.com/gpu": 1}, {"amd.com/gpu": 1}, {None: 1}),
        (MI210, {"amd.com/gpu": 8}, {"amd.com/gpu": 8}, {0: 4, 1: 4}),
        (MI308, {"amd.com/gpu": 32}, {"amd.com/cpx_nps1": 32}, {0: 16, 1: 16}),
        (MI300X, {"amd.com/gpu": 63}, {"amd.com/cpx_nps4": 63}, {0: 32, 1: 31}),
    ],
    ids=["vega", "mi210", "mi308", "mi300x"],
)
def test_a_recorded_machine_has_its_devices_by_either_naming(
    build: Build,
    machine: Machine,
    single: dict[str, int],
    mixed: dict[str, int],
    numa: dict[int | None, int],
) -> None:
    tree = build(machine, links=False)
    devices = list(tree.plugin().discover())
    assert single == Counter(device.resource for device in devices)
    assert numa == Counter(
        device.topology.numa_nodes[0] if device.topology else None for device in devices
    )
    assert all(device.health for device in devices)
    named = tree.plugin(resource_naming_strategy="mixed").discover()
    assert mixed == Counter(device.resource for device in named)


@pytest.mark.parametrize(("xcp", "high"), [("amdgpu_xcp_{}", False), ("amdgpu_xcp.{}", True)])
def test_partitions_are_found_whatever_the_kernel_calls_them_and_numbers_them(
    build: Build, xcp: str, high: bool
) -> None:
    tree = build(MI308, xcp=xcp, high=high, links=False)
    devices = {device.id: device for device in tree.plugin().discover()}
    expected = [f"{one}-cpx_nps1-{part}" for one in sorted(MI308.addresses) for part in range(4)]
    assert expected == list(devices)
    nodes = {one: [node.container_path for node in device.nodes] for one, device in devices.items()}
    assert ["/dev/kfd", "/dev/dri/card1", "/dev/dri/renderD128"] == nodes["0000:0a:00.0-cpx_nps1-0"]
    assert ["/dev/kfd", "/dev/dri/card12", "/dev/dri/renderD139"] == nodes[
        "0000:80:00.0-cpx_nps1-3"
    ]


def test_without_a_unique_id_a_partition_is_found_by_its_pci_address(build: Build) -> None:
    tree = build(MI308, links=False)
    expected = [*reasons(tree.plugin())]
    for node in tree.nodes():
        path = tree.folder(node) / "properties"
        path.write_text(path.read_text().replace("unique_id", "another_id"))
    assert expected == [*reasons(tree.plugin())]
    assert 32 == len(expected)


def test_a_container_has_kfd_once_and_the_nodes_of_each_gpu(build: Build) -> None:
    tree = build(MI210, links=False)
    plugin = tree.plugin()
    devices = list(plugin.discover())
    allocation = plugin.allocate(devices[:2])
    assert [
        ("/dev/kfd", "rw"),
        ("/dev/dri/card3", "rw"),
        ("/dev/dri/renderD130", "rw"),
        ("/dev/dri/card4", "rw"),
        ("/dev/dri/renderD131", "rw"),
    ] == [(node.container_path, node.permissions) for node in allocation.nodes]
    assert ({}, ()) == (allocation.envs, allocation.mounts)
    assert f"{tree.dev}/kfd" == allocation.nodes[0].host_path


def test_neither_a_second_node_of_a_gpu_nor_the_bmcs_screen_means_anything(build: Build) -> None:
    tree = build(VEGA)
    text = (tree.folder(tree.node(VEGA.addresses[0])) / "properties").read_text()
    copy = tree.kfd / "topology/nodes/2"
    copy.mkdir()
    (copy / "properties").write_text(text.replace("minor 128", "minor 129"))
    (device,) = tree.plugin().discover()
    assert ("0000:19:00.0", True) == (device.id, bool(device.health))
    assert (tree.dev / "dri/card0").exists()
    assert "/dev/dri/card0" not in {node.container_path for node in device.nodes}


def test_a_gpu_without_a_driver_is_missed_among_others(build: Build) -> None:
    """Such as one whose probe failed, or that its driver has given up since."""
    tree = build(MI210, links=False)
    plugin = tree.plugin()
    assert 8 == len([*plugin.discover()])
    assert [] == plugin.shortfalls
    gone, other, virtual, *_ = MI210.addresses
    for address in (gone, other, virtual):
        (tree.cards[address].folder / "driver").unlink()
    (tree.cards[other].folder / "driver").symlink_to("../../../bus/pci/drivers/vfio-pci")
    (tree.cards[virtual].folder / "physfn").symlink_to(tree.cards[gone].folder)
    for one in (plugin, tree.plugin()):
        assert 5 == len([*one.discover()])
        assert [f"{gone}: has no driver: dmesg | grep -i amdgpu"] == one.shortfalls
    excluding = tree.plugin(exclude=(gone,))
    assert 5 == len([*excluding.discover()])
    assert [] == excluding.shortfalls, "nobody wants it"
    for card in tree.cards.values():
        (card.folder / "driver").unlink(missing_ok=True)
    assert [] == [*plugin.discover()], "it was unloaded, and takes its GPUs along"


FIRST, *_ = SMALL.addresses
QUICK = timedelta(milliseconds=50)


def skipped(plugin: AmdPlugin) -> dict[str, str]:
    return plugin._reader.read().skipped


def test_dividing_a_gpu_replaces_its_devices_and_no_other(tree: AmdTree, kubelet: Kubelet) -> None:
    plugin = tree.plugin(resource_naming_strategy="mixed")
    others = {*SMALL.addresses} - {FIRST}
    with kubelet.running(plugin, discovery_interval=QUICK) as node:
        node.wait_for("amd.com/spx_nps1", {*SMALL.addresses})
        tree.divide(FIRST, "QPX", "NPS4")
        parts = {f"{FIRST}-qpx_nps4-{number}" for number in range(4)}
        node.wait_for("amd.com/qpx_nps4", parts)
        node.wait_for("amd.com/spx_nps1", others, unhealthy={FIRST})
        tree.divide(FIRST, "DPX", "NPS4")
        node.wait_for("amd.com/dpx_nps4", {f"{FIRST}-dpx_nps4-{number}" for number in range(2)})
        tree.divide(FIRST, "SPX")
        node.wait_for("amd.com/spx_nps1", {*SMALL.addresses})


def test_under_one_name_there_is_one_kind_and_the_log_says_of_the_others(tree: AmdTree) -> None:
    tree.divide(FIRST, "QPX")
    plugin = tree.plugin()
    assert [*SMALL.addresses[1:]] == [*reasons(plugin)]
    reason = "it is qpx_nps1, most are whole, and resource-naming-strategy is single: use mixed"
    assert [f"{FIRST}: {reason}"] == plugin.shortfalls
    for address in SMALL.addresses[1:]:
        tree.divide(address, "QPX")
    devices = list(plugin.discover())
    assert {"amd.com/gpu"} == {device.resource for device in devices}
    assert [f"{one}-qpx_nps1-{part}" for one in SMALL.addresses for part in range(4)] == [
        device.id for device in devices
    ]


def test_whole_gpus_need_no_privilege(tree: AmdTree) -> None:
    tree.refuse()
    assert dict.fromkeys(SMALL.addresses, "") == reasons(tree.plugin())


def test_partitions_that_kfd_hides_are_not_offered_and_the_reason_is(tree: AmdTree) -> None:
    tree.divide(FIRST, "QPX", "NPS4")
    tree.refuse()
    plugin = tree.plugin(resource_naming_strategy="mixed")
    assert {*SMALL.addresses[1:]} == {*reasons(plugin)}
    (reason,) = skipped(plugin).values()
    assert reason.startswith("its partitions (qpx_nps4) are not known: ")
    assert reason.endswith("/properties: Operation not permitted")


def test_partitions_that_can_no_longer_be_read_are_unhealthy_and_nothing_else_is(
    tree: AmdTree,
) -> None:
    tree.divide(FIRST, "QPX")
    plugin = tree.plugin(resource_naming_strategy="mixed")
    assert {} == unhealthy(plugin)
    parts = [f"{FIRST}-qpx_nps1-{part}" for part in range(4)]
    for part in range(4):
        tree.kernel.faults[tree.folder(tree.node(FIRST, part)) / "properties"] = errno.EIO
    found = unhealthy(plugin)
    assert parts == [*found]
    assert all("Input/output error" in reason for reason in found.values())
    tree.kernel.faults.clear()
    (tree.folder(tree.node(FIRST, 2)) / "properties").write_text("simd_count 0\n")
    expected = "it is qpx_nps1, and its KFD nodes are 3 of another style"
    assert dict.fromkeys(parts, expected) == unhealthy(plugin)
    tree.topology()
    assert {} == unhealthy(plugin)


@pytest.mark.parametrize(
    ("style", "expected"),
    [
        ("SPX", "it is spx_nps1, and its KFD nodes are 4 of another style"),
        ("DPX", "it is dpx_nps1, and its KFD nodes are 4 of another style"),
        ("CPX", "it is cpx_nps1, and its KFD nodes are 4 of another style"),
        ("UNKNOWN", "current_compute_partition: 'unknown' is not a mode"),
    ],
)
def test_a_gpu_that_is_being_divided_is_not_offered_as_what_it_is_not(
    tree: AmdTree, style: str, expected: str
) -> None:
    tree.divide(FIRST, "QPX")
    (tree.cards[FIRST].folder / "current_compute_partition").write_text(f"{style}\n")
    plugin = tree.plugin()
    assert [*SMALL.addresses[1:]] == [*reasons(plugin)]
    (reason,) = skipped(plugin).values()
    assert reason.endswith(expected)
    tree.divide(FIRST, "DPX")
    path = tree.folder(tree.node(FIRST, 1)) / "properties"
    path.write_text(path.read_text().replace("location_id 1281", "location_id 1282"))
    plugin = tree.plugin(resource_naming_strategy="mixed")
    assert [*SMALL.addresses[1:]] == [*reasons(plugin)]
    assert {FIRST: "it is dpx_nps1, and its KFD nodes are 2 of another style"} == skipped(plugin)


def test_nodes_that_kfd_is_writing_are_waited_for(tree: AmdTree) -> None:
    nodes, away = tree.kfd / "topology/nodes", tree.kfd / "away"
    names = [path.name for path in nodes.iterdir()]
    nodes.rename(away)
    nodes.mkdir()

    def write_another(_seconds: float) -> None:
        if names:
            name = names.pop()
            (away / name).rename(nodes / name)

    reader = Reader(tree.sysfs, tree.dev, write_another)
    assert [True] * 4 == [unit.node is not None for unit in reader.read().units]
    assert [] == names


def test_a_gpu_of_which_it_was_never_known_how_it_is_divided_waits(tree: AmdTree) -> None:
    path = tree.cards[FIRST].folder / "current_compute_partition"
    tree.kernel.faults[path] = errno.EPERM
    plugin = tree.plugin()
    assert [*SMALL.addresses[1:]] == [*reasons(plugin)]
    assert {FIRST: f"{path}: Operation not permitted"} == skipped(plugin)
    tree.kernel.faults.clear()
    assert [*SMALL.addresses] == [*reasons(plugin)]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("location_id 1281", "location_id 1282", "partition 2 is there twice"),
        ("drm_render_minor 129", "drm_render_minor 999", "no DRM device has renderD999"),
    ],
)
def test_partitions_that_cannot_be_told_apart_are_not_offered(
    tree: AmdTree, old: str, new: str, expected: str
) -> None:
    tree.divide(FIRST, "QPX")
    path = tree.folder(tree.node(FIRST, 1)) / "properties"
    path.write_text(path.read_text().replace(old, new))
    plugin = tree.plugin(resource_naming_strategy="mixed")
    found = reasons(plugin)
    assert f"{FIRST}-qpx_nps1-1" not in found
    assert f"{FIRST}-qpx_nps1-0" in found
    assert {FIRST: expected} == skipped(plugin)


@pytest.mark.parametrize(
    "text", ["simd_count\n", "simd_count many\n", "simd_count 400\n", "\xff\x00"]
)
def test_an_odd_node_of_kfd_costs_nothing_else(build: Build, text: str) -> None:
    tree = build(MI210, links=False)
    plugin = tree.plugin()
    expected = reasons(plugin)
    path = tree.folder(tree.node(MI210.addresses[0])) / "properties"
    path.write_text(text, encoding="latin-1")
    assert expected == reasons(plugin)
    assert [str(path)] == [problem.partition(": ")[0] for problem in plugin.shortfalls]


def test_a_topology_that_cannot_be_listed_is_told(tree: AmdTree) -> None:
    tree.kernel.faults[tree.kfd / "topology/nodes"] = errno.EIO
    plugin = tree.plugin()
    assert {} == unhealthy(plugin)
    assert [f"{tree.kfd}/topology/nodes: Input/output error"] == (
        plugin._reader.read().topology.problems
    )


def test_a_topology_that_changes_while_it_is_read_is_read_again(
    tree: AmdTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = tree.plugin(resource_naming_strategy="mixed")
    read, changes = plugin._reader._read, iter(["QPX", "DPX"])

    def changed_meanwhile() -> object:
        found = read()
        if style := next(changes, ""):
            tree.divide(FIRST, style)
        return found

    monkeypatch.setattr(plugin._reader, "_read", changed_meanwhile)
    assert [f"{FIRST}-dpx_nps1-{part}" for part in range(2)] == [*reasons(plugin)][:2]


def test_gpus_are_chosen_by_address_model_and_name(build: Build) -> None:
    tree = build(MI210, links=False)
    assert ["0000:63:00.0"] == [*reasons(tree.plugin(include=("0000:63:*",)))]
    plugin = tree.plugin(exclude=("740f",))
    assert [] == [*reasons(plugin)]
    assert ["include and exclude choose none of the 8 that are here"] == plugin.shortfalls
    assert 7 == len(reasons(tree.plugin(include=("AMD Instinct *",), exclude=("0000:63:00.0",))))


@pytest.mark.parametrize("count", [0, 100_001])
def test_a_number_of_shares_that_is_none_is_refused(tree: AmdTree, count: int) -> None:
    with pytest.raises(dp.ConfigError, match=rf"^shares: {count} is not a number of shares"):
        tree.plugin(shares=count)


def test_more_shares_than_the_kubelet_takes_are_not_made(tree: AmdTree) -> None:
    plugin = tree.plugin(shares=100_000)
    assert [] == [*plugin.discover()]
    expected = f"amd.com/gpu: {len(SMALL.addresses)}00000 shares have no room"
    assert len(SMALL.addresses) == sum(expected in one for one in plugin.shortfalls)
    device = next(iter(tree.plugin(shares=16384, include=SMALL.addresses[:1]).discover()))
    assert f"{SMALL.addresses[0]}::0" == device.id


@pytest.mark.parametrize(
    ("driver", "expected"),
    [("radeon", ["its driver is radeon, not amdgpu"]), ("vfio-pci", []), ("pci-stub", [])],
)
def test_a_gpu_of_another_driver_is_missed_unless_it_is_for_a_virtual_machine(
    tree: AmdTree, driver: str, expected: list[str]
) -> None:
    first, *_ = SMALL.addresses
    link = tree.cards[first].folder / "driver"
    target = link.readlink()
    link.unlink()
    link.symlink_to(target.with_name(driver))
    plugin = tree.plugin()
    assert first not in {str(device.attributes["pci"]) for device in plugin.discover()}
    assert [f"{first}: {one}" for one in expected] == plugin.shortfalls
    excluding = tree.plugin(exclude=(first,))
    assert len(SMALL.addresses) - 1 == len([*excluding.discover()])
    assert [] == excluding.shortfalls


def test_a_node_without_gpus_is_ready_and_one_without_the_driver_waits(
    tree: AmdTree, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    for card in tree.cards.values():
        (card.folder / "driver").unlink()
    plugin = tree.plugin()
    waits = "the driver amdgpu is not bound; GPUs: 0000:05:00.0, 0000:27:00.0, "
    with pytest.raises(dp.DiscoveryError, match=waits):
        list(plugin.discover())
    for address in SMALL.addresses:
        tree.vanish(address)
    assert [] == [*plugin.discover(), *plugin.discover()]
    assert ["no AMD GPU on this node"] == [one.message for one in caplog.records]
