"""The CDI names by which the container runtime is told of devices, and that it can resolve them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import deviceplugin as dp
from deviceplugin_gpu.configuration.settings import GpuSettings
from deviceplugin_gpu.container import cdi_specs
from deviceplugin_gpu.container.allocation import enabled_modes, name
from deviceplugin_gpu.container.cdi_specs import VENDOR, Directory
from deviceplugin_gpu.container.device_nodes import Nodes
from deviceplugin_gpu.container.nvidia_ctk import Toolkit
from deviceplugin_gpu.host.roots import Roots
from deviceplugin_gpu.offer.resources import Unit

_NO_NAME: Final = "no CDI specification has it: there is no device node, nor one by nvidia-ctk"


@dataclass(frozen=True, slots=True)
class CdiNames:
    """What the runtime can resolve now."""

    devices: Mapping[str, str] = field(default_factory=dict)
    """Qualified names by the id of a unit."""
    others: tuple[str, ...] = ()
    """What each container gets beside GPUs."""

    def problems(self, units: Iterable[Unit]) -> dict[str, str]:
        """Return why units cannot be given to a container, by id."""
        return {unit.id: _NO_NAME for unit in units if unit.id not in self.devices}


class Publisher:
    """Writes CDI specifications of our own, and prefers those that the vendor's toolkit made."""

    def __init__(self, settings: GpuSettings, roots: Roots, toolkit: Toolkit | None = None) -> None:
        self._settings = settings
        self._roots = roots
        self._directory = Directory(settings.cdi_dir)
        self._toolkit = toolkit or Toolkit()

    def publish(self, units: Sequence[Unit], nodes: Nodes) -> CdiNames:
        """Have the runtime know ``units``, and return their names.

        Raises:
            DiscoveryError: A specification cannot be written, or IMEX channels are missing.
        """
        settings = self._settings
        root = settings.host_dev_root
        given = {name(unit, settings): nodes.of(unit, root) for unit in units}
        channels = settings.imex_channel_ids
        classes: dict[str, Mapping[str, Sequence[dp.DeviceNode]]] = {
            cdi_specs.GPU: given,
            **cdi_specs.extras(self._roots.dev, root, enabled_modes(settings), channels),
        }
        alone = not settings.device_list_strategy.plain
        published = self._directory.publish(
            cdi_specs.documents(classes, nodes.controls(root), alone=alone)
        )
        others = published - {f"{VENDOR}/{cdi_specs.GPU}={one}" for one in given}
        wanted = {f"{VENDOR}/imex-channel={channel}" for channel in channels}
        if units and settings.imex_required and not wanted <= others:
            raise dp.DiscoveryError(
                f"imex-required: no {self._roots.dev}/nvidia-caps-imex-channels/channel0"
            )
        generated = self._toolkit.find()
        devices = {}
        for unit in units:
            own = f"{VENDOR}/{cdi_specs.GPU}={name(unit, settings)}"
            found = generated.name(unit.gpu, unit.mig) or (own if own in published else None)
            if found:
                devices[unit.id] = found
        return CdiNames(devices, tuple(sorted(others)))
