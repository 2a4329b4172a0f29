"""The kubelet: its process, its sockets, and its record of devices."""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import grpc

from deviceplugin._app.dra_settings import MARKER
from deviceplugin._attribution.checkpoint import MAX_BYTES
from deviceplugin._config.documents.reading import content
from deviceplugin._platform.checkpoint import FILE_NAME, Recorded, decode
from deviceplugin.checks import Finding, Node, failure, ok, unknown, warning
from deviceplugin.proto.v1beta1 import KUBELET_SOCKET
from deviceplugin.tools.doctor._sockets import Answer, State, ask_allocatable, ask_kubelet, state_of

_ROOT_DIR: Final = re.compile("(?:^|\0)--root-dir[=\0]([^\0]+)")
_RESTART: Final = "restart the kubelet (systemctl restart kubelet); running pods are not affected."
_REPAIRS: Final = {
    State.MISSING: f"check whether the kubelet runs (systemctl status kubelet). If so, {_RESTART}",
    State.NO_SOCKET: f"remove it, then {_RESTART}",
    State.DEAD: "the kubelet has died or is starting: systemctl status kubelet, journalctl -u "
    "kubelet.",
    State.DENIED: "run the plugin, and this command, as root (runAsUser: 0); with SELinux, as type "
    "container_device_plugin_t or spc_t.",
}
_ABANDONED: Final = (
    "restart this pod, which then has the directory of now. If it is the same on the node, "
    f"somebody removed what the kubelet had there: {_RESTART}"
)
_HANGS: Final = (
    f"the kubelet hangs, or this path is too long to connect to. If it hangs, {_RESTART}"
)
_WITHOUT: Final = (
    "plugins do not know which pod has which device: there are no holders in metrics and on pages, "
    "and vanished devices stay listed for a day."
)


def process(node: Node) -> Iterator[Finding]:
    process = next(node.processes_named("kubelet"), None)
    if process is None:
        yield unknown(
            "kubelet process",
            "none is visible; some distributions run it inside another process",
            do="in a pod, hostPID makes it visible; the other checks do not need it.",
        )
        return
    option = _ROOT_DIR.search(node.peek(process / "cmdline"))
    root = option[1] if option else "/var/lib/kubelet"
    looked_at = f"kubelet process {process.name}"
    expected = str(Path(root) / "plugins_registry")
    if expected != str(node.settings.registry_dir):
        yield warning(
            looked_at,
            f"runs with --root-dir {root}",
            means="plugins_registry and the pod resources socket are there, and not where this "
            "plugin expects them. The plugin directory does not move.",
            do=f"set registry-dir to {expected} and pod-resources-socket to "
            f"{root}/pod-resources/kubelet.sock, and mount them.",
        )
    else:
        yield ok(looked_at, f"runs, with its files in {root}")
    yield from _other_directory(node, process)


def _other_directory(node: Node, process: Path) -> Iterator[Finding]:
    """Yield that the kubelet has another plugin directory at the same path, if that is visible."""
    theirs = node.root / process / "root" / str(node.settings.plugin_dir).lstrip("/")
    with suppress(OSError):  # it may be seen by root with CAP_SYS_PTRACE
        if not theirs.samefile(node.plugin_dir):
            yield failure(
                node.plugin_dir,
                f"is another directory than the one that the kubelet (process {process.name}) has "
                "at this path",
                means="the kubelet does not see sockets here, and plugins here do not see its own: "
                "something was mounted over it, or it was replaced.",
                do=_ABANDONED,
            )


def socket(node: Node) -> Iterator[Finding]:
    path = node.plugin_dir / KUBELET_SOCKET
    if not path.parent.is_dir():
        return
    state = state_of(path, node.timeout)
    if state is State.LISTENED_TO:
        yield _judge(path, ask_kubelet(path, node.timeout))
    else:
        found, do = state.value, _REPAIRS.get(state, _HANGS)
        means = "no plugin can register, so the node has none of their devices."
        if state is State.DENIED:
            means = f"a plugin that runs as this user ({os.geteuid()}) cannot register."
        elif state in {State.DEAD, State.MISSING} and _answers(node):
            found = f"{state}, and yet the kubelet runs: it answers on {node.pod_resources_socket}"
            means = f"this is not the kubelet's directory any more: {means}"
            do = _ABANDONED
        yield failure(path, found, means=means, do=do)


def _answers(node: Node) -> bool:
    return state_of(node.pod_resources_socket, node.timeout) is State.LISTENED_TO


def _judge(path: Path, answer: Answer) -> Finding:
    strange = "unknown service" in answer.details
    if answer.code is grpc.StatusCode.UNIMPLEMENTED and not strange:
        return ok(path, "the kubelet answers")
    shown = " ".join(f"{answer.code.name} {answer.details}".split())
    return failure(
        path,
        f"its listener does not answer as a kubelet does: {shown}",
        means="plugins cannot register; a kubelet that hangs does not answer either.",
        do=f"find out which process it is (ss -xlp | grep kubelet.sock); {_RESTART}",
    )


