"""The pages of the plugins say what their code says."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import pytest

import deviceplugin as dp
import pages
from amd.machines import MI210
from amd.tree import AmdTree
from deviceplugin_amd import AmdSettings
from deviceplugin_fpga import FpgaSettings
from deviceplugin_intelgpu import IntelGpuSettings
from deviceplugin_rdma import RdmaSettings
from intelgpu.machines import TWO_DRIVERS
from intelgpu.tree import IntelTree
from patience import PATIENCE
from rdma.machines import SAMPLE
from rdma.tree import RdmaTree

PLUGINS = Path(__file__).parents[2] / "plugins"
SETTINGS: Mapping[str, type[dp.Settings]] = {
    "amd": AmdSettings,
    "fpga": FpgaSettings,
    "intelgpu": IntelGpuSettings,
    "rdma": RdmaSettings,
}
CLAIMS = {
    "amd/docs/coming-from-amd.md": "## What is different",
    "fpga/docs/coming-from-intel.md": "## What is different",
    "intelgpu/docs/coming-from-intel.md": "## What is different",
    "rdma/docs/coming-from.md": "## What is different",
}
FLAGS: Mapping[str, tuple[list[str], dict[str, object]]] = {
    "amd": (["resource_naming_strategy=mixed"], {"resource-naming-strategy": "mixed"}),
    "rdma": (["resource-prefix=example.com"], {"resource-prefix": "example.com"}),
    "intelgpu": (
        [
            *("shared-dev-num=4", "allocation-policy=balanced", "allow-ids=0x56c0,0x56c1"),
            *("deny-ids=0x9a49", "bypath=all", "enable-monitoring", "monitoring-mode=split"),
        ],
        {
            "shares": 4,
            "share-policy": "balanced",
            "include": ["0x56c0", "0x56c1"],
            "exclude": ["0x9a49"],
            "bypath": "all",
            "enable-monitoring": True,
            "monitoring-mode": "split",
        },
    ),
}


class Tree(Protocol):
    sys: Path
    dev: Path


TREES: Mapping[str, Callable[[Path], Tree]] = {
    "amd": lambda root: AmdTree(
        root, replace(MI210, addresses=MI210.addresses[:2], hives=MI210.hives[:2])
    ),
    "intelgpu": lambda root: IntelTree(root, TWO_DRIVERS),
}


def readme(name: str) -> str:
    return (PLUGINS / name / "README.md").read_text()


def command(name: str) -> Path:
    return Path(sys.executable).with_name(f"{name}-device-plugin")


@pytest.mark.parametrize("name", TREES)
def test_the_table_on_the_page_is_what_the_command_prints(name: str, tmp_path: Path) -> None:
    tree = TREES[name](tmp_path / "node")
    found = pages.printed(command(name), tree.sys, tree.dev)
    assert found == pages.shown(readme(name), f"{name}-device-plugin --once")


def test_the_table_of_network_cards_is_what_the_command_prints(tmp_path: Path) -> None:
    tree, file, page = RdmaTree(tmp_path / "node", SAMPLE), tmp_path / "nics.json", readme("rdma")
    file.write_text(page.partition("```json\n")[2].partition("```")[0])
    flags = [f"--config={file}", f"--proc-net-dir={tree.net}"]
    found = pages.printed(command("rdma"), tree.sys, tree.dev, *flags)
    assert found == pages.shown(page, "rdma-device-plugin --config nics.json --once")


@pytest.mark.parametrize("dashes", ["-", "--"])
@pytest.mark.parametrize("name", FLAGS)
def test_the_peers_flags_are_understood(name: str, dashes: str) -> None:
    words, expected = FLAGS[name]
    done = subprocess.run(
        [command(name), *(dashes + word for word in words), "--print-config"],
        capture_output=True,
        check=True,
        timeout=PATIENCE,
    )
    assert expected.items() <= json.loads(done.stdout).items()


@pytest.mark.parametrize("name", SETTINGS)
def test_the_page_lists_the_settings_of_the_code(name: str) -> None:
    table = readme(name).partition("## Settings\n")[2].partition("\n## ")[0]
    assert pages.settings(SETTINGS[name]) == re.findall(r"^\| `.*$", table, re.MULTILINE)


@pytest.mark.parametrize("page", CLAIMS)
def test_every_claim_about_a_peer_has_a_test(page: str) -> None:
    tests = Path(__file__).parent / Path(page).parts[0]
    text = (PLUGINS / page).read_text()
    assert [] == pages.claims_without_a_test(text, CLAIMS[page], tests)
