"""The checks, a module for each topic."""

from collections.abc import Sequence
from typing import Final

from deviceplugin.tools.agent import _doctor as agent
from deviceplugin.tools.doctor._check import Check
from deviceplugin.tools.doctor._plugins import PluginCheck, plugin_checks
from deviceplugin.tools.doctor.checks import (
    _cdi,
    _checkpoint,
    _clock,
    _disk,
    _dra,
    _dra_cluster,
    _dra_runtime,
    _inotify,
    _kubelet,
    _mode,
    _open_files,
    _plugin_directory,
    _pod_resources,
    _registry,
    _selinux,
    _shortfalls,
    _versions,
)

AnyCheck = Check | PluginCheck

KUBELET: Final[tuple[Check, ...]] = (
    _versions.CHECK,
    _kubelet.PROCESS,
    _plugin_directory.DIRECTORY,
    _kubelet.SOCKET,
    _plugin_directory.LEFTOVERS,
    _registry.CHECK,
    _mode.CHECK,
    _pod_resources.CHECK,
    _checkpoint.CHECK,
    _shortfalls.CHECK,
    _dra.CHECK,
    _dra_cluster.CHECK,
    _dra_runtime.CHECK,
    Check("sections", "the sections of a file that several plugins share", agent.look),
)
MACHINE: Final[tuple[Check, ...]] = (
    _cdi.CHECK,
    _inotify.CHECK,
    _open_files.CHECK,
    _disk.CHECK,
    _clock.CHECK,
    _selinux.CHECK,
)


def all_checks() -> Sequence[AnyCheck]:
    """Return all checks, in the order in which a plugin depends on them.

    These are the kubelet, the devices of installed plugins, and the resources of the machine.
    """
    return [*KUBELET, *plugin_checks(), *MACHINE]
