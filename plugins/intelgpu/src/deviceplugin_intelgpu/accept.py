"""How ``accept`` tries Intel GPUs: the render node is opened, and its driver asked."""

from typing import Final

from deviceplugin.checks import Acceptance

ACCEPTANCE: Final = Acceptance(
    module="deviceplugin_intelgpu",
    strategies={"device-nodes": ()},
    drivers=frozenset({"i915", "xe"}),
    node=r".*/renderD\d+",
)
