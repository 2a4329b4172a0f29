"""Write everything that is generated, or check that it is current.

    .venv/bin/python build/generate.py            write it: make generate
    .venv/bin/python build/generate.py --check    exit with 1 if something is stale, and name it

Each generator returns the files that it makes, with their content.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

import architecture
import operator_manifests
from deviceplugin_generic import schema
from deviceplugin_operator.crd import definition

ROOT: Final = Path(__file__).parents[1]
GENERIC: Final = ROOT / "plugins/generic/src/deviceplugin_generic"
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


GENERATORS: Final[Iterable[Callable[[], Files]]] = (
    messages,
    kind,
    lambda: {GENERIC / "schema.json": schema.text()},
    lambda: {architecture.PAGE: architecture.drawn(architecture.PAGE.read_text())},
)


def main() -> int:
    """Write or check; return 1 if ``--check`` finds a file that is stale."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if one is stale")
    check = parser.parse_args().check
    stale = 0
    for path, text in (item for made in GENERATORS for item in made().items()):
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        stale += 1
        if not check:
            path.write_text(text, encoding="utf-8")
        said = "is stale: run make generate" if check else "written"
        print(f"{path.relative_to(ROOT)}: {said}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
