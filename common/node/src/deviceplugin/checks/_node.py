"""The node for checks, findings about it, and checking for hardware on it."""

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final, Self, TypeVar

from deviceplugin._config import loading
from deviceplugin._config.documents.places import Place
from deviceplugin._config.documents.reading import within
from deviceplugin._config.settings import Settings

S = TypeVar("S", bound=Settings)

_MAX_TEXT = 1 << 20
"""Most bytes that are read of a file of the kernel or the kubelet; a checkpoint has some kB."""


_HERE: Final = Path("/")
PATTERN: Final = re.compile(r"[*?[]")


class Verdict(StrEnum):
    """How bad a finding is, the worst first."""

    FAILURE = "failure"
    """Devices are unavailable, or will be lost."""
    WARNING = "warning"
    """It works for now, or only a part does not."""
    UNKNOWN = "unknown"
    """It could not be examined from here."""
    OK = "ok"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result for one thing that a check examined."""

    verdict: Verdict
    looked_at: str
    """The thing: a path, or a name for it."""
    found: str
    means: str = ""
    """The consequence; empty if there is none."""
    do: str = ""
    """What to do about it; empty if there is nothing to do."""


def ok(looked_at: Path | str, found: str) -> Finding:
    """Return a finding without consequences."""
    return Finding(Verdict.OK, str(looked_at), found)


def unknown(looked_at: Path | str, found: str, do: str = "") -> Finding:
    """Return that something could not be examined; ``do`` is what would make it possible."""
    return Finding(Verdict.UNKNOWN, str(looked_at), found, do=do)


def warning(looked_at: Path | str, found: str, *, means: str, do: str) -> Finding:
    """Return a finding that needs attention."""
    return Finding(Verdict.WARNING, str(looked_at), found, means, do)


def failure(looked_at: Path | str, found: str, *, means: str, do: str) -> Finding:
    """Return a finding that must be fixed."""
    return Finding(Verdict.FAILURE, str(looked_at), found, means, do)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The node to check."""

    root: Path
    """The root of the node's file system: ``/`` on the node, otherwise its mount point."""
    settings: Settings
    """The settings of a plugin; their paths are those on the node."""
    plugins: frozenset[str] = frozenset()
    """Plugins whose devices must be here, by the names of their checks. Devices of other plugins
    may be missing."""
    config: Path | None = None
    """The plugin's configuration file, if it is not the default one."""
    section: Place | None = None
    """The plugin's part of ``config``, if several plugins share the file."""
    timeout: float = 2.0
    """Seconds to wait for an answer on a socket."""
    wall: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    statvfs: Callable[[Path], os.statvfs_result] = field(default=os.statvfs)

    @classmethod
    def at_root(cls, root: Path) -> Self:
        """Return the node at ``root`` with default settings."""
        return cls(root=root, settings=Settings())

    def own_settings(
        self, settings: type[S], file: Path | None, environ: Mapping[str, str] | None = None
    ) -> S:
        """Return a plugin's settings in ``file``: those of its section, if plugins share the file.

        Variables in ``environ`` win over the file, as in the plugin's pod; by default there are
        none. Entries are skipped that the plugin would skip.

        Raises:
            ConfigError: All faults, a line each.
        """
        if self.section is None:
            return loading.load(settings, flags={}, file=file, environ=environ or {}, lenient=True)
        return loading.load_section(settings, self.section)

    def at(self, path: Path | str) -> Path:
        """Return the local path of ``path`` on the node.

        Its links are followed, and lead to places below ``root``, unless that is ``/``. They are
        not if there are too many, or a directory cannot be searched: the path is of no use then.
        """
        with suppress(OSError):
            if self.root != _HERE:
                return within(self.root, str(path))
        return self.root / str(path).lstrip("/")

    @property
    def plugin_dir(self) -> Path:
        """The kubelet's directory for plugins that register themselves."""
        return self.at(self.settings.plugin_dir)

    @property
    def registry_dir(self) -> Path:
        """The directory that the kubelet watches for plugins."""
        return self.at(self.settings.registry_dir)

    @property
    def pod_resources_socket(self) -> Path:
        """The socket of the pod resources API."""
        return self.at(self.settings.pod_resources_socket)

    def read(self, path: Path | str) -> str:
        """Return the content of ``path`` on the node, without white space at its ends.

        Raises:
            OSError: It cannot be read.
        """
        with self.at(path).open("rb") as file:
            return file.read(_MAX_TEXT).decode(errors="replace").strip()

    def peek(self, path: Path | str) -> str:
        """Return the same as ``read``, or an empty string if it cannot be read."""
        try:
            return self.read(path)
        except OSError:
            return ""

    def exists(self, pattern: str) -> bool:
        """Return whether anything on the node matches ``pattern``."""
        return next(self.matches(pattern), None) is not None

    def matches(self, pattern: str) -> Iterator[Path]:
        """Yield the paths on the node that match ``pattern``, including broken links."""
        folder, _, name = pattern.strip("/").rpartition("/")
        for above in self.matches(folder) if folder else [self.root]:
            place = self.at(above.relative_to(self.root))
            if PATTERN.search(name):
                yield from place.glob(name)
            elif os.path.lexists(place / name):
                yield place / name

    def processes(self) -> Iterator[Path]:
        """Yield the directories of all visible processes."""
        yield from self.matches("proc/[0-9]*")

    def processes_named(self, name: str) -> Iterator[Path]:
        """Yield the directories, relative to ``root``, of visible processes called ``name``."""
        own = (process.relative_to(self.root) for process in self.processes())
        return (one for one in own if self.peek(one / "comm") == name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """A requirement of the hardware: without it there are no devices."""

    what: str
    means: str
    """The consequence if it is missing."""
    do: str
    any_of: tuple[str, ...] = ()
    """Patterns below the node's root. One match is enough."""
    missing: Callable[[Node], str] | None = None
    """Called instead of using the patterns. It returns where it searched without success, or an
    empty string if the requirement is met."""
    follows: bool = True
    """Whether it can be met only if the requirements before it are."""
    is_driver: bool = False

    def sought(self, node: Node) -> str:
        """Return where it was searched for without success; empty if it is there."""
        if self.missing is not None:
            return self.missing(node)
        if any(map(node.exists, self.any_of)):
            return ""
        return f"for {', '.join(f'/{path}' for path in self.any_of)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """A kind of card on the PCI bus, with its driver."""

    plugin: str
    """The name of the check. With ``--plugin`` and this name, the hardware must be there."""
    what: str
    vendor: str
    """The vendor id as in sysfs."""
    pci_class: str | tuple[str, ...]
    """The beginning of the class as in sysfs, or several of which one must match."""
    signs: tuple[str, ...]
    """Patterns that show, without the PCI bus, that the hardware is here."""
    needs: tuple[Need, ...]
    rivals: tuple[str, ...] = ()
    """Patterns of kernel modules that can claim the hardware in place of the right one."""

    def look(self, node: Node) -> Iterator[Finding]:
        """Yield whether the hardware is here, and which of its requirements are not met."""
        cards = dict(self._cards(node))
        signs = [sign for sign in self.signs if node.exists(sign)]
        if not cards and not signs:
            yield self._nothing(node)
            return
        yield ok(self.what, f"{len(cards)} on the PCI bus" if cards else f"/{signs[0]} exists")
        unmet = [(need, places) for need in self.needs if (places := need.sought(node))]
        # Requirements after the first missing one of the chain are missing because of it.
        chain = [each for each in unmet if each[0].follows][:1]
        for need, places in [*chain, *(each for each in unmet if not each[0].follows)]:
            yield self._missing(need, places, node, cards)
        if not unmet:
            yield ok(self.what, f"there are {', '.join(need.what for need in self.needs)}")
        if any(cards.values()) and not any(need.is_driver for need, _ in unmet):
            yield from self._idle(node, cards)

    def _idle(self, node: Node, cards: Mapping[str, str]) -> Iterator[Finding]:
        """Yield the cards without a driver, while others have one."""
        for address, driver in cards.items():
            is_virtual = node.exists(f"sys/bus/pci/devices/{address}/physfn")
            if not (driver or is_virtual):  # virtual functions wait for virtual machines
                means = f"the {self.plugin} plugin does not offer it."
                do = f"see why its driver gave it up, or was not bound: dmesg | grep {address}"
                yield warning(address, "has no driver, and others have", means=means, do=do)

    def _cards(self, node: Node) -> Iterator[tuple[str, str]]:
        """Yield the PCI address of each card, with the name of its driver; empty if it has none."""
        for path in sorted(node.matches("sys/bus/pci/devices/*")):
            relative = path.relative_to(node.root)
            vendor, kind = node.peek(relative / "vendor"), node.peek(relative / "class")
            if vendor == self.vendor and kind.startswith(self.pci_class):
                link = path / "driver"
                yield path.name, link.readlink().name if link.is_symlink() else ""

    def _nothing(self, node: Node) -> Finding:
        if self.plugin not in node.plugins:
            return ok(self.what, "none found")
        kinds = (self.pci_class,) if isinstance(self.pci_class, str) else self.pci_class
        return failure(
            self.what,
            f"none found: no PCI device of vendor {self.vendor} and class "
            f"{' or '.join(kinds)}, and no /{', no /'.join(self.signs)}",
            means=f"the {self.plugin} plugin advertises 0 devices.",
            do="lspci -nn shows what the machine has; a virtual machine needs the card passed "
            "through. In a pod, mount /sys and /dev of the host.",
        )

    def _missing(self, need: Need, places: str, node: Node, cards: Mapping[str, str]) -> Finding:
        found = f"no {need.what}; looked {places}"
        loaded = (path for one in self.rivals for path in node.matches(f"sys/module/{one}"))
        rivals = sorted(path.name for path in loaded)
        if need.is_driver and rivals:
            found += f"; loaded instead: {', '.join(rivals)}"
        if need.is_driver and cards:
            shown = (f"{address} ({driver or 'no driver'})" for address, driver in cards.items())
            found += f"; cards: {', '.join(shown)}"
        return failure(self.what, found, means=need.means, do=need.do)
