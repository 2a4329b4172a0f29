"""Which GPUs are let go of: those of which every device is held."""

from collections.abc import Collection, Sequence

import deviceplugin as dp
from deviceplugin_gpu import host
from deviceplugin_gpu.advertised.units import Unit
from deviceplugin_gpu.host import Roots
from deviceplugin_gpu.mps.shares import Shares


def _is_part(device: dp.Device) -> bool:
    """Return whether it is a MIG device, of a GPU that may have others."""
    return "parentUUID" in device.attributes


def addresses(
    held: Sequence[dp.Device], units: Collection[Unit], already: Collection[str]
) -> frozenset[str]:
    """Return the PCI addresses of the GPUs of which every device is ``held``.

    A GPU that is let go of ``already`` has no ``units`` any more.
    """
    own = {device.id for device in held}
    others = {unit.gpu.pci for unit in units if unit.id not in own}
    known = {unit.gpu.pci for unit in units}
    return frozenset(
        str(pci)
        for device in held
        if (pci := device.attributes.get("pci")) and pci not in others
        if not _is_part(device) or pci in known or pci in already
    )


def check(held: Sequence[dp.Device], units: Collection[Unit], shares: Shares, roots: Roots) -> None:
    """Raise DiscoveryError if something that this process cannot see has the devices open."""
    if not units and any(map(_is_part, held)):
        raise dp.DiscoveryError("its GPU has not been discovered since the plugin started")
    if not host.served(roots.sys) and host.matches(roots.dev, "nvidia[0-9]*"):
        raise dp.DiscoveryError(f"the GPUs on the PCI bus cannot be seen in {roots.sys}")
    if no_address := [one.id for one in held if not one.attributes.get("pci")]:
        raise dp.DiscoveryError(f"the PCI address of {no_address[0]} is not known")
    for one in held:
        if daemon := shares.user(one.resource, one.id.partition("::")[0]):
            raise dp.DiscoveryError(f"the MPS control daemon {daemon} has it open")
