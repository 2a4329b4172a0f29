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
from patience import PATIENCE

NAME = "fpga.intel.com/device-plugin-mode"
MODES = "is not one of af, region, regiondevel"
HOUR = 3600.0


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
def ask(api: Script, account: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Return what asks for the mode. It asks once, unless ``pause`` is short."""

    def ask_for_mode(patience: float = PATIENCE, pause: float = HOUR, **changes: object) -> str:
        monkeypatch.setattr(annotation, "_PAUSE", pause)
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
    ("answer", "expected"),
    [
        (Answer(403), "the API server answers 403: Forbidden"),
        (Answer(302, headers={"Location": "/elsewhere"}), "302"),  # with the token
        (Answer(text=b"nothing"), "is not JSON: Expecting value: line 1 column 1 (char 0)"),
        (Answer(text=b"[]"), "the answer is not an object"),
        (annotated("everything"), f"'everything' {MODES}"),
        (annotated("x" * 100_000), f"'{'x' * 80}' {MODES}"),
    ],
    ids=range(6),
)
def test_whatever_goes_wrong_is_a_warning(
    api: Script,
    ask: Callable[..., str],
    caplog: pytest.LogCaptureFixture,
    answer: Answer,
    expected: str,
) -> None:
    always(api, answer)
    assert "regiondevel" == ask(mode="regiondevel")
    (problem,) = problems(caplog)
    assert expected in problem
    assert ["/api/v1/nodes/node-1"] == [asked.path for asked in api.asked]


def test_an_api_server_that_hangs_is_given_up(
    api: Script, ask: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    api.silent = Event()
    assert "af" == ask(patience=0.1)
    (problem,) = problems(caplog)
    # On a busy machine the request, which has twice as long, can end before this is said.
    assert problem == "no answer within 0.1 s" or "Read timed out" in problem


def test_an_api_server_that_hangs_up_is_asked_again(
    api: Script, ask: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    always(api, annotated("region"))
    api.answers += [Answer(raw=b"")] * 2
    assert "region" == ask(pause=0.01)
    assert 3 == len(api.asked)
    assert [] == problems(caplog)


def test_an_api_server_is_not_asked_again_before_it_wants_to_be(
    api: Script, ask: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    always(api, Answer(429, headers={"Retry-After": "3600"}))
    assert "af" == ask(pause=0.01)
    assert 1 == len(api.asked)
    assert ["the API server answers 429: Too Many Requests"] == problems(caplog)


@pytest.mark.parametrize("is_pods_own", [False, True])
def test_an_api_server_that_is_not_there_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
    ask: Callable[..., str],
    caplog: pytest.LogCaptureFixture,
    is_pods_own: bool,
) -> None:
    with closing(socket()) as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        port = taken.getsockname()[1]
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(port))
        assert "af" == ask(api_server="" if is_pods_own else f"http://127.0.0.1:{port}")
    (problem,) = problems(caplog)
    assert (f"https://127.0.0.1:{port}" if is_pods_own else "Connection refused") in problem


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [("token", "", "token"), ("ca.crt", "none", "does not contain a certificate")],
)
def test_a_token_and_certificates_are_those_of_the_account(
    ask: Callable[..., str],
    account: Path,
    caplog: pytest.LogCaptureFixture,
    name: str,
    content: str,
    expected: str,
) -> None:
    (account / name).unlink(missing_ok=True)
    if content:
        (account / name).write_text(content)
    assert "af" == ask(api_server="https://127.0.0.1:1")
    assert expected in problems(caplog)[0]


def test_outside_of_a_cluster_the_setting_holds(
    monkeypatch: pytest.MonkeyPatch, ask: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert "af" == ask(api_server="")
    assert "this is not a pod" in problems(caplog)[0]


def test_the_annotation_of_no_node_cannot_be_asked_for() -> None:
    with pytest.raises(dp.ConfigError, match="node-annotation: needs node-name"):
        FpgaSettings(node_annotation=True)
