"""Asking a plugin over HTTP, and what else may be at its address."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.scripted_api import Answer, Script, running
from deviceplugin.tools._devices_page import (
    Credentials,
    NoAnswerError,
    RefusedError,
    fetch,
    page_of,
)

ANSWERS = {
    "devices": b"HTTP/1.0 200 OK\r\n\r\n{}",
    "ssh": b"SSH-2.0-OpenSSH_9.2\r\n",
    "noise": b"\xff" * 100_000,
    "cut": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nabc",
    "silence": b"",
    "busy": b"HTTP/1.0 503 Busy\r\n\r\nno discovery has succeeded yet\nmore\n",
    "mute": b"HTTP/1.0 503 Busy\r\n\r\n",
    "noisy": b"HTTP/1.0 503 Busy\r\n\r\n\x1b[31m\n",
    "torn": b"HTTP/1.1 503 Busy\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
}


@pytest.fixture(scope="module")
def place() -> Iterator[str]:
    script = Script(otherwise=lambda asked: Answer(raw=ANSWERS[asked.path.strip("/")]))
    with running(script):
        yield script.url


def test_the_page_is_understood_and_proxies_are_not_asked(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    for url in (place, f"{place}/", f"{place}/devices"):
        assert b"{}" == fetch(page_of(url), 5, 2)


def test_what_is_longer_than_may_be_is_no_answer(place: str) -> None:
    with pytest.raises(NoAnswerError, match="answers with more than 0 MiB"):
        fetch(page_of(place), 5, 1)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("ssh", "is not HTTP: BadStatusLine.*SSH-2.0-OpenSSH_9.2"),
        ("noise", "is not HTTP: LineTooLong"),
        ("cut", "is not HTTP: IncompleteRead"),
        ("silence", "Remote end closed connection without response"),
        ("busy", "^503 Busy: no discovery has succeeded yet$"),
        ("mute", "^503 Busy$"),
        ("noisy", "^503 Busy$"),
        ("torn", "^503 Busy$"),
    ],
)
def test_what_is_no_http_is_no_answer(place: str, path: str, reason: str) -> None:
    with pytest.raises(NoAnswerError, match=reason) as raised:
        fetch(f"{place}/{path}", 5, 1000)
    assert 200 >= len(str(raised.value))


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        ("http://node:http/devices", "nonnumeric port"),
        ("file:///etc/passwd", "is not an http:// address"),
        ("http://a..b/devices", "^is not an address: .*codec"),
        ("http://127.0.0.1:1/\u00fc", "^is not an address: .*codec"),
    ],
)
def test_an_address_that_is_none_is_no_answer(page: str, reason: str) -> None:
    with pytest.raises(NoAnswerError, match=reason):
        fetch(page, 5, 1000)


@pytest.mark.parametrize("host", ["node-1", "10.1.2.3", "[fd00::1]", "localhost.evil.com"])
def test_a_token_is_not_sent_to_another_machine_without_tls(host: str, tmp_path: Path) -> None:
    with pytest.raises(
        RefusedError, match=r"^the token is not sent to another machine without TLS"
    ):
        fetch(f"http://{host}/devices", 5, 1000, Credentials(tmp_path / "never read"))


def test_a_token_is_sent_on_this_machine_but_not_where_that_leads(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("abc\n")
    script = Script(otherwise=lambda _asked: Answer())
    script.answers.append(Answer(302, headers={"Location": "/other"}))
    with running(script):
        url = script.url.replace("127.0.0.1", "localhost")
        fetch(f"{url}/devices", 5, 1000, Credentials(file))
    asked = [(one.path, one.headers.get("Authorization")) for one in script.asked]
    assert [("/devices", "Bearer abc"), ("/other", None)] == asked


@pytest.mark.parametrize("content", ["", "\n", "a\nb", "zuf\u00e4llig"])
def test_what_is_no_token_is_named(content: str, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(content)
    with pytest.raises(NoAnswerError, match=f"^{file}: is not a token$"):
        fetch("http://127.0.0.1:1/devices", 5, 1000, Credentials(file))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    none = tmp_path / "none"
    for scheme, known in (("http", Credentials(none)), ("https", Credentials(None, none))):
        with pytest.raises(NoAnswerError, match=f"^{none}: No such file or directory$"):
            fetch(f"{scheme}://127.0.0.1:1/devices", 5, 1000, known)
    none.write_text("nothing")
    with pytest.raises(NoAnswerError, match=f"^{none}: has no certificate in PEM$"):
        fetch("https://127.0.0.1:1/devices", 5, 1000, Credentials(None, none))
