"""Generate the messages from the ``.proto`` files, or check that they are up to date."""

import argparse
import sys
import tempfile
from importlib import resources
from pathlib import Path

from grpc_tools import protoc

SOURCE = Path(__file__).parent.parent / "common" / "src"


def generate(target: Path) -> list[Path]:
    """Generate into ``target`` and return the files, relative to it."""
    protos = [str(path.relative_to(SOURCE)) for path in sorted(SOURCE.rglob("*.proto"))]
    well_known = str(resources.files("grpc_tools") / "_proto")
    includes = [f"-I{SOURCE}", f"-I{well_known}"]
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
        generate(SOURCE)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder)
        stale = [
            path
            for path in generate(target)
            if not (SOURCE / path).exists()
            or (SOURCE / path).read_bytes() != (target / path).read_bytes()
        ]
    for path in stale:
        print(f"{SOURCE / path}: not what its .proto says; run: make proto", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
