"""What a plugin says of its devices, as far as a startup taint depends on it."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from deviceplugin.tools._devices_page import NoAnswerError, fetch, page_of

_TIMEOUT: Final = 5.0
_MAX_BYTES: Final = 8 * 1024**2


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether a plugin is ready, and for which resources.

    Attributes:
        problem: Why it is not ready; empty where it is.
        resources: Those that have devices, and whether any of these is healthy; None if DRA has
            them all, whose devices are not in a node's status.
    """

    problem: str = ""
    resources: Mapping[str, bool | None] | None = None

    def missing_on(self, capacity: Mapping[str, Any], allocatable: Mapping[str, Any]) -> list[str]:
        """Return the resources that a node with these numbers does not show yet."""
        return [
            name
            for name, healthy in sorted((self.resources or {}).items())
            if healthy is not None and not _some(allocatable if healthy else capacity, name)
        ]


def readiness(plugin: str) -> Readiness:
    """Return how ready the plugin at the address ``plugin`` is.

    A plugin that does not answer is not ready. One that is ready and has no devices has discovered,
    and found none.
    """
    try:
        base = page_of(plugin).removesuffix("/devices")
        fetch(f"{base}/readyz", _TIMEOUT, _MAX_BYTES)
        resources = dict(_with_devices(json.loads(fetch(page_of(plugin), _TIMEOUT, _MAX_BYTES))))
    except NoAnswerError as error:
        return Readiness(f"{plugin}: {error}")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return Readiness(f"{plugin}: is not a list of a plugin's devices")
    return Readiness(resources=resources)


def _with_devices(page: Any) -> Iterator[tuple[str, bool | None]]:
    for resource in page["resources"]:
        if resource["devices"]:
            if resource["problem"]:  # since it was asked whether it is ready
                raise NoAnswerError(f"{resource['name']}: {resource['problem']}")
            healthy = any(device["healthy"] for device in resource["devices"])
            yield str(resource["name"]), healthy if resource["registered"] else None


def _some(amounts: Mapping[str, Any], resource: str) -> bool:
    """Return whether there is any; as the kubelet writes it, or with a suffix."""
    return str(amounts.get(resource, "0")) != "0"
