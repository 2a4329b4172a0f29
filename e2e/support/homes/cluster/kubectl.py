"""kubectl on the cluster of KUBECONFIG, in one namespace."""

import json
import subprocess
from typing import Any


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
        )
        assert not check or done.returncode == 0, f"kubectl {' '.join(words)}: {done.stderr}"
        return done.stdout

    def get(self, *words: str) -> Any:
        """Return the objects of ``kubectl get``."""
        return json.loads(self("get", *words, "--output=json"))

    def within(self, *words: str) -> tuple[str, ...]:
        """Return ``words`` with the namespace."""
        return (*words, f"--namespace={self._namespace}")
