"""Who is asked before a device is given out."""

from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from typing import Final, Protocol

from typing_extensions import override

from deviceplugin._inventory.published import Resource


class Admission(Protocol):
    """Who is asked around each Allocate. Thread-safe."""

    def admit(self, resource: Resource, ids: Collection[str]) -> AbstractContextManager[None]:
        """Return what an Allocate of these devices of ``resource`` is made in.

        It may wait and refuse as it is entered, and learns as it is left whether a container got
        them: not if the body raises.

        Raises:
            AllocationError: From entering it, where the devices must not be given out.
        """


class _AdmitAll(Admission):
    @override
    def admit(self, resource: Resource, ids: Collection[str]) -> AbstractContextManager[None]:
        return nullcontext()


ADMIT_ALL: Final[Admission] = _AdmitAll()
"""For where nobody keeps account of who holds what."""
