"""Allocation: the answers to Allocate."""

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

import grpc

from deviceplugin._platform import rpc
from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from deviceplugin_testing.conformance import _kubelet
from deviceplugin_testing.conformance._check import (
    FIRST_LANE,
    NO_DEVICES,
    CheckGroup,
    Failed,
    NotApplicable,
)
from deviceplugin_testing.conformance._node import PluginNode
from deviceplugin_testing.conformance._trial import Trial

GROUP: Final = CheckGroup("allocation", "Allocation", lane=FIRST_LANE)

_PATIENCE: Final = 10.0
"""How long to wait for a late answer, as a multiple of the limit of a call."""
_PERMISSIONS: Final = re.compile(r"(?!.*(.).*\1)[rwm]+")
"""Each letter at most once, in any order, as runtimes accept them."""
_CDI_NAME: Final = re.compile(r"[\w.-]+/[\w.-]+=[\w.:-]+")
_ENV: Final = re.compile(r"[^=\0]+")

Answer = pb.ContainerAllocateResponse


def allocate(node: PluginNode, ids: Sequence[str]) -> pb.AllocateResponse:
    """Call Allocate for one container and return the answer unchanged."""
    request = pb.AllocateRequest(container_requests=[pb.ContainerAllocateRequest(devices_ids=ids)])
    limit = node.limits.call * _PATIENCE
    answer: pb.AllocateResponse = node.kubelet.call(node.resource, "Allocate", request, limit)
    return answer


def healthy(trial: Trial) -> tuple[PluginNode, list[str]]:
    """Return a node and some healthy devices; raise ``NotApplicable`` if there are none."""
    node = trial.node()
    ids = node.healthy
    if not ids:
        raise NotApplicable(NO_DEVICES)
    most = min(trial.limits.devices, len(ids))
    return node, sorted(trial.rng("devices").sample(ids, most))


@dataclass(frozen=True, slots=True)
class Allocated:
    id: str
    responses: Sequence[Answer]
    seconds: float
    error: str = ""
    """Why it was refused; empty if it was answered."""


def each_device(trial: Trial) -> Sequence[Allocated]:
    node, ids = healthy(trial)
    return [_allocate_one(node, id_) for id_ in ids]


def _allocate_one(node: PluginNode, id_: str) -> Allocated:
    begin = time.monotonic()
    try:
        responses, error = tuple(allocate(node, [id_]).container_responses), ""
    except grpc.RpcError as refusal:
        responses, error = (), rpc.status_text(refusal)
    return Allocated(id_, responses, time.monotonic() - begin, error)


def _answered(trial: Trial) -> list[Allocated]:
    found = [each for each in trial.once(each_device) if not each.error]
    if not found:
        raise NotApplicable("no device was allocated")
    return found


@GROUP.check(
    "every-device",
    "Allocates each device that it lists as healthy",
    why="The kubelet takes any of them, and a refusal is final for the pod.",
)
def _every_device(trial: Trial) -> str:
    tried = trial.once(each_device)
    for each in tried:
        if each.error:
            raise Failed(f"{each.id} is healthy and refused: {each.error}")
    return f"allocated {len(tried)} healthy devices, one by one"


@GROUP.check(
    "one-response",
    "Answers with exactly one container response",
    why="The kubelet asks for one container; an answer for none leaks the devices permanently.",
)
def _one_response(trial: Trial) -> str:
    for each in _answered(trial):
        if len(each.responses) != 1:
            raise Failed(f"{each.id} was answered with {len(each.responses)} container responses")
    return "one response each"


@GROUP.check(
    "repeatable",
    "Answers the same for the same devices",
    why="Init containers share devices with later ones, and a kubelet that died asks again.",
)
def _repeatable(trial: Trial) -> str:
    some = [each.id for each in _answered(trial)][:3]
    node = trial.node()
    first = allocate(node, some)
    if allocate(node, some) != first:
        raise Failed(f"{', '.join(some)} got another answer the second time")
    return f"twice the same answer for {len(some)} devices"


@GROUP.check(
    "unknown-refused",
    "Refuses an unknown id with an error",
    why="With an answer, a container starts without its device; an empty one also leaks devices.",
)
def _unknown_refused(trial: Trial) -> str:
    node = trial.node()
    return _refusal(node, "no-such-device")


@GROUP.check(
    "unhealthy-refused",
    "Refuses an unhealthy device with an error",
    why="A device can fail between admission and Allocate; then the pod should fail early.",
)
def _unhealthy_refused(trial: Trial) -> str:
    node = trial.node()
    if not node.unhealthy:
        raise NotApplicable("no unhealthy device is listed")
    return _refusal(node, node.unhealthy[0])


