"""The part of the CRD that users read: status and columns."""

from typing import Any, Final

_TEXT: Final = {"type": "string", "maxLength": 32768}
_COUNT: Final = {"type": "integer", "minimum": 0}
_NAMED: Final = {"type": "string", "maxLength": 317}

MOST_PROBLEMS: Final = 20

_CONDITION: Final = {
    "type": "object",
    "required": ["type", "status", "reason", "lastTransitionTime"],
    "properties": {
        "type": {"type": "string", "maxLength": 64},
        "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
        "reason": {"type": "string", "maxLength": 64},
        "message": _TEXT,
        "observedGeneration": _COUNT,
        "lastTransitionTime": {"type": "string", "format": "date-time"},
    },
}
_REVISION: Final = {
    "type": "object",
    "required": ["profile"],
    "properties": {
        "profile": {**_NAMED, "description": "Empty for nodes without a profile"},
        "wanted": {**_NAMED, "description": "The revision that the object asks for"},
        "applied": {**_NAMED, "description": "The revision that the DaemonSet has"},
        "good": {**_NAMED, "description": "The last revision that succeeded on every node"},
        "refused": {**_NAMED, "description": "The revision that failed; it is not tried again"},
        "reason": {**_TEXT, "description": "Why it failed"},
        "generation": {**_COUNT, "description": "Generation of the spec that failed"},
        "hashes": {
            "type": "array",
            "maxItems": 8,
            "description": "SHA-256 of each revision that may be applied again. A ConfigMap with "
            "other content is refused",
            "items": {"type": "string", "maxLength": 64, "pattern": "^[0-9a-f]{64}$"},
        },
        "resources": {
            "type": "array",
            "maxItems": 256,
            "description": "The resources of the last good revision",
            "items": _NAMED,
        },
    },
}
STATUS: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "observedGeneration": {
            **_COUNT,
            "description": "Generation of the spec that this status is about",
        },
        "conditions": {
            "type": "array",
            "maxItems": 8,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
            "items": _CONDITION,
        },
        "nodes": {
            "type": "object",
            "properties": {
                "desired": {**_COUNT, "description": "Nodes that the selector matches"},
                "updated": {**_COUNT, "description": "Of these, with a pod of the wanted revision"},
                "ready": {**_COUNT, "description": "Of these, with a pod that is ready"},
            },
        },
        "devices": {**_TEXT, "description": "Healthy and total devices of each resource"},
        "resources": {
            "type": "array",
            "maxItems": 256,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": _NAMED,
                    "healthy": {**_COUNT, "description": "Allocatable devices on all nodes"},
                    "total": {**_COUNT, "description": "Capacity of all nodes"},
                    "nodes": {**_COUNT, "description": "Nodes with such devices"},
                },
            },
        },
        "problems": {
            "type": "array",
            "maxItems": MOST_PROBLEMS,
            "description": "The nodes with the most unhealthy devices",
            "items": {
                "type": "object",
                "properties": {
                    "node": _NAMED,
                    "resource": _NAMED,
                    "healthy": _COUNT,
                    "total": _COUNT,
                },
            },
        },
        "problemsLeftOff": {**_COUNT, "description": "Number of problems that are not listed"},
        "revisions": {
            "type": "array",
            "maxItems": 64,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["profile"],
            "items": _REVISION,
        },
        "baseline": {
            "type": "array",
            "maxItems": 10_000,
            "description": "The devices of nodes in the last good state, which a roll-out must not "
            "lose, even if the DaemonSet is deleted meanwhile",
            "items": {
                "type": "object",
                "required": ["devices", "nodes"],
                "properties": {
                    "devices": {
                        "type": "object",
                        "maxProperties": 256,
                        "additionalProperties": _COUNT,
                    },
                    "nodes": {"type": "array", "maxItems": 10_000, "items": _NAMED},
                },
            },
        },
    },
}


def _column(name: str, path: str, kind: str = "string", *, wide: bool = False) -> dict[str, Any]:
    return {"name": name, "type": kind, "jsonPath": path, **({"priority": 1} if wide else {})}


_READY: Final = '.status.conditions[?(@.type=="Ready")]'
COLUMNS: Final = [
    _column("Plugin", ".spec.plugin"),
    _column("Nodes", ".status.nodes.desired", "integer"),
    _column("Updated", ".status.nodes.updated", "integer"),
    _column("Ready", ".status.nodes.ready", "integer"),
    _column("Devices", ".status.devices"),
    _column("State", f"{_READY}.reason"),
    _column("Age", ".metadata.creationTimestamp", "date"),
    _column("Observed", ".status.observedGeneration", "integer", wide=True),
    _column("Message", f"{_READY}.message", wide=True),
]
