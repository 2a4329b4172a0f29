"""Programs that return credentials."""

import json
import ssl
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.certificates import certificate, make, needs_openssl
from cluster.scripted_api import Answer, Script, running
from deviceplugin.errors import ConfigError
from deviceplugin_cli.kubeconfig import _user, api_server_of
from deviceplugin_cli.kubeconfig._file import ConfigEntry, exec_plugin
from deviceplugin_cli.kubeconfig._user import ExecPlugin
from patience import PATIENCE

V1 = "client.authentication.k8s.io/v1"
BETA = "client.authentication.k8s.io/v1beta1"
NOW = datetime(2026, 11, 22, tzinfo=UTC)
Json = dict[str, Any]


def printed(status: object, version: str = V1) -> str:
    return json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status})


def program(folder: Path, text: str) -> Path:
    """Return a program that counts its runs, saves what it was asked, and then does ``text``."""
    path = folder / "login"
    path.write_text(
        f'#!/bin/sh\necho run >> "{folder}/runs"\n'
        f'printf %s "$KUBERNETES_EXEC_INFO" > "{folder}/asked"\n{text}\n'
    )
    path.chmod(0o755)
    return path


def printing(folder: Path, text: str) -> Path:
    """Return a program that prints ``text``."""
    (folder / "answer").write_text(text)
    return program(folder, f'cat "{folder}/answer"')


def runs(folder: Path) -> int:
    return len((folder / "runs").read_text().splitlines())


def asked(folder: Path) -> Json:
    found: Json = json.loads((folder / "asked").read_text())
    return found


def plugin(folder: Path, values: Json, cluster: Json | None = None) -> ExecPlugin:
    whole = {"apiVersion": V1, "command": "./login", **values}
    return exec_plugin(ConfigEntry("exec", folder, whole), ConfigEntry("k", folder, cluster or {}))


def test_a_token_is_returned_by_a_program_beside_the_file_and_kept(tmp_path: Path) -> None:
    printing(tmp_path, printed({"token": "t"}))
    found = plugin(tmp_path, {})
    assert ("t", "t", 1) == (found.credential().token, found.credential().token, runs(tmp_path))
    told = asked(tmp_path)
    assert (V1, {"interactive": False}) == (told["apiVersion"], told["spec"])


def test_arguments_variables_and_the_cluster_are_passed_on(tmp_path: Path) -> None:
    status = printed({"token": "$WHO$1-$2"}, BETA).replace('"', '\\"')
    program(tmp_path, f'echo "{status}"')
    values = {"apiVersion": BETA, "args": ["a", "b"], "env": [{"name": "WHO", "value": "me"}]}
    wanted = {"region": "eu"}
    cluster = {
        "server": "https://k",
        "insecure-skip-tls-verify": False,
        "extensions": [
            {"name": "other", "extension": {}},
            {"name": "client.authentication.k8s.io/exec", "extension": wanted},
        ],
    }
    found = plugin(tmp_path, {**values, "provideClusterInfo": True}, cluster)
    assert "mea-b" == found.credential().token
    assert {"server": "https://k", "config": wanted} == asked(tmp_path)["spec"]["cluster"]


@pytest.mark.parametrize(("seconds", "count"), [(3600, 1), (11, 1), (9, 2), (-1, 2)])
def test_a_credential_that_expires_is_renewed(tmp_path: Path, seconds: int, count: int) -> None:
    expires = (NOW + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")
    status = printed({"token": "t", "expirationTimestamp": expires})
    path = printing(tmp_path, status)
    environ = {"KUBERNETES_EXEC_INFO": ""}
    found = ExecPlugin([str(path)], environ, V1, now=lambda: NOW)
    found.credential()
    found.credential()
    assert count == runs(tmp_path)


@needs_openssl
def test_a_client_certificate_can_come_from_a_program(tmp_path: Path) -> None:
    context, _ = certificate(tmp_path / "server")
    shown, key = make(tmp_path / "user")
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=shown)
    status = printed({"clientCertificateData": shown, "clientKeyData": key})
    printing(tmp_path, status)
    with running(Script(otherwise=lambda _: Answer.of({})), context) as script:
        cluster = {"server": script.url, "certificate-authority": "server/ca.crt"}
        content = {
            "current-context": "c",
            "clusters": [{"name": "k", "cluster": cluster}],
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "users": [{"name": "u", "user": {"exec": {"apiVersion": V1, "command": "./login"}}}],
        }
        (tmp_path / "config").write_text(json.dumps(content))
        api = api_server_of([tmp_path / "config"])
        assert [{}, {}] == [api.get("/x"), api.get("/x")]
    assert (1, 1) == (runs(tmp_path), len(script.connections))


@pytest.mark.parametrize(
    "text",
    [
        "secret",
        printed({"token": "secret"}, BETA),
        printed({}),
        printed({"token": ["secret"]}),
        printed({"token": "sécret"}),
        printed({"clientCertificateData": "secret"}),
        printed({"token": "secret", "expirationTimestamp": "soon"}),
        printed(None),
        "[]",
        "[" * 100_000,
    ],
)
def test_an_answer_that_is_no_credential_is_refused_and_not_shown(
    tmp_path: Path, text: str
) -> None:
    printing(tmp_path, text)
    with pytest.raises(ConfigError, match="did not print an ExecCredential") as error:
        plugin(tmp_path, {}).credential()
    assert "cret" not in str(error.value)


def test_a_program_that_fails_is_told_and_tried_again(tmp_path: Path) -> None:
    found = plugin(tmp_path, {"args": [str(tmp_path / "runs")]})
    with pytest.raises(ConfigError, match=r"login: .*No such file or directory: '.*/login'$"):
        found.credential()
    program(tmp_path, 'test "$(wc -l < "$1")" -gt 1')
    with pytest.raises(ConfigError, match=r"no credentials: .*/login: exit status 1"):
        found.credential()
    with pytest.raises(ConfigError, match="did not print"):
        found.credential()


def test_a_program_that_is_not_installed_is_told_with_advice(tmp_path: Path) -> None:
    values = {"command": "no-such-program-here", "installHint": "see https://example.com"}
    text = r"no-such-program-here: .*No such file.*\nsee https://example.com$"
    with pytest.raises(ConfigError, match=text):
        plugin(tmp_path, values).credential()


def test_a_program_that_does_not_end_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_user, "_TIMEOUT", 0.1)
    program(tmp_path, f"exec sleep {PATIENCE}")
    with pytest.raises(ConfigError, match=r"login: no answer after 0.1 s"):
        plugin(tmp_path, {}).credential()


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"command": ""}, "exec: command: is missing"),
        ({"apiVersion": "v1alpha1"}, "exec: apiVersion: 'v1alpha1' is not one of"),
        ({"interactiveMode": "Sometimes"}, "exec: interactiveMode: 'Sometimes' is not one of"),
        ({"interactiveMode": "Always"}, "exec: interactiveMode: Always needs a terminal"),
        *(({"args": args}, "exec: args: is not a list of strings") for args in ("a", [1])),
        ({"env": [{}]}, "exec: env[0]: name: is missing"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, values: Json, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        plugin(tmp_path, values)
    assert said in str(error.value)


@pytest.mark.parametrize(("mode", "interactive"), [("Always", True), ("Never", False)])
def test_at_a_terminal_a_program_may_ask_unless_it_never_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, interactive: bool
) -> None:
    printing(tmp_path, printed({"token": "t"}))
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
        plugin(tmp_path, {"interactiveMode": mode}).credential()
    assert interactive == asked(tmp_path)["spec"]["interactive"]
