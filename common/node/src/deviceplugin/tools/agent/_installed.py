"""The plugins that are installed, by the entry points of their packages."""

from collections.abc import Collection, Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from deviceplugin._config.documents import faults
from deviceplugin._platform import hooks
from deviceplugin.errors import ConfigError
from deviceplugin.kit.hosting import Hosted

GROUP: Final = "deviceplugin.plugins"


def names() -> list[str]:
    """Return the names of all plugins that are installed; one twice if two packages have it."""
    return sorted(one.name for one in entry_points(group=GROUP))


def hosted(name: str) -> Hosted[Any]:
    """Return the plugin that is called ``name``.

    Raises:
        DevicePluginError: It cannot be imported, or its entry point returns something else.
    """
    entry_point = _entry_point(name)
    found = hooks.call(hooks.call(entry_point.load))
    if not isinstance(found, Hosted):
        raise ConfigError(f"its entry point returned {found!r}, which is not a Hosted")
    return found


def check(wanted: Iterable[str]) -> None:
    """Raise ConfigError, a line for each name that is not that of one plugin, or is repeated."""
    known = names()
    problems = [_problem(name, known) for name in dict.fromkeys(wanted) if name not in known]
    seen: set[str] = set()
    for name in wanted:
        if name in seen:
            problems.append(f"{name} is given twice")
        seen.add(name)
    problems += [f"{name} is in several packages" for name in seen if known.count(name) > 1]
    if problems:
        raise ConfigError("\n".join(problems))


def _problem(name: str, known: Collection[str]) -> str:
    near = faults.nearest(name, known)
    advice = f"did you mean {near}?" if near else f"installed: {', '.join(known) or 'none'}"
    return f"no plugin {name!r} is installed: {advice}"


def _entry_point(name: str) -> EntryPoint:
    (found,) = entry_points(group=GROUP, name=name)
    return found
