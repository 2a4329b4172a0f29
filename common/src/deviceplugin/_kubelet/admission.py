"""The interface that may refuse an allocation."""

from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from typing import Final, Protocol

from typing_extensions import override

from deviceplugin._inventory.published import Resource


class Admission(Protocol):
    """Is called around each Allocate. Thread-safe."""

    def admit(self, resource: Resource, ids: Collection[str]) -> AbstractContextManager[None]:
        """Return a context in which these devices of ``resource`` are allocated.

        Entering it may wait or refuse. If its body raises, no container got the devices.

        Raises:
            AllocationError: On entering it, if the devices must not be allocated.
        """


class _AdmitAll(Admission):
    @override
    def admit(self, resource: Resource, ids: Collection[str]) -> AbstractContextManager[None]:
        return nullcontext()


ADMIT_ALL: Final[Admission] = _AdmitAll()
"""Admits everything, for use without a tracker of what pods hold."""
