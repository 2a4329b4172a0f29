"""Write everything that is generated, or check that it is current.

    generate.py [NAME...]            write it: make generate
    generate.py --check [NAME...]    exit with 1 if something is stale, and name it

Each generator returns the files that it makes, with their content.
"""

import argparse
import logging
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import pytest

import architecture
import operator_manifests
from deviceplugin_generic import schema
from deviceplugin_operator.crd import definition
from measures import figures

ROOT: Final = Path(__file__).parents[1]
GENERIC: Final = ROOT / "plugins/generic/src/deviceplugin_generic"
PLATFORMS: Final = ROOT / "plugins/gpu/docs/platforms.md"
KIND: Final = ROOT / "deployments/operator/crd/deviceplugins.yaml"
PROTOS: Final = (
    ROOT / "common/node/src",
    ROOT / "tests/support",
)
"""The folders whose ``.proto`` files are compiled."""

Files = Mapping[Path, str]


def messages() -> Files:
    """Return the messages of the ``.proto`` files, by the compiler's own environment."""
    compiler = ROOT / ".venv/proto/bin/python"
    found = {}
    for source in PROTOS:
        with tempfile.TemporaryDirectory() as target:
            program = Path(__file__).with_name("compile_protos.py")
            subprocess.run([compiler, program, source, target], check=True)
            for path in Path(target).rglob("*_pb2.py*"):
                found[source / path.relative_to(target)] = path.read_text(encoding="utf-8")
    return found


def kind() -> Files:
    """Return the operator's kind, which offers the components that there are now."""
    operator_manifests.write()
    return {KIND: definition.text()}


def platforms() -> Files:
    """Return the page of the GPU plugin's platforms; nothing where there is no C compiler."""
    if shutil.which("cc") is None:
        return {}
    sys.path.insert(0, str(ROOT / "tests/support"))
    from gpu import fake_library
    from gpu.platforms import HEADER, rows

    text = PLATFORMS.read_text(encoding="utf-8")
    table = re.compile(rf"{re.escape(HEADER)}\n(\|.*\n)*")
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        logging.disable()
        library = fake_library.build(Path(folder, "nvml"))
        lines = rows(library, Path(folder, "driver"), patch).values()
        logging.disable(logging.NOTSET)
    return {PLATFORMS: table.sub(lambda _: "\n".join([HEADER, *lines, ""]), text)}


GENERATORS: Final[Mapping[str, Callable[[], Files]]] = {
    "messages": messages,
    "kind": kind,
    "schema": lambda: {GENERIC / "schema.json": schema.text()},
    "platforms": platforms,
    "figures": figures.pages,
    "architecture": lambda: {architecture.PAGE: architecture.drawn(architecture.PAGE.read_text())},
}


def main() -> int:
    """Write or check; return 1 if ``--check`` finds a file that is stale."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if one is stale")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(GENERATORS))
    options = parser.parse_args()
    if unknown := {*options.names} - {*GENERATORS}:
        parser.error(f"unknown {', '.join(sorted(unknown))}: name some of {', '.join(GENERATORS)}")
    stale = 0
    for name in options.names or GENERATORS:
        for path, text in GENERATORS[name]().items():
            if path.is_file() and path.read_text(encoding="utf-8") == text:
                continue
            stale += 1
            if not options.check:
                path.write_text(text, encoding="utf-8")
            said = "is stale: run make generate" if options.check else "written"
            print(f"{path.relative_to(ROOT)}: {said}")
    return 1 if options.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
