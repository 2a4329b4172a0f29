"""The inventory: the resources of a process, and the latest devices of each as on the wire."""

import threading
import time
from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from operator import is_
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from deviceplugin._inventory.validation import natural_key
from deviceplugin._platform.callbacks import Listeners
from deviceplugin.errors import DiscoveryError
from deviceplugin.model import Device
from deviceplugin.plugin import Plugin, overrides
from deviceplugin.proto.v1beta1 import HEALTHY, MAX_LIST_BYTES, UNHEALTHY
from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb

_LENGTH: Final = 256
"""Devices in a chunk: few enough to encode quickly, and many enough that there are few chunks."""
_NO_DEVICES: Final[Mapping[str, Device]] = MappingProxyType({})
_FEW: Final = 16
"""Inserting one device into a sorted list costs about as much as sorting this many."""


class Chunk(NamedTuple):
    """Consecutive devices of a list. The encoded chunks, joined, are the encoded list."""

    devices: Sequence[Device]
    encoded: bytes
    longest: int
    """Bytes that it can have while the devices are these: when all of them are unhealthy."""


def encode_chunks(devices: Sequence[Device], before: Sequence[Chunk] = ()) -> list[Chunk]:
    """Return ``devices`` in chunks. An unchanged chunk is the object from ``before``.

    A chunk is unchanged if it has the same objects. Comparing identities is cheap, and equality
    would depend on classes of plugins.
    """
    parts = [devices[start : start + _LENGTH] for start in range(0, len(devices), _LENGTH)]
    return [
        old if old is not None and _are_same(old.devices, part) else _encode(part)
        for part, old in zip_longest(parts, before[: len(parts)])
    ]


def encode_list(devices: Iterable[Device]) -> bytes:
    """Return ``devices`` as an encoded ``ListAndWatchResponse``, in the order given."""
    return b"".join(chunk.encoded for chunk in encode_chunks(list(devices)))


def _are_same(one: Sequence[Device], other: Sequence[Device]) -> bool:
    return len(one) == len(other) and all(map(is_, one, other))


def _encode(devices: Sequence[Device]) -> Chunk:
    response = pb.ListAndWatchResponse()
    add = response.devices.add
    for device in devices:
        entry = add()  # filling it in place is three times as fast as copying a message into it
        entry.ID = device.id
        entry.health = HEALTHY if device.health.healthy else UNHEALTHY
        if device.topology is not None:
            # It must not be present but empty: then the kubelet hides the device in PodResources.
            for node in device.topology.numa_nodes:
                entry.topology.nodes.add(ID=node)
    encoded = response.SerializeToString()
    for entry in response.devices:
        entry.health = UNHEALTHY
    return Chunk(devices, encoded, response.ByteSize())


class Snapshot(NamedTuple):
    """The devices of a resource at one moment, by id in natural order."""

    devices: Mapping[str, Device]
    encoded: bytes
    """The same as the kubelet gets it if all are offered, encoded once for all streams."""
    chunks: Sequence[Chunk]
    """The chunks of ``encoded``."""
    listed: Mapping[str, Device]
    """Those of ``devices`` that the kubelet is told: no parts on demand."""


_NOTHING: Final = Snapshot(_NO_DEVICES, b"", (), _NO_DEVICES)


