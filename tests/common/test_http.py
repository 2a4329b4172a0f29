import errno
import http.client
import json
import logging
import re
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from typing_extensions import override

import deviceplugin as dp
import http_server
from deviceplugin import ConfigError
from deviceplugin._attribution.podresources import Hold
from deviceplugin._config.values import parse_address
from deviceplugin._discovery.found import describe
from deviceplugin._http.answering import MAX_CLIENTS
from deviceplugin._http.devices_report import Report
from deviceplugin._http.listener import listen
from deviceplugin._http.server import HttpServer
from deviceplugin._platform.boot import boot_id
from deviceplugin._telemetry.metrics import Metrics
from http_server import View, serving
from patience import PATIENCE, eventually


def ask(
    server: HttpServer, path: str, *, method: str = "GET", host: str = "127.0.0.1", accept: str = ""
) -> tuple[int, str, str]:
    """Status, content type and body of the answer."""
    given = {"Accept": accept} if accept else {}
    status, body, headers = http_server.ask(server.port, path, given, method=method, host=host)
    return status, headers["Content-Type"], body


def test_the_first_page_says_what_there_is() -> None:
    with serving() as server:
        status, kind, body = ask(server, "/")
        assert (200, "text/html; charset=utf-8") == (status, kind)
        links = re.findall(r'href="(\w+)"', body)
        assert {"devices", "metrics", "readyz"} == set(links)
        assert [200] * 3 == [ask(server, f"/{path}")[0] for path in links]
        assert (200, "text/plain; charset=utf-8", "") == ask(server, "/healthz", method="HEAD")
        status, _, body = ask(server, "/metric")
        assert (404, ["/", "/metrics", "/healthz", "/readyz", "/devices"]) == (status, body.split())


@pytest.mark.parametrize(("path", "field"), [("/healthz", "death"), ("/readyz", "waiting")])
def test_a_probe_fails_with_the_reason_and_recovers(path: str, field: str) -> None:
    host = View()
    with serving(host=host) as server:
        kind = "text/plain; charset=utf-8"
        assert (200, kind, "ok\n") == ask(server, path)
        setattr(host, field, "x.io/a: no /sys/\udc80")  # as of a file name that is no UTF-8
        assert (503, kind, "x.io/a: no /sys/?\n") == ask(server, path)
        setattr(host, field, "")
        assert (200, kind, "ok\n") == ask(server, path)


def test_what_else_is_wrong_is_said_by_the_probe_that_is_ready_and_does_not_fail_it() -> None:
    host = View()
    host.odd = ["Plugin: invalid entry skipped: x"]
    with serving(host=host) as server:
        assert (200, "ok\nPlugin: invalid entry skipped: x\n") == ask(server, "/readyz")[::2]
        assert "ok\n" == ask(server, "/healthz")[2]
        host.waiting = "not registered"
        expected = "not registered\nPlugin: invalid entry skipped: x\n"
        assert (503, expected) == ask(server, "/readyz")[::2]


def test_the_probes_of_a_kubelet_are_known_from_those_of_others() -> None:
    probes: list[None] = []
    with serving(probed=lambda: probes.append(None)) as server:
        for client in ("kube-probe/1.36", "curl/8.5", "kube-probe/1.30"):
            assert 200 == http_server.ask(server.port, "/healthz", {"User-Agent": client})[0]
        ask(server, "/readyz")
    assert 2 == len(probes)


def test_metrics_are_served_as_prometheus_reads_them() -> None:
    metrics = Metrics()
    metrics.registrations.labels("x.io/dev").inc()
    with serving(metrics=metrics) as server:
        status, kind, body = ask(server, "/metrics")
        assert (200, "text/plain") == (status, kind.partition(";")[0])
        names = {family.name for family in text_string_to_metric_families(body)}
        assert {"deviceplugin_registrations", "deviceplugin_build_info"} <= names
        openmetrics = "application/openmetrics-text; version=1.0.0"
        status, kind, body = ask(server, "/metrics?x=1", accept=openmetrics)
        assert (200, "application/openmetrics-text") == (status, kind.partition(";")[0])
        assert "# EOF" == body.splitlines()[-1]


