"""Compile ``.proto`` files: ``compile_protos.py SOURCE TARGET``. ``generate.py`` calls it.

It runs in an environment of its own: the compiler needs the oldest protobuf that we support.
"""

import sys
from importlib import resources
from pathlib import Path

from grpc_tools import protoc


def main(source: str, target: str) -> int:
    """Write the messages of all ``.proto`` files below ``source``; return the compiler's status."""
    protos = [str(path.relative_to(source)) for path in sorted(Path(source).rglob("*.proto"))]
    includes = [f"-I{source}", f"-I{resources.files('grpc_tools') / '_proto'}"]
    return int(
        protoc.main(["", *includes, f"--python_out={target}", f"--pyi_out={target}", *protos])
    )


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
