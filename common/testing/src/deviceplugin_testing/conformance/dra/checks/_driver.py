"""Registration and slices: how a driver introduces itself, and what it publishes."""

from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any, Final

import grpc

from deviceplugin._config.slices import consumption, counters, taint
from deviceplugin._platform import rpc
from deviceplugin.proto.dra import HEALTH, V1, V1BETA1
from deviceplugin.proto.pluginregistration import pluginregistration_pb2 as pb
from deviceplugin_testing.conformance._check import CheckGroup, Failed, NotApplicable
from deviceplugin_testing.conformance.dra._node import DraNode, Slices
from deviceplugin_testing.conformance.dra._trial import DraTrial

DRIVER: Final = CheckGroup("driver", "Driver registration")

_REGISTRATION: Final = pb.DESCRIPTOR.services_by_name["Registration"]


def _info(trial: DraTrial) -> pb.PluginInfo:
    node = trial.node()

    def sockets() -> list[str]:
        known = node.kubelet.watched_sockets.items()
        return [path for path, name in known if name == node.driver]

    node.require(sockets, "it does not take the notice that it is registered")
    with rpc.connect(sockets()[0]) as channel:
        info: pb.PluginInfo = rpc.calls(channel, _REGISTRATION)["GetInfo"](
            pb.InfoRequest(), timeout=trial.limits.call
        )
    return info


@DRIVER.check(
    "up",
    "Registers soon after its start, serves, and publishes a device",
    why="Until then pods that need its devices wait, and all other checks are in vain.",
)
def _up(trial: DraTrial) -> str:
    try:
        node = trial.fresh()
    except NotApplicable:
        raise Failed(trial.hopeless) from None
    return f"registered {node.driver}, offers {len(node.devices)} devices"


@DRIVER.check(
    "services",
    "Serves v1 and v1beta1, and lists v1 first",
    why="The kubelet takes the first service that it knows; before 1.34 that is v1beta1 only.",
)
def _services(trial: DraTrial) -> str:
    services = list(trial.once(_info).supported_versions)
    known = [service for service in services if service in {V1, V1BETA1}]
    if known != [V1, V1BETA1]:
        raise Failed(f"lists {', '.join(services)}")
    return ", ".join(services)


@DRIVER.check(
    "health",
    "Streams the health of its devices, all of them in each message",
    why="The status of a pod shows it; a device that a message lacks is unknown after a while.",
)
def _health(trial: DraTrial) -> str:
    node = trial.node()
    if HEALTH not in trial.once(_info).supported_versions:
        raise NotApplicable(f"does not register {HEALTH}")
    pool, device = node.devices[0][:2]
    claim = node.claim(node.devices[0])
    node.prepare(claim)
    known = node.kubelet.dra

    def reported() -> bool:
        return known.report(node.driver, pool, device).health != "Unknown"

    node.require(reported, f"no health of {device}")
    missing = [
        one.device
        for one in node.devices
        if known.report(node.driver, one.pool, one.device).health == "Unknown"
    ]
    node.unprepare(claim)
    if missing:
        raise Failed(f"no health of {len(missing)} devices, such as {missing[0]}")
    return f"{len(node.devices)} devices"


@DRIVER.check(
    "no-errors",
    "Answers a call for no claim",
    why="Monitoring calls a driver with an empty request to see whether it lives.",
)
def _no_errors(trial: DraTrial) -> str:
    node = trial.node()
    try:
        found = len(node.prepare()) + len(node.unprepare())
    except grpc.RpcError as error:
        raise Failed(rpc.status_text(error)) from error
    return f"{found} claims"


SLICES: Final = CheckGroup("slices", "Resource slices")

_READS: Final = {"get", "list", "watch"}
_SLICES: Final = "resourceslices"


@SLICES.check(
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


@SLICES.check(
    "counters",
    "Lets devices consume counters that the pool has, and no more than these",
    why="The scheduler takes no device of a pool in which one refers to what is not there.",
)
def _counters(trial: DraTrial) -> str:
    node = trial.node()
    # Slices are written one by one, so counters may still be on their way.
    node.wait(lambda: not _overdrawn(node), node.limits.within)
    if problem := _overdrawn(node):
        raise Failed(problem)
    consuming = sum(bool(consumption(one)[0]) for one in _devices_in(node.slices))
    return f"{consuming} devices consume counters"


def _overdrawn(node: DraNode) -> str:
    """Return which device consumes counters that are not there; empty if none does."""
    for name, slices in node.pools().items():
        there = {k: n for one in slices for k, n in counters(one["spec"]).items()}
        for device in _devices_in(slices):
            for (of, counter), amount in consumption(device)[0].items():
                if amount > there.get((of, counter), 0) and not taint(device, node.driver):
                    most = there.get((of, counter), "none")
                    what = f"{amount} of {counter} in {of}, of which there is {most}"
                    return f"{device['name']} in pool {name} consumes {what}"
    return ""


def _devices_in(slices: Slices) -> Iterator[Mapping[str, Any]]:
    for one in slices:
        yield from one["spec"].get("devices", ())


@SLICES.check(
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


@SLICES.check(
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


@SLICES.check(
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


@SLICES.check(
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
