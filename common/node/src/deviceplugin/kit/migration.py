"""What a plugin knows of its peers, for ``deviceplugin migrate``.

A plugin registers a function as an entry point of the group ``deviceplugin.migrate``. It gets a
``Workload``, and returns the ``Migration`` to its own settings, or None if it does not know the
peer. ``deviceplugin migrate`` reads manifests, compares the pods, and writes the overlay.

Nothing that a peer was given is lost in silence: an ``Account`` has every key of the input. What
the function takes is in our configuration; what it drops is listed with its reason; what it does
neither with is an error of ``deviceplugin migrate``.
"""

import posixpath
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from deviceplugin._config.documents.faults import bounded
from deviceplugin._config.kinds.mappings import checked
from deviceplugin.errors import ConfigError
from deviceplugin.kit._account import Account, Path

__all__ = [
    "LOGGING",
    "LOGGING_SWITCHES",
    "Account",
    "Migration",
    "Path",
    "Setting",
    "Workload",
    "checked",
    "flags",
]

LOGGING: Final = ("v", "vmodule", "stderrthreshold", "log_dir", "log_backtrace_at")
"""Flags of Go's usual library for logs, which have a value."""
LOGGING_SWITCHES: Final = ("logtostderr", "alsologtostderr")
"""Its flags without a value."""
_ONE_COMMAND: Final = re.compile(r"(?:exec +)?(?P<command>[-A-Za-z0-9_./=,:@+ ]+)")
"""What a shell takes for one command, and leaves as it is."""
_GO_FLAG: Final = re.compile("--?([A-Za-z][-A-Za-z0-9_.]*)(=(.*))?", re.DOTALL)


@dataclass(frozen=True)
class Setting:
    """A value that a peer was given, and where: a flag, a variable or a key of Helm values."""

    place: str
    """For messages: file, document and key."""
    value: Any
    path: Path = ()
    """Where it stands in the input; empty if it does not."""

    def wrong(self, wanted: str) -> ConfigError:
        """Return the error that the value is not what is ``wanted``."""
        return ConfigError(f"{self.place}: {bounded(repr(self.value))} is not {wanted}")


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A container of a peer's DaemonSet, its Helm values, or an object that its operator reads."""

    place: str
    """For messages: file and document, and the container."""
    image: str = ""
    """Its image; for Helm values, the repository, if it is given there."""
    tag: str = ""
    """The tag of the image, without a digest; empty if there is none."""
    arguments: Sequence[str] = ()
    """Its arguments, with variables filled in."""
    shell: str = ""
    """The shell that its command starts, if it does: the arguments are those of the shell."""
    variables: Mapping[str, Setting] = field(default_factory=dict[str, Setting])
    """Its variables. The value of one that is in ``references`` is ``$(NAME)``."""
    references: Mapping[str, Setting] = field(default_factory=dict[str, Setting])
    """The ``valueFrom`` of variables that have their values from elsewhere, as from a Secret.

    ``$(NAME)`` is kept in a variable of ours, and refused in our configuration.
    """
    files: Mapping[str, Setting] = field(default_factory=dict[str, Setting])
    """Files of ConfigMaps that are mounted, by their paths in the container."""
    configuration: str | None = None
    """The peer's configuration, if it was given apart from the manifest."""
    values: Mapping[str, Any] | None = None
    """Helm values, or the object; None for a container."""
    kind: str = ""
    """The kind of the object, as ``ClusterPolicy``; empty for a container and Helm values."""
    account: Account = field(default_factory=Account)
    root: Path = (0,)
    """Where the container, the values or the object stand in the input."""

    @property
    def name(self) -> str:
        """The last part of the image's name."""
        return posixpath.basename(self.image)

    def has(self, *path: str) -> Setting | None:
        """Return the value or the field at ``path``; None if it is absent or null.

        Raises:
            ConfigError: Something above it is not a mapping.
        """
        found: Any = self.values
        for index, name in enumerate(path):
            if found is not None and not isinstance(found, Mapping):
                raise Setting(f"{self.place}: {'.'.join(path[:index])}", found).wrong("a mapping")
            found = cast("Mapping[str, Any]", found or {}).get(name)
        self.account.get((*self.root, *path))
        place = f"{self.place}: {'.'.join(path)}"
        return None if found is None else Setting(place, found, (*self.root, *path))

    def key(self, *path: str) -> Setting | None:
        """Return what ``has`` returns, and take it over."""
        found = self.has(*path)
        self.account.take((*self.root, *path))
        return found

    def variable(self, name: str) -> Setting | None:
        """Return a variable, and take it over; None if it is not set."""
        found = self.variables.get(name)
        self.account.get((*self.root, "env", name))
        if found is not None:
            self.account.take(found.path)
        return found

    def drop(self, why: str, *path: str) -> None:
        """Note that the value or field at ``path``, if it is there, is not taken over, and why."""
        self.account.drop((*self.root, *path), why)

    def drop_variable(self, name: str, why: str) -> None:
        """Note that a variable, if it is set, is not taken over, and why."""
        self.account.get((*self.root, "env", name))
        if found := self.variables.get(name):
            self.account.drop(found.path, why)

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
        found = self.files[path]
        self.account.take(found.path)
        return Setting(f"{self.place}: {path}", found.value, found.path)


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
    pod: dict[str, Any] = field(default_factory=dict[str, Any])
    """Fields of the peer's pod that the input has elsewhere, such as ``nodeSelector``."""
    profile_label: str = ""
    """The label of nodes by which the peer chooses one of several configurations."""
    profiles: dict[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    """Those of the label's values; ``configuration`` is for nodes without it."""
    removed: list[str] = field(default_factory=list[str])
    """What else goes when the peer's release is removed, and who needs it: a sentence each."""
    keeps_ids: bool = True
    """Whether devices have the ids that they had, so that pods keep theirs."""
    stop: list[str] = field(default_factory=list[str])
    """Commands that stop the peer, if that is not to delete its DaemonSet or its release."""
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
    arguments = _arguments(workload)
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


def _arguments(workload: Workload) -> Iterator[str]:
    words = workload.arguments
    if workload.shell:
        script = [*words, "", ""][1]
        found = _ONE_COMMAND.fullmatch(script) if [*words] == ["-c", script] else None
        if found is None:
            raise Setting(f"{workload.place}: command", workload.shell).wrong(
                "a plugin: what a shell starts cannot be read"
            )
        words = found["command"].split()[1:]
    for key in ("command", "args") if workload.values is None else ():
        workload.account.take((*workload.root, key))
    yield from words
