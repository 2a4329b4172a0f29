"""What is deployed of the operator: narrow rights, a confined pod, samples that are valid."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from deviceplugin_operator import names
from deviceplugin_operator.crd.catalogue import PLUGINS
from deviceplugin_operator.crd.specification import read
from deviceplugin_operator.manifests import components, template
from deviceplugin_operator.rollout import desired
from kustomize import DEPLOYMENTS, documents, render
from manifests.kustomize import container_of, kustomized, render_by_kustomize
from operators.crd_documents import FOLDER, SAMPLES, SPEC, refused

ROOT = Path(__file__).parents[2]
SPACE = "deviceplugin-operator"


def manifests(folder: str) -> list[Any]:
    files = sorted(one for one in (FOLDER / folder).glob("*.yaml") if "kustom" not in one.name)
    return [one for file in files for one in documents(file.read_text())]


def of_kind(kind: str, folder: str = "operator", *, namespace: str = SPACE) -> Any:
    (found,) = (
        one
        for one in manifests(folder)
        if one["kind"] == kind and one["metadata"].get("namespace", namespace) == namespace
    )
    return found


def test_the_rights_are_these_and_no_others() -> None:
    group = names.GROUP
    assert [
        ([group], ["deviceplugins"], ["get", "list", "watch"]),
        ([group], ["deviceplugins/status"], ["patch"]),
        ([""], ["nodes"], ["list", "watch"]),
        (["resource.k8s.io"], ["resourceslices"], ["list", "watch"]),
        (["resource.k8s.io"], ["deviceclasses"], ["list"]),
    ] == [tuple(rule.values()) for rule in of_kind("ClusterRole")["rules"]]
    assert [
        (["apps"], ["daemonsets"], ["get", "list", "watch", "create", "update", "patch", "delete"]),
        ([""], ["configmaps"], ["get", "list", "watch", "create", "delete"]),
        ([""], ["pods"], ["list", "watch", "delete"]),
    ] == [tuple(rule.values()) for rule in of_kind("Role")["rules"]]
    events = {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]}
    assert [events] == of_kind("Role", namespace="default")["rules"]
    subject = {"kind": "ServiceAccount", "name": SPACE, "namespace": SPACE}
    for kind in ("RoleBinding", "ClusterRoleBinding"):
        assert [subject] == of_kind(kind)["subjects"]
    assert [subject] == of_kind("RoleBinding", namespace="default")["subjects"]
    name = of_kind("Role", namespace="default")["metadata"]["name"]
    assert name == of_kind("RoleBinding", namespace="default")["roleRef"]["name"]


def test_kustomize_leaves_each_object_in_its_namespace() -> None:
    rendered = kustomized(FOLDER / "operator")
    wanted = sorted(
        (one["kind"], one["metadata"].get("namespace")) for one in manifests("operator")
    )
    placed = ((one["kind"], one["metadata"].get("namespace")) for one in rendered)
    assert wanted == sorted(placed)


def test_the_operator_is_confined_and_alone() -> None:
    spec = of_kind("Deployment")["spec"]
    assert (1, {"type": "Recreate"}) == (spec["replicas"], spec["strategy"])
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert {
        "privileged": False,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    } == container["securityContext"]
    assert not [one for one in pod["volumes"] if "hostPath" in one]
    assert "memory" in container["resources"]["limits"]
    assert "ports" not in container
    file = next(one for one in container["args"] if "--alive=" in one).removeprefix("--alive=")
    assert file.startswith(f"{container['volumeMounts'][0]['mountPath']}/")
    for probe in ("startupProbe", "livenessProbe"):
        command = ["python3", "-m", "deviceplugin_operator.liveness", file]
        assert command == container[probe]["exec"]["command"]
    policy = of_kind("NetworkPolicy")["spec"]
    assert ["Ingress", "Egress"] == policy["policyTypes"]
    assert "ingress" not in policy
    assert (
        policy["podSelector"]["matchLabels"].items()
        <= spec["template"]["metadata"]["labels"].items()
    )


def test_what_must_outlive_the_operator_is_not_deleted_with_it() -> None:
    apart = {one["kind"] for one in manifests("crd")}
    assert {"CustomResourceDefinition", "Namespace", "ServiceAccount"} <= apart
    assert not {"CustomResourceDefinition", "Namespace"} & {
        one["kind"] for one in manifests("operator")
    }


@pytest.mark.parametrize("kind", ["ResourceQuota", "NetworkPolicy"])
def test_plugins_have_here_what_they_have_in_their_own_namespaces(kind: str) -> None:
    file = ROOT / f"deployments/base/{kind.lower()}.yaml"
    assert yaml.safe_load(file.read_text())["spec"] == of_kind(kind, "crd")["spec"]
    assert of_kind("ServiceAccount", "crd")["automountServiceAccountToken"] is False


@pytest.mark.parametrize("folder", ["crd", "operator", "limits"])
def test_kubernetes_takes_the_manifests(folder: str) -> None:
    for one in manifests(folder):
        one.get("metadata", {}).setdefault("namespace", SPACE)
        if one["kind"] not in {"CustomResourceDefinition", "DevicePluginLimits"}:
            kubernetes_validate.validate(one, "1.32", strict=True)
    rendered = render_by_kustomize(FOLDER / folder)
    assert rendered is None or len(rendered) == len(manifests(folder))


@pytest.mark.parametrize("file", SAMPLES, ids=lambda one: one.stem)
def test_a_sample_is_valid_and_makes_objects_that_kubernetes_takes(file: Path) -> None:
    (found,) = documents(file.read_text())
    assert [] == refused(SPEC, found["spec"])
    owner = {**found, "metadata": {**found["metadata"], "uid": "u-1"}}
    wanted = read(owner)
    for variant in wanted.variants:
        made = desired.revision(wanted, variant, "registry.example.com/")
        for one in (
            desired.config_map(owner, variant.profile, made, SPACE),
            desired.daemon_set(owner, variant.profile, made, SPACE),
        ):
            kubernetes_validate.validate(one, "1.32", strict=True)
        pod = desired.daemon_set(owner, variant.profile, made, SPACE)["spec"]["template"]["spec"]
        image = found["spec"].get(
            "image", f"registry.example.com/{wanted.plugin}-device-plugin:0.1.0"
        )
        containers = [*pod["containers"], *pod.get("initContainers", ())]
        assert {image} == {one["image"] for one in containers}
        of_another_release = desired.revision(wanted, variant, "registry.example.com/of-another-")
        assert ("image" in found["spec"]) == (made.name == of_another_release.name)
        stored = desired.config_map(owner, variant.profile, made, SPACE)
        assert made == desired.of_config_map(stored)


def test_there_is_a_sample_of_each_plugin() -> None:
    plugins = {yaml.safe_load(one.read_text())["spec"]["plugin"] for one in SAMPLES}
    assert {*PLUGINS, "custom"} == plugins


def test_a_config_map_that_is_not_of_ours_has_no_revision() -> None:
    pods = ("{", "[" * 100_000)
    for data in (None, {}, *({"config.yaml": "", "pod.json": one} for one in pods)):
        with pytest.raises(ValueError, match="the ConfigMap a has no revision"):
            desired.of_config_map({"metadata": {"name": "a"}, "data": data})


def test_patches_together_make_what_kustomize_makes_of_the_components() -> None:
    plugin = "gpu"
    for chosen in [*pairwise(components()), components()[:4], components()[4:]]:
        places = [DEPLOYMENTS / "components" / name for name in chosen]
        wanted = next(
            one for one in render(DEPLOYMENTS / plugin, places) if one["kind"] == "DaemonSet"
        )
        variables = frozenset(one["name"] for one in container_of([wanted])["env"])
        assert wanted == template(plugin, chosen, variables).daemon_set, chosen
