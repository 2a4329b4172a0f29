"""The checks, a module for each group."""

from typing import Final

from deviceplugin_testing.conformance._check import Check, CheckGroup
from deviceplugin_testing.conformance.checks import (
    _allocation,
    _lists,
    _losses,
    _overlap,
    _pods,
    _preferred,
    _registration,
    _resources,
    _shutdown,
)

GROUPS: Final[tuple[CheckGroup, ...]] = (
    _registration.GROUP,
    _lists.GROUP,
    _allocation.GROUP,
    _preferred.PREFERRED,
    _preferred.PRE_START,
    _losses.RESTART,
    _losses.STREAM_LOSS,
    _losses.SOCKET_LOSS,
    _overlap.GROUP,
    _pods.HOT_PLUG,
    _shutdown.GROUP,
    _resources.GROUP,
    _pods.CRASH,
)
"""In the order in which they run. The last one checks what all others did to the kubelet."""

CHECKS: Final[tuple[Check, ...]] = tuple(check for group in GROUPS for check in group.checks)
"""All checks, in the order in which they are reported."""
