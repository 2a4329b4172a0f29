"""Remove what a running plugin never uses from the folder of its packages.

    trim.py FOLDER

Sources stay, because tracebacks and ``--help`` need them.
"""

import shutil
import sys
from pathlib import Path
from typing import Final

UNUSED: Final = (
    "yaml/_yaml*.so",  # 2.6 MB; only the loaders in Python are used
    "grpc/_cython/_credentials",  # 0.5 MB of certificates; the kubelet's sockets have no TLS
    # For developers.
    "deviceplugin_testing/simulator",
    "deviceplugin_testing/conformance",
    "deviceplugin_testing/fixture",
    "deviceplugin_testing/tools/bench",
    "deviceplugin_testing/tools/conformance",
    "deviceplugin_testing/tools/kubelet",
    "deviceplugin_testing/tools/new",
    "deviceplugin_testing/tools/stub",
    "google/protobuf/testdata",
    "**/__pycache__",
    "**/*.pyi",
    "**/*.pyx",
    "**/*.pxd",
    "**/*.proto",
)


def trim(folder: Path) -> None:
    """Remove ``UNUSED`` from ``folder``. A pattern may match nothing."""
    for pattern in UNUSED:
        for path in sorted(folder.glob(pattern)):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


if __name__ == "__main__":
    trim(Path(sys.argv[1]))
