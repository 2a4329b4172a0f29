"""The template's page makes a plugin that works, in the repository and elsewhere.

In an environment as new as a reader's, but for the network: it has what the framework needs, and
nothing else of what this one has.
"""

import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "plugins/template/README.md"
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NOT_INSTALLED = {"deviceplugin", "deviceplugin-testing"}
INSTALLERS = ("pip", "hatchling", "editables")


def needed(names: tuple[str, ...], extra: str = "") -> dict[str, Distribution]:
    """Return the distributions of these names and all that they need."""
    found: dict[str, Distribution] = {}
    for name in names:
        found[name] = distribution(name)
        for text in found[name].requires or ():
            wanted = Requirement(text)
            if wanted.marker is None or wanted.marker.evaluate({"extra": extra}):
                found |= needed((wanted.name,))
    return found


def link(one: Distribution, site: Path) -> None:
    """Have a distribution of this environment in another one's site-packages too."""
    tops = {file.parts[0] for file in one.files or () if file.parts[0] not in {"..", "__pycache__"}}
    for top in tops:
        if not (site / top).exists():
            (site / top).symlink_to(str(one.locate_file(top)))


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Return the variables of a shell in which a new environment is active."""
    place = tmp_path / "venv"
    venv.create(place, with_pip=False, symlinks=True)
    (site,) = place.glob("lib/python*/site-packages")
    for name, one in {
        **needed(INSTALLERS),
        **needed(("deviceplugin-testing", "pyyaml", "urllib3")),
    }.items():
        if name not in NOT_INSTALLED:
            link(one, site)
    for command in ("pip", "pytest"):
        script = place / "bin" / command
        script.write_text(f'#!/bin/sh\nexec "{place}/bin/python" -m {command} "$@"\n')
        script.chmod(0o755)
    return {
        "PATH": f"{place}/bin:/usr/bin:/bin",
        "HOME": str(tmp_path),
        "PIP_NO_INDEX": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # is how one says in the environment: no isolation
    }


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a checkout's parts that the page speaks of."""
    place, leave = tmp_path / "checkout", shutil.ignore_patterns("__pycache__", "tests", "docs")
    shutil.copytree(ROOT / "common", place / "common", ignore=leave)
    leave = shutil.ignore_patterns("__pycache__", ".*_cache")
    shutil.copytree(PAGE.parent, place / "plugins/template", ignore=leave)
    shutil.copy(ROOT / "pyproject.toml", place)
    return place


def run(command: str, where: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(
        ["bash", "-ec", command],
        cwd=where,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    nothing_to_show = done.stdout.endswith("\nno device would be advertised\n")
    assert int(nothing_to_show) == done.returncode, f"{command}\n{done.stdout}"
    return done.stdout


def steps(folder: str) -> Iterator[tuple[str, str]]:
    """Yield the commands of each block of the page, and what is shown for the last of them."""
    for block in BLOCK.findall(PAGE.read_text()):
        *before, last = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
        command, _, shown = last.partition("\n")
        yield "".join([*before, command]).replace("plugins/lamp", folder), shown


@pytest.mark.parametrize("folder", ["plugins/lamp", "../lamp"])
def test_whoever_follows_the_page_has_a_plugin(
    folder: str, checkout: Path, environment: dict[str, str]
) -> None:
    shown = ""
    for command, shown in steps(folder):
        said = run(command, checkout, environment)
        assert not shown or said == shown or [*Path("/dev").glob("ttyUSB*")]
    assert shown, "the last of the page's commands shows what there is"
    # What the table says first; each of the ways to start it takes it.
    own = f"sed -i s,example.com/serial,example.com/lamp, {folder}/src/*/*.py {folder}/tests/*.py"
    run(f"{own}; pytest {folder}", checkout, environment)
    for start in ("lamp-device-plugin", "python -m deviceplugin_lamp"):
        assert "example.com/lamp" in run(f"{start} --once", checkout, environment)


def test_the_environment_is_as_new_as_a_readers(environment: dict[str, str]) -> None:
    names = ["deviceplugin", "deviceplugin_template", "pytest_timeout", "xdist", "pytest", "grpc"]
    code = f"import importlib.util as u; print(*(n for n in {names} if u.find_spec(n)))"
    assert "pytest grpc\n" == run(f"python -c {code!r}", Path(environment["HOME"]), environment)


def test_where_it_looks_is_a_setting(tmp_path: Path) -> None:
    (tmp_path / "ttyUSB7").symlink_to("/dev/null")
    words = ["-m", "deviceplugin_template", "--once", f"--directory={tmp_path}"]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=True)
    _, row = done.stdout.splitlines()
    assert ["example.com/serial", "ttyUSB7", "healthy"] == row.split()[:3]
