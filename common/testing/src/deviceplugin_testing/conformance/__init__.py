"""Checks any device plugin against what a kubelet expects of it: ``deviceplugin conformance``.

The plugin runs as its own process on a simulated kubelet, so it can be in any language.
"""

from deviceplugin_testing.conformance._check import Check, Result, Verdict
from deviceplugin_testing.conformance._lanes import run
from deviceplugin_testing.conformance._subject import QUICK, Limits, Subject
from deviceplugin_testing.conformance._trial import Trial
from deviceplugin_testing.conformance.checks import CHECKS, GROUPS

__all__ = [
    "CHECKS",
    "GROUPS",
    "QUICK",
    "Check",
    "Limits",
    "Result",
    "Subject",
    "Trial",
    "Verdict",
    "run",
]
