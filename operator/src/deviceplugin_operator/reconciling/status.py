"""The status of an object, as a function of what is there."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from deviceplugin_operator.cluster import progress_note
from deviceplugin_operator.fleet import NodeFacts, of_resources
from deviceplugin_operator.names import MAX_PROBLEMS
from deviceplugin_operator.rollout.desired import called
from deviceplugin_operator.rollout.step import Progress

_LONGEST: Final = 4000
"""Characters of a message; many invalid settings make a long one."""
_MOST_SHOWN: Final = 4

_SAID: Final = frozenset(
    {
        *("InvalidSettings", "Conflict", "RolloutFailed", "NoWayBack", "RequestFailed"),
        *("RightsMissing", "NoDRA", "NoDeviceClass", "SeveralDeviceClasses"),
    }
)
"""Reasons of which an Event is created."""
_STOPPED: Final = frozenset({"RolloutFailed", "RequestFailed", "RightsMissing", "NoDRA"})
"""Reasons of Degraded that are more important than that something is under way."""

BUSY: Final = frozenset({"Progressing", "RollingBack", "Waiting"})
"""States of an outcome after which there is another step."""

Condition = tuple[bool, str, str]
"""Its status, reason and message."""


@dataclass(frozen=True)
class Outcome:
    """The state of the nodes of one profile."""

    profile: str
    wanted: str
    progress: Progress
    state: str
    """The state of the roll-out's last step, or ``Waiting`` for another profile."""
    message: str
    counts: Mapping[str, int] | None
    """The DaemonSet's status; None if there is no DaemonSet."""

    @property
    def desired(self) -> int:
        """Nodes that are to have a pod."""
        return (self.counts or {}).get("desiredNumberScheduled", 0)

    @property
    def ready(self) -> int:
        """Nodes whose pod is ready."""
        return (self.counts or {}).get("numberReady", 0)

    @property
    def updated(self) -> int:
        """Nodes with a pod of the wanted revision."""
        is_wanted = self.progress.target == self.wanted
        return (self.counts or {}).get("updatedNumberScheduled", 0) if is_wanted else 0


@dataclass(frozen=True)
class Reported:
    """What a status is computed from."""

    outcomes: Sequence[Outcome]
    nodes: Sequence[NodeFacts]
    """Those that the object is for."""
    patterns: Sequence[str]
    """Its resources."""
    baseline: progress_note.Baseline = field(default_factory=dict)
    """What the status is to keep of the nodes' devices."""
    refused: tuple[str, str] | None = None
    """Why the object is not accepted: reason and message."""
    failure: str = ""
    """Why a request for it failed."""
    missing: tuple[str, str] = ("", "")
    """Why it cannot use DRA: reason and message."""
    classes: Condition | None = None
    """Whether DeviceClasses name its resources, if it has DRA."""
    unknown: str = ""
    """Nodes whose label names no profile."""
    paused: bool = False


def status(owner: Mapping[str, Any], seen: Reported, now: str) -> dict[str, Any]:
    """Return the status of ``owner``. Conditions keep their transition time until they change."""
    generation = owner["metadata"].get("generation", 0)
    before = owner.get("status") or {}
    resources, problems = _resources(seen)
    return {
        "observedGeneration": generation,
        "conditions": [
            _condition(kind, one, generation, before, now)
            for kind, one in _conditions(seen, resources).items()
        ],
        "nodes": {
            key: sum(getattr(one, key) for one in seen.outcomes)
            for key in ("desired", "updated", "ready")
        },
        "devices": _shown(resources),
        "resources": resources,
        "problems": problems[:MAX_PROBLEMS],
        "problemsLeftOff": max(0, len(problems) - MAX_PROBLEMS),
        "revisions": [_revision(owner, one) for one in seen.outcomes],
        "baseline": progress_note.of_baseline(seen.baseline),
    }


def _revision(owner: Mapping[str, Any], one: Outcome) -> dict[str, Any]:
    """Return what is kept of a profile, with the hashes of what is named in it."""
    named = {one.wanted, one.progress.target, one.progress.good}
    known = [
        digest for digest in progress_note.hashes(owner, one.profile) if called(digest) in named
    ]
    kept = progress_note.in_status(one.progress)
    return {"profile": one.profile, "wanted": one.wanted, **kept, progress_note.HASHES: known}


def _conditions(seen: Reported, resources: Sequence[Mapping[str, Any]]) -> dict[str, Condition]:
    accepted: Condition = (True, "UnknownProfile" if seen.unknown else "Valid", seen.unknown)
    if seen.refused:
        accepted = (False, *seen.refused)
    rolling = next((one for one in seen.outcomes if one.state in BUSY), None)
    progressing: Condition = (False, "Done", "")
    if rolling and not seen.paused and not seen.failure:
        progressing = (True, "RollingOut", _of_profile(rolling))
    degraded = _degraded(seen.outcomes, rolling=progressing[0])
    if seen.missing[0]:
        degraded = (True, *seen.missing)
    if seen.failure:
        degraded = (True, "RequestFailed", seen.failure)
    classes = {"DeviceClasses": seen.classes} if seen.classes else {}
    return {
        "Accepted": accepted,
        "Ready": _ready(seen, accepted, progressing, degraded, resources),
        "Progressing": progressing,
        "Degraded": degraded,
        **classes,
    }


