"""The plugin on this machine: its settings, what it offers, and its answers to a kubelet."""

import fcntl
import json
import os
import shutil
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import grpc

from deviceplugin._platform.waiting import Waiter
from deviceplugin.checks import Acceptance, Found
from deviceplugin.errors import ConfigError
from deviceplugin.kit import cdi
from deviceplugin_testing.conformance._process import Plugin
from deviceplugin_testing.conformance._subject import Place
from deviceplugin_testing.simulator import Pod, RunOptions, SimulatedKubelet
from deviceplugin_testing.simulator._containers.runtime import (
    Specifications,
    UnresolvableError,
    edited,
)
from deviceplugin_testing.tools.accept._container import tied

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
    """Yield the directory ``path``, empty and nobody else's meanwhile; empty it at the end.

    Raises:
        ConfigError: Another process has it.
    """
    path.mkdir(mode=0o700, exist_ok=True)
    lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise ConfigError(f"another accept has {path}: wait until it has ended") from None
    try:
        _clear(path)  # of one that was killed
        yield path
    finally:
        _clear(path)
        os.close(lock)


def _clear(path: Path) -> None:
    for entry in path.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink()


class Trial:
    """A plugin with the user's ``flags``, kept from writing anywhere but below ``folder``."""

    def __init__(self, acceptance: Acceptance, flags: Sequence[str], folder: Path) -> None:
        self._acceptance, self._flags, self.folder = acceptance, [*flags], folder
        self.config: Mapping[str, Any] = self._config()
        if more := acceptance.outside(self.config):
            self._flags += more
            self.config = self._config()
        self._flags += [f"--{name}={folder}/{name}" for name in _OWN if name in self.config]
        self._flags += [f"--cdi-dir={folder}/cdi", "--protocol=device-plugin"]

    def _config(self) -> Mapping[str, Any]:
        done = self._ask("--print-config")
        if done.returncode:
            why = "\n".join(done.stderr.strip().splitlines()[-20:])
            raise ConfigError(why or f"{self._acceptance.module} does not start")
        config: Mapping[str, Any] = json.loads(done.stdout)
        return config

    def discover(self) -> tuple[list[Found], list[str]]:
        """Return what the plugin offers, and the problems that it logs.

        Raises:
            TrialError: The discovery failed.
        """
        done = self._ask("--log-level=warning", "--log-format=text", "--once", "--output=json")
        said = done.stderr.strip().splitlines()
        try:
            resources = json.loads(done.stdout)["resources"]
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

    def _command(self, *words: str) -> list[str]:
        return tied(sys.executable, "-m", self._acceptance.module, *self._flags, *words)

    def _ask(self, *words: str) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(  # noqa: S603 - the plugin
                self._command(*words),
                capture_output=True,
                text=True,
                errors="replace",
                start_new_session=True,
                timeout=_START,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise TrialError(f"{words[-1]}: no end within {_START:g} s") from None

    @contextmanager
    def serving(self, strategy: str, expected: Sequence[Found]) -> Iterator["Serving"]:
        """Run the plugin with a strategy on a simulated kubelet, which has its devices.

        Raises:
            TrialError: It does not register, or lacks a device that it had before.
        """
        root = self.folder / "kubelet"
        shutil.rmtree(root, ignore_errors=True)
        with SimulatedKubelet(root) as kubelet:
            kubelet.run(Pod.of(socket.gethostname(), plugin={}))  # the plugin's own
            at = Place(root, self.folder).placeholders()
            names = ["plugin_dir", "registry_dir", "pod_resources_socket", "http_address"]
            flags = ["--log-format=json"]
            flags += [f"--{name.replace('_', '-')}={{{name}}}" for name in names]
            if "kubelet-socket" in self.config:
                flags.append(f"--kubelet-socket={kubelet.kubelet_socket}")
            command = self._command(*self._acceptance.strategies[strategy], *flags)
            output = self.folder / "log"
            output.unlink(missing_ok=True)
            plugin = Plugin(command, placeholders=at, output=output)
            try:
                serving = Serving(kubelet, plugin, output, at["http_address"])
                serving.wait_for(expected)
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

    def wait_for(self, expected: Sequence[Found]) -> None:
        """Wait until the kubelet has all these devices, or raise TrialError."""

        def missing() -> list[str]:
            return [e.id for e in expected if e.id not in self._kubelet.devices(e.resource)]

        with suppress(TimeoutError):
            self._kubelet.wait(
                lambda: self._plugin.status is not None or not missing(), timeout=_START
            )
        if self._plugin.status is not None:
            raise TrialError(f"the plugin ended: {self._plugin.last_words()}")
        if lost := missing():
            raise TrialError(f"not listed within {_START:g} s: {', '.join(lost[:5])}")

    def allocate(self, device: Found) -> RunOptions:
        """Return the plugin's answer for one device, or raise TrialError."""
        try:
            answer = self._kubelet.allocate(device.resource, [device.id], timeout=_CALL)
        except (grpc.RpcError, LookupError) as error:
            why = error.details() if isinstance(error, grpc.RpcError) else error
            raise TrialError(f"Allocate: {why}") from None
        return RunOptions.merge([answer])

    def is_healthy(self, device: Found) -> bool:
        return device.id in self._kubelet.healthy(device.resource)

    def metrics(self) -> str:
        with suppress(OSError):
            address = f"http://{self._address}/metrics"
            with urllib.request.urlopen(address, timeout=_CALL) as answer:
                return str(answer.read(_LARGEST).decode(errors="replace"))
        return ""

    def log(self) -> str:
        with self._output.open(errors="replace") as file:
            return file.read(_LARGEST)

    def eventually(self, condition: Callable[[], bool]) -> bool:
        """Return whether ``condition`` comes true within some seconds."""
        return Waiter().until(condition, _EVENT, every=0.1)
