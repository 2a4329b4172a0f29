"""Encoding a long list in chunks, so that only changed chunks are encoded again.

Encoded chunks that are joined are the encoded list: protobuf defines repeated fields so.
"""

from collections.abc import Sequence
from itertools import zip_longest
from operator import is_
from typing import Final, NamedTuple

from deviceplugin._inventory.encoding import encode_list
from deviceplugin.model import Device

_LENGTH: Final = 256
"""Devices in a chunk: few enough to encode quickly, and many enough that there are few chunks."""


class Chunk(NamedTuple):
    """Consecutive devices of a list."""

    devices: Sequence[Device]
    encoded: bytes
    healthy: int
    """Number of healthy devices."""


def encode_chunks(devices: Sequence[Device], before: Sequence[Chunk] = ()) -> list[Chunk]:
    """Return ``devices`` in chunks. An unchanged chunk is the object from ``before``.

    A chunk is unchanged if it has the same objects. Comparing identities is cheap, and equality
    would depend on classes of plugins.
    """
    parts = [devices[start : start + _LENGTH] for start in range(0, len(devices), _LENGTH)]
    return [
        old if old is not None and _same(old.devices, part) else _encode(part)
        for part, old in zip_longest(parts, before[: len(parts)])
    ]


def _same(one: Sequence[Device], other: Sequence[Device]) -> bool:
    return len(one) == len(other) and all(map(is_, one, other))


def _encode(devices: Sequence[Device]) -> Chunk:
    healthy = sum(device.health.healthy for device in devices)
    return Chunk(devices, encode_list(devices), healthy)
