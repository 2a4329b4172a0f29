"""USB devices and selectors: what is found, under which ids, with which nodes."""

import hashlib

import pytest

import deviceplugin as dp
from discovered import found
from generic.plugin import Make
from hardware.tree import Hardware

CH340 = "{vendor: 1a86, product: '7523'}"
TTYS = "{name: tty, groups: [{usb: [{vendor: 1a86, product: '7523'}], nodes: [tty]}]}"


def paths(device: dp.Device) -> list[tuple[str, str]]:
    return [(node.host_path, node.container_path) for node in device.nodes]


def adapter(
    hardware: Hardware, port: str, number: int, serial: str = "", tty: str = "ttyUSB0"
) -> str:
    usb = hardware.usb(port, "1a86:7523", number, serial=serial)
    hardware.behind_usb(usb, "1.0", "tty", tty, driver="ch341")
    return usb


def test_all_usb_devices_of_a_group_are_one_device_in_a_stable_order(
    make: Make, hardware: Hardware
) -> None:
    for port, number in (("1-3", 12), ("1-2", 9), ("1-1", 7)):
        adapter(hardware, port, number, tty=f"ttyUSB{number}")
    (device,) = make(f"{{name: ab, groups: [{{usb: [{CH340}]}}]}}").discover()
    expected = [
        (f"{hardware.dev}/bus/usb/001/{n}", f"/dev/bus/usb/001/{n}") for n in ("007", "009", "012")
    ]
    assert expected == paths(device)
    assert {"rw"} == {node.permissions for node in device.nodes}
    assert device.health


def test_a_usb_device_that_two_specs_of_a_group_find_counts_twice_in_its_id(
    make: Make, hardware: Hardware
) -> None:
    adapter(hardware, "1-1", 7, serial="S1")
    node = f"{hardware.dev}/bus/usb/001/007"
    plugin = make(f"{{name: ab, groups: [{{usb: [{CH340}, {CH340[:-1]}, serial: S1}}]}}]}}")
    (device,) = plugin.discover()
    assert hashlib.sha1(f"0{node}{node}".encode()).hexdigest() == device.id
    assert [(node, "/dev/bus/usb/001/007")] == paths(device)
    by_serial = make(f"{{name: ab, id: serial, groups: [{{usb: [{CH340}, {CH340}]}}]}}")
    assert ["ab-S1"] == list(found(by_serial))
    by_port = make(f"{{name: ab, id: port, groups: [{{count: 2, usb: [{CH340}]}}]}}")
    assert ["ab-1-1::0", "ab-1-1::1"] == list(found(by_port))
    each = make(f"{{name: ab, groups: [{{perMatch: true, usb: [{CH340}, {CH340}]}}]}}")
    assert [hashlib.sha1(f"0{node}".encode()).hexdigest()] == list(found(each))


def test_a_usb_device_is_found_by_its_serial_number(make: Make, hardware: Hardware) -> None:
    adapter(hardware, "1-1", 1, "A")
    adapter(hardware, "1-2", 2, "B", "ttyUSB1")
    spec = "{vendor: '0x1A86', product: '7523', serial: B}"
    (device,) = make(f"{{name: ab, groups: [{{usb: [{spec}]}}]}}").discover()
    assert ("B", "1-2") == (device.attributes["serial"], device.attributes["port"])


def test_entries_without_numbers_are_no_devices(make: Make, hardware: Hardware) -> None:
    folder = hardware.sys / "devices" / adapter(hardware, "1-1", 1)
    (folder / "busnum").write_text("odd\n")
    assert {} == found(make(f"{{name: ab, groups: [{{usb: [{CH340}]}}]}}"))
    (folder / "idVendor").write_text("odd\n")
    assert {} == found(make(f"{{name: ab, groups: [{{usb: [{CH340}]}}]}}"))


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("idVendor", "1A86", 1),
        ("idVendor", " 1a86", 0),
        ("idVendor", "0x1a86", 0),
        ("idVendor", "+1a86", 0),
        ("idVendor", "1_a86", 0),
        ("idVendor", "01a86", 0),
        ("idVendor", "1a86\n\n", 0),
        ("idProduct", "7523 ", 0),
        ("idProduct", "", 0),
        ("devnum", "+5", 0),
        ("devnum", " 5", 0),
        ("busnum", "0_1", 0),
        ("busnum", "\u0661", 0),
    ],
)
def test_a_usb_device_is_known_by_four_digits_of_its_own(
    make: Make, hardware: Hardware, name: str, text: str, expected: int
) -> None:
    folder = hardware.sys / "devices" / adapter(hardware, "1-1", 5)
    (folder / name).write_text(f"{text}\n")
    entry = f"{{name: ab, groups: [{{usb: [{CH340}]}}]}}"
    assert expected == len(found(make(entry)))
    (folder / "subsystem").unlink()
    assert expected == len(found(make(entry)))


