"""What is kept of a roll-out, for a restarted operator.

The progress is in an annotation of the DaemonSet, so it changes together with it. What must outlive
the DaemonSet is in the status of the object: the revisions, and the devices that each node had in
the last good state, which are the *baseline*. By hashes there, the operator knows its ConfigMaps
again: others may write in its namespace, but nobody else writes the status.
"""

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

from deviceplugin_operator import names
from deviceplugin_operator.rollout.step import Progress, Taken

_KEYS: Final = ("target", "good", "refused", "reason", "generation", "restoring", "lost")
HASHES: Final = "hashes"
_RESOURCES: Final = "resources"
_TAKEN: Final = "groups"
_NODES: Final = "nodes"
_BY_DRA: Final = "byDra"
_PACKED: Final = "packed"
"""The groups, compressed: names of nodes have much in common."""
_PLAIN: Final = 16_000
"""Most bytes of groups that are not compressed."""
MAX_NOTE: Final = 200_000
"""Most bytes of the annotation: all of an object have 262,144 together."""
MAX_BASELINE: Final = 800_000
"""Most bytes of the baseline: etcd takes 1.5 MiB, of which the spec can have 200,000."""
_MOST_NAMES: Final = 10_000
"""Most nodes of a group in the status, and most groups, by its schema."""
_MOST_UNPACKED: Final = 32 * 1024**2
_UNREADABLE: Final = (
    *(ValueError, TypeError, LookupError, AttributeError),
    *(ArithmeticError, RecursionError, zlib.error),
)
_T = TypeVar("_T")

Baseline = Mapping[str, Mapping[str, int]]
"""Devices by node and resource."""


def read(daemon_set: Mapping[str, Any]) -> Progress:
    """Return the progress saved on ``daemon_set``; an annotation that cannot be read is ignored."""
    annotations = daemon_set["metadata"].get("annotations") or {}
    try:
        given = json.loads(annotations.get(names.ROLLOUT, "{}"))
        taken = {
            str(name): Taken(
                float(one["since"]),
                _counts(one["before"]),
                one["well"],
                float(one["ready"]),
                by_dra=bool(one.get(_BY_DRA)),
            )
            for name, one in _by_node(_unpacked(given) or given.get(_TAKEN, ()))
        }
        plain = Progress()
        known = {key: type(getattr(plain, key))(given[key]) for key in _KEYS if key in given}
        resources = tuple(map(str, given.get(_RESOURCES, ())))
        return Progress(**known, taken=taken, resources=resources)
    except _UNREADABLE:
        return Progress()


def _unpacked(given: Mapping[str, Any]) -> Any:
    packed = b64decode(given.get(_PACKED, ""), validate=True)
    return json.loads(zlib.decompressobj().decompress(packed, _MOST_UNPACKED)) if packed else ()


def _counts(before: Mapping[str, Any]) -> dict[str, int]:
    return {name: int(count) for name, count in before.items()}


def fits(progress: Progress) -> bool:
    """Return whether the annotation can have all of it."""
    return len(_text(progress, progress.taken)) <= MAX_NOTE


def written(progress: Progress) -> str:
    """Return the value of the annotation.

    What does not fit is forgotten, first of all nodes that had no devices: these are as new then.
    """

    def text(taken: Mapping[str, Taken]) -> str:
        return _text(progress, taken)

    had = {name: one for name, one in progress.taken.items() if any(one.before.values())}
    return text(progress.taken if fits(progress) else _fitting(had, text, MAX_NOTE))


def _text(progress: Progress, nodes: Mapping[str, Taken]) -> str:
    taken = {
        name: {"since": one.since, "before": dict(one.before), "well": one.well, "ready": one.ready}
        | ({_BY_DRA: True} if one.by_dra else {})
        for name, one in nodes.items()
    }
    said = {key: one for key in _KEYS if (one := getattr(progress, key))}
    offered = {_RESOURCES: progress.resources} if progress.resources else {}
    groups = _grouped(taken)
    if len(text := json.dumps(groups)) <= _PLAIN:
        return json.dumps({**said, **offered, _TAKEN: groups})
    packed = b64encode(zlib.compress(text.encode())).decode()
    return json.dumps({**said, **offered, _PACKED: packed})


def _fitting(
    nodes: Mapping[str, _T], text: Callable[[Mapping[str, _T]], str], most: int
) -> dict[str, _T]:
    """Return as many of ``nodes``, by name, as have a ``text`` of at most ``most`` bytes."""
    names = sorted(nodes)
    while (size := len(text({name: nodes[name] for name in names}))) > most and names:
        del names[len(names) * most // size * 49 // 50 :]
    return {name: nodes[name] for name in names}


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
    """Return what the status has of a baseline: nodes with the same devices are one group.

    There is no room for nodes beyond some 15,000, or fewer if all differ.
    """
    nodes = {name: {"devices": dict(one)} for name, one in found.items()}
    kept = _fitting(nodes, lambda one: json.dumps(_grouped(one)), MAX_BASELINE)
    return _grouped(kept)[:_MOST_NAMES]


def _grouped(by_node: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Group nodes of which the same is known: there can be thousands, and little room."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for name, one in sorted(by_node.items()):
        same = groups.setdefault(json.dumps(one, sort_keys=True), [])
        if not same or len(same[-1][_NODES]) == _MOST_NAMES:
            same.append({**one, _NODES: []})
        same[-1][_NODES].append(name)
    return [group for same in groups.values() for group in same]


def _by_node(groups: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for one in groups:
        for name in one[_NODES]:
            yield name, one
