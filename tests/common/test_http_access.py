"""Who is answered over HTTP: by a token, by the name that is asked for, and with TLS."""

import http.client
import logging
import shutil
import socket
import ssl
import struct
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from cluster.certificates import make, needs_openssl
from deviceplugin import ConfigError
from deviceplugin._config.loading import load
from deviceplugin._config.settings import Settings
from deviceplugin._http.access import Access
from deviceplugin._http.certificate import Certificate
from deviceplugin._http.connections import MAX_HEAD
from deviceplugin._http.listener import certificate
from deviceplugin.tools._devices_page import (
    Credentials,
    NoAnswerError,
    RefusedError,
    fetch,
    page_of,
)
from deviceplugin.tools.events._notice import Fact, read_facts
from deviceplugin_testing.conformance._subject import free_port
from deviceplugin_testing.fixture import Kubelet
from http_server import View, ask, serving
from patience import PATIENCE, eventually
from plugin_process import run, started

TOOLS = f"{sys.executable} -m deviceplugin"
TOKEN = "s3cret.token~of-ours="
PATHS = ("/", "/devices", "/metrics", "/none")


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN} \n\n")
    return file


def test_with_a_token_all_but_probes_asks_for_it(token_file: Path) -> None:
    view = View()
    view.waiting = view.death = "x.io/a: of pod secret"
    with serving(host=view, access=Access(token_file, ())) as server:
        for path in PATHS:
            status, _, headers = ask(server.port, path)
            assert (401, "Bearer") == (status, headers["WWW-Authenticate"])
            wanted = 404 if "/none" == path else 200
            assert wanted == ask(server.port, path, bearer(TOKEN))[0]
            given = {"Authorization": f"bEARER  {TOKEN}", "Host": "plugin.example.com"}
            assert wanted == ask(server.port, path, given)[0]
        for path in ("/healthz", "/readyz"):
            assert (503, "not ready\n") == ask(server.port, path)[:2]
            assert (503, "not ready\n") == ask(server.port, path, bearer("other"))[:2]
            assert (503, f"{view.waiting}\n") == ask(server.port, path, bearer(TOKEN))[:2]


OTHER = f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", "Bearer \xe9"


@pytest.mark.parametrize("given", ["", TOKEN, f"Basic {TOKEN}", "Bearer", *OTHER])
def test_what_is_not_the_token_is_refused(token_file: Path, given: str) -> None:
    with serving(access=Access(token_file, ())) as server:
        assert 401 == ask(server.port, "/devices", {"Authorization": given})[0]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "No such file or directory"),
        (b" \n", "is empty"),
        (b"two words", "is not one word of ASCII characters"),
        ("zuf\xe4llig".encode(), "is not one word of ASCII characters"),
        (b"a" * 8193, "is longer than 8192 bytes"),
    ],
)
def test_without_a_usable_token_nobody_is_answered_and_that_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes | None, problem: str
) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    with serving(access=Access(file, ())) as server:
        for headers in ({}, bearer(""), bearer("a" * 8193)):
            said = f"http-token-file {file}: {problem}\n"
            assert (503, said) == ask(server.port, "/devices", headers)[:2]
        assert (200, "ok\n") == ask(server.port, "/healthz", bearer(""))[:2]
        for token in (TOKEN, "new"):  # in force at once
            file.write_text(token)
            assert 200 == ask(server.port, "/devices", bearer(token))[0]
        assert 401 == ask(server.port, "/devices", bearer(TOKEN))[0]
    (record,) = caplog.records
    assert "http token unusable, requests refused" == record.message
    assert (str(file), problem) == (vars(record)["file"], vars(record)["error"])


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        (["127.0.0.1", "127.0.0.1:9494", "10.1.2.3", "[::1]:9494", "[fd00::1]"], 200),
        (["localhost:80", "LOCALHOST", "localhost."], 200),
        (["node-1.example.com:9494", "Node-1.Example.com"], 200),
        (["evil.example.com", "localhost.evil.com", "127.0.0.1.evil.com"], 421),
        (["127.0.0.1@evil.com", "2130706433.evil", "[localhost]:80", "[::1", ""], 421),
    ],
)
def test_without_a_token_all_but_probes_asks_for_an_address_or_a_known_name(
    hosts: Sequence[str], expected: int
) -> None:
    with serving(access=Access(None, ("node-1.example.com",))) as server:
        for host in hosts:
            for path in PATHS:
                status, text, _ = ask(server.port, path, {"Host": host})
                assert (404 if "/none" == path and 200 == expected else expected) == status, host
                assert (421 == expected) == ("http-hosts" in text)
            assert 200 == ask(server.port, "/healthz", {"Host": host})[0]


