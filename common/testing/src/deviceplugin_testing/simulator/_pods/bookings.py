"""Devices that several pods use at the same time."""

from collections.abc import Callable, Hashable, Iterable

from deviceplugin_testing.simulator._pods.pod import PodState, RunOptions


def device_nodes(options: RunOptions) -> Iterable[Hashable]:
    """Return the paths of the device nodes on the host."""
    return [device.host_path for device in options.devices]


def double_bookings(
    pods: Iterable[PodState],
    devices: Callable[[RunOptions], Iterable[Hashable]] = device_nodes,
) -> dict[Hashable, list[str]]:
    """Return the devices that running containers of several pods have, and the UIDs of these pods.

    Args:
        pods: Such as ``kubelet.pods``.
        devices: Returns the devices in what a container got at its start, whether from a device
            plugin or from a claim.
    """
    users: dict[Hashable, dict[str, None]] = {}
    for state in pods:
        for container in state.running:
            if options := state.started.get(container):
                for device in devices(options):
                    users.setdefault(device, {})[state.pod.uid] = None
    return {device: list(found) for device, found in users.items() if len(found) > 1}
