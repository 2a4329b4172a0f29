"""What the stand-in for an API server takes: by Kubernetes' own schemas, and a few other rules."""

from functools import cache
from typing import Any

import kubernetes_validate

from cluster.defaults import add_defaults
from cluster.kinds import ACCOUNT, DAEMON_SET, NAMESPACE, POD, Kind, Object
from cluster.store import RefusedError, Store

VERSION = "1.32"
"""Of Kubernetes; there are schemas for it, and it is the newest that each kubectl at hand takes."""
# It reads megabytes of schemas for each object.
kubernetes_validate.utils.schema_contents = cache(kubernetes_validate.utils.schema_contents)
_LEVEL = "pod-security.kubernetes.io/enforce"


def admit(store: Store, kind: Kind, namespace: str, made: Object) -> None:
    """Refuse what a cluster would not create, and make of the rest what it would."""
    made.setdefault("metadata", {})
    if kind.namespaced:
        made["metadata"].setdefault("namespace", namespace)
        _check_namespace(store, kind, namespace, made)
    check(kind, made)
    if kind == POD:
        _check_pod(store, namespace, made)
    add_defaults(kind, made)


def admit_change(kind: Kind, old: Object, new: Object) -> None:
    """The same for a change."""
    check(kind, new)
    if kind == DAEMON_SET and old["spec"]["selector"] != new["spec"]["selector"]:
        raise _invalid(kind, new, "spec.selector: Invalid value: field is immutable")
    status = new.get("status")
    add_defaults(kind, new)
    if status is not None:
        new["status"] = status


def check(kind: Kind, made: Object) -> None:
    if made.get("kind") != kind.name or made.get("apiVersion") != kind.api_version:
        message = (
            f"the object provided is unrecognized: {made.get('apiVersion')} {made.get('kind')}"
        )
        raise RefusedError(400, "BadRequest", message)
    try:
        kubernetes_validate.validate(made, VERSION, strict=True)
    except kubernetes_validate.SchemaNotFoundError:
        pass  # an operator's, whose schema is in the cluster only
    except kubernetes_validate.ValidationError as error:
        raise _of_schema(kind, made, error) from error
    if kind == DAEMON_SET:
        labels = made["spec"]["template"].get("metadata", {}).get("labels", {})
        if not made["spec"]["selector"]["matchLabels"].items() <= labels.items():
            message = "spec.template.metadata.labels: Invalid value: `selector` does not match"
            raise _invalid(kind, made, message)


def _of_schema(kind: Kind, made: Object, error: Any) -> RefusedError:
    place = ".".join(str(part) for part in error.path)
    if error.validator == "required":
        return _invalid(kind, made, f"{place}: Required value: {error.message}")
    problem = f"json: {place}: {error.message}"
    if error.validator == "additionalProperties":
        unknown = sorted(set(error.instance) - set(error.schema.get("properties", ())))
        fields = (f'unknown field "{place}.{name}"'.replace('"."', '"') for name in unknown)
        problem = f"strict decoding error: {', '.join(fields)}"
    text = f'{kind.name} in version "v1" cannot be handled as a {kind.name}: {problem}'
    return RefusedError(400, "BadRequest", text)


def _invalid(kind: Kind, made: Object, message: str) -> RefusedError:
    name = made["metadata"].get("name", "")
    return RefusedError(422, "Invalid", f'{kind.qualified} "{name}" is invalid: {message}')


def _check_namespace(store: Store, kind: Kind, namespace: str, made: Object) -> None:
    if made["metadata"]["namespace"] != namespace:
        message = (
            "the namespace of the provided object does not match the namespace sent on the request"
        )
        raise RefusedError(400, "BadRequest", message)
    if "deletionTimestamp" in store.get(NAMESPACE, "", namespace)["metadata"]:
        name = made["metadata"].get("name", "")
        raise _forbidden(
            f'{kind.resource} "{name}" is forbidden: unable to create new content in namespace '
            f"{namespace} because it is being terminated"
        )


def _check_pod(store: Store, namespace: str, pod: Object) -> None:
    name = f'pods "{pod["metadata"].get("name", "")}" is forbidden'
    account = pod["spec"].get("serviceAccountName", "default")
    if not store.exists(ACCOUNT, namespace, account):
        missing = f'serviceaccount "{account}" not found'
        raise _forbidden(
            f"{name}: error looking up service account {namespace}/{account}: {missing}"
        )
    labels = store.get(NAMESPACE, "", namespace)["metadata"]["labels"]
    level = labels.get(_LEVEL, "privileged")
    problems = [] if level == "privileged" else sorted(set(_violations(pod["spec"], level)))
    if problems:
        raise _forbidden(f'{name}: violates PodSecurity "{level}:latest": {", ".join(problems)}')


def _violations(spec: Object, level: str) -> list[str]:
    """Return what the level forbids, of the fields that plugins and their users set."""
    found = [name for name in ("hostNetwork", "hostPID", "hostIPC") if spec.get(name)]
    found += ["hostPath volumes" for one in spec.get("volumes", ()) if "hostPath" in one]
    around = spec.get("securityContext", {})
    for container in [*spec["containers"], *spec.get("initContainers", ())]:
        own = {**around, **container.get("securityContext", {})}
        found += ["privileged"] * bool(own.get("privileged"))
        if level == "restricted":
            found += _restricted(own)
    return found


def _restricted(context: Object) -> list[str]:
    fit = {
        "allowPrivilegeEscalation != false": context.get("allowPrivilegeEscalation") is False,
        "unrestricted capabilities": context.get("capabilities") == {"drop": ["ALL"]},
        "runAsNonRoot != true": context.get("runAsNonRoot") is True,
        "runAsUser=0": context.get("runAsUser") != 0,
        "seccompProfile": context.get("seccompProfile", {}).get("type") == "RuntimeDefault",
    }
    return [problem for problem, holds in fit.items() if not holds]


def _forbidden(message: str) -> RefusedError:
    return RefusedError(403, "Forbidden", message)
