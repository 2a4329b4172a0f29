"""Durations, sizes and counts, as people and the API server write them."""

import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Final

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION: Final = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+", re.ASCII)
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", re.ASCII)
DURATION_PATTERN: Final = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h|d))+$"
TOO_LARGE: Final = 10**18
"""Whole numbers are smaller, and larger than its negative, so all fit into 64 bits."""
LONGEST: Final = timedelta(days=36500)
"""100 years. Far less than what the clocks of Python and the kernel can count."""

_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)(k|M|G|T|P|[KMGTP]i)?B?", re.ASCII)
SIZE_PATTERN: Final = r"^[0-9]+(\.[0-9]+)?(k|M|G|T|P|[KMGTP]i)?B?$"
_PREFIXES: Final = "kMGTP"


def seconds(text: str) -> float:
    """Return the seconds of a duration: ``500ms``, ``30s``, ``1m30s``, ``1.5h``, ``1d``.

    ValueError if it is not one; the message continues after the value.
    """
    if not _DURATION.fullmatch(text):
        raise ValueError("is not a duration, such as 500ms, 30s or 1m30s")
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))


def write_duration(duration: timedelta) -> str:
    """Return ``duration`` in the largest units that fit, rounded to milliseconds: ``1m30s``."""
    left = round(duration.total_seconds() * 1000)
    text = ""
    for unit, size in (("d", 86400000), ("h", 3600000), ("m", 60000), ("s", 1000), ("ms", 1)):
        count, left = divmod(left, size)
        text += f"{count}{unit}" if count else ""
    return text or "0s"


def size_in_bytes(text: str) -> int:
    """Return the bytes of a size as Kubernetes writes it: ``512``, ``1.5G``, ``80Gi``, ``4KiB``.

    ValueError if it is not one; the message continues after the value.
    """
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ValueError("is not a size, such as 512Ki, 80Gi or 1.5G")
    prefix = found[2] or ""
    power = _PREFIXES.index(prefix[0].replace("K", "k")) + 1 if prefix else 0
    unit: int = (1024 if prefix.endswith("i") else 1000) ** power
    return round(float(found[1]) * unit) if "." in found[1] else int(found[1]) * unit


def whole_number(text: str) -> int:
    """Return a count as the API server writes it: ``12``, or ``2k`` for 2000.

    ValueError if it is not one, such as ``500m`` or ``1.5k``.
    """
    if "." in text or text.endswith("B"):
        raise ValueError("is not a whole number")
    return size_in_bytes(text)


def devices_in(amounts: Mapping[str, object]) -> dict[str, int]:
    """Return how many devices of each resource there are.

    Resources of Kubernetes itself, such as ``memory`` and ``hugepages-2Mi``, are not devices, and
    an amount that is not a whole number is ignored. The API server writes round numbers with a
    suffix: 2000 devices are ``2k``.
    """
    found: dict[str, int] = {}
    for name, amount in amounts.items():
        domain, slash, _ = name.partition("/")
        if slash and domain != "kubernetes.io":
            with suppress(ValueError):
                found[name] = whole_number(str(amount))
    return found
