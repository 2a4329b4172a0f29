"""How ``accept`` tries Intel GPUs: the render node is opened, and its driver asked."""

from typing import Final

from deviceplugin.checks import Acceptance
from deviceplugin_intelgpu.settings import DRIVERS

ACCEPTANCE: Final = Acceptance(
    module="deviceplugin_intelgpu",
    strategies={"device-nodes": ()},
    drivers=frozenset(DRIVERS),
    node=r".*/renderD\d+",
)
