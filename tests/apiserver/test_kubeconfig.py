"""Which API server kubectl would ask, and as whom."""

import base64
import json
import os
import ssl
from pathlib import Path
from typing import Any

import pytest

from cluster.certificates import certificate, make, needs_openssl
from cluster.scripted_api import Answer, Script, running
from deviceplugin.apiserver import UnavailableError
from deviceplugin.apiserver._credentials import MOST_BYTES, read_token
from deviceplugin.errors import ConfigError
from deviceplugin_cli.kubeconfig import api_server_of
from deviceplugin_cli.kubeconfig._file import connection

URL = "https://127.0.0.1:6443"
Json = dict[str, Any]


def config(
    cluster: Json | None = None, user: Json | None = None, current: str = "c", **more: Any
) -> Json:
    return {
        "current-context": current,
        "clusters": [{"name": "k", "cluster": {"server": URL, **(cluster or {})}}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "users": [{"name": "u", "user": user or {}}],
        **more,
    }


def written(path: Path, content: Json | str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def in_base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def problem(path: Path, content: Json | str, context: str = "") -> str:
    """Return why a file is refused, without its path."""
    with pytest.raises(ConfigError) as error:
        connection([written(path, content)], context)
    return str(error.value).removeprefix(str(path)).removeprefix(": ")


@needs_openssl
def test_a_token_and_an_authority_in_the_file_are_used(tmp_path: Path) -> None:
    context, authority = certificate(tmp_path)
    with running(Script(otherwise=lambda _: Answer.of({})), context) as script:
        cluster = {"server": script.url, "certificate-authority-data": in_base64(authority)}
        path = written(tmp_path / "config", config(cluster, {"token": "secret"}))
        api_server_of([path]).get("/x")
        api_server_of([path], context="c", name="me").get("/x")
    assert ["Bearer secret"] * 2 == [asked.headers["Authorization"] for asked in script.asked]
    assert "me" == script.asked[1].headers["User-Agent"]


@needs_openssl
def test_a_token_in_a_file_is_read_again_and_paths_are_relative_to_the_kubeconfig(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    context, _ = certificate(tmp_path / "keys")
    with running(Script(otherwise=lambda _: Answer.of({})), context) as script:
        cluster = {"server": script.url, "certificate-authority": "keys/ca.crt"}
        user = {"tokenFile": "token", "token": "the file wins"}
        api = api_server_of([written(tmp_path / "config", config(cluster, user))])
        for token in ("first\n", "second"):
            (tmp_path / "token").write_text(token)
            api.get("/x")
    sent = [asked.headers["Authorization"] for asked in script.asked]
    assert ["Bearer first", "Bearer second"] == sent
    assert 1 == len(script.connections)


@needs_openssl
@pytest.mark.parametrize("embedded", [True, False])
def test_a_client_certificate_is_shown_to_the_server(tmp_path: Path, embedded: bool) -> None:
    context, authority = certificate(tmp_path / "server")
    shown, key = make(tmp_path / "user")
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=shown)
    user = {"client-certificate": "user/ca.crt", "client-key": "user/key.pem"}
    if embedded:
        user = {"client-certificate-data": in_base64(shown), "client-key-data": in_base64(key)}
    with running(Script(otherwise=lambda _: Answer.of({})), context) as script:
        cluster = {"server": script.url, "certificate-authority-data": in_base64(authority)}
        path = written(tmp_path / "config", config(cluster, user))
        assert {} == api_server_of([path]).get("/x")
        path = written(tmp_path / "config", config(cluster))
        with pytest.raises(UnavailableError):
            api_server_of([path]).get("/x")
    assert "Authorization" not in script.asked[0].headers


@needs_openssl
def test_a_server_may_have_another_name_or_not_be_verified_if_that_is_asked_for(
    tmp_path: Path,
) -> None:
    context, authority = certificate(tmp_path, "DNS:api.example.com")
    with running(Script(otherwise=lambda _: Answer.of({})), context) as script:
        known = {"server": script.url, "certificate-authority-data": in_base64(authority)}
        for more in ({"tls-server-name": "api.example.com"}, {"insecure-skip-tls-verify": True}):
            path = written(tmp_path / "config", config({**known, **more}))
            assert {} == api_server_of([path]).get("/x")
        for wrong in (known, {"server": script.url}):  # another name, an unknown authority
            path = written(tmp_path / "config", config(wrong))
            with pytest.raises(UnavailableError, match="CERTIFICATE_VERIFY"):
                api_server_of([path]).get("/x")


def test_of_several_files_the_first_that_says_something_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = written(tmp_path / "1", {"users": [{"name": "u", "user": {"token": "first"}}]})
    second = written(tmp_path / "2", config(user={"token": "second"}))
    third = written(tmp_path / "3", config({"server": "https://other"}))
    missing = tmp_path / "missing"
    names = [first, missing, second, third]
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join([*map(str, names), ""]))
    url, user = connection([], "")
    assert (URL, "first") == (url, user.token())


def test_the_default_is_in_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=r"no kubeconfig: /.*/\.kube/config does not exist"):
        connection([], "")
    written(tmp_path / ".kube/config", config())
    assert URL == connection([], "")[0]
    with pytest.raises(ConfigError, match="missing: No such file or directory"):
        connection([tmp_path / "missing"], "")


