"""The plugin on a kubelet: what pods get, and what becomes of cards that change."""

import errno
import json
import logging
from datetime import timedelta
from pathlib import Path

import pytest

import deviceplugin as dp
from deviceplugin.kit.health import SteadyHealth, Tolerance
from deviceplugin_fpga import FpgaPlugin, resource_names
from deviceplugin_testing.fixture import Kubelet
from deviceplugin_testing.simulator import Pod
from fpga.trees import AFU, ALL_ONES, DFL, INTERFACE, OTHER_AFU, FpgaTree
from hardware.kernel_events import Turns, pretend

OLD = resource_names.Aliases().af(INTERFACE, AFU)
NEW = resource_names.Aliases().af(INTERFACE, OTHER_AFU)
REGION = resource_names.Aliases().region(INTERFACE)
AT_ONCE = timedelta(milliseconds=1)
QUICK = {"vanished_grace": AT_ONCE, "pod_resources_interval": timedelta(milliseconds=50)}


def problems(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [str(vars(one)["problem"]) for one in caplog.records if one.message == "device skipped"]


def measures(plugin: FpgaPlugin) -> dict[str, float]:
    return {
        " ".join(
            [sample.name.removeprefix("deviceplugin_fpga_"), *sample.labels.values()]
        ): sample.value
        for family in plugin.metrics()
        for sample in family.samples
    }


# What pods get.


def test_a_pod_gets_the_port_with_the_function_it_asks_for(
    kubelet: Kubelet, any_tree: FpgaTree
) -> None:
    any_tree.simple(AFU, OTHER_AFU)
    port = f"{any_tree.words.port}1"
    with kubelet.running(any_tree.plugin("af")) as node:
        node.wait_for(NEW, {port})
        assert dp.Allocation([dp.DeviceNode(f"/dev/{port}")]) == node.allocate(port, resource=NEW)


def test_in_region_mode_the_runtime_is_told_to_program(
    kubelet: Kubelet, any_tree: FpgaTree
) -> None:
    any_tree.simple(AFU, AFU)
    fme = f"{any_tree.words.fme}0"
    with kubelet.running(any_tree.plugin("region")) as node:
        node.wait_for(REGION, {fme})
        allocation = node.allocate(fme)
    ports = [f"/dev/{any_tree.words.port}{number}" for number in (0, 1)]
    assert allocation == dp.Allocation(
        [dp.DeviceNode(port) for port in ports],
        annotations={"com.intel.fpga.mode": "fpga.intel.com/region"},
        cdi_names=[f"intel.cdi.k8s.io/fpga={fme}"],
    )
    (path,) = any_tree.cdi.iterdir()
    assert f"intel.cdi.k8s.io-fpga-{fme}.yaml" == path.name
    assert 0o100644 == path.stat().st_mode
    hook = {"hookName": "createRuntime", "path": "/opt/intel/fpga-sw/intel-fpga-crihook"}
    assert {
        "cdiVersion": "0.3.0",
        "kind": "intel.cdi.k8s.io/fpga",
        "devices": [{"name": fme, "containerEdits": {"hooks": [hook]}}],
    } == json.loads(path.read_text())


def test_other_annotations_are_kept(tree: FpgaTree) -> None:
    tree.simple(AFU)
    device = dp.Device("dfl-fme.0", annotations={"example.com/other": "1"})
    assert {
        "example.com/other": "1",
        "com.intel.fpga.mode": "fpga.intel.com/region",
    } == tree.plugin("region").allocate([device]).annotations


@pytest.mark.parametrize("mode", ["af", "regiondevel"])
def test_in_other_modes_nothing_is_added(tree: FpgaTree, mode: str) -> None:
    tree.simple(AFU)
    plugin = tree.plugin(mode)
    (device,) = plugin.discover()
    plugin.start(device.resource)
    plugin.discover()
    assert device.allocation == plugin.allocate([device])
    assert not tree.cdi.exists()


def test_a_device_that_a_pod_holds_is_for_no_other() -> None:
    assert FpgaPlugin.exclusive


# CDI specifications.


def specification(tree: FpgaTree) -> Path:
    return tree.cdi / "intel.cdi.k8s.io-fpga-dfl-fme.0.yaml"


def test_a_stale_specification_is_replaced_before_the_resource_is_registered(
    tree: FpgaTree,
) -> None:
    tree.simple(AFU)
    tree.cdi.mkdir()
    plugin = tree.plugin("region")
    plugin.discover()
    assert [] == list(tree.cdi.iterdir())
    specification(tree).write_bytes(b"cdiVersion: '0.1.0' \xff")
    plugin.start(REGION)
    assert "0.3.0" == json.loads(specification(tree).read_text())["cdiVersion"]
    specification(tree).unlink()  # and that of a card that comes later
    tree.simple(AFU, address="0000:5e:00.0", number=1)
    assert [True, True] == [bool(device.health) for device in plugin.discover()]
    assert 2 == len(list(tree.cdi.glob("*.yaml")))


def test_a_device_whose_specification_cannot_be_written_is_unhealthy(tree: FpgaTree) -> None:
    tree.simple(AFU)
    plugin = tree.plugin("region")
    plugin.discover()
    plugin.start(REGION)
    plugin.stop(REGION)  # the specification stays, for containers that start again
    specification(tree).unlink()
    plugin.start(REGION)
    specification(tree).unlink()
    tree.cdi.rmdir()
    tree.cdi.touch()
    (device,) = plugin.discover()
    assert f"no CDI specification: {tree.cdi}: File exists" == device.health.reason
    plugin = tree.plugin("region")
    plugin.discover()
    with pytest.raises(FileExistsError):
        plugin.start(REGION)  # so that its resource is not registered


# Cards that change.


def test_reprogramming_retires_the_old_device_and_offers_the_new_one_once_it_is_free(
    kubelet: Kubelet, any_tree: FpgaTree
) -> None:
    port, other = any_tree.simple(AFU, AFU)
    pod = Pod.of("crypto", main={OLD: 2})
    with kubelet.running(any_tree.plugin("af"), **QUICK) as node:
        node.wait_for(OLD, {port.name, other.name})
        node.kubelet.run(pod)
        (port / "afu_id").write_text(OTHER_AFU)
        node.wait_for(OLD, {other.name}, unhealthy={port.name})
        node.kubelet.tick()
        node.wait_for(OLD, {other.name}, unhealthy={port.name})  # a pod holds it
        assert NEW not in node.kubelet.registered
        node.kubelet.terminate(pod)
        node.wait_for(NEW, {port.name})
        node.wait_for(OLD, {other.name})
        assert 1 == node.kubelet.registration_count(OLD)


def test_a_port_that_is_being_programmed_is_unhealthy_with_the_reason(
    any_tree: FpgaTree, caplog: pytest.LogCaptureFixture
) -> None:
    port, _ = any_tree.simple(AFU, AFU)
    plugin = any_tree.plugin()
    plugin.discover()
    any_tree.kernel.faults[port / "afu_id"] = errno.EBUSY
    for _ in range(3):
        good, bad = plugin.discover()
        assert (port.name, OLD, True) == (bad.id, bad.resource, bool(good.health))
        assert f"{port}/afu_id: Device or resource busy" == bad.health.reason
    assert [f"{port}/afu_id: Device or resource busy"] == problems(caplog)
    any_tree.kernel.faults.clear()
    (port / "afu_id").write_text(OTHER_AFU)
    assert [NEW, OLD] == [device.resource for device in plugin.discover()]


@pytest.mark.parametrize("mode", ["af", "region", "regiondevel"])
def test_a_card_that_turns_odd_is_unhealthy_with_the_reason(any_tree: FpgaTree, mode: str) -> None:
    any_tree.simple(AFU, AFU)
    plugin = any_tree.plugin(mode)
    names = [device.id for device in plugin.discover()]
    (any_tree.sys / "devices/pci0000:3a/0000:3b:00.0/class").write_text("0xffffff")
    devices = list(plugin.discover())
    assert names == [device.id for device in devices]
    assert {"0000:3b:00.0: PCI class '0xffffff' is not 0x120000"} == {
        device.health.reason for device in devices
    }


@pytest.mark.parametrize("is_odd", [False, True])
def test_a_port_that_is_lost_leaves_the_others_of_its_card(
    any_tree: FpgaTree, tmp_path: Path, is_odd: bool
) -> None:
    good, bad = any_tree.simple(AFU, AFU)
    plugins = [any_tree.plugin("af"), any_tree.plugin("region")]
    for plugin in plugins:
        plugin.discover()
    bad.rename(tmp_path / "away")
    if is_odd:
        bad.symlink_to("nowhere")
    ports, (region,) = (list(plugin.discover()) for plugin in plugins)
    assert [good.name] == [port.id for port in ports if port.health]
    assert is_odd == (len(ports) > 1)
    assert (True, [f"/dev/{good.name}"]) == (
        bool(region.health),
        [node.host_path for node in region.nodes],
    )


def test_an_empty_interface_id_registers_nothing_and_the_others_go_on(
    kubelet: Kubelet, any_tree: FpgaTree, caplog: pytest.LogCaptureFixture
) -> None:
    region = any_tree.region(any_tree.card(), 1)
    any_tree.fme(region, 1, "")
    any_tree.port(region, 1)
    any_tree.simple(AFU, address="0000:5e:00.0", number=2)
    plugin = any_tree.plugin("region")
    with kubelet.running(plugin) as node:
        node.wait_for(REGION, {f"{any_tree.words.fme}2"})
        assert {REGION} == set(node.kubelet.registered)
    (problem,) = problems(caplog)
    assert problem.startswith(f"{any_tree.words.fme}1: ")
    assert 1 == measures(plugin)["skipped"]


# The driver itself.


def test_cards_without_a_driver_make_the_look_fail_until_there_is_one(tree: FpgaTree) -> None:
    plugin = tree.plugin("af")
    tree.unload()
    tree.plug_in(tree.card("0000:5e:00.0"))
    with pytest.raises(dp.DiscoveryError, match=r"kernel driver is not .*cards: 0000:5e:00\.0$"):
        plugin.discover()
    FpgaTree(tree.sys.parent, DFL).simple(AFU)
    assert 1 == len(list(plugin.discover()))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("vendor", "0x1da3"),
        ("class", "0x030000"),
        ("driver", "../../bus/pci/drivers/vfio-pci"),
        ("device", "0x7d1d"),  # a neural processor, whose class is that of FPGAs
    ],
)
def test_a_node_without_cards_is_ready_and_says_so_once(
    tree: FpgaTree, caplog: pytest.LogCaptureFixture, name: str, value: str
) -> None:
    caplog.set_level(logging.INFO)
    plugin = tree.plugin("af")
    tree.unload()
    card = tree.card("0000:5e:00.0")
    tree.plug_in(card)
    if name == "driver":
        (card / name).symlink_to(value)
    else:
        (card / name).write_text(value)
    (card.parent / "0000:5f:00.0/vendor").mkdir(parents=True)  # which cannot be read
    tree.plug_in(card.parent / "0000:5f:00.0")
    assert [] == list(plugin.discover()) == list(plugin.discover())
    assert ["no FPGA on this node"] == [record.getMessage() for record in caplog.records]
    assert 0 == measures(plugin)["skipped"]


