"""The state of a plugin's devices, a change to report, and its Event."""

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from hashlib import sha256
from itertools import filterfalse
from pathlib import Path
from typing import Any, Final, NamedTuple

from deviceplugin.tools._devices_page import (
    MAX_BYTES,
    NO_CREDENTIALS,
    Credentials,
    NoAnswerError,
    ask,
    bounded,
    decode,
    is_spare,
)

COMPONENT: Final = "deviceplugin"
"""The source that ``kubectl describe node`` shows."""
NAMESPACE: Final = "default"
"""The only namespace in which the API server accepts Events of nodes, which have none."""
MOST_NAMED: Final = 5
"""Most devices that one Event names."""
STALE_REASON: Final = "DeviceNodeStale"
_REASONS: Final = {
    ("entries", "bad"): "InvalidEntry",
    ("entries", "good"): "EntriesValid",
    ("device", "bad"): "DeviceUnhealthy",
    ("device", "degraded"): "DeviceDegraded",
    ("device", "good"): "DeviceHealthy",
    ("driver", "bad"): "DriverNotReady",
    ("driver", "good"): "DriverReady",
    ("registration", "bad"): "DevicesNotRegistered",
    ("registration", "good"): "DevicesRegistered",
}
_OTHERS: Final = {
    "entries": ("all entries are valid again", "invalid entry skipped"),
    "driver": ("the DRA driver is ready again", "the DRA driver is not ready"),
    "registration": ("the kubelet is watching it again", "not registered with the kubelet"),
}
_STATES: Final = {"good": "healthy again", "degraded": "degraded", "bad": "unhealthy"}
_MAX_BYTES: Final = 1024
"""Most bytes of a message that the API accepts."""
_MAX_TEXT: Final = 100
"""Most characters of an id or a reason."""
_MAX_NODE: Final = 230
"""Most characters of the node's name in the name of an Event, which may have 253 in total."""


class Fact(NamedTuple):
    """The state of a device, or of the registration of a resource, at one moment."""

    resource: str
    device: str
    """The id of the device; empty if it is about something else."""
    good: bool
    """Whether it is healthy, registered, valid or ready."""
    reason: str = ""
    """Why it is not, or will not be for long."""
    since: str = ""
    """The time when health or reason last changed, as ISO 8601; empty if that is unknown."""
    pod: tuple[str, str, str] | None = None
    """If it is about a pod that has a device node that is gone: namespace, name and uid."""
    about: str = "registration"
    """What it is about, without a device; or ``entries`` of the settings of a plugin, which
    ``resource`` is, or ``driver``, the DRA driver that it is."""

    @property
    def state(self) -> str:
        """``good``, ``degraded`` (a device that is healthy with a reason) or ``bad``."""
        if not self.good:
            return "bad"
        return "degraded" if self.device and self.reason else "good"


def read_facts(
    source: str, timeout: float, credentials: Credentials = NO_CREDENTIALS
) -> list[Fact]:
    """Return the facts of the plugin at ``source``, which is a URL or a file with its answer."""
    try:
        if "://" in source:
            return ask(source, _facts, timeout, credentials)
        with Path(source).open("rb") as file:
            return decode(bounded(file.read(MAX_BYTES + 1), MAX_BYTES), _facts)
    except NoAnswerError as error:
        raise NoAnswerError(f"{source}: {error}") from error
    except OSError as error:
        raise NoAnswerError(f"{source}: {error.strerror}") from error


def _facts(page: Any) -> list[Fact]:
    found: list[Fact] = []
    for plugin, wrong in page.get("invalid_entries", {}).items():
        reason = "; ".join(map(str, wrong))
        found.append(Fact(str(plugin), "", not wrong, reason, about="entries"))
    if dra := page.get("dra"):
        problem = str(dra["problem"])
        found.append(Fact(str(dra["driver"]), "", not problem, problem, about="driver"))
    for resource in page["resources"]:
        name = str(resource["name"])
        problem = str(resource["problem"])  # none where it need not be registered
        found.append(Fact(name, "", not problem, problem))
        for device in filterfalse(is_spare, resource["devices"]):
            reason, since = str(device.get("reason", "")), str(device.get("since", ""))
            found.append(Fact(name, str(device["id"]), bool(device["healthy"]), reason, since))
            found += _of_pods(found[-1], device)
    return found


