"""Loading settings from flags, environment and file, by the names that they have there."""

import os
import typing
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, Field, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from deviceplugin._config import node_choice
from deviceplugin._config import values as _values
from deviceplugin._config.documents import faults, places
from deviceplugin._config.documents.faults import InvalidEntriesError, InvalidError
from deviceplugin._config.documents.places import Place
from deviceplugin._config.kinds.kind import Kind
from deviceplugin._config.kinds.mappings import finished
from deviceplugin._config.node_choice import NODES, NodeFacts, NodeLabels
from deviceplugin.errors import ConfigError

if TYPE_CHECKING:
    from deviceplugin._config.settings import Settings

PREFIX: Final = "DP_"
"""The prefix of environment variables."""
CONFIG_VARIABLE: Final = f"{PREFIX}CONFIG"
"""The variable with the path of the configuration file. The flag wins over it."""
S = TypeVar("S", bound="Settings")


def key(field: "Field[Any]") -> str:
    """Return the name of ``field`` in files; ``--`` in front of it makes the flag."""
    return field.name.replace("_", "-")


def variable(field: "Field[Any]") -> str:
    return PREFIX + field.name.upper()


def variables(field: "Field[Any]") -> list[str]:
    """Return all variables that can set ``field``, the strongest first.

    A field can add some to its own: ``field(metadata={"env": "SERIAL"})``, or a tuple of names.
    """
    return [variable(field), *_names(field, "env")]


def flags(field: "Field[Any]") -> list[str]:
    """Return all flags that set ``field``.

    A field can add some to its own: ``field(metadata={"flag": "--serial"})``, or a tuple of them.
    """
    return [f"--{key(field)}", *_names(field, "flag")]


def _names(field: "Field[Any]", kind: str) -> Sequence[str]:
    own = field.metadata.get(kind, ())
    return (own,) if isinstance(own, str) else own


def load(
    settings: type[S],
    *,
    flags: Mapping[str, str | list[str]],
    file: Path | None = None,
    environ: Mapping[str, str] | None = None,
    labels: NodeLabels | None = None,
    lenient: bool = False,
) -> S:
    """Return ``settings`` from flags, environment and file; the first that has a value wins.

    ``flags`` maps the key of a field to a string or a list of strings. ConfigError has everything
    that is wrong, a line each: the place, and what is valid there. If ``file`` is a directory, or
    has ``nodes``, it is read for this node, whose ``labels`` are those of ``node-labels-file``.
    If ``lenient``, wrong entries are skipped where ``on-invalid-entry`` says so.
    """
    environment = os.environ if environ is None else environ
    if file is None:
        return _load(settings, flags, environment, lenient=lenient)
    early = partial(before_file, settings, flags=flags, environ=environment)
    found = (labels or NodeLabels()).read(early("node_labels_file"))
    node = NodeFacts(early("node_name"), early("node_label"), found, settings.node_facts())
    path, why = node_choice.file(file, node)
    if why:  # a label that names the file does not name an entry of it too
        node = replace(node, label="")
    root = settings.open_file(path)
    return _load(settings, flags, environment, root, node, why, lenient=lenient)


def before_file(
    settings: type[S],
    name: str,
    *,
    flags: Mapping[str, str | list[str]],
    environ: Mapping[str, str] | None = None,
) -> Any:
    """Return a setting that has to be known before a file is read: of a flag or the environment.

    It is the default where these are wrong, which ``load`` reports.
    """
    (field,) = (one for one in fields(settings) if one.name == name)
    environment = os.environ if environ is None else environ
    with suppress(ConfigError):
        for where, value in _sources(key(field), field, flags, environment, {}):
            return read_field(field, typing.get_type_hints(settings)[name], where, value)
    return field.default


def load_section(settings: type[S], section: Place | None) -> S:
    """Return ``settings`` from a part of a file alone, or the defaults if there is no such part.

    ConfigError as for a lenient ``load``. The faults are not added to those of the document.
    """
    root = None if section is None else Place(section.faults.apart(), section.node, section.key)
    return _load(settings, {}, {}, root, lenient=True)


def _load(
    settings: type[S],
    flags: Mapping[str, str | list[str]],
    environment: Mapping[str, str],
    root: Place | None = None,
    node: NodeFacts | None = None,
    why: str = "",
    *,
    lenient: bool = False,
) -> S:
    known = {key(field): field for field in fields(settings)}
    by_file, choice = ({}, "") if root is None else _in_file(settings, root, known, node)
    values, problems, of_entries = _read_all(settings, flags, environment, by_file)
    skips = lenient and values.get("on_invalid_entry") == "skip"
    problems += [] if skips else of_entries
    if root is not None:
        problems += root.faults.lines_without_entries if skips else root.faults.lines
    if problems:
        raise ConfigError("\n".join(problems))
    choice = "; ".join(filter(None, (why, choice)))
    values |= {"node_choice": choice} if choice else {}
    try:
        return settings(**values)
    except ValueError as error:  # from a __post_init__ that checks several settings together
        raise ConfigError(str(error)) from error


