"""Selecting GPUs by index, UUID, PCI address or model."""

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Final

from deviceplugin_gpu.snapshot import Gpu, Mig

_INDEX: Final = re.compile(r"(\d+)(?::(\d+))?", re.ASCII)
_PCI: Final = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])", re.ASCII)


def is_by_model(selector: str) -> bool:
    """Return whether what ``selector`` matches depends on the model of a GPU."""
    others = _INDEX.fullmatch(selector), _PCI.fullmatch(selector.lower())
    return not (any(others) or selector.lower().startswith(("gpu-", "mig-")))


def names_gpu(selector: str, gpu: Gpu) -> bool:
    """Return whether ``selector`` matches ``gpu``.

    It is an index (``0``), a UUID (``GPU-...``), a PCI address (``0000:3b:00.0``, ``3b:00.0``), or
    a pattern of the model with ``*`` and ``?`` (``*A100*``). Case is ignored.
    """
    if index := _INDEX.fullmatch(selector):
        return index[2] is None and gpu.index == int(index[1])
    selector = selector.lower()
    if address := _PCI.fullmatch(selector):
        domain = (address[1] or "").lstrip("0").zfill(4)
        return f"{domain}:{address[2]}" == gpu.pci
    return selector == gpu.uuid.lower() or names_model(selector, gpu.name)


def names_mig(selector: str, gpu: Gpu, mig: Mig) -> bool:
    """Return whether ``selector`` matches ``mig`` itself (``0:1``, ``MIG-...``) or its GPU."""
    index = _INDEX.fullmatch(selector)
    if index and index[2]:
        return (gpu.index, mig.index) == (int(index[1]), int(index[2]))
    return selector.lower() == mig.uuid.lower() or names_gpu(selector, gpu)


def names_model(pattern: str, name: str) -> bool:
    """Return whether ``pattern`` matches the name of a model or profile."""
    return fnmatchcase(name.lower(), pattern.lower())


def any_names(selectors: Iterable[str], gpu: Gpu, mig: Mig | None = None) -> bool:
    """Return whether any of ``selectors`` matches the GPU, or its MIG device if one is given."""
    return any(
        names_gpu(selector, gpu) if mig is None else names_mig(selector, gpu, mig)
        for selector in selectors
    )
