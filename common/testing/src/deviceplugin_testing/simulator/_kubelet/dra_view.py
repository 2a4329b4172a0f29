"""Inspecting what the kubelet knows of DRA drivers and claims."""

from collections.abc import Mapping, Sequence
from typing import Any

from deviceplugin.proto.dra import dra_v1_pb2 as pb
from deviceplugin_testing.simulator._dra.claims import ClaimDevice, ClaimState, ResourceHealth
from deviceplugin_testing.simulator._errors import KubeletStopped
from deviceplugin_testing.simulator._host.host import Host
from deviceplugin_testing.simulator._kubelet.process import Process
from deviceplugin_testing.simulator._pods.pod import Pod


class DraView:
    """The DRA side of a kubelet, as of now. Without a running kubelet it is empty."""

    def __init__(self, host: Host, process: Process | None) -> None:
        self._host = host
        self._process = process

    @property
    def drivers(self) -> dict[str, list[str]]:
        """The registered drivers, with the socket of each instance, the oldest first."""
        found = self._process.dra.drivers.all if self._process else {}
        return {driver: [one.endpoint for one in instances] for driver, instances in found.items()}

    @property
    def connected(self) -> dict[str, list[str]]:
        """The same, of the instances whose socket answers."""
        found = self._process.dra.drivers.all if self._process else {}
        return {
            driver: endpoints
            for driver, instances in found.items()
            if (endpoints := [one.endpoint for one in instances if one.connected])
        }

    def service(self, driver: str) -> str:
        """Return the service by which the driver is called, such as ``v1.DRAPlugin``.

        Raises:
            LookupError: It is not registered.
        """
        if self._process is None or not (found := self._process.dra.drivers.all.get(driver)):
            raise LookupError(f"{driver} is not registered")
        return found[-1].service

    @property
    def wipes(self) -> dict[str, float]:
        """When slices will be deleted, by driver, by the kubelet's clock. Empty: those of all."""
        return self._process.dra.wiper.due if self._process else {}

    @property
    def problems(self) -> tuple[str, ...]:
        """Why claims of pods that are gone could not be unprepared, of all starts; the last 100."""
        return tuple(self._host.dra_problems)

    def prepared(self, name: str, namespace: str = "default") -> bool:
        """Return whether the claim is prepared, as far as this kubelet process knows."""
        state = self._claim(namespace, name)
        return bool(state and state.prepared)

    def _claim(self, namespace: str, name: str) -> ClaimState | None:
        with self._host.changed:
            return self._process.dra.cache.get(namespace, name) if self._process else None

    def users(self, name: str, namespace: str = "default") -> frozenset[str]:
        """Return the UIDs of the pods for which the kubelet keeps the claim."""
        state = self._claim(namespace, name)
        with self._host.changed:
            return frozenset(state.pods) if state else frozenset()

    def devices(self, name: str, namespace: str = "default") -> list[tuple[str, ClaimDevice]]:
        """Return driver and device of all answers for the claim, also of those from before."""
        state = self._claim(namespace, name)
        with self._host.changed:
            return list(state.devices) if state else []

    def report(self, driver: str, pool: str, device: str) -> ResourceHealth:
        """Return the health that the driver reported of a device, if that holds."""
        with self._host.changed:
            found = self._host.dra_health.get(driver, (pool, device))
        return ResourceHealth(f"{driver}/{pool}/{device}", found.health, found.message)

    def health(self, pod: Pod) -> dict[str, dict[str, list[ResourceHealth]]]:
        """Return the health of devices in the pod's status: container, ``claim:NAME``, devices.

        It has no init containers. Before Kubernetes 1.36 it is empty.
        """
        if self._process is None or not self._host.release.watches_dra_health:
            return {}
        containers = self._process.dra.containers
        return {one.name: containers.health(pod, one) for one in pod.containers}

    def prepare(self, driver: str, *claims: Mapping[str, Any]) -> Mapping[str, Any]:
        """Call NodePrepareResources for these ResourceClaim objects; return the answers by UID.

        There are no checks and no bookkeeping.

        Raises:
            CallError: The call failed, or the driver is not registered.
        """
        return self._call(driver, "NodePrepareResources", claims)

    def unprepare(self, driver: str, *claims: Mapping[str, Any]) -> Mapping[str, Any]:
        """Call NodeUnprepareResources; otherwise as ``prepare``."""
        return self._call(driver, "NodeUnprepareResources", claims)

    def _call(
        self, driver: str, method: str, claims: Sequence[Mapping[str, Any]]
    ) -> Mapping[str, Any]:
        if self._process is None:
            raise KubeletStopped("the kubelet is not running")
        messages = [
            pb.Claim(**{key: claim["metadata"][key] for key in ("namespace", "uid", "name")})
            for claim in claims
        ]
        return self._process.dra.drivers.get(driver).call(method, messages)
