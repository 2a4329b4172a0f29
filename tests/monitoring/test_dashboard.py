"""Every query of the dashboard, on a real Prometheus that scrapes a simulated fleet."""

import json
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

import deviceplugin as dp
from deviceplugin_testing.conformance._subject import free_port
from deviceplugin_testing.fixture import Kubelet
from deviceplugin_testing.simulator import Pod
from drivers.dual_node import IDS, DualNode
from patience import eventually
from scripted_plugin import ScriptedPlugin, sick
from troubled_gpus import GpuNode

ROOT = Path(__file__).parents[2]
DASHBOARD, GPUS = (
    json.loads((ROOT / f"demo/dashboards/{name}.json").read_text(encoding="utf-8"))
    for name in ("device-plugins", "gpus")
)
PAGES = ("common/docs/metrics.md", "plugins/gpu/docs/metrics.md")
METRICS = "".join((ROOT / name).read_text(encoding="utf-8") for name in PAGES)
each_dashboard = pytest.mark.parametrize("dashboard", [DASHBOARD, GPUS], ids=["all", "gpus"])
MONITOR = ROOT / "deployments/components/monitoring/podmonitor.yaml"
OF_OPERATOR = {"namespace": "camera-device-plugin", "pod": "camera-device-plugin-x7k2p"}
"""Labels of the plugin's pod, which the Prometheus operator adds."""
R = "example.com/camera"
NODES = ["n1", "n2", "n3"]


def queries(dashboard: dict[str, Any] = DASHBOARD) -> dict[str, list[str]]:
    return {
        panel["title"]: [target["expr"] for target in panel["targets"]]
        for panel in dashboard["panels"]
    }


def all_queries(dashboard: dict[str, Any] = DASHBOARD) -> list[str]:
    return [query for group in queries(dashboard).values() for query in group]


def of_dra() -> list[str]:
    """Return the queries that find something only where DRA offers devices."""
    return [one for title, group in queries().items() if "DRA" in title for one in group]


@each_dashboard
def test_every_metric_of_a_dashboard_is_documented(dashboard: dict[str, Any]) -> None:
    used = set(re.findall(r"\bdeviceplugin_\w+", " ".join(all_queries(dashboard))))
    plain = {re.sub(r"_(bucket|sum|count)$", "", name) for name in used}
    assert set() == plain - set(re.findall(r"\bdeviceplugin_\w+", METRICS))


def test_every_alert_is_on_a_panel_or_needs_none() -> None:
    named = set(re.findall(r"\b(?:Device|Gpu)[A-Z]\w+", json.dumps([DASHBOARD, GPUS])))
    rules = (ROOT / "deployments/components/monitoring/rules.yaml").read_text(encoding="utf-8")
    alerts = set(re.findall(r"alert: (\w+)", rules))
    without = {"DevicePluginGone", "DeviceEntryInvalid", "DeviceFlapping", "DeviceHeldLong"}
    assert without == alerts - named
    assert set() == named - alerts


@each_dashboard
def test_panels_do_not_overlap(dashboard: dict[str, Any]) -> None:
    taken = [
        (column, row)
        for panel in dashboard["panels"]
        for place in [panel["gridPos"]]
        for column in range(place["x"], place["x"] + place["w"])
        for row in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(taken)) == len(taken)
    assert 24 == 1 + max(column for column, _ in taken)


@contextmanager
def fleet() -> Iterator[dict[str, int]]:
    """Run a node each with a plugin and a pod, and give the ports of the plugins by node."""
    ports = {}
    with ExitStack() as stack:
        for name in NODES:
            root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dp")))
            kubelet = stack.enter_context(Kubelet(root))
            worn = dp.Device("cam1", health=dp.Health.degraded("shutter sticks"))
            plugin = ScriptedPlugin("cam0", worn, sick("cam2", "lens cap is on"), resource=R)
            node = stack.enter_context(kubelet.running(plugin, http_address="127.0.0.1:0"))
            node.wait_for(R, {"cam0", "cam1"}, {"cam2"})
            assert node.kubelet.run(Pod.of("recorder", main={R: 1}))
            ports[name] = node.host.http_port
        yield ports


@contextmanager
def prometheus(ports: dict[str, int], directory: Path) -> Iterator[str]:
    """Run Prometheus on the fleet, as the component has it scrape, and give its address."""
    targets = [
        {"targets": [f"127.0.0.1:{port}"], "labels": {"node": name, **OF_OPERATOR}}
        for name, port in ports.items()
    ]
    (endpoint,) = yaml.safe_load(MONITOR.read_text(encoding="utf-8"))["spec"]["podMetricsEndpoints"]
    honor = endpoint["honorLabels"]
    scrape = {"job_name": "plugin", "static_configs": targets, "honor_labels": honor}
    config = {"global": {"scrape_interval": "300ms"}, "scrape_configs": [scrape]}
    (directory / "prometheus.yml").write_text(json.dumps(config), encoding="utf-8")
    address = f"127.0.0.1:{free_port()}"
    words = ["prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data"]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [*words, f"--web.listen-address={address}"], cwd=directory, stdout=log, stderr=log
        )
    try:
        yield f"http://{address}"
    finally:
        process.kill()
        process.wait()


