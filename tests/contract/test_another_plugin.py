"""A plugin more touches its own folders and one line: it is made, checked, and counted."""

import json
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
    ("deviceplugin/__main__.py", "gopher"): "an example in --help",
    ("deviceplugin_testing/tools/conformance", "gopher"): "an example in --help",
    (
        "deviceplugin_testing/tools/new",
        "template",
    ): "what it makes plugins of, and the places for their lines",
    ("deviceplugin_testing/tools/bench", "gopher"): "what is measured where no command is given",
}
"""Places in the framework that name a plugin, and why."""
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


LEFT = shutil.ignore_patterns(
    *("__pycache__", ".*_cache", ".git", ".venv", ".cov*", ".hypothesis", "dist", "node_modules"),
)
"""What is not of the repository."""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the repository with a new plugin, lamp, which has a check for the doctor."""
    folder = tmp_path_factory.mktemp("copy") / "tree"
    shutil.copytree(ROOT, folder, ignore=LEFT, symlinks=True)
    words = [sys.executable, "-m", "deviceplugin", "new", "lamp"]
    subprocess.run(words, cwd=folder, check=True, capture_output=True)
    (folder / "plugins/lamp/src/deviceplugin_lamp/doctor.py").write_text(CHECK)
    with (folder / "plugins/lamp/pyproject.toml").open("a") as file:
        file.write(ENTRY)
    return folder


def files(folder: Path) -> dict[str, bytes]:
    """Return what is in a tree, but for what tools leave there."""
    found = {}
    for place, folders, names in os.walk(folder):
        folders[:] = sorted({*folders} - LEFT(place, folders))
        for name in {*names} - LEFT(place, names):
            path = Path(place, name)
            found[str(path.relative_to(folder))] = path.read_bytes()
    return found


OWN = ("plugins/lamp/", "deployments/lamp/", "tests/plugins/lamp/")
NAMED = ("demo/examples/lamp/", "deployments/components/node-lamp/")
"""Folders and a file that are the plugin's by their names."""
SAMPLE = "deployments/operator/samples/lamp.yaml"
GENERATED = {
    "deployments/operator/crd/deviceplugins.yaml",
    "operator/src/deviceplugin_operator/manifests.json",
}
BUDGET = {"pyproject.toml": 1}
"""Lines more in files elsewhere. What is generated does not count."""


@pytest.mark.slow
def test_it_is_in_its_own_folders_and_one_line_besides(tree: Path) -> None:
    before, after = files(ROOT), files(tree)
    new = after.keys() - before.keys()
    assert set() == {one for one in new if not one.startswith((*OWN, *NAMED))} - {SAMPLE}
    written = (before.keys() & after.keys()) - GENERATED
    changed = {path: len(difference(before[path], after[path])) for path in written}
    assert {path: number for path, number in changed.items() if number} == BUDGET


def difference(before: bytes, after: bytes) -> list[bytes]:
    if before == after:
        return []
    assert [line for line in before.splitlines() if line not in after.splitlines()] == []
    return [line for line in after.splitlines() if line not in before.splitlines()]


@pytest.fixture(scope="module")
def python(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the Python of an environment in which the copy's packages are installed.

    The rest is this environment's. What is generated of the plugins is made again.
    """
    place = tmp_path_factory.mktemp("venv")
    venv.create(place, with_pip=False, symlinks=True)
    (site,) = place.glob("lib/python*/site-packages")
    (site / "tree.pth").write_text(f"import site; site.addsitedir({str(SITE)!r})\n")
    folders = [*tree.glob("common/*"), tree / "operator", *tree.glob("plugins/*")]
    projects = [f"--editable={one}" for one in folders if (one / "pyproject.toml").is_file()]
    install = [str(BIN / "uv"), "pip", "install", "--offline", "--no-deps", "--no-build-isolation"]
    subprocess.run(
        [*install, f"--python={place}/bin/python", *projects], check=True, capture_output=True
    )
    assert 0 == within(tree, place / "bin/python", "build/generate.py", "kind").returncode
    return place / "bin/python"


def within(tree: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    return subprocess.run(
        words,
        cwd=tree,
        env={**environment, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_the_doctor_has_its_check_without_a_change(
    tree: Path, python: Path, tmp_path: Path
) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/lamp0").touch()
    words = ["doctor", f"--root={tmp_path}", "--plugin=lamp", "--only=lamp", "--json"]
    done = within(tree, python, "-m", "deviceplugin", *words)
    (finding,) = json.loads(done.stdout)["findings"]
    assert ("lamp", "ok", "1 shine") == (finding["check"], finding["verdict"], finding["found"])


@pytest.mark.slow
def test_linter_and_types_see_it(tree: Path, python: Path) -> None:
    own = ["plugins/lamp", "tests/plugins/lamp/case.py"]
    for program, *words in (
        ["ruff", "check", "--no-cache", *own],
        ["ruff", "format", "--check", "--no-cache", *own],
        ["mypy", f"--python-executable={python}", *own],
    ):
        done = within(tree, BIN / program, *words)
        assert 0 == done.returncode, done.stdout


@pytest.mark.slow
def test_contracts_break_where_it_breaks_them_and_hold_otherwise(tree: Path, python: Path) -> None:
    module = tree / "plugins/lamp/src/deviceplugin_lamp/more.py"
    module.write_text("import deviceplugin.tools.doctor\nimport deviceplugin_gopher\nimport grpc\n")
    try:
        done = within(tree, python, "build/import_contracts.py", "--no-cache")
    finally:
        module.unlink()
    found = dict(re.findall(r"^(.+?) (KEPT|BROKEN)\b", done.stdout, re.MULTILINE))
    assert {
        "Plugins use public names only",
        "Plugins never import each other",
        "gRPC stays in the two sides of the wire",
    } == {name for name, verdict in found.items() if verdict == "BROKEN"}


@pytest.mark.slow
def test_images_and_the_checklist_see_it(tree: Path, python: Path) -> None:
    names = within(tree, python, "build/images.py", "--names")
    assert "lamp" in json.loads(names.stdout)
    done = within(tree, python, "build/checklist.py", "lamp")
    assert (0, "") == (done.returncode, done.stdout + done.stderr)


@pytest.mark.slow
def test_coverage_measures_it(tree: Path, python: Path) -> None:
    data = tree / "dist/.coverage"
    data.parent.mkdir(exist_ok=True)
    words = [str(python), "-m", "coverage"]
    within(tree, *words, "run", f"--data-file={data}", "-m", "deviceplugin_lamp", "--print-config")
    within(tree, *words, "combine", f"--data-file={data}", "dist")
    shown = within(tree, *words, "report", f"--data-file={data}", "--include=plugins/lamp/*")
    assert "plugins/lamp/src/deviceplugin_lamp/__init__.py" in shown.stdout, shown.stderr
