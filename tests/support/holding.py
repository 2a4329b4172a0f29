"""A plugin whose devices can be held: how a test asks for that, and sees what became of it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final

import deviceplugin as dp
from deviceplugin_testing.fixture import Kubelet, Node
from patience import eventually

QUICK: Final = timedelta(milliseconds=50)
WHY: Final = "its fan is replaced"


@contextmanager
def running(kubelet: Kubelet, *plugins: dp.Plugin, **changes: object) -> Iterator[Node]:
    settings = {"pod_resources_interval": QUICK, **changes}
    with kubelet.running(*plugins, **settings) as node:
        eventually(lambda: not node.host.ready(), "the plugin to be ready")
        yield node


def ask(node: Node, do: str, device: str = "", **more: object) -> Mapping[str, Any]:
    return node.host.ask_hold({"do": do, "device": device, "reason": WHY, **more})


def states(node: Node) -> dict[str, str]:
    return {one["device"]: one["state"] for one in ask(node, "list")["holds"]}


def reasons(node: Node) -> dict[str, str]:
    return {
        one["id"]: one["reason"]
        for each in node.host.inventory()["resources"]
        for one in each["devices"]
        if not one["healthy"]
    }
