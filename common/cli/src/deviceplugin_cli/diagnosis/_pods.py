"""The plugins' pods: where they are, and what is wrong with those that do not run."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from deviceplugin.checks import Finding, failure, warning
from deviceplugin_cli.diagnosis._masks import said

SELECTOR: Final = "app.kubernetes.io/component=device-plugin"
"""The labels of the pods of all our plugins, and of those that `deviceplugin new` begins."""
_LOST: Final = (
    "the plugin does not run: its devices are lost to new pods of the node; pods that hold some go "
    "on."
)
_WHILE: Final = "while it is down, the devices of its node are not allocatable."
_BESIDE: Final = (
    "what it does beside the plugin is not done, such as Events; the devices are there."
)
_IMAGE: Final = "push the image to where the node can pull it, or correct its name or pull secret."
_DO: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"), _IMAGE
    ),
    "OOMKilled": "raise the memory limit of the container.",
    "CrashLoopBackOff": "correct it; {kubectl} logs {name} --container {container} --previous",
}
"""What to do about the reason of a container that waits or has ended."""
_OTHERWISE: Final = "{kubectl} describe pod {name} shows what happened."

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PluginPod:
    namespace: str
    name: str
    uid: str
    node: str
    """Empty until it is scheduled."""
    container: str
    """The plugin's own."""
    containers: tuple[str, ...]
    image: str
    plugin: str
    """As in its label, such as ``gpu``; empty without one."""
    runs: bool
    """Whether commands can be run in the plugin's container."""
    problems: tuple[Finding, ...]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def plugin_pod(pod: Object) -> PluginPod:
    """Return what matters of a plugin's pod. Errors of builtin classes mean that it is not one."""
    metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
    own = _own(pod)
    name = str((metadata.get("labels") or {}).get("app.kubernetes.io/name", ""))
    states = status.get("containerStatuses") or ()
    return PluginPod(
        metadata["namespace"],
        metadata["name"],
        metadata.get("uid", ""),
        spec.get("nodeName") or "",
        own["name"],
        tuple(one["name"] for one in spec["containers"]),
        own.get("image", ""),
        name.removesuffix("-device-plugin"),
        any(one["name"] == own["name"] and "running" in (one.get("state") or {}) for one in states),
        tuple(_problems(pod)),
    )


def _own(pod: Object) -> Any:
    """Return the plugin's container: the one that serves HTTP, or the first."""
    containers = pod["spec"]["containers"]
    serving = (
        one for one in containers if any(p.get("name") == "http" for p in one.get("ports") or ())
    )
    return next(serving, containers[0])


def _problems(pod: Object) -> Iterator[Finding]:
    metadata, status = pod["metadata"], pod.get("status") or {}
    place = f"{metadata['namespace']}/{metadata['name']}"
    if "deletionTimestamp" in metadata:
        means = "the plugin ends; a new pod starts once this one is gone."
        do = "if it stays, see whether the node's kubelet answers."
        yield warning(
            place, f"is deleted since {metadata['deletionTimestamp']}", means=means, do=do
        )
        return
    beside = {one["name"] for one in pod["spec"]["containers"]} - {_own(pod)["name"]}
    bad = [*_bad_containers(status), *_unscheduled(status)]
    if status.get("phase") == "Failed":
        bad.append(("", status.get("reason") or "Failed", status.get("message") or ""))
    for container, reason, message in bad:
        do = _advice(metadata, container, reason, message)
        found = f"{reason}: {message}" if message else reason
        if container in beside:
            yield warning(place, said(f"container {container}: {found}"), means=_BESIDE, do=do)
        else:
            yield failure(place, said(found), means=_LOST, do=do)
    if not bad:
        yield from _doubts(place, metadata, status, beside)


def _bad_containers(status: Object) -> Iterator[tuple[str, str, str]]:
    """Yield each container that waits or has ended badly, with the reason and the message."""
    for key in ("initContainerStatuses", "containerStatuses"):
        for one in status.get(key) or ():
            state, last = one.get("state") or {}, one.get("lastState") or {}
            waiting, ended = state.get("waiting"), state.get("terminated")
            if waiting and waiting.get("reason") != "PodInitializing":
                words = [waiting.get("message") or "", _end(last.get("terminated"))]
                yield one["name"], waiting.get("reason") or "waits", "; ".join(filter(None, words))
            elif ended and (ended.get("exitCode") or key == "containerStatuses"):
                yield one["name"], ended.get("reason") or "ended", _end(ended)


def _end(ended: Object | None) -> str:
    """Return how a container ended, with the last line that it wrote; nothing if it did not."""
    if not ended:
        return ""
    lines = [line for line in str(ended.get("message") or "").splitlines() if line.strip()]
    last = f": {lines[-1].strip()}" if lines else ""
    return f"ended with status {ended.get('exitCode')} ({ended.get('reason') or '-'}){last}"


def _unscheduled(status: Object) -> Iterator[tuple[str, str, str]]:
    for one in status.get("conditions") or ():
        if one["type"] == "PodScheduled" and one["status"] == "False":
            yield "", one.get("reason") or "Unschedulable", one.get("message") or ""


def _advice(metadata: Object, container: str, reason: str, message: str) -> str:
    kubectl = f"kubectl --namespace {metadata['namespace']}"
    known = _DO["OOMKilled"] if "OOMKilled" in message else _DO.get(reason, _OTHERWISE)
    return known.format(kubectl=kubectl, name=metadata["name"], container=container)


def _doubts(
    place: str, metadata: Object, status: Object, beside: Collection[str]
) -> Iterator[Finding]:
    """Yield what is doubtful about a pod that runs."""
    for one in status.get("containerStatuses") or ():
        name, end = one["name"], (one.get("lastState") or {}).get("terminated")
        if end and end.get("exitCode"):
            found = f"{name} restarted {one.get('restartCount', 1)} times; it {_end(end)}"
            means = _BESIDE if name in beside else _WHILE
            do = _advice(metadata, name, "CrashLoopBackOff", _end(end))
            yield warning(place, said(found), means=means, do=do)
    ready = {one["type"]: one["status"] for one in status.get("conditions") or ()}
    if status.get("phase") == "Running" and ready.get("Ready") == "False":
        means = "it does not advertise all that it should, or does not answer."
        yield warning(place, "runs, and is not ready", means=means, do="see the other findings.")
    elif status.get("phase") == "Pending":
        do = _advice(metadata, "", "", "")
        yield failure(place, "is pending, and no container has started", means=_LOST, do=do)
