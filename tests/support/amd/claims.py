"""Claims for partitions of GPUs, kept as the framework keeps them: the intent first."""

from contextlib import suppress
from types import MappingProxyType
from typing import Any

import deviceplugin as dp
from amd.tree import AmdTree


class Claims:
    """Prepares and unprepares partitions, one claim for each, by a plugin that can restart."""

    def __init__(self, tree: AmdTree, *modes: str, **settings: Any) -> None:
        self.tree = tree
        self.settings = {"partitions_on_demand": modes, "protocol": "dra", **settings}
        self.made: dict[str, str] = {}
        self.start()

    def start(self) -> None:
        """Start the plugin, again after a crash."""
        self.plugin = self.tree.plugin(**self.settings)
        self.devices()

    def reboot(self) -> None:
        """Start the machine again: GPUs are whole, /run is empty, and no part has an identity."""
        self.made = dict.fromkeys(self.made, "")
        for address in self.tree.cards:
            self.tree.divide(address, "SPX")
            self.tree.bind_anew(address)
        for file in ("health.json", "partitions.json"):
            (self.tree.root / file).unlink(missing_ok=True)
        self.start()

    def devices(self) -> dict[str, dp.Device]:
        """Return what is discovered now, by id."""
        self.plugin.made = MappingProxyType(dict(self.made))
        return {device.id: device for device in self.plugin.discover()}

    def begin(self, device_id: str) -> dp.Device:
        """Record a claim for a partition; return its device, as it is before it is made."""
        self.made.setdefault(device_id, "")
        return self.devices()[device_id]

    def prepare(self, device_id: str) -> dp.Device:
        """Make a partition; AllocationError if it cannot be, and the claim has nothing."""
        is_new = device_id not in self.made
        device = self.begin(device_id)
        try:
            device = self.plugin.make_part(device)
            self.plugin.allocate([device])
        except dp.AllocationError:  # nothing is left of it
            if is_new:
                del self.made[device_id]
            raise
        except dp.DevicePluginError:
            if is_new:
                with suppress(dp.DevicePluginError):  # the record stays, for the kubelet's next try
                    self.unprepare(device_id)
            raise
        assert device.part
        assert device.part.identity
        self.made[device_id] = device.part.identity
        self.devices()
        return device

    def unprepare(self, device_id: str) -> None:
        """Unmake a partition; DevicePluginError if it is still there, and so is the claim."""
        self.plugin.unmake_part(dp.Device(device_id), self.made[device_id])
        del self.made[device_id]
        self.devices()

    def mode(self, address: str) -> str:
        """Return how a GPU is divided."""
        return (self.tree.cards[address].folder / "current_compute_partition").read_text().strip()