def test_who_names_no_host_is_no_browser_and_is_answered() -> None:
    with serving() as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
        connection._http_vsn, connection._http_vsn_str = 10, "HTTP/1.0"  # type: ignore[attr-defined]
        connection.request("GET", "/devices")
        assert 200 == connection.getresponse().status
        connection.close()


@pytest.mark.parametrize("name", ["http://x", "x:9494", "a/b", "_", "-", "x..y", "*.example.com"])
def test_what_can_be_no_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"which is not a name such as node-1\.example\.com"):
        load(Settings, flags={"http-hosts": f"a.b,{name}"}, environ={})


# TLS


def trusting(place: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=place / "ca.crt")


def made(place: Path) -> Certificate:
    make(place)
    return Certificate(place / "ca.crt", place / "key.pem")


@needs_openssl
def test_with_a_certificate_the_port_has_tls_and_says_so_to_who_does_not_use_it(
    tmp_path: Path,
) -> None:
    with serving(certificate=made(tmp_path)) as server:
        assert (200, "ok\n") == ask(server.port, "/healthz", tls=trusting(tmp_path))[:2]
        status, said, _ = ask(server.port, "/healthz")
        assert 400 == status
        assert "use https://" in said
        wrong = ask(server.port, "/none", {"X": "a" * MAX_HEAD}, tls=trusting(tmp_path))
        assert 431 == wrong[0]
        old = trusting(tmp_path)
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        assert 200 == ask(server.port, "/metrics", tls=old)[0]


@needs_openssl
def test_handshakes_that_do_not_end_keep_nobody_waiting(tmp_path: Path) -> None:
    with serving(certificate=made(tmp_path)) as server, ExitStack() as stack:
        for word in (b"", b"\x16", b"\x16\x03\x01\x02\x00\x01", b"\x16" * 20) * 20:
            client = socket.create_connection(("127.0.0.1", server.port), PATIENCE)
            stack.enter_context(client).sendall(word)
        assert 200 == ask(server.port, "/healthz", tls=trusting(tmp_path))[0]


@needs_openssl
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of wrap_socket
def test_who_has_gone_before_the_handshake_is_the_only_one(tmp_path: Path) -> None:
    def abandon(listening: socket.socket) -> socket.socket:
        with socket.create_connection(listening.getsockname()) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return listening

    with serving(certificate=made(tmp_path), of=abandon) as server:
        assert 200 == ask(server.port, "/healthz", tls=trusting(tmp_path))[0]


@needs_openssl
def test_a_renewed_certificate_is_used_and_a_wrong_one_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    used, new = tmp_path / "used", tmp_path / "new"
    make(new)
    with serving(certificate=made(used)) as server:
        before = trusting(used)
        shutil.copy(new / "key.pem", used / "key.pem")  # and the old certificate still
        for _ in range(3):
            assert 200 == ask(server.port, "/healthz", tls=before)[0]
        shutil.copy(new / "ca.crt", used / "ca.crt")
        assert 200 == ask(server.port, "/healthz", tls=trusting(new))[0]
        with pytest.raises(ssl.SSLCertVerificationError):
            ask(server.port, "/healthz", tls=before)
        (used / "key.pem").unlink()
        assert 200 == ask(server.port, "/healthz", tls=trusting(new))[0]
    unusable = "http certificate unusable, the old one stays"
    assert [unusable, "http certificate renewed", unusable] == caplog.messages
    errors = [vars(record).get("error") for record in caplog.records]
    missing = f"{used / 'key.pem'}: No such file or directory"
    assert ["the key is not that of the certificate", None, missing] == errors


