"""What containers may do with the tokens that they mount, as rendered manifests say.

A token is an account's: whoever has one has all rights of the account, whichever component they
came with.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

Manifest = Mapping[str, Any]
Rights = frozenset[str]
"""Such as ``get nodes``; with a star where an admission policy limits it."""
_WORKLOADS = ("DaemonSet", "Deployment")


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
