"""The command line of ``kubectl deviceplugin sysdump``."""

import argparse
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from deviceplugin.apiserver import ApiServerError
from deviceplugin.errors import ConfigError
from deviceplugin.tools import _command_line
from deviceplugin_cli.diagnosis import _causes
from deviceplugin_cli.diagnosis._archive import LEFT_OUT, MOST, Archive
from deviceplugin_cli.diagnosis._collect import collect
from deviceplugin_cli.diagnosis._options import add_options, tools_of

_DESCRIPTION: Final = f"""\
Write one archive to attach to a report about devices: what the doctor says, versions, the devices,
metrics and logs of the plugins' pods, and the objects and Events of their namespaces. It changes
nothing in the cluster.

Secrets are not read. What looks like a password, a token or a private key is masked in all files.
Names of nodes, pods and namespaces, addresses and serial numbers are in it: read it before you
publish it. It has at most {MOST >> 20} MiB; what was left out is named in {LEFT_OUT}."""

_EXAMPLES: Final = """\
examples:
  kubectl deviceplugin sysdump                  all nodes
  kubectl deviceplugin sysdump --node node-7    one node
  kubectl deviceplugin sysdump --file dump.zip

It needs the rights of kubectl deviceplugin doctor, and to read logs of pods and the objects of the
plugins' namespaces. What it may not read is left out.

Exit status: 0 if the archive was written, 1 if not, 2 if the command line or the kubeconfig is
wrong."""


def main(argv: Sequence[str]) -> int:
    return _command_line.run(_parser(), argv, _dump, (ApiServerError, OSError))


def _dump(options: argparse.Namespace) -> int:
    tools = tools_of(options, "sysdump")
    now = datetime.now(UTC)
    path = options.file or Path(f"deviceplugin-sysdump-{now:%Y%m%dT%H%M%SZ}.zip")
    if path.exists():
        raise ConfigError(f"--file {path}: is there already: remove it, or take another name")
    try:
        archive = Archive(path)
    except OSError as error:
        raise ConfigError(f"--file {path}: {error.strerror}") from error
    try:
        diagnosis = collect(tools, archive)
        archive.close()
    finally:
        archive.remove()
        tools.progress.end()
    size = path.stat().st_size

    def table() -> str:
        causes = _causes.text(diagnosis, colour=_command_line.has_colour())
        missing = f"; {LEFT_OUT} in it names what is missing" if archive.left_out else ""
        return f"{causes}\n{path}: {size >> 10} KiB{missing}. Read it before you publish it.\n"

    def document() -> Mapping[str, object]:
        about = {"file": str(path), "bytes": size, "left_out": sorted(archive.left_out)}
        return {**about, "doctor": _causes.document(diagnosis)}

    _command_line.write(options, table, document)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = _command_line.parser("sysdump", _DESCRIPTION, _EXAMPLES)
    words = "where to write it (deviceplugin-sysdump-TIME.zip, here)"
    parser.add_argument("--file", type=Path, metavar="FILE", help=words)
    _command_line.add_output(parser)
    add_options(parser)
    return parser