def ask(url: str, query: str) -> list[dict[str, Any]]:
    """Return the series of ``query`` now; none while Prometheus is not up."""
    text = query.replace("$__rate_interval", "5s").replace("$node", ".*")
    words = urllib.parse.urlencode({"query": text.replace("$resource", ".*")})
    try:
        with urllib.request.urlopen(f"{url}/api/v1/query?{words}", timeout=5) as answer:
            return cast("list[dict[str, Any]]", json.load(answer)["data"]["result"])
    except urllib.error.HTTPError as error:
        with error:
            text = error.read().decode()
        if error.code == HTTPStatus.SERVICE_UNAVAILABLE:  # starting
            return []
        raise AssertionError(f"{query}: {text}") from error
    except OSError:
        return []


def wait_for_series(url: str, query: str) -> list[dict[str, Any]]:
    return eventually(lambda: ask(url, query), f"series of {query}", every=0.1)


def drawn(url: str) -> str:
    words = [sys.executable, str(ROOT / "demo/dashboards/draw.py"), url, "10"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def value(url: str, title: str, dashboard: dict[str, Any] = DASHBOARD) -> float:
    (query,) = queries(dashboard)[title]
    (series,) = wait_for_series(url, query)
    return float(series["value"][1])


needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="needs prometheus: apt-get install prometheus"
)


@needs_prometheus
@pytest.mark.slow
def test_every_query_of_gpus_finds_something_on_a_node_with_troubles(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="gpu-") as root, GpuNode(Path(root)) as node:
        node.rig.has_card("0000:3b:00.0")
        with prometheus({"n1": node.start()}, tmp_path) as url:
            wait_for_series(url, "deviceplugin_gpu_vgpu_license")
            node.rig.fake.change(1, throttle=0x48)
            node.rig.fake.xid(1, 79)
            node.scrape("hardware_thermal\\S+ 1")
            for query in all_queries(GPUS):
                wait_for_series(url, query)
            titles = list(queries(GPUS))[:4]
            expected = [2.0, 1.0, 1.0, 1.0]
            eventually(lambda: expected == [value(url, one, GPUS) for one in titles], "counts")


@needs_prometheus
def test_every_query_finds_something_in_a_fleet(tmp_path: Path) -> None:
    with fleet() as ports, prometheus(ports, tmp_path) as url:
        wait_for_series(url, f"count(deviceplugin_device_allocated) == {len(NODES)}")
        for query in set(all_queries()) - set(of_dra()):
            wait_for_series(url, query)
        titles = ("Nodes", "Healthy devices", "In use", "Free")
        eventually(lambda: [3, 6, 3, 3] == [value(url, one) for one in titles], "all nodes")
        assert [3.0, 0.0] == [value(url, title) for title in ("Unhealthy", "Not registered")]
        page = drawn(url)
        for title in queries():
            assert f"<h2>{title}</h2>" in page
        assert ["3", "6", "3", "3", "3", "0"] == re.findall(r"<b>(.+?)</b>", page)
        assert page.count("<polyline") >= 10
        assert 3 == page.count("<td>recorder<td>")
        troubles = {
            ("cam1", "degraded", "shutter sticks"),
            ("cam2", "unhealthy", "lens cap is on"),
        }
        expected: set[tuple[str, ...]] = {
            (name, *trouble) for name in NODES for trouble in troubles
        }
        labels = ("node", "device", "state", "reason")
        wait_for_labels(url, "Devices that are not healthy", labels, expected)
        recorders: set[tuple[str, ...]] = {(name, "recorder") for name in NODES}
        wait_for_labels(url, "Who has which device", ("node", "pod"), recorders)


def wait_for_labels(
    url: str, title: str, labels: Sequence[str], expected: set[tuple[str, ...]]
) -> None:
    """Wait until a panel has these; on a busy machine a scrape is late, and a node missing."""
    (query,) = queries()[title]

    def found() -> set[tuple[str, ...]]:
        return {tuple(one["metric"][name] for name in labels) for one in ask(url, query)}

    eventually(lambda: expected == found(), lambda: f"{title}: {found()}", every=0.1)


@needs_prometheus
def test_the_queries_about_dra_find_something_on_a_node_with_claims(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="dra-") as root, DualNode(Path(root)) as node:
        node.start(protocol="dra", http_address="127.0.0.1:0")
        node.wait_for(plugin=set(), dra=set(IDS))
        assert node.host
        with prometheus({"n1": node.host.http_port}, tmp_path) as url:
            node.run("one")
            for query in of_dra():
                wait_for_series(url, query)
            (prepared,) = wait_for_series(url, "sum(deviceplugin_claims_prepared) == 1")
            assert "1" == prepared["value"][1]
            (written,) = wait_for_series(
                url, 'sum(deviceplugin_slice_writes_total{action="create", code="OK"}) > 0'
            )
            assert int(written["value"][1]) >= 1
