"""The command line of ``deviceplugin migrate verify``."""

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from deviceplugin._config.documents.faults import printable
from deviceplugin.apiserver import ApiServerError, ForbiddenError
from deviceplugin.errors import ConfigError
from deviceplugin.tools import _command_line
from deviceplugin.tools._requests import LIVING
from deviceplugin_cli.fleet._facts import node_facts
from deviceplugin_cli.fleet._progress import Progress
from deviceplugin_cli.fleet._question import Question, Reader
from deviceplugin_cli.kubeconfig import add_cluster, cluster_of
from deviceplugin_cli.migrate._documents import read_text
from deviceplugin_cli.migrate.output import _snapshot
from deviceplugin_cli.migrate.output._snapshot import Snapshot

_NAME: Final = "deviceplugin-migrate"
_DIFFERENT: Final = 1
_SAME: Final = 0

_DESCRIPTION: Final = """\
Compare the devices of a cluster with what they were before a migration: of each node how many of
each resource it can allocate, and of each pod that has devices whether it is still the same, runs,
was not restarted, and has the same devices. It asks the API server, as kubectl does, and changes
nothing.

A node says only how many devices it has. The ids that a pod holds are in its status on Kubernetes
1.36 and newer, and with the gate ResourceHealthStatus before; elsewhere they are not compared, and
the last line says so. A kubelet reports changes up to 10 seconds late."""

_EXAMPLES: Final = """\
examples:
  deviceplugin migrate verify --save before.json     before
  deviceplugin migrate verify before.json            after: a line for each difference
  deviceplugin migrate verify before.json --node n1  one node

It needs the rights to list nodes and pods. To migrate a file that is called verify, write ./verify.

Exit status: 0 if nothing differs or the file was saved, 1 if anything differs or the cluster did
not answer, 2 if the command line, the kubeconfig or the file is wrong."""


def main(argv: Sequence[str]) -> int:
    return _command_line.run(_parser(), argv, _verify, (ApiServerError,))


def _verify(options: argparse.Namespace) -> int:
    if bool(options.before) == bool(options.save):
        raise ConfigError("name the file from before, or where to --save it")
    wants = Question(resources=options.resource).wants
    saved = _snapshot.read(options.before, read_text(options.before)) if options.before else None
    now = _snapshot.chosen(_now(options), options.node, wants)
    if missing := [one for one in options.node if one not in now.nodes]:
        raise ConfigError(f"--node {missing[0]}: the cluster has no such node")
    if saved is None:
        _save(options.save, now)
        return _SAME
    before = _snapshot.chosen(saved, options.node, wants)
    lines = list(before.lines(now))
    for line in [*lines, _summary(before, now, len(lines))]:
        sys.stdout.write(f"{printable(line)}\n")
    return _DIFFERENT if lines else _SAME


def _summary(before: Snapshot, now: Snapshot, differences: int) -> str:
    nodes = sum(any(own.values()) for own in now.nodes.values())
    known = sum(bool(one.ids) for one in before.pods.values())
    ids = "" if known == len(before.pods) else f"; ids are known of {known} of them"
    return (
        f"{differences or 'no'} difference{'' if differences == 1 else 's'}: "
        f"{nodes} nodes with devices, {len(before.pods)} pods that had some{ids}"
    )


def _save(path: str, now: Snapshot) -> None:
    text = _snapshot.written(now)
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    nodes = sum(any(own.values()) for own in now.nodes.values())
    sys.stdout.write(f"saved: {nodes} nodes with devices, {len(now.pods)} pods that have some\n")


def _now(options: argparse.Namespace) -> Snapshot:
    progress = Progress(sys.stderr)
    reader = Reader(cluster_of(options, _NAME), progress)
    try:
        nodes = reader.read("/api/v1/nodes", "nodes", partial(node_facts, is_wanted=bool))
        pods = reader.read(
            "/api/v1/pods",
            "pods",
            _snapshot.pod_facts,
            {"fieldSelector": f"spec.nodeName!=,{LIVING}"},
        )
    except ForbiddenError as error:
        message = f"needs list nodes and list pods in all namespaces: {error}"
        raise ForbiddenError(message, status=error.status) from error
    finally:
        progress.end()
    return _snapshot.of(nodes, pods)


def _parser() -> argparse.ArgumentParser:
    parser = _command_line.parser("migrate verify", _DESCRIPTION, _EXAMPLES)
    add = parser.add_argument
    add("before", metavar="FILE", nargs="?", help="what --save has written before")
    add("--save", metavar="FILE", help="write what there is now, and compare nothing")
    words = "only this one, or a pattern such as 'example.com/*'; can be repeated (all)"
    _command_line.add_repeated(parser, "--resource", "NAME", words)
    _command_line.add_repeated(parser, "--node", "NAME", "only this; can be repeated")
    add_cluster(parser)
    return parser
