"""Each alert on a node that is as it says: it fires, and the commands of its runbook say why."""

import json
import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, cast

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from cluster.small_cluster import why_not
from troubled_nodes import NAMESPACE, OF_PLUGIN, RESOURCE, TROUBLES, node_for

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "common/docs/runbooks.md").read_text(encoding="utf-8")
RULES: Final = yaml.safe_load(
    (ROOT / "deployments/components/monitoring/rules.yaml").read_text(encoding="utf-8")
)["spec"]
LABELS: Final = {"namespace": NAMESPACE, "node": "node-1", "resource": RESOURCE}
POD: Final = "simulated-device-plugin-x7k2p"
"""What Prometheus knows as the plugin's pod."""
MINUTES: Final = {"m": 1, "h": 60, "d": 24 * 60}
pytestmark = pytest.mark.slow  # a node for each alert
each_alert = pytest.mark.parametrize(
    "alert",
    [
        pytest.param(
            alert,
            marks=pytest.mark.skipif(
                alert in OF_PLUGIN and bool(why_not()), reason=why_not() or "-"
            ),
        )
        for alert in TROUBLES
    ],
)


def rule_of(alert: str) -> dict[str, Any]:
    (rule,) = (one for group in RULES["groups"] for one in group["rules"] if one["alert"] == alert)
    return cast("dict[str, Any]", rule)


def commands(text: str) -> list[str]:
    return re.findall(r"^\$ (.+)$", text, re.MULTILINE)


def in_runbook(alert: str) -> list[str]:
    return commands(PAGE.partition(f"\n## {alert}\n")[2].partition("\n## ")[0])


def in_alert(alert: str, pod: str) -> str:
    """Return the command in the description of an alert, with what Prometheus fills in."""
    last = rule_of(alert)["annotations"]["description"].splitlines()[-1]
    filled = re.sub(r"\{\{ range .*?\{\{ end \}\}", pod, last)
    return re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: LABELS[found[1]], filled)


def variables() -> str:
    """Return what the page sets first, with the labels of these tests."""
    sets, finds, *_ = commands(PAGE.partition("\n## ")[0])
    assert ["NAMESPACE", "NODE"] == re.findall(r"(\w+)=", sets)
    return f"NAMESPACE={NAMESPACE} NODE=node-1\n{finds}\n"


def test_there_is_a_node_for_each_alert() -> None:
    alerts = {one["alert"] for group in RULES["groups"] for one in group["rules"]}
    assert {"DeviceHeldLong"} == alerts - {*TROUBLES}, "after a day: alerts.yaml has it"
    assert {*TROUBLES} <= alerts


@each_alert
def test_an_alert_fires_and_its_commands_find_the_cause(alert: str, tmp_path: Path) -> None:
    with node_for(alert) as node:
        scrapes = list(TROUBLES[alert].happens(node))
        given = [*in_runbook(alert), in_alert(alert, node.pod())]
        # The tests of that command are elsewhere.
        here = [one for one in given if not one.startswith("kubectl deviceplugin")]
        said = [node.shell(f"{variables()}{one}") for one in here]
    assert "" not in said
    assert TROUBLES[alert].sign in "".join(said)
    if shutil.which("promtool"):
        last = "stale" if alert == "DevicePluginGone" else ""
        told = fires(alert, scrapes, tmp_path, last).partition("got:")[2]
        assert f'alertname="{alert}"' in told
        assert in_alert(alert, POD) in told


def fires(alert: str, scrapes: Sequence[str], place: Path, last: str) -> str:
    """Return what Prometheus' tool says of an alert, for which each scrape lasts for a minute.

    After them is ``last``, or the last one again until the alert should fire.
    """
    rule = rule_of(alert)
    lasting, unit = re.findall(r"\d+|\w", rule.get("for", "0m"))
    minutes = len(scrapes) + int(lasting) * MINUTES[unit] + 1
    read = [samples(text) for text in scrapes]
    series = []
    for name in {name for one in read for name in one}:
        values = [str(one.get(name, "_")) for one in read]
        series.append(
            {"series": name, "values": " ".join([*values, last or f"{values[-1]}x{minutes}"])}
        )
    wanted = {"eval_time": f"{minutes}m", "alertname": alert, "exp_alerts": []}
    test = {"interval": "1m", "input_series": series, "alert_rule_test": [wanted]}
    whole = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": [test]}
    (place / "rules.yaml").write_text(yaml.safe_dump(RULES), encoding="utf-8")
    (place / "test.yaml").write_text(yaml.safe_dump(whole), encoding="utf-8")
    words = ["promtool", "test", "rules", "test.yaml"]
    done = subprocess.run(words, cwd=place, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def samples(text: str) -> dict[str, float]:
    """Return what was scraped, as the component has it; now is 300 s before the tool's time."""
    found, now = {}, time.time() + 300
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            labels = {"namespace": NAMESPACE, "node": "node-1", "pod": POD, **one.labels}
            shown = ", ".join(f"{name}={json.dumps(value)}" for name, value in labels.items())
            is_time = one.name.endswith("_timestamp_seconds")
            found[f"{one.name}{{{shown}}}"] = one.value - (now if is_time else 0)
    return found
