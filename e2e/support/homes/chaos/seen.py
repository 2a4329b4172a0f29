"""What a node, its API server, its plugins and its containers say of devices."""

from collections import defaultdict
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

Object = dict[str, Any]
GOPHERS: Final = "example.com/gopher"
"""May be offered by DRA."""
OTHERS: Final = "example.com/chaos"
"""Of the simulated plugin, with a mount and a device node for each device."""
VARIABLES: Final = {"Gopher": GOPHERS, "SIMULATED": OTHERS}
"""What containers see, as ``scripts.LOCK`` names it, and of which resource it is."""


class Held(NamedTuple):
    """A device of a container of a pod, by its name."""

    pod: str
    container: str
    resource: str
    device: str


@dataclass(frozen=True)
class Seen:
    """What all say at one moment. Whatever is of a pod that does not run is passed over."""

    expected: Mapping[str, AbstractSet[str]]
    """The devices that there are, by resource."""
    pods: list[Object]
    """Those of one namespace that run and are not being deleted."""
    waiting: dict[str, str]
    """Why others of it that are bound to the node do not run, by their names."""
    node: Object
    """See ``scripts.SEEN``."""
    served: Mapping[str, list[Object]]
    """``devices`` of each plugin's ``/devices``, by resource."""
    slices: list[Object]
    claims: list[Object]
    driver: str

    @property
    def names(self) -> dict[str, str]:
        """Return the names of the pods by UID."""
        return {one["metadata"]["uid"]: one["metadata"]["name"] for one in self.pods}

    def asked(self) -> dict[tuple[str, str, str], int]:
        """Return how many devices each container has asked for, by pod, container and resource."""
        return {
            (pod["metadata"]["name"], container["name"], resource): int(count)
            for pod in self.pods
            for kind in ("initContainers", "containers")
            for container in pod["spec"].get(kind, ())
            for resource, count in container.get("resources", {}).get("limits", {}).items()
            if resource in self.expected
        }

    # What each says who holds what

    def checkpoint(self) -> set[Held]:
        """Return what the kubelet has saved."""
        return {
            Held(self.names[one["PodUID"]], one["ContainerName"], one["ResourceName"], device)
            for one in self.node["checkpoint"]
            if one["PodUID"] in self.names and one["ResourceName"] in self.expected
            for ids in one["DeviceIDs"].values()
            for device in ids
        }

    def listed(self) -> set[Held]:
        """Return what the kubelet lists."""
        space = {one["metadata"]["namespace"] for one in self.pods}
        return {
            Held(*rest)
            for namespace, *rest in self.node["listed"]
            if namespace in space and rest[0] in {*self.names.values()} and rest[2] in self.expected
        }

    def claimed(self) -> set[Held]:
        """Return what claims have, by pod alone where the claim is not one of ``limits``."""
        found = set()
        for pod in self.pods:
            own = pod["status"].get("extendedResourceClaimStatus", {})
            containers = defaultdict[str, list[str]](
                list
            )  # an init container shares with a later one
            for one in own.get("requestMappings", ()):
                containers[one["requestName"]].append(one["containerName"])
            for claim in self.claims_of(pod["metadata"]["uid"]):
                for one in allocated(claim, self.driver):
                    for container in containers.get(one["request"], [""]):
                        found.add(Held(pod["metadata"]["name"], container, GOPHERS, one["device"]))
        return found

    def claims_of(self, uid: str) -> list[Object]:
        """Return the claims that are reserved for a pod."""
        return [
            claim
            for claim in self.claims
            for user in claim.get("status", {}).get("reservedFor", ())
            if user["uid"] == uid
        ]

    def views(self) -> set[Held]:
        """Return what containers see of devices by their variables."""
        return {
            Held(view["pod"], view["container"], VARIABLES[name], device)
            for view in self.running_views()
            for name, devices in view["envs"].items()
            for device in devices
        }

    def running_views(self) -> list[Object]:
        """Return the views of containers of running pods."""
        return [one for one in self.node["views"] if one["pod"] in self.names.values()]


def allocated(claim: Object, driver: str) -> list[Object]:
    """Return the devices of a driver that a claim has."""
    devices: Object = claim.get("status", {}).get("allocation", {}).get("devices", {})
    results: list[Object] = devices.get("results", [])
    return [one for one in results if one["driver"] == driver]
