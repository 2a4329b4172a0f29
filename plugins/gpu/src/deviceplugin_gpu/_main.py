"""The command ``gpu-device-plugin``."""

import os
import sys
from collections.abc import Sequence
from threading import Thread
from typing import Final, NoReturn

import deviceplugin as dp
from deviceplugin_gpu import _diagnosis
from deviceplugin_gpu._library import Library
from deviceplugin_gpu._nodes import Roots
from deviceplugin_gpu._nvml import NvmlError, Session
from deviceplugin_gpu._plugin import Driver, GpuPlugin
from deviceplugin_gpu._settings import GpuSettings

_PATIENCE: Final = 30.0
"""Seconds for NVML to be initialized at the start; later that is a failed discovery."""


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run ``gpu-device-plugin``.

    Exit status: 1 if NVML cannot be initialized at the start and fail-on-init-error holds.
    """
    arguments = _with_config(sys.argv[1:] if argv is None else list(argv))
    drivers: list[Driver] = []

    def plugin(settings: GpuSettings) -> GpuPlugin:
        if not drivers:
            drivers.append(Driver(Session(Library(settings.driver_root_ctr_path))))
            if settings.fail_on_init_error:
                _insist(drivers[0].session)
        return GpuPlugin(settings, driver=drivers[0])

    plugin.__doc__ = GpuPlugin.__doc__
    dp.main(plugin, settings=GpuSettings, argv=arguments)


def _with_config(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with the reference plugin's names of the configuration file."""
    flag = "--config-file"
    found = [
        "--config" + word.removeprefix(flag) if word.partition("=")[0] == flag else word
        for word in arguments
    ]
    file = os.environ.get("CONFIG_FILE")
    named = any(word.partition("=")[0] == "--config" for word in found)
    if file and not named and "DP_CONFIG" not in os.environ:
        found.append(f"--config={file}")
    return found


def _insist(session: Session) -> None:
    """Exit with status 1 if NVML cannot be initialized; go on if it does not answer."""
    failures: list[NvmlError] = []

    def attempt() -> None:
        try:
            session.open()
        except NvmlError as error:
            failures.append(error)

    thread = Thread(target=attempt, name="init", daemon=True)
    thread.start()
    thread.join(_PATIENCE)
    for error in failures:
        sys.stderr.write("NVML cannot be initialized, and fail-on-init-error is true:\n")
        for finding in _diagnosis.explain(Roots(), session.library, error):
            sys.stderr.write(f"  {finding}\n")
        raise SystemExit(1)
