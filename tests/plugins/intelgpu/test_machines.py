"""The plugin finds what the records of machines say."""

from collections import Counter

import pytest

import deviceplugin as dp
from discovered import found, unhealthy
from intelgpu.machines import DG1, FLEX, MAX, SMALL, TIGER_LAKE, TWO_DRIVERS, WORKSTATION, Machine
from intelgpu.tree import Build, nodes

I915, XE = "gpu.intel.com/i915", "gpu.intel.com/xe"


@pytest.mark.parametrize(
    ("machine", "resources", "numa"),
    [
        (TIGER_LAKE, {I915: 1}, {None: 1}),
        (TWO_DRIVERS, {I915: 1, XE: 1}, {None: 2}),
        (DG1, {I915: 8}, {None: 8}),
        (MAX, {I915: 8}, {0: 2, 1: 2, 2: 2, 3: 2}),
        (FLEX, {I915: 1}, {0: 1}),
        (WORKSTATION, {I915: 1}, {None: 1}),
    ],
    ids=["tiger-lake", "two-drivers", "dg1", "max", "flex", "workstation"],
)
def test_a_recorded_machine_has_its_devices(
    build: Build,
    machine: Machine,
    resources: dict[str, int],
    numa: dict[int | None, int],
) -> None:
    devices = list(build(machine).plugin().discover())
    assert resources == Counter(device.resource for device in devices)
    assert numa == Counter(
        device.topology.numa_nodes[0] if device.topology else None for device in devices
    )
    assert all(device.health for device in devices)


def test_a_container_gets_the_nodes_of_its_gpu_and_udevs_links_to_them(build: Build) -> None:
    tree = build(TWO_DRIVERS)
    devices = found(tree.plugin())
    first, second = devices["0042:01:02.0"], devices["0042:01:05.0"]
    assert ["/dev/dri/card0", "/dev/dri/renderD128"] == nodes(first)
    assert ["/dev/dri/card1", "/dev/dri/renderD129"] == nodes(second)
    assert [f"{tree.dev}/dri/card0", f"{tree.dev}/dri/renderD128"] == [
        node.host_path for node in first.nodes
    ]
    assert {"rw"} == {node.permissions for node in first.nodes}
    links = [f"dri/by-path/pci-0042:01:05.0-{what}" for what in ("card", "render")]
    assert [dp.Mount(f"{tree.dev}/{link}", f"/dev/{link}", read_only=True) for link in links] == [
        *second.mounts
    ]
    assert ({}, {}) == (first.envs, first.annotations)


def test_all_links_or_none_can_be_had(build: Build) -> None:
    tree = build(TWO_DRIVERS)
    for device in tree.plugin(bypath="all").discover():
        assert [dp.Mount(f"{tree.dev}/dri/by-path", "/dev/dri/by-path", read_only=True)] == [
            *device.mounts
        ]
    plugin = tree.plugin(bypath="all")
    assert 1 == len(plugin.allocate([*plugin.discover()]).mounts)
    assert all(not device.mounts for device in tree.plugin(bypath="none").discover())
    for link in (tree.dev / "dri/by-path").iterdir():
        link.unlink()
    (tree.dev / "dri/by-path").rmdir()
    for choice in ("all", "single"):
        devices = found(tree.plugin(bypath=choice))
        assert [(), ()] == [device.mounts for device in devices.values()]


def test_the_cards_of_other_vendors_are_not_offered(build: Build) -> None:
    tree = build(WORKSTATION)
    assert {"0000:03:00.0": ["/dev/dri/card1", "/dev/dri/renderD129"]} == {
        one: nodes(device) for one, device in found(tree.plugin()).items()
    }
    assert (tree.dev / "dri/card0").exists()


