"""Devices that one protocol gives up and the other does not offer yet."""

from collections.abc import Collection, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from deviceplugin._attribution.poll_schedule import Key
from deviceplugin._platform.file_identity import Identity


@dataclass(slots=True, eq=False, repr=False)
class _Closing:
    """A device that the kubelet has acknowledged to be withdrawn."""

    free_since: float | None = None
    kubelet: Identity = None


class Handover:
    """The devices that the protocol of the other mode has offered and that it may still give out.

    It ends for each device by itself. Not thread-safe; times are monotonic seconds.

    Args:
        confirm: Time between the two polls that must find a device free.
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
        """The devices whose handover is not over."""
        return self._left.keys()

    def turn(self, known: Iterable[Key]) -> None:
        """Begin the handover in the other direction. ``known`` are the devices that there are.

        Those that have been handed over go back; the others were never given up.
        """
        self._left = dict.fromkeys(set(known) - self._left.keys())

    def end(self, keys: Iterable[Key]) -> None:
        """End the handover of ``keys``."""
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
        all pods, nor in the polls between, and they do not count as ``held``.
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
