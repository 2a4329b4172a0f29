"""USB devices and selectors: what is found, under which ids, with which nodes."""

import hashlib

import pytest

import deviceplugin as dp
from discovered import found
from generic.plugin import Machine

CH340 = "{vendor: 1a86, product: '7523'}"
TTYS = "{name: tty, groups: [{usb: [{vendor: 1a86, product: '7523'}], nodes: [tty]}]}"


def paths(device: dp.Device | dp.Allocation) -> list[tuple[str, str]]:
    return [(node.host_path, node.container_path) for node in device.nodes]


def adapter(
    machine: Machine, port: str, number: int, serial: str = "", tty: str = "ttyUSB0"
) -> str:
    usb = machine.usb(port, "1a86:7523", number, serial=serial)
    machine.behind_usb(usb, "1.0", "tty", tty, driver="ch341")
    return usb


def test_all_usb_devices_of_a_group_are_one_device_in_a_stable_order(machine: Machine) -> None:
    for port, number in (("1-3", 12), ("1-2", 9), ("1-1", 7)):
        adapter(machine, port, number, tty=f"ttyUSB{number}")
    (device,) = machine.plugin(f"{{name: ab, groups: [{{usb: [{CH340}]}}]}}").discover()
    expected = [
        (f"{machine.dev}/bus/usb/001/{n}", f"/dev/bus/usb/001/{n}") for n in ("007", "009", "012")
    ]
    assert expected == paths(device)
    assert {"rw"} == {node.permissions for node in device.nodes}
    assert device.health


def test_a_usb_device_that_two_specs_of_a_group_find_counts_twice_in_its_id(
    machine: Machine,
) -> None:
    adapter(machine, "1-1", 7, serial="S1")
    node = f"{machine.dev}/bus/usb/001/007"
    plugin = machine.plugin(
        f"{{name: ab, groups: [{{usb: [{CH340}, {CH340[:-1]}, serial: S1}}]}}]}}"
    )
    (device,) = plugin.discover()
    assert hashlib.sha1(f"0{node}{node}".encode()).hexdigest() == device.id
    assert [(node, "/dev/bus/usb/001/007")] == paths(device)
    by_serial = machine.plugin(f"{{name: ab, id: serial, groups: [{{usb: [{CH340}, {CH340}]}}]}}")
    assert ["ab-S1"] == list(found(by_serial))
    by_port = machine.plugin(f"{{name: ab, id: port, groups: [{{count: 2, usb: [{CH340}]}}]}}")
    assert ["ab-1-1::0", "ab-1-1::1"] == list(found(by_port))
    each = machine.plugin(f"{{name: ab, groups: [{{perMatch: true, usb: [{CH340}, {CH340}]}}]}}")
    assert [hashlib.sha1(f"0{node}".encode()).hexdigest()] == list(found(each))


def test_a_usb_device_is_found_by_its_serial_number(machine: Machine) -> None:
    adapter(machine, "1-1", 1, "A")
    adapter(machine, "1-2", 2, "B", "ttyUSB1")
    spec = "{vendor: '0x1A86', product: '7523', serial: B}"
    (device,) = machine.plugin(f"{{name: ab, groups: [{{usb: [{spec}]}}]}}").discover()
    assert ("B", "1-2") == (device.attributes["serial"], device.attributes["port"])


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("idVendor", "1A86", 1),
        ("idVendor", " 1a86", 0),
        ("idVendor", "0x1a86", 0),
        ("idVendor", "01a86", 0),
        ("idProduct", "7523 ", 0),
        ("idProduct", "", 0),
        ("devnum", "+5", 0),
        ("busnum", "odd", 0),
        ("busnum", "\u0661", 0),
    ],
)
def test_a_usb_device_is_known_by_four_digits_of_its_own(
    machine: Machine, name: str, text: str, expected: int
) -> None:
    folder = machine.sys / "devices" / adapter(machine, "1-1", 5)
    (folder / name).write_text(f"{text}\n")
    entry = f"{{name: ab, groups: [{{usb: [{CH340}]}}]}}"
    assert expected == len(found(machine.plugin(entry)))
    (folder / "subsystem").unlink()
    assert expected == len(found(machine.plugin(entry)))


