"""How ``accept`` tries AMD GPUs: the render node is opened, and its driver asked."""

from typing import Final

from deviceplugin.checks import Acceptance
from deviceplugin_amd.gpus import DRIVER

ACCEPTANCE: Final = Acceptance(
    module="deviceplugin_amd",
    strategies={"device-nodes": ()},
    drivers=frozenset({DRIVER}),
    node=r".*/renderD\d+",
)
