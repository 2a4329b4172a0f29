"""What the two protocols say of a device, and devices that one gives up for the other."""

from collections.abc import Collection, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, Self

from deviceplugin._attribution.poll_schedule import Key
from deviceplugin._config.slices import HELD
from deviceplugin._platform.file_identity import Identity
from deviceplugin.model import Device


@dataclass(slots=True, eq=False, repr=False)
class _Closing:
    """A device that the kubelet has acknowledged to be withdrawn."""

    free_since: float | None = None
    kubelet: Identity = None


class Handover:
    """The devices that the protocol of the other mode has offered and that it may still give out.

    ``confirm`` is the time between the two polls that must find one free. Not thread-safe.
    """

    def __init__(self, confirm: float) -> None:
        self._confirm = confirm
        self._left: dict[Key, _Closing | None] = {}

    def __contains__(self, key: object) -> bool:
        return key in self._left

    def __len__(self) -> int:
        return len(self._left)

    @property
    def keys(self) -> AbstractSet[Key]:
        return self._left.keys()

    def turn(self, known: Iterable[Key]) -> None:
        """Begin the handover in the other direction. ``known`` are the devices that there are.

        Those that have been handed over go back; the others were never given up.
        """
        self._left = dict.fromkeys(set(known) - self._left.keys())

    def end(self, keys: Iterable[Key]) -> None:
        for key in list(keys):
            self._left.pop(key, None)

    def acknowledged(self, allocatable: Collection[Key]) -> None:
        """Record that the kubelet would give out only ``allocatable`` now."""
        for key, closing in self._left.items():
            if key in allocatable:
                self._left[key] = None
            elif closing is None:
                self._left[key] = _Closing()

    def observe(
        self,
        listed: Collection[Key],
        held: Collection[Key],
        kubelet: Identity,
        now: float,
        *,
        complete: bool,
    ) -> None:
        """End the handover of the devices that no pod has or can get any more.

        Since the acknowledgement they were not ``listed`` in two polls of one kubelet that knows
        all pods, nor between, and do not count as ``held``.
        """
        over = []
        for key, closing in self._left.items():
            if closing is None:
                continue
            if not complete or key in listed:
                closing.free_since = None
            elif closing.free_since is None or closing.kubelet != kubelet:
                closing.free_since, closing.kubelet = now, kubelet
            elif now - closing.free_since >= self._confirm and key not in held:
                over.append(key)
        self.end(over)


Mode = Literal["device-plugin", "dra"]
"""Which protocol offers devices."""

UNHEALTHY: Final = "unhealthy"
IN_USE: Final = "in-use"
_CAUSES: Final = {
    "held": "hold",
    "stale": "stale",
    "not known yet": "not-known",
    "": "withheld",
}
"""Values of the taint `HELD`, by how the reason in words begins; `IN_USE` for all others."""
UNKNOWN: Final = "not known yet: what pods hold through the device plugin"
BY_DRA: Final = "offered through DRA"
LEAVING_DRA: Final = "still offered through DRA"
LEAVING_PLUGIN: Final = "still offered through the device plugin"

Claimed = Literal["", "device", "share"]
"""How a claim holds a device: under its own name, or as a share of the device that it is part of.
Empty if none does."""


class OfferState(NamedTuple):
    """What DRA says of a device now."""

    device: Device
    offered: bool
    """Whether it belongs into the slices, with or without a taint."""
    taint: str
    """Why no claim should get it, as the value of a label; empty if nothing is in the way."""
    reason: str
    """The same in words."""
    claimed: Claimed = ""

    @property
    def cause(self) -> str:
        """Why it has its taint, as the value of that."""
        if self.taint == UNHEALTHY:
            return self.device.health.cause
        return _CAUSES.get(self.reason.partition(":")[0], IN_USE)

    @classmethod
    def of(cls, device: Device, *, offered: bool, closed: str, claimed: Claimed) -> Self:
        """Return what to say of ``device``; ``closed`` is why no claim may get it, or empty."""
        if closed:
            return cls(device, offered, HELD, closed, claimed)
        if not device.health:
            return cls(device, offered, UNHEALTHY, device.health.reason, claimed)
        return cls(device, offered, "", "", claimed)
