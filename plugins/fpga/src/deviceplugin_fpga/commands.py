"""What ``fpga-device-plugin name`` and ``fpga-device-plugin bitstream`` print."""

import hashlib
import os
import sys
from argparse import ArgumentParser, ArgumentTypeError, RawDescriptionHelpFormatter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import deviceplugin as dp
from deviceplugin.kit.sysfs import Sysfs, SysfsError
from deviceplugin_fpga import drivers
from deviceplugin_fpga.drivers import Fme, NoDriverError
from deviceplugin_fpga.hook import bitstreams, files
from deviceplugin_fpga.hook.bitstreams import Bitstream
from deviceplugin_fpga.hook.files import HookError, shown
from deviceplugin_fpga.resource_names import Aliases, canonical, read_aliases

_COMMAND: Final = "fpga-device-plugin"
_NAME: Final = """\
Print what a pod must request to get a function of an FPGA: the resource, and the lines for the
container in the pod's manifest. INTERFACE and FUNCTION are ids of 32 hex digits; hyphens and upper
case are ignored. A bitstream has both in its header: see `fpga-device-plugin bitstream --help`.

Use the snippet for the plugin's mode on your nodes. With --aliases FILE, the names are those in
the plugin's file of aliases.
"""
_NAME_EXAMPLE: Final = """\
example:
  fpga-device-plugin name ce48969398f05f33946d560708be108a d8424dc4a4a3c413f89e433683f9040b
"""
_BITSTREAM: Final = """\
Print the contents of a bitstream (.gbs, or .aocx of OpenCL): its interface and function, its length
and checksum, what a pod must request to get it, where the hook expects it, and which cards of this
machine it fits. The file is checked as the hook checks it. Nothing is programmed.

The exit status is 0 if the hook would accept the file, and 1 with the reason if not. It does not
depend on the cards of this machine.
"""
_BITSTREAM_EXAMPLE: Final = """\
example:
  fpga-device-plugin bitstream /srv/intel.com/fpga/ce48969398f05f33946d560708be108a/d8424dc4a4a3c413f89e433683f9040b.gbs
"""  # noqa: E501 - a command to be copied
_SNIPPETS: Final = """\
# Mode af: a port that has the function already.
resources:
  limits:
    {af}: 1
---
# Mode region: a card, a port of which is programmed when the container starts.
env:
  - {{name: FPGA_REGION_1, value: "{interface}"}}
  - {{name: FPGA_AFU_1, value: "{function}"}}
resources:
  limits:
    {region}: 1
"""


def name(argv: Sequence[str]) -> int:
    """Print resources and snippets for a function, and return the exit status."""
    parser = _parser("name", _NAME, _NAME_EXAMPLE)
    for what, text in (("interface", "of the card's region"), ("function", "of the AFU")):
        parser.add_argument(what, metavar=what.upper(), type=_id, help=f"id {text}")
    options = parser.parse_args(argv)
    aliases = _aliases_of(parser, options.aliases)
    interface, function = options.interface, options.function
    sys.stdout.write(
        _SNIPPETS.format(
            af=aliases.af(interface, function),
            region=aliases.region(interface),
            interface=interface,
            function=function,
        )
    )
    return 0


def bitstream(argv: Sequence[str]) -> int:
    """Print the contents of a bitstream and the cards that it fits. Return the exit status."""
    parser = _parser("bitstream", _BITSTREAM, _BITSTREAM_EXAMPLE)
    parser.add_argument("file", metavar="FILE", type=Path, help="the bitstream")
    parser.add_argument(
        "--sysfs-dir",
        type=Path,
        metavar="PATH",
        default=Path(os.environ.get("DP_SYSFS_DIR") or "/sys"),
        help="directory of sysfs (or DP_SYSFS_DIR; /sys)",
    )
    options = parser.parse_args(argv)
    aliases = _aliases_of(parser, options.aliases)
    try:
        content = _content(options.file)
        has_checksum = files.check(options.file, content)
        found = bitstreams.parse(options.file, content)
    except HookError as error:
        sys.stderr.write(f"{parser.prog}: {shown(error, 900)}\n")
        return 1
    rows = [
        *_of_file(found, content, has_checksum=has_checksum),
        *_of_pods(found, aliases),
        *_of_cards(found, Sysfs(options.sysfs_dir)),
    ]
    for title, text in rows:
        sys.stdout.write(f"{title:<10} {text}\n")
    return 0


