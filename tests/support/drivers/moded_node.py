"""The same node in each mode: by device plugin, by DRA, and in the middle of a switch each way."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final, Literal, get_args

import deviceplugin as dp
from drivers.dual_node import IDS, NODE, DualNode, gopher

Mode = Literal["device-plugin", "dra", "to dra", "to device-plugin"]
MODES: Final[tuple[Mode, ...]] = get_args(Mode)
HOLDER: Final = "holder"
"""The pod that has one of the three devices, by the first protocol in a switch."""


class ModedNode(DualNode):
    """A node whose plugin is in ``mode``. In a switch, the holder keeps its device from going."""

    mode: Mode = "device-plugin"

    @property
    def url(self) -> str:
        """Where the plugin serves HTTP."""
        assert self.host is not None
        return f"http://127.0.0.1:{self.host.http_port}"

    def fail(self, name: str, reason: str) -> None:
        """Make a device unhealthy."""
        health = dp.Health.unhealthy(reason)
        self.plugin.set(
            *(replace(gopher(one), health=health if one == name else dp.Health()) for one in IDS)
        )

    def enter(self, mode: Mode) -> None:
        """Start the plugin, give the holder its device, and go to ``mode``."""
        self.mode = mode
        first, then = ("dra", "device-plugin") if mode in {"dra", "to device-plugin"} else _BACK
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        self.cluster.change("Node", NODE, lambda node: node["status"].update(conditions=[ready]))
        self.start(protocol=first, http_address="127.0.0.1:0")
        self._offer(first, set(IDS))
        held = self.run(HOLDER)
        if mode.startswith("to "):
            self.switch(then)
            self._offer(then, set(IDS) - held)

    def _offer(self, protocol: str, ids: set[str]) -> None:
        dra = protocol == "dra"
        self.wait_for(plugin=set() if dra else ids, dra=ids if dra else set())


_BACK: Final = ("device-plugin", "dra")


@contextmanager
def in_mode(root: Path, mode: Mode) -> Iterator[ModedNode]:
    """Run the node in ``mode`` below ``root``, which is short; no device is ever in two pods."""
    with ModedNode(root) as node:
        node.enter(mode)
        yield node
        node.check()
