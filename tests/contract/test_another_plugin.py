"""A plugin more touches its own folder, and a few lists of names: it is made, and counted."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PLUGINS = sorted(path.parent.name for path in ROOT.glob("plugins/*/pyproject.toml"))
VENDORS = ("nvidia", "intel", "xilinx", "amd")
MAY_NAME = {
    ("deviceplugin/__main__.py", "gopher"): "an example in --help",
    ("deviceplugin/tools/conformance", "gopher"): "an example in --help",
    ("deviceplugin/tools/bench", "gopher"): "what is measured where no command is given",
}
"""Places in the framework that name a plugin, and why."""
WORKSPACE = {
    "mypy_path",
    "markers",  # of the end to end tests
    "source_pkgs",  # of coverage
    "root_packages",  # of the import contracts, as are the rest
    "source_modules",
    "modules",
}
"""Lists in the workspace's pyproject.toml that a new plugin is added to."""
NOT_MEASURED = {"markers", "source_pkgs"}
CHECK = '''"""What ``deviceplugin doctor`` looks at for this plugin."""

from collections.abc import Iterator

from deviceplugin.checks import Finding, Node, ok


def look(node: Node) -> Iterator[Finding]:
    """Lamps: whether they shine."""
    yield ok("lamps", f"{len(list(node.matches('dev/lamp*')))} shine")
'''
ENTRY = '\n[project.entry-points."deviceplugin.doctor"]\nlamp = "deviceplugin_lamp.doctor:look"\n'


def named(text: str) -> set[str]:
    """Return the plugins and vendors that ``text`` names."""
    found = {
        name
        for name in PLUGINS
        if re.search(
            rf"deviceplugin[_-]{name}\b|\b{name}-device-plugin|plugins/{name}\b"
            rf"|([\"']){name}\1|\b{name} plugin\b",
            text,
            re.IGNORECASE,
        )
    }
    return found | {name for name in VENDORS if re.search(rf"\b{name}\b", text, re.IGNORECASE)}


def mentions() -> Iterator[tuple[str, str]]:
    """Yield each file of the framework with each plugin and vendor that it names."""
    source = ROOT / "common/src"
    for path in sorted(source.rglob("*")):
        if path.suffix in {".py", ".html", ".js", ".css", ".proto"}:
            yield from ((str(path.relative_to(source)), name) for name in named(path.read_text()))


def is_allowed(path: str, name: str) -> bool:
    return any(path.startswith(place) and name == one for place, one in MAY_NAME)


def test_the_framework_knows_no_plugin() -> None:
    assert [] == [mention for mention in mentions() if not is_allowed(*mention)]


def test_whatever_may_name_a_plugin_does_so() -> None:
    found = list(mentions())
    for place, name in MAY_NAME:
        assert any(path.startswith(place) and name == one for path, one in found), place


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('Hardware(plugin="gpu")', {"gpu"}),
        ("import deviceplugin_fpga.doctor", {"fpga"}),
        ("the generic plugin's file", {"generic"}),
        ("run/nvidia/driver", {"nvidia"}),
        ("a simulated kubelet, a GenericRpcHandler, vendor.com/gpu=0", set()),
    ],
)
def test_a_name_is_seen(text: str, names: set[str]) -> None:
    assert names == named(text)


@pytest.fixture(scope="module")
def lamp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a new plugin, as the template's page makes it, with a check."""
    folder = tmp_path_factory.mktemp("plugins") / "lamp"
    leave = shutil.ignore_patterns("__pycache__", ".*_cache")
    shutil.copytree(ROOT / "plugins/template", folder, ignore=leave)
    package = folder / "src/deviceplugin_lamp"
    (folder / "src/deviceplugin_template").rename(package)
    for path in (folder / "pyproject.toml", *folder.rglob("*.py")):
        path.write_text(path.read_text().replace("template", "lamp"))
    (package / "doctor.py").write_text(CHECK)
    with (folder / "pyproject.toml").open("a") as file:
        file.write(ENTRY)
    return folder


@pytest.fixture(scope="module")
def installed(lamp: Path) -> Path:
    """Return where the new plugin's wheel is unpacked; nothing else has changed."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(lamp / "dist")]
    subprocess.run(build, cwd=lamp, check=True, capture_output=True)
    (wheel,) = (lamp / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(lamp / "site")
    return lamp / "site"


def run(installed: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *words],
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_the_doctor_has_its_check_without_a_change(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/lamp0").touch()
    words = ["deviceplugin", "doctor", f"--root={tmp_path}", "--plugin=lamp", "--only=lamp"]
    (finding,) = json.loads(run(installed, *words, "--json"))["findings"]
    assert ("lamp", "ok", "1 shine") == (finding["check"], finding["verdict"], finding["found"])


def test_it_serves_without_a_change(installed: Path) -> None:
    assert "plugin-dir" in run(installed, "deviceplugin_lamp", "--print-config")


def listed(table: Any, name: str, key: str = "") -> Iterator[str]:
    """Yield the keys of the lists of a pyproject.toml that a plugin is in."""
    if isinstance(table, dict):
        for inner, value in table.items():
            yield from listed(value, name, inner)
    elif isinstance(table, list):
        texts = {str(item).partition(":")[0] for item in table}
        of_one_plugin = key == "containers"  # a contract about the inside of one
        if texts & {name, f"deviceplugin_{name}", f"plugins/{name}/src"} and not of_one_plugin:
            yield key
        for item in table:
            yield from listed(item, name, key)


def test_the_workspace_has_every_plugin_in_the_same_few_lists() -> None:
    workspace = tomllib.loads((ROOT / "pyproject.toml").read_text())
    for name in PLUGINS:
        expected = WORKSPACE - (NOT_MEASURED if name == "template" else set())
        assert sorted(expected) == sorted(listed(workspace, name)), name


def test_with_these_lines_the_contracts_hold_for_it(lamp: Path, tmp_path: Path) -> None:
    text = (ROOT / "pyproject.toml").read_text()
    line = '  "deviceplugin_template",\n'
    changed = text.replace(line, line + line.replace("template", "lamp"))
    (tmp_path / "pyproject.toml").write_text(changed)
    for source in (*ROOT.glob("common/src/*"), *ROOT.glob("plugins/*/src/*"), *lamp.glob("src/*")):
        leave = shutil.ignore_patterns("__pycache__")
        shutil.copytree(source, tmp_path / source.name, ignore=leave)
    assert {"KEPT"} == verdicts(tmp_path)
    with (tmp_path / "deviceplugin_lamp/doctor.py").open("a") as file:
        file.write("\nimport deviceplugin.tools.doctor\n")
    assert {"KEPT", "BROKEN"} == verdicts(tmp_path)


def verdicts(folder: Path) -> set[str]:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    done = subprocess.run(
        [*command, "--config", "pyproject.toml"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    return set(re.findall(r" (KEPT|BROKEN)\b", done.stdout))
