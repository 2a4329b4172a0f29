"""The node's annotation, asked for from an API server only if that is wanted."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from socket import socket
from threading import Event

import pytest

import deviceplugin as dp
from cluster.scripted_api import Answer, Script, running
from deviceplugin_fpga import FpgaPlugin, FpgaSettings, annotation

NAME = "fpga.intel.com/device-plugin-mode"


def annotated(value: str) -> Answer:
    return Answer.of({"metadata": {"annotations": {NAME: value}}})


@pytest.fixture
def api() -> Iterator[Script]:
    with running(Script()) as script:
        yield script


def always(api: Script, answer: Answer) -> None:
    api.otherwise = lambda _asked: answer


@pytest.fixture
def account(tmp_path: Path) -> Path:
    (tmp_path / "token").write_text("secret\n")
    return tmp_path


@pytest.fixture
def ask(api: Script, account: Path) -> Callable[..., str]:
    def ask_for_mode(patience: float = 5, **changes: object) -> str:
        values = {"node_annotation": True, "node_name": "node-1", "api_server": api.url, **changes}
        settings = FpgaSettings(**values)  # type: ignore[arg-type]
        return annotation.mode(settings, account=account, patience=patience)

    return ask_for_mode


def problems(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [str(vars(one)["error"]) for one in caplog.records if one.levelname == "WARNING"]


def test_nothing_is_asked_unless_it_is_wanted(
    api: Script, ask: Callable[..., str], account: Path
) -> None:
    always(api, annotated("region"))
    assert "af" == ask(node_annotation=False)
    assert [] == api.asked
    assert "af" == FpgaPlugin(FpgaSettings(sysfs_dir=account, api_server=api.url)).mode


def test_the_annotation_wins_over_the_setting(api: Script, ask: Callable[..., str]) -> None:
    always(api, annotated("region"))
    assert "region" == ask(mode="regiondevel")
    (asked,) = api.asked
    assert "/api/v1/nodes/node-1" == asked.path
    assert "Authorization" not in asked.headers, "a token is for TLS only"


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
    api: Script, ask: Callable[..., str], caplog: pytest.LogCaptureFixture, body: str
) -> None:
    always(api, Answer(text=body))
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
    api: Script,
    ask: Callable[..., str],
    caplog: pytest.LogCaptureFixture,
    status: int,
    body: bytes,
    expected: str,
) -> None:
    always(api, Answer(status, text=body))
    assert "regiondevel" == ask(mode="regiondevel", patience=3)
    (problem,) = problems(caplog)
    assert problem.endswith(expected)


def test_the_token_is_not_taken_elsewhere(
    api: Script, ask: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    always(api, Answer(302, headers={"Location": f"{api.url}/elsewhere"}))
    assert "af" == ask(patience=3)
    assert "302" in problems(caplog)[0]
    assert {"/api/v1/nodes/node-1"} == {asked.path for asked in api.asked}


def test_a_mode_that_is_none_is_a_warning(
    api: Script, ask: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    always(api, annotated("everything"))
    assert "af" == ask()
    assert ["'everything' is not one of af, region, regiondevel"] == problems(caplog)


def test_a_mode_that_is_a_whole_text_is_shown_in_part(
    api: Script, ask: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    always(api, annotated("x" * 100_000))
    assert "af" == ask()
    assert [f"'{'x' * 80}' is not one of af, region, regiondevel"] == problems(caplog)


def test_an_api_server_that_hangs_is_given_up(
    api: Script, ask: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    api.silent = Event()
    assert "af" == ask(patience=0.05)
    assert ["no answer within 0.05 s"] == problems(caplog)


def test_an_api_server_that_hangs_up_is_asked_again(
    api: Script, ask: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    always(api, annotated("region"))
    api.answers += [Answer(raw=b"")] * 2
    assert "region" == ask()
    assert 3 == len(api.asked)
    assert [] == problems(caplog)


def test_an_api_server_is_not_asked_again_before_it_wants_to_be(
    api: Script, ask: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    always(api, Answer(429, headers={"Retry-After": "60"}))
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
