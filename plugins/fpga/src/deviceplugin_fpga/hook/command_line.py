"""The command ``fpga-hook``: the OCI state on standard input, exit status 0 or 1."""

from __future__ import annotations

import argparse
import sys
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, NoReturn

from deviceplugin.kit.sysfs import Sysfs
from deviceplugin_fpga.hook import container_request, programming
from deviceplugin_fpga.hook.errors import HookError, shown
from deviceplugin_fpga.hook.programmer import Kernel

_DESCRIPTION = """\
Programs the FPGA regions that a container asks for in FPGA_REGION_n and FPGA_AFU_n. An OCI
createRuntime hook: takes the container's state on standard input. Exit status 0 if all regions are
as asked for, 1 if not; then the container does not start, and the reason is on standard error.
"""
_LONGEST = 900
"""Characters of an error; the events of a pod have room for 1024."""


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
    with suppress(OSError):  # all is as asked for, whether anybody reads it or not
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
        ("lock", "/run/fpga-hook.lock", "file that keeps two hooks apart"),
    ):
        help_text = f"{text} (default: {default})"
        parser.add_argument(f"--{name}", type=Path, default=Path(default), help=help_text)
    parser.add_argument(
        "--patience",
        type=float,
        default=60.0,  # a kubelet waits for 2 minutes, and is to see the reason
        metavar="SECONDS",
        help="how long to wait for another hook (default: 60)",
    )
    return parser
