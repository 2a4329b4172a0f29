"""The plugin: devices by configuration, shared, and perhaps matched by several resources."""

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event
from typing import Final, Literal

from typing_extensions import override

import deviceplugin as dp
from deviceplugin.kit import pieces, udev, vfio
from deviceplugin.kit.configuration import EntrySettings, Place
from deviceplugin.kit.sharing import Policy, Shares
from deviceplugin_generic.configuration import globs, loading
from deviceplugin_generic.configuration.cautions import cautions
from deviceplugin_generic.configuration.entries import Configuration, Entry
from deviceplugin_generic.configuration.loading import Devices, Domains
from deviceplugin_generic.discovery.cache import Cache
from deviceplugin_generic.discovery.devices import Share, of_rules
from deviceplugin_generic.discovery.health import Checker
from deviceplugin_generic.discovery.tree import Roots, Tree

Overlap = Literal["allow", "first", "refuse"]
_MARGIN: Final = 5.0
"""Seconds for what is not the command in a reset."""
_GROUP: Final = ", and an IOMMU group has one holder: select it in one entry"


def resolve(shares: Sequence[Share], overlap: Overlap) -> Iterator[dp.Device]:
    """Yield devices. ``overlap`` decides on those that are the same hardware.

    The devices of an IOMMU group cannot be allowed in two places: the kernel gives a group to one
    holder. The first has them.
    """
    firsts = {share.origin: share.device for share in shares}
    own = {origin: _own(device, overlap) for origin, device in firsts.items()}
    offered = [share for share in shares if not share.is_reserved]
    if not any(own.values()):
        yield from (share.device for share in offered)
        return
    resources = {origin: device.resource for origin, device in firsts.items()}
    taken: dict[str, list[str]] = defaultdict(list)
    for origin, some in own.items():
        if overlap == "refuse" or not any(piece in taken for piece in some):
            for piece in some:
                taken[piece].append(origin)
    for share in offered:
        device = share.device
        rivals = {other for piece in own[share.origin] for other in taken[piece]} - {share.origin}
        if rivals and overlap == "first":
            continue
        if rivals:
            names = ", ".join(sorted({resources[one] for one in rivals}))
            device = _refused(device, f"also matched by {names}", overlap)
        yield device


def _refused(device: dp.Device, reason: str, overlap: Overlap) -> dp.Device:
    """Return an unhealthy device. Of a group it is nothing but a name.

    If that is held, since the group was its own once, what the pod has is recognized in the first.
    """
    if overlap != "allow":
        return replace(device, health=dp.Health.unhealthy(reason))
    health = dp.Health.unhealthy(f"{reason}{_GROUP}")
    return replace(device, health=health, nodes=(), hardware=())


def _own(device: dp.Device, overlap: Overlap) -> Collection[str]:
    """Return the pieces that no other device may be; its paths if it has only control nodes."""
    if overlap == "allow":
        return [piece for piece in device.hardware if vfio.is_group(piece)]
    return pieces.of(device) or device.hardware


log = logging.getLogger(__name__)
ADVICE: Final = "add entries to it: generic-device-plugin explain prints those for this node"


@dataclass(frozen=True, kw_only=True)
class GenericSettings(EntrySettings):
    """The settings of the generic plugin."""

    domain: Domains = loading.DEFAULT_DOMAINS
    """Domain of all resource names: an entry named serial is devic.es/serial. With several domains,
    separated by commas or in a list, each resource has a name in each, while pods move over."""
    device: Devices = field(default_factory=Devices)
    """A device entry as YAML or JSON. The flag may be repeated, and replaces the entries of the
    file, where the key is devices."""
    overlap: Overlap = "allow"
    """What happens to a device that several resources match: each has it (allow), only the first
    entry has it (first), or it is unhealthy in all of them (refuse)."""

    @property
    @override
    def invalid_entries(self) -> Sequence[str]:
        return self.device.configuration.problems

    @classmethod
    @override
    def from_file(cls, root: Place) -> Mapping[str, object]:
        return loading.read(root)


def configured(settings: GenericSettings) -> Configuration:
    """Return the entries to advertise. Start and reload both fail without a list of them."""
    configuration = settings.device.configuration
    if not configuration.is_given:
        if place := configuration.place:
            raise dp.ConfigError(f"{place}: has no key devices: add it; devices: [] means none")
        raise dp.ConfigError("no devices: name them with --device, or in a file with --config")
    return configuration


