"""What the common tests know of a plugin: a file of e2e/cases for each, found by its name."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from homes.home import Given, Plugin
from homes.pretended_hardware import StandIn

FOLDER = Path(__file__).parents[2] / "cases"


@dataclass(frozen=True)
class Example:
    """How the pod of demo/examples is run."""

    plugin: Plugin
    prints: str
    """A pattern of what it prints."""


@dataclass(frozen=True)
class Opened:
    """A device node that a container opens."""

    plugin: Plugin
    node: str
    """A pattern of its name below /dev."""
    rights: str
    """As a test finds them: r, w or rw."""


@dataclass(frozen=True)
class Case:
    """A plugin, and what is to be seen of it."""

    plugin: Plugin
    look: Callable[[Given], None]
    """Fails unless a container with one device was given what it should be."""
    example: Example | None = None
    """None where the example does not run everywhere."""
    opened: Opened | None = None
    """None where devices are no device nodes."""
    hardware: Callable[[Path, Path], StandIn] | None = None
    """Makes what a simulated node shows, in a folder, with another to keep what it compiled."""
    rebooted: Callable[[Path, Path], StandIn] | None = None
    """Makes what the same node shows after a reboot: in another order, and one device more."""
    identify: Callable[[Given], None] | None = None
    """Fails unless a container has, after that reboot, the device whose id it knows."""
    flags: Sequence[str] = ()
    """Places on the node that the command has by itself, and has to find elsewhere in a test."""


@cache
def cases() -> Mapping[str, Case]:
    """Return the case of each plugin, by its name."""
    return {path.stem: _load(path) for path in sorted(FOLDER.glob("*.py"))}


def _load(path: Path) -> Case:
    spec = spec_from_file_location(f"e2e_case_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    case: Case = module.CASE
    assert path.stem == case.plugin.name, f"{path} is about {case.plugin.name}"
    return case
