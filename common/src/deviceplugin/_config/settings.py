"""Settings: what they are, and reading them from flags, environment and file.

A settings class is a frozen dataclass. Each field is a flag (``--plugin-dir``), an environment
variable (``DP_PLUGIN_DIR``) and a key of the file (``plugin-dir``); a flag wins over the
environment, that over the file, and that over the default. The text below a field is its help.
"""

import ast
import dataclasses
import inspect
import os
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields
from datetime import timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, Self, TypeVar

from deviceplugin._config import values as _values
from deviceplugin._config.files import read_file
from deviceplugin.errors import ConfigError
from deviceplugin.proto.v1beta1 import PLUGIN_DIR

PREFIX: Final = "DP_"
"""What the names of environment variables begin with."""
CONFIG_VARIABLE: Final = f"{PREFIX}CONFIG"
"""Variable with the path of the configuration file, for want of the flag."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What every plugin can be told. Derive a frozen dataclass from it to add your own."""

    plugin_dir: Path = Path(PLUGIN_DIR)
    """Directory of the kubelet's socket and the plugins'. Fixed in the kubelet itself: change it
    only where the directory is mounted elsewhere, or for a simulated kubelet."""
    registration: Literal["auto", "self", "watcher"] = "auto"
    """How the kubelet learns of the plugin: by being told on its own socket (self), or by finding
    the plugin's in registry-dir (watcher). auto is self where plugin-dir exists, because that is
    quicker after a kubelet restart, and watcher where only registry-dir does."""
    registry_dir: Path = Path("/var/lib/kubelet/plugins_registry")
    """Directory in which the kubelet looks for plugins by itself; follows its --root-dir."""
    pod_resources_socket: Path = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
    """Socket that tells which pods hold which devices. Used if it exists: then it is known
    who holds a device, and one that vanishes is forgotten as soon as nobody does."""
    pod_resources_interval: timedelta = timedelta(seconds=30)
    """Time between looks at which pods hold devices, for metrics, the page and released(). How late
    the end of a pod is noticed; a start is a second after its allocation. No shorter than needed:
    all that ask a kubelet share its limit of 100 calls a second."""
    http_address: str = dataclasses.field(
        default="127.0.0.1:9494", metadata={"check": _values.check_address}
    )
    """Where to serve /metrics, /healthz, /readyz, /devices and the page /: host:port, :port for
    all addresses of the machine, or off. Only this machine by default, because there is no access
    control."""
    discovery_interval: timedelta = timedelta(seconds=30)
    """Time between discoveries that nothing called for. Events make most changes known at once;
    this catches the rest, and is what a node pays for while nothing happens. A third of
    discovery-deadline at most, so raise that too."""
    discovery_deadline: timedelta = timedelta(minutes=2)
    """Devices that could not be looked at for this long are reported unhealthy. Several
    intervals, so that a single failure disturbs nobody."""
    vanished_grace: timedelta = timedelta(minutes=1)
    """Time that a vanished device stays listed, as unhealthy, at the least. Covers an allocation
    under way: forgetting a device in the middle of one can crash the kubelet."""
    vanished_retention: timedelta = timedelta(hours=24)
    """The same where the pod resources socket does not exist, so that it cannot be known whether a
    pod still holds the device."""
    poll_interval: timedelta = timedelta(seconds=5)
    """Time between looks at files and sockets that should have caused an event. A safety net."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severity that is logged. Info is for changes of state only."""
    log_format: Literal["auto", "text", "json"] = "auto"
    """Form of the log: auto is text on a terminal and JSON elsewhere."""

    @staticmethod
    def read_file(path: Path) -> Mapping[str, Any]:
        """Return the mapping in a TOML, JSON or YAML file.

        For a file of a plugin's own. Override it to read the file of the settings in another way.

        Raises:
            ConfigError: The file cannot be read, is something else, or gives a key twice.
        """
        return read_file(path)

    @classmethod
    def problem(cls, name: str, value: object) -> str:
        """Return what is wrong with ``value`` for the key ``name`` of a file, or an empty text.

        For a ``read_file`` of your own that can say in which line it stands.
        """
        known = {key(field): field for field in fields(cls)}
        if name not in known:
            return f"unknown key: {_near(name, known)}"
        try:
            _value(known[name], typing.get_type_hints(cls)[known[name].name], value)
        except ValueError as error:
            return f"{'nothing' if value is None else repr(value)} {error}"
        except ConfigError as error:
            return str(error)
        return ""

    @classmethod
    def of_file(cls, path: Path) -> Self:
        """Return the settings that a file makes by itself, without flags and environment.

        Raises:
            ConfigError: All that is wrong, as at the start of the process.
        """
        return load(cls, flags={}, file=path, environ={})

    def read_again(self) -> Self:
        """Return what the same flags, the environment and the same file say now.

        It is what a restart of the process would use. Settings that were made in code stay as
        they are.

        Raises:
            ConfigError: All that would keep the process from starting.
        """
        again: Callable[[], Self] = vars(self).get("_again", lambda: self)
        return again()


