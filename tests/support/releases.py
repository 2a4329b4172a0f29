"""Tests on the kubelets of all releases that are simulated."""

from typing import Final

import pytest

from deviceplugin_testing.simulator import RELEASES

EVERY_RELEASE: Final = pytest.mark.parametrize("kubelet_version", RELEASES)
"""Runs a test that uses the fixture ``kubelet`` once on each."""
