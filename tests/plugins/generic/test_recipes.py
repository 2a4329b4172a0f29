"""The recipes work, and the tables of the README tell the truth."""

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest
import yaml

import deviceplugin as dp
from deviceplugin._config.loading import key
from deviceplugin_generic import GenericSettings
from deviceplugin_generic.configuration.entries import UNLIMITED
from generic.plugin import Machine, make_node
from hardware.recording import play

ROOT = Path(__file__).parents[3]
README = (ROOT / "plugins/generic/README.md").read_text(encoding="utf-8")
RECIPES = {
    entry["name"]: yaml.safe_dump(entry)
    for entry in yaml.safe_load((ROOT / "plugins/generic/recipes.yaml").read_text())["devices"]
}
PCI = "pci0000:00/0000:03:00.0"


def _tty(machine: Machine, numbers: str, name: str) -> None:
    usb = machine.usb("1-2", numbers, 5, serial="0001A")
    machine.behind_usb(usb, "1.0", "tty", name)


def _camera(machine: Machine) -> None:
    usb = machine.usb("1-4", "046d:0825", 4, serial="C1")
    for index in ("0", "1"):
        machine.behind_usb(
            usb, "1.0", "video4linux", f"video{index}", index=index, driver="uvcvideo"
        )
    codec = "platform/soc/fe00b840.mailbox/bcm2835-codec"  # of a Raspberry Pi
    machine.device(codec, "platform", driver="bcm2835-codec", is_bus=True)
    for number in ("10", "11"):
        machine.device(
            f"{codec}/video4linux/video{number}",
            "video4linux",
            node=f"video{number}",
            attributes={"index": number[1], "name": "bcm2835-codec"},
        )


def _render(machine: Machine) -> None:
    machine.pci("0000:03:00.0", "1002:73bf", "030000")
    machine.device(f"{PCI}/drm/card0", "drm", node="dri/card0")
    machine.device(f"{PCI}/drm/renderD128", "drm", node="dri/renderD128")


def _sound(machine: Machine) -> None:
    for name in ("controlC0", "pcmC0D0p", "seq", "timer"):
        make_node(machine.dev / "snd" / name)


def _iommufd(machine: Machine) -> None:
    folder = machine.pci("0000:03:00.0", "8086:1533", "020000", group="9", driver="mlx5_vfio_pci")
    machine.vfio_device(folder, 0)


def _mediated(machine: Machine) -> None:
    machine.pci("0000:00:02.0", "8086:3e98", "030000", group="2", driver="i915")
    path = "pci0000:00/0000:00:02.0/83b8f4f2-509f-382f-3c1e-e6bfe0fa1001"
    machine.join(machine.device(path, "mdev", driver="vfio_mdev", is_bus=True), "9")
    machine.vfio("9")


def _recorded(name: str) -> Callable[[Machine], object]:
    return lambda machine: play(name, machine)


def _misc(name: str, subsystem: str = "misc") -> Callable[[Machine], object]:
    return lambda machine: machine.device(f"virtual/{name}", subsystem, node=name)


