"""What ``main`` is given to make plugins with: whether it can, and what it says of itself."""

import functools
import inspect
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from deviceplugin._platform.packages import version
from deviceplugin.errors import ConfigError
from deviceplugin.plugin import Plugin


def check(makers: Sequence[object], *, takes_settings: bool) -> None:
    """Raise ConfigError unless ``main`` can call ``makers``, with the settings or with nothing."""
    if not makers:
        raise ConfigError("main() needs at least one plugin")
    for maker in makers:
        if isinstance(maker, Plugin):
            name = type(maker).__name__
            raise ConfigError(f"main() takes the class {name}, which it calls, not {name}()")
        if not callable(maker):
            raise ConfigError(f"main() takes classes of plugins, not {maker!r}")
        _check_call(maker, takes_settings=takes_settings)


def _check_call(maker: Any, *, takes_settings: bool) -> None:
    name = getattr(_author(maker), "__name__", repr(maker))
    if inspect.isabstract(maker):
        lacking = ", ".join(f"{one}()" for one in sorted(maker.__abstractmethods__))
        raise ConfigError(f"{name} lacks {lacking}: a plugin has to define it")
    given = ("settings",) if takes_settings else ()
    try:
        signature = inspect.signature(maker)
    except (TypeError, ValueError):  # of native code
        return
    try:
        signature.bind(*given)
    except TypeError as error:
        how = "with settings=" if takes_settings else "without settings="
        what = "the settings alone" if takes_settings else "nothing"
        raise ConfigError(f"main() {how} calls {name}() with {what}: {error}") from error


def version_of(maker: Any) -> str:
    """Return the version of the package that has a plugin, or else that of the framework."""
    module = getattr(_author(maker), "__module__", None) or ""
    for name in (module.partition(".")[0].replace("_", "-"), "deviceplugin"):
        with suppress(ModuleNotFoundError, ValueError):  # a ValueError without a name
            return version(name)
    return "unknown"


def paragraph(maker: Any) -> str:
    """Return the first paragraph of the docstring of a plugin's class, or of its module."""
    maker = _author(maker)
    module = sys.modules.get(getattr(maker, "__module__", None) or "")
    own = maker.__doc__ if isinstance(maker, type) else None
    text = own or getattr(module, "__doc__", None) or maker.__doc__ or ""
    return inspect.cleandoc(text).partition("\n\n")[0]


def _author(maker: Any) -> Any:
    """Return the function or class behind a partial function."""
    return maker.func if isinstance(maker, functools.partial) else maker
