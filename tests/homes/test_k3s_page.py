"""The page on a stick and a camera, carried out line by line on a stand-in for a cluster."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cluster.container import BIN
from cluster.following import Shell, follow
from cluster.kinds import NODE
from cluster.pod import NAME
from cluster.small_cluster import SHELL, SmallCluster, running, why_not
from hardware.tree import Hardware

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "plugins/generic/docs/k3s.md").read_text()
PLUGIN = "generic-device-plugin"
_IMAGE = """#!{python}
from pathlib import Path
import deviceplugin as dp
from deviceplugin_generic import GenericPlugin, GenericSettings, Roots, check, explain

root = Path({root!r})
dp.main(
    lambda settings: GenericPlugin(settings, Roots(root / "dev", root / "sys", root / "udev")),
    settings=GenericSettings,
    commands={{"check": check, "explain": lambda words: explain([*words, f"--root={{root}}/pod"])}},
)
"""
"""The plugin, on a node's hardware in a folder."""


def script(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """Return the root of a node with a stick and a camera, and in it what the pod sees of it."""
    made = Hardware(tmp_path / "node")
    stick = made.usb("1-1.2", "10c4:ea60", 5, serial="0c3b5d4a")
    (made.sys / "devices" / stick / "product").write_text("SONOFF Zigbee 3.0 USB Dongle\n")
    made.behind_usb(stick, "1.0", "tty", "ttyUSB0", driver="cp210x")
    camera = made.usb("1-1.3", "046d:0825", 6, serial="7B0E8A60")
    (made.sys / "devices" / camera / "product").write_text("HD Webcam C270\n")
    for index in "01":
        name = f"video{index}"
        made.behind_usb(camera, "1.0", "video4linux", name, driver="uvcvideo", index=index)
    (tmp_path / "node/pod/dev").mkdir(parents=True)
    for name in ("sys", "udev"):
        (tmp_path / "node/pod" / name).symlink_to(f"../{name}")
    return tmp_path / "node"


@pytest.fixture
def plugin(node: Path, tmp_path: Path) -> Path:
    """Return the program of the plugin's image, which sees the node's hardware."""
    text = _IMAGE.format(root=str(node), python=BIN / "python")
    return script(tmp_path / PLUGIN, text)


@pytest.fixture
def cluster(plugin: Path) -> Iterator[SmallCluster]:
    with running({f"{PLUGIN}:0.1.0": [str(plugin)], **SHELL}) as made:
        about = {"architecture": "arm64", "kubeletVersion": "v1.34.1+k3s1"}
        address = {"type": "InternalIP", "address": "192.0.2.7"}
        facts = {"nodeInfo": about, "addresses": [address]}
        made.store.change(NODE, "", NAME, lambda found: found["status"].update(facts))
        yield made


@pytest.mark.skipif(bool(why_not()), reason=why_not() or "-")
@pytest.mark.slow  # kubectl for each step, and a plugin
def test_the_page_leads_from_nothing_to_a_pod_with_a_stick_and_a_camera(
    cluster: SmallCluster,
    plugin: Path,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    desk = tmp_path / "desk"
    desk.mkdir()
    for name in ("docker", "ssh"):
        script(desk / name, "#!/bin/sh\n[ $1 != save ] || : > $3\n")
    clone = f"cp -r {ROOT}/build {ROOT}/deployments device-plugins"
    instead = [
        ("git clone https://git.example.com/hw/device-plugins.git", f"{clone}"),
        (f"-- {PLUGIN}", f"-- {plugin}"),
    ]
    paths = {"PATH": f"{desk}:{os.environ['PATH']}", "IMAGE_TOOL": "docker"}
    (desk / "device-plugins/plugins/generic").mkdir(parents=True)
    shutil.copy(ROOT / "plugins/generic/pyproject.toml", desk / "device-plugins/plugins/generic")
    shell = Shell(desk, {**paths, **cluster.environment})
    followed = follow(
        PAGE, shell, instead=instead, printed=(str(plugin.parent / "node/dev"), "/dev")
    )
    took = f"{len(followed.commands)} commands, {followed.seconds:.1f} s"
    record_property("page", f"a stick and a camera on k3s: {took}")
    assert 12 == len(followed.commands)
