"""The plugin's page says what the code says."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import settings_table
from amd.machines import MI210
from amd.plugin import Build
from deviceplugin_amd import AmdSettings, handover
from patience import PATIENCE

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "plugins/amd/README.md").read_text()
COMMAND = Path(sys.executable).with_name("amd-device-plugin")
TESTS = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))


def test_the_table_on_the_page_is_what_the_command_prints(build: Build, tmp_path: Path) -> None:
    tree = build(replace(MI210, addresses=MI210.addresses[:2], hives=MI210.hives[:2]))
    done = subprocess.run(
        [
            *(COMMAND, "--once", "--log-level=error"),
            *(f"--sysfs-dir={tree.sys}", f"--dev-dir={tree.dev}", f"--state-file={tmp_path}/s"),
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE,
    )
    shown = PAGE.partition("$ amd-device-plugin --once\n")[2].partition("```")[0]
    printed = done.stdout.replace(str(tree.dev), "/dev")
    assert [line.split() for line in shown.splitlines()] == [
        line.split() for line in printed.splitlines()
    ]


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
    table = PAGE.partition("## Coming from AMD's plugin\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| .*\| (`test_.*|-) \|$", table, re.MULTILINE)
    assert len(rows) == len(re.findall(r"^\| ", table, re.MULTILINE)) - 1
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert [] == [name for name in named if f"def {name}(" not in TESTS]


def test_the_patience_on_the_page_is_that_of_the_code() -> None:
    assert f"waits for up to {handover._LIMIT:g} s" in PAGE


def test_the_pages_that_are_referred_to_exist() -> None:
    links = re.findall(r"\]\((?!http|#)([^)#]+)", PAGE)
    assert [] == [link for link in links if not (ROOT / "plugins/amd" / link).exists()]
