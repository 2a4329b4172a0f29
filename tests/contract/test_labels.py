"""Objects say what they are a part of, and of which version."""

from pathlib import Path

import pytest
import yaml

import release
from manifests.kustomize import overlay, render, render_by_kustomize

ROOT = Path(__file__).parents[2]
PLUGINS = sorted(path.parent.name for path in ROOT.glob("deployments/*/config.yaml"))
PART = {"app.kubernetes.io/part-of": "device-plugins"}
VERSION = {"app.kubernetes.io/version": release.version()}
FILES = sorted(
    path for path in ROOT.glob("deployments/components/*/*.yaml") if "kustom" not in path.name
)


@pytest.mark.parametrize("plugin", PLUGINS)
def test_objects_of_a_plugin_have_its_version(plugin: str, tmp_path: Path) -> None:
    name = {"app.kubernetes.io/name": f"{plugin}-device-plugin"}
    for one in render(overlay(tmp_path, plugin)):
        assert (PART | VERSION | name).items() <= one["metadata"]["labels"].items(), one["kind"]


def test_pods_are_not_replaced_for_a_label() -> None:
    (daemon_set,) = (
        one for one in render(ROOT / "deployments/gopher") if one["kind"] == "DaemonSet"
    )
    both = (daemon_set["spec"]["template"]["metadata"], daemon_set["spec"]["selector"])
    assert "part-of" not in str(both)
    assert "version" not in str(both)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_objects_of_a_component_say_what_they_are_a_part_of(path: Path) -> None:
    for one in yaml.safe_load_all(path.read_text()):
        assert PART.items() <= one["metadata"]["labels"].items(), one["kind"]


@pytest.mark.parametrize("folder", ["crd", "operator"])
def test_objects_of_the_operator_say_what_they_are_a_part_of(folder: str) -> None:
    rendered = render_by_kustomize(ROOT / "deployments/operator" / folder)
    if rendered is None:
        pytest.skip("no kustomize")
    wanted = PART | VERSION if folder == "operator" else PART
    for one in rendered:
        assert wanted.items() <= one["metadata"]["labels"].items(), one["kind"]
