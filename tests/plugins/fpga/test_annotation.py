"""The node's annotation, asked for from an API server only if that is wanted."""

from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event

import pytest

import deviceplugin as dp
from cluster.scripted_api import Answer, Script, running
from deviceplugin_fpga import FpgaPlugin, FpgaSettings, annotation
from patience import PATIENCE

NAME = "fpga.intel.com/device-plugin-mode"
MODES = "is not one of af, region, regiondevel"
HOUR = 3600.0
Ask = Callable[..., str]


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


def test_nothing_is_asked_unless_it_is_wanted(api: Script, ask: Ask, account: Path) -> None:
    always(api, annotated("region"))
    assert "af" == ask(node_annotation=False)
    assert [] == api.asked
    assert "af" == FpgaPlugin(FpgaSettings(sysfs_dir=account, api_server=api.url)).mode


def test_the_annotation_wins_over_the_setting(api: Script, ask: Ask) -> None:
    always(api, annotated("region"))
    assert "region" == ask(mode="regiondevel")
    (asked,) = api.asked
    assert "/api/v1/nodes/node-1" == asked.path
    assert "Authorization" not in asked.headers, "a token is for TLS only"


@pytest.mark.parametrize("metadata", [{}, {"annotations": {}}, {"annotations": None}, []])
def test_a_node_without_the_annotation_has_the_mode_of_the_setting(
    api: Script, ask: Ask, caplog: pytest.LogCaptureFixture, metadata: object
) -> None:
    always(api, Answer.of({"metadata": metadata}))
    assert "region" == ask(mode="region")
    assert [] == problems(caplog)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (Answer(403), "the API server answers 403: Forbidden"),
        (Answer(429, headers={"Retry-After": "3600"}), "answers 429: Too Many Requests"),
        (annotated("everything"), f"'everything' {MODES}"),
        (annotated("x" * 100_000), f"'{'x' * 80}' {MODES}"),
    ],
    ids=range(4),
)
def test_whatever_goes_wrong_is_a_warning_and_not_asked_for_again(
    api: Script, ask: Ask, caplog: pytest.LogCaptureFixture, answer: Answer, expected: str
) -> None:
    always(api, answer)
    assert "regiondevel" == ask(mode="regiondevel", pause=0.01)
    (problem,) = problems(caplog)
    assert expected in problem
    assert ["/api/v1/nodes/node-1"] == [asked.path for asked in api.asked]


def test_an_api_server_that_hangs_is_given_up(
    api: Script, ask: Ask, caplog: pytest.LogCaptureFixture
) -> None:
    api.silent = Event()
    assert "af" == ask(patience=0.1)
    (problem,) = problems(caplog)
    # On a busy machine the request, which has twice as long, can end before this is said.
    assert problem == "no answer within 0.1 s" or "Read timed out" in problem


def test_an_api_server_that_hangs_up_is_asked_again(
    api: Script, ask: Ask, caplog: pytest.LogCaptureFixture
) -> None:
    always(api, annotated("region"))
    api.answers += [Answer(raw=b"")] * 2
    assert "region" == ask(pause=0.01)
    assert 3 == len(api.asked)
    assert [] == problems(caplog)


def test_outside_of_a_cluster_the_setting_holds(
    monkeypatch: pytest.MonkeyPatch, ask: Ask, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert "af" == ask(api_server="")
    assert "this is not a pod" in problems(caplog)[0]


def test_the_annotation_of_no_node_cannot_be_asked_for() -> None:
    with pytest.raises(dp.ConfigError, match="node-annotation: needs node-name"):
        FpgaSettings(node_annotation=True)
