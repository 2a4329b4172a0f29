"""Checks any DRA driver against what a kubelet expects of it: ``deviceplugin conformance --dra``.

The driver runs as its own process on a simulated node of a simulated cluster.
"""

from deviceplugin_testing.conformance.dra._node import DraNode
from deviceplugin_testing.conformance.dra._trial import DraTrial
from deviceplugin_testing.conformance.dra.checks import DRA_CHECKS, DRA_GROUPS

__all__ = ["DRA_CHECKS", "DRA_GROUPS", "DraNode", "DraTrial"]
