"""Slices: what a driver publishes, and how often."""

from http import HTTPStatus
from typing import Final

from deviceplugin_testing.conformance._check import Failed, Group
from deviceplugin_testing.conformance.dra._node import DraNode
from deviceplugin_testing.conformance.dra._trial import DraTrial

GROUP: Final = Group("slices", "Resource slices")

_READS: Final = {"get", "list", "watch"}
_SLICES: Final = "resourceslices"


@GROUP.check(
    "complete",
    "Publishes all slices of a pool",
    why="The scheduler ignores a pool of which it sees fewer slices than the pool should have.",
)
def _complete(trial: DraTrial) -> str:
    node = trial.node()
    # Slices are written one by one, so a pool may still be on its way.
    node.wait(lambda: not _incomplete(node), node.limits.within)
    if incomplete := _incomplete(node):
        raise Failed(incomplete)
    return f"{len(node.slices)} slices in {len(node.pools())} pools"


def _incomplete(node: DraNode) -> str:
    """Return which pool lacks a slice, or has one too many; empty if none."""
    for name, slices in node.pools().items():
        wanted = {one["spec"]["pool"]["resourceSliceCount"] for one in slices}
        if wanted != {len(slices)}:
            return f"pool {name} has {len(slices)} slices, and says {sorted(wanted)}"
    return ""


@GROUP.check(
    "owner",
    "Makes the node the owner of its slices",
    why="Otherwise slices of a node that is gone stay, and pods are scheduled to it.",
)
def _owner(trial: DraTrial) -> str:
    for one in trial.node().slices:
        kinds = [owner["kind"] for owner in one["metadata"].get("ownerReferences", ())]
        if "Node" not in kinds:
            raise Failed(f"{one['metadata']['name']} is owned by {', '.join(kinds) or 'nobody'}")
    return "owned by the node"


@GROUP.check(
    "accepted",
    "Writes what the API server takes",
    why="One field that is wrong hides all devices of the slice.",
)
def _accepted(trial: DraTrial) -> str:
    node = trial.node()
    refused = [
        one
        for one in node.cluster.requests
        if one.resource == _SLICES and one.code == HTTPStatus.UNPROCESSABLE_ENTITY
    ]
    if refused:
        raise Failed(f"{len(refused)} writes of slices were refused")
    return "nothing was refused"


@GROUP.check(
    "quiet",
    "Writes slices only if something has changed",
    why="Each write reaches every scheduler and every watcher of the cluster.",
)
def _quiet(trial: DraTrial) -> str:
    node = trial.node()
    node.observe(trial.limits.settle)
    seen = len(node.cluster.requests)
    node.observe(trial.limits.quiet)
    writes = [
        one
        for one in node.cluster.requests[seen:]
        if one.resource == _SLICES and one.verb not in _READS
    ]
    if writes:
        raise Failed(f"wrote {len(writes)} times within {trial.limits.quiet:g} s")
    return f"wrote nothing for {trial.limits.quiet:g} s"


@GROUP.check(
    "again",
    "Publishes its slices again after they were deleted",
    why="A kubelet deletes all slices of its node when it starts.",
)
def _again(trial: DraTrial) -> str:
    node = trial.node()
    before = len(node.devices)
    for one in node.slices:
        node.cluster.delete("ResourceSlice", one["metadata"]["name"])
    node.require(
        lambda: len(node.devices) == before,
        f"not all {before} devices were offered again",
        trial.limits.republished,
    )
    return f"{before} devices are offered again"
