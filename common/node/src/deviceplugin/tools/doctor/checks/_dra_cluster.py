"""What DRA needs of the cluster: its API, a feature, and the rights of this pod."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from deviceplugin.checks import Finding, Node, failure, ok, unknown, warning
from deviceplugin.errors import ConfigError
from deviceplugin.tools.doctor._check import Check

if TYPE_CHECKING:
    from deviceplugin.apiserver import ApiServer

_GROUP: Final = "resource.k8s.io"
_API: Final = f"/apis/{_GROUP}"
_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_RIGHTS: Final = {
    "resourceslices": ("list", "watch", "create", "update", "delete"),
    "resourceclaims": ("get",),
}
_COMPONENT: Final = "apply the ClusterRole and its binding of the component dra."
_EXTENDED: Final = (
    "kubectl get deviceclass -o yaml: a class that was created with extendedResourceName has it "
    "only if the feature DRAExtendedResource is on, as by default from Kubernetes 1.36."
)


def _check(node: Node) -> Iterator[Finding]:
    settings = node.settings
    if settings.protocol != "dra" and not settings.api_server:
        yield ok("API server", "is not asked; only protocol=dra needs it")
        return
    from deviceplugin.apiserver import ApiServer, ApiServerError, ForbiddenError

    timeout = node.timeout
    try:
        api = (
            ApiServer(settings.api_server, timeout=timeout)
            if settings.api_server
            else ApiServer.of_pod(timeout=timeout)
        )
    except ConfigError as error:
        yield unknown("API server", str(error), "run it in the plugin's pod, or set api-server.")
        return
    try:
        yield _served(api)
        yield from _rights(api)
    except ApiServerError as error:
        yield failure(
            api.url,
            str(error),
            means="claims cannot be read and slices cannot be written: pods with claims wait.",
            do=_COMPONENT
            if isinstance(error, ForbiddenError)
            else "check the network and policies.",
        )
        return
    try:
        yield _extended(api)
    except ApiServerError as error:
        yield unknown("feature DRAExtendedResource", str(error), _EXTENDED)


def _served(api: "ApiServer") -> Finding:
    from deviceplugin.apiserver import NotFoundError

    try:
        api.get(f"{_API}/v1")
    except NotFoundError:
        return failure(
            f"{_GROUP}/v1",
            "is not served",
            means="slices and claims need it: no pod gets a device through DRA.",
            do="use Kubernetes 1.34 or newer, or protocol=device-plugin.",
        )
    return ok(f"{_GROUP}/v1", "is served")


def _rights(api: "ApiServer") -> Iterator[Finding]:
    denied = [
        f"{verb} {resource}"
        for resource, verbs in _RIGHTS.items()
        for verb in verbs
        if not _may(api, verb, resource)
    ]
    if denied:
        yield failure(
            "rights of this account",
            f"it may not {', '.join(denied)}",
            means="claims cannot be prepared, or devices are not offered.",
            do=_COMPONENT,
        )
    else:
        yield ok("rights of this account", "suffice for claims and slices")


def _may(api: "ApiServer", verb: str, resource: str) -> bool:
    asked = {"group": _GROUP, "resource": resource, "verb": verb}
    review: Any = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": asked},
    }
    return bool((api.create(_REVIEWS, review).get("status") or {}).get("allowed"))


def _extended(api: "ApiServer") -> Finding:
    classes = api.list(f"{_API}/v1/deviceclasses").items
    named = sorted(
        f"{one['spec']['extendedResourceName']} by {one['metadata']['name']}"
        for one in classes
        if one.get("spec", {}).get("extendedResourceName")
    )
    if named:
        return ok("extended resources", f"are given through DRA: {', '.join(named)}")
    return warning(
        "extended resources",
        f"none of {len(classes)} DeviceClasses has an extendedResourceName",
        means="a pod gets devices through claims only, not by limits such as example.com/gpu: 1.",
        do="apply the DeviceClass of the component dra; if it has the field and loses it, turn on "
        "the feature DRAExtendedResource (Kubernetes 1.36 has it on).",
    )


CHECK: Final = Check("dra-cluster", "API, rights and classes that DRA needs", _check)
