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
def test_a_server_that_is_not_known_is_told_nothing(tmp_path: Path) -> None:
    """Nor is one whose authority is new, until that is there."""
    old_context, old = certificate(tmp_path / "old")
    new_context, new = certificate(tmp_path / "new")
    account = Account(written(tmp_path / "account", old))
    with running(Script(otherwise=lambda _: Answer.of({})), old_context) as script:
        ApiServer(script.url, account).get("/x")
    with running(Script(otherwise=lambda _: Answer.of({})), new_context) as script:
        api = ApiServer(script.url, account)
        with pytest.raises(UnavailableError, match="CERTIFICATE_VERIFY"):
            api.get("/x")
        assert [] == script.asked
        written(tmp_path / "account", new)
        assert {} == api.get("/x")


@needs_openssl
@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        ("token", None, "No such file or directory: '/.*/token'$"),
        ("ca.crt", None, "No such file or directory: '/.*/ca.crt'$"),
        ("token", b"\xff\xfe", "can't decode byte 0xff"),
        ("ca.crt", b"not a certificate", "does not contain a certificate"),
    ],
)
def test_files_that_cannot_be_used_are_for_now(
    tmp_path: Path, file: str, content: bytes | None, reason: str
) -> None:
    _, authority = certificate(tmp_path)
    place = written(tmp_path / "account", authority)
    (place / file).unlink()
    if content is not None:
        (place / file).write_bytes(content)
    with pytest.raises(UnavailableError, match=reason):
        ApiServer("https://127.0.0.1:1", Account(place)).get("/x")


def test_a_token_of_two_lines_is_for_now_and_in_no_message(tmp_path: Path) -> None:
    place = written(tmp_path / "account", "", "secret\nsecret")
    with pytest.raises(ValueError, match="token: not one line of printable characters") as raised:
        Account(place).token()
    assert "secret" not in str(raised.value)