@needs_openssl
def test_what_cannot_be_used_for_tls_is_refused_at_the_start(tmp_path: Path) -> None:
    made(tmp_path)
    cert, key = tmp_path / "ca.crt", tmp_path / "key.pem"
    locked = tmp_path / "locked.pem"
    words = f"ec -in {key} -aes256 -passout pass:abc -out {locked}"
    subprocess.run(["openssl", *words.split()], check=True, capture_output=True)
    not_pem = "they are not a certificate and a key without a passphrase, both in PEM"
    for pair, why in (
        ((cert, locked), not_pem),
        ((key, cert), not_pem),
        ((cert, tmp_path / "none"), f"{tmp_path / 'none'}: No such file or directory"),
    ):
        with pytest.raises(ConfigError) as raised:
            certificate(Settings(http_cert_file=pair[0], http_key_file=pair[1]))
        assert f"http-cert-file {pair[0]} and http-key-file {pair[1]}: {why}" == str(raised.value)


@pytest.mark.parametrize("half", ["http_cert_file", "http_key_file"])
def test_half_of_what_tls_needs_is_refused(half: str) -> None:
    with pytest.raises(ConfigError, match="TLS needs both, so set both or none"):
        certificate(Settings(**{half: Path("/a")}))  # type: ignore[arg-type]
    assert certificate(Settings()) is None


@needs_openssl
@pytest.mark.slow
def test_a_plugin_has_what_its_settings_say_and_the_tools_can_ask_it(
    kubelet: Kubelet, token_file: Path
) -> None:
    place, port = token_file.parent, free_port()
    make(place)
    flags = {
        "http-address": f"127.0.0.1:{port}",
        "http-token-file": token_file,
        "http-cert-file": place / "ca.crt",
        "http-key-file": place / "key.pem",
    }
    words = [f"--{name}={value}" for name, value in flags.items()]
    url = f"https://127.0.0.1:{port}"
    known = Credentials(token_file, place / "ca.crt")
    with started(kubelet.simulated.plugin_dir, *words):
        facts = eventually(lambda: read(url, known), "its devices")
        assert "example.com/gopher" in {fact.resource for fact in facts}
        with pytest.raises(RefusedError, match="401 Unauthorized: the header Authorization"):
            fetch(page_of(url), 5, 1000, Credentials(None, place / "ca.crt"))
        with pytest.raises(NoAnswerError, match="certificate verify failed"):
            fetch(page_of(url), 5, 1000, Credentials(token_file))
        with pytest.raises(NoAnswerError, match="Hostname mismatch"):
            fetch(page_of(url.replace("127.0.0.1", "localhost")), 5, 1000, known)
        options = [f"--plugin-token-file={token_file}", f"--plugin-ca-file={place / 'ca.crt'}"]
        once = ["events", "--node=n", f"--plugin={url}", "--once", "--dry-run"]
        assert 0 == run(*once, *options, command=TOOLS)[0]
        assert 1 == run(*once, command=TOOLS)[0]
        socket = f"--pod-resources-socket={kubelet.simulated.pod_resources_socket}"
        listed = run("devices", socket, "--output=json", f"--plugin={url}", *options, command=TOOLS)
        assert 0 == listed[0], listed
        variables = {f"DP_{name.replace('-', '_').upper()}": str(v) for name, v in flags.items()}
        doctor = ["doctor", "--only=shortfalls", "--verbose"]
        status, said, _ = run(*doctor, command=TOOLS, **variables)
        assert (0, True) == (status, "the plugin offers all that it should" in said)
        del variables["DP_HTTP_TOKEN_FILE"]
        _, said, _ = run(*doctor, command=TOOLS, **variables)
        assert "401 Unauthorized" in said


def read(url: str, known: Credentials) -> list[Fact]:
    try:
        return read_facts(url, 5, known)
    except NoAnswerError:
        return []
