"""The plugin on a kubelet: what pods get, and what becomes of cards that change."""

import errno
import json
import logging
from datetime import timedelta
from pathlib import Path

import pytest

import deviceplugin as dp
from deviceplugin.kit.health import SteadyHealth, Tolerance
from deviceplugin_fpga import FpgaPlugin, FpgaSettings, resource_names
from deviceplugin_testing.fixture import Kubelet
from deviceplugin_testing.simulator import Pod
from fpga.trees import AFU, ALL_ONES, DFL, INTERFACE, OTHER_AFU, FpgaTree, Make
from hardware.kernel_events import Turns, pretend
from patience import eventually

OLD = resource_names.Aliases().af(INTERFACE, AFU)
NEW = resource_names.Aliases().af(INTERFACE, OTHER_AFU)
REGION = resource_names.Aliases().region(INTERFACE)
AT_ONCE = timedelta(milliseconds=1)
QUICK = {"vanished_grace": AT_ONCE, "pod_resources_interval": timedelta(milliseconds=50)}


def problems(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [str(vars(one)["problem"]) for one in caplog.records if one.message == "device skipped"]


def unloaded(problem: str) -> bool:
    return problem.startswith("kernel driver is not loaded: neither ")


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
    kubelet: Kubelet, any_tree: FpgaTree, make: Make
) -> None:
    any_tree.simple(AFU, OTHER_AFU)
    port = f"{any_tree.words.port}1"
    with kubelet.running(make("af")) as node:
        node.wait_for(NEW, {port})
        allocation = node.allocate(port, resource=NEW)
        assert [f"/dev/{port}"] == [one.host_path for one in allocation.nodes]
        assert ({}, ()) == (dict(allocation.annotations), tuple(allocation.cdi_names))


def test_in_region_mode_the_runtime_is_told_to_program(
    kubelet: Kubelet, any_tree: FpgaTree, make: Make, tmp_path: Path
) -> None:
    any_tree.simple(AFU, AFU)
    fme = f"{any_tree.words.fme}0"
    with kubelet.running(make("region")) as node:
        node.wait_for(REGION, {fme})
        allocation = node.allocate(fme)
    assert {"com.intel.fpga.mode": "fpga.intel.com/region"} == allocation.annotations
    assert [f"intel.cdi.k8s.io/fpga={fme}"] == list(allocation.cdi_names)
    assert [f"/dev/{any_tree.words.port}{number}" for number in (0, 1)] == [
        one.host_path for one in allocation.nodes
    ]
    (path,) = (tmp_path / "cdi").iterdir()
    assert f"intel.cdi.k8s.io-fpga-{fme}.yaml" == path.name
    assert 0o100644 == path.stat().st_mode
    hook = {"hookName": "createRuntime", "path": "/opt/intel/fpga-sw/intel-fpga-crihook"}
    assert {
        "cdiVersion": "0.3.0",
        "kind": "intel.cdi.k8s.io/fpga",
        "devices": [{"name": fme, "containerEdits": {"hooks": [hook]}}],
    } == json.loads(path.read_text())


def test_other_annotations_are_kept(tree: FpgaTree, make: Make) -> None:
    tree.simple(AFU)
    device = dp.Device("dfl-fme.0", annotations={"example.com/other": "1"})
    assert {"example.com/other": "1", "com.intel.fpga.mode": "fpga.intel.com/region"} == make(
        "region"
    ).allocate([device]).annotations


@pytest.mark.parametrize("mode", ["af", "regiondevel"])
def test_in_other_modes_nothing_is_added(tree: FpgaTree, make: Make, mode: str) -> None:
    tree.simple(AFU)
    plugin = make(mode)
    (device,) = plugin.discover()
    plugin.start(device.resource)
    plugin.discover()
    assert device.allocation == plugin.allocate([device])
    assert not (tree.sys.parent.parent / "cdi").exists()


def test_a_device_that_a_pod_holds_is_for_no_other() -> None:
    assert FpgaPlugin.exclusive


# CDI specifications.


def specification(tmp_path: Path) -> Path:
    return tmp_path / "cdi/intel.cdi.k8s.io-fpga-dfl-fme.0.yaml"


