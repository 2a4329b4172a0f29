"""The plugin's page says what the code says."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import claims
import once
import settings_table
from amd.machines import MI210
from amd.plugin import Build
from deviceplugin_amd import AmdSettings, handover
from patience import PATIENCE

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "plugins/amd/README.md").read_text()
PEER = (ROOT / "plugins/amd/docs/coming-from-amd.md").read_text()
COMMAND = Path(sys.executable).with_name("amd-device-plugin")


def test_the_table_on_the_page_is_what_the_command_prints(build: Build) -> None:
    tree = build(replace(MI210, addresses=MI210.addresses[:2], hives=MI210.hives[:2]))
    assert once.on_page(PAGE, "amd-device-plugin --once") == once.printed(
        COMMAND, tree.sys, tree.dev
    )


@pytest.mark.parametrize("dashes", ["-", "--"])
def test_the_peers_flag_is_understood(dashes: str) -> None:
    done = subprocess.run(
        [COMMAND, f"{dashes}resource_naming_strategy=mixed", "--print-config"],
        capture_output=True,
        check=True,
        timeout=PATIENCE,
    )
    assert "mixed" == json.loads(done.stdout)["resource-naming-strategy"]


def test_the_page_lists_the_settings_of_the_code() -> None:
    table = PAGE.partition("## Settings\n")[2].partition("\n## ")[0]
    assert settings_table.rows(AmdSettings) == re.findall(r"^\| `.*$", table, re.MULTILINE)


def test_every_claim_about_the_peer_has_a_test() -> None:
    assert [] == claims.without_a_test(PEER, "## What is different", Path(__file__).parent)


def test_the_patience_on_the_page_is_that_of_the_code() -> None:
    assert f"waits for up to {handover._LIMIT:g} s" in PAGE
