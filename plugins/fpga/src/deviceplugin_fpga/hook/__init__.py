"""``fpga-hook``, which a container runtime calls to program the regions that a pod asks for.

It runs on the host, so it needs only Python 3.9 and its standard library. Of the plugin it imports
only ``drivers``, and of the framework only ``kit.sysfs``.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, NoReturn

from deviceplugin.kit.sysfs import Sysfs
from deviceplugin_fpga.hook import container_request, programming
from deviceplugin_fpga.hook.files import HookError, shown
from deviceplugin_fpga.hook.programming import Kernel

_DESCRIPTION = """\
Program the FPGA regions that a container requests in FPGA_REGION_n and FPGA_AFU_n. This is an OCI
createRuntime hook, which reads the container's state from standard input. The exit status is 0 if
all regions are as requested. Otherwise it is 1, the container does not start, and the reason is on
standard error.
"""
_LONGEST = 900
"""The most characters of an error. A pod's event has room for 1024."""


def main() -> NoReturn:
    """Run ``fpga-hook``."""
    options = _parser().parse_args()
    try:
        request = container_request.read(_state())
        with programming.locked(options.lock, options.patience):
            programmed = programming.fulfil(
                request, Sysfs(options.sysfs), options.bitstreams, Kernel(options.dev)
            )
    except (HookError, OSError) as error:
        raise SystemExit(f"fpga-hook: {shown(error, _LONGEST)}") from error
    with suppress(OSError):  # programming has succeeded, whether or not this line can be written
        for name in programmed:
            print(f"fpga-hook: programmed {shown(name)}", file=sys.stderr)  # noqa: T201
    raise SystemExit(0)


def _state() -> BinaryIO:
    if sys.stdin is None:
        raise HookError("standard input is closed: the state of the container is expected there")
    return sys.stdin.buffer


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("fpga-hook", description=_DESCRIPTION)
    for name, default, text in (
        ("bitstreams", "/srv/intel.com/fpga", "directory of <region>/<afu>.gbs and .aocx"),
        ("sysfs", "/sys", "directory of sysfs"),
        ("dev", "/dev", "directory of device nodes"),
        ("lock", "/run/fpga-hook.lock", "lock file, so that one hook runs at a time"),
    ):
        help_text = f"{text} (default: {default})"
        parser.add_argument(f"--{name}", type=Path, default=Path(default), help=help_text)
    parser.add_argument(
        "--patience",
        type=float,
        default=60.0,  # less than the kubelet's 2 minutes, so that it gets the reason
        metavar="SECONDS",
        help="how long to wait for another hook (default: 60)",
    )
    return parser


__all__ = ["main"]
