"""Manifests that are broken on purpose are caught, each with the fault that it has."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from manifests.deployment_policy import problems
from manifests.kustomize import Manifest, container_of, of_kind, overlay, pod_of, render

BROKEN: dict[str, dict[str, Any]] = yaml.safe_load(
    Path(__file__).with_name("broken_manifests.yaml").read_text()
)
PLACES: dict[str, Callable[[list[Manifest]], Any]] = {
    "pod": pod_of,
    "own": container_of,
    "events": lambda m: container_of(m, "events"),
    "driver": lambda m: next(one for one in pod_of(m)["volumes"] if one["name"] == "driver"),
    "config": lambda m: of_kind(m, "ConfigMap")["data"],
}


def edit(manifests: list[Manifest], place: str, *value: object) -> None:
    first, *parents = place.split("/")
    if not parents:
        manifests.remove(of_kind(manifests, first))
        return
    found = PLACES[first](manifests) if first in PLACES else of_kind(manifests, first)
    *parents, last = parents
    for name in parents:
        found = found[int(name) if isinstance(found, list) else name]
    if last == "-":
        found.extend(value)
    elif value:
        found.update({last: value[0]})
    else:
        del found[int(last) if isinstance(found, list) else last]


def token_for_the_plugin(manifests: list[Manifest]) -> None:
    mounts = container_of(manifests, "events")["volumeMounts"]
    container_of(manifests)["volumeMounts"].extend(mounts)


def rights_for_the_plugin(manifests: list[Manifest]) -> None:
    for one in manifests:
        if one["kind"].endswith("RoleBinding"):
            one["subjects"][0]["name"] = "gopher-device-plugin"


def privileged_installer(manifests: list[Manifest]) -> None:
    own = container_of(manifests)
    context = {**own["securityContext"], "privileged": True}
    made = {"name": "install", "image": own["image"], "securityContext": context}
    pod_of(manifests)["initContainers"] = [made]


def each_policy(change: Callable[[Any], object]) -> Callable[[list[Manifest]], object]:
    return lambda m: [change(one["spec"]) for one in m if one["kind"] == "NetworkPolicy"]


OTHERS: dict[str, Callable[[list[Manifest]], object]] = {
    "token_for_the_plugin": token_for_the_plugin,
    "rights_for_the_plugin": rights_for_the_plugin,
    "privileged_installer": privileged_installer,
    "any_port": each_policy(lambda spec: [one.pop("ports") for one in spec.get("egress", ())]),
    "anywhere": each_policy(lambda spec: [one.pop("to", None) for one in spec.get("egress", ())]),
    "open_egress": each_policy(
        lambda spec: spec.update(policyTypes=["Ingress"]) if "egress" in spec else None
    ),
}


@pytest.mark.parametrize(
    ("given", "fault"), [(given, fault) for given, faults in BROKEN.items() for fault in faults]
)
def test_a_manifest_that_is_broken_on_purpose_is_caught(
    given: str, fault: str, tmp_path: Path
) -> None:
    plugin, *components = given.split()
    manifests, how = render(overlay(tmp_path, plugin, *components)), BROKEN[given][fault]
    if isinstance(how, str):
        OTHERS[how](manifests)
    else:
        for one in how:
            edit(manifests, *one)
    found = problems(manifests, f"{plugin}-device-plugin")
    # A driver without its variable has other faults as well.
    assert fault in found if "dra" in components else fault.splitlines() == found