def test_the_inventory_is_served_as_json() -> None:
    host = View()
    odd: Any = {"path": Path("/dev/a")}
    devices = {name: dp.Device(name, attributes=odd) for name in "ab"}
    since = dict.fromkeys(devices, 0.0)
    hold = Hold("x.io/dev", "b", "default", "door", "main", "one")
    host.resources = [
        Report("x.io/dev", "Plugin", True, "", devices, since, {"b": [hold]}),
        Report("x.io/none", "Plugin", False, "not advertised", {}, {}, None),
    ]
    host.short = ["Plugin: card 1 has no driver"]
    with serving(host=host) as server:
        status, kind, body = ask(server, "/devices")
    assert (200, "application/json") == (status, kind)
    holder = {"namespace": "default", "pod": "door", "container": "main", "claim": "one"}
    described = {
        name: {**describe(dp.Device(name), 0.0), "attributes": {"path": "/dev/a"}} for name in "ab"
    }
    of_plugin = {"plugin": "Plugin", "registered": True, "problem": "", "offered": {}}
    none = {"plugin": "Plugin", "registered": False, "problem": "not advertised", "devices": []}
    none["offered"] = {}
    listed = [{**described["a"], "holders": []}, {**described["b"], "holders": [holder]}]
    assert {
        "resources": [
            {"name": "x.io/dev", **of_plugin, "devices": listed},
            {"name": "x.io/none", **none},
        ],
        "shortfalls": ["Plugin: card 1 has no driver"],
        "boot": boot_id(),
    } == json.loads(body)
    assert 2 == sum('"id": ' in line for line in body.splitlines())


def test_a_machine_that_does_not_say_its_boot_has_none(tmp_path: Path) -> None:
    assert Path("/proc/sys/kernel/random/boot_id").read_text().strip() == boot_id()
    assert "" == boot_id(tmp_path / "boot_id")


def test_nothing_can_be_changed_over_http() -> None:
    with serving() as server:
        for method in ("POST", "PUT", "DELETE", "TRACE", "BREW"):
            assert 405 == ask(server, "/devices", method=method)[0]


def test_clients_that_wait_for_a_long_answer_share_it_and_keep_no_probe_from_its_answer() -> None:
    may_end = threading.Event()

    class Slow(View):
        made = 0

        def reports(self) -> list[Report]:
            self.made += 1
            assert may_end.wait(PATIENCE)
            return []

    host = Slow()
    with serving(host=host) as server, ThreadPoolExecutor(MAX_CLIENTS) as pool:
        answers = [pool.submit(ask, server, "/devices") for _ in range(MAX_CLIENTS)]
        refused = (503, "text/plain; charset=utf-8", "too many clients\n")
        answering = server._connections._answering
        eventually(lambda: MAX_CLIENTS == len(answering), "all of them to wait")
        assert refused == ask(server, "/metrics")  # one too many
        assert [200] * 3 == [ask(server, "/readyz")[0] for _ in range(3)]
        may_end.set()
        assert [200] * MAX_CLIENTS == [answer.result()[0] for answer in answers]
        assert 200 == ask(server, "/readyz")[0]
    assert MAX_CLIENTS / 2 > host.made


def test_a_client_that_fails_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    told = threading.Event()

    class Failing(View):
        def ready(self) -> str:
            told.set()
            raise LookupError("gone")

    with serving(host=Failing()) as server:
        with pytest.raises(http.client.RemoteDisconnected):
            ask(server, "/readyz")
        assert 200 == ask(server, "/healthz")[0]
    assert told.is_set()
    (record,) = (record for record in caplog.records if "HTTP client failed" == record.message)
    assert (logging.DEBUG, "gone") == (record.levelno, vars(record)["error"])


