"""The chart renders what kustomize renders, and is safe in the same way."""

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

import chart
import versions
from kustomize import documents
from manifests.expected import COMPONENTS, PLUGINS, expected, fitting, owner
from manifests.helm import helm, template
from manifests.kustomize import Manifest, in_order, overlay, render

ROOT = Path(__file__).parents[2]
KEPT = {"helm.sh/resource-policy": "keep"}
LABELS = {
    *(f"app.kubernetes.io/{name}" for name in ("instance", "managed-by", "part-of", "version")),
    "helm.sh/chart",
}
"""Labels that a release adds; kustomize has two of them on most objects."""


def offered(plugin: str) -> list[str]:
    """Return the components that the chart has for a plugin: not those that it has already."""
    has = {*expected(plugin).included, *chart.NOT_OFFERED}
    return [one for one in fitting(plugin) if one not in has]


def values_of(plugin: str, *components: str) -> dict[str, Any]:
    """Return values by which a plugin is in the namespace that kustomize gives it."""
    chosen = dict.fromkeys(components, True)
    namespace = f"{plugin}-device-plugin"
    return {plugin: {"enabled": True, "namespace": namespace, "components": chosen}}


def plain(manifests: list[Manifest]) -> Any:
    """Return manifests in order, without the labels that a release has beside kustomize's."""
    found = deepcopy(manifests)
    for one in found:
        pod = one.get("spec", {}).get("template", {})
        for labelled in (one["metadata"], pod.get("metadata", {})):
            labels = labelled.get("labels", {})
            for key in LABELS & labels.keys():
                del labels[key]
    return in_order(found)


@pytest.mark.parametrize("plugin", PLUGINS)
def test_a_plugin_is_as_kustomize_renders_it(
    plugin: str, chart_folder: Path, tmp_path: Path
) -> None:
    chosen = offered(plugin)
    for components in ((), chosen):
        rendered = template(chart_folder, values_of(plugin, *components))
        assert plain(render(overlay(tmp_path, plugin, *components))) == plain(rendered)
    file = json.loads((chart_folder / "files" / f"{plugin}.json").read_text())
    assert chosen == sorted(file["components"])


@pytest.mark.parametrize("component", sorted({*COMPONENTS} - chart.NOT_OFFERED))
def test_a_component_is_as_kustomize_renders_it(
    component: str, chart_folder: Path, tmp_path: Path
) -> None:
    assert owner(component) == chart.owner(component)
    plugin = owner(component) or "gopher"
    on = [component] if component in offered(plugin) else []
    rendered = template(chart_folder, values_of(plugin, *on))
    assert plain(render(overlay(tmp_path, plugin, component))) == plain(rendered)


def test_all_plugins_fit_together(chart_folder: Path) -> None:
    values = {key: one for plugin in PLUGINS for key, one in values_of(plugin).items()}
    apart = [one for plugin in PLUGINS for one in render(ROOT / "deployments" / plugin)]
    assert plain(apart) == plain(template(chart_folder, values))


def test_the_operator_is_as_kustomize_renders_it(operator_chart: Path) -> None:
    folders = [ROOT / "deployments/operator" / name for name in ("crd", "operator")]
    apart = [one for folder in folders for one in render(folder) if one["kind"] != "Namespace"]
    rendered = template(operator_chart, {}, "--namespace=deviceplugin-operator")
    kept = [one for one in rendered if one["metadata"].pop("annotations", None) == KEPT]
    assert len(render(folders[0])) - 1 == len(kept)
    assert plain(apart) == plain(rendered)


def test_the_charts_are_well_formed(chart_folder: Path, operator_chart: Path) -> None:
    every = {plugin: {"enabled": True} for plugin in PLUGINS}
    for charts, values in (((chart_folder, operator_chart), None), ((chart_folder,), every)):
        assert "0 chart(s) failed" in helm("lint", "--strict", *charts, values=values)


def test_a_packed_chart_is_the_same_chart(chart_folder: Path, tmp_path: Path) -> None:
    packed = chart.pack(chart_folder, tmp_path)
    first = packed.read_bytes()
    assert packed == chart.pack(chart_folder, tmp_path)
    assert first == packed.read_bytes()
    values = {"gpu": {"enabled": True}}
    assert template(chart_folder, values) == template(packed, values)
    assert f"version: {versions.current()}\n" in helm("show", "chart", packed)


def test_a_chart_says_where_it_comes_from(tmp_path: Path) -> None:
    home = "https://git.example.com/hw/plugins"
    at_version = f"{home}/blob/v{versions.current()}"
    chart.write(tmp_path / "made", lambda _, __: documents(PLUGIN), home)
    metadata = yaml.safe_load((tmp_path / "made/Chart.yaml").read_text())
    assert (home, [home]) == (metadata["home"], metadata["sources"])
    assert f"{at_version}/{chart.ICON}?raw=true" == metadata["icon"]
    assert [{"name": "maintainers of device-plugins", "url": home}] == metadata["maintainers"]
    images = [{"name": "x", "image": "r.example/x:1"}] * len(PLUGINS)
    assert images == yaml.safe_load(metadata["annotations"]["artifacthub.io/images"])
    assert (ROOT / chart.ICON).exists()


def test_a_chart_without_an_address_claims_none(chart_folder: Path, operator_chart: Path) -> None:
    hub = "artifacthub.io/"
    all_ = [
        yaml.safe_load((one / "Chart.yaml").read_text()) for one in (chart_folder, operator_chart)
    ]
    for metadata in all_:
        assert set() == {"home", "icon", "maintainers", "sources"} & metadata.keys()
    of_plugins, of_operator = (metadata["annotations"] for metadata in all_)
    assert {f"{hub}license"} == of_plugins.keys()
    assert {
        f"{hub}operator",
        f"{hub}crds",
        f"{hub}crdsExamples",
    } == of_operator.keys() - of_plugins.keys()
    examples, kinds = (
        yaml.safe_load(of_operator[f"{hub}{key}"]) for key in ("crdsExamples", "crds")
    )
    assert {"DevicePlugin"} == {one["kind"] for one in examples} < {one["kind"] for one in kinds}


PLUGIN = """
kind: ConfigMap
metadata: {name: x-config}
data: {config.yaml: "a: 1\\n"}
---
kind: DaemonSet
metadata: {name: x, namespace: x}
spec:
  template:
    spec:
      containers: [{name: device-plugin, image: "r.example/x:1"}]
      volumes: [{name: config, configMap: {name: x-config}}]
"""
