"""What the installed plugins know of their peers."""

from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from typing import Final, cast

from deviceplugin.errors import ConfigError
from deviceplugin.kit.migration import Migration, Workload

GROUP: Final = "deviceplugin.migrate"
"""The group of entry points. The name of an entry point is that of the plugin."""

Migrate = Callable[[Workload], Migration | None]


def plugins() -> list[str]:
    """Return the names of the installed plugins that know peers."""
    return sorted(entry.name for entry in entry_points(group=GROUP))


def migrations(workload: Workload) -> Iterator[Migration]:
    """Yield what each plugin makes of a workload that it knows."""
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        try:
            migrate = cast("Migrate", entry.load())
        except ImportError as error:
            raise ConfigError(f"the plugin {entry.name} cannot be imported: {error}") from error
        if (found := migrate(workload)) is not None:
            yield found
