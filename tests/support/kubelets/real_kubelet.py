"""The parts of a real kubelet that decide on devices, as a process that tests talk to.

They are built from a Kubernetes source tree, which stays as it is.
"""

import contextlib
import itertools
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final

from deviceplugin_testing.simulator import Container, KubeletConfig, KubeletCrashed, Pod

_DRIVER: Final = Path(__file__).parents[2] / "simulator/differential/driver"
_LONGEST: Final = 60.0
"""Seconds that an operation may take."""
_MANAGER: Final = "pkg/kubelet/cm/devicemanager"
_PLUGIN: Final = f"{_MANAGER}/plugin/v1beta1"

_ADDED: Final = {
    "cmd/differential-driver/main.go": "main.go",
    "cmd/differential-driver/kubelet.go": "kubelet.go",
    f"{_MANAGER}/differential.go": "devicemanager.go",
    f"{_PLUGIN}/differential.go": "plugin.go",
}

_CHANGED: Final = {
    # What the kubelet leaves to chance is taken in order, so that both sides choose the same.
    f"{_MANAGER}/manager.go": (
        (
            "for device := range devices.Difference(allocated) {",
            "for _, device := range sets.List(devices.Difference(allocated)) {",
            1,
        ),
        (
            "for k, v := range container.Resources.Limits {",
            (
                "for _, k := range sets.List(sets.KeySet(container.Resources.Limits)) {\n"
                "v := container.Resources.Limits[k]"
            ),
            2,
        ),
        (  # from 1.37 on
            "for _, remainingEp := range endpoints {",
            (
                "for _, path := range sets.List(sets.KeySet(endpoints)) {\n"
                "remainingEp := endpoints[path]"
            ),
            range(2),
        ),
    ),
    "pkg/scheduler/framework/plugins/noderesources/fit.go": (
        (
            "for rName, rQuant := range podRequest.ScalarResources {",
            (
                "for _, rName := range sets.List(sets.KeySet(podRequest.ScalarResources)) {\n"
                "rQuant := podRequest.ScalarResources[rName]"
            ),
            3,
        ),
    ),
    f"{_PLUGIN}/handler.go": (("func (s *server) runClient(", "func (s *server) readClient(", 1),),
}
"""Files of the kubelet, and in each what is replaced by what, and how often it is there."""


class CannotBuildError(Exception):
    """The driver cannot be built here; the message says why."""


