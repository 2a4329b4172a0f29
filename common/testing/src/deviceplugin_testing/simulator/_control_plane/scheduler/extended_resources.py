"""Extended resources that a node offers through DRA: the scheduler makes a claim for them."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from deviceplugin_testing.simulator._control_plane.kinds import Object
from deviceplugin_testing.simulator._control_plane.quantities import amount
from deviceplugin_testing.simulator._control_plane.rules.by_kind import containers, owned_by

IMPLICIT: Final = "deviceclass.resource.kubernetes.io/"
ANNOTATION: Final = "resource.kubernetes.io/extended-resource-claim"


class SpecialClaim(NamedTuple):
    """The claim for a pod's extended resources, and which container gets what of it."""

    claim: Object
    mappings: list[Object]


def class_of(resource: str, classes: Iterable[Object]) -> str:
    """Return the name of the device class that stands for ``resource``, or an empty string.

    Of several, that is the newest, and of those the first by name.
    """
    found = [one for one in classes if one["spec"].get("extendedResourceName") == resource]
    if not found:
        implicit = resource.removeprefix(IMPLICIT) if resource.startswith(IMPLICIT) else ""
        return implicit if any(one["metadata"]["name"] == implicit for one in classes) else ""
    newest = max(one["metadata"]["creationTimestamp"] for one in found)
    latest = [one["metadata"] for one in found if one["metadata"]["creationTimestamp"] == newest]
    return min(str(metadata["name"]) for metadata in latest)


def requests_of(pod: Object) -> dict[str, int]:
    """Return how many devices of each extended resource the pod counts as using.

    Containers that run one after the other count as the one that wants the most.
    """
    own = {one["name"] for one in pod["spec"].get("initContainers", ())}
    found: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in containers(pod):
        runs_once = container["name"] in own and container.get("restartPolicy") != "Always"
        for name, count in _devices(container).items():
            place = peak if runs_once else found
            place[name] = max(peak.get(name, 0), count) if runs_once else found.get(name, 0) + count
    return {name: max(found.get(name, 0), peak.get(name, 0)) for name in {**found, **peak}}


def special_claim(pod: Object, classes: Mapping[str, str]) -> SpecialClaim:
    """Return the claim for the resources of ``pod`` that ``classes`` has the device classes of."""
    requests: list[Object] = []
    mappings: list[Object] = []
    for index, container in enumerate(containers(pod)):
        names = sorted(container["resources"]["requests"])
        for place, name in enumerate(names):
            count = _devices(container).get(name, 0)
            if name not in classes or not count:
                continue
            request = f"container-{index}-request-{place}"
            exactly = {"deviceClassName": classes[name], "allocationMode": "ExactCount"}
            requests.append({"name": request, "exactly": {**exactly, "count": count}})
            mapping = {"containerName": container["name"], "resourceName": name}
            mappings.append({**mapping, "requestName": request})
    metadata = pod["metadata"]
    claim = {
        "metadata": {
            "generateName": f"{metadata['name']}-extended-resources-",
            "namespace": metadata["namespace"],
            "annotations": {ANNOTATION: "true"},
            "ownerReferences": [owned_by(pod)],
        },
        "spec": {"devices": {"requests": requests}},
    }
    return SpecialClaim(claim, mappings)


def _devices(container: Object) -> dict[str, int]:
    requests: Mapping[str, str] = container["resources"]["requests"]
    return {name: int(amount(count)) for name, count in requests.items() if "/" in name}
