"""The token and the authority of a pod, as they are renewed."""

from pathlib import Path

import pytest

from cluster.certificates import certificate, needs_openssl
from cluster.scripted_api import Answer, Script, running
from deviceplugin.apiserver import Account, ApiServer, UnavailableError


def written(place: Path, authority: str, token: str = "secret\n") -> Path:
    place.mkdir(exist_ok=True)
    (place / "ca.crt").write_text(authority)
    (place / "token").write_text(token)
    return place


@needs_openssl
def test_over_tls_the_token_is_sent_as_it_is_now(tmp_path: Path) -> None:
    context, authority = certificate(tmp_path)
    place = written(tmp_path / "account", authority)
    with running(Script(otherwise=lambda _: Answer.of({})), context) as script:
        api = ApiServer(script.url, Account(place))
        api.get("/x")
        written(place, authority, "renewed")
        api.get("/x")
    sent = [asked.headers["Authorization"] for asked in script.asked]
    assert ["Bearer secret", "Bearer renewed"] == sent
    assert 1 == len(script.connections)


@needs_openssl
def test_an_authority_that_is_renewed_holds_from_the_next_request(tmp_path: Path) -> None:
    old_context, old = certificate(tmp_path / "old")
    new_context, new = certificate(tmp_path / "new")
    account = Account(written(tmp_path / "account", old))
    with running(Script(otherwise=lambda _: Answer.of({})), old_context) as script:
        ApiServer(script.url, account).get("/x")
    with running(Script(otherwise=lambda _: Answer.of({})), new_context) as script:
        api = ApiServer(script.url, account)
        with pytest.raises(UnavailableError, match="CERTIFICATE_VERIFY"):
            api.get("/x")
        written(tmp_path / "account", new)
        assert {} == api.get("/x")


@needs_openssl
def test_a_server_that_is_not_known_is_told_nothing(tmp_path: Path) -> None:
    context, _ = certificate(tmp_path)
    _, foreign = certificate(tmp_path / "other")
    account = Account(written(tmp_path / "account", foreign))
    with (
        running(Script(), context) as script,
        pytest.raises(UnavailableError, match="CERTIFICATE_VERIFY"),
    ):
        ApiServer(script.url, account).get("/x")
    assert [] == script.asked


@needs_openssl
@pytest.mark.parametrize("missing", ["token", "ca.crt"])
def test_a_file_that_is_missing_is_named(tmp_path: Path, missing: str) -> None:
    _, authority = certificate(tmp_path)
    place = written(tmp_path / "account", authority)
    (place / missing).unlink()
    with pytest.raises(UnavailableError, match=missing):
        ApiServer("https://127.0.0.1:1", Account(place)).get("/x")


def test_certificates_that_are_none_are_for_now(tmp_path: Path) -> None:
    account = Account(written(tmp_path / "account", "not a certificate"))
    with pytest.raises(UnavailableError):
        ApiServer("https://127.0.0.1:1", account).get("/x")


def test_a_token_that_is_not_text_is_for_now(tmp_path: Path) -> None:
    place = written(tmp_path / "account", "")
    (place / "token").write_bytes(b"\xff\xfe")
    with pytest.raises(UnavailableError):
        ApiServer("https://127.0.0.1:1", Account(place)).get("/x")


def test_a_token_of_two_lines_is_for_now_and_in_no_message(tmp_path: Path) -> None:
    place = written(tmp_path / "account", "", "secret\nsecret")
    with pytest.raises(ValueError, match="token: not one line of printable characters") as raised:
        Account(place).token()
    assert "secret" not in str(raised.value)
