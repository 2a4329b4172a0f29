"""The file in which the kubelet records which container has which device."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import grpc

from deviceplugin._attribution.checkpoint import MAX_BYTES
from deviceplugin._config.documents.reading import content
from deviceplugin._platform.checkpoint import FILE_NAME, Recorded, decode
from deviceplugin.checks import Finding, Node, failure, ok, unknown, warning
from deviceplugin.tools.doctor._check import Check
from deviceplugin.tools.doctor._sockets import State, ask_allocatable, state_of
from deviceplugin.tools.doctor.checks._pod_resources import allocatable


def _check(node: Node) -> Iterator[Finding]:
    path = node.plugin_dir / FILE_NAME
    if not path.exists():
        yield ok(path, "does not exist; the kubelet writes it with the first list of a plugin")
        return
    try:
        checkpoint = decode(content(path, MAX_BYTES))
    except ValueError as error:
        yield _corrupt(path, str(error))
        return
    pods = len({entry.pod for entry in checkpoint.entries})
    yield ok(path, f"is intact, and has devices of {pods} pods")
    yield from _resources(node, path, checkpoint)


def _corrupt(path: Path, how: str) -> Finding:
    return failure(
        path,
        how,
        means="the kubelet keeps running, but its next start begins with an empty record: then it "
        "allocates devices of running pods to other pods too.",
        do="drain the node, stop the kubelet, remove the file and start the kubelet. Find the "
        "cause: a full disk, or a hard power-off.",
    )


def _resources(node: Node, path: Path, checkpoint: Recorded) -> Iterator[Finding]:
    names = sorted(checkpoint.registered | {entry.resource for entry in checkpoint.entries})
    present = _present(node)
    if present is None:
        if names:
            yield unknown(
                path,
                f"has {', '.join(names)}; whether these have a plugin now is unknown",
                do="give this command access to the pod resources socket.",
            )
        return
    for name in names:
        if name not in present:
            held = sum(entry.resource == name for entry in checkpoint.entries)
            yield warning(
                name,
                f"is known to the kubelet, but has no healthy device; {held} containers have some",
                means="the node's allocatable is 0: the plugin is not registered, or all its "
                "devices are unhealthy. Containers that restart keep their devices; new pods "
                "wait or are rejected, even those that ask for zero.",
                do="check whether the plugin's pod runs on this node, its log, and the reasons on "
                "its page. If it was removed permanently, there is nothing to do.",
            )


def _present(node: Node) -> dict[str, int] | None:
    """Return the number of healthy devices by resource; None if that is unknown."""
    socket = node.pod_resources_socket
    if state_of(socket, node.timeout) is not State.LISTENED_TO:
        return None
    answer = ask_allocatable(socket, node.timeout)
    return allocatable(answer) if answer.code is grpc.StatusCode.OK else None


CHECK: Final = Check("checkpoint", "the kubelet's record of who has which device", _check)
