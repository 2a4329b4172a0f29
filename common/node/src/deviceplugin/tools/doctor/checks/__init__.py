"""The checks, a module for each topic."""

from collections.abc import Sequence
from typing import Final

from deviceplugin.tools.doctor._check import AnyCheck, Check, plugin_checks
from deviceplugin.tools.doctor.checks import (
    _cdi,
    _directories,
    _dra,
    _kubelet,
    _machine,
    _plugin,
    _plugin_sockets,
)

KUBELET: Final = (
    Check("versions", "versions of Python, the kernel and the packages", _machine.versions),
    Check("kubelet", "the kubelet's process and its root directory", _kubelet.process),
    Check("plugin-directory", "the kubelet's plugin directory", _directories.directory),
    Check("kubelet-socket", "the socket on which plugins register", _kubelet.socket),
    Check(
        "leftover-sockets", "sockets in that directory without a listener", _directories.leftovers
    ),
    Check(
        "registry-directory", "plugins_registry, which the kubelet watches", _directories.registry
    ),
    Check(
        "plugins", "whether all plugins answer, and which share a resource", _plugin_sockets.plugins
    ),
    Check("mode", "how a plugin would register, and why", _directories.mode),
    Check(
        "pod-resources",
        "the socket that reports which pod has which device",
        _kubelet.pod_resources,
    ),
    Check("checkpoint", "the kubelet's record of who has which device", _kubelet.checkpoint),
    Check(
        "registration",
        "whether the kubelet has the running plugin's devices",
        _plugin.registrations,
    ),
    Check("shortfalls", "what the running plugin should offer and does not", _plugin.shortfalls),
    Check("holds", "devices that an operator holds, and for how long", _plugin.holds),
    Check("parts", "what is made of devices that have parts, and what could be", _plugin.parts),
    Check("dra", "directories, records and CDI files of DRA drivers", _dra.drivers),
    Check("dra-cluster", "API, rights and classes that DRA needs", _dra.cluster),
    Check("dra-runtime", "whether the container runtime adds CDI devices", _dra.runtime),
    Check("sections", "the sections of a file that several plugins share", _plugin.sections),
)
MACHINE: Final = (
    Check("cdi", "specifications of CDI devices, and duplicate names", _cdi.specifications),
    Check("container-runtime", "what CRI-O does with short names of images", _machine.runtime),
    Check("inotify", "how many inotify instances and watches are left", _machine.inotify),
    Check("open-files", "how many files can still be opened", _machine.open_files),
    Check("disk", "space for the kubelet's checkpoint and sockets", _machine.disk),
    Check("clock", "whether the clock is set and runs evenly", _machine.clock),
    Check("selinux", "whether SELinux allows plugins to connect to the kubelet", _machine.selinux),
)


def all_checks() -> Sequence[AnyCheck]:
    """Return all checks, in the order in which a plugin depends on them.

    These are the kubelet, the devices of installed plugins, and the resources of the machine.
    """
    return [*KUBELET, *plugin_checks(), *MACHINE]
