"""What containers have from claims: CDI names, the pod resources API, the pod's status."""

from collections.abc import Iterator
from dataclasses import dataclass

from deviceplugin.proto.podresources import podresources_pb2 as pb
from deviceplugin_testing.simulator._dra.claims import ClaimCache, ClaimDevice, ClaimState
from deviceplugin_testing.simulator._errors import ContainerStartError
from deviceplugin_testing.simulator._host.host import Host
from deviceplugin_testing.simulator._pods.claims import ContainerClaim
from deviceplugin_testing.simulator._pods.pod import Container, Pod


@dataclass(frozen=True, slots=True)
class ResourceHealth:
    """A device in the status of a container: an entry of ``allocatedResourcesStatus``."""

    resource_id: str
    """The first CDI name of the device, or DRIVER/POOL/DEVICE if it has none."""
    health: str
    message: str = ""


class ContainerClaims:
    """Finds the devices of containers in the claims that the kubelet knows."""

    def __init__(self, host: Host, cache: ClaimCache) -> None:
        self._host = host
        self._cache = cache

    def cdi_names(self, pod: Pod, container: Container) -> list[str]:
        """Return the CDI names that the runtime gets, in the order in which it applies them.

        Raises:
            ContainerStartError: The kubelet does not know a claim.
        """
        wanted: dict[str, list[str]] = {}
        for use in container.claims:
            if name := _object(pod, use):
                wanted.setdefault(name, []).append(use.request)
        if pod.extended:
            for mapping in pod.extended.mappings:
                if mapping.container == container.name and container.limits.get(mapping.resource):
                    wanted.setdefault(pod.extended.claim, []).append(mapping.request)
        return [
            name
            for claim in self._host.shuffled(set(wanted))
            for request in wanted[claim]
            for name in self._names(self._known(pod, claim), request)
        ]

    def _known(self, pod: Pod, claim: str) -> ClaimState:
        with self._host.changed:
            state = self._cache.get(pod.namespace, claim)
        if state is None:
            raise ContainerStartError(
                "internal error: unable to get claim info for ResourceClaim "
                f"{claim} in namespace {pod.namespace}"
            )
        return state

    def _names(self, state: ClaimState, request: str) -> Iterator[str]:
        for driver in self._host.shuffled(set(state.drivers)):
            for device in state.drivers[driver]:
                if device.serves(request):
                    yield from device.cdi

    def resources(self, pod: Pod, container: Container) -> list[pb.DynamicResource]:
        """Return the container's claims for the pod resources API, or nothing if one is unknown.

        A claim has all its devices, whatever the container requests. Each device of a driver has
        the CDI names of those before it, too.
        """
        names = [name for use in container.claims if (name := _object(pod, use))]
        if pod.extended and any(each.container == container.name for each in pod.extended.mappings):
            names.append(pod.extended.claim)
        with self._host.changed:
            states = [self._cache.get(pod.namespace, name) for name in dict.fromkeys(names)]
            if None in states:
                return []
            return [_dynamic_resource(state) for state in states if state]

    def health(self, pod: Pod, container: Container) -> dict[str, list[ResourceHealth]]:
        """Return the health of the container's devices in the pod's status, by ``claim:NAME``.

        Devices from a claim for limits do not appear.
        """
        found: dict[str, list[ResourceHealth]] = {}
        for use in container.claims:
            with self._host.changed:
                state = self._cache.get(pod.namespace, _object(pod, use))
                entries = list(self._entries(state, use.request.partition("/")[0])) if state else []
            if entries:
                name = f"claim:{use.name}/{use.request}" if use.request else f"claim:{use.name}"
                found[name] = entries
        return found

    def _entries(self, state: ClaimState, request: str) -> Iterator[ResourceHealth]:
        seen = set()
        for driver, device in state.devices:
            id_ = device.cdi[0] if device.cdi else f"{driver}/{device.pool}/{device.name}"
            if device.serves(request) and id_ not in seen:
                seen.add(id_)
                report = self._host.dra_health.get(driver, (device.pool, device.name))
                yield ResourceHealth(id_, report.health, report.message)


def _object(pod: Pod, use: ContainerClaim) -> str:
    """Return the name of the claim's object; empty if there is none."""
    return next((claim.claim for claim in pod.claims if claim.name == use.name), None) or ""


def _dynamic_resource(state: ClaimState) -> pb.DynamicResource:
    resources = []
    for driver, devices in state.drivers.items():
        names: list[pb.CDIDevice] = []
        for device in devices:
            names += [pb.CDIDevice(name=name) for name in device.cdi]
            resources.append(_claim_resource(driver, device, names))
    return pb.DynamicResource(
        claim_name=state.name, claim_namespace=state.namespace, claim_resources=resources
    )


def _claim_resource(
    driver: str, device: ClaimDevice, names: list[pb.CDIDevice]
) -> pb.ClaimResource:
    return pb.ClaimResource(
        cdi_devices=names,
        driver_name=driver,
        pool_name=device.pool,
        device_name=device.name,
        share_id=device.share,
    )
