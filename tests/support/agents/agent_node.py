"""A node with the hardware of every plugin, as the end to end suite pretends it.

``python tests/support/agents/agent_node.py FOLDER`` makes it, and prints the variables and the
command of an agent that runs all plugins there.
"""

import json
import os
import stat
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from itertools import count
from pathlib import Path
from typing import Any, Final

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[3] / "e2e/support")]

from deviceplugin._config.loading import key as key_of
from deviceplugin._config.settings import Settings
from homes.case import Case, cases

_PREFIX: Final = "DP_"
_OF_ALL: Final = {key_of(one) for one in fields(Settings)}
ALL: Final = tuple(sorted({*cases()} - {"node"}))
"""The plugins that an agent can run; ``node`` is the agent."""


@dataclass(frozen=True)
class AgentNode:
    """What an agent finds on a node."""

    config: Path
    """The configuration file, with a section for each plugin."""
    files: Path
    """A folder, each file of which is a gopher."""
    environment: dict[str, str] = field(default_factory=dict)
    """Variables of libraries: those of settings are in the file."""
    of_all: dict[str, Any] = field(default_factory=dict)
    """Settings of every plugin."""


def agent_node(
    folder: Path, cache: Path, plugins: Iterable[str] = ALL, *, files: int = 2
) -> AgentNode:
    """Make the hardware of ``plugins`` in ``folder``."""
    node = AgentNode(folder / "config.yaml", folder / "gophers")
    node.files.mkdir(parents=True)
    for number in range(files):
        (node.files / f"gopher-{number}").touch()
    sections = {name: _section(cases()[name], node, folder / name, cache) for name in plugins}
    node.config.write_text(json.dumps({**node.of_all, **sections}, indent=1))
    return node


def _section(case: Case, node: AgentNode, folder: Path, cache: Path) -> dict[str, Any]:
    """Return the section of a plugin, and add its other variables to the node's."""
    variables = dict(case.plugin.environment)
    if case.hardware is not None:
        folder.mkdir()
        variables |= case.hardware(folder, cache).environment
        _tell_apart(folder)
    section: dict[str, Any] = dict(_GIVEN.get(case.plugin.name, {}))
    if case.plugin.files:
        section = {"directory": str(node.files)}
    for flag in case.flags:  # places on the node: they are in the folder here
        key, _, place = flag.removeprefix("--").partition("=")
        (node.of_all if key in _OF_ALL else section)[key] = str(folder / "node" / place.lstrip("/"))
    for name, value in variables.items():
        if name.startswith(_PREFIX):
            section[name.removeprefix(_PREFIX).replace("_", "-").lower()] = value
        else:
            node.environment[name] = value
    return section


def _tell_apart(folder: Path) -> None:
    """Give each device node below ``folder`` a number of its own, where that is allowed.

    The end to end suite opens them, and so has one real device behind many.
    """
    for path in sorted(folder.rglob("*")):
        if path.is_char_device() and not path.is_symlink():
            path.unlink()
            os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(241, next(_MINORS)))


_MINORS: Final = count()
_GIVEN: Final[Mapping[str, dict[str, Any]]] = {
    "generic": {
        "devices": [
            {"name": "full", "groups": [{"count": 8, "paths": [{"path": "/dev/full"}]}]},
        ]
    },
    "simulated": {"number-devices": 8},
}

if __name__ == "__main__":
    made = agent_node(Path(sys.argv[1]), Path(sys.argv[1]) / "cache", files=8)
    variables = [f"{name}={value}" for name, value in made.environment.items()]
    words = [*variables, "device-plugins", *ALL, f"--config={made.config}"]
    sys.stdout.write(" ".join(words) + "\n")
