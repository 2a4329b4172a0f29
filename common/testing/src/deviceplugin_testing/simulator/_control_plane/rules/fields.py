"""The fields of the kinds of ``resource.k8s.io/v1`` that Kubernetes 1.36 keeps by default.

Fields of alpha features, such as lists as attributes, are not here, so they vanish as there.
"""

from collections.abc import Mapping
from typing import Final

from deviceplugin_testing.simulator._control_plane.kinds import (
    DEVICE_CLASS,
    RESOURCE_CLAIM,
    RESOURCE_CLAIM_TEMPLATE,
    RESOURCE_SLICE,
    Kind,
)
from deviceplugin_testing.simulator._control_plane.rules.schema import (
    ANYTHING,
    BOOLEAN,
    INTEGER,
    QUANTITY,
    STRING,
    TIME,
    Named,
    Several,
    Struct,
    Type,
)

_STRINGS: Final = Several(STRING, "[]string")
_LABELS: Final = Named(STRING, "map[string]string")
_OWNER: Final = Struct(
    "OwnerReference",
    {
        "apiVersion": STRING,
        "kind": STRING,
        "name": STRING,
        "uid": STRING,
        "controller": BOOLEAN,
        "blockOwnerDeletion": BOOLEAN,
    },
    always={"apiVersion": "", "kind": "", "name": "", "uid": ""},
)
METADATA: Final = Struct(
    "ObjectMeta",
    {
        "name": STRING,
        "generateName": STRING,
        "namespace": STRING,
        "uid": STRING,
        "resourceVersion": STRING,
        "generation": INTEGER,
        "creationTimestamp": TIME,
        "deletionTimestamp": TIME,
        "deletionGracePeriodSeconds": INTEGER,
        "labels": _LABELS,
        "annotations": _LABELS,
        "ownerReferences": Several(_OWNER, "[]v1.OwnerReference"),
        "finalizers": _STRINGS,
    },
)


def _whole(name: str, fields: Mapping[str, Type], always: tuple[str, ...] = ("spec",)) -> Struct:
    usual: dict[str, Type] = {"apiVersion": STRING, "kind": STRING, "metadata": METADATA}
    return Struct(name, {**usual, **fields}, {name: {} for name in ("metadata", *always)})


# Slices

_ATTRIBUTE: Final = Struct(
    "DeviceAttribute", {"int": INTEGER, "bool": BOOLEAN, "string": STRING, "version": STRING}
)
_POLICY: Final = Struct(
    "CapacityRequestPolicy",
    {
        "default": QUANTITY,
        "validValues": Several(QUANTITY, "[]resource.Quantity"),
        "validRange": Struct(
            "CapacityRequestPolicyRange", {"min": QUANTITY, "max": QUANTITY, "step": QUANTITY}
        ),
    },
    nullable=("default",),
)
_CAPACITY: Final = Struct(
    "DeviceCapacity", {"value": QUANTITY, "requestPolicy": _POLICY}, {"value": "0"}
)
_TAINT: Final = Struct(
    "DeviceTaint",
    {"key": STRING, "value": STRING, "effect": STRING, "timeAdded": TIME},
    {"key": "", "effect": ""},
)
_COUNTERS: Final = Named(
    Struct("Counter", {"value": QUANTITY}, {"value": "0"}), "map[string]v1.Counter"
)
_DEVICE: Final = Struct(
    "Device",
    {
        "name": STRING,
        "attributes": Named(_ATTRIBUTE, "map[v1.QualifiedName]v1.DeviceAttribute"),
        "capacity": Named(_CAPACITY, "map[v1.QualifiedName]v1.DeviceCapacity"),
        "consumesCounters": Several(
            Struct("DeviceCounterConsumption", {"counterSet": STRING, "counters": _COUNTERS}),
            "[]v1.DeviceCounterConsumption",
        ),
        "nodeName": STRING,
        "nodeSelector": ANYTHING,
        "allNodes": BOOLEAN,
        "taints": Several(_TAINT, "[]v1.DeviceTaint"),
        "bindsToNode": BOOLEAN,
        "bindingConditions": _STRINGS,
        "bindingFailureConditions": _STRINGS,
        "allowMultipleAllocations": BOOLEAN,
    },
    {"name": ""},
)
_POOL: Final = Struct(
    "ResourcePool",
    {"name": STRING, "generation": INTEGER, "resourceSliceCount": INTEGER},
    {"name": "", "generation": 0, "resourceSliceCount": 0},
)
_SLICE: Final = Struct(
    "ResourceSliceSpec",
    {
        "driver": STRING,
        "pool": _POOL,
        "nodeName": STRING,
        "nodeSelector": ANYTHING,
        "allNodes": BOOLEAN,
        "devices": Several(_DEVICE, "[]v1.Device"),
        "perDeviceNodeSelection": BOOLEAN,
        "sharedCounters": Several(
            Struct("CounterSet", {"name": STRING, "counters": _COUNTERS}), "[]v1.CounterSet"
        ),
    },
    {"driver": "", "pool": {}},
)

