"""The simulated plugin in every home."""

from homes.case import Case, Example
from homes.home import Given, Plugin

PLUGIN = Plugin(
    "simulated",
    "example.com/simple-device",
    2,
    environment={"DP_ANNOTATION_PREFIX": "example.com/e2e"},
)


def look(given: Given) -> None:
    """A container has a variable and an annotation of its device."""
    (name,) = (name for name in given.envs if name.startswith("SIMULATED_"))
    device = name.removeprefix("SIMULATED_")
    assert given.annotations in (None, {f"example.com/e2e-{device}": ""})


CASE = Case(PLUGIN, look, Example(PLUGIN, "^SIMULATED_.+=/dev/[01]$"))
