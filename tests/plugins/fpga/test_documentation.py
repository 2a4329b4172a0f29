"""The plugin's page says what the code says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import claims
import settings_table
from deviceplugin_fpga import FpgaSettings, install, resource_names
from deviceplugin_fpga.hook import command_line
from fpga.bitstreams import gbs
from fpga.trees import AFU, OTHER_AFU, FpgaTree
from patience import PATIENCE

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "plugins/fpga/README.md").read_text()
PEER = (ROOT / "plugins/fpga/docs/coming-from-intel.md").read_text()
BLOCKS = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_the_commands_print_what_the_page_shows(tree: FpgaTree, tmp_path: Path) -> None:
    tree.simple(AFU, OTHER_AFU)
    (tmp_path / "aliases.yaml").write_text(BLOCKS[0])
    (tmp_path / f"{AFU}.gbs").write_bytes(gbs())
    blocks = re.findall(
        r"^```console\n(\$ fpga-device-plugin .*?)^```", PAGE, re.MULTILINE | re.DOTALL
    )
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    shown = ""
    for command in re.findall(r"^\$ (.*)$", "".join(blocks), re.MULTILINE):
        done = subprocess.run(
            command.replace("$PWD", str(tmp_path)).split(),
            cwd=tmp_path,
            env={"PATH": path, "DP_SYSFS_DIR": str(tree.sys)},
            executable=str(Path(sys.executable).with_name(command.split()[0])),
            capture_output=True,
            text=True,
            check=True,
            timeout=PATIENCE,
        )
        shown += f"$ {command}\n{done.stdout}"
    assert shown == "".join(blocks)


def test_the_page_lists_the_settings_of_the_code() -> None:
    table = PAGE.partition("## Settings\n")[2].partition("\n## ")[0]
    assert settings_table.rows(FpgaSettings) == re.findall(r"^\| `.*$", table, re.MULTILINE)


def test_the_names_on_the_page_are_those_of_the_code() -> None:
    rows = re.findall(r"^\| `([0-9a-f]{32})` \| `([0-9a-f]{32})` \| `(.*)` \|$", PAGE, re.MULTILINE)
    assert 2 == len(rows)
    for interface, afu, expected in rows:
        assert f"fpga.intel.com/{expected}" == resource_names.af(interface, afu)


def test_every_claim_about_the_peer_has_a_test() -> None:
    assert [] == claims.without_a_test(PEER, "## What is different", Path(__file__).parent)


def test_the_pod_on_the_page_asks_for_its_region() -> None:
    (text,) = (one for one in BLOCKS if "FPGA_REGION_1" in one)
    container = yaml.safe_load(text)
    (resource,) = container["resources"]["limits"]
    assert resource == resource_names.region(container["env"][0]["value"])


@pytest.mark.parametrize("option", ["bitstreams", "lock"])
def test_the_paths_of_the_hook_are_those_of_the_code(option: str) -> None:
    assert f"`{command_line._parser().get_default(option)}" in PAGE


def test_the_interpreters_on_the_page_are_those_of_the_hook() -> None:
    assert ", ".join(f"`{one}`" for one in install.INTERPRETERS) in PAGE
    message = PAGE.partition("fpga-hook: needs Python")[2].partition("\n")[0]
    assert f"needs Python{message}" in install._START


def test_the_patience_on_the_page_is_that_of_the_hook() -> None:
    assert 60 == command_line._parser().get_default("patience")
    assert "for up to a minute, until no other hook" in PAGE
