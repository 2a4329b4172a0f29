"""Creating Events: what is sent to an API server, and what is made of its answers."""

import shutil
import ssl
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from cluster.event_api import Answer, Api, running
from deviceplugin.tools.events import (
    Cluster,
    Fact,
    Notice,
    NotNowError,
    RefusedError,
    as_event,
)

NOTICE = Notice(good=False, facts=(Fact("example.com/a", "d", good=False, since="then"),))
EVENT = as_event(NOTICE, "worker-3", datetime(2026, 11, 21, tzinfo=UTC))

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")


def test_an_event_is_created_and_without_tls_no_token_is_sent(api: Api) -> None:
    Cluster(api.url).create(EVENT)
    assert [EVENT] == list(api.events.values())
    assert "Authorization" not in api.headers[0]


def test_one_that_is_there_already_is_as_good(api: Api) -> None:
    Cluster(api.url).create(EVENT)
    Cluster(api.url).create(EVENT)
    assert (2, 1) == (len(api.asked), len(api.events))


@pytest.mark.parametrize("status", [400, 413, 422])
def test_an_event_that_is_invalid_is_refused_for_good(api: Api, status: int) -> None:
    api.failures.append(Answer(status, "message: too\nlong"))
    with pytest.raises(RefusedError) as error:
        Cluster(api.url).create(EVENT)
    assert f"the API server answers {status}: message: too long" == str(error.value)


@pytest.mark.parametrize(
    ("answer", "text", "after"),
    [
        (
            Answer(403, "events is forbidden"),
            "403: events is forbidden; apply the ClusterRole and its binding of the component",
            0,
        ),
        (
            Answer(401, "Unauthorized"),
            "the API server answers 401: Unauthorized; is the token mounted that the component",
            0,
        ),
        (Answer(429, "too many", {"Retry-After": "7"}), "answers 429: too many", 7),
        (Answer(429, "too many", {"Retry-After": "86400"}), "answers 429: too many", 600),
        (Answer(503, headers={"Retry-After": "soon"}), "answers 503: ", 0),
        (Answer(500, text="<html>"), "answers 500: Internal Server Error", 0),
        (Answer(500, text="[]"), "answers 500: Internal Server Error", 0),
        (Answer(404, "not found"), "answers 404: not found", 0),
    ],
)
def test_other_failures_are_for_now(api: Api, answer: Answer, text: str, after: float) -> None:
    api.failures.append(answer)
    with pytest.raises(NotNowError) as error:
        Cluster(api.url).create(EVENT)
    assert text in str(error.value)
    assert after == error.value.after


def test_no_redirection_is_followed(api: Api) -> None:
    api.failures.append(Answer(302, headers={"Location": f"{api.url}/elsewhere"}))
    with pytest.raises(NotNowError, match="answers 302"):
        Cluster(api.url).create(EVENT)
    assert 1 == len(api.asked)


def test_nobody_listening_is_for_now() -> None:
    with pytest.raises(NotNowError, match="Connection refused"):
        Cluster("http://127.0.0.1:1").create(EVENT)


def test_an_api_server_that_does_not_answer_is_not_waited_for(api: Api) -> None:
    api.silent = Event()
    with pytest.raises(NotNowError, match="timed out"):
        Cluster(api.url, timeout=0.1).create(EVENT)


def certificate(place: Path) -> tuple[ssl.SSLContext, str]:
    """Return what a server at 127.0.0.1 needs, and the authority by which it is known."""
    words = (
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=kube"
    )
    made = ["-keyout", "key.pem", "-out", "ca.crt", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(["openssl", *words.split(), *made], cwd=place, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(place / "ca.crt", place / "key.pem")
    return context, (place / "ca.crt").read_text()


def account(place: Path, authority: str, token: str = "secret\n") -> Path:
    place.mkdir(exist_ok=True)
    (place / "ca.crt").write_text(authority)
    (place / "token").write_text(token)
    return place


@needs_openssl
def test_over_tls_the_token_is_sent_as_it_is_now(tmp_path: Path) -> None:
    context, authority = certificate(tmp_path)
    place = account(tmp_path / "account", authority)
    with running(Api(), context) as api:
        cluster = Cluster(api.url, place)
        cluster.create(EVENT)
        account(place, authority, "renewed")
        cluster.create(EVENT)
    assert ["Bearer secret", "Bearer renewed"] == [sent["Authorization"] for sent in api.headers]
    assert [EVENT] == list(api.events.values())


@needs_openssl
def test_a_server_that_is_not_known_is_told_nothing(tmp_path: Path) -> None:
    context, _ = certificate(tmp_path)
    (tmp_path / "other").mkdir()
    _, foreign = certificate(tmp_path / "other")
    with running(Api(), context) as api, pytest.raises(NotNowError, match="CERTIFICATE_VERIFY"):
        Cluster(api.url, account(tmp_path / "account", foreign)).create(EVENT)
    assert [] == api.headers


@needs_openssl
@pytest.mark.parametrize("missing", ["token", "ca.crt"])
def test_a_file_that_is_missing_is_named(tmp_path: Path, missing: str) -> None:
    _, authority = certificate(tmp_path)
    place = account(tmp_path / "account", authority)
    (place / missing).unlink()
    with pytest.raises(NotNowError, match=missing):
        Cluster("https://127.0.0.1:1", place).create(EVENT)


def test_certificates_that_are_none_are_for_now(tmp_path: Path) -> None:
    cluster = Cluster("https://127.0.0.1:1", account(tmp_path / "account", "no certificate"))
    event: Mapping[str, Any] = EVENT
    with pytest.raises(NotNowError):
        cluster.create(event)
