"""What containers get of a plugin through DRA, beside what they get by its own protocol."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from deviceplugin._dra.naming import shortened
from deviceplugin._inventory.allocating import decode_allocation
from deviceplugin.plugin import Plugin
from served.cluster_node import DRIVER, ServedNode, served
from virt_launcher import METADATA, read_metadata

Given = dict[str, Any]
Found = dict[tuple[str, frozenset[str]], Given]
"""What a container got, by resource and ids."""


def by_both(root: Path, make: Callable[[], Plugin]) -> tuple[Found, Found]:
    """Return what containers get of the same devices by the plugin's protocol, and through DRA.

    Through DRA they also get the attributes of their devices to read, which this checks.
    ``root`` is short and empty. ``make`` returns a plugin with the same devices each time.
    """
    with served(root / "a", make(), protocol="dra", device_metadata=True) as node:
        found = _through_dra(node)
    expected = {}
    plugin = make()
    # Slices have a shared device once, and the kubelet has its shares.
    shares = {one.share_of: one.id for one in plugin.discover() if one.share_of}
    with served(root / "b", plugin) as node:
        for resource, ids in found:
            own = frozenset(shares.get(one, one) for one in ids)
            full = node.kubelet.wait(partial(_listed, node, resource, own), what=resource)
            got = decode_allocation(node.kubelet.allocate(full, sorted(own)))
            expected[resource, ids] = _given(got.envs, got.nodes, got.mounts, got.cdi_names)
    return expected, found


def _through_dra(node: ServedNode) -> Found:
    """Run a pod with one device of each resource, and one with two, where there are as many.

    Returns what they got, by resource and ids.
    """
    node.await_offer()
    found = {}
    counts = Counter(resource for resource, _ in node.offered().values())
    node.offer(*counts)
    for resource, most in counts.items():
        for count in range(1, min(most, 2) + 1):
            pod = node.pod(resource, count)
            got = node.got(pod)
            own = {one for one in got.claim_cdi_devices if not one.startswith(f"k8s.{DRIVER}/")}
            key = resource, frozenset(node.held(pod))
            read = [one for one in got.mounts if one.container_path.startswith(METADATA)]
            mounts = [one for one in got.mounts if one not in read]
            assert node.attributes(pod) == _read(node, pod, read)
            found[key] = _given(got.envs, got.devices, mounts, own)
            node.end(pod)
    return found


def _read(node: ServedNode, pod: str, mounts: Iterable[Any]) -> list[Any]:
    """Return pool, name and attributes of the devices of a pod, as it reads them."""
    assert {True} == {one.read_only for one in mounts}
    status = node.status(pod)["extendedResourceClaimStatus"]
    claim = {"resourceClaimName": status["resourceClaimName"]}
    files = {one.container_path: one.host_path for one in mounts}
    found = [
        request
        for one in status["requestMappings"]
        for request in read_metadata(files, claim, one["requestName"])["requests"]
    ]
    devices = [device for one in found for device in one["devices"]]
    assert {DRIVER} == {one["driver"] for one in devices}
    return sorted((one["pool"], one["name"], one["attributes"]) for one in devices)


def _listed(node: ServedNode, resource: str, ids: frozenset[str]) -> str:
    """Return the whole name of the resource once the kubelet has these devices of it.

    An attribute of a slice has 64 characters at most.
    """
    names = (name for name in node.kubelet.resources if shortened(name, 64) == resource)
    return next((name for name in names if ids <= node.kubelet.healthy(name)), "")


def _given(
    envs: Mapping[str, str], nodes: Iterable[Any], mounts: Iterable[Any], cdi: Iterable[str]
) -> Given:
    """Return what a container got, however it came to it."""
    return {
        "envs": dict(envs),
        "nodes": {(one.host_path, one.container_path, one.permissions) for one in nodes},
        "mounts": {(one.host_path, one.container_path, one.read_only) for one in mounts},
        "cdi": set(cdi),
    }
