"""The agent in every home: three plugins in one process, of which one's devices are used."""

from pathlib import Path

from homes.case import Case, Example
from homes.home import Given, Plugin

CONFIG = """
gopher:
  directory: /etc/gophers
generic:
  devices:
    - name: e2e-null
      groups: [{count: 2, select: {subsystem: mem, name: "null"}}]
simulated:
  number-devices: 2
"""
PLUGIN = Plugin(
    "node",
    "example.com/gopher",
    2,
    files="/etc/gophers",
    config=CONFIG,
    components=("node-gopher", "node-simulated"),
)


def look(given: Given) -> None:
    """A container has only a variable with its gopher, and nothing of the other plugins."""
    assert given.envs["Gopher"] in {"gary", "gina", "adam", "zoe"}
    assert not given.annotations
    assert not [name for name in given.envs if name.startswith("SIMULATED_")]


SHOWN = (Path(__file__).parents[3] / "demo/examples/node/config.yaml").read_text()
CASE = Case(
    PLUGIN,
    look,
    Example(Plugin("node", "devic.es/fuse", None, config=SHOWN), r"^c.* 10, +229 .* /dev/fuse$"),
)
