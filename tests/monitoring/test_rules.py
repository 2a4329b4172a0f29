"""The alerts, by Prometheus' own tool; and that each has its runbook."""

import json
import re
import shutil
import subprocess
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families
from typing_extensions import override

import runbooks
import versions
from deviceplugin_template import SerialPlugin
from deviceplugin_testing.fixture import Kubelet, Node
from manifests.kustomize import kustomized, of_kind, overlay
from scripted_plugin import ScriptedPlugin

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deployments/components/monitoring/rules.yaml"
RUNBOOKS = (ROOT / "common/docs/runbooks.md").read_text(encoding="utf-8")
ALERTS = Path(__file__).with_name("alerts.yaml")

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None,
    reason="needs promtool: apt-get install prometheus",
)


def spec() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(RULES.read_text(encoding="utf-8"))["spec"]
    return found


def rules() -> list[dict[str, Any]]:
    return [rule for group in spec()["groups"] for rule in group["rules"]]


def promtool(*words: str, cwd: Path, text: str = "") -> str:
    result = subprocess.run(
        ["promtool", *words], cwd=cwd, input=text, capture_output=True, text=True, check=False
    )
    assert 0 == result.returncode, result.stdout + result.stderr
    return result.stdout + result.stderr


@needs_promtool
def test_alerts_fire_when_they_should_and_not_before(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(spec()), encoding="utf-8")
    shutil.copy(ALERTS, tmp_path)
    assert f"SUCCESS: {len(rules())} rules found" in promtool(
        "check", "rules", "rules.yaml", cwd=tmp_path
    )
    assert "SUCCESS" in promtool("test", "rules", ALERTS.name, cwd=tmp_path)


def test_every_alert_is_tested_to_fire() -> None:
    tests = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["tests"]
    steps = [step for test in tests for step in test["alert_rule_test"]]
    alerts = {rule["alert"] for rule in rules()}
    assert alerts == {step["alertname"] for step in steps if step.get("exp_alerts")}
    assert alerts == {step["alertname"] for step in steps if not step.get("exp_alerts")}


def test_every_alert_has_its_runbook() -> None:
    assert [rule["alert"] for rule in rules()] == re.findall(r"^## (\w+)$", RUNBOOKS, re.MULTILINE)


HOME = "https://git.example.com/hw/plugins"


def test_links_are_to_the_page_of_the_version_in_the_chart_and_in_a_patch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = f"{HOME}/blob/v{versions.current()}/{runbooks.PAGE}"
    expected = [f"{page}#{rule['alert'].lower()}" for rule in rules()]
    runbooks.main([f"{HOME}/"])
    printed = yaml.safe_load(capsys.readouterr().out)
    assert runbooks.link({"spec": spec()}, page.removesuffix(f"/{runbooks.PAGE}")) == {
        "spec": printed["spec"]
    }
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(printed), encoding="utf-8")
    place = overlay(tmp_path, "gopher", "monitoring") / "kustomization.yaml"
    patches = {"patches": [{"path": "rules.yaml"}]}
    place.write_text(json.dumps({**json.loads(place.read_text()), **patches}))
    (group,) = of_kind(kustomized(tmp_path), "PrometheusRule")["spec"]["groups"]
    assert expected == [rule["annotations"]["runbook_url"] for rule in group["rules"]]
    assert (ROOT / runbooks.PAGE).exists()


@pytest.mark.parametrize(
    ("remote", "expected"),
    [
        (f"{HOME}.git", HOME),
        (HOME, HOME),
        ("https://me:secret@git.example.com/hw/plugins.git/", HOME),
        ("http://git.example.com:8080/hw/plugins", "http://git.example.com:8080/hw/plugins"),
        ("git@git.example.com:hw/plugins.git", HOME),
        ("ssh://git@git.example.com:2222/hw/plugins.git", HOME),
        ("ssh://git@git.example.com/hw/plugins", HOME),
        ("https://me:se@cret@git.example.com/hw/plugins", ""),
        *((one, "") for one in ("", "/srv/plugins.git", "../plugins", "file:///srv/plugins")),
    ],
)
def test_a_browser_finds_a_remote_without_its_credentials(remote: str, expected: str) -> None:
    assert expected == runbooks.address(remote)


