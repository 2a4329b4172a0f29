"""Advertise NVIDIA GPUs and their MIG devices, whole or shared."""

import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import partial
from threading import Thread
from typing import Final, NoReturn

import deviceplugin as dp
from deviceplugin.kit.hosting import MOUNTED, Hosted, acceptance
from deviceplugin.kit.log import Problems
from deviceplugin_gpu.configuration.node_choice import Reloading, models
from deviceplugin_gpu.configuration.setting_kinds import DOMAIN
from deviceplugin_gpu.configuration.settings import GpuSettings, flags_of, without_effect
from deviceplugin_gpu.discovery import gpu_discovery
from deviceplugin_gpu.discovery.driver import Driver
from deviceplugin_gpu.host import Roots
from deviceplugin_gpu.nvml.api import NvmlError
from deviceplugin_gpu.nvml.library import Library
from deviceplugin_gpu.plugin import GpuPlugin

log = logging.getLogger(__name__)

_PATIENCE: Final = 30.0
"""Seconds that NVML may take at the start. Beyond that, the first discovery fails."""
_FLAG: Final = "--config-file"
_ACCEPT: Final = "accept"


class Command:
    """Makes plugin objects: one at the start, and one each time the settings are read.

    If ``models`` is given, they are also read again when these change.
    """

    def __init__(self, models: Callable[[], tuple[str, ...]] | None = None) -> None:
        # Taken before the settings are read, so that a later change is noticed.
        self._node = Reloading(models, _ask_for_reload) if models else None
        self._driver: Driver | None = None
        self._ignored = Problems(log)

    def make(self, settings: GpuSettings) -> GpuPlugin:
        """Return a plugin. All plugins share one driver, which must work if that is asked for."""
        roots = Roots()
        ignored = dict(without_effect(settings))
        for setting, instead in ignored.items():
            event = "setting without effect ignored"
            self._ignored.say(setting, event, setting=setting, instead=instead)
        self._ignored.keep(ignored)
        if self._driver is None:
            library = Library(settings.driver_root_ctr_path)
            self._driver = Driver(library, roots.sys, settings.state_file)
            strategy = settings.device_discovery_strategy
            other = gpu_discovery.without_nvml(roots, strategy, missing=True)
            if settings.fail_on_init_error and other is None:
                _insist(self._driver, roots)
        return GpuPlugin(settings, driver=self._driver, roots=roots, node=self._node)


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run ``gpu-device-plugin``.

    Exit status: 1 if NVML cannot be initialized at the start, unless fail-on-init-error is false.
    """
    arguments = [*(sys.argv[1:] if argv is None else argv)]
    if arguments[:1] != [_ACCEPT]:
        arguments = _with_config(_with_two_dashes(arguments))
    has_file = "DP_CONFIG" in os.environ or any(word[:8] == "--config" for word in arguments)
    dp.main(
        Command(partial(models, Roots().proc) if has_file else None).make,
        settings=GpuSettings,
        commands={_ACCEPT: acceptance("gpu")},
        description="Advertise NVIDIA GPUs and their MIG devices, whole or shared, and report "
        "which of them are unhealthy. Flags, variables and files of NVIDIA's plugin are accepted: "
        "--config-file is --config.",
        argv=arguments,
    )


def hosted() -> Hosted[GpuSettings]:
    """Return the plugin for ``device-plugins``. It waits for NVML: the others must not restart."""
    command = Command()
    owned = {
        "driver-root-ctr-path": MOUNTED,
        "state-file": MOUNTED,
        "labels-file": "it needs a directory: deployments/components/gpu-labels",
        "container-logs": "it needs a directory: deployments/components/gpu-usage",
        "kubelet-socket": "plugin-dir has replaced it",
        "cdi-feature-flags": "it has no effect",
    }
    return Hosted(
        lambda settings: command.make(replace(settings, fail_on_init_error=False)),
        GpuSettings,
        _resources,
        owned,
    )


def _resources(settings: GpuSettings) -> list[str]:
    names = settings.resources.resources + [share.rename for share in settings.sharing.shares]
    others = [name for name in names if name and not name.startswith(f"{DOMAIN}/")]
    return [f"{DOMAIN}/*", *dict.fromkeys(others)]


def _with_two_dashes(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with ``--name`` for ``-name``, which means the same to Go's flags."""
    known = {_FLAG, "--config", "--version", "--help"}
    known |= {flag for field in fields(GpuSettings) for flag in flags_of(field)}
    return [f"-{word}" if f"-{word.partition('=')[0]}" in known else word for word in arguments]


def _with_config(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with --config for --config-file. An empty one means no file."""
    found: list[str] = []
    words = iter(arguments)
    for word in words:
        flag, given, value = word.partition("=")
        if flag != _FLAG:
            found.append(word)
        elif name := value if given else next(words, ""):
            found.append(f"--config={name}")
    file = os.environ.get("CONFIG_FILE")
    named = any(word.partition("=")[0] in {"--config", _FLAG} for word in arguments)
    if file and not named and "DP_CONFIG" not in os.environ:
        found.append(f"--config={file}")
    return found


def _ask_for_reload() -> None:
    os.kill(os.getpid(), signal.SIGHUP)


def _insist(driver: Driver, roots: Roots) -> None:
    """Exit with status 1 if NVML cannot be initialized. Continue if it does not answer."""
    failures: list[NvmlError] = []

    def attempt() -> None:
        try:
            driver.session.open()
        except NvmlError as error:
            failures.append(error)

    thread = Thread(target=attempt, name="init", daemon=True)
    thread.start()
    thread.join(_PATIENCE)
    for error in failures:
        sys.stderr.write("NVML cannot be initialized, and fail-on-init-error is true\n")
        for finding in gpu_discovery.explain(roots, driver.library, error):
            sys.stderr.write(f"  {finding}\n")
        raise SystemExit(1)