def _refusal(node: PluginNode, id_: str) -> str:
    try:
        answer = allocate(node, [id_])
    except grpc.RpcError as error:
        return f"refused {id_} with {rpc.status_text(error)}"
    raise Failed(f"{id_} was answered with {len(answer.container_responses)} container responses")


@GROUP.check(
    "prompt",
    "Answers Allocate promptly",
    why="The kubelet has no timeout there; all pods of the node wait meanwhile.",
)
def _prompt(trial: Trial) -> str:
    slowest = max(each.seconds for each in trial.once(each_device))
    if slowest > trial.limits.call:
        raise Failed(f"took {slowest:.2f} s")
    return f"took {slowest * 1000:.0f} ms at most"


@GROUP.check(
    "beside-streams",
    "Answers Allocate while many streams are open",
    why="If streams use up all threads, Allocate hangs, and the whole node with it.",
)
def _beside_streams(trial: Trial) -> str:
    alone = _answered(trial)[0]
    node, count = trial.node(), trial.limits.streams
    path = node.kubelet.socket_of(node.resource)
    with ExitStack() as stack:
        for stream in [stack.enter_context(_kubelet.Stream(path)) for _ in range(count)]:
            stream.wait(trial.limits.call)
        beside = _allocate_one(node, alone.id)
    if beside.error:
        raise Failed(f"failed beside {count} streams: {beside.error}")
    if beside.seconds > alone.seconds + trial.limits.call:
        raise Failed(
            f"took {beside.seconds:.2f} s beside {count} streams, {alone.seconds:.2f} s without"
        )
    return f"took {beside.seconds * 1000:.0f} ms beside {count} more streams"


@GROUP.check(
    "device-nodes",
    "Names device nodes by absolute paths, with permissions of r, w and m",
    why="The kubelet passes anything on; the runtime fails when the container is created.",
)
def _device_nodes(trial: Trial) -> str:
    def complaint(node: pb.DeviceSpec) -> str:
        if not _absolute(node.host_path, node.container_path):
            return f"device node {node.host_path!r} at {node.container_path!r}"
        fits = _PERMISSIONS.fullmatch(node.permissions)
        return "" if fits else f"permissions {node.permissions!r} of {node.host_path}"

    return _inspect(trial, "device nodes", lambda answer: answer.devices, complaint)


@GROUP.check(
    "mounts",
    "Names mounts by absolute paths, each target once",
    why="The kubelet passes anything on; of two mounts on one target it keeps the first.",
)
def _mounts(trial: Trial) -> str:
    def complaint(mount: pb.Mount) -> str:
        fits = _absolute(mount.host_path, mount.container_path)
        return "" if fits else f"mount of {mount.host_path!r} at {mount.container_path!r}"

    return _inspect(trial, "mounts", lambda answer: answer.mounts, complaint)


@GROUP.check(
    "envs",
    "Names variables that can be set",
    why="A runtime refuses a container with a variable that is empty or has = in its name.",
)
def _envs(trial: Trial) -> str:
    def complaint(variable: tuple[str, str]) -> str:
        name, value = variable
        return "" if _ENV.fullmatch(name) and "\0" not in value else f"variable {name!r}"

    return _inspect(trial, "variables", lambda answer: answer.envs.items(), complaint)


@GROUP.check(
    "cdi-names",
    "Names CDI devices as VENDOR/CLASS=NAME",
    why="The runtime cannot resolve another name, and does not create the container.",
)
def _cdi_names(trial: Trial) -> str:
    def complaint(device: pb.CDIDevice) -> str:
        return "" if _CDI_NAME.fullmatch(device.name) else f"CDI device {device.name!r}"

    return _inspect(trial, "CDI devices", lambda answer: answer.cdi_devices, complaint)


def _inspect(
    trial: Trial,
    noun: str,
    items: Callable[[Answer], Iterable[Any]],
    complaint: Callable[[Any], str],
) -> str:
    """Check each of ``items`` of all answers; no two of an answer may have one container path."""
    answers = [
        (each.id, [*items(each.responses[0])]) for each in _answered(trial) if each.responses
    ]
    total = sum(len(found) for _, found in answers)
    if not total:
        raise NotApplicable(f"no {noun} in any answer")
    for id_, found in answers:
        paths = (getattr(item, "container_path", "") for item in found)
        targets = Counter(filter(None, paths))
        twice = [f"{noun[:-1]} {target} twice" for target in sorted(targets) if targets[target] > 1]
        if text := next(filter(None, [*map(complaint, found), *twice]), ""):
            raise Failed(f"{id_} gets the {text}")
    return f"{total} {noun} in {len(answers)} answers"


def _absolute(*paths: str) -> bool:
    return all(path.startswith("/") and "\0" not in path for path in paths)