def test_usb_devices_need_no_links_in_sysfs(make: Make, hardware: Hardware) -> None:
    folder = hardware.sys / "bus/usb/devices/1-1"
    folder.mkdir(parents=True)
    for name, text in {
        "idVendor": "1a86",
        "idProduct": "7523",
        "busnum": "1",
        "devnum": "5",
        "serial": "S",
    }.items():
        (folder / name).write_text(f"{text}\n")
    plugin = make(f"{{name: ab, id: serial, groups: [{{usb: [{CH340}]}}]}}")
    assert ["ab-S"] == list(found(plugin))


def test_a_hub_does_not_bring_what_is_plugged_into_it(make: Make, hardware: Hardware) -> None:
    hub = adapter(hardware, "1-1", 2, "HUB")
    below = hardware.usb("1-1.1", "1a86:7523", 3, serial="LOW")
    assert below == f"{hub}/1-1.1"
    devices = found(make(TTYS))
    assert [(f"{hardware.dev}/ttyUSB0", "/dev/ttyUSB0")] == paths(devices["tty-HUB"])


@pytest.mark.parametrize(("serial", "expected"), [("S1", "tty-S1:1.0"), ("", "tty-1-2:1.0")])
def test_a_device_keeps_its_id_when_its_node_gets_another_number(
    make: Make, hardware: Hardware, serial: str, expected: str
) -> None:
    plugin = make("{name: tty, groups: [{select: {subsystem: tty, vendor: 1a86}}]}")
    usb = adapter(hardware, "1-2", 5, serial)
    assert {expected: f"{hardware.dev}/ttyUSB0"} == {
        one: device.nodes[0].host_path for one, device in found(plugin).items()
    }
    hardware.unplug(usb)
    assert {} == found(plugin)
    adapter(hardware, "1-2", 6, serial, "ttyUSB7")
    assert {expected: f"{hardware.dev}/ttyUSB7"} == {
        one: device.nodes[0].host_path for one, device in found(plugin).items()
    }


def test_nodes_of_one_camera_have_ids_of_their_own(make: Make, hardware: Hardware) -> None:
    usb = hardware.usb("1-4", "046d:0825", 4, serial="C1")
    for index in ("0", "1"):
        hardware.behind_usb(usb, "1.0", "video4linux", f"video{index}", index=index)
    plugin = make("{name: cam, groups: [{select: {subsystem: video4linux}}]}")
    assert ["cam-C1:1.0.0", "cam-C1:1.0.1"] == list(found(plugin))
    first = make(
        "{name: cam, groups: [{select: {subsystem: video4linux, attributes: {index: '0'}}}]}"
    )
    assert ["cam-C1:1.0.0"] == list(found(first))


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
def test_a_selector_looks_at_sysfs_and_udev(
    make: Make, hardware: Hardware, selector: str, matches: bool
) -> None:
    hardware.pci("0000:00:14.0", "8086:a36d", "0c0330", driver="xhci_hcd")
    usb = hardware.usb("1-2", "1a86:7523", 5, serial="S1")
    hardware.behind_usb(
        usb,
        "1.0",
        "tty",
        "ttyUSB0",
        driver="ch341",
        properties={"ID_MODEL": "ZigStick"},
        links=("serial/by-id/usb-1a86",),
    )
    plugin = make(f"{{name: ab, groups: [{{select: {{subsystem: tty, {selector}}}}}]}}")
    assert matches == bool(found(plugin))


