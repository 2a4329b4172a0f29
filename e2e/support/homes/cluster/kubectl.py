"""kubectl on the cluster of KUBECONFIG, in one namespace, and what no Ctrl-C may cut in two."""

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from deviceplugin._app.signals import handled


@contextmanager
def undisturbed(say: Callable[[str], None]) -> Iterator[None]:
    """Put off Ctrl-C and SIGTERM to the end: what is half removed stays on the cluster."""
    came: list[int] = []

    def put_off(number: int, _frame: FrameType | None) -> None:
        came.append(number)
        with suppress(RuntimeError):  # this can come while something else is written
            say("interrupted: this ends when the cluster is as it was")

    try:
        with handled(put_off, signal.SIGINT, signal.SIGTERM):
            yield
    finally:
        for number in came[:1]:
            signal.raise_signal(number)


class Kubectl:
    """Runs kubectl; a run that takes longer than ``limit`` seconds fails."""

    def __init__(self, namespace: str, limit: float) -> None:
        self._namespace, self._limit = namespace, limit

    def __call__(self, *words: str, stdin: str | None = None, check: bool = True) -> str:
        """Return what kubectl prints."""
        done = subprocess.run(
            ["kubectl", *words],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=self._limit,
            process_group=0,  # Ctrl-C on a terminal is for pytest, which runs more of it
        )
        assert not check or done.returncode == 0, f"kubectl {' '.join(words)}: {done.stderr}"
        return done.stdout

    def own(self, *words: str, stdin: str | None = None, check: bool = True) -> str:
        """Run kubectl in the namespace."""
        return self(*words, f"--namespace={self._namespace}", stdin=stdin, check=check)

    def execute(self, pod: str, *command: str, container: str = "", check: bool = True) -> str:
        """Return what a command prints in a pod of the namespace, in its first container."""
        place = (pod, f"--container={container}", f"--namespace={self._namespace}")
        return self("exec", *place, "--", *command, check=check)

    def get(self, *words: str) -> Any:
        """Return the objects of ``kubectl get``."""
        return json.loads(self("get", *words, "--output=json"))

    def get_own(self, *words: str) -> Any:
        """Return those of the namespace."""
        return self.get(*words, f"--namespace={self._namespace}")

    def pods(self, label: str) -> list[dict[str, Any]]:
        """Return the namespace's pods with a label that are not being deleted."""
        found = self.get_own("pods", f"--selector={label}")["items"]
        return [one for one in found if "deletionTimestamp" not in one["metadata"]]

    def apply(self, manifest: Any) -> None:
        """Create or change an object, which names its namespace."""
        self("apply", "--filename=-", stdin=json.dumps(manifest))
