"""What the containers that are deployed may ask of the API server."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from manifests.plugin_settings import driver_directory
from manifests.rights import bound, by_container

Manifest = Mapping[str, Any]

_CREATE_EVENTS = [{"apiGroups": [""], "resources": ["events"], "verbs": ["create"]}]
_EVICT = [
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]},
    *_CREATE_EVENTS,
]
_PATCH_NODES = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "patch"]}]
_FIND_PODS = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}]
_BESIDE: Mapping[str, list[object]] = {
    "evict": [_FIND_PODS, _EVICT],
    "startup-taint": [_FIND_PODS, _PATCH_NODES],
}
"""What pods of their own may do, which are for all nodes of a plugin."""
_UNLIMITED = {"evict"}
"""Containers whose Events are in the namespaces of pods."""
_LIMITED = {"resourceslices", "events", "nodes"}
"""What a policy must limit, whoever may change it with the token of a plugin or a node's pod."""
_USE_SCC = {
    "apiGroups": ["security.openshift.io"],
    "resources": ["securitycontextconstraints"],
    "verbs": ["use"],
}
_GET_NODES = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}]
"""For a plugin that reads an annotation of its node."""
_DRA = [
    {
        "apiGroups": ["resource.k8s.io"],
        "resources": ["resourceslices"],
        "verbs": ["list", "watch", "create", "update", "delete"],
    },
    {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims"], "verbs": ["get"]},
]
"""For a plugin that offers devices through DRA; a policy limits it to the slices of its node and
to those of its driver, whose name its account has."""
_PUBLISH = {
    "apiGroups": ["resource.k8s.io"],
    "resources": ["resourceslices/driver"],
    "verbs": ["publish"],
}


def access_problems(manifests: Sequence[Manifest], container: Manifest) -> Iterator[str]:
    """Yield what is wrong with the rights that there are; ``container`` is the plugin's."""
    asks = any(one["name"] == "DP_NODE_ANNOTATION" for one in container.get("env", ()))
    has_dra = driver_directory(container) is not None
    account = next(one["metadata"] for one in manifests if one["kind"] == "ServiceAccount")
    use = [{**_USE_SCC, "resourceNames": [account["name"]]}]
    may: dict[str, list[object]] = {f"{account['name']}-{one}": _BESIDE[one] for one in _BESIDE}
    may[account["name"]] = [_CREATE_EVENTS, use]
    driver = account.get("annotations", {}).get("deviceplugin.dev/driver")
    dra = [*_DRA, {**_PUBLISH, "resourceNames": [driver]}]
    may[account["name"]] += [*([_GET_NODES] if asks else []), *([dra] if has_dra else [])]
    for name, role in bound(manifests):
        if role["rules"] not in may.get(name, ()):
            yield f"{role['kind']}: {name} may {role['rules']}"
    for binding in (one for one in manifests if one["kind"].endswith("RoleBinding")):
        for subject in binding["subjects"]:
            place = subject["kind"], subject.get("namespace")
            if place != ("ServiceAccount", account["namespace"]):
                yield f"{binding['kind']}: is for {subject}"
    found = by_container(manifests)
    if not (asks or has_dra) and container["name"] in found:
        yield "container: has a token"
    for name, rights in found.items():
        yield from (
            f"container {name}: may {right} without a policy"
            for right in rights
            if {"create", "update", "patch"} & {*re.split(r"\W+", right)}
            and right.rpartition(" ")[2] in _LIMITED
            and name not in _UNLIMITED
        )
