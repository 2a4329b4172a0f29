"""What containers may do with the tokens that they mount, as rendered manifests say.

A token is an account's: whoever has one has all rights of the account, whichever component they
came with. Which rights there may be stands here as well.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from manifests.plugin_settings import driver_directory

Manifest = Mapping[str, Any]
Rights = frozenset[str]
"""Such as ``get nodes``; with a star where an admission policy limits it."""
_WORKLOADS = ("DaemonSet", "Deployment")
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
_LIMITED = {"resourceslices", "resourceclaims/status", "events", "nodes"}
"""What a policy must limit, whoever may change it with the token of a plugin or a node's pod."""
_USE_SCC = {
    "apiGroups": ["security.openshift.io"],
    "resources": ["securitycontextconstraints"],
    "verbs": ["use"],
}
_GET_NODES = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}]
"""For a plugin that reads an annotation of its node, or a container that reads its labels."""
_DRA = [
    {
        "apiGroups": ["resource.k8s.io"],
        "resources": ["resourceslices"],
        "verbs": ["list", "watch", "create", "update", "delete"],
    },
    {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims"], "verbs": ["get"]},
]
"""For a plugin that offers devices through DRA; a policy limits it to the slices of its node and
to those of its driver, whose name its account has, and another to the status of such devices."""
_PUBLISH = {
    "apiGroups": ["resource.k8s.io"],
    "resources": ["resourceslices/driver"],
    "verbs": ["publish"],
}
_REPORT = {
    "apiGroups": ["resource.k8s.io"],
    "resources": ["resourceclaims/driver"],
    "verbs": ["associated-node:patch"],
}
_PATCH_STATUS = {
    "apiGroups": ["resource.k8s.io"],
    "resources": ["resourceclaims/status"],
    "verbs": ["patch"],
}


def by_container(manifests: Sequence[Manifest]) -> dict[str, Rights]:
    """Return the rights of each container that mounts a token."""
    found: dict[str, Rights] = {}
    for workload in (one for one in manifests if one["kind"] in _WORKLOADS):
        pod = workload["spec"]["template"]["spec"]
        tokens = {volume["name"] for volume in pod.get("volumes", ()) if has_token(volume)}
        rights = frozenset(_of_account(manifests, pod["serviceAccountName"]))
        for container in [*pod["containers"], *pod.get("initContainers", ())]:
            mounted = {mount["name"] for mount in container.get("volumeMounts", ())}
            if mounted & tokens or pod.get("automountServiceAccountToken") is not False:
                found[container["name"]] = rights
    return found


def has_token(volume: Manifest) -> bool:
    """Return whether whoever mounts ``volume`` has a token."""
    sources = volume.get("projected", {}).get("sources", ())
    return any("serviceAccountToken" in source for source in sources)


def bound(manifests: Sequence[Manifest]) -> Iterator[tuple[str, Manifest]]:
    """Yield each account with each role that is bound to it."""
    roles = {(one["kind"], one["metadata"]["name"]): one for one in manifests}
    for binding in manifests:
        if binding["kind"].endswith("RoleBinding"):
            role = roles[binding["roleRef"]["kind"], binding["roleRef"]["name"]]
            for subject in binding["subjects"]:
                if subject["kind"] == "ServiceAccount":
                    yield str(subject["name"]), role


def _of_account(manifests: Sequence[Manifest], account: str) -> Iterator[str]:
    limited = {resource for one in manifests for resource in _limited(one, account)}
    for name, role in bound(manifests):
        if name == account:
            where = " in its namespace" if role["kind"] == "Role" else ""
            for rule in role["rules"]:
                for resource in rule["resources"]:
                    star = "*" if resource in limited else ""
                    yield f"{', '.join(rule['verbs'])} {resource}{star}{where}"


def _limited(policy: Manifest, account: str) -> Iterator[str]:
    """Yield the resources whose changes by ``account`` a policy limits."""
    if policy["kind"] != "ValidatingAdmissionPolicy":
        return
    spec = policy["spec"]
    conditions = [
        "".join(re.findall("'([^']*)'", c["expression"])) for c in spec["matchConditions"]
    ]
    if any(text.endswith(f":{account}") for text in conditions):
        for rule in spec["matchConstraints"]["resourceRules"]:
            yield from rule["resources"]


def combined(components: Iterable[str]) -> list[tuple[str, ...]]:
    """Return each component alone, each pair, and all together."""
    names = sorted(components)
    return [*((one,) for one in names), *combinations(names, 2), tuple(names)]


def rows(of: Mapping[tuple[str, ...], Mapping[str, Rights]]) -> list[str]:
    """Return a table's rows, for combinations of components with the rights of their containers.

    A combination in which no container may more than with one of its components is left out, but
    for single ones.
    """
    found = []
    for names, containers in of.items():
        new = {
            container: rights
            for container, rights in containers.items()
            if len(names) == 1
            or all(rights > of[one,].get(container, frozenset()) for one in names)
        }
        for rights in sorted({*new.values()}, key=sorted):
            who = ", ".join(f"`{one}`" for one in sorted(new) if new[one] == rights)
            what = "; ".join(f"{right}" for right in sorted(rights))
            found.append(f"| {' + '.join(f'`{one}`' for one in names)} | {who} | {what} |")
    return found


def access_problems(manifests: Sequence[Manifest], container: Manifest) -> Iterator[str]:
    """Yield what is wrong with the rights that there are; ``container`` is the plugin's."""
    asks = any(one["name"] == "DP_NODE_ANNOTATION" for one in container.get("env", ()))
    has_dra = driver_directory(container) is not None
    account = next(one["metadata"] for one in manifests if one["kind"] == "ServiceAccount")
    use = [{**_USE_SCC, "resourceNames": [account["name"]]}]
    may: dict[str, list[object]] = {f"{account['name']}-{one}": _BESIDE[one] for one in _BESIDE}
    may[account["name"]] = [_CREATE_EVENTS, use]
    driver = account.get("annotations", {}).get("deviceplugin.dev/driver")
    own = [{**one, "resourceNames": [driver]} for one in (_PUBLISH, _REPORT)]
    dra = [*_DRA, *own, _PATCH_STATUS]
    found = by_container(manifests)
    reads = asks or "node-labels" in found
    may[account["name"]] += [*([_GET_NODES] if reads else []), *([dra] if has_dra else [])]
    for name, role in bound(manifests):
        if role["rules"] not in may.get(name, ()):
            yield f"{role['kind']}: {name} may {role['rules']}"
    for binding in (one for one in manifests if one["kind"].endswith("RoleBinding")):
        for subject in binding["subjects"]:
            place = subject["kind"], subject.get("namespace")
            if place != ("ServiceAccount", account["namespace"]):
                yield f"{binding['kind']}: is for {subject}"
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
