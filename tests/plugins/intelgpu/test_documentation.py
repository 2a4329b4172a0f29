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
from deviceplugin_intelgpu import IntelGpuSettings
from intelgpu.machines import TWO_DRIVERS
from intelgpu.plugin import Build
from patience import PATIENCE

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "plugins/intelgpu/README.md").read_text()
PEER = (ROOT / "plugins/intelgpu/docs/coming-from-intel.md").read_text()
COMMAND = Path(sys.executable).with_name("intelgpu-device-plugin")


def test_the_table_on_the_page_is_what_the_command_prints(build: Build) -> None:
    tree = build(TWO_DRIVERS)
    assert once.on_page(PAGE, "intelgpu-device-plugin --once") == once.printed(
        COMMAND, tree.sys, tree.dev
    )


@pytest.mark.parametrize("dashes", ["-", "--"])
def test_the_peers_flags_are_understood(dashes: str) -> None:
    words = [
        *("shared-dev-num=4", "allocation-policy=balanced", "allow-ids=0x56c0,0x56c1"),
        *("deny-ids=0x9a49", "bypath=all", "enable-monitoring", "monitoring-mode=split"),
    ]
    done = subprocess.run(
        [COMMAND, *(dashes + word for word in words), "--print-config"],
        capture_output=True,
        check=True,
        timeout=PATIENCE,
    )
    expected = {
        "shares": 4,
        "share-policy": "balanced",
        "include": ["0x56c0", "0x56c1"],
        "exclude": ["0x9a49"],
        "bypath": "all",
        "enable-monitoring": True,
        "monitoring-mode": "split",
    }
    assert expected.items() <= json.loads(done.stdout).items()


def test_the_page_lists_the_settings_of_the_code() -> None:
    table = PAGE.partition("## Settings\n")[2].partition("\n## ")[0]
    assert settings_table.rows(IntelGpuSettings) == re.findall(r"^\| `.*$", table, re.MULTILINE)


def test_every_claim_about_the_peer_has_a_test() -> None:
    assert [] == claims.without_a_test(PEER, "## What is different", Path(__file__).parent)
