"""What a plugin knows of its peers, for ``deviceplugin migrate``.

A plugin registers a function as an entry point of the group ``deviceplugin.migrate``. It gets a
``Workload``, and returns the ``Migration`` to its own settings, or None if it does not know the
peer. ``deviceplugin migrate`` reads manifests, compares the pods, and writes the overlay.
"""

import posixpath
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from deviceplugin._config.kinds.mappings import checked
from deviceplugin.errors import ConfigError

__all__ = ["LOGGING", "LOGGING_SWITCHES", "Migration", "Setting", "Workload", "checked", "flags"]

LOGGING: Final = ("v", "vmodule", "stderrthreshold", "log_dir", "log_backtrace_at")
"""Flags of Go's usual library for logs, which have a value."""
LOGGING_SWITCHES: Final = ("logtostderr", "alsologtostderr")
"""Its flags without a value."""
_GO_FLAG: Final = re.compile("--?([A-Za-z][-A-Za-z0-9_.]*)(=(.*))?", re.DOTALL)


@dataclass(frozen=True)
class Setting:
    """A value that a peer was given, and where: a flag, a variable or a key of Helm values."""

    place: str
    """For messages: file, document and key."""
    value: Any

    def wrong(self, wanted: str) -> ConfigError:
        """Return the error that the value is not what is ``wanted``."""
        return ConfigError(f"{self.place}: {self.value!r} is not {wanted}")


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A container of a peer's DaemonSet, or its Helm values."""

    place: str
    """For messages: file and document, and the container."""
    image: str = ""
    """Its image; for Helm values, the repository, if it is given there."""
    tag: str = ""
    """The tag of the image, without a digest; empty if there is none."""
    arguments: Sequence[str] = ()
    """Its arguments, with variables filled in."""
    variables: Mapping[str, Setting] = field(default_factory=dict[str, Setting])
    """Variables that have a value."""
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    """Files of ConfigMaps that are mounted, by their paths in the container."""
    configuration: str | None = None
    """The peer's configuration, if it was given apart from the manifest."""
    values: Mapping[str, Any] | None = None
    """Helm values; None for a container."""

    @property
    def name(self) -> str:
        """The last part of the image's name."""
        return posixpath.basename(self.image)

    def key(self, *path: str) -> Setting | None:
        """Return the Helm value at ``path``; None if it is absent or null.

        Raises:
            ConfigError: Something above it is not a mapping.
        """
        found: Any = self.values
        for index, name in enumerate(path):
            if found is not None and not isinstance(found, Mapping):
                raise Setting(f"{self.place}: {'.'.join(path[:index])}", found).wrong("a mapping")
            found = cast("Mapping[str, Any]", found or {}).get(name)
        return None if found is None else Setting(f"{self.place}: {'.'.join(path)}", found)

    def file(self, path: str, what: str) -> Setting:
        """Return the peer's configuration, which it reads from ``path``.

        Raises:
            ConfigError: The manifest does not have it.
        """
        if self.configuration is not None:
            return Setting("--config", self.configuration)
        if path not in self.files:
            raise ConfigError(
                f"{self.place}: {what} is not in the manifest: add its ConfigMap as a document, or "
                "give the file with --config"
            )
        return Setting(f"{self.place}: {path}", self.files[path])


@dataclass(kw_only=True)
class Migration:
    """What becomes of a peer: settings of our plugin, and what is different."""

    peer: str
    """Which peer it was taken for."""
    plugin: str
    """The folder of our plugin in ``deployments``."""
    configuration: Mapping[str, Any] | Sequence[Any]
    """The content of our ``config.yaml``."""
    components: list[str] = field(default_factory=list[str])
    """Folders of ``deployments/components``."""
    variables: dict[str, str] = field(default_factory=dict[str, str])
    """Variables of our container, for what a component sets otherwise."""
    mounts: dict[str, str] = field(default_factory=dict[str, str])
    """Directories of the host that our container needs, read-only, by their paths in it."""
    config_maps: dict[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]])
    """The data of ConfigMaps that a component has, by their names."""
    differences: list[str] = field(default_factory=list[str])
    """What is different, a sentence each: ``what: how``."""

    def differs(self, what: str, how: str) -> None:
        """Add a difference."""
        self.differences.append(f"{what}: {how}")


def flags(
    workload: Workload, known: Collection[str], switches: Collection[str] = ()
) -> Iterator[tuple[str, Setting]]:
    """Yield name and value of each flag, as Go programs read them: with one hyphen or two.

    ``known`` are flags that have a value, and ``switches`` those that are ``true`` without one.

    Raises:
        ConfigError: A flag is unknown or lacks its value, or an argument is not a flag.
    """
    place = f"{workload.place}: args"
    arguments = iter(workload.arguments)
    for argument in arguments:
        found = _GO_FLAG.fullmatch(argument)
        if not found:
            raise Setting(place, argument).wrong("a flag")
        name, value = found[1], found[3]
        if name in switches:
            value = "true" if found[2] is None else value
        elif name not in known:
            raise ConfigError(f"{place}: {argument!r}: the peer has no flag --{name}")
        elif found[2] is None:
            value = next(arguments, None)
        if value is None:
            raise ConfigError(f"{place}: {argument!r}: has no value")
        yield name, Setting(f"{place}: --{name}", value)