def test_a_client_that_has_gone_is_the_only_one() -> None:
    class Gone(socket.socket):
        @override
        def accept(self) -> tuple[socket.socket, Any]:
            for error in errors:
                raise error
            return super().accept()

    errors = iter([OSError(errno.ECONNABORTED, "the client is gone")])
    with serving(of=lambda listening: Gone(fileno=listening.detach())) as server:
        assert 200 == ask(server, "/healthz")[0]
    assert [] == [*errors]


def test_a_client_for_whom_there_is_no_thread_is_the_only_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real, errors = threading.Thread.start, iter([RuntimeError("can't start new thread")])

    def fail_once(thread: threading.Thread) -> None:
        for error in errors:
            raise error
        real(thread)

    with serving() as server:
        monkeypatch.setattr(threading.Thread, "start", fail_once)
        with pytest.raises(http.client.RemoteDisconnected):
            ask(server, "/healthz")
        assert 200 == ask(server, "/healthz")[0]


def test_requests_are_logged_for_who_looks_for_them(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    with serving() as server:
        ask(server, "/healthz")
    assert ['"GET /healthz HTTP/1.1" 200 -'] == caplog.messages
    assert "" == capsys.readouterr().err


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [
        ("127.0.0.1:9494", "127.0.0.1", 9494),
        (":80", "", 80),
        ("localhost:0", "localhost", 0),
        ("[::1]:9494", "::1", 9494),
        ("[::]:65535", "::", 65535),
    ],
)
def test_an_address_is_a_host_and_a_port(address: str, host: str, port: int) -> None:
    assert (host, port) == parse_address(address)


@pytest.mark.parametrize(
    "address",
    ["", "9494", "localhost", "localhost:", ":http", "[::1]", ":65536", ":-1", "a:1:", "on"],
)
def test_what_is_no_address_is_told(address: str) -> None:
    with pytest.raises(ConfigError) as raised:
        listen(address)
    expected = f"http-address {address!r} is not of the form host:port or :port, or off"
    assert expected == str(raised.value)


@pytest.mark.parametrize("host", ["203.0.113.1", "a" * 70, "[:::]", "127.0.0.1"])
def test_an_address_that_is_in_use_or_not_of_this_machine_is_told(host: str) -> None:
    with serving() as server, pytest.raises(ConfigError) as raised:
        listen(f"{host}:{server.port}")
    why = "Address already in use" if host == "127.0.0.1" else ".*"
    assert re.fullmatch(
        rf"http-address '{re.escape(host)}:\d+': cannot listen there: {why}; choose another "
        "address, or off",
        str(raised.value),
    )


def test_a_second_plugin_with_the_default_address_gets_another_port(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with serving() as server:
        monkeypatch.setattr(dp.Settings, "http_address", f"127.0.0.1:{server.port}")
        with listen(dp.Settings.http_address) as other:
            host, port = other.getsockname()
    assert server.port != port
    assert [f"{host}:{port}"] == [vars(one)["address"] for one in caplog.records]


@pytest.mark.parametrize("ipv6", [True, False])
def test_without_a_host_every_address_is_served(
    monkeypatch: pytest.MonkeyPatch, *, ipv6: bool
) -> None:
    if not ipv6:
        monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    hosts = ["127.0.0.1", *(["::1"] if socket.has_dualstack_ipv6() else [])]
    with serving(":0") as server:
        assert [200] * len(hosts) == [ask(server, "/healthz", host=host)[0] for host in hosts]


def test_a_server_that_is_stopped_first_does_not_serve() -> None:
    server = HttpServer(listen("127.0.0.1:0"), View(), Metrics())
    server.stop()
    server.run()
    with serving(f"127.0.0.1:{server.port}") as again:  # it has left its port
        assert 200 == ask(again, "/healthz")[0]
