"""What the API server makes of an object, and what it refuses, by kind."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from deviceplugin_testing.simulator._control_plane.kinds import (
    DEVICE_CLASS,
    EVENT,
    NAMESPACE,
    POD,
    RESOURCE_CLAIM,
    RESOURCE_CLAIM_TEMPLATE,
    RESOURCE_SLICE,
    Kind,
    Object,
)
from deviceplugin_testing.simulator._control_plane.quantities import canonical
from deviceplugin_testing.simulator._control_plane.refusals import (
    FieldError,
    forbidden,
    invalid,
    invalid_object,
    not_found,
    required,
    unhandled,
)
from deviceplugin_testing.simulator._control_plane.rules import claims
from deviceplugin_testing.simulator._control_plane.rules.device_status import drop_deallocated
from deviceplugin_testing.simulator._control_plane.rules.fields import drop_empty
from deviceplugin_testing.simulator._control_plane.rules.names import check_metadata, segment
from deviceplugin_testing.simulator._control_plane.rules.slices import check_slice
from deviceplugin_testing.simulator._control_plane.store import Store

_SPEC: Final = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "serviceAccountName": "default",
    "schedulerName": "default-scheduler",
}


def add_pod_defaults(pod: Object) -> None:
    """Add what the server adds, and make limits requests."""
    spec = pod.setdefault("spec", {})
    for name, value in _SPEC.items():
        spec.setdefault(name, value)
    pod.setdefault("status", {}).setdefault("phase", "Pending")
    for container in containers(pod):
        resources = container.setdefault("resources", {})
        for amounts in ("limits", "requests"):
            found = resources.get(amounts, {})
            resources |= {amounts: {name: _written(one) for name, one in found.items()}}
        resources["requests"] = {**resources["limits"], **resources["requests"]}


def containers(pod: Object) -> list[Object]:
    """Return the containers, those that run first included."""
    return [*pod["spec"].get("initContainers", ()), *pod["spec"].get("containers", ())]


def owned_by(pod: Object) -> Object:
    """Return the entry of ``ownerReferences`` of a claim that is made for ``pod``."""
    own = {name: pod["metadata"][name] for name in ("name", "uid")}
    flags = {"controller": True, "blockOwnerDeletion": True}
    return {"apiVersion": "v1", "kind": "Pod", **own, **flags}


def check_pod(new: Object, old: Object | None = None) -> Iterator[FieldError]:
    del old
    if not new["spec"].get("containers"):
        yield required("spec.containers")
    claims = new["spec"].get("resourceClaims", [])
    for index, claim in enumerate(claims):
        sources = [f"{{`{name}`}}" for name in _SOURCES if claim.get(name)]
        if len(sources) != 1:
            names = " or ".join(f"`{name}`" for name in _SOURCES)
            problem = f"at most one of {names} may be specified"
            if not sources:
                problem = f"must specify one of: {', '.join(f'`{name}`' for name in _SOURCES)}"
            shown = {go: claim.get(name) for go, name in _GO_NAMES}
            yield invalid(f"spec.resourceClaims[{index}]", shown, problem)
    known = [claim["name"] for claim in claims]
    for field in ("initContainers", "containers"):
        for index, container in enumerate(new["spec"].get(field, [])):
            place = f"spec.{field}[{index}].resources"
            yield from _check_resources(place, container["resources"], known)


def check_event(new: Object, old: Object | None = None) -> Iterator[FieldError]:
    """Yield what is wrong with an Event: it is in the namespace of what it is about, or default."""
    del old
    about = new.get("involvedObject", {}).get("namespace", "")
    if new["metadata"]["namespace"] != (about or "default"):
        yield invalid("involvedObject.namespace", about, "does not match event.namespace")


_EVENT: Final[Object] = {
    "involvedObject": {},
    "source": {},
    **dict.fromkeys(("eventTime", "firstTimestamp", "lastTimestamp")),
    **dict.fromkeys(("reportingComponent", "reportingInstance"), ""),
}
_SOURCES: Final = ("resourceClaimName", "resourceClaimTemplateName")
_GO_NAMES: Final = (
    ("Name", "name"),
    ("ResourceClaimName", "resourceClaimName"),
    ("ResourceClaimTemplateName", "resourceClaimTemplateName"),
)


def _check_resources(place: str, resources: Object, known: list[str]) -> Iterator[FieldError]:
    for name, wanted in resources["requests"].items():
        limit = resources["limits"].get(name)
        if "/" in name and limit is None:
            yield required(f"{place}.limits", "Limit must be set for non overcommitable resources")
        elif "/" in name and limit != wanted:
            problem = f"must be equal to {name} limit of {limit}"
            yield invalid(f"{place}.requests", wanted, problem)
    for index, claim in enumerate(resources.get("claims", [])):
        if claim["name"] not in known:
            names = f": {', '.join(known)}" if known else " which is empty"
            problem = f"must be one of the names in pod.spec.resourceClaims{names}"
            yield not_found(f"{place}.claims[{index}]", claim["name"], problem)


def _written(amount: object) -> str:
    try:
        return canonical(amount)
    except ValueError as error:
        raise unhandled(POD, str(error)) from error


ADMIN_LABEL: Final = "resource.kubernetes.io/admin-access"
_CHECKS: Final[Mapping[Kind, Callable[[Object, Object | None], Iterator[FieldError]]]] = {
    RESOURCE_SLICE: check_slice,
    RESOURCE_CLAIM: claims.check_claim,
    RESOURCE_CLAIM_TEMPLATE: claims.check_claim,
    DEVICE_CLASS: claims.check_class,
    POD: check_pod,
    EVENT: check_event,
}

_SELECTING: Final = (RESOURCE_CLAIM, RESOURCE_CLAIM_TEMPLATE, DEVICE_CLASS)


def admit(store: Store, kind: Kind, made: Object, *, includes: bool = False) -> None:
    """Add defaults to a new object; raise ``RefusedError``.

    ``includes`` says whether selectors may have the method of this name.
    """
    made.pop("status", None) if kind == RESOURCE_CLAIM else None
    add_defaults(store, kind, made)
    names = (segment,) if kind == EVENT else ()
    errors = [
        *check_metadata(made["metadata"], *names),
        *_check(kind, made, None, includes=includes),
    ]
    if kind == RESOURCE_CLAIM:
        errors += _check_admin_access(store, made)
    _refuse(kind, made, errors)


def admit_change(
    store: Store, kind: Kind, old: Object, new: Object, part: str = "", *, includes: bool = False
) -> None:
    """Add defaults to a changed object, or to its subresource; raise ``RefusedError``."""
    if part == "status":
        if kind == RESOURCE_CLAIM:
            drop_deallocated(new, old)
            _refuse(kind, new, [*claims.check_status(new, old)])
        return
    add_defaults(store, kind, new)
    _refuse(
        kind, new, [*check_metadata(new["metadata"]), *_check(kind, new, old, includes=includes)]
    )


def add_defaults(store: Store, kind: Kind, made: Object) -> None:
    if kind == RESOURCE_SLICE:
        for device in made["spec"].get("devices", ()):
            for taint in device.get("taints", ()):
                taint.setdefault("timeAdded", store.now())
    elif kind == RESOURCE_CLAIM:
        claims.add_defaults(made["spec"])
        made.setdefault("status", {})
    elif kind == RESOURCE_CLAIM_TEMPLATE:
        claims.add_defaults(made["spec"]["spec"])
    elif kind == POD:
        add_pod_defaults(made)
    elif kind == EVENT:
        made.update({**_EVENT, **made})


def _check(kind: Kind, new: Object, old: Object | None, *, includes: bool) -> Iterator[FieldError]:
    if kind in _CHECKS:
        yield from _CHECKS[kind](new, old)
    if kind in _SELECTING and not includes:
        yield from claims.check_methods(new, old)


def _check_admin_access(store: Store, claim: Object) -> Iterator[FieldError]:
    space = store.find(NAMESPACE, "", claim["metadata"]["namespace"]) or {"metadata": {}}
    if space["metadata"].get("labels", {}).get(ADMIN_LABEL) == "true":
        return
    for index, request in enumerate(claims.requests_of(claim["spec"])):
        if request.get("exactly", {}).get("adminAccess"):
            place = f"spec.devices.requests[{index}].adminAccess"
            rule = f"requires the `{ADMIN_LABEL}: true` label on the containing namespace"
            yield forbidden(place, f"admin access to devices {rule}")


def _refuse(kind: Kind, made: Object, errors: list[FieldError]) -> None:
    if errors:
        raise invalid_object(kind, made["metadata"].get("name", ""), errors)
    drop_empty(kind, made)
