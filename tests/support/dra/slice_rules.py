"""What the API server of Kubernetes 1.36 refuses in a ResourceSlice, as far as ours could be."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,31}")
NUMBER = r"(0|[1-9][0-9]*)"
PART = r"(0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
SEMVER = re.compile(
    rf"{NUMBER}\.{NUMBER}\.{NUMBER}(-{PART}(\.{PART})*)?(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?"
)
QUANTITY = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?([numkMGTPE]|[KMGTPE]i|[eE][-+]?[0-9]+)?")


def problems(one: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with a slice."""
    return [*_slice_problems(one)]


def _slice_problems(one: Mapping[str, Any]) -> Iterator[str]:
    name, spec = one["metadata"]["name"], one["spec"]
    if len(name) > 253 or not SUBDOMAIN.fullmatch(name):
        yield f"metadata.name: {name}"
    pool = spec["pool"]["name"]
    if len(pool) > 253 or not all(map(SUBDOMAIN.fullmatch, pool.split("/"))):
        yield f"spec.pool.name: {pool}"
    if len(spec["driver"]) > 63 or not SUBDOMAIN.fullmatch(spec["driver"]):
        yield f"spec.driver: {spec['driver']}"
    if len(spec["devices"]) > 64:
        yield "spec.devices: too many"
    names = [device["name"] for device in spec["devices"]]
    if len(set(names)) != len(names):
        yield "spec.devices: two have one name"
    for index, device in enumerate(spec["devices"]):
        yield from (f"spec.devices[{index}].{why}" for why in _device_problems(device))


def _device_problems(device: Mapping[str, Any]) -> Iterator[str]:
    if not LABEL.fullmatch(device["name"]):
        yield f"name: {device['name']}"
    attributes, capacity = device["attributes"], device.get("capacity", {})
    if len(attributes) + len(capacity) > 32:
        yield "too many attributes and capacities"
    for name in (*attributes, *capacity):
        domain, slash, last = name.rpartition("/")
        if (slash and (len(domain) > 63 or not SUBDOMAIN.fullmatch(domain))) or not (
            IDENTIFIER.fullmatch(last)
        ):
            yield f"attribute: {name}"
    for name, value in attributes.items():
        yield from (f"attributes[{name}]: {why}" for why in _value_problems(value))
    for name, amount in capacity.items():
        if not QUANTITY.fullmatch(amount["value"]):
            yield f"capacity[{name}]: {amount}"


def _value_problems(value: Mapping[str, Any]) -> Iterator[str]:
    ((kind, given),) = value.items()
    right = {"bool": bool, "int": int, "string": str, "version": str}[kind]
    if type(given) is not right:
        yield f"{given!r} is not a {kind}"
    elif kind == "int" and given not in range(-(2**63), 2**63):
        yield f"{given} is too large"
    elif isinstance(given, str) and len(given.encode()) > 64:
        yield f"{given} is too long"
    elif kind == "version" and not SEMVER.fullmatch(str(given)):
        yield f"{given} is not a version"
