"""Making one of several plugins, such that what is wrong with it concerns no other."""

import logging
from collections.abc import Callable, Iterable
from math import inf
from time import monotonic
from typing import Any, Final

from typing_extensions import override

from deviceplugin._config.settings import Settings
from deviceplugin._discovery.plugin_check import check_plugins
from deviceplugin._platform import hooks
from deviceplugin._platform.backoff import Backoff
from deviceplugin.errors import ConfigError, DevicePluginError, DiscoveryError
from deviceplugin.model import Device
from deviceplugin.plugin import Plugin
from deviceplugin.tools.agent._sections import Refused, attribute, with_common

log = logging.getLogger(__name__)


_PATIENCE: Final = 5.0
"""Most seconds for a plugin's constructor. Meanwhile the process notices no signal."""
_AGAIN: Final = (30.0, 300.0)
"""Least seconds until a constructor that has failed is called again: at first, and in the end."""


class Unusable(Plugin):
    """Stands for a plugin that could not be made. It has no devices, and says why."""

    def __init__(self, reason: str, retry: Callable[[], object]) -> None:
        self.reason = reason
        self._retry = retry

    @override
    def discover(self) -> Iterable[Device]:
        self._retry()
        raise DiscoveryError(self.reason)


class Maker:
    """Makes the plugin ``name``: at the start, and after each change of its settings.

    ``make`` is the plugin's own. If that fails at the start, the plugin has no devices until it
    succeeds: after a change of the settings, or once what it lacked is there. Later, the plugin
    continues as it was.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[Any], Any],
        *,
        clock: Callable[[], float] = monotonic,
        patience: float = _PATIENCE,
    ) -> None:
        self._name = name
        self._make = make
        self._clock = clock
        self._patience = patience
        self._hooks = hooks.Hooks()
        self._plugin: Plugin | None = None
        self._made_of: Settings | None = None
        self._reported = ""
        self._backoff = Backoff(*_AGAIN)
        self._retry_at = inf
        self.ask_for_reload: Callable[[], object] = lambda: None
        """Has all plugins made again; the command sets it."""

    def __call__(self, settings: Settings) -> Plugin:
        """Return the plugin for ``settings``; the same object if nothing has changed for it."""
        section = getattr(settings, attribute(self._name))
        self._retry_at = inf
        try:
            if isinstance(section, Refused):
                raise ConfigError(section.reason)
            wanted = with_common(section, settings)
            if self._plugin is None or wanted != self._made_of:
                self._plugin, self._made_of = self._made(wanted), wanted
            self._reported = ""
        except DevicePluginError as error:
            return self._instead(str(error))
        return self._plugin

    def _made(self, settings: Settings) -> Plugin:
        try:
            made = self._hooks.call("make", self._make, settings, timeout=self._patience)
            check_plugins([made])
        except DevicePluginError:
            self._retry_at = self._clock() + self._backoff.next_wait()
            raise
        self._backoff.reset()
        plugin: Plugin = made
        return plugin

    def _instead(self, reason: str) -> Plugin:
        if self._plugin is None:
            # Its class has the plugin's name, for logs and metrics.
            stand_in: type[Unusable] = type(self._name, (Unusable,), {})
            return stand_in(reason, self._retry)
        if reason != self._reported:
            log.error("invalid section ignored", extra={"plugin": self._name, "error": reason})
        self._reported = reason
        return self._plugin

    def _retry(self) -> None:
        """Have the plugin made again, if the last attempt is long enough ago."""
        if self._clock() >= self._retry_at:
            self._retry_at = inf
            self.ask_for_reload()
