"""Whether a plugin can be used, and its hooks called: said at the start, not at the first pod.

Only what is certain is an error. A class is its author's own, so a method whose name merely comes
near to that of a hook is asked about and no more.
"""

import inspect
import logging
from collections.abc import Iterable, Iterator, Sequence
from types import FunctionType, MethodType
from typing import Any, Final

from deviceplugin._config import words
from deviceplugin._inventory.validation import resource_name_problem, socket_name_problem
from deviceplugin.errors import ConfigError
from deviceplugin.plugin import Plugin, overrides

log = logging.getLogger(__name__)

_ARGUMENTS: Final = {
    name: tuple(inspect.signature(hook).parameters)[1:]
    for name, hook in vars(Plugin).items()
    if inspect.isfunction(hook)
}
"""What each hook is called with, by its name."""
_ALWAYS: Final = frozenset({"discover", "allocate", "start", "stop"})
"""Hooks that are called whether a plugin overrides them or not, also if ``__init__`` sets them."""
_GENERATORS: Final = frozenset({"discover", "changes", "prefer", "metrics"})
"""Hooks whose result is iterated over, so that they may yield it."""
_ALIKE: Final = 0.8
"""A letter too many, too few or in the wrong place."""


def check_plugins(plugins: Iterable[object]) -> None:
    """Raise ConfigError if one is no plugin, or cannot be used as it is; warn of what is odd.

    That is a resource name which the kubelet would refuse, or a hook that could not be called.
    """
    for plugin in plugins:
        if isinstance(plugin, type):
            raise ConfigError(f"{plugin.__name__} is a class: give a plugin, {plugin.__name__}()")
        if not isinstance(plugin, Plugin):
            raise ConfigError(f"{plugin!r} is not a plugin: its class must be derived from Plugin")
        name: object = plugin.resource
        problem = resource_name_problem(name) if isinstance(name, str) else "it must be a string"
        if name != "" and problem:
            raise ConfigError(f"{type(plugin).__name__}: resource {name!r} is not valid: {problem}")
        if (name := plugin.socket_name) and (problem := socket_name_problem(name)):
            raise ConfigError(
                f"{type(plugin).__name__}: socket_name {name!r} is not valid: {problem}"
            )
        if problem := hook_problem(plugin):
            raise ConfigError(f"{type(plugin).__name__}: {problem}")
        for method, hook in doubtful_methods(plugin).items():
            log.warning(
                "possibly misspelt hook",
                extra={"plugin": type(plugin).__name__, "method": method, "did_you_mean": hook},
            )


def hook_problem(plugin: Plugin) -> str:
    """Return why a hook of ``plugin`` could never be called, or an empty string."""
    return next(_problems(plugin), "")


def doubtful_methods(plugin: Plugin) -> dict[str, str]:
    """Return methods of ``plugin`` that may be misspelt hooks, with what they are close to.

    Only those that a hook's arguments could be given to, and of hooks that it does not have.
    """
    missing = [hook for hook in _ARGUMENTS if not overrides(plugin, hook)]
    near = {name: words.nearest(name, missing, _ALIKE) for name in _own_methods(plugin)}
    return {
        name: hook
        for name, hook in near.items()
        if hook and _takes(getattr(plugin, name), _ARGUMENTS[hook])
    }


def _own_methods(plugin: Plugin) -> Iterator[str]:
    """Yield the public methods that are no hooks; of classes of plugins, and not of mixins."""
    for owner in type(plugin).__mro__:
        if issubclass(owner, Plugin) and owner is not Plugin:
            for name, value in vars(owner).items():
                if inspect.isfunction(value) and name[0] != "_" and not hasattr(Plugin, name):
                    yield name


def _problems(plugin: Plugin) -> Iterator[str]:
    for name in _ARGUMENTS:
        if name in _ALWAYS or overrides(plugin, name):
            yield from _hook_problems(plugin, name)
    plain = {_plain(hook): hook for hook in _ARGUMENTS if not overrides(plugin, hook)}
    for name in _own_methods(plugin):
        if hook := plain.get(_plain(name)):
            yield f"{name}() is never called: did you mean {hook}()?"


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def _hook_problems(plugin: Plugin, name: str) -> Iterator[str]:
    try:
        hook = getattr(plugin, name)
    except Exception:  # a property of the author's, which fails when it is called, too
        return
    if getattr(hook, "__func__", None) is getattr(Plugin, name):
        return
    if not callable(hook):
        yield f"{name} is the name of a hook, and {hook!r} cannot be called: choose another name"
    elif inspect.iscoroutinefunction(hook) or inspect.isasyncgenfunction(hook):
        yield (
            f"{name}() is async, but hooks are called from threads: use def, "
            "and asyncio.run() in it where you need it"
        )
    elif inspect.isgeneratorfunction(hook) and name not in _GENERATORS:
        yield f"{name}() has a yield, so that nothing in it would be run: take the yield out"
    elif not _takes(hook, _ARGUMENTS[name]):
        written = ", ".join(("self", *_ARGUMENTS[name]))
        yield f"{name}() takes other arguments than it is called with: use def {name}({written})"


def _takes(hook: Any, arguments: Sequence[str]) -> bool:
    """Return whether ``hook`` takes so many arguments; true where that is not certain.

    It can of plain functions: what a decorator says of itself need not be what it takes.
    """
    bound = isinstance(hook, MethodType)
    function = hook.__func__ if bound else hook
    if not isinstance(function, FunctionType) or "__signature__" in vars(function):
        return True
    try:
        given = ("self", *arguments) if bound else arguments
        inspect.signature(function, follow_wrapped=False).bind(*given)
    except TypeError:
        return False
    return True