class GenericPlugin(dp.Plugin):
    """Offer device nodes, mounts and USB, PCI and other devices to pods, as a file names them.

    ``checker`` and ``cache`` are those of the previous plugin object, if there was one, because
    the history of devices must survive a new configuration.
    """

    def __init__(
        self,
        settings: GenericSettings,
        roots: Roots | None = None,
        *,
        checker: Checker | None = None,
        cache: Cache | None = None,
    ) -> None:
        self._settings = settings
        self._roots = roots or Roots()
        self._configuration = configured(settings)
        self._checker = checker or Checker()
        self._cache = cache or Cache()
        self._names = globs.Names(str(self._roots.dev))
        self._found: list[list[Share]] = []
        self._devices: list[dp.Device] = []
        self._shares: dict[str, Share] = {}
        self.invalid_entries = settings.invalid_entries
        _tell_left_out(self._configuration)
        self.watch_paths = self._watched(Tree(self._roots, self._names))

    @override
    def discover(self) -> Iterable[dp.Device]:
        configuration, domain = self._configuration, self._settings.domain.names[0]
        tree = Tree(self._roots, self._names, cameras=self._cache.cameras)
        self._cache.begin(tree)
        found: list[list[Share]] = []
        too_long = []
        for entry in configuration.entries:
            try:
                found.append(self._cache.shares(entry, domain, tree, self._checker))
            except dp.DiscoveryError as error:  # the others are offered
                too_long.append(str(error))
        self.shortfalls = [*too_long, *tree.unknown_abilities()]
        found.append(of_rules(configuration.rules, domain, tree, self._checker))
        self.watch_paths = self._watched(tree)
        if not _are_same(found, self._found):
            self._found = found
            shares = [share for part in found for share in part]
            self._checker.forget_all_but({share.origin for share in shares})
            self._shares = {one.device.id: one for one in shares if not one.is_reserved}
            resolved = resolve(shares, self._settings.overlap)
            self._devices = list(self._settings.domain.under_each(resolved))
        return self._devices

    @override
    def prefer(
        self, available: Sequence[dp.Device], required: Sequence[dp.Device], size: int
    ) -> Iterable[dp.Device]:
        # Shares of as many real devices as possible, then by the policy: ``spread`` begins with the
        # real device that has the fewest used shares, ``pack`` with the one that has the most.
        known = [self._shares[device.id] for device in available if device.id in self._shares]
        resources = {share.device.resource for share in known}
        places = {
            one: share.origin
            for one, share in self._shares.items()
            if share.device.resource in resources
        }
        policy: Policy = "spread" if all(share.policy == "spread" for share in known) else "packed"
        return Shares(places, policy, distinct=True).prefer(available, required, size)

    @property
    @override
    def reset_timeout(self) -> float:  # type: ignore[override] # that of the slowest entry
        entries = self._configuration.entries
        return _MARGIN + max((one.health.reset_timeout for one in entries), default=0.0)

    @override
    def reset_reaches(self, devices: Sequence[dp.Device]) -> Iterable[str]:
        for share in self._real(devices):
            if not share.check.reset:
                raise dp.DiscoveryError(f"{share.device.id}: its entry has no health.reset")
        return ()

    @override
    def reset(self, devices: Sequence[dp.Device]) -> None:
        for share in self._real(devices):
            self._checker.reset(share.origin, share.check, share.known)

    def _real(self, devices: Sequence[dp.Device]) -> list[Share]:
        """Return one share of each real device; DiscoveryError if one is not there."""
        known = self._shares  # another thread may replace them
        if gone := next((one.id for one in devices if one.id not in known), ""):
            raise dp.DiscoveryError(f"{gone} is not there")
        shares = [known[one.id] for one in devices]
        return [*{one.origin: one for one in shares}.values()]

    @override
    def changes(self, stop: Event) -> Iterator[None]:
        return udev.changes(stop)

    def _watched(self, tree: Tree) -> list[Path]:
        """Return the directories of patterns, and the directories that are devices."""
        paths: set[str] = set(self._cache.folders)
        for entry in self._configuration.entries:
            for spec in (spec for group in entry.groups for spec in group.paths):
                paths |= globs.directories(spec.path, tree.names)
            if _asks_udev(entry):
                paths.add(str(self._roots.udev))
        if self._configuration.rules:
            paths.add(str(self._roots.dev))
        return sorted(Path(path) for path in paths)


def _tell_left_out(configuration: Configuration) -> None:
    for reason in configuration.left_out:
        log.warning("entry skipped", extra={"reason": reason})
    for reason in cautions(configuration):
        log.warning("configuration questionable", extra={"reason": reason})
    if not (configuration.entries or configuration.rules or configuration.left_out):
        fields = {"place": configuration.place, "advice": ADVICE}
        log.warning("list of devices is empty", extra=fields)


def _are_same(parts: list[list[Share]], before: list[list[Share]]) -> bool:
    """Return whether each list is the same object as last time, or empty as then."""
    return len(parts) == len(before) and all(
        one is other or not (one or other) for one, other in zip(parts, before, strict=True)
    )


def _asks_udev(entry: Entry) -> bool:
    selectors = [one for group in entry.groups for one in group.selectors]
    return bool(entry.health.properties) or any(one.link or one.properties for one in selectors)