def test_usb_devices_need_no_links_in_sysfs(machine: Machine) -> None:
    folder = machine.sys / "bus/usb/devices/1-1"
    folder.mkdir(parents=True)
    for name, text in {
        "idVendor": "1a86",
        "idProduct": "7523",
        "busnum": "1",
        "devnum": "5",
        "serial": "S",
    }.items():
        (folder / name).write_text(f"{text}\n")
    plugin = machine.plugin(f"{{name: ab, id: serial, groups: [{{usb: [{CH340}]}}]}}")
    assert ["ab-S"] == list(found(plugin))


def test_a_hub_does_not_bring_what_is_plugged_into_it(machine: Machine) -> None:
    hub = adapter(machine, "1-1", 2, "HUB")
    below = machine.usb("1-1.1", "1a86:7523", 3, serial="LOW")
    assert below == f"{hub}/1-1.1"
    devices = found(machine.plugin(TTYS))
    assert [(f"{machine.dev}/ttyUSB0", "/dev/ttyUSB0")] == paths(devices["tty-HUB"])


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ("name: 'ttyUSB*'", True),
        ("name: 'ttyACM*'", False),
        ("driver: ch341", True),
        ("driver: ftdi*", False),
        ("serial: 'S?'", True),
        ("product: '7524'", False),
        ("attributes: {idVendor: 1a86}", True),
        ("attributes: {idVendor: '*', nothing: '*'}", False),
        ("properties: {ID_MODEL: 'Zig*'}", True),
        ("properties: {ID_MODEL: x}", False),
        ("properties: {ID_OTHER: '*'}", False),
        ("link: /dev/serial/by-id/*", True),
        ("link: /dev/disk/*", False),
        ("class: '0c03'", True),
        ("class: '03'", False),
    ],
)
def test_a_selector_looks_at_sysfs_and_udev(machine: Machine, selector: str, matches: bool) -> None:
    machine.pci("0000:00:14.0", "8086:a36d", "0c0330", driver="xhci_hcd")
    usb = machine.usb("1-2", "1a86:7523", 5, serial="S1")
    machine.behind_usb(
        usb,
        "1.0",
        "tty",
        "ttyUSB0",
        driver="ch341",
        properties={"ID_MODEL": "ZigStick"},
        links=("serial/by-id/usb-1a86",),
    )
    plugin = machine.plugin(f"{{name: ab, groups: [{{select: {{subsystem: tty, {selector}}}}}]}}")
    assert matches == bool(found(plugin))


def test_an_iommu_group_is_one_device_whatever_of_it_is_selected(machine: Machine) -> None:
    machine.pci("0000:64:00.0", "8086:1901", "060400", group="7", driver="pcieport")
    for number in ("0", "1"):
        machine.pci(f"0000:65:00.{number}", "10de:1eb8", "030200", group="7", driver="vfio-pci")
    plugin = machine.plugin(
        "{name: gpu, groups: [{select: {subsystem: pci, driver: vfio-pci}, "
        "nodes: [vfio]}], env: {'PCI_{group}': '{address} {vendor} {product}'}}"
    )
    (device,) = plugin.discover()
    assert ["/dev/vfio/vfio", "/dev/vfio/7"] == [node.container_path for node in device.nodes]
    assert {"PCI_7": "0000:65:00.0 10de 1eb8"} == device.envs
    assert "gpu-0000:65:00.0" == device.id
    (machine.sys / "devices/pci0000:00/0000:65:00.0/driver").unlink()
    machine.event()
    assert [device.id] == list(found(plugin))


