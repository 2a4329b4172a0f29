"""Objects in Kubernetes' binary format, as the real API server wrote them, beside the same in JSON.

Together they set every field that the simulated API server reads, except metadata that only the
server sets.
"""

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from cluster.dra_api.asking import CLAIMS, CLASSES, SLICES, TEMPLATES, Asker, Object, Step

MEDIA: Final = "application/vnd.kubernetes.protobuf"
RECORDED: Final = Path(__file__).with_name("binary_objects.json")
_OWNER: Final = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u", "controller": False}
_METADATA: Final[Object] = {
    "labels": {"a": "b"},
    "annotations": {"c": ""},
    "finalizers": ["example.com/f"],
    "ownerReferences": [{**_OWNER, "blockOwnerDeletion": True}],
}
_CEL: Final = [{"cel": {"expression": "device.driver == 'g.example.com'"}}]
_OPAQUE: Final = {"driver": "g.example.com", "parameters": {"kind": "K", "deep": [1, None, "x"]}}
_TOLERATIONS: Final = [
    {"key": "k", "operator": "Equal", "value": "v", "effect": "NoExecute", "tolerationSeconds": 0},
    {"operator": "Exists"},
]
_NODES: Final[Object] = {
    "nodeSelectorTerms": [
        {
            "matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}],
            "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}],
        }
    ]
}
_EXACTLY: Final[Object] = {
    "deviceClassName": "g",
    "selectors": _CEL,
    "allocationMode": "ExactCount",
    "count": 2,
    "tolerations": _TOLERATIONS,
    "capacity": {"requests": {"memory": "1500Mi"}},
}
_DEVICES: Final[Object] = {
    "requests": [
        {"name": "a", "exactly": _EXACTLY},
        {"name": "b", "firstAvailable": [{"name": "s", **_EXACTLY}]},
        {"name": "c", "exactly": {"deviceClassName": "g", "allocationMode": "All"}},
    ],
    "constraints": [
        {"requests": ["a"], "matchAttribute": "g.example.com/numa"},
        {"distinctAttribute": "g.example.com/serial"},
    ],
    "config": [{"requests": ["a", "b/s"], "opaque": _OPAQUE}],
}
_DEVICE: Final = {"driver": "g.example.com", "pool": "n1/x", "device": "d1"}
_SHARE: Final = "8ba5ea1c-4d0a-4f3e-a1d5-3d4f4ee2c1a0"
_CONDITION: Final = {
    "type": "Ready",
    "status": "True",
    "observedGeneration": 3,
    "lastTransitionTime": "2026-01-02T03:04:05Z",
    "reason": "Up",
    "message": "it is up",
}
_STATUS: Final[Object] = {
    "allocation": {
        "devices": {
            "results": [
                {
                    "request": "a",
                    **_DEVICE,
                    "tolerations": _TOLERATIONS,
                    "bindingConditions": ["is-up"],
                    "bindingFailureConditions": ["is-down"],
                    "shareID": _SHARE,
                    "consumedCapacity": {"memory": "1500Mi"},
                }
            ],
            "config": [{"source": "FromClass", "requests": ["a"], "opaque": _OPAQUE}],
        },
        "nodeSelector": _NODES,
        "allocationTimestamp": "2026-01-02T03:04:05Z",
    },
    "reservedFor": [
        {"resource": "pods", "name": "x", "uid": "u"},
        {"apiGroup": "example.com", "resource": "things", "name": "y", "uid": "w"},
    ],
    "devices": [
        {
            **_DEVICE,
            "shareID": _SHARE,
            "conditions": [_CONDITION],
            "data": {"speed": 25, "lanes": [True]},
            "networkData": {
                "interfaceName": "eth1",
                "ips": ["192.0.2.1/24", "2001:db8::1/64"],
                "hardwareAddress": "02:00:00:00:00:01",
            },
        }
    ],
}
_POLICY: Final = {"default": "1Gi", "validRange": {"min": "1Gi", "max": "64Gi", "step": "1Gi"}}
_SLICE: Final[Object] = {
    "driver": "g.example.com",
    "nodeName": "n1",
    "pool": {"name": "n1/x", "generation": 7, "resourceSliceCount": 1},
    "devices": [
        {
            "name": "d1",
            "attributes": {
                "numa": {"int": 0},
                "shared": {"bool": False},
                "serial": {"string": "ü 1"},
                "g.example.com/firmware": {"version": "1.2.3-rc.1"},
            },
            "capacity": {
                "memory": {"value": "64Gi", "requestPolicy": _POLICY},
                "lanes": {
                    "value": "16",
                    "requestPolicy": {"default": "1", "validValues": ["1", "8"]},
                },
                "cores": {"value": "8"},
            },
            "allowMultipleAllocations": True,
        },
        {
            "name": "d2",
            "taints": [
                {
                    "key": "example.com/hot",
                    "value": "v",
                    "effect": "NoSchedule",
                    "timeAdded": "2026-01-02T03:04:05Z",
                }
            ],
            "bindsToNode": True,
            "bindingConditions": ["is-up"],
            "bindingFailureConditions": ["is-down"],
        },
    ],
}
_PARTS: Final[Object] = {
    "driver": "g.example.com",
    "perDeviceNodeSelection": True,
    "pool": {"name": "parts", "generation": 1, "resourceSliceCount": 2},
    "devices": [
        {
            "name": "d1",
            "nodeName": "n1",
            "consumesCounters": [{"counterSet": "s", "counters": {"x": {"value": "500m"}}}],
        },
        {"name": "d2", "allNodes": True},
        {"name": "d3", "nodeSelector": _NODES},
    ],
}


