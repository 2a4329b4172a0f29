"""Tests on the kubelets of the oldest release that is simulated, the newest, and one between."""

from typing import Final

import pytest

from deviceplugin_testing.simulator import RELEASES

THREE_RELEASES: Final = pytest.mark.parametrize(
    "kubelet_version", [RELEASES[0], RELEASES[len(RELEASES) // 2], RELEASES[-1]]
)
"""Runs a test that uses the fixture ``kubelet`` on each; what differs has tests of its own.

Of the pod resources API, the first has no Get, the second one that is off, and the third one.
"""
