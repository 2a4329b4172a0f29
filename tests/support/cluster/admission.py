"""What the stand-in for an API server takes: by Kubernetes' own schemas, and a few other rules."""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import deepcopy
from functools import cache, lru_cache
from typing import Any, ClassVar, Final

import kubernetes_validate
from typing_extensions import override

from cluster.defaults import add_defaults
from cluster.kinds import ACCOUNT, DAEMON_SET, NAMESPACE, POD, Kind, Object
from deviceplugin_testing.simulator._control_plane.api_server.objects import Objects
from deviceplugin_testing.simulator._control_plane.kinds import RESOURCE
from deviceplugin_testing.simulator._control_plane.refusals import RefusedError
from deviceplugin_testing.simulator._control_plane.store import Store

_KEYS = {
    "conditions": "type",
    "containers": "name",
    "env": "name",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "ownerReferences": "uid",
    "ports": "containerPort",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
"""Lists whose entries are one if they have the same key; all other lists are taken as a whole."""
_ORDER = "$setElementOrder/"
STRATEGIC = "application/strategic-merge-patch+json"


def patched(found: Object, patch: Object) -> Object:
    """Return ``found`` as the patch says."""
    result = deepcopy(found)
    _merge(result, patch)
    return result


def _merge(place: Object, patch: Object) -> None:
    kept = patch.get("$retainKeys", place)
    for name in set(place) - set(kept):
        del place[name]
    for name, value in patch.items():
        if not name.startswith("$"):
            _merge_field(place, name, value)
    _order(place, patch)


def _merge_field(place: Object, name: str, value: Any) -> None:
    if value is None:
        place.pop(name, None)
    elif isinstance(value, dict):
        # Nothing is merged into what is no object, but the nulls of a patch are never kept.
        inner = place.get(name)
        place[name] = inner if isinstance(inner, dict) else {}
        _merge(place[name], value)
    elif _keyed(name, value):
        _merge_entries(place.setdefault(name, []), value, _KEYS[name])
    else:
        place[name] = deepcopy(value)


def _keyed(name: str, entries: Any) -> bool:
    """Tell whether entries are merged; the ports of a network policy are not a container's."""
    key = _KEYS.get(name, "")
    return isinstance(entries, list) and bool(key) and all(key in entry for entry in entries)


def _merge_entries(place: list[Object], entries: list[Object], key: str) -> None:
    for entry in entries:
        found = next((one for one in place if one.get(key) == entry[key]), None)
        if entry.get("$patch") == "delete":
            if found is not None:
                place.remove(found)
            continue
        if found is None:
            found = {}
            place.append(found)
        _merge(found, entry)


def _order(place: Object, patch: Object) -> None:
    for name, wanted in patch.items():
        if name.startswith(_ORDER):
            entries, key = place.get(name.removeprefix(_ORDER), []), _KEYS[name[len(_ORDER) :]]
            order = [one[key] for one in wanted]
            entries.sort(key=lambda one: order.index(one[key]) if one[key] in order else len(order))


Policy = Callable[[str, Kind, Object, bool], None]
"""Refuses a CREATE, UPDATE or DELETE of an object; the last says whether it is a dry run."""
Wrong = Callable[[Object], bool]
NAME: Final = "guard"


def _by(name: str, kind: Kind, found: Object) -> str:
    return f'{kind.resource} "{found["metadata"]["name"]}" is forbidden: {name}'


def admission_policy(
    kind: Kind, wrong: Wrong, verbs: str = "CREATE UPDATE", *, in_dry_run: bool = True
) -> Policy:
    """Return a ValidatingAdmissionPolicy: 422, with its words as the cause."""

    def ask(verb: str, about: Kind, found: Object, dry: bool) -> None:
        if about == kind and verb in verbs.split() and (in_dry_run or not dry) and wrong(found):
            said = f"ValidatingAdmissionPolicy '{NAME}' with binding '{NAME}' denied request"
            message = _by(f"{said}: not allowed here", kind, found)
            causes = [{"field": "", "message": message}]
            raise RefusedError(422, "Invalid", message, {"causes": causes})

    return ask


def quota(kind: Kind, wrong: Wrong) -> Policy:
    """Return a ResourceQuota that is used up: 403."""

    def ask(verb: str, about: Kind, found: Object, _dry: bool) -> None:
        if about == kind and verb == "CREATE" and wrong(found):
            said = f"exceeded quota: {NAME}, requested: count/{kind.resource}=1"
            raise RefusedError(403, "Forbidden", _by(said, kind, found))

    return ask


def webhook(kind: Kind, wrong: Wrong, code: int, reason: str, said: str) -> Policy:
    """Return a webhook that answers with a code of its own, or not in time: that is 500."""

    def ask(verb: str, about: Kind, found: Object, _dry: bool) -> None:
        if about == kind and verb != "DELETE" and wrong(found):
            raise RefusedError(code, reason, said)

    return ask


VERSION = "1.32"
_OF_SERVER = frozenset({"uid", "resourceVersion", "generation", "creationTimestamp"})
"""Metadata that the server sets by itself."""
"""Of Kubernetes; there are schemas for it, and it is the newest that each kubectl at hand takes."""
# It reads megabytes of schemas for each object.
kubernetes_validate.utils.schema_contents = cache(kubernetes_validate.utils.schema_contents)
_LEVEL = "pod-security.kubernetes.io/enforce"


class CheckedObjects(Objects):
    """The objects of a stand-in for a cluster; ``policies`` is what lets nobody write something."""

    patches: ClassVar = {**Objects.patches, STRATEGIC: patched}

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.policies: list[Policy] = []

    @override
    def read(self, kind: Kind, made: Object) -> Object:
        own = {"apiVersion": kind.api_version, "kind": kind.name}
        known = super().read(kind, made) if kind.group == RESOURCE else made
        return {**known, **own, "metadata": {**known.get("metadata", {})}}

    @override
    def admit(self, kind: Kind, made: Object, *, dry_run: bool) -> None:
        admit(self.store, kind, made)
        if kind.group == RESOURCE:
            super().admit(kind, made, dry_run=dry_run)
        self._ask("CREATE", kind, made, dry_run=dry_run)

    @override
    def admit_change(self, kind: Kind, old: Object, new: Object, part: str) -> None:
        check(kind, new)
        if kind == DAEMON_SET and old["spec"]["selector"] != new["spec"]["selector"]:
            raise _invalid(kind, new, "spec.selector: Invalid value: field is immutable")
        status = new.get("status")
        add_defaults(kind, new)
        if kind.group == RESOURCE:
            super().admit_change(kind, old, new, part)
        if status is not None:
            new["status"] = status
        if not part:
            self._ask("UPDATE", kind, new)

    @override
    def delete(
        self, kind: Kind, namespace: str, name: str, options: Mapping[str, Any] | None = None
    ) -> Object:
        with self.store.changed:
            self._ask("DELETE", kind, self.store.get(kind, namespace, name))
            return super().delete(kind, namespace, name, options)

    def _ask(self, verb: str, kind: Kind, made: Object, *, dry_run: bool = False) -> None:
        for policy in self.policies:
            policy(verb, kind, made, dry_run)


def admit(store: Store, kind: Kind, made: Object) -> None:
    """Refuse what a cluster would not create, and make of the rest what it would."""
    if kind.namespaced:
        _check_namespace(store, kind, made)
    check(kind, made)
    if kind == POD:
        _check_pod(store, made["metadata"]["namespace"], made)
    add_defaults(kind, made)


@lru_cache(1000)
def _validate(text: str) -> None:
    with suppress(kubernetes_validate.SchemaNotFoundError):  # an operator's, as its CRD says
        kubernetes_validate.validate(json.loads(text), VERSION, strict=True)


def check(kind: Kind, made: Object) -> None:
    metadata = {key: one for key, one in made["metadata"].items() if key not in _OF_SERVER}
    try:
        _validate(json.dumps({**made, "metadata": metadata}))
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


def _check_namespace(store: Store, kind: Kind, made: Object) -> None:
    namespace = made["metadata"]["namespace"]
    if "deletionTimestamp" in store.get(NAMESPACE, "", namespace)["metadata"]:
        name = made["metadata"].get("name", "")
        raise _forbidden(
            f'{kind.resource} "{name}" is forbidden: unable to create new content in namespace '
            f"{namespace} because it is being terminated"
        )


def _check_pod(store: Store, namespace: str, pod: Object) -> None:
    name = f'pods "{pod["metadata"].get("name", "")}" is forbidden'
    account = pod["spec"].get("serviceAccountName", "default")
    if store.find(ACCOUNT, namespace, account) is None:
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
