"""The plugins that are installed, and their settings: common ones, and a section for each."""

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, make_dataclass, replace
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, ClassVar, Final

from typing_extensions import override

from deviceplugin._config import loading
from deviceplugin._config.documents import faults
from deviceplugin._config.documents.faults import InvalidError
from deviceplugin._config.documents.places import Place, refuse_object
from deviceplugin._config.kinds.kind import Kind
from deviceplugin._config.loading import key
from deviceplugin._config.node_choice import NODES
from deviceplugin._config.settings import Settings, written
from deviceplugin._platform import hooks
from deviceplugin.errors import ConfigError
from deviceplugin.kit.hosting import Hosted

GROUP: Final = "deviceplugin.plugins"
log = logging.getLogger(__name__)

_OF_ALL = {key(one): one.name for one in fields(Settings)}


def names() -> list[str]:
    """Return the names of all plugins that are installed; one twice if two packages have it."""
    return sorted(one.name for one in entry_points(group=GROUP))


def hosted(name: str) -> Hosted[Any]:
    """Return the plugin that is called ``name``; raise ``DevicePluginError``."""
    (entry_point,) = entry_points(group=GROUP, name=name)
    found = hooks.call(hooks.call(entry_point.load))
    if not isinstance(found, Hosted):
        raise ConfigError(f"its entry point returned {found!r}, which is not a Hosted")
    return found


def check(wanted: Iterable[str]) -> None:
    """Raise ConfigError, a line for each name that is not that of one plugin, or is repeated."""
    known = names()
    times = Counter(wanted)
    problems = [_problem(name, known) for name in times if name not in known]
    problems += [f"{name} is given twice" for name, number in times.items() if number > 1]
    problems += [f"{name} is in several packages" for name in times if known.count(name) > 1]
    if problems:
        raise ConfigError("\n".join(problems))


def _problem(name: str, known: Collection[str]) -> str:
    near = faults.nearest(name, known)
    advice = f"did you mean {near}?" if near else f"installed: {', '.join(known) or 'none'}"
    return f"no plugin {name!r} is installed: {advice}"


@dataclass(frozen=True)
class Refused:
    """What stands for a section that is wrong."""

    reason: str


Section = Settings | Refused
_GONE = Refused("its section is gone: the plugin continues until the process restarts")


class _OfSome(Settings):
    """The settings of every plugin, in a file that may have sections of others."""

    others: ClassVar[Collection[str]] = ()
    by_file: ClassVar[bool] = False

    @classmethod
    @override
    def from_file(cls, root: Place) -> Mapping[str, object]:
        found = super().from_file(root)
        ignored = [name for name in found if name in cls.others]
        if cls.by_file and ignored:  # they had no section when the process started
            names = ", ".join(ignored)
            log.warning("restart required to apply settings", extra={"settings": names})
        return {name: place for name, place in found.items() if name not in ignored}


def settings_of(
    plugins: Mapping[str, type[Settings]], others: Collection[str] = (), *, by_file: bool = False
) -> type[Settings]:
    """Return a class with the settings of every plugin, and a field for each one's section.

    Sections of ``others``, which are plugins that do not run here, are ignored. If the sections of
    a file say which plugins run (``by_file``), one that disappears has not ended its plugin.
    """
    default = _GONE if by_file else None
    sections: list[tuple[str, Any, Any]] = []
    for name, settings in plugins.items():
        metadata = {"kind": _kind(settings), "help": f"The settings of {name}."}
        section = field(default_factory=partial(_read, settings, default), metadata=metadata)
        sections.append((attribute(name), Any, section))
    return make_dataclass(
        "AgentSettings",
        sections,
        bases=(_OfSome,),
        namespace={"others": others, "by_file": by_file},
        frozen=True,
        kw_only=True,
    )


def named_in(file: Path, installed: Collection[str]) -> list[str]:
    """Return the plugins that have a section in a configuration file; raise ``ConfigError``."""
    root = Settings.open_file(file)
    try:
        refuse_object(root)
        found = Settings.from_file(root)
    except InvalidError:
        found = {}
    names = [name for name in found if name not in {*_OF_ALL, NODES}]
    for name in names:
        if name not in installed:
            near = faults.suggestion(name, [*installed, *_OF_ALL])
            root.within(name).fault(f"neither an installed plugin nor a setting: {near}")
    root.faults.refuse()
    if not names:
        known = ", ".join(installed) or "none"
        raise ConfigError(f"{file}: no plugin has a section: give some of {known}")
    return names


def places_in(file: Path, installed: Collection[str]) -> Mapping[str, Place]:
    """Return the sections of a configuration file by plugin; none if it is not an agent's."""
    root = Settings.open_file(file)
    found = root.keys() if root.kind == "mapping" else {}
    return {name: place for name, place in found.items() if name in installed}


def attribute(plugin: str) -> str:
    return plugin.replace("-", "_")


def with_common(section: Settings, settings: Settings) -> Settings:
    """Return a section with what ``settings`` say for every plugin."""
    return replace(section, **{name: getattr(settings, name) for name in _OF_ALL.values()})


def _kind(settings: type[Settings]) -> Kind[Section]:
    return Kind(
        lambda place: _read(settings, place),
        {"type": "object"},
        frozenset({"mapping", "nothing"}),
        "a mapping with the plugin's settings",
        write=_write,
    )


def _read(settings: type[Settings], place: Place | Refused | None) -> Section:
    if isinstance(place, Refused):
        return place
    if place is not None and place.kind == "nothing":  # a key with nothing but comments below it
        place = None
    try:
        if place is not None:
            _refuse_common(place)
        return loading.load_section(settings, place)
    except ConfigError as error:
        return Refused("\n".join(_located(line, place) for line in str(error).splitlines()))


def _located(problem: str, place: Place | None) -> str:
    """Return a problem with the section that it is in: one of several settings names none."""
    known = place is None or f": {place.key}" in problem
    return problem if known else f"{place}: {problem}"


def _refuse_common(place: Place) -> None:
    """Raise ConfigError for settings of every plugin, which cannot differ in one process."""
    faults = place.faults.apart()
    own = Place(faults, place.node, place.key)
    for name, value in (own.keys() if own.kind == "mapping" else {}).items():
        if name in _OF_ALL:
            value.fault("is the same for all plugins: move it to the top of the file")
    faults.refuse()


def _write(section: Section) -> dict[str, Any]:
    if isinstance(section, Refused):
        raise ConfigError(section.reason)
    if section.invalid_entries:
        raise ConfigError("\n".join(section.invalid_entries))
    return {
        key(one): written(one, getattr(section, one.name))
        for one in fields(section)
        if key(one) not in _OF_ALL
    }
