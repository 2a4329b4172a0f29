"""A new virtual environment without the network: others' packages are links to this one's."""

import venv
from collections.abc import Collection
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

OURS = "deviceplugin"
INSTALLERS = ("pip", "hatchling", "editables")


def make(place: Path, *wanted: str) -> dict[str, str]:
    """Make an environment in ``place`` with pip and all that ``wanted`` need but for our packages.

    Returns the variables of a shell in which it is active.
    """
    venv.create(place, with_pip=False, symlinks=True)
    (site,) = place.glob("lib/python*/site-packages")
    found = {**_needed(INSTALLERS), **_needed(wanted)}
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


def _needed(names: Collection[str], extras: Collection[str] = ()) -> dict[str, Distribution]:
    """Return the distributions of these names and all that they need."""
    found: dict[str, Distribution] = {}
    for name in names:
        found[name] = distribution(name)
        for text in found[name].requires or ():
            wanted = Requirement(text)
            if not wanted.marker or any(
                wanted.marker.evaluate({"extra": extra}) for extra in ("", *extras)
            ):
                found |= _needed((wanted.name,), wanted.extras)
    return found


def _link(one: Distribution, site: Path) -> None:
    tops = {file.parts[0] for file in one.files or () if file.parts[0] not in {"..", "__pycache__"}}
    for top in tops:
        if not (site / top).exists():
            (site / top).symlink_to(str(one.locate_file(top)))
