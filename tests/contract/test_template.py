"""The template's page makes a plugin that works, as a project of its own.

In an environment as new as a reader's, but for the network: it has what the framework needs, and
nothing else of what this one has. In the repository, `deviceplugin new` makes the same plugin.
"""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import fresh_environment

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "plugins/template/README.md"
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


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


def steps() -> Iterator[tuple[str, str]]:
    """Yield the commands of each block of the page, and what is shown for the last of them."""
    for block in BLOCK.findall(PAGE.read_text()):
        *before, last = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
        command, _, shown = last.partition("\n")
        yield "".join([*before, command]).replace("plugins/lamp", "../lamp"), shown


@pytest.mark.slow
def test_whoever_follows_the_page_has_a_plugin(checkout: Path, tmp_path: Path) -> None:
    environment, shown = fresh_environment.make(tmp_path / "venv", "deviceplugin-testing"), ""
    names = ["deviceplugin", "deviceplugin_template", "pytest_timeout", "xdist", "pytest", "grpc"]
    code = f"import importlib.util as u; print(*(n for n in {names} if u.find_spec(n)))"
    assert "pytest grpc\n" == run(f"python -c {code!r}", checkout, environment)
    for command, shown in steps():
        said = run(command, checkout, environment)
        assert not shown or said == shown or [*Path("/dev").glob("ttyUSB*")]
    assert shown, "the last of the page's commands shows what there is"
    # What the table says first; each of the ways to start it takes it.
    run("sed -i s,example.com/serial,example.com/lamp, ../lamp/src/*/*.py", checkout, environment)
    for start in ("lamp-device-plugin", "python -m deviceplugin_lamp"):
        assert "example.com/lamp" in run(f"{start} --once", checkout, environment)
