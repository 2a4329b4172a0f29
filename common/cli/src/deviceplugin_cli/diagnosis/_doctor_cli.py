"""The command line of ``kubectl deviceplugin doctor``."""

import argparse
from collections.abc import Sequence
from functools import partial
from typing import Final

from deviceplugin._app.exit_status import FAILED
from deviceplugin.apiserver import ApiServerError
from deviceplugin.tools import _command_line
from deviceplugin_cli.diagnosis import _causes
from deviceplugin_cli.diagnosis._answers import ask, ask_all
from deviceplugin_cli.diagnosis._causes import Diagnosis, diagnose
from deviceplugin_cli.diagnosis._cluster import read_cluster
from deviceplugin_cli.diagnosis._options import Tools, add_options, tools_of

_DESCRIPTION: Final = """\
Find what is wrong with the devices of a cluster. It looks at the nodes and at the plugins' pods,
runs the doctor in each of these pods, and merges the answers: what is most likely the cause comes
first. It changes nothing.

It is for the plugins of this framework. kubectl runs the doctor in the pods."""

_EXAMPLES: Final = """\
examples:
  kubectl deviceplugin doctor                    all nodes
  kubectl deviceplugin doctor --node node-7      one node
  kubectl deviceplugin doctor example.com/gpu    the nodes and plugins of a resource
  kubectl deviceplugin doctor --output json      all findings, for a program

With both a node and a resource, the node should have devices of it: that it has none is a failure.

It needs the right to list pods and to create pods/exec where the plugins are, and to list nodes,
daemonsets and events. What it may not read is named among the findings.

Exit status: 0 if there is no failure, 1 if there is one or the cluster did not answer, 2 if the
command line or the kubeconfig is wrong."""


def main(argv: Sequence[str]) -> int:
    return _command_line.run(_parser(), argv, _examine, (ApiServerError,))


def examine(tools: Tools) -> Diagnosis:
    """Ask the cluster and its pods; raise ``ApiServerError`` or ``ConfigError``."""
    cluster = read_cluster(tools.asked, tools.reader)
    visit = partial(ask, cluster=cluster, asked=tools.asked, kubectl=tools.kubectl)
    return diagnose(tools.asked, cluster, ask_all(cluster, visit, tools.kubectl, tools.progress))


def _examine(options: argparse.Namespace) -> int:
    tools = tools_of(options, "cluster-doctor", options.resource)
    try:
        found = examine(tools)
    finally:
        tools.progress.end()
    table = partial(_causes.text, found, colour=_command_line.has_colour())
    _command_line.write(options, table, partial(_causes.document, found))
    return FAILED if found.failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = _command_line.parser("cluster-doctor", _DESCRIPTION, _EXAMPLES)
    words = "only this resource, or a pattern such as 'example.com/*'"
    parser.add_argument("resource", nargs="?", default="", metavar="RESOURCE", help=words)
    _command_line.add_output(parser)
    add_options(parser)
    return parser
