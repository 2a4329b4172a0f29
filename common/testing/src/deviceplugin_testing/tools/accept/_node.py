"""The plugin on this machine: its settings, what it offers, and its answers to a kubelet."""

import fcntl
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import grpc

from deviceplugin.checks import Acceptance, Found
from deviceplugin.errors import ConfigError
from deviceplugin.kit import cdi
from deviceplugin_testing.conformance._process import Plugin
from deviceplugin_testing.conformance._subject import free_port
from deviceplugin_testing.simulator import Pod, RunOptions, SimulatedKubelet
from deviceplugin_testing.simulator._containers.runtime import (
    Specifications,
    UnresolvableError,
    edited,
)
from deviceplugin_testing.tools.accept._container import INIT

PLACE: Final = Path("/run/deviceplugin-accept")
"""Everything that is written but for the report is here, and short enough for sockets."""
_OWN: Final = ("state-file", "labels-file")
"""Settings that would have the plugin write elsewhere."""
_ANNOTATIONS: Final = "cdi.k8s.io/"
_START: Final = 60.0
_CALL: Final = 10.0
_EVENT: Final = 15.0
_LARGEST: Final = 4 << 20


class TrialError(Exception):
    """The plugin does not do what is asked of it; the message says what."""


class MissingRuntimeError(TrialError):
    """The vendor's runtime, which would bring the device, is not on this machine."""


@contextmanager
def place(path: Path = PLACE) -> Iterator[Path]:
    """Yield the empty directory ``path``, which nobody else has meanwhile; delete it at the end.

    Raises:
        ConfigError: Another process has it.
    """
    lock = _locked(path)
    try:
        for entry in path.iterdir():  # of one that was killed
            shutil.rmtree(entry, ignore_errors=True)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def _locked(path: Path) -> int:
    while True:
        path.mkdir(mode=0o700, exist_ok=True)
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(lock).st_ino == path.stat().st_ino:
                return lock
        except BlockingIOError:
            os.close(lock)
            raise ConfigError(f"another accept has {path}: wait until it has ended") from None
        except FileNotFoundError:
            pass
        os.close(lock)  # the one before has deleted the directory


