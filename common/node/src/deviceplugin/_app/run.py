"""Running plugins from your own program."""

import threading

from deviceplugin._config.settings import Settings
from deviceplugin.errors import ConfigError
from deviceplugin.plugin import Plugin


def run(
    *plugins: Plugin, settings: Settings | None = None, stop: threading.Event | None = None
) -> None:
    """Run ``plugins`` in one process until ``stop`` is set, or for ever without ``stop``.

    Use it in your own program; ``main`` is better for a command. It changes neither signal handlers
    nor logging.

    Raises:
        ConfigError: A setting cannot be used. Nothing has been served.
    """
    from deviceplugin._app.host import Host  # keeps gRPC out of the import of the package

    if not plugins:
        raise ConfigError("run() needs at least one plugin")
    host = Host(plugins, settings or Settings())

    def stop_host(event: threading.Event) -> None:
        event.wait()
        host.stop()

    if stop is not None:
        threading.Thread(target=stop_host, args=(stop,), name="stop", daemon=True).start()
    host.run()