def build(scratch: Path) -> Path:
    """Return the driver, built in ``scratch``, or raise ``CannotBuildError``."""
    tree = os.environ.get("K8S_SRC")
    if not tree:
        raise CannotBuildError(
            "K8S_SRC does not name a Kubernetes source tree with its vendor folder"
        )
    go = os.environ.get("GO") or shutil.which("go")
    if not go:
        raise CannotBuildError("there is no go on PATH and GO does not name one")
    overlay = scratch / "overlay.json"
    overlay.write_text(json.dumps({"Replace": _overlay(Path(tree).resolve(), scratch)}))
    driver = scratch / "driver"
    command = [
        go,
        "build",
        "-overlay",
        str(overlay),
        "-o",
        str(driver),
        "./cmd/differential-driver",
    ]
    own = {"GOFLAGS": "-mod=vendor", "CGO_ENABLED": "0", "GOTOOLCHAIN": "local"}
    done = subprocess.run(
        command, cwd=tree, env=os.environ | own, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{done.stderr}")
    return driver


def _overlay(tree: Path, scratch: Path) -> dict[str, str]:
    """Return which file of the tree is to be read from where."""
    replaced = {str(tree / path): str(_DRIVER / name) for path, name in _ADDED.items()}
    for path, changes in _CHANGED.items():
        text = (tree / path).read_text()
        for old, new, count in changes:
            if text.count(old) not in (count if isinstance(count, range) else (count,)):
                raise RuntimeError(
                    f"{tree / path}: {old!r} is there {text.count(old)} times, not {count}"
                )
            text = text.replace(old, new)
        changed = scratch / path.replace("/", "_")
        changed.write_text(text)
        replaced[str(tree / path)] = str(changed)
    return replaced


class _Driver:
    """A driver process. Operations may be under way at the same time."""

    def __init__(self, program: Path, log: Path) -> None:
        self._log = log.open("wb")
        self._process = subprocess.Popen(
            [program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True
        )
        self._ids = itertools.count()
        self._turn = threading.Lock()
        self._waiting: dict[int, Future[dict[str, Any]]] = {}
        self._reader = threading.Thread(target=self._read, name="real-kubelet")
        self._reader.start()

    def do(self, operation: str, **fields: Any) -> dict[str, Any]:
        """Carry out an operation and return the answer; ``KubeletCrashed`` if it died of it."""
        answered: Future[dict[str, Any]] = Future()
        with self._turn:
            number = next(self._ids)
            self._waiting[number] = answered
            line = json.dumps({"id": number, "op": operation, **fields})
            assert self._process.stdin
            try:
                self._process.stdin.write(f"{line}\n")
                self._process.stdin.flush()
            except BrokenPipeError:
                raise KubeletCrashed("the driver is dead") from None
        return answered.result(timeout=_LONGEST)

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            answer = json.loads(line)
            with self._turn:
                waiting = self._waiting.pop(answer.pop("id"))
            waiting.set_result(answer)
        with self._turn:
            left, self._waiting = self._waiting, {}
        for waiting in left.values():
            waiting.set_exception(KubeletCrashed("the driver has died"))

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for stream in (self._process.stdin, self._process.stdout, self._log):
            assert stream
            with contextlib.suppress(BrokenPipeError):
                stream.close()


class RealKubelet:
    """Device manager, topology manager, predicates and node status of a real kubelet."""

    def __init__(self, program: Path, root: Path, config: KubeletConfig) -> None:
        self._program = program
        self._root = root
        self._config = config
        self._node: Mapping[str, Any] = {"capacity": {}, "allocatable": {}}
        self._driver: _Driver | None = None
        (root / "device-plugins").mkdir(parents=True)

    def _do(self, operation: str, **fields: Any) -> dict[str, Any]:
        assert self._driver
        return self._driver.do(operation, **fields)

    def start(self, pods: Sequence[Pod], running: Sequence[tuple[str, str]]) -> None:
        self._driver = _Driver(self._program, self._root / "log")
        self._do(
            "start",
            socket=str(self._root / "device-plugins" / "kubelet.sock"),
            policy=self._config.topology_policy,
            scope=self._config.topology_scope,
            numa_nodes=self._config.numa_nodes,
            ready=not pods,
            running=running,
            **self._node,
        )

    def stop(self) -> None:
        driver, self._driver = self._driver, None
        if driver:
            driver.kill()

    def progress(self) -> tuple[Mapping[str, int], Mapping[str, int], bool]:
        progress = self._do("progress")
        return progress["lists"], progress["streams"], bool(progress["ending"])

    def admit(self, pod: Pod) -> tuple[str, str]:
        return self._admit(pod, resize=False)

    def resize(self, pod: Pod) -> tuple[str, str]:
        return self._admit(pod, resize=True)

    def _admit(self, pod: Pod, *, resize: bool) -> tuple[str, str]:
        answer = self._do("admit", pod=_described(pod), resize=resize)
        return answer["reason"], answer["message"]

    def readmit(self, pods: Sequence[Pod]) -> list[tuple[str, str]]:
        outcomes = [self.admit(pod) for pod in pods]
        self._do("ready")
        return outcomes

    def run(self, pod: Pod, container: str) -> Any:
        answer = self._do("run", pod=_described(pod), container=container)
        return answer["error"] if "error" in answer else answer["envs"]

    def end(self, pod: Pod) -> None:
        self._do("end", uid=pod.uid)

    def collect(self) -> None:
        self._do("collect")

    def tick(self) -> None:
        self._node = self._do("tick")

    def expire(self) -> None:
        self._do("expire")

    def pokes(self) -> list[list[str]]:
        pokes: list[list[str]] = self._do("pokes")["pokes"]
        return pokes

    def health(self, pod: Pod) -> Any:
        return self._do("health", pod=_described(pod))["health"]

    def state(self) -> dict[str, Any]:
        state = self._do("state")
        state["grants"] = sorted(
            [*whose, {int(node): ids for node, ids in nodes.items()}]
            for *whose, nodes in state["grants"]
        )
        return state


def _described(pod: Pod) -> Mapping[str, Any]:
    """Return the pod as the driver reads it."""
    return {
        "uid": pod.uid,
        "name": pod.name,
        "init": _containers(pod.init_containers),
        "containers": _containers(pod.containers),
    }


def _containers(containers: Iterable[Container]) -> list[Mapping[str, Any]]:
    return [
        {
            "name": each.name,
            "limits": dict(each.limits),
            "restarts_always": each.restarts_always,
            "claimed": sorted(each.claimed),
        }
        for each in containers
    ]
