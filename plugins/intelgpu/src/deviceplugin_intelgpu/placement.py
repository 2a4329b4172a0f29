"""Which of the free GPUs and shares a container should get."""

from collections.abc import Iterable, Sequence

import deviceplugin as dp
from deviceplugin.kit import placement, sharing
from deviceplugin_intelgpu import offer
from deviceplugin_intelgpu.gpus import Gpu
from deviceplugin_intelgpu.settings import IntelGpuSettings


class Placement:
    """What to prefer among the devices of a discovery. Never changes, so an RPC can ask it.

    Args:
        gpus: The GPUs that are offered, in order.
        settings: How they are shared.
    """

    def __init__(self, gpus: Sequence[Gpu], settings: IntelGpuSettings) -> None:
        self._gpus = {one: gpu for gpu in gpus for one in offer.ids(gpu, settings)}
        self._settings = settings
        self._parts = settings.shares > 1 or any(gpu.physical != gpu.address for gpu in gpus)

    def prefer(
        self, available: Sequence[dp.Device], required: Sequence[dp.Device], size: int
    ) -> list[dp.Device]:
        """Return the devices that a container should get.

        Shares and virtual functions go by the policy, first among cards. Whole GPUs are of one NUMA
        node if that is possible.
        """
        known = {device.id: device for device in (*available, *required)}
        needed = [device.id for device in required]
        if self._settings.share_policy == "none":
            chosen = self._any(list(known), needed, size)
        elif self._parts:
            chosen = self._shares(known.values()).choose(known, needed, size)
        else:
            chosen = placement.choose(list(known), needed, size, self._nearness)
        return [known[one] for one in chosen]

    def _gpu(self, device: str) -> str:
        gpu = self._gpus.get(device)
        return gpu.address if gpu else device

    def _any(self, free: Sequence[str], needed: Sequence[str], size: int) -> list[str]:
        """Return the first that are free, of as many GPUs as can be."""
        first: dict[str, str] = {}
        for one in (*needed, *free):
            first.setdefault(self._gpu(one), one)
        return list(dict.fromkeys([*needed, *first.values(), *free]))[:size]

    def _shares(self, asked: Iterable[dp.Device]) -> sharing.Shares:
        policy: sharing.Policy = "packed" if self._settings.share_policy == "packed" else "spread"
        resources = {device.resource for device in asked}
        places = {
            one: (gpu.physical, gpu.address)
            for one, gpu in self._gpus.items()
            if offer.resource(gpu, self._settings) in resources
        }
        return sharing.Shares(places, policy)

    def _nearness(self, one: str, other: str) -> int:
        first, second = self._gpus.get(one), self._gpus.get(other)
        return int(first is not None and second is not None and first.numa == second.numa)
