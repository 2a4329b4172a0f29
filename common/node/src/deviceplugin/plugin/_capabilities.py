"""Which optional hooks a plugin has."""

from functools import cache
from typing import NamedTuple

from deviceplugin.plugin._plugin import Plugin


class Capabilities(NamedTuple):
    """Which optional hooks a plugin's class overrides. The others are never called.

    ``allocate`` stands for ``allocate_with``, too. It is an exception: its default is called,
    without a time limit.
    """

    allocate: bool
    prefer: bool
    pre_start: bool
    changes: bool
    released: bool
    metrics: bool
    usage: bool
    make_part: bool

    @staticmethod
    def of(plugin: Plugin) -> "Capabilities":
        """Return those of ``plugin``, cached by its class."""
        return _capabilities(type(plugin))


@cache
def _capabilities(kind: type[Plugin]) -> Capabilities:
    given = {
        hook: getattr(kind, hook) is not getattr(Plugin, hook) for hook in Capabilities._fields
    }
    given["allocate"] |= kind.allocate_with is not Plugin.allocate_with
    return Capabilities(**given)


def overrides(plugin: Plugin, hook: str) -> bool:
    """Return whether ``plugin`` overrides ``hook``, which may be any of its methods."""
    return getattr(type(plugin), hook) is not getattr(Plugin, hook)
