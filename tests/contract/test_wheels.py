"""The wheels that users install, not the sources beside them."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "common/node": "deviceplugin",
    "common/testing": "deviceplugin_testing",
    "common/cli": "deviceplugin_cli",
    "operator": "deviceplugin_operator",
    **{
        f"plugins/{path.parent.name}": f"deviceplugin_{path.parent.name}"
        for path in sorted((ROOT / "plugins").glob("*/pyproject.toml"))
    },
}


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Build all wheels, from the locked build backend that is installed."""
    folder = tmp_path_factory.mktemp("wheels")
    for package in PACKAGES:
        subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
            cwd=ROOT / package,
            check=True,
            capture_output=True,
        )
    return {name: next(folder.glob(f"{name}-*.whl")) for name in PACKAGES.values()}


@pytest.fixture(scope="session")
def installed(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Unpack all wheels into one folder, as installing them does."""
    folder = tmp_path_factory.mktemp("site")
    for wheel in wheels.values():
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
    return folder


@pytest.mark.parametrize("name", PACKAGES.values())
def test_a_wheel_has_the_package_with_its_types_and_nothing_else(
    wheels: dict[str, Path], name: str
) -> None:
    with zipfile.ZipFile(wheels[name]) as archive:
        names = archive.namelist()
    assert f"{name}/py.typed" in names
    folders = {entry.partition("/")[0].split("-")[0] for entry in names}
    assert {name} == folders
    assert [] == [entry for entry in names if "test_" in entry or entry.endswith(".pyc")]


def test_the_framework_brings_the_wire_protocols(wheels: dict[str, Path]) -> None:
    with zipfile.ZipFile(wheels["deviceplugin"]) as archive:
        names = set(archive.namelist())
    services = ("v1beta1/deviceplugin", "pluginregistration/pluginregistration")
    for service in (*services, "podresources/podresources"):
        assert {
            f"deviceplugin/proto/{service}{suffix}" for suffix in (".proto", "_pb2.py", "_pb2.pyi")
        } <= names


def run(installed: Path, *arguments: str) -> str:
    result = subprocess.run(
        [sys.executable, "-m", *arguments],
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=True,
    )
    return result.stdout


def test_a_plugin_runs_from_its_wheel(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "gus").touch()
    output = run(installed, "deviceplugin_gopher", "--once", "--directory", str(tmp_path))
    assert ["example.com/gopher", "gus", "healthy"] == output.splitlines()[1].split()[:3]


def test_help_has_the_texts_of_all_settings_from_a_wheel(installed: Path) -> None:
    output = run(installed, "deviceplugin_gopher", "--help")
    assert "Directory whose files are the devices" in output
    assert "Where to serve /metrics" in output


def test_wheels_depend_on_what_their_package_says(wheels: dict[str, Path]) -> None:
    with zipfile.ZipFile(wheels["deviceplugin"]) as archive:
        (metadata,) = (n for n in archive.namelist() if n.endswith("/METADATA"))
        lines = archive.read(metadata).decode().splitlines()
    needed = [line.partition(": ")[2] for line in lines if line.startswith("Requires-Dist")]
    assert {"grpcio", "inotify-simple", "prometheus-client", "protobuf", "tenacity"} <= {
        text.partition(">")[0] for text in needed if "extra ==" not in text
    }


def test_the_framework_brings_every_file_that_stands_beside_its_code(
    wheels: dict[str, Path],
) -> None:
    source = ROOT / "common/node/src"
    files = {
        str(path.relative_to(source))
        for path in source.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(wheels["deviceplugin"]) as archive:
        assert set() == files - set(archive.namelist())
