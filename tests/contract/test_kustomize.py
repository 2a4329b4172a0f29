"""Our renderer: what it does not know of kustomize is an error; what a component changes."""

import json
from pathlib import Path
from typing import Any

import pytest

from deviceplugin_operator.manifests import Manifest
from kustomize import KustomizationError, difference, render

DAEMON_SET = {"kind": "DaemonSet", "metadata": {"name": "d"}, "spec": {"a": 1}}
KUSTOMIZATION = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}


def rendered(folder: Path, **spec: Any) -> Any:
    (folder / "d.yaml").write_text(json.dumps(DAEMON_SET))
    told = {**KUSTOMIZATION, "resources": ["d.yaml"], **spec}
    (folder / "kustomization.yaml").write_text(json.dumps(told))
    return render(folder)


def patch(text: object) -> dict[str, Any]:
    return {"patches": [{"target": {"kind": "DaemonSet"}, "patch": json.dumps(text)}]}


def test_what_is_known_is_rendered(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("a: 1\n")
    options = {"disableNameSuffixHash": True}
    entry = {"name": "config", "files": ["a.yaml"], "options": options}
    operation = {"op": "add", "path": "/spec/b", "value": 2}
    changed, made = rendered(tmp_path, configMapGenerator=[entry], **patch([operation]))
    assert {**DAEMON_SET, "spec": {"a": 1, "b": 2}} == changed
    assert {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "config"},
        "data": {"a.yaml": "a: 1\n"},
    } == made


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (
            {"configMapGenerator": [{"name": "a", "files": []}]},
            "configMapGenerator: {} is not known here",
        ),
        ({"kind": "Component"}, "is not a Kustomization of v1beta1"),
        ({"commonLabels": {}}, "'commonLabels' is not supported here"),
        ({"labels": [{"fields": []}]}, r"labels: \['fields'\] are not pairs and includeSelectors"),
        (patch([{"op": "move", "path": "/a", "value": 1}]), "'move' is not supported here"),
    ],
)
def test_what_is_not_known_is_an_error(tmp_path: Path, spec: dict[str, Any], said: str) -> None:
    with pytest.raises(KustomizationError, match=said):
        rendered(tmp_path, **spec)


@pytest.mark.parametrize(
    ("before", "after", "patch"),
    [
        ({"a": True, "b": {"c": [1]}, "d": "x"}, {"a": False, "b": {"c": []}, "d": ""}, None),
        ({"a": 1, "b": {"c": 1}}, {"b": {}}, {"a": None, "b": {"c": None}}),
        ({"a": {"b": 1}}, {"a": {"b": 1}}, {}),
        ({}, {"env": []}, {"env": []}),
        (
            {"env": [{"name": "a"}, {"name": "b", "value": "1"}, {"name": "c"}]},
            {"env": [{"name": "d"}, {"name": "b", "value": "2"}, {"name": "c"}]},
            {
                "env": [
                    {"name": "a", "$patch": "delete"},
                    {"name": "d"},
                    {"name": "b", "value": "2"},
                ]
            },
        ),
    ],
)
def test_what_a_component_changes_is_found(
    before: Manifest, after: Manifest, patch: Manifest | None
) -> None:
    assert (after if patch is None else patch) == difference(before, after)