def _parser(command: str, description: str, example: str) -> ArgumentParser:
    parser = ArgumentParser(
        f"{_COMMAND} {command}",
        description=description,
        epilog=example,
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    variable = "DP_ALIASES"
    path = os.environ.get(variable)
    parser.add_argument(
        "--aliases",
        type=Path,
        metavar="FILE",
        default=Path(path) if path else None,
        help=f"file of aliases (or {variable})",
    )
    return parser


def _id(text: str) -> str:
    try:
        return canonical(text)
    except ValueError as error:
        raise ArgumentTypeError(f"{text!r} {error}") from error


def _aliases_of(parser: ArgumentParser, path: Path | None) -> Aliases:
    try:
        return read_aliases(path)
    except dp.ConfigError as error:
        parser.error(str(error))


def _content(path: Path) -> bytes:
    content = bitstreams.load(path)
    if content is None:
        raise HookError(f"{path}: No such file or directory")
    return content


def _of_file(found: Bitstream, content: bytes, *, has_checksum: bool) -> Iterator[tuple[str, str]]:
    file = shown(found.path.name)
    kind = "OpenCL program" if found.path.suffix == bitstreams.OPENCL else "green bitstream"
    yield "file", f"{file}: {kind}, {len(content)} bytes"
    yield "interface", found.interface_id
    yield "function", found.afu_id
    if found.unique_id != found.afu_id:
        yield "asked for", shown(found.unique_id, 80)
    yield "image", f"{len(found.image)} bytes, {'signed' if found.signed else 'not signed'}"
    checksum = f"{file}{files.SUFFIX}"
    yield "sha256", hashlib.sha256(content).hexdigest()
    how = f"no {checksum} yet: sha256sum {file} > {checksum}"
    yield "", f"as {checksum} says" if has_checksum else how


def _of_pods(found: Bitstream, aliases: Aliases) -> Iterator[tuple[str, str]]:
    yield "resource", f"{aliases.af(found.interface_id, found.afu_id)} in mode af"
    yield "", f"{aliases.region(found.interface_id)} in mode region"
    suffix = found.path.suffix if found.path.suffix in bitstreams.SUFFIXES else ".gbs"
    yield (
        "hook path",
        f"/srv/intel.com/fpga/{found.interface_id}/{shown(found.unique_id, 80)}{suffix}",
    )


def _of_cards(found: Bitstream, sysfs: Sysfs) -> Iterator[tuple[str, str]]:
    try:
        here = drivers.look(sysfs)
    except NoDriverError as error:
        yield "fits", f"no card here: {error}"
        return
    fitting = [fme for fme in here.fmes if fme.interface_id == found.interface_id]
    others = [f"{fme.name} has interface {fme.interface_id}" for fme in here.fmes]
    if not fitting:
        yield "fits", f"no card here: {', '.join(others) or 'there is none'}"
    for number, fme in enumerate(fitting):
        yield "" if number else "fits", _fits(fme, found)
    for problem in here.problems:
        yield "unknown", problem


def _fits(fme: Fme, found: Bitstream) -> str:
    ports = []
    for port in fme.ports:
        try:
            now = port.afu_id()
            ports.append(f"{port.name} has {'this function' if now == found.afu_id else now}")
        except SysfsError as error:
            ports.append(str(error))
    return f"{fme.name} on {fme.ports[0].card.name}: {', '.join(ports)}"