S = TypeVar("S", bound=Settings)

_TYPES: Final = (
    "known are str, int, float, bool, Path, timedelta, Literal of texts, tuples of one of these, "
    "one of them or None, and classes with a parse of their own"
)


def key(field: "Field[Any]") -> str:
    """Return the name of ``field`` in files; ``--`` in front of it makes the flag."""
    return field.name.replace("_", "-")


def variable(field: "Field[Any]") -> str:
    """Return the name of the environment variable of ``field``."""
    return PREFIX + field.name.upper()


def variables(field: "Field[Any]") -> list[str]:
    """Return all variables that can set ``field``, the strongest first.

    All but the first are those that the field asks for, by ``field(metadata={"env": "SERIAL"})``
    or with a tuple of names.
    """
    return [variable(field), *_names(field, "env")]


def flags(field: "Field[Any]") -> list[str]:
    """Return all flags that set ``field``; others by ``field(metadata={"flag": "--serial"})``."""
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
) -> S:
    """Return ``settings`` with what flags, environment and file say, in this order.

    ``flags`` has texts by the key of their field, or lists of them.

    Raises:
        ConfigError: Everything that is wrong, a line each: where it stands and what would do.
    """
    environment = os.environ if environ is None else environ
    problems: list[str] = []
    types = typing.get_type_hints(settings)
    by_file = {} if file is None else settings.read_file(file)
    known = {key(field): field for field in fields(settings)}
    problems += [f"{file}: {text}" for text in unknown_keys(by_file, known)]
    values: dict[str, Any] = {}
    for name, field in known.items():
        found = next(_sources(name, field, flags, environment, by_file, file), None)
        if found is None:
            if field.default is MISSING and field.default_factory is MISSING:
                problems.append(f"--{name} (or {variable(field)}) is needed")
            continue
        where, value = found
        try:
            values[field.name] = _value(field, types[field.name], value)
        except ValueError as error:
            problems.append(f"{where}: {value!r} {error}")
        except ConfigError as error:  # from a kind of the plugin's own, a line each
            problems += [f"{where}: {line}" for line in str(error).splitlines()]
    if problems:
        raise ConfigError("\n".join(problems))
    try:
        made = settings(**values)
    except ValueError as error:  # from a __post_init__ that checks what belongs together
        raise ConfigError(str(error)) from error
    vars(made)["_again"] = lambda: load(settings, flags=flags, file=file, environ=environ)
    return made


def _value(field: "Field[Any]", kind: Any, found: Any) -> Any:
    """Return ``found`` as a ``kind``, if the field's own check lets it pass.

    Raises:
        ValueError: It is none, does not pass, or is empty where the default is not, as an unset
            variable in a template makes it; the message goes on from the value.
    """
    if found == "" and kind is str and field.default != "":
        instead = "" if field.default is MISSING else f", or leave it out for {field.default!r}"
        raise ValueError(f"is empty: give a text{instead}")
    value = _values.parse(found, kind)
    if check := field.metadata.get("check"):
        check(value)
    return value


def check(settings: Any) -> None:
    """Raise ConfigError, a line for each problem, unless ``settings`` is a class of settings."""
    name = getattr(settings, "__name__", repr(settings))
    if not (isinstance(settings, type) and issubclass(settings, Settings)):
        raise ConfigError(f"settings must be a class derived from Settings, not {name}")
    try:
        types = typing.get_type_hints(settings)
    except Exception as error:
        raise ConfigError(f"{name}: the type of a field cannot be told: {error}") from error
    known = {field.name for field in fields(settings)}
    decorated = "__dataclass_fields__" in vars(settings)
    problems = [
        f"{name}: {field} is no field: put @dataclass(frozen=True, kw_only=True) over the class"
        for field in (() if decorated else inspect.get_annotations(settings))
        if field not in known and ClassVar not in (types[field], typing.get_origin(types[field]))
    ]
    problems += [
        f"{name}: {field} cannot be a setting, because of its type {_type_name(types[field])}: "
        f"{_TYPES}"
        for field in sorted(known)
        if not _values.can_parse(types[field])
    ]
    if problems:
        raise ConfigError("\n".join(problems))


