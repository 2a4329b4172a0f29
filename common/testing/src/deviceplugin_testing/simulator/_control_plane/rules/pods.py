"""What the API server makes of pods, as far as their devices are concerned."""

from collections.abc import Iterator
from typing import Final

from deviceplugin_testing.simulator._control_plane.kinds import POD, Object
from deviceplugin_testing.simulator._control_plane.quantities import canonical
from deviceplugin_testing.simulator._control_plane.refusals import (
    FieldError,
    invalid,
    not_found,
    required,
    unhandled,
)

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


def check_pod(new: Object, old: Object | None = None) -> Iterator[FieldError]:
    """Yield the errors of a pod."""
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