def _degraded(outcomes: Iterable[Outcome], *, rolling: bool) -> Condition:
    for one in outcomes:
        if one.wanted == one.progress.refused:
            profile = f"profile {one.profile}: " if one.profile else ""
            lost = f": {one.progress.lost}" if one.progress.lost else ""
            return True, "RolloutFailed", f"{profile}{one.progress.reason}; {_after(one)}{lost}"
    for one in outcomes:
        if one.progress.lost:
            profile = f"profile {one.profile}: " if one.profile else ""
            return True, "NoWayBack", f"{profile}{one.progress.lost}"
    missing = [one for one in outcomes if one.ready < one.desired]
    if missing and not rolling:  # what a roll-out has taken is no fault
        ready, desired = (
            sum(n) for n in zip(*((o.ready, o.desired) for o in missing), strict=True)
        )
        return True, "NodesNotReady", f"{ready} of {desired} nodes have a ready pod"
    return False, "AsExpected", ""


def _after(failed: Outcome) -> str:
    """Return how the operator reacted to a failure."""
    if failed.progress.target == failed.wanted:
        return "halted"
    if failed.state == "Held":
        return "nothing was changed"
    under_way = failed.state in BUSY and failed.progress.taken
    return f"{'rolling' if under_way else 'rolled'} back to {failed.progress.target}"


def _ready(
    seen: Reported,
    accepted: Condition,
    progressing: Condition,
    degraded: Condition,
    resources: Sequence[Mapping[str, Any]],
) -> Condition:
    """Return the condition ``Ready``: the first thing that is wrong, or true."""
    offered = ", ".join(seen.patterns)
    has_none = bool(offered) and not any(one["healthy"] for one in resources)
    is_gone = any(one.counts is None for one in seen.outcomes)
    has_nodes = any(one.desired for one in seen.outcomes)
    faults: list[tuple[bool, str, str]] = [
        (not accepted[0], *accepted[1:]),
        (seen.paused, "Paused", "spec.paused is true: nothing is changed"),
        (degraded[1] in _STOPPED, *degraded[1:]),
        progressing,
        (is_gone, "NoDaemonSet", "the DaemonSet is not there"),
        (not has_nodes, "NoNodes", "no node has the labels of spec.nodeSelector"),
        degraded,
        (has_none, "NoDevices", f"no node has a healthy device of {offered}"),
    ]
    for holds, reason, message in faults:
        if holds:
            return False, reason, message
    return True, "Ready", _shown(resources)


def is_news(made: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    """Return whether an Event has to say what a condition says."""
    if made["reason"] not in _SAID or made["type"] == "Ready":
        return False
    # The words of a request that fails again and again can differ each time.
    about = "observedGeneration" if made["reason"] == "RequestFailed" else "message"
    return (made["reason"], made[about]) != (before.get("reason"), before.get(about))


def _of_profile(one: Outcome) -> str:
    return f"profile {one.profile}: {one.message}" if one.profile else one.message


def _condition(
    kind: str, found: Condition, generation: int, before: Mapping[str, Any], now: str
) -> dict[str, Any]:
    said = "True" if found[0] else "False"
    old = next((one for one in before.get("conditions") or () if one["type"] == kind), None)
    same = old is not None and old["status"] == said
    return {
        "type": kind,
        "status": said,
        "reason": found[1],
        "message": found[2][:_LONGEST],
        "observedGeneration": generation,
        "lastTransitionTime": old["lastTransitionTime"] if old and same else now,
    }


def _resources(seen: Reported) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the resources with their devices, and the nodes that lack some, the worst first."""
    found: list[dict[str, Any]] = []
    problems: list[dict[str, Any]] = []
    for name, nodes in of_resources(seen.nodes, seen.patterns).items():
        healthy = {one.name: one.healthy.get(name, 0) for one in nodes}
        total = {one.name: one.total[name] for one in nodes}
        sums = {"healthy": sum(healthy.values()), "total": sum(total.values())}
        found.append({"name": name, **sums, "nodes": len(nodes)})
        problems += [
            {"node": node, "resource": name, "healthy": count, "total": total[node]}
            for node, count in healthy.items()
            if count < total[node]
        ]
    problems.sort(key=lambda one: (one["healthy"] - one["total"], one["node"], one["resource"]))
    return found, problems


def _shown(resources: Sequence[Mapping[str, Any]]) -> str:
    words = "{0} {1[healthy]}/{1[total]}"
    shown = [words.format(one["name"].rpartition("/")[2], one) for one in resources]
    more = [f"{len(shown) - _MOST_SHOWN} more"] if len(shown) > _MOST_SHOWN else []
    return ", ".join(shown[:_MOST_SHOWN] + more)
