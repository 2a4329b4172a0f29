"""The ResourceClaims of a pod: whether they are there, allocated, reserved for it and used."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from deviceplugin.apiserver import ApiServer, ApiServerError, NotFoundError
from deviceplugin.checks import Finding, failure, ok, unknown, warning
from deviceplugin.kit.log import few

_API: Final = "/apis/resource.k8s.io/v1"
_OTHERS: Final = 3


def look(api: ApiServer, pod: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield what is wrong with each claim of ``pod``, also with that of an extended resource."""
    spec, status = pod["spec"], pod.get("status") or {}
    made = {
        one["name"]: one.get("resourceClaimName")
        for one in status.get("resourceClaimStatuses") or ()
    }
    containers = [*(spec.get("initContainers") or ()), *spec["containers"]]
    used = {
        claim["name"]
        for one in containers
        for claim in (one.get("resources") or {}).get("claims") or ()
    }
    for one in spec.get("resourceClaims") or ():
        name = one.get("resourceClaimName") or made.get(one["name"])
        if name:
            yield from _claim(api, pod, name)
        else:
            yield from _not_made(api, pod["metadata"]["namespace"], one)
        if one["name"] not in used:
            yield warning(
                f"claim {one['name']}",
                "no container has it in resources.claims",
                means="its devices are reserved for the pod, and no container gets them.",
                do=f"add resources.claims: [{{name: {one['name']}}}] to the container.",
            )
    if extended := (status.get("extendedResourceClaimStatus") or {}).get("resourceClaimName"):
        yield from _claim(api, pod, extended)


def _not_made(api: ApiServer, namespace: str, claim: Mapping[str, Any]) -> Iterator[Finding]:
    name = f"claim {claim['name']}"
    template = claim.get("resourceClaimTemplateName", "")
    try:
        api.get(f"{_API}/namespaces/{namespace}/resourceclaimtemplates/{template}")
    except NotFoundError:
        yield failure(
            name,
            f"there is no ResourceClaimTemplate {template} in {namespace}",
            means="the claim cannot be made, and the pod waits for it.",
            do=f"create it, or correct the name: kubectl get resourceclaimtemplates -n {namespace}",
        )
    except ApiServerError as error:
        yield unknown(name, f"its template cannot be read: {error}", _right("get", "templates"))
    else:
        yield unknown(name, f"has not been made yet from its template {template}", "wait.")


def _right(verb: str, what: str) -> str:
    return f"give this account the right to {verb} resourceclaim{what}."


def _claim(api: ApiServer, pod: Mapping[str, Any], name: str) -> Iterator[Finding]:
    namespace, looked_at = pod["metadata"]["namespace"], f"resourceclaim {name}"
    try:
        claim = api.get(f"{_API}/namespaces/{namespace}/resourceclaims/{name}")
    except NotFoundError:
        means = "the pod waits until somebody creates it."
        do = f"create it, or correct the name: kubectl get resourceclaims -n {namespace}"
        yield failure(looked_at, f"does not exist in {namespace}", means=means, do=do)
        return
    except ApiServerError as error:
        yield unknown(looked_at, f"cannot be read: {error}", _right("get", "s"))
        return
    status = claim.get("status") or {}
    if not status.get("allocation"):
        yield from _not_allocated(api, claim, looked_at)
        return
    holders = [one.get("name", "") for one in status.get("reservedFor") or ()]
    uids = {one.get("uid") for one in status.get("reservedFor") or ()}
    given = [
        f"{one['device']} of {one['driver']}"
        for one in (status["allocation"].get("devices") or {}).get("results") or ()
    ]
    if pod["metadata"]["uid"] in uids or not holders:
        yield ok(looked_at, f"has {', '.join(given) or 'no devices'}")
    else:
        yield warning(
            looked_at,
            f"is reserved for {few(holders, _OTHERS)}, and not for this pod",
            means="this pod can only run on the same node, as long as they run.",
            do="use a resourceClaimTemplateName for a claim of its own.",
        )
    yield from _tainted(status, looked_at)


def _tainted(status: Mapping[str, Any], looked_at: str) -> Iterator[Finding]:
    for device in status.get("devices") or ():
        for one in device.get("conditions") or ():
            if one.get("type") == "Ready" and one.get("status") == "False":
                said = ": ".join(filter(None, (one.get("reason"), one.get("message"))))
                yield warning(
                    looked_at,
                    f"{device['device']} of {device['driver']} is not ready: {said}",
                    means="its driver says that the pod cannot use this device.",
                    do="as it says; look at the log of the driver.",
                )


def _not_allocated(api: ApiServer, claim: Mapping[str, Any], looked_at: str) -> Iterator[Finding]:
    requests = ((claim.get("spec") or {}).get("devices") or {}).get("requests") or ()
    exact = [one.get("exactly") or {} for one in requests]
    exact += [each for one in requests for each in one.get("firstAvailable") or ()]
    classes = {one["deviceClassName"] for one in exact if one.get("deviceClassName")}
    for name in sorted(classes):
        try:
            api.get(f"{_API}/deviceclasses/{name}")
        except NotFoundError:
            yield failure(
                looked_at,
                f"there is no DeviceClass {name}",
                means="no device can be chosen for the claim, and its pods wait.",
                do="correct deviceClassName: kubectl get deviceclasses",
            )
        except ApiServerError as error:
            do = "give this account the right to get deviceclasses."
            yield unknown(f"deviceclass {name}", f"cannot be read: {error}", do)
    yield unknown(
        looked_at,
        "is not allocated",
        "the scheduler does so with the first pod that fits; see what it says of the pod.",
    )
