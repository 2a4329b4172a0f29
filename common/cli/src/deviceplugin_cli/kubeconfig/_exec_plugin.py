"""Programs that return credentials, as those of cloud providers: ``exec`` in a kubeconfig."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from deviceplugin._config.documents.faults import bounded
from deviceplugin.errors import ConfigError
from deviceplugin_cli.kubeconfig._entry import Entry

_VERSIONS: Final = tuple(f"client.authentication.k8s.io/{version}" for version in ("v1", "v1beta1"))
_MODES: Final = ("Never", "IfAvailable", "Always")
_TIMEOUT: Final = 60.0
_MARGIN: Final = timedelta(seconds=10)
"""Before it expires, a credential is renewed."""


@dataclass(frozen=True)
class Credential:
    """What a program has returned. An empty string means none."""

    token: str = ""
    certificate: str = ""
    key: str = ""
    expires: datetime | None = None

    def is_valid(self, now: datetime) -> bool:
        """Return whether it can be used for a while."""
        return self.expires is None or now + _MARGIN < self.expires


class ExecPlugin:
    """A program that is run when a credential is needed, and again when that expires. Thread-safe.

    Args:
        words: The program and its arguments.
        environ: Its environment.
        version: Of the ``ExecCredential`` that it returns.
        interactive: Whether it may ask the user.
        hint: How to install it.
        now: The current time.
    """

    def __init__(
        self,
        words: list[str],
        environ: Mapping[str, str],
        version: str,
        *,
        interactive: bool = False,
        hint: str = "",
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._words = words
        self._environ = environ
        self._version = version
        self._interactive = interactive
        self._hint = hint
        self._now = now
        self._lock = threading.Lock()
        self._credential: Credential | None = None

    @classmethod
    def of(cls, entry: Entry, cluster: Entry) -> "ExecPlugin":
        """Return the program of a user's ``exec``.

        Raises:
            ConfigError: Something in it is wrong.
        """
        version, mode = entry.required("apiVersion"), entry.text("interactiveMode") or _MODES[1]
        if version not in _VERSIONS:
            raise ConfigError(
                f"{entry}: apiVersion: {bounded(repr(version))} is not one of {_VERSIONS}"
            )
        if mode not in _MODES:
            raise ConfigError(
                f"{entry}: interactiveMode: {bounded(repr(mode))} is not one of {_MODES}"
            )
        is_terminal = sys.stdin is not None and sys.stdin.isatty()
        if mode == "Always" and not is_terminal:
            raise ConfigError(f"{entry}: interactiveMode: Always needs a terminal")
        interactive = is_terminal and mode != "Never"
        command = entry.required("command")
        if "/" in command:
            command = str(entry.folder / command)
        spec: dict[str, Any] = {"interactive": interactive}
        if entry.flag("provideClusterInfo"):
            spec["cluster"] = _described(cluster)
        asked = {"apiVersion": version, "kind": "ExecCredential", "spec": spec}
        own = {one.required("name"): one.text("value") for one in entry.entries("env")}
        return cls(
            [command, *entry.strings("args")],
            {**os.environ, **own, "KUBERNETES_EXEC_INFO": json.dumps(asked)},
            version,
            interactive=interactive,
            hint=entry.text("installHint"),
        )

    def credential(self) -> Credential:
        """Return a credential that is valid.

        Raises:
            ConfigError: The program failed, or returned something else.
        """
        with self._lock:
            if self._credential is None or not self._credential.is_valid(self._now()):
                self._credential = self._parsed(self._run())
            return self._credential

    def _run(self) -> str:
        try:
            return subprocess.run(  # noqa: S603
                self._words,
                env=self._environ,
                stdin=None if self._interactive else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                timeout=None if self._interactive else _TIMEOUT,
                check=True,
                text=True,
            ).stdout
        except subprocess.SubprocessError as error:  # its own message is on standard error
            raise ConfigError(f"no credentials: {_failure(self._words[0], error)}") from error
        except (OSError, ValueError) as error:
            hint = f"\n{self._hint}" if self._hint else ""
            raise ConfigError(f"no credentials: {self._words[0]}: {error}{hint}") from error

    def _parsed(self, output: str) -> Credential:
        wrong = ConfigError(f"no credentials: {self._words[0]}: did not print an ExecCredential")
        try:
            answer = json.loads(output)
            if answer["apiVersion"] != self._version:
                raise wrong
            status = answer["status"]
            expires = status.get("expirationTimestamp")
            found = Credential(
                _string(status, "token"),
                _string(status, "clientCertificateData"),
                _string(status, "clientKeyData"),
                datetime.fromisoformat(expires).astimezone(UTC) if expires else None,
            )
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise wrong from None  # the reason could contain a token
        if not (found.token or (found.certificate and found.key)):
            raise wrong
        return found


def _string(status: Mapping[str, Any], key: str) -> str:
    value = status.get(key) or ""
    if not isinstance(value, str) or not value.isascii():
        raise TypeError
    return value


def _failure(command: str, error: subprocess.SubprocessError) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        return f"{command}: exit status {error.returncode}"
    return f"{command}: no answer after {_TIMEOUT:g} s"


def _described(cluster: Entry) -> dict[str, Any]:
    """Return what a program may learn of the cluster."""
    keys = ("server", "tls-server-name", "certificate-authority-data", "insecure-skip-tls-verify")
    found = {key: cluster.any(key) for key in keys if cluster.any(key)}
    for extension in cluster.entries("extensions"):
        if extension.text("name") == "client.authentication.k8s.io/exec":
            found["config"] = extension.any("extension")
    return found
