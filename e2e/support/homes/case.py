"""What the common tests need to know of a plugin: the file case.py of its own tests."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from homes.home import Given, Plugin
from homes.pretended_hardware import StandIn

PLUGINS = Path(__file__).parents[3] / "tests/plugins"


@dataclass(frozen=True)
class Example:
    """How the pod of demo/examples is run."""

    plugin: Plugin
    prints: str
    """A pattern of its output."""


@dataclass(frozen=True)
class Opened:
    """A device node that a container opens."""

    plugin: Plugin
    node: str
    """A pattern of its name below /dev."""
    rights: str
    """The permissions that a test finds: r, w or rw."""


@dataclass(frozen=True)
class Case:
    """A plugin, and what the tests expect of it."""

    plugin: Plugin
    look: Callable[[Given], None]
    """Fails unless a container with one device got what it should."""
    example: Example | None = None
    """None if the example does not run everywhere."""
    opened: Opened | None = None
    """None if devices have no device nodes."""
    hardware: Callable[[Path, Path], StandIn] | None = None
    """Creates the hardware of a simulated node in a folder, with another folder as a cache."""
    rebooted: Callable[[Path, Path], StandIn] | None = None
    """Makes what the same node shows after a reboot: in another order, and one device more."""
    identify: Callable[[Given], None] | None = None
    """Fails unless a container has, after that reboot, the device whose id it knows."""
    flags: Sequence[str] = ()
    """Places on the node that the command knows, and that are elsewhere in a test."""


@cache
def cases() -> Mapping[str, Case]:
    """Return the case of each plugin, by its name."""
    return {path.parent.name: _load(path) for path in sorted(PLUGINS.glob("*/case.py"))}


def _load(path: Path) -> Case:
    name = path.parent.name
    spec = spec_from_file_location(f"e2e_case_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    case: Case = module.CASE
    assert name == case.plugin.name, f"{path} is about {case.plugin.name}"
    return case