def pod_resources(node: Node) -> Iterator[Finding]:
    path = node.pod_resources_socket
    state = state_of(path, node.timeout)
    if state is State.DENIED:
        yield warning(
            path,
            state.value,
            means=f"whether the kubelet answers is unknown. For a plugin that runs as this user "
            f"({os.geteuid()}): {_WITHOUT}",
            do=_REPAIRS[state],
        )
        return
    if state is State.MISSING and not path.parent.is_dir():
        yield warning(
            path.parent,
            "does not exist",
            means=_WITHOUT,
            do="mount the host path of this directory; set pod-resources-socket if the kubelet "
            "has another --root-dir.",
        )
        return
    if state is not State.LISTENED_TO:
        yield failure(
            path,
            state.value,
            means=f"the kubelet is not running, or this is not its directory; {_WITHOUT}",
            do="check whether the kubelet runs; mount the directory and not the socket, because "
            "each start of the kubelet creates a new one.",
        )
        return
    yield _judge_list(path, ask_allocatable(path, node.timeout), _drivers(node))


def _drivers(node: Node) -> str:
    """Return the drivers of this product that offer devices through DRA, or have some to hand over.

    The kubelet has none of their devices as healthy.
    """
    found = node.matches(f"{node.settings.driver_dir}/*/{MARKER}")
    return ", ".join(sorted(one.parent.name for one in found))


def _devices_in(answer: Answer) -> dict[str, frozenset[str]]:
    """Return the ids of the healthy devices of each resource."""
    found: dict[str, set[str]] = {}
    for entry in answer.message.devices:
        found.setdefault(entry.resource_name, set()).update(entry.device_ids)
    return {resource: frozenset(found[resource]) for resource in sorted(found)}


def _judge_list(path: Path, answer: Answer, drivers: str) -> Finding:
    if answer.code is grpc.StatusCode.OK and (devices := _devices_in(answer)):
        shown = ", ".join(f"{resource}: {len(ids)}" for resource, ids in devices.items())
        return ok(path, f"the kubelet answers; healthy devices: {shown}")
    if answer.code is grpc.StatusCode.OK and drivers:
        return ok(path, f"the kubelet answers; devices are offered through DRA by {drivers}")
    if answer.code is grpc.StatusCode.OK:
        return warning(
            path,
            "the kubelet answers, but has no healthy device of any plugin",
            means="no plugin has registered, or all devices are unhealthy. Devices whose plugin "
            "sends an empty topology are not listed.",
            do="check the plugin's page (http://127.0.0.1:9494/devices) or its log for the reason.",
        )
    if answer.code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return warning(
            path,
            f"the kubelet refuses to answer now: {answer.details}",
            means="all clients on the node share 100 calls a second, and some client uses them up.",
            do="find the agent that calls so often, and make it call every 10 s.",
        )
    if answer.code is grpc.StatusCode.UNIMPLEMENTED:
        return warning(
            path,
            f"GetAllocatableResources is not offered: {answer.details}",
            means="the kubelet is older than 1.23, or has it disabled: it is unknown which devices "
            "are free.",
            do="use a newer kubelet.",
        )
    return failure(
        path,
        f"no answer: {answer.code.name} {answer.details}",
        means=f"the kubelet hangs, or another process listens there; {_WITHOUT}",
        do="check the kubelet's log (journalctl -u kubelet), and restart it.",
    )


def checkpoint(node: Node) -> Iterator[Finding]:
    path = node.plugin_dir / FILE_NAME
    if not path.exists():
        yield ok(path, "does not exist; the kubelet writes it with the first list of a plugin")
        return
    try:
        checkpoint = decode(content(path, MAX_BYTES))
    except ValueError as error:
        yield failure(
            path,
            str(error),
            means="the kubelet keeps running, but its next start begins with an empty record: then "
            "it allocates devices of running pods to other pods too.",
            do="drain the node, stop the kubelet, remove the file and start the kubelet. Find the "
            "cause: a full disk, or a hard power-off.",
        )
        return
    pods = len({entry.pod for entry in checkpoint.entries})
    yield ok(path, f"is intact, and has devices of {pods} pods")
    yield from _resources(node, path, checkpoint)


def _resources(node: Node, path: Path, checkpoint: Recorded) -> Iterator[Finding]:
    names = sorted(checkpoint.registered | {entry.resource for entry in checkpoint.entries})
    present = healthy_devices(node)
    if present is None:
        if names:
            yield unknown(
                path,
                f"has {', '.join(names)}; whether these have a plugin now is unknown",
                do="give this command access to the pod resources socket.",
            )
        return
    drivers = _drivers(node)
    for name in names:
        if name not in present and drivers:
            found = f"has no healthy device for the kubelet, as while DRA offers it; here {drivers}"
            yield ok(name, f"{found} offers devices")
        elif name not in present:
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


def healthy_devices(node: Node) -> dict[str, frozenset[str]] | None:
    """Return the ids of the kubelet's healthy devices by resource; None if that is unknown."""
    if not _answers(node):
        return None
    answer = ask_allocatable(node.pod_resources_socket, node.timeout)
    return _devices_in(answer) if answer.code is grpc.StatusCode.OK else None
