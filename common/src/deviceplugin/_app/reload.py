"""The reload: settings read again, and plugins made anew from them, without a new registration."""

import logging
from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING

from deviceplugin._config.names import key
from deviceplugin._config.settings import Settings
from deviceplugin._platform import hooks
from deviceplugin.errors import DevicePluginError
from deviceplugin.plugin import Plugin

if TYPE_CHECKING:  # gRPC and all; not needed for --help and --once
    from deviceplugin._app.host import Host

log = logging.getLogger(__name__)


def reload(
    host: "Host",
    before: Settings,
    load: Callable[[], Settings],
    make: Callable[[Settings], list[Plugin]],
) -> Settings | None:
    """Give ``host`` the plugins that ``make`` makes from what ``load`` reads now.

    Where either fails, that is logged, the old plugins go on, and None is returned; else the
    settings are. Logged are changes, too, from ``before``, the settings at the start, that need a
    restart.
    """
    try:
        settings = hooks.call(load)  # an author's settings class, too
        host.replace(hooks.call(make, settings))
    except DevicePluginError as error:
        log.error(  # noqa: TRY400 - the text says it all
            "invalid configuration ignored", extra={"error": str(error)}
        )
        return None
    changed = [
        key(field)
        for field in fields(Settings)
        if getattr(settings, field.name) != getattr(before, field.name)
    ]
    if changed:
        log.warning("restart required to apply settings", extra={"settings": ", ".join(changed)})
    log.info("configuration reloaded")
    return settings
