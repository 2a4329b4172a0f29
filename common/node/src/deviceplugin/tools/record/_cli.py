"""The command line of ``deviceplugin record``."""

import argparse
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final

from deviceplugin._app.exit_status import FAILED, complain
from deviceplugin.errors import ConfigError
from deviceplugin.kit.hardware import Tree
from deviceplugin.kit.sysfs import Sysfs
from deviceplugin.tools import _command_line
from deviceplugin.tools.record._devices import records
from deviceplugin.tools.record._writing import Mask, written

_DESCRIPTION: Final = """\
Print what plugins read of this machine's devices, as text to attach to an issue: a maintainer can
load it as a tree, and make a test of it. It reads sysfs and udev's database, opens no device, and
changes nothing.

In the output are USB and PCI devices, devices with character device nodes, and those above them:
paths in sysfs, names of device nodes, links to drivers and IOMMU groups, and a fixed list of
attributes such as vendor, product, class and NUMA node; what installed plugins read of devices; and
udev's names and links. Not in it are contents of devices, network addresses, files outside of sysfs
and udev, and what no installed plugin reads. Serial numbers are in it, unless you mask
them: then the same serial number is the same word everywhere, so that doubled ones stay visible.

The format is that of umockdev-record."""
_EXAMPLES: Final = """\
examples:
  deviceplugin record --mask-serials > machine.umockdev
  deviceplugin record --root /host > machine.umockdev      the node is mounted at /host

Exit status: 0 if there are devices, 1 if none was found, 2 if the command line is wrong."""


def main(argv: Sequence[str]) -> int:
    return _command_line.run(_parser(), argv, _record)


def _record(options: argparse.Namespace) -> int:
    root: Path = options.root
    if not (root / "sys").is_dir():
        raise ConfigError(f"--root {str(root)!r}: {root / 'sys'} is not a directory")
    udev = next((one for one in (root / "run/udev/data", root / "udev") if one.is_dir()), root)
    found = list(records(Tree(Sysfs(root / "sys"), dev=root / "dev", udev=udev)))
    if not found:
        complain("deviceplugin record", f"{root / 'sys'}: no devices are found")
        return FAILED
    masked = ", with masked serial numbers" if options.mask_serials else ""
    sys.stdout.write(f"# Recorded by deviceplugin record {version('deviceplugin')}{masked}.\n\n")
    sys.stdout.write("\n".join(written(found, Mask(found) if options.mask_serials else None)))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = _command_line.parser("record", _DESCRIPTION, _EXAMPLES)
    add = parser.add_argument
    add("--mask-serials", action="store_true", help="replace serial numbers by SERIAL1 and so on")
    add("--root", type=Path, default=Path("/"), metavar="DIR", help="the root of the node (/)")
    return parser