def test_virtual_functions_are_offered_in_place_of_their_card(build: Build) -> None:
    tree = build(SMALL)
    plugin = tree.plugin()
    everything = {*found(plugin)}
    assert {card.address for card in SMALL.cards} == everything
    tree.divide("0000:3b:00.0", 3)
    virtual = {f"0000:3b:00.{number}" for number in (1, 2, 3)}
    devices = found(plugin)
    assert everything - {"0000:3b:00.0"} | virtual == {*devices}
    assert "0000:3b:00.0" == devices["0000:3b:00.2"].attributes["physical-function"]
    assert {I915} == {devices[one].resource for one in virtual}
    tree.divide("0000:3b:00.0", 0)
    assert everything == {*found(plugin)}


@pytest.mark.parametrize("text", ["", "many", "-1"])
def test_a_card_is_not_offered_beside_its_functions_whatever_their_number_says(
    build: Build, text: str
) -> None:
    tree = build(FLEX)
    (tree.folder("0000:03:00.0") / "sriov_numvfs").write_text(text)
    assert ["0000:03:00.1"] == [*found(tree.plugin())]


def test_a_card_that_is_being_unbound_keeps_its_resource(build: Build) -> None:
    tree = build(TWO_DRIVERS)
    plugin = tree.plugin()
    assert XE == found(plugin)["0042:01:05.0"].resource
    (tree.folder("0042:01:05.0") / "driver").unlink()
    assert XE == found(plugin)["0042:01:05.0"].resource


@pytest.mark.parametrize(
    ("include", "exclude", "expected"),
    [
        (("0x56c0",), (), ["0000:3b:00.0"]),
        (("56c0", "a780"), (), ["0000:00:02.0", "0000:3b:00.0"]),
        (("0x5",), (), []),  # and that is told
        (("xe",), ("0000:5e:*",), ["0000:86:00.0"]),
        ((), ("0xe211", "0xa780"), ["0000:3b:00.0"]),
    ],
)
def test_gpus_are_chosen_by_model_address_or_driver(
    build: Build, include: tuple[str, ...], exclude: tuple[str, ...], expected: object
) -> None:
    plugin = build().plugin(include=include, exclude=exclude)
    assert expected == [*found(plugin)]
    told = "include and exclude choose none of the 4 that are here"
    assert ([] if expected else [told]) == plugin.shortfalls


def test_the_monitoring_device_opens_all_gpus_and_is_healthy(build: Build) -> None:
    tree = build(TWO_DRIVERS)
    plugin = tree.plugin(enable_monitoring=True, shares=13)
    counts = Counter(device.resource for device in plugin.discover())
    assert {I915: 13, XE: 13, "gpu.intel.com/monitoring": 1} == counts
    monitor = found(plugin)["all"]
    assert [
        *("/dev/dri/card0", "/dev/dri/renderD128", "/dev/mei0"),
        *("/dev/dri/card1", "/dev/dri/renderD129", "/dev/mei1"),
    ] == nodes(monitor)
    assert (None, ()) == (monitor.topology, monitor.mounts)
    (tree.folder("0042:01:05.0") / "survivability_mode").touch()
    assert found(plugin)["all"].health
    tree.vanish("0042:01:02.0")
    assert "/dev/dri/card0" not in nodes(found(plugin)["all"])


def test_there_can_be_a_monitoring_device_for_each_driver(build: Build) -> None:
    more = {"monitoring_mode": "split", "resource_name": "example.com/gpu"}
    plugin = build(TWO_DRIVERS).plugin(enable_monitoring=True, **more)
    assert 2 == [device.resource for device in plugin.discover()].count("example.com/gpu")
    monitors = {
        one.resource.partition("/")[2]: nodes(one) for one in plugin.discover() if one.id == "all"
    }
    assert {
        "i915_monitoring": ["/dev/dri/card0", "/dev/dri/renderD128", "/dev/mei0"],
        "xe_monitoring": ["/dev/dri/card1", "/dev/dri/renderD129", "/dev/mei1"],
    } == monitors


