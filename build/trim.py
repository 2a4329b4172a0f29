"""Remove what a running plugin never uses of other people's packages.

    trim.py FOLDER

Sources stay, because tracebacks and ``--help`` need them. Our own packages stay whole: what an
image does not need is in a package that it does not install.
"""

import shutil
import sys
from pathlib import Path
from typing import Final

UNUSED: Final = (
    "yaml/_yaml*.so",  # 2.6 MB; only the loaders in Python are used
    "grpc/_cython/_credentials",  # 0.5 MB of certificates; the kubelet's sockets have no TLS
    "google/protobuf/testdata",
    "**/__pycache__",
    "**/*.pyi",
    "**/*.pyx",
    "**/*.pxd",
    "**/*.proto",
)
_OURS: Final = "deviceplugin"


def trim(folder: Path) -> None:
    """Remove ``UNUSED`` from ``folder``. A pattern may match nothing."""
    for pattern in UNUSED:
        for path in sorted(folder.glob(pattern)):
            if path.relative_to(folder).parts[0].startswith(_OURS):
                continue
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


if __name__ == "__main__":
    trim(Path(sys.argv[1]))
