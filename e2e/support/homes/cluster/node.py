"""The node of a cluster that is tested: the one that is named, or the first."""

import re
from fnmatch import fnmatch

from homes.cluster.kubectl import Kubectl

_CDI = {"containerd": (2, 0), "cri-o": (1, 28)}
"""The first version of each runtime that has CDI by default."""


class ClusterNode:
    """The node. Raises ``AssertionError`` if there is none."""

    def __init__(self, kubectl: Kubectl, name: str = "") -> None:
        self._kubectl = kubectl
        nodes = [kubectl.get("node", name)] if name else kubectl.get("nodes")["items"]
        assert nodes, "the cluster has no node"
        found = nodes[0]
        self.name = str(found["metadata"]["name"])
        # With some clouds they differ.
        self.hostname = str(found["metadata"]["labels"]["kubernetes.io/hostname"])
        images = found["status"].get("images", ())
        self._images = [name for one in images for name in one.get("names") or ()]
        runtime = found["status"].get("nodeInfo", {}).get("containerRuntimeVersion", "")
        self.why_no_cdi = why_no_cdi(runtime)
        """Why CDI specifications have no effect here; empty if they have."""

    def listed(self, image: str) -> str:
        """Return how the node lists an image, since CRI-O completes no names; else its name."""
        found = (one for one in self._images if f"/{one}".endswith(f"/{image}"))
        return min(found, default=image)

    def allocatable(self, resource: str) -> int:
        return self.matching(resource).get(resource, 0)

    def matching(self, pattern: str) -> dict[str, int]:
        """Return the number of allocatable devices by resource, if it is not 0."""
        found = self._kubectl.get("node", self.name)["status"]["allocatable"].items()
        counts = {name: as_number(text) for name, text in found if fnmatch(name, pattern)}
        return {name: count for name, count in counts.items() if count}

    def extended(self) -> dict[str, int]:
        """Return the number of allocatable devices of all plugins, by resource, if it is not 0."""
        return self.matching("*/*")


def why_no_cdi(runtime: str) -> str:
    """Return why a runtime, as a node names it, is not known to have CDI; empty if it is."""
    found = re.match(r"([\w-]+)://v?(\d+)\.(\d+)", runtime)
    if found is None or found[1] not in _CDI:
        return f"it is unknown whether the runtime {runtime or '(none)'} has CDI"
    needed = _CDI[found[1]]
    if (int(found[2]), int(found[3])) >= needed:
        return ""
    return f"{runtime} has no CDI of its own: {found[1]} {needed[0]}.{needed[1]} or newer has"


def as_number(quantity: str) -> int:
    """Return the number of devices: 1000 are written as 1k."""
    found = re.fullmatch(r"(\d+)([kMG]?)", quantity)
    assert found is not None, quantity
    thousands: int = 1000 ** " kMG".index(found[2] or " ")
    return int(found[1]) * thousands
