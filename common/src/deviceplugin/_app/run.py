"""Running plugins from a program of one's own."""

import threading

from deviceplugin._config.settings import Settings
from deviceplugin.errors import ConfigError
from deviceplugin.plugin import Plugin


def run(
    *plugins: Plugin, settings: Settings | None = None, stop: threading.Event | None = None
) -> None:
    """Run ``plugins`` in one process until ``stop`` is set; for ever if there is none.

    For programs of your own; a command does more by ``main``. Touches neither signals nor logging.

    Raises:
        ConfigError: A setting cannot be used; nothing has been served then.
    """
    from deviceplugin._app.host import Host  # gRPC and all; not needed to import the package

    if not plugins:
        raise ConfigError("run() needs at least one plugin")
    host = Host(plugins, settings or Settings())

    def stop_host(event: threading.Event) -> None:
        event.wait()
        host.stop()

    if stop is not None:
        threading.Thread(target=stop_host, args=(stop,), name="stop", daemon=True).start()
    host.run()
