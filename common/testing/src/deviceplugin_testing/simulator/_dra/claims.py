"""The claims that a kubelet has prepared, and what containers get of them."""

import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from deviceplugin.kit import files
from deviceplugin.proto.podresources import podresources_pb2 as pb
from deviceplugin_testing.simulator._errors import ContainerStartError
from deviceplugin_testing.simulator._host.host import Host
from deviceplugin_testing.simulator._pods.pod import Container, ContainerClaim, Pod

FILE_NAME: Final = "dra_manager_state"
_HEADER: Final = {"kind": "DRACheckpoint", "apiVersion": "checkpoint.dra.kubelet.k8s.io/v1"}


@dataclass(frozen=True, slots=True)
class ClaimDevice:
    """A device in a driver's answer to NodePrepareResources."""

    pool: str
    name: str
    requests: tuple[str, ...] = ()
    cdi: tuple[str, ...] = ()
    share: str | None = None

    def serves(self, request: str) -> bool:
        """Return whether it is for ``request``; an empty one stands for all requests."""
        return not request or not self.requests or request in self.requests


@dataclass(slots=True)
class ClaimState:
    """A claim of which the kubelet has asked a driver to prepare it, or is about to."""

    namespace: str
    name: str
    uid: str
    drivers: dict[str, list[ClaimDevice]]
    """The drivers of its allocation, and the devices in all their answers since the claim became
    known. An answer after a restart of the kubelet is added to those from before."""
    pods: set[str] = field(default_factory=set)
    """The UIDs of the pods that use it."""
    prepared: bool = False
    unpreparing: bool = False
    """Whether its last user has gone, and the drivers are being called."""

    @classmethod
    def of(cls, claim: Mapping[str, Any]) -> Self:
        """Return the state of a ResourceClaim object; raise ``ValueError`` if it has no devices."""
        metadata = claim["metadata"]
        allocation = (claim.get("status") or {}).get("allocation")
        if allocation is None:
            raise ValueError("not allocated")
        results = (allocation.get("devices") or {}).get("results") or ()
        drivers: dict[str, list[ClaimDevice]] = {result["driver"]: [] for result in results}
        return cls(metadata["namespace"], metadata["name"], metadata["uid"], drivers)

    @property
    def devices(self) -> Iterator[tuple[str, ClaimDevice]]:
        for driver, devices in self.drivers.items():
            for device in devices:
                yield driver, device


class ClaimCache:
    """The claims by namespace and name. ``host.changed`` guards it."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._claims: dict[tuple[str, str], ClaimState] = {}

    def __iter__(self) -> Iterator[ClaimState]:
        return iter(list(self._claims.values()))

    def get(self, namespace: str, name: str) -> ClaimState | None:
        return self._claims.get((namespace, name))

    def add(self, state: ClaimState) -> None:
        self._claims[state.namespace, state.name] = state

    def remove(self, namespace: str, name: str) -> None:
        self._claims.pop((namespace, name), None)

    def save(self) -> None:
        """Write the checkpoint, byte for byte as the kubelet does."""
        with self._host.changed:
            states = [_encode(state) for state in self._claims.values()]
        data = json.dumps(
            {**_HEADER, "ClaimInfoStateList": states}, separators=(",", ":"), ensure_ascii=False
        )
        text = json.dumps(
            {"Data": data, "Checksum": zlib.crc32(data.encode())},
            separators=(",", ":"),
            ensure_ascii=False,
        )
        files.write(self._path, text, mode=0o600, durable=False, again=True)

    @property
    def _path(self) -> Path:
        return self._host.root / FILE_NAME

    def restore(self) -> None:
        """Read the checkpoint; no claim counts as prepared.

        Raises:
            ValueError: It is damaged. Then the kubelet does not start.
        """
        found: list[ClaimState] = []
        try:
            document = json.loads(self._path.read_text(encoding="utf-8"))
            intact = zlib.crc32(document["Data"].encode()) == document["Checksum"]
            states = json.loads(document["Data"])["ClaimInfoStateList"]
            found = [_decode(state) for state in states or ()]
        except FileNotFoundError:
            return
        except (ValueError, TypeError, KeyError, AttributeError):
            intact = False
        if not intact:
            raise ValueError(f"create ResourceClaim cache: {self._path}: checkpoint is corrupted")
        for state in found:
            self.add(state)


def _encode(state: ClaimState) -> dict[str, Any]:
    return {
        "ClaimUID": state.uid,
        "ClaimName": state.name,
        "Namespace": state.namespace,
        "PodUIDs": {uid: {} for uid in sorted(state.pods)},
        "DriverState": {
            driver: {"Devices": [_encode_device(device) for device in devices] or None}
            for driver, devices in sorted(state.drivers.items())
        },
    }


def _encode_device(device: ClaimDevice) -> dict[str, Any]:
    return {
        "PoolName": device.pool,
        "DeviceName": device.name,
        "ShareID": device.share,
        "RequestNames": list(device.requests) or None,
        "CDIDeviceIDs": list(device.cdi) or None,
    }


def _decode(entry: Mapping[str, Any]) -> ClaimState:
    drivers = {
        driver: [_decode_device(device) for device in state["Devices"] or ()]
        for driver, state in entry["DriverState"].items()
    }
    names = entry["Namespace"], entry["ClaimName"], entry["ClaimUID"]
    return ClaimState(*names, drivers, set(entry["PodUIDs"] or ()))


def _decode_device(entry: Mapping[str, Any]) -> ClaimDevice:
    return ClaimDevice(
        entry["PoolName"],
        entry["DeviceName"],
        tuple(entry["RequestNames"] or ()),
        tuple(entry["CDIDeviceIDs"] or ()),
        entry["ShareID"],
    )


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
        """Return the CDI names in the runtime's order; raise ``ContainerStartError``."""
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
