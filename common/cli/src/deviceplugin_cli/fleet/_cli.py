"""The command line of ``deviceplugin fleet``."""

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from typing import Final

from deviceplugin.apiserver import ApiServerError
from deviceplugin.tools import _command_line
from deviceplugin_cli.fleet import _fleet
from deviceplugin_cli.fleet._progress import Progress
from deviceplugin_cli.fleet._question import Question, Reader, answer
from deviceplugin_cli.kubeconfig import add_cluster, cluster_of

_NAME: Final = "deviceplugin-fleet"
_WRONG: Final = 3
_UNKNOWN: Final = 4

_DESCRIPTION: Final = """\
List the devices of all nodes of a cluster: how many of each resource a node has, how many are
healthy, how many are held, and what is wrong. It asks the API server, as kubectl does, and changes
nothing. It works with every device plugin and DRA driver. If the operator is installed, objects
that are not ready are listed too.

HEALTHY is what can be given out, held or not; TOTAL is the node's capacity, and what is in slices;
HELD is what pods have requested and claims hold. RESOURCE is the driver of devices that no
DeviceClass gives the name of a resource. A kubelet reports changes up to 10 seconds late."""

_EXAMPLES: Final = """\
examples:
  deviceplugin fleet                                         all devices of the cluster
  deviceplugin fleet --problems                              only nodes where something is wrong
  deviceplugin fleet --resource 'example.com/*' --summary    sums
  deviceplugin fleet --selector pool=training --output json  some nodes, for a program
  deviceplugin fleet --check --resource example.com/gpu      for scripts: 3 if anything is wrong
  kubectl deviceplugin --problems                            the same, as a plugin of kubectl

It needs the right to list nodes. With list pods it shows what is held, with list resourceslices,
resourceclaims and deviceclasses the devices of DRA, and with list deviceplugins.deviceplugin.dev
what the operator says. To allow all of it to somebody:

  kubectl create clusterrole device-viewer --verb=list --resource=nodes,pods \\
    --resource=deviceplugins.deviceplugin.dev,resourceslices.resource.k8s.io \\
    --resource=resourceclaims.resource.k8s.io,deviceclasses.resource.k8s.io
  kubectl create clusterrolebinding device-viewer --clusterrole=device-viewer --user=NAME

The cluster is that of --kubeconfig, of the variable KUBECONFIG, of ~/.kube/config, or this pod's.

What is wrong, and what to do, says kubectl deviceplugin doctor; kubectl deviceplugin sysdump writes
an archive for a report.

Exit status: 0 if the cluster answered, 1 if not, 2 if the command line or the kubeconfig is wrong;
3 with --check if anything is wrong or missing, or 4 unless DRA, which may not be read, has it."""


def main(argv: Sequence[str]) -> int:
    return _command_line.run(_parser(), argv, _list, (ApiServerError,))


def _list(options: argparse.Namespace) -> int:
    question = Question(options.resource, options.node, options.selector, pods=not options.no_pods)
    progress = Progress(sys.stderr)
    try:
        fleet = answer(question, Reader(cluster_of(options, _NAME), progress))
    finally:
        progress.end()
    rows = [row for row in fleet.rows if row.problem or not options.problems]
    shown = [] if options.summary else rows
    table, document = partial(_fleet.table, fleet, shown), partial(_fleet.document, fleet, shown)
    _command_line.write(options, table, document)
    status = _WRONG if fleet.has_problem else _UNKNOWN if fleet.has_doubt else 0
    return status if options.check else 0


def _parser() -> argparse.ArgumentParser:
    parser = _command_line.parser("fleet", _DESCRIPTION, _EXAMPLES)
    add = parser.add_argument
    words = "only this one, or a pattern such as 'example.com/*'; can be repeated (all)"
    _command_line.add_repeated(parser, "--resource", "NAME", words)
    _command_line.add_repeated(parser, "--node", "NAME", "only this; can be repeated")
    add("-l", "--selector", default="", metavar="LABELS", help="only nodes with these labels")
    add("--problems", action="store_true", help="list only nodes where something is wrong")
    add("--summary", action="store_true", help="list no nodes")
    add("--no-pods", action="store_true", help="do not read pods, which takes longest")
    _command_line.add_output(parser)
    add(
        "--check",
        action="store_true",
        help="exit with 3 if anything is wrong or missing (4: perhaps)",
    )
    add_cluster(parser)
    return parser
