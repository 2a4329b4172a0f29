"""What each tool says of the same node in each mode, and in the middle of a switch each way."""

import pytest

from deviceplugin.tools._plugin_pods import Plugin
from deviceplugin.tools.startup_taint._keeper import readiness
from drivers.moded_node import ModedNode

pytestmark = pytest.mark.slow


def test_the_plugin_is_ready_in_each_mode(moded: ModedNode) -> None:
    assert not readiness(Plugin("n1", moded.url)).problem
