"""Generate the messages from the ``.proto`` files, or check that they are up to date."""

import argparse
import sys
import tempfile
from importlib import resources
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).parent.parent
SOURCES = (ROOT / "common" / "src", ROOT / "tests" / "support")


def generate(source: Path, target: Path) -> list[Path]:
    """Generate files into ``target`` and return their paths, relative to it."""
    protos = [str(path.relative_to(source)) for path in sorted(source.rglob("*.proto"))]
    well_known = str(resources.files("grpc_tools") / "_proto")
    includes = [f"-I{source}", f"-I{well_known}"]
    status = protoc.main(["", *includes, f"--python_out={target}", f"--pyi_out={target}", *protos])
    if status:
        sys.exit(status)
    suffixes = ("_pb2.py", "_pb2.pyi")
    return [Path(proto.removesuffix(".proto") + suffix) for proto in protos for suffix in suffixes]


def main() -> int:
    """Return 1 if ``--check`` finds a file that is out of date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if stale")
    if not parser.parse_args().check:
        for source in SOURCES:
            generate(source, source)
        return 0
    stale = [path for source in SOURCES for path in find_stale(source)]
    for path in stale:
        print(f"{path}: not what its .proto says; run: make format", file=sys.stderr)
    return 1 if stale else 0


def find_stale(source: Path) -> list[Path]:
    """Return the generated files in ``source`` that differ from what would be generated now."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder)
        return [
            source / path
            for path in generate(source, target)
            if not (source / path).exists()
            or (source / path).read_bytes() != (target / path).read_bytes()
        ]


if __name__ == "__main__":
    raise SystemExit(main())