class Trial:
    """A plugin with the user's ``flags``, kept from writing anywhere but below ``folder``."""

    def __init__(
        self, acceptance: Acceptance, flags: Sequence[str], folder: Path, limit: float
    ) -> None:
        self._acceptance, self._flags, self.folder = acceptance, flags, folder
        self._end = time.monotonic() + limit
        self.config: Mapping[str, Any] = json.loads(self._ask("--print-config")[0])
        if more := acceptance.outside(self.config) if acceptance.outside else ():
            self._flags = [*flags, *more]
            self.config = json.loads(self._ask("--print-config")[0])
        own = [f"--{name}={folder}/{name}" for name in _OWN if name in self.config]
        self._own = [*own, f"--cdi-dir={folder}/cdi", "--protocol=device-plugin"]

    def left(self) -> float:
        """Return for how many seconds there is time."""
        return self._end - time.monotonic()

    def _patience(self) -> float:
        return max(1.0, min(_START, self.left()))

    def discover(self) -> tuple[list[Found], list[str]]:
        """Return what the plugin offers, and what it says of it.

        Raises:
            TrialError: The discovery failed.
        """
        output, said = self._ask(
            *self._own, "--log-format=json", "--once", "--output=json", is_checked=False
        )
        said = [text for text in map(_problem, said) if text]
        try:
            resources = json.loads(output)["resources"]
        except ValueError:
            raise TrialError("; ".join(said) or "the plugin prints no devices") from None
        found = [
            Found(
                resource["name"],
                one["id"],
                "" if one["healthy"] else one["reason"] or "no reason",
                one["numa_nodes"],
                one["attributes"],
            )
            for resource in resources
            for one in resource["devices"]
        ]
        return found, said

    def _ask(self, *words: str, is_checked: bool = True) -> tuple[str, list[str]]:
        command = [sys.executable, "-m", self._acceptance.module, *self._flags, *words]
        try:
            done = subprocess.run(  # noqa: S603 - the plugin
                _tied(command),
                capture_output=True,
                start_new_session=True,
                timeout=self._patience(),
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise TrialError(
                f"{words[-1]}: no end within {_START:g} s, or the time is over"
            ) from None
        said = done.stderr.decode(errors="replace").strip().splitlines()
        if is_checked and done.returncode:
            raise ConfigError("\n".join(said[-20:]) or f"{self._acceptance.module} does not start")
        return done.stdout.decode(errors="replace"), said

    @contextmanager
    def serving(self, strategy: str, expected: Sequence[Found]) -> Iterator["Serving"]:
        """Run the plugin with a strategy on a simulated kubelet, which has its devices.

        Raises:
            TrialError: It does not register, or lacks a device that it had before.
        """
        root = self.folder / "kubelet"
        shutil.rmtree(root, ignore_errors=True)
        with SimulatedKubelet(root) as kubelet:
            kubelet.run(Pod.of(socket.gethostname(), plugin={}))
            address = f"127.0.0.1:{free_port()}"
            paths = {
                "plugin-dir": kubelet.plugin_dir,
                "registry-dir": kubelet.registry_dir,
                "pod-resources-socket": kubelet.pod_resources_socket,
                "http-address": address,
                "log-format": "json",
            }
            if "kubelet-socket" in self.config:
                paths["kubelet-socket"] = kubelet.kubelet_socket
            flags = [*self._flags, *self._own, *self._acceptance.strategies[strategy]]
            flags += [f"--{name}={value}" for name, value in paths.items()]
            command = _tied([sys.executable, "-m", self._acceptance.module, *flags])
            output = self.folder / "log"
            output.unlink(missing_ok=True)
            plugin = Plugin(command, placeholders={}, output=output)
            try:
                serving = Serving(kubelet, plugin, output, address)
                serving.wait_for(expected, self._patience())
                yield serving
            finally:
                if plugin.terminate(_CALL) is None:
                    plugin.kill()

    def resolved(self, answer: RunOptions) -> RunOptions:
        """Return what a runtime makes of an answer: the edits of its CDI devices are in it.

        Raises:
            TrialError: Nothing on the machine brings what the answer names.
        """
        names = [*answer.cdi_devices]
        for key, value in answer.annotations.items():
            names += value.split(",") if _ANNOTATIONS in key else []
        by_runtime = self._acceptance.by_runtime
        if not names and by_runtime:
            mounts = [mount.container_path for mount in answer.mounts]
            names, why = by_runtime(answer.envs, mounts, self.folder / "runtime")
            if why:
                raise MissingRuntimeError(why)
        directories = [*cdi.DIRECTORIES, self.folder / "cdi", self.folder / "runtime"]
        found = Specifications.read(directories, "")
        try:
            return edited(answer, found.edits(list(dict.fromkeys(names))))
        except UnresolvableError as error:
            why = "; ".join(f"{path}: {text}" for path, text in found.problems.items())
            raise TrialError(f"{error}{f' ({why})' if why else ''}") from None


class Serving:
    """A plugin that serves."""

    def __init__(
        self, kubelet: SimulatedKubelet, plugin: Plugin, output: Path, address: str
    ) -> None:
        self._kubelet, self._plugin, self._output, self._address = kubelet, plugin, output, address

    def wait_for(self, expected: Sequence[Found], timeout: float) -> None:
        """Wait until the kubelet has all these devices; raise TrialError after ``timeout``."""

        def is_listed() -> bool:
            return self._plugin.status is not None or all(
                one.id in self._kubelet.devices(one.resource) for one in expected
            )

        with suppress(TimeoutError):
            self._kubelet.wait(is_listed, timeout=timeout)
        if self._plugin.status is not None:
            raise TrialError(f"the plugin ended: {self._plugin.last_words()}")
        if missing := [
            one.id for one in expected if one.id not in self._kubelet.devices(one.resource)
        ]:
            raise TrialError(f"not listed within {timeout:.0f} s: {', '.join(missing[:5])}")

    def allocate(self, device: Found) -> RunOptions:
        """Return the plugin's answer for one device, or raise TrialError."""
        try:
            answer = self._kubelet.allocate(device.resource, [device.id], timeout=_CALL)
        except grpc.RpcError as error:
            raise TrialError(f"Allocate: {error.details()}") from None
        except LookupError as error:
            raise TrialError(f"Allocate: {error}") from None
        return RunOptions.merge([answer])

    def is_healthy(self, device: Found) -> bool:
        return device.id in self._kubelet.healthy(device.resource)

    def metrics(self) -> str:
        try:
            address = f"http://{self._address}/metrics"
            with urllib.request.urlopen(address, timeout=_CALL) as answer:
                return str(answer.read(_LARGEST).decode(errors="replace"))
        except OSError:
            return ""

    def log(self) -> str:
        with self._output.open(errors="replace") as file:
            return file.read(_LARGEST)

    def eventually(self, condition: Callable[[], bool]) -> bool:
        """Return whether ``condition`` comes true within some seconds."""
        end = time.monotonic() + _EVENT
        while not condition():
            if time.monotonic() > end:
                return False
            time.sleep(0.1)
        return True


def _problem(line: str) -> str:
    """Return a line of a plugin's standard error; empty for an event that is not a problem."""
    try:
        event = json.loads(line)
        if event["level"] in {"debug", "info"}:
            return ""
        fields = {k: v for k, v in event.items() if k not in {"time", "level", "event"}}
        return " ".join([event["event"], *(f"{k}={v}" for k, v in fields.items())])
    except (ValueError, KeyError, TypeError):
        return line


def _tied(command: Sequence[str]) -> list[str]:
    """Return a command that ends with this process, even if this is killed."""
    return [sys.executable, "-I", "-S", str(INIT), str(os.getpid()), *command]
