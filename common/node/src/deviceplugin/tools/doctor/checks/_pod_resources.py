"""The kubelet's pod resources API."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import grpc

from deviceplugin.checks import Finding, Node, failure, ok, warning
from deviceplugin.tools.doctor._check import Check
from deviceplugin.tools.doctor._sockets import Answer, State, ask_allocatable, state_of

_WITHOUT: Final = (
    "plugins do not know which pod has which device: there are no holders in metrics and on pages, "
    "and vanished devices stay listed for a day."
)


def _check(node: Node) -> Iterator[Finding]:
    path = node.pod_resources_socket
    if not path.parent.is_dir():
        yield warning(
            path.parent,
            "does not exist",
            means=_WITHOUT,
            do="mount the host path of this directory; set pod-resources-socket if the kubelet "
            "has another --root-dir.",
        )
        return
    state = state_of(path, node.timeout)
    if state is not State.LISTENED_TO:
        yield failure(
            path,
            state.value,
            means=f"the kubelet is not running, or this is not its directory; {_WITHOUT}",
            do="check whether the kubelet runs; mount the directory and not the socket, because "
            "each start of the kubelet creates a new one.",
        )
        return
    yield from _judge(path, ask_allocatable(path, node.timeout))


def allocatable(answer: Answer) -> dict[str, int]:
    """Return how many healthy devices of each resource the kubelet has."""
    devices = {
        (entry.resource_name, device_id)
        for entry in answer.message.devices
        for device_id in entry.device_ids
    }
    return dict(sorted(Counter(resource for resource, _ in devices).items()))


def _judge(path: Path, answer: Answer) -> Iterator[Finding]:
    if answer.code is grpc.StatusCode.OK:
        yield from _devices(path, allocatable(answer))
    elif answer.code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        yield warning(
            path,
            f"the kubelet refuses to answer now: {answer.details}",
            means="all clients on the node share 100 calls a second, and some client uses them up.",
            do="find the agent that calls so often, and make it call every 10 s.",
        )
    elif answer.code is grpc.StatusCode.UNIMPLEMENTED:
        yield warning(
            path,
            f"GetAllocatableResources is not offered: {answer.details}",
            means="the kubelet is older than 1.23, or has it disabled: it is unknown which devices "
            "are free.",
            do="use a newer kubelet.",
        )
    else:
        yield failure(
            path,
            f"no answer: {answer.code.name} {answer.details}",
            means=f"the kubelet hangs, or another process listens there; {_WITHOUT}",
            do="check the kubelet's log (journalctl -u kubelet), and restart it.",
        )


def _devices(path: Path, counts: dict[str, int]) -> Iterator[Finding]:
    if counts:
        shown = ", ".join(f"{resource}: {count}" for resource, count in counts.items())
        yield ok(path, f"the kubelet answers; healthy devices: {shown}")
        return
    yield warning(
        path,
        "the kubelet answers, but has no healthy device of any plugin",
        means="no plugin has registered, or all devices are unhealthy. Devices whose plugin sends "
        "an empty topology are not listed.",
        do="check the plugin's page (http://127.0.0.1:9494/devices) or its log for the reason.",
    )


CHECK: Final = Check("pod-resources", "the socket that reports which pod has which device", _check)
