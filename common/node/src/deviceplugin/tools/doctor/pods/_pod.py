"""A pod: what it asks for, where it is stuck, and what its status and its events say of that."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from deviceplugin.apiserver import ApiServer, ApiServerError, NotFoundError, UnavailableError
from deviceplugin.checks import Finding, failure, ok, unknown, warning
from deviceplugin.tools._requests import requested
from deviceplugin.tools.doctor.pods import _claims, _nodes
from deviceplugin.tools.doctor.pods._symptoms import Symptom, symptoms_in

_LONGEST: Final = 600
"""Most characters of a message; an event has 1024."""
_NOT_STARTED: Final = frozenset({"StartError", "ContainerCannotRun", "CreateContainerError"})
_EXPECTED: Final = frozenset({"ContainerCreating", "PodInitializing"})
_BEFORE_A_NODE: Final = ("FailedScheduling", "FailedResourceClaimCreation")
_SCHEDULER: Final = "default-scheduler"
_WRONG: Final = (LookupError, TypeError, AttributeError, ValueError)
"""What is raised for an answer that is not of the expected form."""
_DESCRIBE: Final = "kubectl describe pod {name} --namespace {namespace} shows all of it."


class _Seen(NamedTuple):
    """Something that is said of the pod."""

    where: str
    text: str
    """Reason and message."""


def look(api: ApiServer, namespace: str, name: str) -> Iterator[Finding]:
    """Yield why the pod waits, was rejected or lacks devices: the cause first.

    What this account may not read is ``unknown``, and does not keep the rest from being examined.

    Raises:
        ApiServerError: The pod cannot be read.
    """
    try:
        pod = api.get(f"/api/v1/namespaces/{namespace}/pods/{name}")
        findings = _of_pod(api, pod, f"{namespace}/{name}")
    except NotFoundError:
        findings = _absent(api, namespace, name)
    try:
        yield from findings
    except _WRONG as error:
        raise UnavailableError(f"{api.url}: the answer is not a pod: {error!r}") from error


def _of_pod(api: ApiServer, pod: Mapping[str, Any], full: str) -> Iterator[Finding]:
    spec, status = pod["spec"], pod.get("status") or {}
    wanted, claims = requested(spec), spec.get("resourceClaims") or ()
    events, missing = _events(
        api, full.partition("/")[0], f"involvedObject.uid={pod['metadata']['uid']}"
    )
    is_bound = bool(spec.get("nodeName"))
    seen = [*_in_status(pod)]
    if (
        is_bound
        and not seen
        and status.get("phase") == "Pending"
        and spec.get("hostUsers") is False
    ):
        seen = [_Seen(full, "ContainerCreating with hostUsers: false")]
    # Events stay for an hour, and those of what the pod has left behind are over.
    now = [one for one in events if not (is_bound and one.text.startswith(_BEFORE_A_NODE))]
    found = [*_recognised([*seen, *([] if _is_settled(status) else now)])]
    yield from found
    if not found and (seen or status.get("phase") in {"Pending", "Failed"}):
        yield _unexplained(full, spec, status, seen)
    if not is_bound and status.get("phase") == "Pending":
        yield from _nodes.look(api, wanted)
    yield from _claims.look(api, pod)
    yield from missing
    if not wanted and not claims:
        yield warning(
            full,
            "asks for no device: it has no limits such as example.com/gpu, and no resourceClaims",
            means="its containers get none, whatever the node has.",
            do="add the resource to resources.limits of a container.",
        )
    asks = [f"{resource}: {count}" for resource, count in sorted(wanted.items())]
    asks += [f"claim {one['name']}" for one in claims]
    where = f"on {spec['nodeName']}" if spec.get("nodeName") else "without a node"
    yield ok(full, f"{status.get('phase')} {where}; asks for {', '.join(asks) or 'no device'}")


def _absent(api: ApiServer, namespace: str, name: str) -> Iterator[Finding]:
    """Yield that there is no such pod, and why its controller could not make one, if it says so."""
    events, missing = _events(api, namespace, "reason=FailedCreate")
    full = f"{namespace}/{name}"
    related = [one for one in events if full.startswith(one.where) or one.where.startswith(full)]
    yield failure(
        full,
        "there is no such pod",
        means="it was deleted, or its controller could not create it.",
        do=f"kubectl get pods --namespace {namespace}; kubectl describe the Deployment or Job.",
    )
    yield from _recognised(related)
    yield from missing


def _events(
    api: ApiServer, namespace: str, selector: str
) -> tuple[Sequence[_Seen], Sequence[Finding]]:
    """Return the warnings among the events, the latest first; or why they cannot be read."""
    try:
        items = api.list(
            f"/api/v1/namespaces/{namespace}/events", {"fieldSelector": selector}
        ).items
    except ApiServerError as error:
        do = "give this account the right to list events."
        return [], [unknown("events", f"cannot be read: {error}", do)]
    wrong = [one for one in items if one.get("type") != "Normal"]
    wrong.sort(key=lambda one: one.get("lastTimestamp") or one.get("eventTime") or "", reverse=True)
    seen = (
        (f"{namespace}/{one['involvedObject']['name']}", one.get("reason"), one.get("message"))
        for one in wrong
    )
    return [_Seen(where, _joined(reason, message)) for where, reason, message in seen], []


def _joined(reason: str | None, message: str | None) -> str:
    return ": ".join(part for part in (reason, message) if part)


def _is_settled(status: Mapping[str, Any]) -> bool:
    """Return whether the pod has ended well, or its containers are ready."""
    conditions = status.get("conditions") or ()
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
    return ready or status.get("phase") == "Succeeded"


def _in_status(pod: Mapping[str, Any]) -> Iterator[_Seen]:
    status = pod.get("status") or {}
    full = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
    if text := _joined(status.get("reason"), status.get("message")):
        yield _Seen(full, text)
    for one in status.get("conditions") or ():
        is_bad = one["status"] == ("True" if one["type"] == "DisruptionTarget" else "False")
        if is_bad and one["type"] in {"PodScheduled", "DisruptionTarget"}:
            yield _Seen(full, _joined(one.get("reason"), one.get("message")))
    for kind in ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"):
        for one in status.get(kind) or ():
            yield from _in_container(one)
    if late := _late(pod["metadata"]):
        yield _Seen(full, f"Terminating for {late} beyond its grace period")


def _in_container(status: Mapping[str, Any]) -> Iterator[_Seen]:
    where = f"container {status['name']}"
    now, last = status.get("state") or {}, status.get("lastState") or {}
    for state in [now] if "running" in now else [now, last]:
        waiting, ended = state.get("waiting") or {}, state.get("terminated") or {}
        if waiting and waiting.get("reason") not in _EXPECTED:
            yield _Seen(where, _joined(waiting.get("reason"), waiting.get("message")))
        if ended.get("reason") in _NOT_STARTED:
            yield _Seen(where, _joined(ended["reason"], ended.get("message")))
    for resource in status.get("allocatedResourcesStatus") or ():
        for device in resource.get("resources") or ():
            if device.get("health") == "Unhealthy":
                said = f" ({device['message']})" if device.get("message") else ""
                what = f"{resource['name']} {device['resourceID']}"
                yield _Seen(where, f"{what} is Unhealthy{said} in allocatedResourcesStatus")


def _late(metadata: Mapping[str, Any]) -> str:
    """Return for how long a pod should have been gone; empty if it need not be gone yet."""
    if not (when := metadata.get("deletionTimestamp")):
        return ""
    # The time when it has to be gone: the grace period is in it.
    seconds = (datetime.now(UTC) - datetime.fromisoformat(when)).total_seconds()
    return f"{seconds:.0f}s" if seconds > 0 else ""


def _recognised(seen: Sequence[_Seen]) -> Iterator[Finding]:
    """Yield each symptom once, where it was seen first."""
    shown = set[Symptom]()
    for one in seen:
        for symptom in symptoms_in(one.text):
            if symptom not in shown:
                shown.add(symptom)
                make = failure if symptom.is_fatal else warning
                text, means, do = one.text[:_LONGEST], f"{symptom.means}.", f"{symptom.do}."
                yield make(one.where, text, means=means, do=do)


def _unexplained(
    full: str, spec: Mapping[str, Any], status: Mapping[str, Any], seen: Sequence[_Seen]
) -> Finding:
    namespace, _, name = full.partition("/")
    do = _DESCRIBE.format(name=name, namespace=namespace)
    if seen:
        means = "nothing in this is known to concern devices."
        return failure(seen[0].where, seen[0].text[:_LONGEST], means=means, do=do)
    if status["phase"] == "Pending":
        scheduler = spec.get("schedulerName") or _SCHEDULER
        found = f"waits, and neither {scheduler} nor a kubelet has said why yet"
        check = "" if scheduler == _SCHEDULER else f"is there a scheduler called {scheduler}? "
        return unknown(full, found, f"{check}If nothing is said within a minute, {do}")
    means = "its own program failed: that is not about how it got devices, as far as is known."
    return failure(full, "has failed, and the kubelet did not reject it", means=means, do=do)