# Claims

_SELECTORS: Final = Several(
    Struct(
        "DeviceSelector",
        {"cel": Struct("CELDeviceSelector", {"expression": STRING}, {"expression": ""})},
    ),
    "[]v1.DeviceSelector",
)
_TOLERATIONS: Final = Several(
    Struct(
        "DeviceToleration",
        {
            "key": STRING,
            "operator": STRING,
            "value": STRING,
            "effect": STRING,
            "tolerationSeconds": INTEGER,
        },
        {"operator": "Equal"},
    ),
    "[]v1.DeviceToleration",
)
_CAPACITIES: Final = Struct(
    "CapacityRequirements",
    {"requests": Named(QUANTITY, "map[v1.QualifiedName]resource.Quantity")},
)
_WANTED: Final[Mapping[str, Type]] = {
    "deviceClassName": STRING,
    "selectors": _SELECTORS,
    "allocationMode": STRING,
    "count": INTEGER,
    "tolerations": _TOLERATIONS,
    "capacity": _CAPACITIES,
}
_SUB_REQUEST: Final = Struct(
    "DeviceSubRequest", {"name": STRING, **_WANTED}, {"name": "", "deviceClassName": ""}
)
_REQUEST: Final = Struct(
    "DeviceRequest",
    {
        "name": STRING,
        "exactly": Struct(
            "ExactDeviceRequest", {**_WANTED, "adminAccess": BOOLEAN}, {"deviceClassName": ""}
        ),
        "firstAvailable": Several(_SUB_REQUEST, "[]v1.DeviceSubRequest"),
    },
    {"name": ""},
)
_OPAQUE: Final = Struct(
    "OpaqueDeviceConfiguration", {"driver": STRING, "parameters": ANYTHING}, {"driver": ""}
)
_CLAIM: Final = Struct(
    "ResourceClaimSpec",
    {
        "devices": Struct(
            "DeviceClaim",
            {
                "requests": Several(_REQUEST, "[]v1.DeviceRequest"),
                "constraints": Several(ANYTHING, "[]v1.DeviceConstraint"),
                "config": Several(
                    Struct("DeviceClaimConfiguration", {"requests": _STRINGS, "opaque": _OPAQUE}),
                    "[]v1.DeviceClaimConfiguration",
                ),
            },
        )
    },
    {"devices": {}},
)
_STATUS: Final = Struct(
    "ResourceClaimStatus",
    {
        "allocation": ANYTHING,
        "reservedFor": Several(
            Struct(
                "ResourceClaimConsumerReference",
                {"apiGroup": STRING, "resource": STRING, "name": STRING, "uid": STRING},
            ),
            "[]v1.ResourceClaimConsumerReference",
        ),
        "devices": Several(ANYTHING, "[]v1.AllocatedDeviceStatus"),
    },
)
_CLASS: Final = Struct(
    "DeviceClassSpec",
    {
        "selectors": _SELECTORS,
        "config": Several(
            Struct("DeviceClassConfiguration", {"opaque": _OPAQUE}), "[]v1.DeviceClassConfiguration"
        ),
        "extendedResourceName": STRING,
    },
)

SCHEMAS: Final[Mapping[Kind, Struct]] = {
    RESOURCE_SLICE: _whole("ResourceSlice", {"spec": _SLICE}),
    RESOURCE_CLAIM: _whole(
        "ResourceClaim", {"spec": _CLAIM, "status": _STATUS}, ("spec", "status")
    ),
    RESOURCE_CLAIM_TEMPLATE: _whole(
        "ResourceClaimTemplate",
        {
            "spec": Struct(
                "ResourceClaimTemplateSpec",
                {"metadata": METADATA, "spec": _CLAIM},
                {"metadata": {}, "spec": {}},
            )
        },
    ),
    DEVICE_CLASS: _whole("DeviceClass", {"spec": _CLASS}),
}
