"""The values of the operator's chart."""

from pathlib import Path
from typing import Any

import pytest
import yaml

import versions
from manifests.helm import helm, template
from manifests.kustomize import of_kind

NAME = "deviceplugin-operator"
DIGEST = f"sha256:{'0' * 64}"
OURS = {"nodeSelector": {"a": "b"}, "priorityClassName": "high", "tolerations": []}


TAGGED = f"{NAME}:{versions.current()}"
ELSEWHERE = {"image": {"registry": "r"}, "env": [{"name": "IMAGE_PREFIX", "value": "other/"}]}
IMAGES: list[tuple[dict[str, Any], str, str | None]] = [
    ({}, TAGGED, None),
    ({"image": {"registry": "r:5000/hw"}}, f"r:5000/hw/{TAGGED}", "r:5000/hw/"),
    ({"image": {"registry": "r", "digest": DIGEST}}, f"r/{NAME}@{DIGEST}", "r/"),
    (ELSEWHERE, f"r/{TAGGED}", "other/"),
]


@pytest.mark.parametrize(("values", "image", "prefix"), IMAGES)
def test_the_plugins_come_from_where_the_operator_comes_from(
    values: Any, image: str, prefix: str | None, operator_chart: Path
) -> None:
    deployment = of_kind(template(operator_chart, values), "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    environment = {one["name"]: one.get("value") or None for one in container["env"]}
    assert (image, prefix) == (container["image"], environment["IMAGE_PREFIX"])


def test_it_is_in_the_namespace_of_the_release_but_for_its_events(operator_chart: Path) -> None:
    rendered = template(operator_chart, OURS, "--namespace=hw")
    spaces = {(one["kind"], one["metadata"].get("namespace", "")) for one in rendered}
    assert {"", "default", "hw"} == {namespace for _, namespace in spaces}
    assert {"Role", "RoleBinding"} == {kind for kind, namespace in spaces if namespace == "default"}
    bindings = [one for one in rendered if one["kind"].endswith("Binding")]
    assert {"hw"} == {one["subjects"][0]["namespace"] for one in bindings}
    pod = of_kind(rendered, "Deployment")["spec"]["template"]["spec"]
    linux = {"kubernetes.io/os": "linux"}
    assert {**OURS, "nodeSelector": linux | {"a": "b"}}.items() <= pod.items()


@pytest.mark.parametrize("crds", [{"enabled": False}, {"enabled": True}, None])
def test_its_kinds_can_be_installed_apart(crds: Any, operator_chart: Path) -> None:
    found = [one["kind"] for one in template(operator_chart, {"crds": crds})]
    expected = 0 if crds == {"enabled": False} else 2
    assert expected == found.count("CustomResourceDefinition")
    assert 2 == found.count("ServiceAccount")


def test_wrong_values_are_refused_and_the_shown_ones_taken(operator_chart: Path) -> None:
    with pytest.raises(ValueError, match="device-plugins-operator") as refused:
        template(operator_chart, {"crd": {}, "image": {"tga": "1"}, "env": {}})
    for fault in ("Additional property crd", "Additional property tga", "env: Invalid type"):
        assert fault in str(refused.value)
    shown = helm("show", "values", operator_chart)
    assert template(operator_chart, yaml.safe_load(shown))
