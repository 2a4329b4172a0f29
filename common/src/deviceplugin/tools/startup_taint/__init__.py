"""Removes a node's startup taint once its devices are there: ``deviceplugin startup-taint``.

A process of its own, beside a plugin: it asks the plugin whether its devices are registered, and
the API server whether the node shows them. Off unless it is deployed.
"""

from deviceplugin.tools.startup_taint._cli import main
from deviceplugin.tools.startup_taint._keeper import Keeper
from deviceplugin.tools.startup_taint._node import Node, NodeState
from deviceplugin.tools.startup_taint._readiness import Readiness, readiness

__all__ = ["Keeper", "Node", "NodeState", "Readiness", "main", "readiness"]
