"""What containers can read about their devices: a file for each request of a claim (KEP-5304).

It is a stream of JSON: the same object in each version of the format, the newest first. It is
mounted by the CDI file of the claim, so a container that runs keeps the file it started with.
"""

import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from deviceplugin._attribution.ownership import Claim
from deviceplugin._config.documents.faults import bounded
from deviceplugin._config.names import DOMAIN
from deviceplugin._dra.claims.devices import Located
from deviceplugin._dra.claims.record import Metadata, is_request
from deviceplugin.errors import AllocationError
from deviceplugin.kit.log import Problems
from deviceplugin.model import Device

log = logging.getLogger(__name__)

_INSIDE: Final = "/var/run/kubernetes.io/dra-device-attributes"
_VERSIONS: Final = ("v1beta1", "v1alpha1")
"""Kubernetes 1.37 asks for the first. KubeVirt, of August 2026, reads the second only."""
Describe = Callable[[Device, str, int], tuple[Mapping[str, Any], object]]
"""Returns what slices say of a device of a resource that has so many shares, and anything."""


def content(metadata: Metadata) -> str:
    """Return the stream that a container reads."""
    kinds = [
        {"kind": "DeviceMetadata", "apiVersion": f"metadata.resource.k8s.io/{version}"}
        for version in _VERSIONS
    ]
    return "".join(json.dumps({**kind, **metadata}) + "\n" for kind in kinds)


def path_inside(driver: str, request: str, metadata: Metadata) -> str:
    """Return where a container finds the file."""
    name = metadata.get("podClaimName")
    folder = f"templates/{name}" if name else f"s/{metadata['metadata']['name']}"
    return f"{_INSIDE}/resourceclaim{folder}/{request}/{driver}-metadata.json"


@dataclass(eq=False, repr=False)
class DescribedClaims:
    """Describes the devices of claims of ``driver``, or none without ``describe``. Thread-safe."""

    driver: str
    describe: Describe | None

    def __post_init__(self) -> None:
        self._problems = Problems(log)

    def of(self, claim: Claim, found: Sequence[Located]) -> Mapping[str, Metadata]:
        """Return what is said of ``found``, by request; AllocationError if a name is no name."""
        if self.describe is None:
            return {}
        requests: dict[str, list[Located]] = {}
        for one in found:
            requests.setdefault(one.result.request, []).append(one)
        if not re.fullmatch(DOMAIN, claim.name):
            raise AllocationError(f"{bounded(repr(claim.name))} is not the name of a claim")
        for wrong in (one for one in requests if not is_request(one)):
            raise AllocationError(f"{bounded(repr(wrong))} is not the name of a request")
        return {name: self._request(claim, some, self.describe) for name, some in requests.items()}

    def _request(self, claim: Claim, found: Sequence[Located], describe: Describe) -> Metadata:
        result = found[0].result
        devices = {
            # A share that consumes several ids is one device.
            (one.result.pool, one.result.device): {
                "driver": self.driver,
                "pool": one.result.pool,
                "name": one.result.device,
                "attributes": _attributes(one, describe),
            }
            for one in found
        }
        name = "/".join(filter(None, (result.request, result.subrequest)))
        # As long as the claim is prepared, the file does not change.
        identity = {"name": claim.name, "namespace": claim.namespace, "uid": claim.uid}
        return {
            "metadata": {**identity, "generation": 1},
            **self._pod_claim(claim, result.pod_claim),
            "requests": [{"name": name, "devices": [*devices.values()]}],
        }

    def _pod_claim(self, claim: Claim, name: str) -> Mapping[str, str]:
        if not name or is_request(name):
            return {"podClaimName": name} if name else {}
        # No pod can give a claim this name, so the claim is not one of a template.
        event = "annotation of a claim ignored"
        text = f"pod-claim-name: {bounded(repr(name))}"
        self._problems.say("pod claim", event, claim=str(claim), annotation=text)
        return {}


def _attributes(one: Located, describe: Describe) -> Mapping[str, Any]:
    device = replace(one.device, id=one.shared) if one.shared else one.device
    found: Mapping[str, Any] = describe(device, one.resource.name, int(bool(one.shared)))[0]
    return dict(found["attributes"])
