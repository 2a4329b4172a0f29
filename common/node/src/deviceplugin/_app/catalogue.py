"""The resources of a process, and the protocols that offer them."""

import threading
from collections.abc import Mapping
from typing import Protocol

from deviceplugin._inventory.published import Resource
from deviceplugin.plugin import Plugin


class Front(Protocol):
    """A protocol that offers resources. Thread-safe."""

    def advertise(self, resource: Resource) -> None:
        """Offer ``resource``. It is called again after each discovery."""

    def withdraw(self, resource: Resource) -> None:
        """Stop offering ``resource``, if it is offered; return when that is done."""


class Catalogue:
    """The resources that discoveries fill and that fronts offer. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._resources: Mapping[str, Resource] = {}
        self._advertised: Mapping[str, Resource] = {}
        self._fronts: tuple[Front, ...] = ()
        """All three are replaced and never modified."""

    def resources(self) -> Mapping[str, Resource]:
        """Return all resources that have been claimed, by name. It does not wait for a lock."""
        return self._resources

    def attach(self, front: Front) -> None:
        """Let ``front`` offer all resources, from now on."""
        with self._lock:
            self._fronts = (*self._fronts, front)
        for resource in self._advertised.values():
            front.advertise(resource)

    def detach(self, front: Front) -> None:
        """Let ``front`` offer no further resources."""
        with self._lock:
            self._fronts = tuple(each for each in self._fronts if each is not front)

    def claim(self, name: str, plugin: Plugin) -> Resource | None:
        """Return the resource for ``plugin``, or None if another plugin has it."""
        with self._lock:
            if name in self._resources:
                return None
            resource = Resource(name, plugin)
            self._resources = {**self._resources, name: resource}
            return resource

    def advertise(self, resource: Resource) -> None:
        """Offer ``resource``, which has been claimed and has devices."""
        with self._lock:
            self._advertised = {**self._advertised, resource.name: resource}
        for front in self._fronts:
            front.advertise(resource)

    def withdraw(self, resource: Resource) -> None:
        """Stop offering ``resource``; its name may be claimed again afterwards."""
        with self._lock:
            self._advertised = _without(self._advertised, resource.name)
        for front in self._fronts:
            front.withdraw(resource)
        with self._lock:
            self._resources = _without(self._resources, resource.name)


def _without(resources: Mapping[str, Resource], name: str) -> Mapping[str, Resource]:
    return {key: one for key, one in resources.items() if key != name}
