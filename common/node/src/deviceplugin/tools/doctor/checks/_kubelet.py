"""The kubelet: its process and its socket for registrations."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import grpc

from deviceplugin.checks import Finding, Node, failure, ok, unknown, warning
from deviceplugin.proto.v1beta1 import KUBELET_SOCKET
from deviceplugin.tools.doctor._check import Check
from deviceplugin.tools.doctor._sockets import Answer, State, ask_kubelet, state_of

_ROOT_DIR: Final = "--root-dir"
_USUAL_ROOT: Final = "/var/lib/kubelet"
_RESTART: Final = "restart the kubelet (systemctl restart kubelet); running pods are not affected."


def _process(node: Node) -> Iterator[Finding]:
    found = [
        p for p in node.processes() if node.peek(p.relative_to(node.root) / "comm") == "kubelet"
    ]
    if not found:
        yield unknown(
            "kubelet process",
            "none is visible; some distributions run it inside another process",
            do="in a pod, hostPID makes it visible; the other checks do not need it.",
        )
        return
    process = found[0].relative_to(node.root)
    root = _option(node.peek(process / "cmdline").split("\0"), _ROOT_DIR) or _USUAL_ROOT
    looked_at = f"kubelet process {process.name}"
    expected = str(Path(root) / "plugins_registry")
    if expected != str(node.settings.registry_dir):
        yield warning(
            looked_at,
            f"runs with {_ROOT_DIR} {root}",
            means="plugins_registry and the pod resources socket are there, and not where this "
            "plugin expects them. The plugin directory does not move.",
            do=f"set registry-dir to {expected} and pod-resources-socket to "
            f"{root}/pod-resources/kubelet.sock, and mount them.",
        )
    else:
        yield ok(looked_at, f"runs, with its files in {root}")


def _option(words: Sequence[str], name: str) -> str:
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word == name:
            return following
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
    return ""


def _socket(node: Node) -> Iterator[Finding]:
    path = node.plugin_dir / KUBELET_SOCKET
    if not path.parent.is_dir():
        return
    state = state_of(path, node.timeout)
    if state is State.LISTENED_TO:
        yield _judge(path, ask_kubelet(path, node.timeout))
    else:
        yield _fault(path, state)


def _fault(path: Path, state: State) -> Finding:
    means = "no plugin can register, so the node has none of their devices."
    if state is State.MISSING:
        do = f"check whether the kubelet runs (systemctl status kubelet). If it does, {_RESTART}"
    elif state is State.NO_SOCKET:
        do = f"remove it, then {_RESTART}"
    elif state is State.DEAD:
        do = "the kubelet has died or is starting: systemctl status kubelet, journalctl -u kubelet."
    elif state is State.DENIED:
        do = "run as root; with SELinux, as type container_device_plugin_t or spc_t."
    else:
        do = f"the kubelet hangs, or this path is too long to connect to. If it hangs, {_RESTART}"
    return failure(path, state.value, means=means, do=do)


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


PROCESS: Final = Check("kubelet", "the kubelet's process and its root directory", _process)
SOCKET: Final = Check("kubelet-socket", "the socket on which plugins register", _socket)
