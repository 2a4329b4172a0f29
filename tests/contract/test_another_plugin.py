"""A plugin more touches its own folders and one line: it is made, checked, and counted."""

import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
SITE = Path(pytest.__file__).parents[1]
NODE = "node"
"""The package of all plugins. Its name is also that of what each of them runs on."""
PLUGINS = sorted({path.parent.name for path in ROOT.glob("plugins/*/pyproject.toml")} - {NODE})
VENDORS = ("nvidia", "intel", "xilinx", "amd")
MAY_NAME = {
    ("deviceplugin_cli/migrate", "template"): "a key of workloads",
    ("deviceplugin_cli/diagnosis", "template"): "the same",
    **dict.fromkeys(
        [("deviceplugin_cli/migrate", name) for name in ("amd", "intel", "nvidia", "gpu")],
        "operators and images of vendors, as they call them, and who takes a patch back",
    ),
    **dict.fromkeys(
        [
            ("deviceplugin_cli/migrate/output", name)
            for name in ("fpga", "generic", "intelgpu", "rdma", "simulated")
        ],
        "what the manifest of a plugin has in its file, which has to be taken back",
    ),
    ("deviceplugin_cli/migrate/charts", "generic"): "the name of a chart",
    ("deviceplugin_testing/tools/conformance", "gopher"): "an example in --help",
    (
        "deviceplugin_testing/tools/new",
        "template",
    ): "what it makes plugins of, and the places for their lines",
    ("deviceplugin_testing/tools/bench", "gopher"): "what is measured where no command is given",
    **dict.fromkeys(
        [
            ("deviceplugin/tools/doctor/checks/_plugin_sockets.py", name)
            for name in ("amd", "intel", "nvidia")
        ],
        "how plugins of others call their sockets, on nodes without a package of ours for them",
    ),
    (
        "deviceplugin/tools/doctor/pods/_symptoms.py",
        "nvidia",
    ): "what a runtime says of a pod, wherever that is read",
}
"""Places in the framework that name a plugin, and why."""


_ONE = f"(?:{'|'.join(PLUGINS)})"
NAMED = re.compile(
    rf"(?<=deviceplugin[_-]){_ONE}\b|(?<=plugins/){_ONE}\b|\b{_ONE}(?=-device-plugin| plugin\b)"
    rf"|(?<=[\"']){_ONE}(?=[\"'])|\b(?:{'|'.join(VENDORS)})\b",
    re.IGNORECASE,
)


def named(text: str) -> set[str]:
    """Return the plugins and vendors that ``text`` names."""
    return {name.lower() for name in NAMED.findall(text)}


def mentions() -> Iterator[tuple[str, str]]:
    """Yield each file of the framework with each plugin and vendor that it names."""
    for path in sorted(ROOT.glob("common/*/src/**/*")):
        if path.suffix in {".py", ".html", ".js", ".css", ".proto"}:
            inside = str(Path(*path.relative_to(ROOT).parts[3:]))
            yield from ((inside, name) for name in named(path.read_text()))


def is_allowed(path: str, name: str) -> bool:
    return any(path.startswith(place) and name == one for place, one in MAY_NAME)


def test_the_framework_knows_no_plugin_but_where_it_may_name_one() -> None:
    found = list(mentions())
    assert [] == [mention for mention in found if not is_allowed(*mention)]
    for place, name in MAY_NAME:
        assert any(path.startswith(place) and name == one for path, one in found), place


def test_a_name_is_seen() -> None:
    text = """Hardware(plugin="gpu"); import deviceplugin_fpga.doctor; plugins/rdma
    the generic plugin's file, run/nvidia/driver, amd-device-plugin
    a simulated kubelet, a GenericRpcHandler, vendor.com/gopher=0"""
    assert {"amd", "fpga", "generic", "gpu", "nvidia", "rdma"} == named(text)


LEFT = shutil.ignore_patterns(
    *("__pycache__", ".*_cache", ".git", ".venv", ".cov*", ".hypothesis", "dist", "node_modules"),
)
"""What is not of the repository."""


def files(folder: Path) -> dict[str, bytes]:
    """Return what is in a tree, but for what tools leave there."""
    found = {}
    for place, folders, names in os.walk(folder):
        folders[:] = sorted({*folders} - LEFT(place, folders))
        for name in {*names} - LEFT(place, names):
            path = Path(place, name)
            found[str(path.relative_to(folder))] = path.read_bytes()
    return found


OWN = (
    *("plugins/lamp/", "deployments/lamp/", "tests/plugins/lamp/", "demo/examples/lamp/"),
    *("deployments/components/node-lamp/", "deployments/operator/samples/lamp.yaml"),
)
"""Folders and a file that are the plugin's by their names."""


def within(tree: Path, *words: str | Path) -> None:
    env = {name: one for name, one in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(words, cwd=tree, env=env, capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stdout + done.stderr


def environment(tree: Path, place: Path) -> Path:
    """Make an environment with the code of ``tree``; return its Python.

    What is installed for the other plugins, and packages of others, are this environment's.
    """
    venv.create(place, with_pip=False, symlinks=True)
    (site,) = place.glob("lib/python*/site-packages")
    sources = [*tree.glob("common/*/src"), *tree.glob("operator/src"), *tree.glob("plugins/*/src")]
    lines = [*map(str, sources), f"import site; site.addsitedir({str(SITE)!r})"]
    (site / "tree.pth").write_text("\n".join(lines))
    install = ("pip", "install", "--offline", "--no-deps", "--no-build-isolation")
    folders = ("plugins/lamp", "plugins/node", "common/node")  # it, and what runs all plugins
    projects = [f"--editable={tree}/{one}" for one in folders]
    within(tree, BIN / "uv", *install, f"--python={place}/bin/python", *projects)
    return place / "bin/python"


@pytest.mark.slow
@pytest.mark.timeout(900)  # it runs other tests, which have limits of their own
def test_a_plugin_is_in_its_own_folders_and_one_line_and_passes_everything(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    shutil.copytree(ROOT, tree, ignore=LEFT, symlinks=True)
    before = files(tree)
    within(tree, sys.executable, "-m", "deviceplugin", "new", "lamp")
    after = files(tree)
    assert [] == [one for one in after.keys() - before.keys() if not one.startswith(OWN)]
    assert ["pyproject.toml"] == [path for path, text in before.items() if after[path] != text]
    added = b'  "plugins/lamp/src",\n'
    assert before["pyproject.toml"] == after["pyproject.toml"].replace(added, b"")

    python = environment(tree, tmp_path / "venv")
    within(tree, python, "build/generate.py", "kind")
    own = ["plugins/lamp", "tests/plugins/lamp/case.py"]
    within(tree, BIN / "ruff", "check", "--no-cache", *own)
    within(tree, BIN / "ruff", "format", "--check", "--no-cache", *own)
    within(tree, BIN / "mypy", f"--python-executable={python}", *own)
    within(tree, python, "build/checklist.py", "lamp")
