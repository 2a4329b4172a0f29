"""The gopher plugin in every home."""

from homes.case import Case, Example
from homes.home import Given, Plugin

PLUGIN = Plugin("gopher", "example.com/gopher", 2, files="/etc/gophers")


def look(given: Given) -> None:
    """A container has only a variable with its gopher."""
    assert given.envs["Gopher"] in {"gary", "gina", "adam", "zoe"}
    assert not given.annotations


CASE = Case(PLUGIN, look, Example(PLUGIN, "^my gophers are g(ary,gina|ina,gary)$"))
