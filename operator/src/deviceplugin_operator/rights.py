"""What an administrator applies once, so that objects can use DRA. The operator has no right to."""

import json
from collections.abc import Collection, Iterable, Iterator
from fnmatch import fnmatchcase

import yaml

from deviceplugin_operator import manifests, names
from deviceplugin_operator.crd.specification import Wanted
from deviceplugin_operator.manifests import Manifest

_RBAC = "rbac.authorization.k8s.io"
_OPERATOR = "deviceplugin-operator"
_PART = {"app.kubernetes.io/part-of": "device-plugins"}


def rendered(
    objects: Iterable[Wanted], namespace: str, chosen: Collection[str] | None = None
) -> str:
    """Return YAML with accounts, roles and policies of ``objects``, and their DeviceClasses.

    ``chosen`` are the resources that need a class; None: all whose names are known.
    """
    found: dict[str, Manifest] = {}
    for wanted in objects:
        if wanted.driver:
            made = [*_rights(wanted, namespace), *_classes(wanted, chosen)]
            found |= {f"{one['kind']} {one['metadata']['name']}": one for one in made}
    plain = json.loads(json.dumps([*found.values()]))  # whose equal parts are no aliases
    return "".join(f"---\n{yaml.safe_dump(one, sort_keys=False)}" for one in plain)


def _rights(wanted: Wanted, namespace: str) -> Iterator[Manifest]:
    """Yield what the pods need, and then the mark by which the operator knows that it is there."""
    account = names.account(wanted.plugin, wanted.name)
    yield from manifests.rights(account, wanted.driver, namespace)
    right = names.deploys(account)
    rule = {
        "apiGroups": [right["group"]],
        "resources": [f"{right['resource']}/{right['subresource']}"],
        "resourceNames": [right["name"]],
        "verbs": [right["verb"]],
    }
    metadata = {"name": f"{account}:deploy:{namespace}", "labels": _PART}
    role = {"apiGroup": _RBAC, "kind": "ClusterRole", "name": metadata["name"]}
    subject = {"kind": "ServiceAccount", "name": _OPERATOR, "namespace": namespace}
    head = {"apiVersion": f"{_RBAC}/v1", "metadata": metadata}
    yield {"kind": "ClusterRole", **head, "rules": [rule]}
    yield {"kind": "ClusterRoleBinding", **head, "roleRef": role, "subjects": [subject]}


def _classes(wanted: Wanted, chosen: Collection[str] | None) -> Iterator[Manifest]:
    patterns = {name for one in wanted.variants if one.before for name in one.resources}
    if chosen is None:
        chosen = [name for name in patterns if "*" not in name]
    known = manifests.classes(wanted.plugin)
    for name in sorted(chosen):
        if any(fnmatchcase(name, one) for one in patterns):
            yield known.get(name) or _class(wanted.driver, name)


def _class(driver: str, resource: str) -> Manifest:
    """Return a class as the plugin prints it, but always with the resource in its name.

    Objects for other nodes can have the same driver with another resource.
    """
    expression = (
        f'device.driver == "{driver}" && device.attributes["{driver}"].resource == "{resource}"'
    )
    domain, _, last = resource.lower().replace("_", "-").partition("/")
    own = f"{last}.{domain}"
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": own if own == driver else f"{last}.{driver}", "labels": _PART},
        "spec": {
            "extendedResourceName": resource,
            "selectors": [{"cel": {"expression": expression}}],
        },
    }