def _type_name(kind: Any) -> str:
    return kind.__name__ if type(kind) is type else str(kind)


def _sources(
    name: str,
    field: "Field[Any]",
    flags: Mapping[str, str | list[str]],
    environ: Mapping[str, str],
    by_file: Mapping[str, Any],
    file: Path | None,
) -> Iterator[tuple[str, Any]]:
    """Yield where ``field`` is set and to what, the strongest first."""
    if name in flags:
        yield f"--{name}", flags[name]
    for variable_name in variables(field):
        if variable_name in environ:
            yield f"environment variable {variable_name}", environ[variable_name]
    if name in by_file:
        yield f"{file}: {name}", by_file[name]


def hidden_variables(
    settings: type[Settings],
    flags: Mapping[str, Any],
    environ: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return variables that are set to no effect, with the flag or variable that wins over each.

    Those that say the same as the winner, or nothing, are left out. ``flags`` is as for ``load``,
    and may have the path of the configuration file as ``config``.
    """
    environ = os.environ if environ is None else environ
    types = typing.get_type_hints(settings)
    hidden: dict[str, str] = {}
    named = environ.get(CONFIG_VARIABLE)
    if named and flags.get("config") and named != str(flags["config"]):
        hidden[CONFIG_VARIABLE] = "--config"
    for field in fields(settings):
        name, kind = key(field), types[field.name]
        given: dict[str, Any] = {f"--{name}": flags[name]} if name in flags else {}
        given |= {each: environ[each] for each in variables(field) if environ.get(each)}
        winner, *others = given or [""]
        hidden |= {x: winner for x in others if not _are_same(given[x], given[winner], kind)}
    return hidden


def _are_same(one: Any, other: Any, kind: Any) -> bool:
    try:
        return bool(_values.parse(one, kind) == _values.parse(other, kind))
    except (ValueError, ConfigError):
        return bool(one == other)


def unknown_keys(found: Mapping[str, Any], known: Mapping[str, Any]) -> list[str]:
    """Return a text for each key of ``found`` that is not ``known``."""
    return [f"unknown key {name!r}: {_near(name, known)}" for name in found if name not in known]


def _near(name: str, known: Mapping[str, Any]) -> str:
    near = get_close_matches(str(name), known, 1)
    return f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"


def config_file(environ: Mapping[str, str] | None = None) -> Path | None:
    """Return the file that the environment names as the configuration, if any."""
    name = (os.environ if environ is None else environ).get(CONFIG_VARIABLE)
    return Path(name) if name else None


def suspicious_variables(
    settings: type[Settings], environ: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return variables that look like misspelt settings, with what they are close to.

    Not errors: Kubernetes itself puts a service called ``dp-...`` into the environment.
    """
    environ = os.environ if environ is None else environ
    known = [CONFIG_VARIABLE, *(variable(field) for field in fields(settings))]
    near = {
        name: get_close_matches(name, known, 1, 0.8)
        for name in environ
        if name.startswith(PREFIX) and name not in known
    }
    return {name: matches[0] for name, matches in near.items() if matches}


def dump(settings: Settings) -> dict[str, Any]:
    """Return all settings by key, as one would write them into a file."""
    return {key(field): _values.write(getattr(settings, field.name)) for field in fields(settings)}


def helps(settings: type[Settings]) -> dict[str, str]:
    """Return the text below each field, by key; empty where the source is not at hand."""
    found: dict[str, str] = {}
    for owner in reversed(settings.__mro__):
        if not issubclass(owner, Settings):
            continue
        try:
            tree = ast.parse(inspect.cleandoc("\n" + inspect.getsource(owner)))
        except (OSError, TypeError, SyntaxError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                found.update(_field_texts(node))
    return found


def _field_texts(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, text in zip(node.body, node.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
        ):
            yield field.target.id.replace("_", "-"), " ".join(str(text.value.value).split())