def git(checkout: Path, *words: str) -> str:
    named = ["-c", "user.name=x", "-c", "user.email=x", "-c", "init.defaultBranch=main"]
    done = subprocess.run(
        ["git", *named, *words], cwd=checkout, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_before_a_release_links_are_to_the_commit_that_is_published(tmp_path: Path) -> None:
    origin, clone = tmp_path / "origin", tmp_path / "clone"
    origin.mkdir()
    git(origin, "init")
    assert "" == runbooks.published("", "v1", origin)
    git(origin, "commit", "--allow-empty", "--message=first")
    assert "" == runbooks.published("", "v1", origin)
    git(tmp_path, "clone", str(origin), str(clone))
    assert "" == runbooks.published("", "v1", clone)
    first = git(clone, "rev-parse", "HEAD")
    git(clone, "remote", "set-url", "origin", f"{HOME}.git")
    assert f"{HOME}/blob/{first}" == runbooks.published("", "v1", clone)
    git(clone, "commit", "--allow-empty", "--message=not pushed")
    assert f"{HOME}/blob/{first}" == runbooks.published("", "v1", clone)
    assert f"{HOME}/blob/v1" == runbooks.published(HOME, "v1", clone)


def test_who_does_not_know_where_it_is_published_is_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no git
    with pytest.raises(SystemExit, match="give the address of the repository"):
        runbooks.main([])
    for words in (["--help"], [HOME, HOME]):
        with pytest.raises(SystemExit, match="Link alerts to their runbooks"):
            runbooks.main(words)


@needs_promtool
def test_the_names_of_the_metrics_are_as_they_should_be(kubelet: Kubelet, tmp_path: Path) -> None:
    (tmp_path / "ttyUSB0").symlink_to("/dev/null")
    with kubelet.running(SerialPlugin(tmp_path), http_address="127.0.0.1:0") as node:
        node.wait_for("example.com/serial", {"ttyUSB0"})
        node.allocate("ttyUSB0")
        text = scraped(node, "text/plain")
    assert "" == promtool("check", "metrics", cwd=tmp_path, text=text)


class FanPlugin(ScriptedPlugin):
    """Two of them give the same: which fan it is, they do not say."""

    @override
    def metrics(self) -> list[Metric]:
        turning = GaugeMetricFamily("deviceplugin_fan_hertz", "Speed of a fan.", value=15)
        turns = CounterMetricFamily("deviceplugin_fan_turns", "Turns of a fan.", value=9)
        return [turning, turns]


@pytest.mark.parametrize("accept", ["text/plain", "application/openmetrics-text"])
def test_no_sample_is_there_twice_whatever_two_plugins_of_a_class_give(
    kubelet: Kubelet, tmp_path: Path, accept: str
) -> None:
    plugins = [FanPlugin("fan0", resource=f"example.com/{name}") for name in ("fan", "blower")]
    with kubelet.running(*plugins, http_address="127.0.0.1:0") as node:
        node.wait_for("example.com/blower", {"fan0"})
        text = scraped(node, accept)
    parse = openmetrics if "openmetrics" in accept else text_string_to_metric_families
    samples = [sample for family in parse(text) for sample in family.samples]
    names = Counter((sample.name, frozenset(sample.labels.items())) for sample in samples)
    assert {1} == set(names.values())
    assert [15.0, 9.0] == [s.value for s in samples if s.name.startswith("deviceplugin_fan_")]
    if shutil.which("promtool") and parse is text_string_to_metric_families:
        assert "" == promtool("check", "metrics", cwd=tmp_path, text=text)


def scraped(node: Node, accept: str) -> str:
    """Return what Prometheus gets."""
    url = f"http://127.0.0.1:{node.host.http_port}/metrics"
    with urllib.request.urlopen(urllib.request.Request(url, headers={"Accept": accept})) as answer:
        return str(answer.read().decode())
