"""The API for checks of a node, which plugins add to ``deviceplugin doctor``.

A check is a function that gets a ``Node`` and yields a ``Finding`` for each thing that it examined.
It takes seconds at most and changes nothing. The first line of its docstring is its title. A plugin
registers it as an entry point of the group ``deviceplugin.doctor``, under the name of the check.
"""

from deviceplugin.checks._acceptance import Acceptance, Container, Found
from deviceplugin.checks._node import (
    Finding,
    Hardware,
    Need,
    Node,
    Verdict,
    failure,
    ok,
    unknown,
    warning,
)
from deviceplugin.checks._runtime import RuntimeConfig, runtime_config
from deviceplugin.checks._runtime_files import GIVES_DEVICES

__all__ = [
    "GIVES_DEVICES",
    "Acceptance",
    "Container",
    "Finding",
    "Found",
    "Hardware",
    "Need",
    "Node",
    "RuntimeConfig",
    "Verdict",
    "failure",
    "ok",
    "runtime_config",
    "unknown",
    "warning",
]
