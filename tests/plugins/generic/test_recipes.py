"""The recipes work, and the tables of the README tell the truth."""

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest
import yaml

import deviceplugin as dp
from deviceplugin_generic import GenericSettings
from deviceplugin_generic.configuration.entries import UNLIMITED
from generic.plugin import Make, make_node
from hardware.recording import play
from hardware.tree import Hardware

ROOT = Path(__file__).parents[3]
README = (ROOT / "plugins/generic/README.md").read_text(encoding="utf-8")
RECIPES = {
    entry["name"]: yaml.safe_dump(entry)
    for entry in yaml.safe_load((ROOT / "plugins/generic/recipes.yaml").read_text())["devices"]
}
PCI = "pci0000:00/0000:03:00.0"


def _tty(hardware: Hardware, numbers: str, name: str) -> None:
    usb = hardware.usb("1-2", numbers, 5, serial="0001A")
    hardware.behind_usb(usb, "1.0", "tty", name)


def _camera(hardware: Hardware) -> None:
    usb = hardware.usb("1-4", "046d:0825", 4, serial="C1")
    for index in ("0", "1"):
        hardware.behind_usb(
            usb, "1.0", "video4linux", f"video{index}", index=index, driver="uvcvideo"
        )
    codec = "platform/soc/fe00b840.mailbox/bcm2835-codec"  # of a Raspberry Pi
    hardware.device(codec, "platform", driver="bcm2835-codec", is_bus=True)
    for number in ("10", "11"):
        hardware.device(
            f"{codec}/video4linux/video{number}",
            "video4linux",
            node=f"video{number}",
            attributes={"index": number[1], "name": "bcm2835-codec"},
        )


def _render(hardware: Hardware) -> None:
    hardware.pci("0000:03:00.0", "1002:73bf", "030000")
    hardware.device(f"{PCI}/drm/card0", "drm", node="dri/card0")
    hardware.device(f"{PCI}/drm/renderD128", "drm", node="dri/renderD128")


def _sound(hardware: Hardware) -> None:
    for name in ("controlC0", "pcmC0D0p", "seq", "timer"):
        make_node(hardware.dev / "snd" / name)


def _iommufd(hardware: Hardware) -> None:
    folder = hardware.pci("0000:03:00.0", "8086:1533", "020000", group="9", driver="mlx5_vfio_pci")
    hardware.vfio_device(folder, 0)


def _mediated(hardware: Hardware) -> None:
    hardware.pci("0000:00:02.0", "8086:3e98", "030000", group="2", driver="i915")
    path = "pci0000:00/0000:00:02.0/83b8f4f2-509f-382f-3c1e-e6bfe0fa1001"
    hardware.join(hardware.device(path, "mdev", driver="vfio_mdev", is_bus=True), "9")
    hardware.vfio("9")


def _recorded(name: str) -> Callable[[Hardware], object]:
    return lambda hardware: play(name, hardware)


def _misc(name: str, subsystem: str = "misc") -> Callable[[Hardware], object]:
    return lambda hardware: hardware.device(f"virtual/{name}", subsystem, node=name)


