"""The recipes work, and the tables of the README tell the truth."""

import re
from collections.abc import Callable
from dataclasses import fields
from fnmatch import fnmatch
from functools import partial
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

import deviceplugin as dp
from deviceplugin._config.loading import key
from deviceplugin_generic import GenericSettings
from deviceplugin_generic.configuration.entries import UNLIMITED
from deviceplugin_generic.configuration.loading import Domains
from deviceplugin_generic.discovery.access import access
from deviceplugin_generic.explanation import pods
from generic.plugin import Machine, make_node, write_bits
from hardware.recording import play

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "plugins/generic/recipes.yaml").read_text()
RECIPES = {entry["name"]: yaml.safe_dump(entry) for entry in yaml.safe_load(PAGE)["devices"]}
PODS = {
    name: (pod, tree)
    for pod, tree, name in re.findall(
        r"^  # Pod: (.+)\.\n  # Seen: (.+)\.\n  - name: (.+)$", PAGE, re.MULTILINE
    )
}
"""The other half of each recipe, and where it was carried out."""


def table(heading: str, page: str = "README.md") -> list[list[str]]:
    text = (ROOT / "plugins/generic" / page).read_text(encoding="utf-8")
    lines = text.partition(f"## {heading}\n")[2].partition("\n## ")[0].splitlines()
    rows = [line for line in lines if line.startswith("|")][2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


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


def _gamepad(machine: Machine) -> None:
    usb = machine.usb("1-2", "045e:028e", 5, serial="0001A")
    event = machine.behind_usb(usb, "1.0", "input", "input5/event5", node="input/event5")
    write_bits(event.parent, {"key": "7cdb000000000000 0 0 0 0", "abs": "3003f"})


def _sound(machine: Machine) -> None:
    for name in ("controlC0", "pcmC0D0p", "seq", "timer"):
        make_node(machine.dev / "snd" / name)


def _mediated(machine: Machine) -> None:
    machine.pci("0000:00:02.0", "8086:3e98", "030000", group="2", driver="i915")
    path = "pci0000:00/0000:00:02.0/83b8f4f2-509f-382f-3c1e-e6bfe0fa1001"
    machine.join(machine.device(path, "mdev", driver="vfio_mdev", is_bus=True), "9")
    machine.vfio("9")


def _vdpa(machine: Machine) -> None:
    machine.pci("0000:03:00.2", "15b3:101e", "020000", driver="mlx5_core")
    path = "pci0000:00/0000:03:00.2"
    machine.vhost_vdpa(machine.device(f"{path}/vdpa0", "vdpa", driver="vhost_vdpa", is_bus=True), 3)
    machine.device(f"{path}/vdpa1", "vdpa", driver="virtio_vdpa", is_bus=True)


def _misc(name: str, subsystem: str = "misc") -> Callable[[Machine], object]:
    return lambda machine: machine.device(f"virtual/{name}", subsystem, node=name)


BUILD: dict[str, Callable[[Machine], object]] = {
    "camera": _camera,
    "zigbee": lambda machine: _tty(machine, "10c4:ea60", "ttyUSB3"),
    "zwave": lambda machine: _tty(machine, "0658:0200", "ttyACM0"),
    "serial": lambda machine: _tty(machine, "0403:6001", "ttyUSB0"),
    "render": _render,
    "gamepad": _gamepad,
    "fuse": lambda machine: machine.node("fuse"),
    "tpm": _misc("tpmrm0", "tpmrm"),
    "sound": _sound,
    "sdr": lambda machine: machine.usb("1-2", "0bda:2838", 9, serial="00000001"),
    "nic": lambda machine: machine.pci(
        "0000:03:00.0", "8086:1533", "020000", group="9", driver="vfio-pci"
    ),
    "vdpa": _vdpa,
    "mdev": _mediated,
    **{name: partial(play, seen.split(".")[0]) for name, (_, seen) in PODS.items() if "." in seen},
}
DG = "0000:4d:00.0"
LINK = "dri/by-path/pci-0000"
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
        render 4 render-0000:03:00.0/renderD128::0 dri/renderD128 {LINK}:03:00.0-render
        gamepad 1 gamepad-0001A:1.0.event input/event5
        kvm {UNLIMITED} kvm-kvm::0 kvm
        fuse 10 a68db766f638034740111848aafee2d2dcd6b642 fuse
        tpm 1 tpm-tpmrm0 tpmrm0
        sound 10 42026c45b2108596b87825e145b9f397d1d184d0 snd
        sdr 1 sdr-1-2 bus/usb/001/009
        nic 1 nic-0000:03:00.0 vfio/vfio vfio/9
        vdpa 1 vdpa-0000:03:00.2/vdpa0 vhost-vdpa-3
        mdev 1 mdev-0000:00:02.0/{MDEV} vfio/vfio vfio/9
        accel 10 accel-0000:00:0b.0/accel0::0 accel/accel0
        xdna 10 xdna-0000:c5:00.1/accel0::0 accel/accel0
        i915 4 i915-{DG}::0 dri/card1 dri/renderD128 {LINK}:4d:00.0-card {LINK}:4d:00.0-render
        xe 2 xe-0000:03:00.1 dri/card1 dri/renderD129 {LINK}:03:00.1-card {LINK}:03:00.1-render
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


def test_every_recipe_has_a_pod_and_is_tested_where_it_says() -> None:
    assert list(EXPECTED) == list(RECIPES) == list(PODS)
    assert {"a tree by hand"} == {seen for _, seen in PODS.values() if "umockdev" not in seen}


GROUPS = [
    (pattern, int(row[1][:4], 8), row[2], int(row[3] or 900 + number))
    for number, row in enumerate(table("Groups by kind of node", "docs/pods.md"))
    for pattern in re.findall("`(.+?)`", row[0])
]
"""The page's table: names of nodes, the mode, and the name and number of the group."""


def own(machine: Machine) -> None:
    """Make all nodes as the page's table says that they are."""
    for path in [one for one in machine.dev.rglob("*") if not one.is_dir() or one.is_symlink()]:
        name = str(path.relative_to(machine.dev))
        _, mode, group, number = next(row for row in GROUPS if fnmatch(name, row[0]))
        make_node(path, mode, 0 if group in {"any", "none", "root"} else number)


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_says_what_its_pod_asks_for_and_who_may_open_the_nodes(
    machine: Machine, name: str
) -> None:
    BUILD[name](machine)
    own(machine)
    recipe = RECIPES[name].replace("path: /dev/", f"path: {machine.dev}/")
    first, *_ = machine.plugin(recipe, domain=Domains()).discover()
    found = access(first.nodes, machine.dev)
    groups = [next(row[2] for row in GROUPS if row[3] == one) for one in found.groups]
    who = f"group{'s' * (len(groups) > 1)} {', '.join(sorted(groups))}" if groups else "any user"
    resource, said = PODS[name][0].split("; ")[:2]
    assert f"{first.resource}: 1" == resource
    assert ("root" if found.closed else who) == said.partition(".")[0]
    pod = yaml.safe_load(pods.pod([first.resource], found))
    kubernetes_validate.validate(pod, "1.32", strict=True)
    assert {first.resource: 1} == pod["spec"]["containers"][0]["resources"]["limits"]


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
    assert {"generic-privileged", "host-dev", "udev"} == named
    assert all((ROOT / "deployments/components" / one).is_dir() for one in named)


def test_the_recipes_with_more_than_nodes_give_that_too(machine: Machine) -> None:
    _tty(machine, "0658:0200", "ttyACM0")
    (stick,) = machine.plugin(RECIPES["zwave"]).discover()
    assert (dp.Mount("/var/lib/zwave/1-2", "/data"),) == stick.mounts
    (adapter,) = machine.plugin(RECIPES["serial"]).discover()
    assert {"SERIAL_0": "/dev/ttyACM0"} == adapter.envs
    _mediated(machine)
    (part,) = machine.plugin(RECIPES["mdev"]).discover()
    assert {"MDEV_PCI_RESOURCE_SQUAT_AI_MDEV": MDEV} == part.envs


def test_the_settings_are_those_of_the_code() -> None:
    common = {field.name for field in fields(dp.Settings)}
    own = [f"`{key(field)}`" for field in fields(GenericSettings) if field.name not in common]
    assert own == [row[0] for row in table("Settings")]