def test_when_the_driver_is_unloaded_all_devices_are_gone(
    any_tree: FpgaTree, caplog: pytest.LogCaptureFixture
) -> None:
    any_tree.simple(AFU)
    plugin = any_tree.plugin("af")
    assert 1 == len(list(plugin.discover()))
    any_tree.unload()
    assert [] == list(plugin.discover()) == list(plugin.discover())
    (problem,) = problems(caplog)
    assert problem.startswith("kernel driver is not loaded: neither ")
    assert 1 == measures(plugin)["skipped"]


# Health.


def test_errors_make_a_device_unhealthy_and_their_end_makes_it_well(
    kubelet: Kubelet, any_tree: FpgaTree
) -> None:
    (port,) = any_tree.simple(AFU)
    with kubelet.running(any_tree.plugin("af", error_patience=AT_ONCE)) as node:
        node.wait_for(OLD, {port.name})
        any_tree.set_error(port, "errors")
        node.wait_for(OLD, set(), {port.name})
        any_tree.set_error(port, "errors", "0x0")
        node.wait_for(OLD, {port.name})


def test_metrics_count_what_was_skipped_and_what_is_wrong(tree: FpgaTree) -> None:
    ports = tree.simple(AFU, ALL_ONES, "odd")
    fme = ports[0].parent / "dfl-fme.0"
    tree.set_error(fme, "nonfatal_errors")
    tree.set_error(fme, "pcie0_errors")
    plugin = tree.plugin("af")
    plugin.discover()
    assert {
        "skipped": 1,
        "errors warning": 1,
        "errors error": 1,
        "errors fatal": 1,
    } == measures(plugin)


# Events.


def test_events_of_fpgas_call_for_a_look(tree: FpgaTree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.simple(AFU)
    pretend(monkeypatch, "net", "platform", "block", "fpga_region")
    begins, of_fpgas = 1, 2
    assert begins + of_fpgas == len(list(tree.plugin("af").changes(Turns(7))))


def test_another_look_is_called_for_when_an_error_has_lasted(
    tree: FpgaTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    (port,) = tree.simple(AFU)
    pretend(monkeypatch)
    plugin, now = tree.plugin("af"), [0.0]
    plugin._steady = SteadyHealth(Tolerance(patience=5), lambda: now[0])
    plugin.discover()
    tree.set_error(port, "errors")
    assert [True] == [bool(device.health) for device in plugin.discover()]
    begins = 1
    assert begins == len(list(plugin.changes(Turns(4))))
    now[0] = 5.0
    assert begins + 1 == len(list(plugin.changes(Turns(4))))
    assert [False] == [bool(device.health) for device in plugin.discover()]
