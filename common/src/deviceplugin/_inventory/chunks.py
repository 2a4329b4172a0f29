"""A long list in chunks: only those in which something has changed are encoded again.

Lists that are encoded one by one and joined are the list of them all: that is how protobuf
defines repeated fields.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from operator import is_
from typing import Final

from deviceplugin._inventory.encoding import encode_list
from deviceplugin.model import Device

_LENGTH: Final = 256
"""Devices of a chunk: little to encode again, and few chunks to join."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some devices that follow each other in a list."""

    devices: Sequence[Device]
    encoded: bytes
    healthy: int
    """How many of them are."""


def encode_chunks(devices: Sequence[Device], before: Sequence[Chunk] = ()) -> list[Chunk]:
    """Return ``devices`` in chunks; one that is the same as its place in ``before`` is that one.

    The same are those with the same objects in it, which costs next to nothing to see; what is
    equal is up to the classes of plugins.
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
