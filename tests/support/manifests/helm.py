"""The chart, as the real helm renders it."""

import json
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

import chart
import kustomize
from manifests.kustomize import Manifest, overlay
from patience import PATIENCE


@cache
def why_not() -> str:
    """Return why charts cannot be rendered here, if so."""
    if shutil.which("helm") is None:
        return "no helm"
    done = subprocess.run(["helm", "version"], capture_output=True, text=True, check=False)
    return f"helm does not work: {done.stderr.strip()}" if done.returncode else ""


def write_chart(folder: Path) -> Path:
    """Write the chart, as our own renderer renders it, which takes less time than the real one."""
    chart.write(folder, _render)
    return folder


def _render(folder: Path, components: Sequence[Path]) -> list[Manifest]:
    if not components:
        return kustomize.render(folder)
    with TemporaryDirectory() as scratch:
        return kustomize.render(
            overlay(Path(scratch), folder.name, *(component.name for component in components))
        )


def helm(*words: str | Path, values: dict[str, Any] | None = None) -> str:
    """Return what helm prints. The test is skipped where there is none that works.

    Raises:
        ValueError: It failed, with its message.
    """
    if why := why_not():
        pytest.skip(why)
    given = ["--values=-"] if values is not None else []
    done = subprocess.run(
        ["helm", *map(str, words), *given],
        input=json.dumps(values),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    if done.returncode:
        raise ValueError(done.stderr)
    return done.stdout


def template(folder: Path, values: dict[str, Any], *words: str) -> list[Manifest]:
    """Return the manifests that helm renders of a chart.

    Raises:
        ValueError: It refused the values.
    """
    text = helm("template", "release", folder, *words, values=values)
    return [one for one in kustomize.documents(text) if one]
