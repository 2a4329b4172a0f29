"""Starting containers with the plugin's answers from admission, which are not requested again."""

from dataclasses import replace
from typing import Final

from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from deviceplugin_testing.simulator._device_manager.allocating import Allocator
from deviceplugin_testing.simulator._device_manager.manager import DeviceManager
from deviceplugin_testing.simulator._errors import (
    AllocationRefusedError,
    CallError,
    ContainerStartError,
)
from deviceplugin_testing.simulator._host.host import Host
from deviceplugin_testing.simulator._pods.pod import Container, Pod, RunOptions

_LONGEST_NAME: Final = 63
"""Most characters of an annotation's name after its prefix. A longer one is not written."""


class Starter:
    """Prepares containers for the runtime."""

    def __init__(self, host: Host, manager: DeviceManager, allocator: Allocator) -> None:
        self._host = host
        self._manager = manager
        self._allocator = allocator

    def run_options(self, pod: Pod, container: Container) -> RunOptions | None:
        """Return what the container gets, after PreStartContainer if a plugin requires it.

        None if the container has no devices. Devices that admission should have allocated, but
        did not, are allocated now.

        Raises:
            ContainerStartError: A call to a plugin failed, or devices are missing.
        """
        try:
            if self._prepare(pod, container):
                self._allocator.allocate(pod, container)
        except AllocationRefusedError as error:
            raise ContainerStartError(str(error)) from None
        with self._host.changed:
            grants = self._manager.records.of_container(pod.uid, container.name)
            order = self._host.shuffled(set(grants))
            if not grants:
                return None
            options = RunOptions.merge(grants[resource].response for resource in order)
            return self._passed(options, f"{pod.uid}-{container.name}")

    def _passed(self, options: RunOptions, owner: str) -> RunOptions:
        """Return ``options`` with the CDI names in the form that this release passes on."""
        release = self._host.release
        if not release.passes_cdi_names:
            return replace(options, cdi_devices=())
        name = f"devicemanager_{owner.replace('/', '_')}"
        if not (release.annotates_cdi_names and options.cdi_devices) or len(name) > _LONGEST_NAME:
            return options
        annotation = {f"cdi.k8s.io/{name}": ",".join(sorted(options.cdi_devices))}
        return replace(options, annotations={**annotation, **options.annotations})

    def _prepare(self, pod: Pod, container: Container) -> bool:
        """Call PreStartContainer if it is required; return whether any devices are missing."""
        missing = False
        for resource in self._host.shuffled(set(container.limits)):
            with self._host.changed:
                managed = self._manager.manages(resource)
            if not managed or not container.limits[resource] or self._leaves(container, resource):
                continue
            self._pre_start(pod, container, resource)
            with self._host.changed:
                grant = self._manager.records.get(pod.uid, container.name, resource)
                missing |= grant is None and self._manager.active(pod.uid)
        return missing

    def _leaves(self, container: Container, resource: str) -> bool:
        """Return whether the resource is a claim's, and the kubelet takes that into account."""
        return (
            resource in container.claimed
            and self._host.release.leaves_claimed
            and not self._host.behaviour.claimed_resource_needs_pre_start
        )

    def _pre_start(self, pod: Pod, container: Container, resource: str) -> None:
        with self._host.changed:
            endpoint = self._manager.endpoints.get(resource)
            if endpoint is None:
                raise ContainerStartError(
                    f"endpoint not found in cache for a registered resource: {resource}"
                )
            if not (endpoint.options and endpoint.options.pre_start_required):
                return
            grant = self._manager.records.get(pod.uid, container.name, resource)
            if grant is None:
                raise ContainerStartError(
                    f"no devices found allocated in local cache for pod {pod.uid}, "
                    f"container {container.name}, resource {resource}"
                )
            ids = self._host.shuffled(grant.ids)
        try:
            endpoint.call(
                "PreStartContainer",
                pb.PreStartContainerRequest(devices_ids=ids),
                self._host.config.pre_start_timeout,
            )
        except CallError as error:
            self._manager.check_alive()
            raise ContainerStartError(
                f"device plugin PreStartContainer rpc failed with err: {error}"
            ) from None
