"""Puts the manifests into the package, where it is built from a checkout."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Manifests(BuildHookInterface[Any]):
    """Writes ``manifests.json``. A source distribution has it already."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        """See the class."""
        program = Path(self.root).parent / "build/operator_manifests.py"
        if program.exists():
            path = os.pathsep.join([str(Path(self.root, "src")), *sys.path])
            environment = {**os.environ, "PYTHONPATH": path}
            subprocess.run([sys.executable, program], env=environment, check=True)