def test_an_iommu_group_is_one_device(make: Make, hardware: Hardware) -> None:
    for number in ("0", "1"):
        hardware.pci(f"0000:65:00.{number}", "10de:1eb8", "030200", group="7", driver="vfio-pci")
    plugin = make(
        "{name: gpu, groups: [{select: {subsystem: pci, driver: vfio-pci}, "
        "nodes: [vfio]}], env: {'PCI_{group}': '{address} {vendor} {product}'}}"
    )
    (device,) = plugin.discover()
    assert ["/dev/vfio/vfio", "/dev/vfio/7"] == [node.container_path for node in device.nodes]
    assert {"PCI_7": "0000:65:00.0 10de 1eb8"} == device.envs
    assert "gpu-0000:65:00.0" == device.id


def test_nodes_behind_a_pci_device_are_found_with_their_numa_node(
    make: Make, hardware: Hardware
) -> None:
    hardware.pci("0000:03:00.0", "1002:73bf", "030000", numa=1)
    hardware.device("pci0000:00/0000:03:00.0/drm/renderD128", "drm", node="dri/renderD128")
    one = "{name: gpu, groups: [{select: {subsystem: drm, name: 'renderD*'}}]}"
    (device,) = make(one).discover()
    assert dp.Topology((1,)) == device.topology
    behind = one.replace("{subsystem: drm, name: 'renderD*'}", "{subsystem: pci}, nodes: [drm]")
    (device,) = make(behind).discover()
    assert [(f"{hardware.dev}/dri/renderD128", "/dev/dri/renderD128")] == paths(device)


def test_templates_are_filled_with_what_is_known_of_the_device(
    make: Make, hardware: Hardware
) -> None:
    adapter(hardware, "1-2", 5, "S1")
    (device,) = make("""
        name: tty
        groups: [{select: {subsystem: tty}, mountPath: /dev/zigbee}]
        env: {"TTY_{index}": "{serial} {port} {vendor}:{product} {basename} {{{share}}}"}
        annotations: {"x.io/{name}": "{id}"}
        mounts: [{path: "/var/lib/zigbee/{serial}", mountPath: /data}]
        cdi: ["x.io/tty={index}"]
        """).discover()
    assert [(f"{hardware.dev}/ttyUSB0", "/dev/zigbee")] == paths(device)
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
    make: Make, hardware: Hardware, more: str, numbered: bool
) -> None:
    adapter(hardware, "1-2", 5, "S1")
    (device,) = make(f"{{name: tty, groups: [{{select: {{subsystem: tty}}{more}}}").discover()
    given = str(device.allocation_at(7))
    assert (numbered, numbered) == (device.numbered, "{position}" not in given and "7" in given)


def test_two_devices_in_one_place_are_refused_unless_they_are_numbered(
    make: Make, hardware: Hardware
) -> None:
    adapter(hardware, "1-2", 5, "S1")
    adapter(hardware, "1-3", 6, "S2", "ttyUSB1")
    entry = "{name: tty, groups: [{count: 2, select: {subsystem: tty}, mountPath: '/dev/tty%s'}]}"
    plugin = make(entry % "")
    devices = list(plugin.discover())
    assert 4 == len(devices)
    with pytest.raises(dp.AllocationError, match=r"^/dev/tty in the container would be .*tty-S1"):
        plugin.allocate(devices)
    assert 1 == len(plugin.allocate(devices[:2]).nodes)
    plugin = make(entry % "{position}")
    assert [
        (f"{hardware.dev}/ttyUSB0", "/dev/tty0"),
        (f"{hardware.dev}/ttyUSB1", "/dev/tty1"),
    ] == [
        (one.host_path, one.container_path)
        for one in plugin.allocate(list(plugin.discover())).nodes
    ]


def test_what_cannot_be_read_in_an_id_is_escaped_and_what_is_too_long_is_hashed(
    make: Make, hardware: Hardware
) -> None:
    adapter(hardware, "1-1", 1, "a b\u00e9")
    adapter(hardware, "1-2", 2, "x" * 80, "ttyUSB1")
    ids = sorted(found(make(TTYS)), key=len)
    assert "tty-a%20b%C3%A9" == ids[0]
    assert 40 == len(ids[1])
