"""Saves the progress of a roll-out in an annotation of the DaemonSet, for a restarted operator."""

import json
from collections.abc import Mapping
from typing import Any, Final

from deviceplugin_operator import names
from deviceplugin_operator.rollout.step import Progress, Taken

_KEYS: Final = ("target", "good", "refused", "reason", "generation")
_RESOURCES: Final = "resources"


def read(daemon_set: Mapping[str, Any]) -> Progress:
    """Return the progress saved on ``daemon_set``; an annotation that cannot be read is ignored."""
    annotations = daemon_set["metadata"].get("annotations") or {}
    try:
        given = json.loads(annotations.get(names.ROLLOUT, "{}"))
        taken = {
            name: Taken(one["since"], one["before"], one["well"], one["ready"])
            for name, one in given.get("taken", {}).items()
        }
        known = {key: given[key] for key in _KEYS if key in given}
        return Progress(**known, taken=taken, resources=tuple(given.get(_RESOURCES, ())))
    except (ValueError, TypeError, LookupError, AttributeError):
        return Progress()


def written(progress: Progress) -> str:
    """Return the value of the annotation."""
    taken = {
        name: {"since": one.since, "before": dict(one.before), "well": one.well, "ready": one.ready}
        for name, one in sorted(progress.taken.items())
    }
    said = {key: one for key in _KEYS if (one := getattr(progress, key))}
    offered = {_RESOURCES: progress.resources} if progress.resources else {}
    return json.dumps({**said, **offered, "taken": taken})
