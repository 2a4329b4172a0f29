"""The page on deploying says of components, rights and settings what there is."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from manifests.expected import AGENT, COMPONENTS, owner
from manifests.kustomize import Manifest, container_of, overlay, render
from manifests.rights import Rights, by_container, combined, rows

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "common/docs/deploying.md").read_text()
RIGHTFUL = sorted(path.parent.name for path in ROOT.glob("deployments/components/*/rbac.yaml"))
PLUGIN = "fpga"
"""It can be given each of them."""


def rights(place: Path, *components: str) -> dict[str, Rights]:
    place.mkdir()
    return by_container(render(overlay(place, PLUGIN, *components)))


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Mapping[tuple[str, ...], Any]:
    root = tmp_path_factory.mktemp("rights")
    return {names: rights(root / "-".join(names), *names) for names in combined(RIGHTFUL)}


def test_the_page_has_the_rights_of_each_component_pair_and_all(
    known: Mapping[tuple[str, ...], Any],
) -> None:
    table = PAGE.partition("| Components | Containers with a token |")[2]
    assert rows(known) == re.findall(r"^\| `.*$", table.partition("\n\n")[0], re.MULTILINE)


def test_only_components_with_roles_bring_rights(tmp_path: Path) -> None:
    others = {*COMPONENTS} - {*RIGHTFUL}
    found = {
        name: rights(tmp_path / name, name) for name in others if owner(name) in {None, PLUGIN}
    }
    assert {} == {name: all_ for name, all_ in found.items() if all_}


def test_no_combination_gives_the_plugins_pod_what_is_for_all_nodes(
    known: Mapping[tuple[str, ...], Any],
) -> None:
    found = {
        right: {
            container
            for containers in known.values()
            for container, all_ in containers.items()
            if any(one.endswith(f" {right}") for one in all_)
        }
        for right in ("pods/eviction", "nodes*", "pods in its namespace")
    }
    assert {
        "pods/eviction": {"evict"},
        "nodes*": {"startup-taint"},
        "pods in its namespace": {"evict", "startup-taint"},
    } == found


def pod_of(*names: str, mounted: str = "", auto: bool | None = False) -> Manifest:
    token = {"name": "token", "projected": {"sources": [{"serviceAccountToken": {}}]}}
    mount = [{"name": "token", "mountPath": "/token"}]
    containers = [
        {"name": name, "volumeMounts": mount if name == mounted else []} for name in names
    ]
    spec: Manifest = {"serviceAccountName": "a", "containers": containers, "volumes": [token]}
    if auto is not None:
        spec["automountServiceAccountToken"] = auto
    return {"kind": "DaemonSet", "metadata": {"name": "d"}, "spec": {"template": {"spec": spec}}}


ROLE = {
    "kind": "Role",
    "metadata": {"name": "r"},
    "rules": [{"resources": ["x", "y"], "verbs": ["get", "list"]}],
}
BINDING = {
    "kind": "RoleBinding",
    "metadata": {"name": "b"},
    "roleRef": {"kind": "Role", "name": "r"},
    "subjects": [{"kind": "ServiceAccount", "name": "a"}, {"kind": "Group", "name": "a"}],
}


@pytest.mark.parametrize(
    ("pod", "who"),
    [
        (pod_of("one", "two"), []),
        (pod_of("one", "two", mounted="two"), ["two"]),
        (pod_of("one", "two", auto=True), ["one", "two"]),
        (pod_of("one", "two", auto=None), ["one", "two"]),
    ],
)
def test_whoever_mounts_a_token_has_all_rights_of_the_account(
    pod: Manifest, who: list[str]
) -> None:
    own = frozenset({"get, list x in its namespace", "get, list y in its namespace"})
    assert dict.fromkeys(who, own) == by_container([pod, ROLE, BINDING])


def test_every_component_is_on_the_page() -> None:
    general = [one for one in COMPONENTS if owner(one) != AGENT]
    table = PAGE.partition("## Change it")[2].partition("\n## ")[0]
    named = re.findall(r"^\| `([\w-]+)` \|", table, re.MULTILINE)
    assert sorted([*general, f"{AGENT}-PLUGIN"]) == sorted(named)


def test_requests_and_limits_are_those_of_the_base() -> None:
    found = container_of(render(ROOT / "deployments/base"))["resources"]
    cpu, memory = found["requests"]["cpu"], found["requests"]["memory"]
    text = f"{cpu}, {memory}; {found['limits']['memory']}"
    assert f"| requests and limits | {text.replace('Mi', ' Mi')} |" in PAGE


def test_what_may_be_written_to_is_what_is_mounted() -> None:
    (row,) = re.findall(r"^\| writable mounts of the host \| ([^|]+)", PAGE, re.MULTILINE)
    named = set(re.findall(r"`([^`]+)`", row))
    written = set()
    for path in ROOT.glob("deployments/*/kustomization.yaml"):
        text = path.read_text()
        for name in re.findall(r"name: (\w+), mountPath: [\w/.-]+}", text):
            written.update(re.findall(rf"name: {name}, hostPath: {{path: ([\w/.-]+)", text))
    assert named == written | {"/var/run/cdi"}
