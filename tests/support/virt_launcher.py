"""What KubeVirt's virt-launcher makes of the variables and of the device metadata it gets.

After pkg/virt-launcher/virtwrap/device/hostdevice and pkg/dra of kubevirt/kubevirt, at d923fdb.
"""

import json
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

METADATA: Final = "/var/run/kubernetes.io/dra-device-attributes"

_VALID: Final = {
    "PCI_RESOURCE": r"[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]",
    "MDEV_PCI_RESOURCE": r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
    "USB_RESOURCE": r"[0-9]+:[0-9]+",
}
"""Prefixes of variables, in the order of the pools, each with the form of its addresses."""


class LaunchError(Exception):
    """The machine does not start."""


def launch(host_devices: Sequence[Mapping[str, str]], envs: Mapping[str, str]) -> dict[str, str]:
    """Return the address of each of ``hostDevices``, by its name."""
    found: dict[str, str] = {}
    count = 0
    for prefix, form in _VALID.items():
        pool = _pool(prefix, {one["deviceName"] for one in host_devices}, envs)
        for one in host_devices:
            address = next(iter(pool.get(one["deviceName"], [])), "")
            if not address:
                continue
            if not re.fullmatch(form, address):
                raise LaunchError(f"{one['name']}: bad value {address}")
            pool = {name: [a for a in some if a != address] for name, some in pool.items()}
            found[one["name"]] = address
            count += 1
    if count != len(host_devices):
        raise LaunchError(f"{len(host_devices)} were asked for, and there are {count}")
    return found


def _pool(prefix: str, resources: set[str], envs: Mapping[str, str]) -> dict[str, list[str]]:
    names = {
        one: f"{prefix}_{one.upper().replace('/', '_').replace('.', '_')}" for one in resources
    }
    return {
        one: [part for part in envs[name].removesuffix(",").split(",") if part]
        for one, name in names.items()
        if name in envs
    }


def read_metadata(
    mounts: Mapping[str, str], claim: Mapping[str, str], request: str
) -> Mapping[str, Any]:
    """Return what the file for a request of ``resourceClaims`` says, by its request.

    ``mounts`` has the path on the host of each path in the container.
    """
    if name := claim.get("resourceClaimName"):
        folder = f"{METADATA}/resourceclaims/{name}"
    else:
        folder = f"{METADATA}/resourceclaimtemplates/{claim['name']}"
    found = [one for one in mounts if fnmatchcase(one, f"{folder}/{request}/*-metadata.json")]
    if len(found) != 1:
        raise LaunchError(f"{len(found)} files for request {request} in {sorted(mounts)}")
    text, decoder = Path(mounts[found[0]]).read_text(encoding="utf-8"), json.JSONDecoder()
    while text:
        one, end = decoder.raw_decode(text)
        if one["apiVersion"] == "metadata.resource.k8s.io/v1alpha1":
            return dict(one)
        text = text[end:].lstrip()
    raise LaunchError("no compatible metadata version found in stream")


def claimed(mounts: Mapping[str, str], claim: Mapping[str, str], request: str) -> tuple[str, str]:
    """Return the kind and the address of the device of ``request``, as ``launch`` does by name."""
    document = read_metadata(mounts, claim, request)
    devices = [one["devices"] for one in document["requests"] if one["name"] == request]
    if [1] != [len(some) for some in devices]:
        raise LaunchError(f"request {request} has {devices}")
    attributes = devices[0][0]["attributes"]
    for kind in ("mdevUUID", "resource.kubernetes.io/pciBusID"):
        if text := attributes.get(kind, {}).get("string"):
            return kind, str(text)
    raise LaunchError(f"no mdevUUID or pciBusID in {attributes}")
