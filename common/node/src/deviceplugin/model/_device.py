"""A device: its id, its health, and what a container needs to use it."""

import os
import posixpath
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, cast

from deviceplugin import topology as _topology
from deviceplugin.errors import AllocationError
from deviceplugin.model._allocation import (
    NOTHING,
    Allocation,
    DeviceNode,
    Joined,
    Mount,
    freeze,
    listed,
)

if TYPE_CHECKING:
    from deviceplugin.model._part import Part

_NO_LABEL: Final = re.compile(r"[^A-Za-z0-9_.-]+")


@dataclass(frozen=True, slots=True)
class Health:
    """Whether a device is healthy and, if it is not or will not be for long, why.

    True or false by itself: ``if device.health: ...``. A healthy device with a reason is degraded.
    """

    healthy: bool = True
    reason: str = ""
    """Shown to operators in logs and in ``/devices``. The kubelet's protocol cannot carry it."""
    cause: str = ""
    """The kind of reason in a word that stays the same, such as ``xid-79``, for programs.

    It is the value of the taint in DRA, and what ``auto-repair`` names. What the value of a label
    cannot have becomes a hyphen.
    """

    def __post_init__(self) -> None:
        object.__setattr__(self, "cause", _NO_LABEL.sub("-", str(self.cause))[:63].strip("-_."))
        if type(self.reason) is not str:
            object.__setattr__(self, "reason", _reason(self.reason, healthy=self.healthy))

    @classmethod
    def unhealthy(cls, reason: str, cause: str = "") -> "Health":
        """Return the health of a device that must not be given to a pod."""
        return cls(healthy=False, reason=reason, cause=cause)

    @classmethod
    def degraded(cls, reason: str, cause: str = "") -> "Health":
        """Return the health of a device that works, and will not for long: pods still get it."""
        return cls(healthy=True, reason=reason, cause=cause)

    @property
    def state(self) -> str:
        """``healthy``, ``degraded`` or ``unhealthy``."""
        if not self.healthy:
            return "unhealthy"
        return "degraded" if self.reason else "healthy"

    def __bool__(self) -> bool:
        return self.healthy

    def __str__(self) -> str:
        return "healthy" if self.state == "healthy" else f"{self.state}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Topology:
    """The NUMA nodes that a device is near, for the kubelet's topology manager.

    The kubelet rejects pods if some devices of a resource have a node and others have none. So the
    framework reports nodes for all or for none: if a healthy device has none, it drops the others'.
    """

    numa_nodes: Sequence[int] = ()

    def __post_init__(self) -> None:
        nodes = listed(self.numa_nodes)
        with suppress(TypeError):  # not numbers: the framework reports that
            nodes = tuple(sorted(set(nodes)))
        object.__setattr__(self, "numa_nodes", nodes)


class Version(str):
    """A semantic version, such as ``1.2.3``, as the value of an attribute.

    Claims can compare it: ``device.attributes["gpu.example.com"].driver.isGreaterThan(...)``. A
    version that is written otherwise, such as ``535.104`` or ``595.58.03``, is published as the
    semantic version that it can only mean; anything else is published as a string.
    """

    __slots__ = ()


Attribute = str | int | bool | Version
"""The value of an attribute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One device: its id, its health, and what a container needs to use it.

    ``Device("gpu0", nodes=[DeviceNode("/dev/gpu0")])``; everything but the id is optional.
    """

    id: str = field(kw_only=False)
    """Unique on the node, the same after a restart or reboot, 63 characters at most."""
    resource: str = ""
    """Resource to advertise it under; by default the plugin's ``resource``."""
    health: Health = Health()
    topology: Topology | None = None
    nodes: Sequence[DeviceNode] = ()
    mounts: Sequence[Mount] = ()
    envs: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    annotations: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    cdi_names: Sequence[str] = ()
    attributes: Mapping[str, Attribute] = field(default_factory=lambda: NOTHING)
    """Facts such as model and serial number; shown in ``/devices``. With DRA, pods can select
    devices by them, and the type of a value counts: a string is never taken for a number."""
    capacity: Mapping[str, int | str] = field(default_factory=lambda: NOTHING)
    """What the device has of something, such as ``{"memory": "80Gi"}``: a number, or a quantity as
    Kubernetes writes it. Shown in ``/devices``; with DRA, pods can select devices by it."""
    share_of: str = ""
    """If it is a share, the id of what is shared, which is not that of another device. All shares
    of it are equal but for their ids. With DRA slices have it once, and its shares are counted."""
    hardware: Sequence[str] = ()
    """The pieces of hardware that it is: paths of device nodes, which count by device number, and
    names, such as a PCI address. While a pod has one of them, no other device with it is given out,
    whatever its id or resource. By default, its ``nodes``. Devices that are there at the same time
    may have pieces in common, such as a control node."""
    part: "Part | None" = None
    """If other devices can be made of the same hardware: what it takes of that. See ``Part``."""
    numbered: bool = False
    """Whether ``{position}`` is replaced by the number of the device, from 0, among the devices of
    one container: in container paths, and in names and values of environment and annotations."""

    def __post_init__(self) -> None:
        # There can be very many devices, and most have nothing to freeze.
        if (
            type(self.nodes) is tuple
            and type(self.mounts) is tuple
            and type(self.cdi_names) is tuple
            and type(self.hardware) is tuple
            and type(self.envs) is MappingProxyType
            and type(self.annotations) is MappingProxyType
            and type(self.attributes) is MappingProxyType
            and type(self.capacity) is MappingProxyType
        ):
            return
        mappings = ("envs", "annotations", "attributes", "capacity")
        freeze(self, lists=("nodes", "mounts", "cdi_names", "hardware"), mappings=mappings)

    @classmethod
    def from_path(cls, path: Path | str, *, sysfs: Path = _topology.SYSFS) -> "Device":
        """Return the device whose device node is at ``path``; its id is the file name.

        It is healthy if the path leads to a character or block device; otherwise it is unhealthy,
        with the reason. The NUMA node is read from ``sysfs``. The container gets the node under
        the same path, for reading and writing. Use ``dataclasses.replace`` to change any of it.
        """
        if not _is_path(path):
            return cls(cast("str", path))  # is skipped later: it is not an id either
        path = Path(path)
        node = _topology.numa_node(path, sysfs=sysfs)
        return cls(
            path.name,
            health=_node_health(path),
            topology=None if node is None else Topology((node,)),
            nodes=(DeviceNode(str(path)),),
        )

    @property
    def allocation(self) -> Allocation:
        """What a container that is given this device alone needs."""
        return self.allocation_at(0)

    def allocation_at(self, position: int) -> Allocation:
        """Return what a container needs of this device if ``position`` others come before it.

        Only for a ``numbered`` device does the position matter.
        """
        if not self.numbered:
            return Allocation(self.nodes, self.mounts, self.envs, self.annotations, self.cdi_names)

        def fill(text: str) -> str:
            filled = text.replace("{position}", str(position))
            return Joined(filled) if isinstance(text, Joined) else filled

        return Allocation(
            [replace(one, container_path=fill(one.container_path)) for one in self.nodes],
            [replace(one, container_path=fill(one.container_path)) for one in self.mounts],
            {fill(name): fill(value) for name, value in self.envs.items()},
            {fill(name): fill(value) for name, value in self.annotations.items()},
            self.cdi_names,
        )