class Resource:
    """One resource name, the plugin that serves it and its latest snapshot. Thread-safe."""

    def __init__(self, name: str, plugin: Plugin) -> None:
        self.name = name
        self.plugin = plugin
        self.snapshot: Snapshot | None = None
        """The latest snapshot; None before the first. It is replaced and never modified."""
        self._lock = threading.Lock()
        self._listeners = Listeners()
        self._since: dict[str, float] = {}
        self._final = False

    @property
    def devices(self) -> Mapping[str, Device]:
        snapshot = self.snapshot
        return _NO_DEVICES if snapshot is None else snapshot.devices

    @property
    def listed(self) -> Mapping[str, Device]:
        """Those of ``devices`` that the device plugin may offer."""
        return (self.snapshot or _NOTHING).listed

    def since(self, device_id: str) -> float:
        """Return when the device's health last changed, in seconds since the epoch."""
        return self._since.get(device_id, 0.0)

    def publish(self, devices: Iterable[Device]) -> list[Device]:
        """Make ``devices`` the latest snapshot and return those whose health changed.

        DiscoveryError if the list is too long for the kubelet. Then the last one stays.
        """
        before = self.snapshot or _NOTHING
        new = _ordered({device.id: device for device in devices}, before.devices)
        parts, listed = self._divided(new)
        chunks = encode_chunks(list(listed.values()), before.chunks)
        encoded = b"".join(chunk.encoded for chunk in chunks)
        longest = sum(chunk.longest for chunk in chunks)
        if longest > MAX_LIST_BYTES:
            raise DiscoveryError(
                f"the list of {len(listed)} devices for {self.name} has {longest} bytes, but the "
                f"kubelet accepts {MAX_LIST_BYTES} at most: use fewer devices or shorter ids"
            )
        changed_parts = [one for one in parts if _is_news(one, before)]
        changed = [*_changed(chunks, before), *changed_parts]
        now = time.time()
        with self._lock:
            if self._final:
                return []
            if self._since.keys() != new.keys():
                self._since = {device_id: self._since.get(device_id, now) for device_id in new}
            self._since.update((device.id, now) for device in changed)
            stale = self.snapshot is None or self.snapshot.encoded != encoded
            known = MappingProxyType(new)
            kept = known if listed is new else MappingProxyType(listed)
            self.snapshot = Snapshot(known, encoded, chunks, kept)
        if stale or changed_parts:
            self._listeners.call()
        return changed

    def _divided(self, devices: dict[str, Device]) -> tuple[list[Device], dict[str, Device]]:
        """Return the parts on demand, and the others: ``devices`` itself if there are no parts."""
        parts: dict[str, Device] = {}
        if overrides(self.plugin, "make_part"):
            parts = {i: one for i, one in devices.items() if one.part and one.part.on_demand}
        if not parts:
            return [], devices
        return [*parts.values()], {i: one for i, one in devices.items() if i not in parts}

    def close(self) -> None:
        """Ignore all later snapshots."""
        with self._lock:
            self._final = True

    def subscribe(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call ``changed``, from any thread, after each other snapshot; return what ends that."""
        return self._listeners.add(changed)


def _ordered(devices: dict[str, Device], old: Mapping[str, Device]) -> dict[str, Device]:
    """Return ``devices`` in natural order; ``old`` is in that order."""
    ids = list(old)
    if list(devices) == ids:
        return devices
    if devices.keys() != old.keys():
        # Sort keys cost more than all the rest, so this computes as few of them as possible.
        added = [device_id for device_id in devices if device_id not in old]
        if len(added) * _FEW > len(devices):
            ids = sorted(devices, key=natural_key)
        else:
            ids = [device_id for device_id in ids if device_id in devices]
            for device_id in added:
                insort(ids, device_id, key=natural_key)
    return {device_id: devices[device_id] for device_id in ids}


def _changed(chunks: Iterable[Chunk], before: Snapshot) -> Iterator[Device]:
    """Yield the devices that are new, or whose health has changed."""
    old = {id(chunk) for chunk in before.chunks}
    for chunk in chunks:
        for device in chunk.devices if id(chunk) not in old else ():
            if _is_news(device, before):
                yield device


def _is_news(device: Device, before: Snapshot) -> bool:
    was = before.devices.get(device.id)
    # It is usually the same object, and == is slower.
    return was is None or not (was.health is device.health or was.health == device.health)


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
        with self._lock:
            self._advertised = {**self._advertised, resource.name: resource}
        for front in self._fronts:
            front.advertise(resource)

    def withdraw(self, resource: Resource) -> None:
        """Stop offering ``resource``; its name may be claimed again afterwards."""
        name = resource.name
        with self._lock:
            self._advertised = {k: one for k, one in self._advertised.items() if k != name}
        for front in self._fronts:
            front.withdraw(resource)
        with self._lock:
            self._resources = {k: one for k, one in self._resources.items() if k != name}