@pytest.fixture
def started(tree: FpgaTree, make: Make) -> FpgaPlugin:
    """Return a plugin in mode region whose resource is started, on a node with one card."""
    tree.simple(AFU)
    plugin = make("region")
    plugin.discover()
    plugin.start(REGION)
    return plugin


def test_a_stale_specification_is_replaced_before_the_resource_is_registered(
    tree: FpgaTree, make: Make, tmp_path: Path
) -> None:
    tree.simple(AFU)
    specification(tmp_path).parent.mkdir()
    plugin = make("region")
    plugin.discover()
    assert [] == list(specification(tmp_path).parent.iterdir())
    specification(tmp_path).write_bytes(b"cdiVersion: '0.1.0' \xff")
    plugin.start(REGION)
    assert "0.3.0" == json.loads(specification(tmp_path).read_text())["cdiVersion"]


def test_a_lost_specification_is_written_again_and_one_more_card_has_its_own(
    tree: FpgaTree, started: FpgaPlugin, tmp_path: Path
) -> None:
    specification(tmp_path).unlink()
    tree.simple(AFU, address="0000:5e:00.0", number=1)
    assert [True, True] == [bool(device.health) for device in started.discover()]
    assert 2 == len(list((tmp_path / "cdi").glob("*.yaml")))


def test_a_device_whose_specification_cannot_be_written_is_unhealthy(
    started: FpgaPlugin, make: Make, tmp_path: Path
) -> None:
    started.stop(REGION)  # the specification stays, for containers that start again
    specification(tmp_path).unlink()
    started.start(REGION)
    specification(tmp_path).unlink()
    (tmp_path / "cdi").rmdir()
    (tmp_path / "cdi").touch()
    (device,) = started.discover()
    assert f"no CDI specification: {tmp_path}/cdi: File exists" == device.health.reason
    plugin = make("region")
    plugin.discover()
    with pytest.raises(FileExistsError):
        plugin.start(REGION)  # so that its resource is not registered


# Cards that change.


def test_reprogramming_retires_the_old_device_and_offers_the_new_one_once_it_is_free(
    kubelet: Kubelet, any_tree: FpgaTree, make: Make
) -> None:
    port, other = any_tree.simple(AFU, AFU)
    pod = Pod.of("crypto", main={OLD: 2})
    with kubelet.running(make("af"), **QUICK) as node:
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
    any_tree: FpgaTree, settings: FpgaSettings, caplog: pytest.LogCaptureFixture
) -> None:
    port, _ = any_tree.simple(AFU, AFU)
    plugin = FpgaPlugin(settings, any_tree.sysfs)
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
def test_a_card_that_turns_odd_is_unhealthy_with_the_reason(
    any_tree: FpgaTree, make: Make, mode: str
) -> None:
    any_tree.simple(AFU, AFU)
    plugin = make(mode)
    names = [device.id for device in plugin.discover()]
    (any_tree.sys / "devices/pci0000:3a/0000:3b:00.0/class").write_text("0xffffff")
    devices = list(plugin.discover())
    assert names == [device.id for device in devices]
    assert {"0000:3b:00.0: PCI class '0xffffff' is not 0x120000"} == {
        device.health.reason for device in devices
    }


@pytest.mark.parametrize("is_odd", [False, True])
def test_a_port_that_is_lost_leaves_the_others_of_its_card(
    any_tree: FpgaTree, make: Make, tmp_path: Path, is_odd: bool
) -> None:
    good, bad = any_tree.simple(AFU, AFU)
    plugins = [make("af"), make("region")]
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
    kubelet: Kubelet, any_tree: FpgaTree, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    region = any_tree.region(any_tree.card(), 1)
    any_tree.fme(region, 1, "")
    any_tree.port(region, 1)
    any_tree.simple(AFU, address="0000:5e:00.0", number=2)
    plugin = make("region")
    with kubelet.running(plugin) as node:
        node.wait_for(REGION, {f"{any_tree.words.fme}2"})
        assert {REGION} == set(node.kubelet.registered)
    (problem,) = problems(caplog)
    assert problem.startswith(f"{any_tree.words.fme}1: ")
    assert 1 == measures(plugin)["skipped"]


# The driver itself.


