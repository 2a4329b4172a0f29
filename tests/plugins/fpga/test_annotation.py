"""The node's annotation, asked for from an API server only if that is wanted."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socket import socket

import pytest

import deviceplugin as dp
from deviceplugin_fpga import FpgaPlugin, FpgaSettings, annotation

NAME = "fpga.intel.com/device-plugin-mode"


class ApiServer:
    """Answers with ``body``, and keeps what it was asked."""

    def __init__(self) -> None:
        self.status, self.body = 200, b""
        self.elsewhere = ""
        self.release = threading.Event()
        self.release.set()
        self.asked: list[tuple[str, str | None]] = []
        self.hangs_up = self.after = 0
        api = self

        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                api.asked.append((self.path, self.headers["Authorization"]))
                api.release.wait(10)
                if api.hangs_up:
                    api.hangs_up -= 1
                    return
                self.send_response(api.status)
                if api.after:
                    self.send_header("Retry-After", str(api.after))
                if api.elsewhere:
                    self.send_header("Location", api.elsewhere)
                self.end_headers()
                self.wfile.write(api.body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def annotate(self, value: str) -> None:
        self.body = json.dumps({"metadata": {"annotations": {NAME: value}}}).encode()


@pytest.fixture
def api() -> Iterator[ApiServer]:
    server = ApiServer()
    thread = threading.Thread(target=server.server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.release.set()
    server.server.shutdown()
    thread.join()
    server.server.server_close()


@pytest.fixture
def account(tmp_path: Path) -> Path:
    (tmp_path / "token").write_text("secret\n")
    return tmp_path


@pytest.fixture
def ask(api: ApiServer, account: Path) -> Callable[..., str]:
    def ask_for_mode(patience: float = 5, **changes: object) -> str:
        values = {"node_annotation": True, "node_name": "node-1", "api_server": api.url, **changes}
        settings = FpgaSettings(**values)  # type: ignore[arg-type]
        return annotation.mode(settings, account=account, patience=patience)

    return ask_for_mode


def problems(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [str(vars(one)["error"]) for one in caplog.records if one.levelname == "WARNING"]


def test_nothing_is_asked_unless_it_is_wanted(
    api: ApiServer, ask: Callable[..., str], account: Path
) -> None:
    api.annotate("region")
    assert "af" == ask(node_annotation=False)
    assert [] == api.asked
    assert "af" == FpgaPlugin(FpgaSettings(sysfs_dir=account, api_server=api.url)).mode


def test_the_annotation_wins_over_the_setting(api: ApiServer, ask: Callable[..., str]) -> None:
    api.annotate("region")
    assert "region" == ask(mode="regiondevel")
    assert [("/api/v1/nodes/node-1", None)] == api.asked  # a token is for TLS only


@pytest.mark.parametrize(
    "body",
    [
        '{"metadata": {}}',
        '{"metadata": {"annotations": {}}}',
        '{"metadata": {"annotations": null}}',
        '{"metadata": []}',
    ],
)
def test_a_node_without_the_annotation_has_the_mode_of_the_setting(
    api: ApiServer, ask: Callable[..., str], caplog: pytest.LogCaptureFixture, body: str
) -> None:
    api.body = body.encode()
    assert "region" == ask(mode="region")
    assert [] == problems(caplog)


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (403, b"", "the API server answers 403: Forbidden"),
        (200, b"nothing", "the answer is not JSON: Expecting value: line 1 column 1 (char 0)"),
        (200, b"[]", "the answer is not an object"),
    ],
)
def test_whatever_goes_wrong_is_a_warning(
    api: ApiServer,
    ask: Callable[..., str],
    caplog: pytest.LogCaptureFixture,
    status: int,
    body: bytes,
    expected: str,
) -> None:
    api.status, api.body = status, body
    assert "regiondevel" == ask(mode="regiondevel", patience=3)
    (problem,) = problems(caplog)
    assert problem.endswith(expected)


def test_the_token_is_not_taken_elsewhere(
    api: ApiServer, ask: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    api.status, api.elsewhere = 302, f"{api.url}/elsewhere"
    assert "af" == ask(patience=3)
    assert "302" in problems(caplog)[0]
    assert {"/api/v1/nodes/node-1"} == {path for path, _ in api.asked}


def test_a_mode_that_is_none_is_a_warning(
    api: ApiServer, ask: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    api.annotate("everything")
    assert "af" == ask()
    assert ["'everything' is not one of af, region, regiondevel"] == problems(caplog)


def test_a_mode_that_is_a_whole_text_is_shown_in_part(
    api: ApiServer, ask: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    api.annotate("x" * 100_000)
    assert "af" == ask()
    assert [f"'{'x' * 80}' is not one of af, region, regiondevel"] == problems(caplog)


def test_an_api_server_that_hangs_is_given_up(
    api: ApiServer, ask: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    api.release.clear()
    assert "af" == ask(patience=0.05)
    assert ["no answer within 0.05 s"] == problems(caplog)


def test_an_api_server_that_hangs_up_is_asked_again(
    api: ApiServer, ask: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    api.annotate("region")
    api.hangs_up = 2
    assert "region" == ask()
    assert 3 == len(api.asked)
    assert [] == problems(caplog)


def test_an_api_server_is_not_asked_again_before_it_wants_to_be(
    api: ApiServer, ask: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    api.status, api.after = 429, 60
    assert "af" == ask()
    assert 1 == len(api.asked)
    assert ["the API server answers 429: Too Many Requests"] == problems(caplog)


def test_an_api_server_that_is_not_there_is_given_up(
    ask: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    with closing(socket()) as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        assert "af" == ask(api_server=url, patience=3)
    (problem,) = problems(caplog)
    assert "Connection refused" in problem


def test_without_a_token_nothing_is_asked(
    ask: Callable[..., str], account: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (account / "token").unlink()
    assert "af" == ask(api_server="https://127.0.0.1:1", patience=3)
    assert "token" in problems(caplog)[0]


def test_the_certificates_of_the_account_are_the_ones_to_trust(
    ask: Callable[..., str], account: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (account / "ca.crt").write_text("none")
    assert "af" == ask(api_server="https://127.0.0.1:1", patience=3)
    assert "does not contain a certificate" in problems(caplog)[0]


def test_the_api_server_is_the_one_that_pods_are_told(
    monkeypatch: pytest.MonkeyPatch, ask: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    with closing(socket()) as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        port = taken.getsockname()[1]
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(port))
        assert "af" == ask(api_server="", patience=3)
    assert f"https://127.0.0.1:{port}" in problems(caplog)[0]


def test_outside_of_a_cluster_the_setting_holds(
    monkeypatch: pytest.MonkeyPatch, ask: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert "af" == ask(api_server="")
    assert "this is not a pod" in problems(caplog)[0]


def test_the_annotation_of_no_node_cannot_be_asked_for() -> None:
    with pytest.raises(dp.ConfigError, match="node-annotation: needs node-name"):
        FpgaSettings(node_annotation=True)
