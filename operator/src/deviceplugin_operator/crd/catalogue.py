"""The plugins that an object can name, and what their own code says of settings, as files."""

import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

import deviceplugin as dp
from deviceplugin.kit.configuration import resource_name_problem
from deviceplugin_amd.advertised import DOMAIN as AMD
from deviceplugin_amd.settings import AmdSettings
from deviceplugin_fpga.resource_names import NAMESPACE as FPGA
from deviceplugin_fpga.settings import FpgaSettings
from deviceplugin_generic.plugin import GenericSettings, configured
from deviceplugin_gopher import GopherPlugin, GopherSettings
from deviceplugin_gpu.configuration.setting_kinds import DOMAIN as NVIDIA
from deviceplugin_gpu.configuration.settings import GpuSettings
from deviceplugin_intelgpu import advertised as intelgpu
from deviceplugin_intelgpu.settings import IntelGpuSettings
from deviceplugin_operator.names import MAX_CONFIG
from deviceplugin_rdma.settings import RdmaSettings
from deviceplugin_simulated import scenario
from deviceplugin_simulated.settings import SimulatedSettings

CUSTOM: Final = "custom"
"""The name for a plugin that is not in this repository."""

_MOUNTED: Final = "the manifest mounts it"
_DOWNWARD: Final = "the manifest takes it from the pod's node"
_DRA: Final = "the operator deploys device plugins only, no DRA drivers"
_OF_HTTPS: Final = "the component https sets it, with the Secret that belongs to it"
OWNED: Final[Mapping[str, str]] = {
    "plugin-dir": _MOUNTED,
    "registry-dir": _MOUNTED,
    "pod-resources-socket": _MOUNTED,
    "registration": "the component watcher sets it, with the mounts that belong to it",
    "protocol": _DRA,
    "driver-name": _DRA,
    "node-name": _DOWNWARD,
    "cdi-dir": _MOUNTED,
    "driver-dir": _DRA,
    "on-unhealthy": _DRA,
    "api-server": "it is that of the cluster",
    "http-address": "the manifest's probes ask there",
    "http-token-file": _OF_HTTPS,
    "http-cert-file": _OF_HTTPS,
    "http-key-file": _OF_HTTPS,
    "reload": "the file of a revision never changes",
}
"""Settings of every plugin that an object cannot set, and why."""


@dataclass(frozen=True)
class Hosted:
    """A plugin that an object can name."""

    settings: type[dp.Settings]
    offered: Callable[[Any], Iterator[str]]
    """Yields the resources that settings lead to; a name that ends in ``*`` stands for several.

    Raises ``ConfigError`` for what the plugin refuses only when it starts.
    """
    owned: Mapping[str, str] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Settings that have another key in the file."""

    @property
    def kept(self) -> Mapping[str, str]:
        """The settings that an object cannot set, and why."""
        return {**OWNED, **self.owned}


def _of_amd(settings: AmdSettings) -> Iterator[str]:
    yield f"{AMD}/{'gpu' if settings.resource_naming_strategy == 'single' else '*'}"


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


def _of_intelgpu(settings: IntelGpuSettings) -> Iterator[str]:
    yield from intelgpu.resources(settings)


def _of_rdma(settings: RdmaSettings) -> Iterator[str]:
    yield from (settings.resource(entry) for entry in settings.resources)


PLUGINS: Final[Mapping[str, Hosted]] = {
    "amd": Hosted(
        AmdSettings,
        _of_amd,
        {
            "labels-file": "it needs a directory: deployments/components/amd-labels",
            "state-file": _MOUNTED,
            "sysfs-dir": "every container has its own /sys",
            "dev-dir": _MOUNTED,
        },
    ),
    "fpga": Hosted(
        FpgaSettings,
        _of_fpga,
        {
            "aliases": "it names a file: deployments/components/fpga-aliases",
            "node-annotation": "it needs a token: deployments/components/node-annotation",
            "sysfs-dir": "every container has its own /sys",
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
            "state-file": _MOUNTED,
            "labels-file": "the manifest would have to mount its directory",
            "kubelet-socket": "plugin-dir has replaced it",
            "cdi-feature-flags": "it has no effect",
            "node-labels-file": "use profiles of the object instead",
            "node-choice": "the plugin finds it by itself",
        },
    ),
    "intelgpu": Hosted(
        IntelGpuSettings,
        _of_intelgpu,
        {
            "labels-file": "it needs a directory: deployments/components/intelgpu-labels",
            "state-file": _MOUNTED,
            "sysfs-dir": "every container has its own /sys",
            "dev-dir": _MOUNTED,
        },
    ),
    "rdma": Hosted(
        RdmaSettings,
        _of_rdma,
        {
            "proc-net-dir": _MOUNTED,
            "devinfo-dir": _MOUNTED,
            "state-file": _MOUNTED,
            "sysfs-dir": _MOUNTED,
            "dev-dir": _MOUNTED,
        },
        {"resources": "resourceList"},
    ),
    "simulated": Hosted(
        SimulatedSettings,
        _of_simulated,
        {
            "devices": "it names a file, which the manifest would have to mount",
            "control-socket": "the manifest would have to mount its directory",
        },
    ),
}
"""By ``spec.plugin``, which is also the name of the folder in ``deployments/``."""


def written(document: Mapping[str, Any]) -> str:
    """Return ``document`` as YAML."""
    return str(yaml.safe_dump(dict(document), sort_keys=False)) if document else "{}\n"


def size_problem(config: str) -> str:
    """Return why ``config`` is too large for the annotation of a pod, or an empty string."""
    fits = len(config) <= MAX_CONFIG  # it is ASCII
    return "" if fits else f"has {len(config)} bytes as a file, of at most {MAX_CONFIG}"


def judged(plugin: str, config: str) -> tuple[str, ...]:
    """Return the resources that ``plugin`` offers with the file ``config``.

    Raises:
        ConfigError: The errors that the plugin would print when it starts, or a resource that no
            kubelet takes.
    """
    hosted = PLUGINS[plugin]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "config.yaml")
        file.write_text(config, encoding="utf-8")
        try:
            resources = tuple(hosted.offered(hosted.settings.of_file(file)))
        except dp.ConfigError as error:
            # Users see their object, not this file.
            said = re.sub(rf"^{re.escape(str(file))}(:\d+)?: ", "", str(error), flags=re.MULTILINE)
            raise dp.ConfigError(said) from None
    for name in resources:
        if problem := resources_problem(name):
            raise dp.ConfigError(f"{name!r} {problem}")
    return resources


def resources_problem(name: str) -> str:
    """Return what is wrong with a resource, or with several with ``*``, or an empty string."""
    problem = resource_name_problem(name.replace("*", "x"))
    return problem and f"is not a resource, such as example.com/lamp: {problem}"
