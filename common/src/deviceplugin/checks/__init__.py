"""What checks of a node are written with, for plugins that tell ``deviceplugin doctor`` more.

A check is a function that is given a ``Node`` and yields a ``Finding`` for each thing it looked at,
within seconds and without changing anything. The first line of its docstring is its title. A plugin
brings it by an entry point of the group ``deviceplugin.doctor``, under the name of the check.
"""

from deviceplugin.checks._finding import Finding, Verdict, failure, ok, unknown, warning
from deviceplugin.checks._hardware import Hardware, Need
from deviceplugin.checks._node import Node

__all__ = [
    "Finding",
    "Hardware",
    "Need",
    "Node",
    "Verdict",
    "failure",
    "ok",
    "unknown",
    "warning",
]
