"""How long tests wait for what merely takes time: a busy machine is late with everything.

Who waits longer loses nothing: a wait ends as soon as there is what was waited for.
"""

from typing import Final

from deviceplugin.simulator import SimulatedKubelet, StubPlugin
from deviceplugin.testing import Node

PATIENCE: Final = 30.0
"""Seconds; below the limit of a test, so that a failure says what was waited for."""


def be_patient() -> None:
    """Have the simulated kubelet and its plugins wait that long where a test says nothing."""
    for wait in (SimulatedKubelet.wait, SimulatedKubelet.wait_for, StubPlugin.wait, Node.wait_for):
        assert wait.__kwdefaults__
        wait.__kwdefaults__["timeout"] = PATIENCE