EXPECTED: dict[str, tuple[Callable[[Hardware], object], int, str, list[str]]] = {
    "camera": (_camera, 1, "camera-C1:1.0.0", ["/dev/video{position}"]),
    "zigbee": (
        lambda hardware: _tty(hardware, "10c4:ea60", "ttyUSB3"),
        1,
        "zigbee-0001A:1.0",
        ["/dev/zigbee"],
    ),
    "zwave": (
        lambda hardware: _tty(hardware, "0658:0200", "ttyACM0"),
        1,
        "zwave-0001A",
        ["/dev/zwave"],
    ),
    "serial": (
        lambda hardware: _tty(hardware, "0403:6001", "ttyUSB0"),
        1,
        "serial-0001A:1.0",
        ["/dev/ttyUSB0"],
    ),
    "render": (_render, 4, "render-0000:03:00.0/renderD128::0", ["/dev/dri/renderD128"]),
    "kvm": (_misc("kvm"), UNLIMITED, "kvm-kvm::0", ["/dev/kvm"]),
    "fuse": (
        lambda hardware: hardware.node("fuse"),
        10,
        "a68db766f638034740111848aafee2d2dcd6b642",
        ["/dev/fuse"],
    ),
    "tpm": (_misc("tpmrm0", "tpmrm"), 1, "tpm-tpmrm0", ["/dev/tpmrm0"]),
    "sound": (_sound, 10, "42026c45b2108596b87825e145b9f397d1d184d0", ["/dev/snd"]),
    "sdr": (
        lambda hardware: hardware.usb("1-2", "0bda:2838", 9, serial="00000001"),
        1,
        "sdr-1-2",
        ["/dev/bus/usb/001/009"],
    ),
    "nic": (
        lambda hardware: hardware.pci(
            "0000:03:00.0", "8086:1533", "020000", group="9", driver="vfio-pci"
        ),
        1,
        "nic-0000:03:00.0",
        ["/dev/vfio/vfio", "/dev/vfio/9"],
    ),
    "nic-iommufd": (
        _iommufd,
        1,
        "nic-iommufd-0000:03:00.0",
        ["/dev/vfio/devices/vfio0", "/dev/iommu"],
    ),
    "mdev": (
        _mediated,
        1,
        "mdev-0000:00:02.0/83b8f4f2-509f-382f-3c1e-e6bfe0fa1001",
        ["/dev/vfio/vfio", "/dev/vfio/9"],
    ),
    "accel": (_recorded("npu"), 10, "accel-0000:00:0b.0/accel0::0", ["/dev/accel/accel0"]),
    "xdna": (_recorded("xdna"), 10, "xdna-0000:c5:00.1/accel0::0", ["/dev/accel/accel0"]),
    "i915": (
        _recorded("i915"),
        4,
        "i915-0000:4d:00.0::0",
        ["/dev/dri/card1", "/dev/dri/renderD128"],
    ),
    "xe": (_recorded("xe"), 2, "xe-0000:03:00.1", ["/dev/dri/card1", "/dev/dri/renderD129"]),
    "tun": (_recorded("misc"), UNLIMITED, "tun-tun::0", ["/dev/net/tun"]),
    "vhost-net": (
        _recorded("misc"),
        UNLIMITED,
        "vhost-net-vhost-net::0",
        ["/dev/vhost-net", "/dev/net/tun"],
    ),
    "hailo": (_recorded("hailo"), 2, "hailo-0000:01:00.0/hailo0", ["/dev/hailo0"]),
    "coral": (_recorded("coral"), 1, "coral-0000:01:00.0/apex_0", ["/dev/apex_0"]),
    "blackhole": (
        _recorded("tenstorrent"),
        1,
        "blackhole-0000:81:00.0/tenstorrent!0",
        ["/dev/tenstorrent/0"],
    ),
    "enclave": (_recorded("misc"), 110, "enclave-sgx_enclave::0", ["/dev/sgx_enclave"]),
    "provision": (_recorded("misc"), 110, "provision-sgx_provision::0", ["/dev/sgx_provision"]),
    "wq-user-dedicated": (
        _recorded("dsa"),
        2,
        "wq-user-dedicated-0000:6a:01.0/dsa!wq0.0",
        ["/dev/dsa/wq0.0"],
    ),
    "wq-user-shared": (
        _recorded("dsa"),
        10,
        "wq-user-shared-0000:6a:01.0/dsa!wq0.2::0",
        ["/dev/dsa/wq0.2"],
    ),
}


def test_every_recipe_is_tested() -> None:
    assert list(EXPECTED) == list(RECIPES)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_recipe_gives_what_it_says(make: Make, hardware: Hardware, name: str) -> None:
    build, number, first, nodes = EXPECTED[name]
    build(hardware)
    if name in {"fuse", "sound"} and not Path(nodes[0]).exists():
        pytest.skip(f"no {nodes[0]} here")
    devices = list(make(RECIPES[name]).discover())
    assert number == len(devices)
    assert (first, nodes) == (devices[0].id, [node.container_path for node in devices[0].nodes])
    assert all(device.health for device in devices)


def test_the_recipe_for_sound_gives_the_directory_with_all_that_alsa_wants(
    make: Make, hardware: Hardware
) -> None:
    _sound(hardware)
    devices = list(make(RECIPES["sound"].replace("/dev/snd", f"{hardware.dev}/snd")).discover())
    assert 10 == len(devices)
    for device in devices:
        assert device.health
        assert [f"{hardware.dev}/snd"] == [node.host_path for node in device.nodes]


def test_a_component_that_an_entry_needs_is_one_of_the_deployments() -> None:
    named = {row[1].strip("`") for row in table("Deploy") if row[1].startswith("`")}
    assert {"host-dev", "udev"} == named
    assert all((ROOT / "deployments/components" / one).is_dir() for one in named)


def test_the_recipes_with_more_than_nodes_give_that_too(make: Make, hardware: Hardware) -> None:
    _tty(hardware, "0658:0200", "ttyACM0")
    (stick,) = make(RECIPES["zwave"]).discover()
    assert (dp.Mount("/var/lib/zwave/1-2", "/data"),) == stick.mounts
    (adapter,) = make(RECIPES["serial"]).discover()
    assert {"SERIAL_0": "/dev/ttyACM0"} == adapter.envs


def table(heading: str) -> list[list[str]]:
    lines = README.partition(f"## {heading}\n")[2].partition("\n## ")[0].splitlines()
    rows = [line for line in lines if line.startswith("|")][2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_the_settings_are_those_of_the_code() -> None:
    common = {field.name for field in fields(dp.Settings)}
    own = [f"`{field.name}`" for field in fields(GenericSettings) if field.name not in common]
    assert own == [row[0] for row in table("Settings")]