def test_a_context_needs_no_user_and_another_can_be_named(tmp_path: Path) -> None:
    contexts = [{"name": "c", "context": {"cluster": "none"}}]
    contexts.append({"name": "d", "context": {"cluster": "k"}})
    path = written(tmp_path / "config", config(contexts=contexts))
    url, user = connection([path], "d")
    assert (URL, "") == (url, user.token())


def test_a_token_of_digits_stays_as_it_is_written(tmp_path: Path) -> None:
    text = json.dumps(config({"insecure-skip-tls-verify": False}, {"token": "T"}))
    path = written(tmp_path / "config", text.replace('"T"', "0123"))
    assert "0123" == connection([path], "")[1].token()


def test_a_token_that_cannot_be_sent_is_in_no_message(tmp_path: Path) -> None:
    path = written(tmp_path / "config", config(user={"token": "secret\nsecret"}))
    with pytest.raises(UnavailableError) as error:
        api_server_of([path]).get("/x")
    assert "not one line of printable characters" in str(error.value)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "the kubeconfig has no current-context: there are none"),
        (config(current=""), "the kubeconfig has no current-context: known are c"),
        (config(current="cc"), "has no context 'cc': did you mean 'c'?"),
        (config(clusters=[]), "the kubeconfig has no cluster 'k': there are none"),
        (config(clusters=None, users="x"), "users: is not a list of mappings"),
        (config(users=[]), "the kubeconfig has no user 'u': there are none"),
        (config(users=["x"]), "users: is not a list of mappings"),
        (config(users=[{"user": {}}]), "users[0]: name: is missing"),
        (config(users=[{"name": "u"}]), "users[u]: user: is missing"),
        (config(users=[{"name": "u", "user": "x"}]), "users[u]: user: is not a mapping"),
        *(
            (config({key: value}), f"clusters[k]: cluster: {key}: {said}")
            for key, value, said in (
                ("server", None, "is missing"),
                ("server", [], "is not a string"),
                ("insecure-skip-tls-verify", "yes", "is not true or false"),
                ("certificate-authority-data", "?", "is not base64 of a PEM"),
                ("certificate-authority", "none.crt", "[Errno 2]"),
                ("proxy-url", "http://proxy", "is not supported: use kubectl proxy"),
            )
        ),
        *(
            (config(user={key: "x"}), f"users[u]: user: {key}: is not supported")
            for key in ("as", "auth-provider", "username")
        ),
        (
            config(user={"client-key-data": in_base64("x")}),
            "users[u]: user: client-certificate and client-key are only used together",
        ),
        ("[]", "is not a kubeconfig"),
        ("a: [", ":1: "),
        (
            'contexts:\n- name: "\\u0000"\n  context: ""\n',
            r"contexts['\x00']: context: is not a mapping",
        ),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, content: Json | str, said: str) -> None:
    assert said in problem(tmp_path / "config", content)


def test_a_certificate_or_token_without_end_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "long").open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    for name, said in (("long", f"more than {MOST_BYTES} bytes"), ("/dev/zero", "not a regular")):
        found = problem(tmp_path / "config", config({"certificate-authority": name}))
        assert f"clusters[k]: cluster: certificate-authority: {said}" in found
        with pytest.raises(ValueError, match=said):
            read_token(tmp_path / name)


def test_certificates_that_are_none_are_told(tmp_path: Path) -> None:
    none, other = in_base64("x"), in_base64("y")
    pair = {"client-certificate-data": none, "client-key-data": other}
    for content, said in (
        (config({"certificate-authority-data": none}), "certificate-authority is not a"),
        (config(user=pair), "the client certificate and its key cannot be used"),
    ):
        with pytest.raises(ConfigError, match=said):
            api_server_of([written(tmp_path / "config", content)]).get("/x")


def test_names_are_shown_in_a_short_line_whatever_they_are(tmp_path: Path) -> None:
    odd: Json = {"contexts": [{"name": "\x1b[31m\n" + "n" * 100_000, "context": {"cluster": "k"}}]}
    for context in ("", "c" * 100_000):
        shown = problem(tmp_path / "config", config(current="", **odd), context)
        assert (True, True) == (shown.isprintable(), len(shown) < 1000)
