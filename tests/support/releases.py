"""Tests on the kubelets of all releases that are simulated."""

from typing import Final

import pytest

from deviceplugin_testing.simulator import RELEASES

_QUICK: Final = {RELEASES[0], RELEASES[len(RELEASES) // 2], RELEASES[-1]}
EVERY_RELEASE: Final = pytest.mark.parametrize(
    "kubelet_version",
    [each if each in _QUICK else pytest.param(each, marks=pytest.mark.slow) for each in RELEASES],
)
"""Runs a test that uses the fixture ``kubelet`` once on each.

In what releases differ has tests of its own, so most of them are left to the slow tests.
"""