def _of_pods(fact: Fact, device: Mapping[str, Any]) -> Iterator[Fact]:
    """Yield a fact for each pod that has a node of ``device`` that is gone."""
    stale = device.get("stale") or {}
    pods = {(str(one["namespace"]), str(one["pod"])) for one in device.get("holders") or ()}
    # The uid is that of the only pod. A claim whose pod is not listed has none.
    uid = str(stale.get("uid", "")) if len(pods) == 1 else ""
    for namespace, pod in sorted(pods) if stale else ():
        if pod:
            since, why = str(stale["since"]), str(stale["node"])
            yield fact._replace(good=False, reason=why, since=since, pod=(namespace, pod, uid))


class Notice(NamedTuple):
    """A change of devices of one resource, or of its registration, to one state."""

    facts: tuple[Fact, ...]
    """One or more facts of one resource: of devices, or of the registration."""
    unhealthy: int = 0
    """Number of the resource's devices that are unhealthy now."""
    devices: int = 0
    """Number of the resource's devices."""
    changes: int = 1
    """Number of changes since the last report; more than facts if devices flap."""

    @property
    def state(self) -> str:
        """That of all facts: ``good``, ``degraded`` or ``bad``."""
        return self.facts[0].state

    @property
    def good(self) -> bool:
        return self.state == "good"

    @property
    def reason(self) -> str:
        """The reason of the Event: one word for programs."""
        first = self.facts[0]
        if first.pod:
            return STALE_REASON
        return _REASONS["device" if first.device else first.about, self.state]

    @property
    def kind(self) -> str:
        return "Normal" if self.good else "Warning"

    @property
    def message(self) -> str:
        """The message of the Event: a line of at most 1024 bytes."""
        first = self.facts[0]
        said = self._devices() if first.device else self._registration()
        if first.pod:
            said = f"the pod has device nodes that are gone, restart it: {self._named()}"
        text = f"{first.resource}: {said}"
        return text.encode(errors="replace")[:_MAX_BYTES].decode(errors="ignore")

    def _registration(self) -> str:
        first = self.facts[0]
        good, bad = _OTHERS[first.about]
        reason = first.reason if first.about == "entries" else _cut(first.reason)
        return good if self.good else f"{bad}: {reason}"

    def _devices(self) -> str:
        state = _STATES[self.state]
        more = f"; {self.changes} changes" if self.changes > len(self.facts) else ""
        sums = f"({self.unhealthy:,} of {self.devices:,} unhealthy{more})"
        if len(self.facts) == 1:
            why = f": {_cut(self.facts[0].reason)}" if self.facts[0].reason else ""
            return f"{_cut(self.facts[0].device)} is {state}{why} {sums}"
        return f"{len(self.facts):,} devices are {state}: {self._named()} {sums}"

    def _named(self) -> str:
        hidden = len(self.facts) - MOST_NAMED
        rest = f" and {hidden:,} more" if hidden > 0 else ""
        return ", ".join(map(_named, self.facts[:MOST_NAMED])) + rest


def _named(fact: Fact) -> str:
    return f"{_cut(fact.device)} ({_cut(fact.reason)})" if fact.reason else _cut(fact.device)


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…"


def as_event(notice: Notice, node: str, now: datetime) -> dict[str, Any]:
    """Return the core/v1 Event for ``node`` that reports ``notice``.

    The same change of the same devices has the same name, so the API server rejects duplicates.
    """
    moment = f"{now:%Y-%m-%dT%H:%M:%SZ}"
    involved = _involved(notice.facts[0], node)
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": _name(notice, node),
            "namespace": involved.get("namespace", NAMESPACE),
        },
        "involvedObject": involved,
        "type": notice.kind,
        "reason": notice.reason,
        "message": notice.message,
        "source": {"component": COMPONENT, "host": node},
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
    }


def _involved(fact: Fact, node: str) -> dict[str, str]:
    if fact.pod is None:
        # The kubelet uses this UID too. `kubectl describe node` finds the Event by it, and this
        # process needs no permission to read nodes.
        return {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node}
    namespace, name, uid = fact.pod
    pod = {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": name}
    return pod | {"uid": uid} if uid else pod  # `kubectl describe pod` needs it


def _name(notice: Notice, node: str) -> str:
    parts = [(one.resource, one.device, one.since, *(one.pod or ())) for one in notice.facts]
    digest = sha256(json.dumps([node, notice.state, parts]).encode()).hexdigest()
    return f"{node[:_MAX_NODE].rstrip('.-')}.{digest[:16]}"