def test_cards_without_a_driver_make_the_look_fail_until_there_is_one(
    tmp_path: Path, make: Make
) -> None:
    plugin, tree = make("af"), FpgaTree(tmp_path / "node", DFL)
    tree.unload()
    tree.plug_in(tree.card("0000:5e:00.0"))
    with pytest.raises(dp.DiscoveryError, match=r"kernel driver is not .*cards: 0000:5e:00\.0$"):
        plugin.discover()
    FpgaTree(tmp_path / "node", DFL).simple(AFU)
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
    tmp_path: Path, make: Make, caplog: pytest.LogCaptureFixture, name: str, value: str
) -> None:
    caplog.set_level(logging.INFO)
    plugin, tree = make("af"), FpgaTree(tmp_path / "node", DFL)
    tree.unload()
    card = tree.card("0000:5e:00.0")
    tree.plug_in(card)
    if name == "driver":
        (card / name).symlink_to(value)
    else:
        (card / name).write_text(value)
    assert [] == list(plugin.discover()) == list(plugin.discover())
    assert ["no FPGA on this node"] == [record.getMessage() for record in caplog.records]
    assert 0 == measures(plugin)["skipped"]
    FpgaTree(tmp_path / "node", DFL).simple(AFU)
    assert 1 == len(list(plugin.discover()))


def test_a_card_that_cannot_be_read_is_not_waited_for(tmp_path: Path, make: Make) -> None:
    (tmp_path / "node/sys/bus/pci/devices/0000:5e:00.0/vendor").mkdir(parents=True)
    assert [] == list(make("af").discover())


def test_when_the_driver_is_unloaded_all_devices_are_gone(
    kubelet: Kubelet, any_tree: FpgaTree, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    (port,) = any_tree.simple(AFU)
    plugin = make("af")
    with kubelet.running(plugin) as node:
        node.wait_for(OLD, {port.name})
        any_tree.unload()
        node.wait_for(OLD, set(), unhealthy={port.name})
        # A look in the middle of unloading finds half of it, and has its own reason or none.
        eventually(lambda: any(map(unloaded, problems(caplog))), "a look after it")
    assert [True] == [*filter(None, map(unloaded, problems(caplog)))]
    assert 1 == measures(plugin)["skipped"]


# Health.


def test_errors_make_a_device_unhealthy_and_their_end_makes_it_well(
    kubelet: Kubelet, any_tree: FpgaTree, make: Make
) -> None:
    (port,) = any_tree.simple(AFU)
    with kubelet.running(make("af", error_patience=AT_ONCE)) as node:
        node.wait_for(OLD, {port.name})
        any_tree.set_error(port, "errors")
        node.wait_for(OLD, set(), {port.name})
        any_tree.set_error(port, "errors", "0x0")
        node.wait_for(OLD, {port.name})


def test_metrics_count_what_was_skipped_and_what_is_wrong(tree: FpgaTree, make: Make) -> None:
    ports = tree.simple(AFU, ALL_ONES, "odd")
    fme = ports[0].parent / "dfl-fme.0"
    tree.set_error(fme, "nonfatal_errors")
    tree.set_error(fme, "pcie0_errors")
    plugin = make("af")
    plugin.discover()
    assert {
        "skipped": 1,
        "errors warning": 1,
        "errors error": 1,
        "errors fatal": 1,
    } == measures(plugin)


# Events.


def test_events_of_fpgas_call_for_a_look(
    tree: FpgaTree, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.simple(AFU)
    pretend(monkeypatch, "net", "platform", "block", "fpga_region")
    begins, of_fpgas = 1, 2
    assert begins + of_fpgas == len(list(make("af").changes(Turns(7))))


def test_another_look_is_called_for_when_an_error_has_lasted(
    tree: FpgaTree, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    (port,) = tree.simple(AFU)
    pretend(monkeypatch)
    plugin, now = make("af"), [0.0]
    plugin._steady = SteadyHealth(Tolerance(patience=5), lambda: now[0])
    plugin.discover()
    tree.set_error(port, "errors")
    assert [True] == [bool(device.health) for device in plugin.discover()]
    begins = 1
    assert begins == len(list(plugin.changes(Turns(4))))
    now[0] = 5.0
    assert begins + 1 == len(list(plugin.changes(Turns(4))))
    assert [False] == [bool(device.health) for device in plugin.discover()]