def _read_all(
    settings: "type[Settings]",
    flags: Mapping[str, str | list[str]],
    environment: Mapping[str, str],
    by_file: Mapping[str, Any],
) -> tuple[dict[str, Any], list[str], list[str]]:
    """Return the values by field, and what is wrong elsewhere than in the file.

    The last is what is wrong with entries alone: their list is in the values, without them.
    """
    values: dict[str, Any] = {}
    problems: list[str] = []
    of_entries: list[str] = []
    types = typing.get_type_hints(settings)
    for field in fields(settings):
        name = key(field)
        found = next(_sources(name, field, flags, environment, by_file), None)
        if found is None:
            if field.default is MISSING and field.default_factory is MISSING:
                problems.append(f"--{name} (or {variable(field)}) is needed")
            continue
        where, value = found
        try:
            values[field.name] = read_field(field, types[field.name], where, value)
        except InvalidError:  # recorded at its place
            continue
        except InvalidEntriesError as error:
            values[field.name] = error.value
            of_entries += str(error).splitlines()
        except ConfigError as error:
            problems += str(error).splitlines()
    return values, problems, of_entries


def _in_file(
    settings: type[S], root: Place, known: Mapping[str, "Field[Any]"], node: NodeFacts | None
) -> tuple[Mapping[str, object], str]:
    """Return the values in a file by key, and why those; unknown keys are recorded as faults."""

    def read(place: Place) -> Mapping[str, object]:
        try:
            places.refuse_object(place)
            found = dict(settings.from_file(place))
        except InvalidError:
            return {}
        found.pop("node-choice", None)  # what --print-config writes can be read again
        for name in [name for name in found if name not in known]:
            value = found.pop(name)
            unknown = value if isinstance(value, Place) else place.within(name)
            unknown.fault(f"unknown key: {faults.suggestion(name, known)}")
        return found

    if node is None or NODES in known:
        found, choice = read(root), ""
    else:
        found, choice = node_choice.of_node(root, node, read)
    types = typing.get_type_hints(settings)
    return {
        name: value
        for name, value in found.items()
        if not is_null(known[name], types[known[name].name], value)
    }, choice


def is_null(field: "Field[Any]", kind: Any, value: object) -> bool:
    """Return whether ``value`` is a null in a file that is as absent: the field cannot be None."""
    if not isinstance(value, Place) or value.kind != "nothing":
        return False
    own: Kind[Any] | None = field.metadata.get("kind")
    return "nothing" not in own.takes if own else type(None) not in typing.get_args(kind)


def read_field(field: "Field[Any]", kind: Any, where: str, value: Any) -> Any:
    """Return ``value``, which stands at ``where``, as the value of ``field``.

    If it is wrong, InvalidError if it is of a file, where the fault is recorded; else ConfigError.
    """
    own: Kind[Any] | None = field.metadata.get("kind")
    if own is not None:
        return _of_kind(own, where, value)
    found = value.plain() if isinstance(value, Place) else value
    try:
        return _value_of(field, kind, found)
    except ValueError as error:
        shown = value.shown if isinstance(value, Place) else repr(value)
        problem = f"{shown} {error}"
    except InvalidEntriesError as error:
        raise InvalidEntriesError(_at(where, error), error.value) from None
    except ConfigError as error:  # from a kind of the plugin's own, a line each
        problem = str(error)
    if not isinstance(value, Place):
        raise ConfigError(_at(where, problem))
    for line in problem.splitlines():
        value.fault(line)
    raise InvalidError


def _of_kind(own: Kind[Any], where: str, value: Any) -> Any:
    if isinstance(value, str):
        if not value.strip() and "mapping" not in own.takes:
            raise ConfigError(f"{where}: is empty: give {own.wanted}, or leave it out")
        return finished(places.of_text(value, where), own)
    return value.read(own) if isinstance(value, Place) else value


def _at(where: str, problem: object) -> str:
    return "\n".join(f"{where}: {line}" for line in str(problem).splitlines())


def _value_of(field: "Field[Any]", kind: Any, found: Any) -> Any:
    """Return ``found`` as a ``kind``, if it passes the field's own check, or raise ValueError.

    A field can give an empty string a meaning: ``field(metadata={"empty": False})``. Without it,
    one is wrong if the default is not empty: an unset variable in a template makes one.
    """
    if found == "" and "empty" in field.metadata:
        return field.metadata["empty"]
    if found == "" and kind is str and field.default != "":
        instead = "" if field.default is MISSING else f", or leave it out for {field.default!r}"
        raise ValueError(f"is empty: give a value{instead}")
    value = _values.parse(found, kind)
    if check := field.metadata.get("check"):
        check(value)
    return value


def _sources(
    name: str,
    field: "Field[Any]",
    flags: Mapping[str, str | list[str]],
    environ: Mapping[str, str],
    by_file: Mapping[str, Any],
) -> Iterator[tuple[str, Any]]:
    """Yield each place where ``field`` is set, and its value there, the strongest first."""
    if name in flags:
        yield f"--{name}", flags[name]
    for variable_name in variables(field):
        if variable_name in environ:
            yield f"environment variable {variable_name}", environ[variable_name]
    if name in by_file:
        yield name, by_file[name]


def config_file(environ: Mapping[str, str] | None = None) -> Path | None:
    """Return the file that the environment names as the configuration, if any."""
    name = (os.environ if environ is None else environ).get(CONFIG_VARIABLE)
    return Path(name) if name else None
