"""The checks, a module for each topic."""

from typing import Final

from deviceplugin.tools.doctor._finding import Check
from deviceplugin.tools.doctor.checks import (
    _cdi,
    _checkpoint,
    _clock,
    _disk,
    _hardware,
    _inotify,
    _kubelet,
    _mode,
    _open_files,
    _plugin_directory,
    _pod_resources,
    _registry,
    _selinux,
    _versions,
)

CHECKS: Final[tuple[Check, ...]] = (
    _versions.CHECK,
    _kubelet.PROCESS,
    _plugin_directory.DIRECTORY,
    _kubelet.SOCKET,
    _plugin_directory.LEFTOVERS,
    _registry.CHECK,
    _mode.CHECK,
    _pod_resources.CHECK,
    _checkpoint.CHECK,
    *_hardware.CHECKS,
    _cdi.CHECK,
    _inotify.CHECK,
    _open_files.CHECK,
    _disk.CHECK,
    _clock.CHECK,
    _selinux.CHECK,
)
"""In the order of a plugin's life: the kubelet, the devices, then what the machine has left."""

PLUGINS: Final = tuple(check.name for check in _hardware.CHECKS)
"""The plugins whose devices are looked for."""
