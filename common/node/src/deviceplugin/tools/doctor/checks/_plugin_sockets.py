"""The sockets of all plugins on the node, whoever wrote them: which hang, and which are rivals.

A plugin is asked only what the kubelet asks it at each registration. ``ListAndWatch`` is not among
that: many plugins have one stream in mind, and a second one would take the news of the first.
"""

import re
from base64 import b64decode
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

import grpc
from google.protobuf.message import DecodeError

from deviceplugin.checks import Finding, Node, failure, ok, unknown
from deviceplugin.proto.pluginregistration import pluginregistration_pb2 as registration
from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as plugin
from deviceplugin.tools.doctor._processes import described, process_behind
from deviceplugin.tools.doctor._sockets import Answer, State, ask_each, state_of
from deviceplugin.tools.doctor.checks._directories import sockets_in

_MOST: Final = 256
"""Most sockets of a directory that are asked."""
_PLUGIN: Final = plugin.DESCRIPTOR.services_by_name["DevicePlugin"]
_REGISTRATION: Final = registration.DESCRIPTOR.services_by_name["Registration"]
_OPTIONS: Final = "GetDevicePluginOptions"
_NAMES: Final[Sequence[tuple[str, str]]] = (
    (r"(.+)-[0-9a-f]{6}\.sock", r"\1"),  # ours
    (r"nvidiaGPU-\d+\.sock", "nvidia.com_gpu"),  # Google's
    (r"nvidia-(.+)\.sock", r"nvidia.com_\1"),
    (r"smarter-(.+)\.sock", r"smarter-devices_\1"),
    (r"([a-z0-9.]+\.intel\.com)-(.+)\.sock", r"\1_\2"),
    (r"([a-z0-9-]+(?:\.[a-z0-9-]+)+_.+?)(?:\.sock)?", r"\1"),  # AMD's, and of SR-IOV
    (r"([^_]+)\.sock", r"rdma_\1"),  # shared RDMA devices
)
"""Names of sockets, and the resource that each is for, with _ in place of /."""
_ENCODED: Final = re.compile(r"gdp-([A-Za-z0-9+=]+)-\d+\.sock")
"""The name of a socket of squat's plugin, with its resource in base64."""
_HANGS: Final = (
    "the kubelet goes on to offer its devices, and waits for its answer without a limit: the next "
    "pod that gets one stops all starts and ends of pods on this node."
)
_UNKNOWN: Final = "the kubelet does not register it, and asks again and again."
_REFUSED: Final = "the kubelet does not register it, and the node has none of its devices."


class _Socket(NamedTuple):
    path: Path
    resource: str
    """With _ in place of /; empty if nothing says which."""
    process: int


def plugins(node: Node) -> Iterator[Finding]:
    """Yield what hangs or is refused in both directories, and resources that have two plugins."""
    asked = list[Answer]()
    serving = list[_Socket]()
    for directory, service, method in (
        (node.plugin_dir, _PLUGIN, _OPTIONS),
        (node.registry_dir, _REGISTRATION, "GetInfo"),
    ):
        paths = sockets_in(directory)
        if more := paths[_MOST:]:
            yield unknown(directory, f"{len(more)} of {len(paths)} sockets were not asked")
        answers = ask_each(paths[:_MOST], service, method, node.timeout)
        asked += answers
        for path, answer in zip(paths, answers, strict=False):
            if answer.code is grpc.StatusCode.OK:
                resource = _of_info(answer) if service is _REGISTRATION else _of_name(path.name)
                serving.append(_Socket(path, resource, process_behind(node, path)))
            else:
                yield from _silent(node, path, method, answer)
    yield from _rivals(node, serving)
    yield ok("plugins", f"{len(serving)} of {len(asked)} sockets answer")


def _silent(node: Node, path: Path, method: str, answer: Answer) -> Iterator[Finding]:
    """Yield why there was no answer, unless nobody listens, which another check says."""
    if answer.code is grpc.StatusCode.UNAVAILABLE:
        state = state_of(path, node.timeout)
        if state not in {State.DEAD, State.MISSING, State.LISTENED_TO}:
            yield unknown(path, f"cannot be asked: {state}", "run as root.")
    elif answer.code is grpc.StatusCode.UNIMPLEMENTED:
        yield ok(path, "is not a plugin's")
    elif answer.code is grpc.StatusCode.DEADLINE_EXCEEDED:
        process = process_behind(node, path)
        who = described(node, process)
        yield failure(
            path,
            f"somebody listens, and does not answer {method} within {node.timeout:g} s"
            + (f" ({who})" if who else ""),
            means=_HANGS if method == _OPTIONS else _UNKNOWN,
            do="restart the pod of this plugin, and look at its log for what it waits for"
            + (f"; a stopped process goes on by kill -CONT {process}." if process else "."),
        )
    else:
        shown = " ".join(f"{answer.code.name} {answer.details}".split())
        do = "look at the log of this plugin."
        yield failure(path, f"{method} fails: {shown}", means=_REFUSED, do=do)


def _of_info(answer: Answer) -> str:
    with suppress(DecodeError):
        info = registration.PluginInfo.FromString(answer.message)
        if info.type == "DevicePlugin":
            return info.name.replace("/", "_")
    return ""


def _of_name(name: str) -> str:
    if found := _ENCODED.fullmatch(name):
        with suppress(ValueError):
            return b64decode(found[1], validate=True).decode().replace("/", "_")
        return ""
    tried = ((re.fullmatch(pattern, name), resource) for pattern, resource in _NAMES)
    return next((match.expand(resource) for match, resource in tried if match), "")


def _rivals(node: Node, serving: Sequence[_Socket]) -> Iterator[Finding]:
    by_resource = defaultdict[str, list[_Socket]](list)
    for one in serving:
        by_resource[one.resource].append(one)
    by_resource.pop("", None)
    for resource, sockets in by_resource.items():
        processes = {one.process for one in sockets}
        if len(sockets) > 1 and (len(processes) > 1 or processes == {0}):
            shown = (_shown(node, one) for one in sockets)
            yield failure(
                resource.replace("_", "/", 1),
                f"has {len(sockets)} plugins on this node: {', '.join(islice(shown, 8))}",
                means="the kubelet believes whichever spoke last, and forgets the resource when "
                "one of them ends: devices come and go, and may be given out twice.",
                do="keep one: kubectl get daemonsets -A shows both. Delete the other, keep it off "
                "these nodes, or give it another resource name.",
            )


def _shown(node: Node, one: _Socket) -> str:
    who = described(node, one.process)
    return f"{one.path.name} ({who})" if who else one.path.name
