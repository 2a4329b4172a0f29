"""The plugins that an object can name: their settings, and which of these the manifest owns."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import deviceplugin as dp
from deviceplugin_fpga.resource_names import NAMESPACE as FPGA
from deviceplugin_fpga.settings import FpgaSettings
from deviceplugin_generic.plugin import GenericSettings, configured
from deviceplugin_gopher import GopherPlugin, GopherSettings
from deviceplugin_gpu.configuration.resource_names import DOMAIN as NVIDIA
from deviceplugin_gpu.configuration.settings import GpuSettings
from deviceplugin_simulated import scenario
from deviceplugin_simulated.settings import SimulatedSettings

CUSTOM: Final = "custom"
"""What an object says for a plugin that is not of this repository."""

_MOUNTED: Final = "the manifest mounts it"
OWNED: Final[Mapping[str, str]] = {
    "plugin-dir": _MOUNTED,
    "registry-dir": _MOUNTED,
    "pod-resources-socket": _MOUNTED,
    "registration": "the component watcher sets it, with the mounts that belong to it",
    "http-address": "the manifest's probes ask there",
    "reload": "the file of a revision never changes",
}
"""Settings of every plugin that an object cannot have, and why."""


@dataclass(frozen=True)
class Hosted:
    """A plugin that an object can name."""

    settings: type[dp.Settings]
    offered: Callable[[Any], Iterator[str]]
    """Yields its resources by its settings; a name that ends in ``*`` stands for several.

    Raises ``ConfigError`` for what the plugin refuses when it starts, not when it reads the file.
    """
    owned: Mapping[str, str] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Keys of its file that are not called as the setting is."""

    @property
    def kept(self) -> Mapping[str, str]:
        """The settings that an object cannot have, and why."""
        return {**OWNED, **self.owned}


def _of_gopher(settings: GopherSettings) -> Iterator[str]:
    yield str(GopherPlugin(settings).resource)


def _of_simulated(settings: SimulatedSettings) -> Iterator[str]:
    devices = scenario.load(settings).devices
    yield from dict.fromkeys([device.resource for device in devices] or [settings.resource])


def _of_generic(settings: GenericSettings) -> Iterator[str]:
    for domain in settings.domain.names:
        yield from (f"{domain}/{entry.name}" for entry in configured(settings).entries)


def _of_gpu(settings: GpuSettings) -> Iterator[str]:
    yield f"{NVIDIA}/*"
    naming = (*settings.resources.gpus, *settings.resources.migs)
    names = [name for _, name in naming] + [share.rename for share in settings.sharing.shares]
    yield from (name for name in dict.fromkeys(names) if name and not name.startswith(f"{NVIDIA}/"))


def _of_fpga(_settings: FpgaSettings) -> Iterator[str]:
    yield f"{FPGA}/*"


_DOWNWARD: Final = "the manifest takes it from the pod's node"
PLUGINS: Final[Mapping[str, Hosted]] = {
    "fpga": Hosted(
        FpgaSettings,
        _of_fpga,
        {
            "aliases": "it names a file: deployments/components/fpga-aliases",
            "node-annotation": "it needs a token: deployments/components/node-annotation",
            "node-name": "it is for node-annotation only",
            "api-server": "it is for node-annotation only",
            "sysfs-dir": "every container has its own",
            "cdi-dir": _MOUNTED,
            "hook": "an init container of the manifest writes it",
        },
    ),
    "generic": Hosted(GenericSettings, _of_generic, renamed={"device": "devices"}),
    "gopher": Hosted(GopherSettings, _of_gopher, {"directory": _MOUNTED}),
    "gpu": Hosted(
        GpuSettings,
        _of_gpu,
        {
            "driver-root-ctr-path": _MOUNTED,
            "cdi-dir": _MOUNTED,
            "state-file": _MOUNTED,
            "labels-file": "the manifest would have to mount its directory",
            "kubelet-socket": "plugin-dir has its meaning, and the manifest mounts that",
            "cdi-feature-flags": "it has no effect",
            "node-name": "it is for nodes of the file, in whose place the object has profiles",
            "node-labels-file": "it is for nodes of the file too",
            "node-choice": "it is found, not given",
        },
    ),
    "simulated": Hosted(
        SimulatedSettings,
        _of_simulated,
        {
            "node-name": _DOWNWARD,
            "devices": "it names a file, which the manifest would have to mount",
            "control-socket": "the manifest would have to mount its directory",
        },
    ),
}
"""By what ``spec.plugin`` says, which is the name of the folder in ``deployments/`` too."""