def test_a_gpu_without_device_nodes_is_skipped_and_one_with_some_is_unhealthy(
    build: Build,
) -> None:
    tree = build(TWO_DRIVERS)
    plugin = tree.plugin()
    (tree.dev / "dri/renderD129").unlink()
    reason = f"{tree.dev}/dri/renderD129 does not exist"
    assert {"0042:01:05.0": reason} == unhealthy(plugin)
    (tree.dev / "dri/card1").unlink()
    assert ["0042:01:02.0"] == [*found(plugin)] == [*found(plugin)]
    assert [f"0042:01:05.0: {reason}"] == plugin.shortfalls
    for name in ("dri/card1", "dri/renderD129"):
        tree.hardware.node(name)
    assert {} == unhealthy(plugin)


def test_a_gpu_of_another_driver_is_skipped_with_the_reason(build: Build) -> None:
    tree = build(TWO_DRIVERS)
    tree.unbind("0042:01:02.0")
    tree.bind("0042:01:02.0", "gma500")
    tree._unnumber("0042:01:05.0")
    plugin = tree.plugin()
    assert [] == [*plugin.discover()]
    assert [
        "0042:01:02.0: its driver is gma500, not i915 or xe",
        "0042:01:05.0: xe has made no device nodes for it",
    ] == plugin.shortfalls


def test_a_driver_that_is_not_there_yet_is_waited_for(build: Build) -> None:
    tree = build(TWO_DRIVERS)
    for address in tree.known:
        tree.unbind(address)
    plugin = tree.plugin()
    waits = r"^no driver \(i915 or xe\) is bound; GPUs: 0042:01:02.0, 0042:01:05.0$"
    with pytest.raises(dp.DiscoveryError, match=waits):
        plugin.discover()
    assert [] == [*tree.plugin(exclude=("9a4?",)).discover()]
    tree.bind("0042:01:02.0", "xe")
    assert {"0042:01:02.0": XE} == {one: each.resource for one, each in found(plugin).items()}
    tree.unbind("0042:01:02.0")
    assert [] == [*plugin.discover()]


def test_a_node_without_gpus_is_ready(build: Build, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    tree = build(TIGER_LAKE)
    tree.vanish("0000:00:02.0")
    plugin = tree.plugin(enable_monitoring=True)
    assert [] == [*plugin.discover(), *plugin.discover()]
    assert ["no Intel GPU on this node"] == [one.message for one in caplog.records]


def test_a_card_without_a_link_to_its_driver_is_of_i915(build: Build) -> None:
    tree = build(TIGER_LAKE)
    (tree.folder("0000:00:02.0") / "driver").unlink()
    assert [I915] == [device.resource for device in tree.plugin().discover()]


def test_a_gpu_without_a_driver_is_missed_among_others(build: Build) -> None:
    tree = build(TWO_DRIVERS)
    plugin = tree.plugin()
    assert 2 == len([*plugin.discover()])
    assert [] == plugin.shortfalls
    tree.unbind("0042:01:02.0")
    for one in (plugin, tree.plugin()):
        assert ["0042:01:05.0"] == [*found(one)]
        assert ["0042:01:02.0: has no driver: dmesg | grep -e i915 -e xe"] == one.shortfalls
    excluding = tree.plugin(exclude=("0042:01:02.0",))
    assert ["0042:01:05.0"] == [*found(excluding)]
    assert [] == excluding.shortfalls


@pytest.mark.parametrize("driver", ["vfio-pci", ""])
def test_a_card_whose_functions_no_pod_can_have_is_told(build: Build, driver: str) -> None:
    tree = build(FLEX)
    tree.unbind("0000:03:00.1")
    if driver:
        tree.bind("0000:03:00.1", driver)
    plugin = tree.plugin()
    assert [] == [*plugin.discover()]
    shown = driver or "no driver"
    expected = f"0000:03:00.0: is not offered: it has 1 virtual functions, with {shown}"
    assert [expected] == plugin.shortfalls
