"""What a plugin says of its devices, as far as a startup taint depends on it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deviceplugin.tools._devices_page import NoAnswerError
from deviceplugin.tools._plugin_pods import Plugin


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether a plugin is ready, and for which resources.

    Attributes:
        problem: Why it is not ready; empty where it is.
        resources: Those that have devices, and whether any of these is healthy; None if DRA has
            them all, whose devices are not in a node's status.
        boot: The kernel's id of the boot that the plugin runs in; empty if it is not known.
    """

    problem: str = ""
    resources: Mapping[str, bool | None] | None = None
    boot: str = ""

    def missing_on(self, capacity: Mapping[str, Any], allocatable: Mapping[str, Any]) -> list[str]:
        """Return the resources that a node with these numbers does not show yet."""
        return [
            name
            for name, healthy in sorted((self.resources or {}).items())
            if healthy is not None and not _some(allocatable if healthy else capacity, name)
        ]


def readiness(plugin: Plugin) -> Readiness:
    """Return how ready ``plugin`` is.

    A plugin that does not answer is not ready. One that is ready and has no devices has discovered,
    and found none.
    """
    try:
        return plugin.says(_of_page, "/readyz")
    except NoAnswerError as error:
        return Readiness(f"{plugin.url}: {error}")


def _of_page(page: Any) -> Readiness:
    found: dict[str, bool | None] = {}
    for resource in page["resources"]:
        if resource["devices"]:
            if resource["problem"]:  # since it was asked whether it is ready
                raise NoAnswerError(f"{resource['name']}: {resource['problem']}")
            healthy = any(device["healthy"] for device in resource["devices"])
            found[str(resource["name"])] = healthy if resource["registered"] else None
    return Readiness(resources=found, boot=str(page.get("boot", "")))


def _some(amounts: Mapping[str, Any], resource: str) -> bool:
    """Return whether there is any; as the kubelet writes it, or with a suffix."""
    return str(amounts.get(resource, "0")) != "0"
