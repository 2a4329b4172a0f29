"""Telling plugins which parts claims have."""

import threading
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from deviceplugin._attribution.poll_schedule import Key
from deviceplugin._discovery.loop import Discovery
from deviceplugin._inventory.published import Resource
from deviceplugin.plugin import Plugin, overrides


class MadeParts:
    """Keeps ``made`` of all plugins that make parts as it should be. Thread-safe.

    Each has its own parts, and those of which it is not known yet whose they are.
    """

    def __init__(
        self, resources: Callable[[], Mapping[str, Resource]], discoveries: Sequence[Discovery]
    ) -> None:
        self._resources = resources
        self._discoveries = discoveries
        self._lock = threading.Lock()
        self._made: Mapping[Key, str] = {}

    def set(self, made: Mapping[Key, str] | None = None) -> None:
        """Have plugins know that claims have exactly ``made``; discover what that changes.

        Without it nothing has changed but plugins, which have replaced others.
        """
        with self._lock:
            self._made = self._made if made is None else made
            others = [each for each in self._discoveries if self._tell(each.plugin)]
        for each in others:
            each.rediscover()

    def maker(self, resource: str) -> Plugin | None:
        """Return the plugin that makes parts of ``resource``, listed or not; None if none does."""
        known = self._resources().get(resource)
        plugins = [each.plugin for each in self._discoveries] if known is None else [known.plugin]
        makers = [one for one in plugins if overrides(one, "make_part")]
        return next((one for one in makers if self._may_be_of(one, resource)), None)

    def introduce(self, plugin: Plugin) -> None:
        """Have ``plugin``, which is new, know them."""
        with self._lock:
            self._tell(plugin)

    def _tell(self, plugin: Plugin) -> bool:
        """Set what ``plugin`` knows; return whether that is news."""
        if not overrides(plugin, "make_part"):
            return False
        own = {key[1]: one for key, one in self._made.items() if self._may_be_of(plugin, key[0])}
        is_news = own != plugin.made
        plugin.made = MappingProxyType(own)
        return is_news

    def _may_be_of(self, plugin: Plugin, resource: str) -> bool:
        known = self._resources().get(resource)
        owners = [one.plugin for one in self._discoveries if one.plugin.resource == resource]
        owner = known.plugin if known is not None else next(iter(owners), None)
        # When plugins are replaced, the new one has the class of the old one.
        return owner is None or owner is plugin or type(owner) is type(plugin)