BUILD: dict[str, Callable[[Machine], object]] = {
    "camera": _camera,
    "zigbee": lambda machine: _tty(machine, "10c4:ea60", "ttyUSB3"),
    "zwave": lambda machine: _tty(machine, "0658:0200", "ttyACM0"),
    "serial": lambda machine: _tty(machine, "0403:6001", "ttyUSB0"),
    "render": _render,
    "kvm": _misc("kvm"),
    "fuse": lambda machine: machine.node("fuse"),
    "tpm": _misc("tpmrm0", "tpmrm"),
    "sound": _sound,
    "sdr": lambda machine: machine.usb("1-2", "0bda:2838", 9, serial="00000001"),
    "nic": lambda machine: machine.pci(
        "0000:03:00.0", "8086:1533", "020000", group="9", driver="vfio-pci"
    ),
    "nic-iommufd": _iommufd,
    "mdev": _mediated,
    **{name: _recorded(name) for name in ("xdna", "i915", "xe", "hailo", "coral")},
    **{name: _recorded("misc") for name in ("tun", "vhost-net", "enclave", "provision")},
    **{name: _recorded("dsa") for name in ("wq-user-dedicated", "wq-user-shared")},
    "accel": _recorded("npu"),
    "blackhole": _recorded("tenstorrent"),
}
MDEV = "83b8f4f2-509f-382f-3c1e-e6bfe0fa1001"
EXPECTED = {
    name: (int(number), first, [f"/dev/{node}" for node in nodes])
    for name, number, first, *nodes in map(
        str.split,
        f"""
        camera 1 camera-C1:1.0.0 video{{position}}
        zigbee 1 zigbee-0001A:1.0 zigbee
        zwave 1 zwave-0001A zwave
        serial 1 serial-0001A:1.0 ttyUSB0
        render 4 render-0000:03:00.0/renderD128::0 dri/renderD128
        kvm {UNLIMITED} kvm-kvm::0 kvm
        fuse 10 a68db766f638034740111848aafee2d2dcd6b642 fuse
        tpm 1 tpm-tpmrm0 tpmrm0
        sound 10 42026c45b2108596b87825e145b9f397d1d184d0 snd
        sdr 1 sdr-1-2 bus/usb/001/009
        nic 1 nic-0000:03:00.0 vfio/vfio vfio/9
        nic-iommufd 1 nic-iommufd-0000:03:00.0 vfio/devices/vfio0 iommu
        mdev 1 mdev-0000:00:02.0/{MDEV} vfio/vfio vfio/9
        accel 10 accel-0000:00:0b.0/accel0::0 accel/accel0
        xdna 10 xdna-0000:c5:00.1/accel0::0 accel/accel0
        i915 4 i915-0000:4d:00.0::0 dri/card1 dri/renderD128
        xe 2 xe-0000:03:00.1 dri/card1 dri/renderD129
        tun {UNLIMITED} tun-tun::0 net/tun
        vhost-net {UNLIMITED} vhost-net-vhost-net::0 vhost-net net/tun
        hailo 2 hailo-0000:01:00.0/hailo0 hailo0
        coral 1 coral-0000:01:00.0/apex_0 apex_0
        blackhole 1 blackhole-0000:81:00.0/tenstorrent!0 tenstorrent/0
        enclave 110 enclave-sgx_enclave::0 sgx_enclave
        provision 110 provision-sgx_provision::0 sgx_provision
        wq-user-dedicated 2 wq-user-dedicated-0000:6a:01.0/dsa!wq0.0 dsa/wq0.0
        wq-user-shared 10 wq-user-shared-0000:6a:01.0/dsa!wq0.2::0 dsa/wq0.2
        """.strip().splitlines(),
    )
}
"""How many devices each recipe has, the first id, and its nodes."""


def test_every_recipe_is_tested() -> None:
    assert list(EXPECTED) == list(RECIPES)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_recipe_gives_what_it_says(machine: Machine, name: str) -> None:
    number, first, nodes = EXPECTED[name]
    BUILD[name](machine)
    if name in {"fuse", "sound"} and not Path(nodes[0]).exists():
        pytest.skip(f"no {nodes[0]} here")
    devices = list(machine.plugin(RECIPES[name]).discover())
    assert number == len(devices)
    assert (first, nodes) == (devices[0].id, [node.container_path for node in devices[0].nodes])
    assert all(device.health for device in devices)


def test_the_recipe_for_sound_gives_the_directory_with_all_that_alsa_wants(
    machine: Machine,
) -> None:
    _sound(machine)
    devices = list(
        machine.plugin(RECIPES["sound"].replace("/dev/snd", f"{machine.dev}/snd")).discover()
    )
    assert 10 == len(devices)
    for device in devices:
        assert device.health
        assert [f"{machine.dev}/snd"] == [node.host_path for node in device.nodes]


def test_a_component_that_an_entry_needs_is_one_of_the_deployments() -> None:
    named = {row[1].strip("`") for row in table("Deploy") if row[1].startswith("`")}
    assert {"host-dev", "udev"} == named
    assert all((ROOT / "deployments/components" / one).is_dir() for one in named)


def test_the_recipes_with_more_than_nodes_give_that_too(machine: Machine) -> None:
    _tty(machine, "0658:0200", "ttyACM0")
    (stick,) = machine.plugin(RECIPES["zwave"]).discover()
    assert (dp.Mount("/var/lib/zwave/1-2", "/data"),) == stick.mounts
    (adapter,) = machine.plugin(RECIPES["serial"]).discover()
    assert {"SERIAL_0": "/dev/ttyACM0"} == adapter.envs


def table(heading: str) -> list[list[str]]:
    lines = README.partition(f"## {heading}\n")[2].partition("\n## ")[0].splitlines()
    rows = [line for line in lines if line.startswith("|")][2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_the_settings_are_those_of_the_code() -> None:
    common = {field.name for field in fields(dp.Settings)}
    own = [f"`{key(field)}`" for field in fields(GenericSettings) if field.name not in common]
    assert own == [row[0] for row in table("Settings")]
