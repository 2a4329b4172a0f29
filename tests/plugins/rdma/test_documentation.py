"""The plugin's page says what the code says."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import claims
import once
import settings_table
from deviceplugin_rdma import RdmaSettings
from patience import PATIENCE
from rdma.plugin import Build

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "plugins/rdma/README.md").read_text()
COMPARISON = (ROOT / "plugins/rdma/docs/coming-from.md").read_text()
COMMAND = Path(sys.executable).with_name("rdma-device-plugin")


def test_the_table_on_the_page_is_what_the_command_prints(build: Build, tmp_path: Path) -> None:
    tree, file = build(), tmp_path / "nics.json"
    file.write_text(PAGE.partition("```json\n")[2].partition("```")[0])
    flags = [f"--config={file}", f"--proc-net-dir={tree.net}"]
    shown = "rdma-device-plugin --config nics.json --once"
    assert once.on_page(PAGE, shown) == once.printed(COMMAND, tree.sys, tree.dev, *flags)


@pytest.mark.parametrize("dashes", ["-", "--"])
def test_the_peers_flag_is_understood(dashes: str) -> None:
    done = subprocess.run(
        [COMMAND, f"{dashes}resource-prefix=example.com", "--print-config"],
        capture_output=True,
        check=True,
        timeout=PATIENCE,
    )
    assert "example.com" == json.loads(done.stdout)["resource-prefix"]


def test_the_page_lists_the_settings_of_the_code() -> None:
    table = PAGE.partition("## Settings\n")[2].partition("\n## ")[0]
    assert settings_table.rows(RdmaSettings) == re.findall(r"^\| `.*$", table, re.MULTILINE)


def test_every_claim_about_the_peers_has_a_test() -> None:
    assert [] == claims.without_a_test(COMPARISON, "## What is different", Path(__file__).parent)
