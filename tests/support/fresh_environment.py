"""A new virtual environment without the network: others' packages are links to this one's."""

import os
import venv
import zipfile
from importlib.metadata import Distribution
from pathlib import Path

from hatchling.builders.wheel import WheelBuilder

from needed_packages import closure

OURS = "deviceplugin"
INSTALLERS = ("pip", "hatchling", "editables")


def make(place: Path, *wanted: str) -> dict[str, str]:
    """Make an environment in ``place`` with pip and all that ``wanted`` need but for our packages.

    Returns the variables of a shell in which it is active.
    """
    venv.create(place, with_pip=False, symlinks=True)
    (site,) = place.glob("lib/python*/site-packages")
    found = closure(*INSTALLERS, *wanted)
    for name, one in found.items():
        if not name.startswith(OURS):
            _link(one, site)
    for command in ("pip", *({"pytest"} & {*found})):
        script = place / "bin" / command
        script.write_text(f'#!/bin/sh\nexec "{place}/bin/python" -m {command} "$@"\n')
        script.chmod(0o755)
    return {
        "PATH": f"{place}/bin:/usr/bin:/bin",
        "HOME": str(place.parent),
        "PIP_NO_INDEX": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # is how one says in the environment: no isolation
    }


def _link(one: Distribution, site: Path) -> None:
    tops = {file.parts[0] for file in one.files or () if file.parts[0] not in {"..", "__pycache__"}}
    for top in tops:
        if not (site / top).exists():
            (site / top).symlink_to(str(one.locate_file(top)))


def wheels(target: Path, *projects: Path) -> list[Path]:
    """Build the wheels of ``projects`` in ``target``; the build backend is the locked one."""
    return [
        Path(made)
        for project in projects
        for made in WheelBuilder(os.fspath(project)).build(
            directory=os.fspath(target), versions=["standard"]
        )
    ]


def unpacked(target: Path, *found: Path) -> Path:
    """Unpack wheels in ``target``, as installing them does, and return it."""
    for wheel in found:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(target)
    return target
