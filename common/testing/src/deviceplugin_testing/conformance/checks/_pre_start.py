"""Pre-start: the call before a container starts, if the plugin requires it."""

import time
from typing import Final

import grpc

from deviceplugin._platform import rpc
from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from deviceplugin_testing.conformance._check import FIRST_LANE, Failed, Group, NotApplicable
from deviceplugin_testing.conformance._trial import Trial
from deviceplugin_testing.conformance.checks._allocation import allocate, healthy

GROUP: Final = Group("pre-start", "Pre-start", lane=FIRST_LANE)


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


@GROUP.check(
    "in-time",
    "Answers PreStartContainer within 30 s",
    why="The kubelet gives up then, and the container is not created.",
)
def _in_time(trial: Trial) -> str:
    try:
        return f"took {_pre_start(trial, 1):.2f} s"
    except grpc.RpcError as error:
        raise Failed(f"did not succeed: {rpc.status_text(error)}") from error


@GROUP.check(
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
        _pre_start_again = _pre_start(trial, 2)
    except grpc.RpcError as error:
        raise Failed(f"did not succeed again: {rpc.status_text(error)}") from error
    return f"took {_pre_start_again:.2f} s for a restart"