def _is_path(given: object) -> bool:
    return isinstance(given, str | os.PathLike)


def _node_health(path: Path) -> Health:
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:  # a ValueError if it cannot be a path
        return Health.unhealthy(f"{path}: {getattr(error, 'strerror', None) or error}")
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        return Health()
    return Health.unhealthy(f"{path}: not a device node")


def _reason(given: object, *, healthy: bool) -> str:
    if given is None:
        return "" if healthy else "no reason given"
    try:
        return str(given)
    except Exception:  # an author's class
        return f"a {type(given).__name__}"


_ADVICE: Final = (
    'request one of them for each container, or have their plugin number them with "{position}"'
)

_NOTHING: Final = Allocation()
_Claim = tuple[str, str]
"""A place in the container, as messages show it: the kind, and the name or path."""


def merged(devices: Sequence[Device]) -> Allocation:
    """Return the sum of the recipes of ``devices``, each at its position.

    Devices whose recipes are equal, such as shares of one, have one position.

    Raises:
        AllocationError: Two devices need different things in one place of the container, so one of
            them would be lost.
    """
    if len(devices) == 1:  # as in most requests
        recipe = devices[0].allocation_at(0)
        longest = max(len(recipe.nodes), len(recipe.mounts), len(recipe.cdi_names))
        return recipe if longest < 2 else _NOTHING + recipe  # noqa: PLR2004 - without duplicates
    positions: dict[object, int] = {}
    owners: dict[_Claim, tuple[str, Device]] = {}
    total = _NOTHING
    for device in devices:
        recipe = device.allocation_at(positions.setdefault(_identity(device), len(positions)))
        for claim, value in dict(_claims(recipe)).items():
            before, owner = owners.setdefault(claim, (value, device))
            if value != before and not (isinstance(value, Joined) and isinstance(before, Joined)):
                raise _conflict(claim, (owner, before), (device, value))
        total += recipe
    return total


def _identity(device: Device) -> object:
    """Return a key that is equal for devices with equal recipes."""
    named = (frozenset(values.items()) for values in (device.envs, device.annotations))
    return (device.nodes, device.mounts, device.cdi_names, *named)


def _claims(recipe: Allocation) -> Iterator[tuple[_Claim, str]]:
    """Yield each place in the container with what the recipe puts there."""
    paths: tuple[DeviceNode | Mount, ...] = (*recipe.nodes, *recipe.mounts)
    for path in paths:
        yield ("path", posixpath.normpath(path.container_path)), posixpath.normpath(path.host_path)
    for name, value in recipe.envs.items():
        yield ("environment variable", name), value
    for name, value in recipe.annotations.items():
        yield ("annotation", name), value


def _conflict(
    claim: _Claim, first: tuple[Device, str], second: tuple[Device, str]
) -> AllocationError:
    (one, here), (other, there) = first, second
    what, name = claim
    # Values are not shown: they can be secrets, and a pod's status shows this message.
    problem = (
        f"{name} in the container would be {here} of {one.id} and {there} of {other.id}"
        if what == "path"
        else f"{what} {name} would have different values for {one.id} and {other.id}"
    )
    return AllocationError(f"{problem}: {_ADVICE}", device_ids=(one.id, other.id))
