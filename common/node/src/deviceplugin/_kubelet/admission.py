"""The interface that may refuse an allocation."""

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, Protocol

from typing_extensions import override

from deviceplugin._inventory.published import Resource

Defer = Callable[[Callable[[], None]], Any]
"""Calls a function soon, for what need not be done before the kubelet has its answer."""


class Admission(Protocol):
    """Is called around each Allocate. Thread-safe."""

    def admit(
        self, resource: Resource, ids: Collection[str], defer: Defer
    ) -> AbstractContextManager[None]:
        """Return a context in which these devices of ``resource`` are allocated.

        Entering it may wait or refuse. If its body raises, no container got the devices. What
        prevents that a device is given out twice is done in the context; the rest is deferred.

        Raises:
            AllocationError: On entering it, if the devices must not be allocated.
        """

    def may_wait(self, resource: Resource) -> bool:
        """Return whether entering the context for devices of ``resource`` may take long."""

    def held(self, resource: str) -> Collection[str]:
        """Return the devices of ``resource`` that pods hold, as far as is known."""

    def watched(self, resource: str) -> None:
        """Record that a kubelet begins to watch ``resource``. It may read a file."""

    def avoided(self, resource: str) -> Collection[str]:
        """Return those of ``held`` that the kubelet may take for free."""

    def remembers(self, resource: str) -> bool:
        """Return whether the kubelet has ``resource`` on record: registered, or lost lately.

        False if that is not known.
        """


class AdmitAll(Admission):
    """Admits everything, and knows of nothing."""

    @override
    def admit(
        self, resource: Resource, ids: Collection[str], defer: Defer
    ) -> AbstractContextManager[None]:
        return nullcontext()

    @override
    def may_wait(self, resource: Resource) -> bool:
        return False

    @override
    def held(self, resource: str) -> Collection[str]:
        return ()

    avoided = held

    @override
    def watched(self, resource: str) -> None:
        pass

    @override
    def remembers(self, resource: str) -> bool:
        return False


ADMIT_ALL: Final[Admission] = AdmitAll()
"""Admits everything, for use without a tracker of what pods hold."""