class Wanted(NamedTuple):
    """An object to create at ``path``; its status, if it has one, is written apart."""

    path: str
    kind: str
    content: Object
    status: Object | None = None

    def body(self, name: str) -> Object:
        made: Object = {"apiVersion": "resource.k8s.io/v1", "kind": self.kind}
        return {**made, "metadata": {"name": name, **_METADATA}, **self.content}


_TEMPLATE: Final = {"metadata": {"labels": {"a": "b"}}, "spec": {"devices": _DEVICES}}
WANTED: Final[Mapping[str, Wanted]] = {
    "slice": Wanted(SLICES, "ResourceSlice", {"spec": _SLICE}),
    "parts": Wanted(SLICES, "ResourceSlice", {"spec": _PARTS}),
    "counters": Wanted(
        SLICES,
        "ResourceSlice",
        {
            "spec": {
                "driver": "g.example.com",
                "nodeSelector": _NODES,
                "pool": {"name": "parts", "generation": 1, "resourceSliceCount": 2},
                "sharedCounters": [{"name": "s", "counters": {"x": {"value": "2"}}}],
            }
        },
    ),
    "everywhere": Wanted(
        SLICES,
        "ResourceSlice",
        {
            "spec": {
                "driver": "g.example.com",
                "allNodes": True,
                "pool": {"name": "all", "generation": 0, "resourceSliceCount": 1},
            }
        },
    ),
    "claim": Wanted(CLAIMS, "ResourceClaim", {"spec": {"devices": _DEVICES}}, _STATUS),
    "template": Wanted(TEMPLATES, "ResourceClaimTemplate", {"spec": _TEMPLATE}),
    "class": Wanted(
        CLASSES,
        "DeviceClass",
        {
            "spec": {
                "selectors": _CEL,
                "config": [{"opaque": _OPAQUE}],
                "extendedResourceName": "example.com/frob",
            }
        },
    ),
}


class Pair(NamedTuple):
    """An object as the real server gave it, in both formats."""

    binary: bytes
    json: Object


def recorded() -> dict[str, Pair]:
    """Return what the real API server wrote for each of ``WANTED``."""
    found: dict[str, list[Any]] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return {name: Pair(base64.b64decode(one[0]), one[1]) for name, one in found.items()}


def record(real: Asker) -> None:
    """Create all ``WANTED`` at the real server, and write the file."""
    lines = []
    for name, (binary, plain) in asked(real).items():
        pair = [base64.b64encode(binary).decode(), plain]
        lines.append(f"{json.dumps(name)}: {json.dumps(pair, ensure_ascii=False, sort_keys=True)}")
    RECORDED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def asked(real: Asker) -> dict[str, Pair]:
    """Create all ``WANTED`` at the real server, and return what it then has."""
    found = {}
    for name, wanted in WANTED.items():
        code, made = real.ask(Step("POST", wanted.path, _as_go_writes(wanted.body(name))))
        assert code == 201, made
        place = f"{wanted.path}/{name}"
        try:
            if wanted.status is not None:
                changed = _as_go_writes({**made, "status": wanted.status})
                code, made = real.ask(Step("PUT", f"{place}/status", changed))
                assert code == 200, made
            del made["metadata"]["managedFields"]
            found[name] = Pair(real.read(place, MEDIA), made)
        finally:
            real.remove(place)
    return found


def _as_go_writes(content: Object) -> bytes:
    """Return it as Go writes JSON: otherwise an opaque configuration counts as changed by Go."""
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