def test_nodes_behind_a_pci_device_are_found_with_their_numa_node(machine: Machine) -> None:
    machine.pci("0000:03:00.0", "1002:73bf", "030000", numa=1)
    machine.device("pci0000:00/0000:03:00.0/drm/renderD128", "drm", node="dri/renderD128")
    one = "{name: gpu, groups: [{select: {subsystem: drm, name: 'renderD*'}}]}"
    (device,) = machine.plugin(one).discover()
    assert dp.Topology((1,)) == device.topology
    behind = one.replace("{subsystem: drm, name: 'renderD*'}", "{subsystem: pci}, nodes: [drm]")
    (device,) = machine.plugin(behind).discover()
    node = f"{machine.dev}/dri/renderD128"
    assert [(node, "/dev/dri/renderD128"), (node, "/dev/dri/by-path/pci-0000:03:00.0-render")] == (
        paths(device)
    )


def test_templates_are_filled_with_what_is_known_of_the_device(machine: Machine) -> None:
    adapter(machine, "1-2", 5, "S1")
    (device,) = machine.plugin("""
        name: tty
        groups: [{select: {subsystem: tty}, mountPath: /dev/zigbee}]
        env: {"TTY_{index}": "{serial} {port} {vendor}:{product} {basename} {{{share}}}"}
        annotations: {"x.io/{name}": "{id}"}
        mounts: [{path: "/var/lib/zigbee/{serial}", mountPath: /data}]
        cdi: ["x.io/tty={index}"]
        """).discover()
    assert [(f"{machine.dev}/ttyUSB0", "/dev/zigbee")] == paths(device)
    assert {"TTY_0": "S1 1-2 1a86:7523 ttyUSB0 {0}"} == device.envs
    assert {"x.io/tty": "tty-S1:1.0"} == device.annotations
    assert (dp.Mount("/var/lib/zigbee/S1", "/data"),) == device.mounts
    assert ("x.io/tty=0",) == device.cdi_names


@pytest.mark.parametrize(
    ("more", "numbered"),
    [
        (", mountPath: '/dev/tty{position}'}]", True),
        ("}], env: {'TTY{position}': '{serial}'}", True),
        ("}], env: {TTY: '{position}'}", True),
        ("}], annotations: {'x.io/{position}': ''}", True),
        ("}], annotations: {'x.io/tty': '{position}'}", True),
        ("}], mounts: [{path: /x, mountPath: '/x/{position}'}]", True),
        ("}], env: {A: '{{position}}'}", False),
    ],
)
def test_whatever_has_the_position_of_a_device_is_numbered(
    machine: Machine, more: str, numbered: bool
) -> None:
    adapter(machine, "1-2", 5, "S1")
    (device,) = machine.plugin(
        f"{{name: tty, groups: [{{select: {{subsystem: tty}}{more}}}"
    ).discover()
    given = str(device.allocation_at(7))
    assert (numbered, numbered) == (device.numbered, "{position}" not in given and "7" in given)


def test_two_devices_in_one_place_are_refused_unless_they_are_numbered(machine: Machine) -> None:
    adapter(machine, "1-2", 5, "S1")
    adapter(machine, "1-3", 6, "S2", "ttyUSB1")
    entry = "{name: tty, groups: [{count: 2, select: {subsystem: tty}, mountPath: '/dev/tty%s'}]}"
    plugin = machine.plugin(entry % "")
    devices = list(plugin.discover())
    assert 4 == len(devices)
    with pytest.raises(dp.AllocationError, match=r"^/dev/tty in the container would be .*tty-S1"):
        plugin.allocate(devices)
    assert 1 == len(plugin.allocate(devices[:2]).nodes)
    plugin = machine.plugin(entry % "{position}")
    given = plugin.allocate(list(plugin.discover()))
    expected = [(f"{machine.dev}/ttyUSB{number}", f"/dev/tty{number}") for number in (0, 1)]
    assert expected == paths(given)


def test_what_cannot_be_read_in_an_id_is_escaped_and_what_is_too_long_is_hashed(
    machine: Machine,
) -> None:
    adapter(machine, "1-1", 1, "a b\u00e9")
    adapter(machine, "1-2", 2, "x" * 80, "ttyUSB1")
    ids = sorted(found(machine.plugin(TTYS)), key=len)
    assert "tty-a%20b%C3%A9" == ids[0]
    assert 40 == len(ids[1])
