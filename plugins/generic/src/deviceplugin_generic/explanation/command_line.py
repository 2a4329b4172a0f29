"""The command line of ``explain``."""

import argparse
import os
import posixpath
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from deviceplugin_generic.discovery.tree import Roots, Tree
from deviceplugin_generic.explanation.candidates import Candidate, candidates
from deviceplugin_generic.explanation.proposals import document, pod, proposals

_DESCRIPTION: Final = """\
Print an entry of the configuration for each device of this machine that a pod may need: USB
devices and what is behind them (tty, video4linux, sound, input, hidraw and others), PCI functions
with device nodes or that VFIO has, and /dev/kvm and the like. Comments say what it is, what it
is recognized by, whether that survives another port, its id now, and what a pod has to ask for.
The output is a valid configuration: remove what you do not mean, and rename what you keep.

It reads sysfs and udev's database, opens no device, and changes nothing. Run it on the node or in
the plugin's pod."""
_EXAMPLES: Final = """\
examples:
  generic-device-plugin explain                         all devices that a pod may need
  generic-device-plugin explain /dev/ttyUSB0            one device, by its node or a link to it
  generic-device-plugin explain 10c4:ea60 webcam        by ids, names, ports or drivers
  generic-device-plugin explain --subsystem video4linux
  generic-device-plugin explain --pod /dev/ttyUSB0      a pod with it that is not root, with groups
  generic-device-plugin explain > config.yaml && generic-device-plugin --config config.yaml --once

Exit status: 0 if there are entries, 1 if no device was found, 2 if the command line is wrong."""
_NONE: Final = 1
_USAGE: Final = 2


def main(arguments: Sequence[str]) -> int:
    """Run ``explain`` with the arguments after its name, and return the exit status."""
    try:
        options = _parser().parse_args(arguments)
    except SystemExit as done:  # --help, or an error that argparse has printed
        return int(done.code or 0)
    root: Path = options.root
    if not (root / "sys").is_dir():
        sys.stderr.write(f"generic-device-plugin explain: {root / 'sys'}: is not a directory\n")
        return _USAGE
    udev = next((path for path in (root / "run/udev/data", root / "udev") if path.is_dir()), root)
    tree = Tree(Roots(root / "dev", root / "sys", udev))
    chosen = _chosen(candidates(tree), options)
    if not chosen:
        words = " ".join([*options.word, *(f"--subsystem {one}" for one in options.subsystem)])
        advice = f"nothing here is {words}" if words else "no device that a pod may need"
        hint = "" if options.all or options.word else "; --all shows others"
        sys.stderr.write(f"generic-device-plugin explain: {advice}{hint}\n")
        return _NONE
    text = pod if options.pod else document
    return _print(text(proposals(chosen, tree), tree))


def _print(text: str) -> int:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes once more at exit, and that error must not be reported either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _chosen(found: Sequence[Candidate], options: argparse.Namespace) -> list[Candidate]:
    words = [_node(word, options.root) for word in options.word]
    return [
        one
        for one in found
        if (not options.subsystem or one.subsystem in options.subsystem)
        and (any(map(one.matches, words)) if words else one.is_common or options.all)
    ]


def _node(word: str, root: Path) -> str:
    """Return the path of the device node that a path means: of a link, what it leads to."""
    path = root / word.lstrip("/")
    if "/" not in word or not path.is_symlink():
        return word
    target = f"/{posixpath.relpath(posixpath.normpath(path.parent / path.readlink()), root)}"
    # The device nodes of recorded trees are links to /dev/null.
    return target if (root / target[1:]).parent.is_dir() and ".." not in target else word


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="generic-device-plugin explain",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        "word",
        nargs="*",
        metavar="WORD",
        help="only devices that match a word: a path, or part of a name, id, port or serial number "
        "or of what they can do, such as keyboard",
    )
    add(
        "--subsystem",
        action="append",
        default=[],
        metavar="NAME",
        help="only nodes of this subsystem, such as tty; usb means those of USB devices themselves "
        "and vfio those of IOMMU groups; can be repeated",
    )
    add("--pod", action="store_true", help="print a pod with these devices, not the configuration")
    add("--all", action="store_true", help="also consoles, disks and the like")
    add("--root", type=Path, default=Path("/"), metavar="DIR", help="the root of the node (/)")
    return parser
