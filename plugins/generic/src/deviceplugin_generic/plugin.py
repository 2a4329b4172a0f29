"""The plugin: devices by configuration."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

from typing_extensions import override

import deviceplugin as dp
from deviceplugin_generic import _udev, devices, documents, globs, sharing, words
from deviceplugin_generic.documents import Devices
from deviceplugin_generic.entries import Configuration, Entry
from deviceplugin_generic.health import Doctor
from deviceplugin_generic.memory import Memory
from deviceplugin_generic.sharing import Overlap
from deviceplugin_generic.sysfs import Roots, Tree

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class GenericSettings(dp.Settings):
    """What the generic plugin can be told."""

    domain: str = "squat.ai"
    """Domain of all resource names: an entry named serial is squat.ai/serial."""
    device: Devices = field(default_factory=Devices)
    """A device entry as YAML or JSON. The flag may be given several times, and replaces the
    entries of the file, where the key is devices."""
    overlap: Overlap = "allow"
    """What becomes of a device that several resources match: each has it (allow), the first entry
    has it (first), or it is unhealthy in all of them (refuse)."""

    def __post_init__(self) -> None:
        if not words.has_form(self.domain, words.DOMAIN):
            raise ValueError(f"domain: {self.domain!r} is not lower-case labels with dots between")

    @staticmethod
    @override
    def read_file(path: Path) -> "dict[str, object]":
        return dict(documents.read(path))


class GenericPlugin(dp.Plugin):
    """Devices by configuration."""

    def __init__(self, settings: GenericSettings, roots: Roots | None = None) -> None:
        self._settings = settings
        self._roots = roots or Roots()
        self._configuration = settings.device.configuration
        source = self._configuration.source
        self._signature = _signature(source) if source else None
        self._doctor = Doctor()
        self._memory = Memory()
        self._names = globs.Names()
        self._found: list[list[devices.Share]] = []
        self._devices: list[dp.Device] = []
        self._shares: dict[str, devices.Share] = {}
        if not (source or self._configuration.entries):
            raise dp.ConfigError("no devices: name them with --device, or in a file with --config")
        self.watch_paths = self._watched(Tree(self._roots, self._names))

    @override
    def discover(self) -> Iterable[dp.Device]:
        self._read_again()
        configuration, domain = self._configuration, self._settings.domain
        tree = Tree(self._roots, self._names)
        self._memory.begin(tree)
        found = [
            self._memory.shares(entry, domain, tree, self._doctor)
            for entry in configuration.entries
        ]
        found.append(devices.of_rules(configuration.rules, domain, tree, self._doctor))
        self.watch_paths = self._watched(tree)
        if not _are_same(found, self._found):
            self._found = found
            shares = [share for part in found for share in part]
            self._doctor.forget_all_but({share.origin for share in shares})
            self._shares = {share.device.id: share for share in shares}
            self._devices = list(sharing.resolve(shares, self._settings.overlap))
        return self._devices

    @override
    def prefer(
        self, available: Sequence[dp.Device], required: Sequence[dp.Device], size: int
    ) -> Iterable[dp.Device]:
        return sharing.preferred(available, required, size, self._shares)

    @override
    def changes(self, stop: Event) -> Iterator[None]:
        return _udev.events(stop)

    def _watched(self, tree: Tree) -> list[Path]:
        """Return the directories of all patterns, and the configuration file."""
        paths: set[str] = set()
        for entry in self._configuration.entries:
            for spec in (spec for group in entry.groups for spec in group.paths):
                paths |= globs.directories(spec.path, tree.names)
            if _asks_udev(entry):
                paths.add(str(self._roots.udev))
        if self._configuration.rules:
            paths.add(str(self._roots.dev))
        source = self._configuration.source
        return [*sorted(Path(path) for path in paths), *([source] if source else [])]

    def _read_again(self) -> None:
        """Take the entries of the file if it has changed; keep the old ones if it is invalid."""
        source = self._configuration.source
        signature = _signature(source) if source else None
        if source is None or signature in {None, self._signature}:
            return
        self._signature = signature
        try:
            found = documents.read(source)
        except dp.ConfigError as error:
            log.error(  # noqa: TRY400 - the text says it all
                "configuration not taken, going on with the old one", extra={"error": str(error)}
            )
            return
        given = found.get("device")
        self._configuration = (
            given.configuration if isinstance(given, Devices) else Configuration(source=source)
        )
        log.info("entries read again", extra={"file": str(source)})


def _are_same(parts: list[list[devices.Share]], before: list[list[devices.Share]]) -> bool:
    """Tell whether each is the very list that it was at the last look, or empty as then."""
    return len(parts) == len(before) and all(
        one is other or not (one or other) for one, other in zip(parts, before, strict=True)
    )


def _asks_udev(entry: Entry) -> bool:
    selectors = [group.select for group in entry.groups if group.select]
    return bool(entry.health.properties) or any(one.link or one.properties for one in selectors)


def _signature(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
