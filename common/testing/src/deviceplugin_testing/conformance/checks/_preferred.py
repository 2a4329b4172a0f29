"""Preferred allocation and pre-start, if the plugin asks for them."""

import time
from collections.abc import Sequence
from typing import Final

import grpc

from deviceplugin._platform import rpc
from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from deviceplugin_testing.conformance._check import FIRST_LANE, CheckGroup, Failed, NotApplicable
from deviceplugin_testing.conformance._node import PluginNode
from deviceplugin_testing.conformance._trial import Trial
from deviceplugin_testing.conformance.checks._allocation import allocate, healthy

PREFERRED: Final = CheckGroup("preferred", "Preferred allocation", lane=FIRST_LANE)

_UNKNOWN: Final = "no-such-device"


def _offered(trial: Trial) -> tuple[PluginNode, list[str]]:
    node, ids = healthy(trial)
    if not node.kubelet.options(node.resource).get_preferred_allocation_available:
        raise NotApplicable("not offered")
    return node, ids


def _prefer(
    node: PluginNode, available: Sequence[str], required: Sequence[str], size: int
) -> list[str]:
    request = pb.ContainerPreferredAllocationRequest(
        available_deviceIDs=available, must_include_deviceIDs=required, allocation_size=size
    )
    answer = node.kubelet.call(
        node.resource,
        "GetPreferredAllocation",
        pb.PreferredAllocationRequest(container_requests=[request]),
        node.limits.call,
    )
    return [id_ for container in answer.container_responses[:1] for id_ in container.deviceIDs]


@PREFERRED.check(
    "size",
    "Prefers as many devices as are asked for",
    why="The kubelet fills a short answer, and cuts a long one, at random.",
)
def _size(trial: Trial) -> str:
    node, ids = _offered(trial)
    for size in range(1, len(ids) + 1):
        chosen = _prefer(node, ids, [], size)
        if len(set(chosen)) != size or len(chosen) != size:
            raise Failed(f"asked for {size} of {len(ids)}, preferred {chosen}")
    return f"asked for 1 to {len(ids)} of {len(ids)} devices"


@PREFERRED.check(
    "must-include",
    "Prefers what must be included",
    why="Those devices are taken already; a set chosen without them is the wrong set.",
)
def _must_include(trial: Trial) -> str:
    node, ids = _offered(trial)
    for required in ids[-3:]:
        chosen = _prefer(node, ids, [required], min(2, len(ids)))
        if required not in chosen:
            raise Failed(f"preferred {chosen}, without {required}, which had to be in it")
    return "included what it had to"


@PREFERRED.check(
    "only-available",
    "Prefers only what is available",
    why="The kubelet drops the others, and fills up at random.",
)
def _only_available(trial: Trial) -> str:
    node, ids = _offered(trial)
    rng = trial.rng("preferred")
    for _ in range(5):
        available = rng.sample(ids, rng.randint(1, len(ids)))
        chosen = _prefer(node, available, [], rng.randint(1, len(available)))
        if taken := set(chosen) - set(available):
            raise Failed(f"preferred {', '.join(sorted(taken))}, which were not available")
    return "five random choices, all available"


@PREFERRED.check(
    "no-errors",
    "Answers odd requests too",
    why="An error here rejects the pod, although the answer is only a wish.",
)
def _no_errors(trial: Trial) -> str:
    node, ids = _offered(trial)
    odd = {
        "none of all": (ids, [], 0),
        "one of none": ([], [], 1),
        "more than there are": (ids, [], len(ids) + 1),
        "an unknown device": ([*ids, _UNKNOWN], [], 1),
        "a required device that is not available": (ids[1:], ids[:1], 1),
        "more required than asked for": (ids, ids, 1),
        "an unknown required device": (ids, [_UNKNOWN], 1),
    }
    for name, (available, required, size) in odd.items():
        try:
            _prefer(node, available, required, size)
        except grpc.RpcError as error:
            raise Failed(f"asked for {name}: {rpc.status_text(error)}") from error
    return f"answered {len(odd)} odd requests"


PRE_START: Final = CheckGroup("pre-start", "Pre-start", lane=FIRST_LANE)


def _pre_start(trial: Trial, times: int) -> float:
    """Call PreStartContainer for an allocated device; return the seconds of the last call."""
    node, ids = healthy(trial)
    if not node.kubelet.options(node.resource).pre_start_required:
        raise NotApplicable("not required")
    allocate(node, ids[:1])
    request = pb.PreStartContainerRequest(devices_ids=ids[:1])
    begin = time.monotonic()
    for _ in range(times):
        begin = time.monotonic()
        node.kubelet.call(node.resource, "PreStartContainer", request, trial.limits.pre_start)
    return time.monotonic() - begin


@PRE_START.check(
    "in-time",
    "Answers PreStartContainer within 30 s",
    why="The kubelet gives up then, and the container is not created.",
)
def _in_time(trial: Trial) -> str:
    try:
        return f"took {_pre_start(trial, 1):.2f} s"
    except grpc.RpcError as error:
        raise Failed(f"did not succeed: {rpc.status_text(error)}") from error


@PRE_START.check(
    "again",
    "Answers PreStartContainer for each start of a container",
    why="It is called again for every restart, with the same devices and without an Allocate.",
)
def _again(trial: Trial) -> str:
    try:
        _pre_start(trial, 1)
    except grpc.RpcError as error:
        raise NotApplicable(f"not even once: {rpc.status_text(error)}") from error
    try:
        return f"took {_pre_start(trial, 2):.2f} s for a restart"
    except grpc.RpcError as error:
        raise Failed(f"did not succeed again: {rpc.status_text(error)}") from error
