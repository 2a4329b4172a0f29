"""Reloading: reading the settings again and creating new plugins, without a new registration."""

import logging
from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING

from deviceplugin._config.loading import key
from deviceplugin._config.settings import Settings
from deviceplugin._platform import hooks
from deviceplugin.errors import DevicePluginError
from deviceplugin.plugin import Plugin

if TYPE_CHECKING:  # it imports gRPC, which --help and --once do not need
    from deviceplugin._app.host import Host

log = logging.getLogger(__name__)


def reload(
    host: "Host",
    before: Settings,
    load: Callable[[], Settings],
    make: Callable[[Settings], list[Plugin]],
) -> Settings | None:
    """Load the settings again, make new plugins from them, and give these to ``host``.

    Returns the settings. If loading or making fails, that is logged, the old plugins continue, and
    None is returned. It also logs which settings differ from ``before``, those of the start, and
    need a restart.
    """
    try:
        settings = hooks.call(load)  # the settings class can be the plugin's code
        plugins = hooks.call(make, settings)
        host.check_protocol(settings.protocol)
        host.replace(plugins)
        host.offer_by(settings.protocol)
    except DevicePluginError as error:
        log.error(  # noqa: TRY400 - the message is enough
            "invalid configuration ignored", extra={"error": str(error)}
        )
        return None
    changed = [
        key(field)
        for field in fields(Settings)
        if field.name != "protocol" and getattr(settings, field.name) != getattr(before, field.name)
    ]
    if changed:
        log.warning("restart required to apply settings", extra={"settings": ", ".join(changed)})
    log.info("configuration reloaded")
    return settings
