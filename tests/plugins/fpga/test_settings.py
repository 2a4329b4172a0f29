"""The command's settings: the mode from flag, environment and file."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import deviceplugin as dp
from deviceplugin_fpga import FpgaSettings, command_line, hook, resource_names
from fpga.bitstreams import gbs
from fpga.trees import AFU, OTHER_AFU, FpgaTree
from patience import PATIENCE


def test_errors_that_are_not_looked_at_cannot_be_ignored() -> None:
    expected = (
        "ignore-errors: 'pcie1_error' is not one of catfatal_errors, errors, fme-errors/errors, "
        "fme_errors, nonfatal_errors, pcie0_errors, pcie1_errors"
    )
    with pytest.raises(dp.ConfigError, match=f"^{expected}$"):
        FpgaSettings(ignore_errors=("pcie1_error",))


ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "plugins/fpga/README.md").read_text()
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


def test_the_names_on_the_page_are_those_of_the_code() -> None:
    rows = re.findall(r"^\| `([0-9a-f]{32})` \| `([0-9a-f]{32})` \| `(.*)` \|$", PAGE, re.MULTILINE)
    assert 2 == len(rows)
    for interface, afu, expected in rows:
        assert f"fpga.intel.com/{expected}" == resource_names.Aliases().af(interface, afu)


def test_the_pod_on_the_page_asks_for_its_region() -> None:
    (text,) = (one for one in BLOCKS if "FPGA_REGION_1" in one)
    container = yaml.safe_load(text)
    (resource,) = container["resources"]["limits"]
    assert resource == resource_names.Aliases().region(container["env"][0]["value"])


def test_the_interpreters_on_the_page_are_those_of_the_hook() -> None:
    assert ", ".join(f"`{one}`" for one in command_line.INTERPRETERS) in PAGE
    message = PAGE.partition("fpga-hook: needs Python")[2].partition("\n")[0]
    assert f"needs Python{message}" in command_line._START


def test_the_defaults_on_the_page_are_those_of_the_hook() -> None:
    of_hook = hook._parser().get_default
    assert [] == [one for one in ("bitstreams", "lock") if f"`{of_hook(one)}" not in PAGE]
    assert 60 == of_hook("patience")
    assert "for up to a minute, until no other hook" in PAGE
