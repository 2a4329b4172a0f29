"""What the publisher needs of the API server. The client is given to it, and not loaded here."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from deviceplugin._platform.api_errors import ApiServerError

Object = dict[str, Any]
Slices = Mapping[str, Object]
"""Slices by name."""


class Watching(Protocol):
    """A watch of slices."""

    def run(self) -> None:
        """Watch until stopped."""

    def stop(self) -> None:
        """Make ``run`` return."""


class SliceStore(Protocol):
    """The slices of one driver on one node, in the API server. Thread-safe.

    All methods but ``watch`` raise ``ApiServerError``.
    """

    def owner(self) -> Mapping[str, Any] | None:
        """Return a reference to the Node, or None if its UID is unknown."""

    def list(self) -> tuple[Slices, str]:
        """Return all slices, and the version of the list."""

    def create(self, one: Object) -> Object:
        """Create a slice and return it."""

    def try_out(self, one: Object) -> Object:
        """Return what creating a slice would, without creating it."""

    def replace(self, one: Object) -> Object:
        """Replace the slice of the same name, UID and version, and return it."""

    def delete(self, name: str, uid: str) -> None:
        """Delete a slice."""

    def watch(
        self, changed: Callable[[Slices, str], None], failed: Callable[[ApiServerError], None]
    ) -> Watching:
        """Return a watch that calls ``changed`` with what ``list`` returns, and with each change.

        ``failed`` is called with each error, before the next attempt.
        """
