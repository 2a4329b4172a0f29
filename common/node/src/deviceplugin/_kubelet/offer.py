"""What the device-plugin protocol says of a resource: its list and the options of its registration.

The inventory says which devices there are. Those that ownership withholds are in the list, but as
unhealthy: a kubelet can crash when a device that a pod holds disappears.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from deviceplugin._attribution.ownership import Ownership
from deviceplugin._attribution.tracker import HoldingsTracker
from deviceplugin._inventory.published import Resource, encode_list
from deviceplugin._platform.callbacks import Listeners
from deviceplugin.model import Device, Health
from deviceplugin.plugin import overrides

_WITHHELD: Final = Health.unhealthy("withheld")
"""Its reason is not on the wire."""


class Options(NamedTuple):
    """The options of a registration, which the kubelet reads only at that time."""

    pre_start: bool
    """Whether the kubelet calls PreStartContainer before a container with a device starts."""
    prefer: bool
    """Whether the kubelet asks which devices are preferred."""


class Offer:
    """What the kubelet is offered of ``resource``. Thread-safe. ``close`` it after use."""

    def __init__(self, resource: Resource, ownership: Ownership) -> None:
        self.resource = resource
        self._ownership = ownership
        self._lock = threading.Lock()
        self._made: tuple[Mapping[str, Device], Mapping[str, str], bytes] | None = None
        """The devices and those withheld of which the last list was made, and that list."""
        self._lists = Listeners()
        """Those that want to know of another list."""
        self._endings = [
            resource.subscribe(self._lists.call),
            ownership.subscribe(self._lists.call),
        ]

    def close(self) -> None:
        for end in self._endings:
            end()

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Call ``changed``, from any thread, when the options may have changed; until closed."""
        self._endings.append(self._ownership.subscribe(changed))

    @property
    def is_wanted(self) -> bool:
        """Whether a pod could get a device of this list, or has one.

        Otherwise the resource is better not registered: a kubelet rejects each pod with a limit of
        it, even of zero, if a registered resource has no healthy device.
        """
        name, devices = self.resource.name, self.resource.listed
        if not devices:
            return False
        by_dra = self._ownership.mode == "dra"  # which withholds all: each claim is such a change
        free = not by_dra and len(self._ownership.withheld(name, devices)) < len(devices)
        return free or self._ownership.concerns_pods(name)

    @property
    def options(self) -> Options:
        plugin = self.resource.plugin
        pre_start = overrides(plugin, "pre_start") and not self.hides_pre_start
        return Options(pre_start, overrides(plugin, "prefer"))

    @property
    def hides_pre_start(self) -> bool:
        """Whether the kubelet must not know that the plugin wants PreStartContainer.

        A 1.36 kubelet looks for the devices of a container that got the resource through DRA among
        those of the device plugin, if that wants PreStartContainer, and does not start it. So the
        hook is called at the allocation as long as DRA has anything to do with the resource.
        """
        wanted = overrides(self.resource.plugin, "pre_start")
        return wanted and self._ownership.concerns_dra(self.resource.name)

    def watch(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call ``changed``, from any thread, after another list; return what ends that."""
        return self._lists.add(changed)

    def latest(self) -> bytes | None:
        """Return the encoded list that the kubelet should have now; None before the first."""
        with self._lock:
            return self._encoded()

    def _encoded(self) -> bytes | None:
        snapshot = self.resource.snapshot
        if snapshot is None:
            return None
        withheld = self._ownership.withheld(self.resource.name, snapshot.listed)
        if not withheld:
            return snapshot.encoded
        if self._made and self._made[0] is snapshot.listed and self._made[1] == withheld:
            return self._made[2]
        encoded = _encode(snapshot.listed, withheld)
        self._made = snapshot.listed, withheld, encoded
        return encoded


def _encode(devices: Mapping[str, Device], withheld: Mapping[str, str]) -> bytes:
    shown = [
        replace(device, health=_WITHHELD) if device.id in withheld and device.health else device
        for device in devices.values()
    ]
    return encode_list(shown)


class RegistrationNeed:
    """Whether the resource of ``offer`` should be registered. Thread-safe.

    It should as long as a pod could get a device, or has one. It also should once if the kubelet
    has options by which it would not start pods with devices of DRA: it keeps those of a plugin for
    five minutes after that has gone, also those of the process before this one.
    """

    def __init__(self, offer: Offer, tracker: HoldingsTracker) -> None:
        self._offer = offer
        self._tracker = tracker
        self._told: Options | None = None

    def told(self, options: Options) -> None:
        """Record the options of a registration that the kubelet has accepted."""
        self._told = options

    @property
    def is_there(self) -> bool:
        return self._offer.is_wanted or self._has_harmful_options

    @property
    def _has_harmful_options(self) -> bool:
        if not self._offer.hides_pre_start:
            return False
        if self._told is None:
            return self._tracker.remembers(self._offer.resource.name)
        return self._told.pre_start
