"""The command line of ``deviceplugin node-template``."""

import argparse
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from deviceplugin._app.exit_status import FAILED, complain
from deviceplugin._config.documents.faults import printable
from deviceplugin._config.names import DOMAIN
from deviceplugin.apiserver import ApiServerError, NotFoundError
from deviceplugin.errors import ConfigError
from deviceplugin.tools import _command_line
from deviceplugin_cli.kubeconfig import add_cluster, cluster_of
from deviceplugin_cli.migrate._documents import documents, read_text
from deviceplugin_cli.node_template import _forms
from deviceplugin_cli.node_template._template import Template, template_of

_NAME: Final = "node-template"
_FORMS: Final = {
    "aws": _forms.aws,
    "cluster-api": _forms.cluster_api,
    "karpenter": _forms.karpenter,
}
_NODES: Final = "/api/v1/nodes"
_SLICES: Final = "/apis/resource.k8s.io/v1/resourceslices"
_DESCRIPTION: Final = """\
Print what an autoscaler must know of a node group that has no node, to add the first one for pods
that ask for devices (scale from zero). It reads a node of the group, or a description of one, and
changes nothing. What belongs to one node, and what the form cannot say, is left out and named."""
_EXAMPLES: Final = """\
examples:
  deviceplugin node-template --for cluster-api --node worker-3 > patch.yaml
  kubectl patch machinedeployment gpus --type merge --patch-file patch.yaml

  deviceplugin node-template --for aws --group gpus --node worker-3 > tags.json
  aws autoscaling create-or-update-tags --cli-input-json file://tags.json

  deviceplugin node-template --for karpenter --group gpus --node worker-3 | kubectl apply -f -

  lamp-device-plugin --once --output json > lamps.json      on a machine with the hardware
  deviceplugin node-template --for aws --group lamps --from lamps.json

It needs the rights to get nodes and to list resourceslices.

Exit status: 0 if it was printed, 1 if there are no devices or the cluster does not answer, 2 if the
command line, the kubeconfig or a file is wrong, or the form cannot say it."""


def main(argv: Sequence[str]) -> int:
    return _command_line.run(_parser(), argv, _print, (ApiServerError,))


def _print(options: argparse.Namespace) -> int:
    is_named = options.form != "cluster-api"
    if is_named != bool(options.group):
        problem = "name the group for" if is_named else "is not for"
        raise ConfigError(f"--group: {problem} {options.form}")
    if is_named and options.driver:
        raise ConfigError(f"--driver: {options.form} has no words for claims: keep a node for them")
    if bool(options.node) == bool(options.file):
        raise ConfigError("give --node or --from: what is described?")
    if options.driver and options.resource:
        raise ConfigError("give --driver or --resource: how do pods ask for the devices?")
    template = template_of(_objects(options), options.label)
    _choose(template, options)
    if not (template.resources or template.drivers):
        complain(f"deviceplugin {_NAME}", "there are no devices")
        return FAILED
    sys.stdout.write(_FORMS[options.form](template, options.group or options.driver))
    sys.stderr.writelines(f"left out: {printable(note)}\n" for note in template.notes)
    return 0


def _objects(options: argparse.Namespace) -> list[tuple[str, Mapping[str, Any]]]:
    if options.file:
        return [each for path in options.file for each in documents(path, read_text(path))]
    if not re.fullmatch(DOMAIN, options.node):
        raise ConfigError(f"--node {options.node!r}: is not the name of a node")
    api = cluster_of(options, f"deviceplugin-{_NAME}")
    node: Mapping[str, Any] = {**api.get(f"{_NODES}/{options.node}"), "kind": "Node"}
    query = {"fieldSelector": f"spec.nodeName={options.node}"}
    try:
        slices = api.list(_SLICES, query).items
    except NotFoundError:  # the cluster is older than DRA
        slices = []
    theirs = ({**one, "kind": "ResourceSlice"} for one in slices)
    return [(f"{one['kind']} {one['metadata']['name']}", one) for one in (node, *theirs)]


def _choose(template: Template, options: argparse.Namespace) -> None:
    """Keep the resources that are asked for; ConfigError if one, or the driver, is not there."""
    wanted = [*options.resource, *filter(None, [options.driver])]
    kind, known = (
        ("driver", template.drivers) if options.driver else ("resource", template.resources)
    )
    if missing := [one for one in wanted if one not in known]:
        there = ", ".join(sorted(known)) or "none"
        raise ConfigError(f"the node has no {kind} {missing[0]}; there are: {there}")
    if options.resource:
        template.resources = Counter({one: template.resources[one] for one in options.resource})


def _parser() -> argparse.ArgumentParser:
    parser = _command_line.parser(_NAME, _DESCRIPTION, _EXAMPLES)
    add, repeated = parser.add_argument, _command_line.add_repeated
    words = "tags, annotations, or a NodeOverlay"
    add("--for", dest="form", required=True, choices=[*_FORMS], help=words)
    add("--group", default="", metavar="NAME", help="the Auto Scaling group, or the NodePool")
    add("--node", default="", metavar="NAME", help="a node of the group")
    add(
        "--from",
        dest="file",
        action="append",
        default=[],
        metavar="FILE",
        help="nodes and slices, or what a plugin prints with --once; - is standard input",
    )
    repeated(parser, "--resource", "NAME", "only this resource; can be repeated (all)")
    add("--driver", default="", metavar="NAME", help="pods have claims for this DRA driver")
    repeated(parser, "--label", "PATTERN", "also labels such as 'example.com/*'; can be repeated")
    add_cluster(parser)
    return parser
