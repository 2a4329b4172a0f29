"""Checking at the start that a plugin can be used and that its hooks can be called."""

import inspect
import logging
import math
from collections.abc import Iterable, Iterator, Sequence
from types import FunctionType, MethodType
from typing import Any, Final

from deviceplugin._config import parameters
from deviceplugin._config.documents import faults
from deviceplugin._config.names import resource_name_problem
from deviceplugin._inventory.validation import socket_name_problem
from deviceplugin.errors import ConfigError
from deviceplugin.plugin import Plugin, overrides

log = logging.getLogger(__name__)

_ARGUMENTS: Final = {
    name: tuple(inspect.signature(hook).parameters)[1:]
    for name, hook in vars(Plugin).items()
    if inspect.isfunction(hook)
}
"""The arguments of each hook, by its name."""
_ALWAYS: Final = frozenset({"discover", "allocate", "start", "stop"})
"""Hooks that are called whether or not a plugin overrides them, even if ``__init__`` sets them."""
_GENERATORS: Final = frozenset({"discover", "changes", "prefer", "metrics"})
"""Hooks whose result is iterated over, so they may yield."""
_ALIKE: Final = 0.8
"""Allows for one letter too many, too few or in the wrong place."""


def check_plugins(plugins: Iterable[object]) -> None:
    """Raise ConfigError for what is not a plugin or cannot be used; warn about what is odd.

    Only what is certain is an error. A class may have methods of its own, so a method whose name
    merely resembles a hook's is only a warning.
    """
    for plugin in plugins:
        if isinstance(plugin, type):
            raise ConfigError(f"{plugin.__name__} is a class: give a plugin, {plugin.__name__}()")
        if not isinstance(plugin, Plugin):
            raise ConfigError(f"{plugin!r} is not a plugin: its class must be derived from Plugin")
        kind = type(plugin).__name__
        if problem := (
            _name_problem(plugin)
            or hook_problem(plugin)
            or _parameters_problem(plugin)
            or _parts_problem(plugin)
        ):
            raise ConfigError(f"{kind}: {problem}")
        for method, hook in doubtful_methods(plugin).items():
            fields = {"plugin": kind, "method": method, "did_you_mean": hook}
            log.warning("possibly misspelt hook", extra=fields)


def _name_problem(plugin: Plugin) -> str:
    name: object = plugin.resource
    problem = resource_name_problem(name) if isinstance(name, str) else "it must be a string"
    if name != "" and problem:
        return f"resource {name!r} is not valid: {problem}"
    if (name := plugin.socket_name) and (problem := socket_name_problem(name)):
        return f"socket_name {name!r} is not valid: {problem}"
    return ""


def hook_problem(plugin: Plugin) -> str:
    """Return why a hook of ``plugin`` could never be called, or an empty string."""
    for name in _ARGUMENTS:
        called = name in _ALWAYS or overrides(plugin, name)
        if called and (problem := _problem_of(plugin, name)):
            return problem
    plain = {_plain(hook): hook for hook in _ARGUMENTS if not overrides(plugin, hook)}
    for name in _own_methods(plugin):
        if hook := plain.get(_plain(name)):
            return f"{name}() is never called: did you mean {hook}()?"
    return ""


def _parameters_problem(plugin: Plugin) -> str:
    kind, used = plugin.parameters, overrides(plugin, "allocate_with")
    if kind is None:
        never = "allocate_with() is never called: set parameters = the class of its parameters"
        return never if used else ""
    if not used:
        return f"nothing uses its parameters {kind!r}: override allocate_with()"
    try:
        parameters.check(kind)
    except ConfigError as error:
        return str(error)
    return ""


def _parts_problem(plugin: Plugin) -> str:
    make, unmake = (overrides(plugin, one) for one in ("make_part", "unmake_part"))
    if make != unmake:
        one, other = ("make", "unmake") if make else ("unmake", "make")
        return f"{one}_part() is there without {other}_part(): a part must be made and removed"
    limit: object = plugin.part_timeout
    if make and not (isinstance(limit, int | float) and 0 < limit < math.inf):
        return f"part_timeout {limit!r} is not a number of seconds"
    return ""


def doubtful_methods(plugin: Plugin) -> dict[str, str]:
    """Return methods of ``plugin`` that may be misspelt hooks, each with the hook it resembles.

    A method counts only if it accepts the hook's arguments, and if the plugin lacks that hook.
    """
    missing = [hook for hook in _ARGUMENTS if not overrides(plugin, hook)]
    near = {name: faults.nearest(name, missing, _ALIKE) for name in _own_methods(plugin)}
    return {
        name: hook
        for name, hook in near.items()
        if hook and _takes(getattr(plugin, name), _ARGUMENTS[hook])
    }


def _own_methods(plugin: Plugin) -> Iterator[str]:
    """Yield the public methods that are not hooks, of plugin classes and not of mixins."""
    for owner in type(plugin).__mro__:
        if issubclass(owner, Plugin) and owner is not Plugin:
            for name, value in vars(owner).items():
                if inspect.isfunction(value) and name[0] != "_" and not hasattr(Plugin, name):
                    yield name


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def _problem_of(plugin: Plugin, name: str) -> str:
    try:
        hook = getattr(plugin, name)
    except Exception:  # a property of the plugin; it will fail again when it is called
        return ""
    if not callable(hook):
        return f"{name} is the name of a hook, but {hook!r} cannot be called: choose another name"
    if inspect.iscoroutinefunction(hook) or inspect.isasyncgenfunction(hook):
        what = "is async, but hooks are called from threads"
        return f"{name}() {what}: use def, and asyncio.run() in it where you need it"
    if inspect.isgeneratorfunction(hook) and name not in _GENERATORS:
        return f"{name}() has a yield, so nothing in it would run: remove the yield"
    if not _takes(hook, _ARGUMENTS[name]):
        written = ", ".join(("self", *_ARGUMENTS[name]))
        return f"{name}() takes other arguments than it is called with: use def {name}({written})"
    return ""


def _takes(hook: Any, arguments: Sequence[str]) -> bool:
    """Return whether ``hook`` accepts so many arguments; True if that is uncertain.

    It is certain for plain functions only: the signature of a decorator need not be true.
    """
    bound = isinstance(hook, MethodType)
    function = hook.__func__ if bound else hook
    if not isinstance(function, FunctionType) or "__signature__" in vars(function):
        return True
    try:
        inspect.signature(function, follow_wrapped=False).bind(*["self"] * bound, *arguments)
    except TypeError:
        return False
    return True
