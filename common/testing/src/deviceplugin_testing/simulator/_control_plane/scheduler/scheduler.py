"""The scheduler, as far as devices are concerned: the first node by name that fits."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from deviceplugin_testing.simulator._control_plane.api_server.objects import Objects
from deviceplugin_testing.simulator._control_plane.kinds import (
    DEVICE_CLASS,
    NODE,
    POD,
    RESOURCE_CLAIM,
    RESOURCE_SLICE,
    Object,
)
from deviceplugin_testing.simulator._control_plane.quantities import amount
from deviceplugin_testing.simulator._control_plane.scheduler.allocator import (
    AllocationError,
    Allocator,
    InUse,
)
from deviceplugin_testing.simulator._control_plane.scheduler.counters import Groups
from deviceplugin_testing.simulator._control_plane.scheduler.extended_resources import (
    SpecialClaim,
    class_of,
    requests_of,
    special_claim,
)
from deviceplugin_testing.simulator._control_plane.scheduler.pools import (
    Amounts,
    DeviceKey,
    pools_of,
    total,
    untolerated,
)
from deviceplugin_testing.simulator._control_plane.selectors import SelectorError
from deviceplugin_testing.simulator._control_plane.store import ENDED

FINALIZER: Final = "resource.kubernetes.io/delete-protection"


class UnfitError(Exception):
    """A pod does not fit a node, or cannot be scheduled at all yet."""


@dataclass(slots=True)
class _Plan:
    """What binding a pod to a node writes."""

    node: str
    allocations: list[tuple[Object, Object]]
    special: tuple[SpecialClaim, Object] | None = None


class Scheduler:
    """Binds pods to nodes, and allocates their claims."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._store = objects.store

    def step(self) -> None:
        """Look once at each pod that is not on a node yet, in the order of their creation."""
        pods = sorted(self._store.list(POD), key=lambda one: _age(one["metadata"]))
        for pod in pods:
            if not pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]:
                self._schedule(pod)

    def _schedule(self, pod: Object) -> None:
        reasons: list[str] = []
        try:
            claims = self._claims_of(pod)
            for node in self._store.list(NODE):
                try:
                    plan = self._plan(pod, claims, node)
                except UnfitError as error:
                    reasons.append(str(error))
                    continue
                self._bind(pod, plan)
                return
        except UnfitError as error:
            self._tell(pod, str(error))
            return
        counted = sorted(Counter(reasons).items())
        why = ", ".join(f"{count} {reason}" for reason, count in counted)
        self._tell(pod, f"0/{len(reasons)} nodes are available: {why}.")

    # What a pod needs

    def _claims_of(self, pod: Object) -> list[Object]:
        made = {
            one["name"]: one.get("resourceClaimName")
            for one in pod["status"].get("resourceClaimStatuses", ())
        }
        found = []
        for one in pod["spec"].get("resourceClaims", ()):
            name = one.get("resourceClaimName") or made.get(one["name"])
            if name is None:
                raise UnfitError(f"waiting for resource claim {one['name']} to be created")
            claim = self._store.find(RESOURCE_CLAIM, pod["metadata"]["namespace"], name)
            if claim is None:
                raise UnfitError(f'resourceclaim "{name}" not found')
            if "deletionTimestamp" in claim["metadata"]:
                raise UnfitError(f'resourceclaim "{name}" is being deleted')
            found.append(claim)
        return found

    def _plan(self, pod: Object, claims: list[Object], node: Object) -> _Plan:
        _check_node(pod, node)
        name = node["metadata"]["name"]
        classes = {one["metadata"]["name"]: one for one in self._store.list(DEVICE_CLASS)}
        through_dra = self._extended(pod, node, classes)
        special = special_claim(pod, through_dra) if through_dra else None
        allocated = [one.get("status", {}).get("allocation") for one in claims]
        if any(one and not _is_for(one, name) for one in allocated):
            raise UnfitError("resourceclaim not available on the node")
        missing = [one for one, has in zip(claims, allocated, strict=True) if not has]
        gates = self._objects.gates
        allocator = Allocator(
            pools_of(self._store.list(RESOURCE_SLICE), name, counters=gates.counters),
            in_use(self._store.list(RESOURCE_CLAIM), counts_shares=gates.shares),
            classes,
            [*missing, *([special.claim] if special else [])],
            new_share=self._store.new_uid,
            gates=gates,
        )
        found = iter(_found(allocator, name))
        plan = [(one, has or next(found)) for one, has in zip(claims, allocated, strict=True)]
        return _Plan(name, plan, (special, next(found)) if special else None)

    def _extended(self, pod: Object, node: Object, classes: Mapping[str, Object]) -> dict[str, str]:
        """Return the resources that this node offers through DRA, and their classes.

        All pods of the node count as users of what they ask for, even if DRA gave it to them.
        """
        allocatable = node.get("status", {}).get("allocatable", {})
        here = [one for one in self._store.list(POD) if _is_on(one, node["metadata"]["name"])]
        found = {}
        for resource, count in requests_of(pod).items():
            if not count:
                continue
            there = amount(allocatable.get(resource, "0"))
            name = class_of(resource, classes.values())
            if name and not there:
                found[resource] = name
            elif count > there - sum(requests_of(one).get(resource, 0) for one in here):
                raise UnfitError(f"Insufficient {resource}")
        return found

    # What is written

    def _bind(self, pod: Object, plan: _Plan) -> None:
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        for claim, allocation in plan.allocations:
            self._reserve(claim, allocation, pod)
        status: Object = {}
        if plan.special is not None:
            special, allocation = plan.special
            claim = self._objects.create(RESOURCE_CLAIM, namespace, special.claim)
            self._reserve(claim, allocation, pod)
            status["extendedResourceClaimStatus"] = {
                "requestMappings": special.mappings,
                "resourceClaimName": claim["metadata"]["name"],
            }
        condition = {"type": "PodScheduled", "status": "True"}

        def bind(draft: Object) -> None:
            draft["spec"]["nodeName"] = plan.node
            draft["status"] |= {**status, "conditions": [condition]}

        self._store.change(POD, namespace, name, bind)

    def _reserve(self, claim: Object, allocation: Object, pod: Object) -> None:
        user = {"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}

        now = self._store.now()

        def reserve(draft: Object) -> None:
            status = draft.setdefault("status", {})
            status["allocation"] = {"allocationTimestamp": now, **allocation}
            users = [one for one in status.get("reservedFor", ()) if one["uid"] != user["uid"]]
            status["reservedFor"] = [*users, user]
            draft["metadata"]["finalizers"] = [FINALIZER]

        metadata = claim["metadata"]
        self._store.change(RESOURCE_CLAIM, metadata["namespace"], metadata["name"], reserve)

    def _tell(self, pod: Object, message: str) -> None:
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        conditions = [{**condition, "message": message}]
        metadata = pod["metadata"]
        self._store.change(
            POD,
            metadata["namespace"],
            metadata["name"],
            lambda draft: draft["status"].update(conditions=conditions),
        )


def in_use(claims: Iterable[Object], *, counts_shares: bool) -> InUse:
    devices: set[DeviceKey] = set()
    shares: dict[DeviceKey, list[Amounts]] = {}
    groups: dict[DeviceKey, Groups] = {}
    for claim in claims:
        allocation = claim.get("status", {}).get("allocation") or {}
        for result in allocation.get("devices", {}).get("results", ()):
            if result.get("adminAccess"):
                continue
            key = DeviceKey(result["driver"], result["pool"], result["device"])
            groups[key] = result.get("compatibilityGroups", {})
            if counts_shares and result.get("shareID"):
                shares.setdefault(key, []).append(result.get("consumedCapacity", {}))
            else:
                devices.add(key)
    return InUse(frozenset(devices), {key: total(each) for key, each in shares.items()}, groups)


def _found(allocator: Allocator, node: str) -> list[Object]:
    try:
        found = allocator.allocate(node)
    except (AllocationError, SelectorError) as error:
        raise UnfitError(f"cannot allocate all claims: {error}") from error
    if found is None:
        raise UnfitError("cannot allocate all claims")
    return found


def _check_node(pod: Object, node: Object) -> None:
    labels, wanted = node["metadata"].get("labels", {}), pod["spec"].get("nodeSelector", {})
    if any(labels.get(key) != value for key, value in wanted.items()):
        raise UnfitError("node(s) didn't match Pod's node affinity/selector")
    taints = list(node.get("spec", {}).get("taints", ()))
    if node.get("spec", {}).get("unschedulable"):
        taints.append({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"})
    if unwanted := untolerated(taints, pod["spec"].get("tolerations", ())):
        taint = unwanted[0]
        raise UnfitError(
            f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"
        )


def _is_for(allocation: Object, node: str) -> bool:
    """Return whether an allocation can be used on ``node``, as the scheduler writes it."""
    terms = allocation.get("nodeSelector", {}).get("nodeSelectorTerms", ())
    fields = [field for term in terms for field in term.get("matchFields", ())]
    return not fields or any(node in field["values"] for field in fields)


def _is_on(pod: Object, node: str) -> bool:
    return pod["spec"].get("nodeName") == node and pod["status"]["phase"] not in ENDED


def _age(metadata: Object) -> tuple[str, int]:
    return metadata["creationTimestamp"], int(metadata["resourceVersion"])
