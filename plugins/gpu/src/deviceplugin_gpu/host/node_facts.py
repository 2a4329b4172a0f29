"""Facts about this node, for choosing its configuration: name, labels, models of GPUs.

All are read from files and from the pod's own variables, and not from the API server.
"""

import ast
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_MODEL: Final = "Model:"


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """The facts that a configuration can be chosen by."""

    name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    models: tuple[str, ...] = ()
    """Models of its GPUs, each once, in alphabetical order; none before the driver is loaded."""

    def __str__(self) -> str:
        labels = ", ".join(f"{key}={value}" for key, value in sorted(self.labels.items()))
        models = ", ".join(self.models)
        return f"node {self.name or '?'}, models: {models or 'none'}, labels: {labels or 'none'}"


class Node:
    """Reads the facts of this node, which may change.

    Args:
        name: Its name; empty if unknown.
        labels: A file with its labels, if there is one.
        proc: Where procfs is.
    """

    def __init__(self, name: str, labels: Path | None, proc: Path) -> None:
        self._name, self._file, self._proc = name, labels, proc
        self._labels: Mapping[str, str] = {}

    def facts(self) -> NodeFacts:
        """Return the present facts.

        While the file of labels cannot be read, the last labels are returned, or none at the start.
        A file that vanishes must not change the configuration under running pods.
        """
        if self._file is not None:
            with suppress(OSError):
                self._labels = _labels(self._file)
        return NodeFacts(self._name, self._labels, _models(self._proc))


def _labels(path: Path) -> dict[str, str]:
    """Return the labels in a file of the downward API: lines of ``key="value"``, or without."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    pairs = (line.partition("=") for line in lines if "=" in line)
    return {key.strip(): _unquoted(value.strip()) for key, _, value in pairs}


def _unquoted(text: str) -> str:
    if text.startswith('"'):
        with suppress(ValueError, SyntaxError):
            return str(ast.literal_eval(text))
    return text


def _models(proc: Path) -> tuple[str, ...]:
    found = set()
    for path in proc.glob("driver/nvidia/gpus/*/information"):
        with suppress(OSError):
            lines = path.read_text(errors="replace").splitlines()
            found |= {line.removeprefix(_MODEL).strip() for line in lines if line[:6] == _MODEL}
    return tuple(sorted(found))
