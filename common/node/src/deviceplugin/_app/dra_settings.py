"""Checking the settings of DRA, without loading anything of it."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Self

from deviceplugin._config.names import check_driver_name
from deviceplugin._config.settings import Settings
from deviceplugin.errors import ConfigError
from deviceplugin.plugin import Plugin

MARKER: Final = "offered"
_SEVERAL: Final = (
    "its plugins name no or several resources: its service account has the annotation "
    "deviceplugin.dev/driver, with the one that it may use"
)


class DraSettings(NamedTuple):
    """What the DRA driver of a process is called, and where it is."""

    driver: str
    node: str
    driver_dir: Path
    """The directory of this driver."""

    @property
    def marker(self) -> Path:
        """A file that is there as long as this node may have slices of the driver."""
        return self.driver_dir / MARKER

    @property
    def is_left_over(self) -> bool:
        """Whether an earlier process has left slices or prepared claims."""
        recorded = any((self.driver_dir / "claims").glob("*.json"))
        return self.marker.exists() or recorded or bool(self.unreadable())

    def unreadable(self) -> Sequence[Path]:
        """Return records that could not be read and have been set aside."""
        return list((self.driver_dir / "claims").glob("*.json.bad"))

    @classmethod
    def of(cls, settings: Settings, plugins: Sequence[Plugin]) -> Self:
        """Return them for ``plugins``; ConfigError has a line for each reason against DRA."""
        name, problems = "", list(_problems(settings))
        try:
            name = driver_name(settings, plugins)
        except ConfigError as error:
            problems.append(str(error))
        if problems:
            raise ConfigError("\n".join(f"protocol dra: {text}" for text in problems))
        return cls(name, settings.node_name, settings.driver_dir / name)

    @classmethod
    def needed(cls, settings: Settings, plugins: Sequence[Plugin]) -> Self | None:
        """Return them if DRA is needed from the start: for its protocol, or to end it.

        ConfigError if it is needed, but cannot be used with these settings.
        """
        if settings.protocol == "dra":
            return cls.of(settings, plugins)
        try:
            name = driver_name(settings, plugins)
        except ConfigError:
            return None
        found = cls(name, settings.node_name, settings.driver_dir / name)
        if found.is_left_over and not found.node:
            raise ConfigError(
                f"node-name is needed: {found.driver_dir} shows that this node offered devices "
                "through DRA, and nothing has ended that"
            )
        return found if found.is_left_over else None


def driver_name(settings: Settings, plugins: Sequence[Plugin]) -> str:
    """Return the name of the driver, as set or by the only resource; ConfigError without these."""
    if settings.driver_name:
        return settings.driver_name
    resources = {plugin.resource for plugin in plugins if plugin.resource}
    if len(resources) != 1 or len(resources) < len(plugins):
        raise ConfigError(f"driver-name is needed, because {_SEVERAL}")
    (resource,) = resources
    name = driver_of(resource)
    try:
        check_driver_name(name)
    except ValueError as error:
        raise ConfigError(f"driver-name is needed, because {name!r} {error}") from error
    return name


def driver_of(resource: str) -> str:
    """Return what the driver of a plugin with this resource alone is called."""
    domain, _, last = resource.lower().replace("_", "-").partition("/")
    return f"{last}.{domain}"


def _problems(settings: Settings) -> Iterator[str]:
    if not settings.node_name:
        yield "node-name is needed, in a pod spec.nodeName"
    directories = {
        "registry-dir": settings.registry_dir,
        "driver-dir": settings.driver_dir,
        "cdi-dir": settings.cdi_dir,
        "the directory of pod-resources-socket": settings.pod_resources_socket.parent,
    }
    for name, path in directories.items():
        if problem := _directory_problem(path):
            yield f"{name}: {path}: {problem}"


def _directory_problem(path: Path) -> str:
    try:
        return "" if path.is_dir() else "no such directory"
    except OSError as error:
        return str(error.strerror)
