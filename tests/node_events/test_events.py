"""``deviceplugin events`` beside real plugins, with an API server that fails as it is told."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import deviceplugin as dp
from cluster import scripted_api
from cluster.event_api import Answer, Api
from cluster.scripted_api import Script
from deviceplugin.tools._devices_page import NoAnswerError
from deviceplugin.tools.events._cli import main
from deviceplugin.tools.events._notice import read_facts
from deviceplugin_testing.fixture import Kubelet
from patience import PATIENCE, eventually
from scripted_plugin import ScriptedPlugin, sick

R = "example.com/camera"


FEW = """
import sys
from deviceplugin.__main__ import main
from deviceplugin.tools.events import _watch
_watch.MAX_SUBJECTS = 6  # devices and registrations that are watched
sys.exit(main())
"""


@contextmanager
def sidecar(api: Api, port: int, *words: str) -> Iterator["subprocess.Popen[str]"]:
    """Run the command until the end of the block, which it reaches by SIGTERM."""
    command = [sys.executable, "-c", FEW, "events", "--node=n1", "--interval=1s"]
    process = subprocess.Popen(
        [*command, f"--plugin={url(port)}", f"--api={api.url}", *words],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
        process.send_signal(signal.SIGTERM)
        assert 0 == process.wait(PATIENCE)
    finally:
        process.kill()
        process.communicate()


@contextmanager
def cameras(kubelet: Kubelet, *devices: dp.Device | str) -> Iterator[tuple[ScriptedPlugin, int]]:
    """Run a plugin with ``devices``; yield it with its port."""
    plugin = ScriptedPlugin(*devices, resource=R)
    with kubelet.running(plugin, http_address="127.0.0.1:0") as node:
        port = node.host.http_port
        count = 2 + len(devices)  # the resource, and the entries of its settings
        eventually(lambda: count == len([f for f in read_facts(url(port), 5) if f.good]), "them")
        yield plugin, port


def url(port: int) -> str:
    return f"http://127.0.0.1:{port}"


def test_health_that_changes_is_told_to_the_cluster_and_no_old_news_after_a_restart(
    kubelet: Kubelet, api: Api
) -> None:
    with cameras(kubelet, "cam0", "cam1", "cam2") as (plugin, port):
        with sidecar(api, port):
            plugin.set("cam0", sick("cam1", "lens cap is on"), "cam2")
            eventually(lambda: 1 == len(api.events))
        with sidecar(api, port):
            eventually(lambda: 2 == len(api.asked))
            assert 1 == len(api.events), "the API server knows them by their names"
            plugin.set("cam0", "cam1", "cam2")
            eventually(lambda: 2 == len(api.events))
        plugin.set("cam0", "cam1", dp.Device("cam2", health=dp.Health.degraded("shutter sticks")))
        states = ["good", "good", "degraded"]
        eventually(lambda: states == [fact.state for fact in read_facts(url(port), 5)[2:]])
    assert [
        f"{R}: cam1 is unhealthy: lens cap is on (1 of 3 unhealthy)",
        f"{R}: cam1 is healthy again (0 of 3 unhealthy)",
    ] == api.messages()
    assert {"n1"} == {event["involvedObject"]["name"] for event in api.events.values()}
    assert 3 == len(api.asked)


@pytest.mark.slow
def test_an_api_server_that_is_slow_does_not_keep_it_from_looking_or_stopping(api: Api) -> None:
    api.silent = threading.Event()
    page = json.dumps(document({"a": "too hot"}))
    plugin = Script(otherwise=lambda _asked: Answer(text=page))
    with scripted_api.running(plugin), sidecar(api, 1, f"--plugin={plugin.url}"):
        eventually(lambda: 1 == len(api.asked))
        seen = len(plugin.asked)
        eventually(lambda: seen + 2 <= len(plugin.asked), "it looks on")
    assert 1 == len(api.asked)


@pytest.mark.slow
def test_a_plugin_that_is_away_or_has_too_many_devices_is_said_once(
    api: Api, tmp_path: Path
) -> None:
    page = tmp_path / "devices.json"
    with sidecar(api, 1, f"--plugin={page}") as process:
        assert process.stderr is not None
        assert "plugin unreachable" == json.loads(process.stderr.readline())["event"]
        written(tmp_path, document({"a": "too hot"}))
        eventually(lambda: bool(api.events))
        assert "event created" == json.loads(process.stderr.readline())["event"]
        written(tmp_path, document({f"d{n}": "" for n in range(9)}))
        assert "too many devices" in json.loads(process.stderr.readline())["event"]


def document(devices: dict[str, str], problem: str = "", count: int = 1) -> object:
    entries = [{"id": key, "healthy": not why, "reason": why} for key, why in devices.items()]
    resource = {"name": R, "registered": not problem, "problem": problem, "devices": entries}
    return {"resources": [{**resource, "name": R + "x" * n} for n in range(count)]}


def written(tmp_path: Path, page: object) -> str:
    new = tmp_path / "new"
    new.write_text(json.dumps(page))
    return f"--plugin={new.rename(tmp_path / 'devices.json')}"


def test_a_dry_run_prints_what_it_would_create(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plugin = written(tmp_path, document({"a": "too hot", "b": ""}, problem="no kubelet"))
    assert 0 == main(["--node=n1", "--once", "--dry-run", plugin])
    assert [
        f"Warning  DevicesNotRegistered  node/n1  {R}: not registered with the kubelet: no kubelet",
        f"Warning  DeviceUnhealthy  node/n1  {R}: a is unhealthy: too hot (1 of 2 unhealthy)",
    ] == capsys.readouterr().out.splitlines()
    resource = {"name": R, "registered": False, "problem": "", "devices": []}  # need not be
    assert 0 == main(
        ["--node=n1", "--once", "--dry-run", written(tmp_path, {"resources": [resource]})]
    )
    assert "" == capsys.readouterr().out


def test_once_says_whether_all_was_told(tmp_path: Path, api: Api) -> None:
    words = ["--node=n1", "--once", f"--api={api.url}"]
    plugin = written(tmp_path, document({"a": "too hot"}))
    assert 0 == main([*words, plugin])
    assert 1 == len(api.events)
    for status in (422, 403):
        api.failures.append(Answer(status, "no"))
        assert 1 == main([*words, plugin])
    assert 0 == main([*words, written(tmp_path, document({"a": ""}))])
    assert 3 == len(api.asked), "nothing is asked without news"
    many = document({"a": "too hot"}, count=11)
    assert 1 == main([*words, written(tmp_path, many)]), "more than may be told at a time"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "the following arguments are required: --node"),
        (
            ["--node=n"],
            "this is not a pod: KUBERNETES_SERVICE_HOST and _PORT are not set; give --api URL, or",
        ),
        (["--node=n", "--api=x"], "the API server's address 'x' is not http:// or https://"),
        (["--node=n", "--interval=x"], "argument --interval: 'x' is not a duration"),
        (["--node=n", "--interval=10ms"], "argument --interval: '10ms' is less than 1s"),
        (["--node=n", "--once", "--dry-run", "--plugin=ftp://x"], "ftp://x: is not an http://"),
    ],
)
def test_a_command_line_that_is_wrong_is_explained(
    words: list[str], text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert (1 if "--once" in words else 2) == main(words)
    assert text in capsys.readouterr().err


@pytest.mark.parametrize(
    ("status", "body", "text"),
    [
        (503, b"", "503 Service Unavailable"),
        (200, b"<html>", "is not a list of a plugin's devices"),
        (200, b"[" * 100_000, "is not a list of a plugin's devices"),
        (200, b'{"resources": [{"name": "x"}]}', "is not a list of a plugin's devices"),
        (200, b"\xff", "is not a list of a plugin's devices"),
    ],
)
def test_what_is_no_plugin_is_told_from_one(status: int, body: bytes, text: str) -> None:
    plugin = Script(otherwise=lambda _asked: Answer(status, text=body))
    with scripted_api.running(plugin), pytest.raises(NoAnswerError, match=text):
        read_facts(plugin.url, 5)
    assert ["/devices"] == [asked.path for asked in plugin.asked]


def test_what_is_not_there_is_named() -> None:
    with pytest.raises(NoAnswerError, match=r"http://127.0.0.1:1: .*refused"):
        read_facts("http://127.0.0.1:1", 5)
    with pytest.raises(NoAnswerError, match="/nowhere: No such file"):
        read_facts("/nowhere", 5)
    with pytest.raises(NoAnswerError, match="/dev/zero: answers with more than 8 MiB"):
        read_facts("/dev/zero", 5)
