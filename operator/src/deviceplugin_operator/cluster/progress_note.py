"""What is kept of a roll-out, for a restarted operator.

The progress is in an annotation of the DaemonSet, so it changes together with it. What must outlive
the DaemonSet is in the status of the object: the revisions, and the devices that each node had in
the last good state, which are the *baseline*. By hashes there, the operator knows its ConfigMaps
again: others may write in its namespace, but nobody else writes the status.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from deviceplugin_operator import names
from deviceplugin_operator.rollout.step import Progress, Taken

_KEYS: Final = ("target", "good", "refused", "reason", "generation", "restoring", "lost")
HASHES: Final = "hashes"
_RESOURCES: Final = "resources"
_TAKEN: Final = "groups"
_NODES: Final = "nodes"
_BY_DRA: Final = "byDra"

Baseline = Mapping[str, Mapping[str, int]]
"""Devices by node and resource."""


def read(daemon_set: Mapping[str, Any]) -> Progress:
    """Return the progress saved on ``daemon_set``; an annotation that cannot be read is ignored."""
    annotations = daemon_set["metadata"].get("annotations") or {}
    try:
        given = json.loads(annotations.get(names.ROLLOUT, "{}"))
        taken = {
            name: Taken(
                float(one["since"]),
                _counts(one["before"]),
                one["well"],
                float(one["ready"]),
                by_dra=bool(one.get(_BY_DRA)),
            )
            for name, one in _by_node(given.get(_TAKEN, ()))
        }
        plain = Progress()
        known = {key: type(getattr(plain, key))(given[key]) for key in _KEYS if key in given}
        resources = tuple(map(str, given.get(_RESOURCES, ())))
        return Progress(**known, taken=taken, resources=resources)
    except (ValueError, TypeError, LookupError, AttributeError):
        return Progress()


def _counts(before: Mapping[str, Any]) -> dict[str, int]:
    return {name: int(count) for name, count in before.items()}


def written(progress: Progress) -> str:
    """Return the value of the annotation."""
    taken = {
        name: {"since": one.since, "before": dict(one.before), "well": one.well, "ready": one.ready}
        | ({_BY_DRA: True} if one.by_dra else {})
        for name, one in progress.taken.items()
    }
    said = {key: one for key in _KEYS if (one := getattr(progress, key))}
    offered = {_RESOURCES: progress.resources} if progress.resources else {}
    return json.dumps({**said, **offered, _TAKEN: _grouped(taken)})


def revisions(owner: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return what the status of ``owner`` has of each profile."""
    return {one["profile"]: one for one in (owner.get("status") or {}).get("revisions") or ()}


def hashes(owner: Mapping[str, Any], profile: str) -> list[str]:
    """Return the hashes of the revisions that the operator has made of a profile."""
    return [*revisions(owner).get(profile, {}).get(HASHES, ())]


def of_status(owner: Mapping[str, Any], profile: str) -> Progress:
    """Return the progress in the status of ``owner``: all of it but the nodes."""
    one = revisions(owner).get(profile, {})
    return Progress(
        one.get("applied", ""),
        one.get("good", ""),
        one.get("refused", ""),
        one.get("reason", ""),
        one.get("generation", 0),
        tuple(one.get(_RESOURCES, ())),
    )


def in_status(progress: Progress) -> dict[str, Any]:
    """Return what the status keeps of ``progress``."""
    kept = {
        "applied": progress.target,
        "good": progress.good,
        "refused": progress.refused,
        "reason": progress.reason,
        "generation": progress.generation,
        _RESOURCES: [*progress.resources],
    }
    return {key: one for key, one in kept.items() if one}


def baseline(owner: Mapping[str, Any]) -> Baseline:
    """Return the baseline in the status of ``owner``."""
    groups = (owner.get("status") or {}).get("baseline") or ()
    return {name: one["devices"] for name, one in _by_node(groups)}


def of_baseline(found: Baseline) -> list[dict[str, Any]]:
    """Return what the status has of a baseline: nodes with the same devices are one group."""
    return _grouped({name: {"devices": dict(one)} for name, one in found.items()})


def _grouped(by_node: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Group nodes of which the same is known: there can be thousands, and little room."""
    groups: dict[str, dict[str, Any]] = {}
    for name, one in sorted(by_node.items()):
        group = groups.setdefault(json.dumps(one, sort_keys=True), {**one, _NODES: []})
        group[_NODES].append(name)
    return [*groups.values()]


def _by_node(groups: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for one in groups:
        for name in one[_NODES]:
            yield name, one
