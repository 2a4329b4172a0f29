"""What a plugin's pages say, in the forms in which tests compare it with the plugin."""

import os
import re
import subprocess
from dataclasses import fields
from pathlib import Path

import deviceplugin as dp
from deviceplugin._config import loading
from deviceplugin._config.settings import written
from deviceplugin._config.settings_class import helps
from patience import PATIENCE

Rows = list[list[str]]
"""The words of each row: how wide columns are is not compared."""


def printed(command: Path, sys: Path, dev: Path, *flags: str) -> Rows:
    """Return the rows that ``--once`` prints for a tree of files, with device nodes of a node."""
    done = subprocess.run(
        [command, "--once", "--log-level=error", f"--sysfs-dir={sys}", f"--dev-dir={dev}", *flags],
        env={**os.environ, "DP_STATE_FILE": ""},
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE,
    )
    return _rows(done.stdout.replace(str(dev), "/dev"))


def shown(page: str, command: str) -> Rows:
    """Return the rows that a page shows below a command."""
    return _rows(page.partition(f"$ {command}\n")[2].partition("```")[0])


def _rows(text: str) -> Rows:
    return [line.split() for line in text.splitlines()]


def settings(kind: type[dp.Settings]) -> list[str]:
    """Return the row of each setting that is the plugin's own: key, default, what it is for."""
    common = {field.name for field in fields(dp.Settings)}
    texts, found = helps(kind), []
    for field in fields(kind):
        if field.name not in common:
            key, default = loading.key(field), written(field, field.default)
            given = "see meaning" if "kind" in field.metadata else f"`{default}`"
            default = "none" if default in ("", [], {}) else given
            found.append(f"| `{key}` | {default} | {texts[key]} |")
    return found


def claims_without_a_test(page: str, heading: str, tests: Path) -> list[str]:
    """Return the tests that the table below ``heading`` names and that do not exist.

    They are in ``tests`` or in the folder above. Each row ends in the names of tests, or in a dash;
    a row that does not fails the test. A name may have its file before it, by the path from
    ``tests``.
    """
    table = page.partition(f"{heading}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| .*\| (`[\w/]*test_.*|-) \|$", table, re.MULTILINE)
    assert len(rows) == len(re.findall(r"^\| ", table, re.MULTILINE)) - 1
    files = (*tests.glob("test_*.py"), *tests.parent.glob("test_*.py"))
    there = "".join(path.read_text() for path in files)
    named = [name for row in rows for name in re.findall(r"`(?:([\w/]+\.py)::)?(\w+)`", row)]
    return [
        name
        for file, name in named
        if f"def {name}(" not in ((tests / file).read_text() if file else there)
    ]
