"""The CDI specification of a claim, made from what plugins allocate for its requests."""

from collections.abc import Mapping
from typing import Any

from deviceplugin.kit import cdi
from deviceplugin.model import Allocation

_ACCESS = ("ro", "rw")


def edits_of(allocation: Allocation) -> cdi.Edits:
    """Return what a container gets by the file. Annotations have no way through CDI."""
    return cdi.Edits(env=allocation.envs, nodes=allocation.nodes, mounts=allocation.mounts)


def document_of(kind: str, devices: Mapping[str, cdi.Edits]) -> dict[str, Any] | None:
    """Return the specification of ``devices``, which are of ``kind``; None if there are none.

    Raises:
        ValueError: A runtime would refuse it.
    """
    if not devices:
        return None
    document = cdi.Specification(kind, devices).document()
    for device in document["devices"]:
        for mount in device["containerEdits"].get("mounts", ()):
            mount["options"] = _options(mount["options"])
    return document


def _options(options: list[str]) -> list[str]:
    # A mount that a device plugin answers has only these: what works there works here too.
    return [*(one for one in options if one in _ACCESS), "rbind", "rprivate"]
