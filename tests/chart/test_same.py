"""The chart renders what kustomize renders, and is safe in the same way."""

import json
from pathlib import Path

import pytest

import chart
import release
from kustomize import documents
from manifests.expected import COMPONENTS, PLUGINS, expected, fitting, owner
from manifests.helm import helm, template
from manifests.kustomize import in_order, of_kind, overlay, render

ROOT = Path(__file__).parents[2]


def offered(plugin: str) -> list[str]:
    """Return the components that the chart has for a plugin: not those that it has already."""
    has = {*expected(plugin).included, *chart.NOT_OFFERED}
    return [one for one in fitting(plugin) if one not in has]


@pytest.mark.parametrize("plugin", PLUGINS)
def test_a_plugin_is_as_kustomize_renders_it(
    plugin: str, chart_folder: Path, tmp_path: Path
) -> None:
    chosen = offered(plugin)
    for components in ((), chosen):
        values = {"enabled": True, "components": dict.fromkeys(components, True)}
        rendered = template(chart_folder, {plugin: values})
        assert in_order(render(overlay(tmp_path, plugin, *components))) == in_order(rendered)
    file = json.loads((chart_folder / "files" / f"{plugin}.json").read_text())
    assert chosen == sorted(file["components"])


@pytest.mark.parametrize("component", sorted({*COMPONENTS} - chart.NOT_OFFERED))
def test_a_component_is_as_kustomize_renders_it(
    component: str, chart_folder: Path, tmp_path: Path
) -> None:
    assert owner(component) == chart.owner(component)
    plugin = owner(component) or "gopher"
    on = component in offered(plugin)
    values = {plugin: {"enabled": True, "components": {component: True} if on else {}}}
    rendered = template(chart_folder, values)
    assert in_order(render(overlay(tmp_path, plugin, component))) == in_order(rendered)


def test_all_plugins_fit_together(chart_folder: Path) -> None:
    values = {plugin: {"enabled": True} for plugin in PLUGINS}
    rendered = template(chart_folder, values)
    apart = [one for plugin in PLUGINS for one in render(ROOT / "deployments" / plugin)]
    assert in_order(apart) == in_order(rendered)


def test_the_chart_is_well_formed(chart_folder: Path) -> None:
    assert "1 chart(s) linted, 0 chart(s) failed" in helm("lint", "--strict", chart_folder)
    every = {plugin: {"enabled": True} for plugin in PLUGINS}
    assert "0 chart(s) failed" in helm("lint", "--strict", chart_folder, values=every)


def test_a_packed_chart_is_the_same_chart(chart_folder: Path, tmp_path: Path) -> None:
    packed = tmp_path / "chart.tgz"
    chart.pack(chart_folder, packed)
    first = packed.read_bytes()
    chart.pack(chart_folder, packed)
    assert first == packed.read_bytes()
    values = {"gpu": {"enabled": True}}
    assert template(chart_folder, values) == template(packed, values)
    assert f"version: {release.version()}\n" in helm("show", "chart", packed)


def test_a_chart_and_its_alerts_say_where_they_come_from(tmp_path: Path) -> None:
    home = "https://git.example.com/hw/plugins"
    chart.write(tmp_path / "made", lambda _, __: documents(f"{PLUGIN}---\n{RULE}"), home)
    assert f"home: {home}\nsources:\n- {home}\n" in (tmp_path / "made/Chart.yaml").read_text()
    objects = json.loads((tmp_path / "made/files/gopher.json").read_text())["objects"]
    page = f"{home}/blob/v{release.version()}/common/docs/runbooks.md#deviceunhealthy"
    assert page == of_kind(objects, "PrometheusRule")["spec"]["runbook_url"]
    assert (ROOT / chart.RUNBOOKS).exists()


RULE = """
kind: PrometheusRule
metadata: {name: x}
spec: {runbook_url: common/docs/runbooks.md#deviceunhealthy}
"""
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
      containers: [{name: device-plugin, image: "x:1"}]
      volumes: [{name: config, configMap: {name: x-config}}]
"""
