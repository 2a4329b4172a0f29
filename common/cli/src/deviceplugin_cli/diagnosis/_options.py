"""The options that the commands here have in common."""

import argparse
import sys
from typing import Final, NamedTuple

from deviceplugin._config.kinds.scalars import NAME_PATTERN, matches
from deviceplugin.errors import ConfigError
from deviceplugin_cli.diagnosis._cluster import Asked
from deviceplugin_cli.diagnosis._kubectl import Kubectl, add_kubectl
from deviceplugin_cli.diagnosis._pods import SELECTOR
from deviceplugin_cli.fleet._progress import Progress
from deviceplugin_cli.fleet._question import Reader
from deviceplugin_cli.kubeconfig import add_cluster, cluster_of

_NAME: Final = "deviceplugin-doctor"


class Tools(NamedTuple):
    """What a command asks with."""

    asked: Asked
    reader: Reader
    kubectl: Kubectl
    progress: Progress


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--node", default="", metavar="NAME", help="only this node")
    add("-n", "--namespace", default="", metavar="NAME", help="only plugins in it (all)")
    words = f"the labels of the plugins' pods ({SELECTOR})"
    add("-l", "--selector", default=SELECTOR, metavar="LABELS", help=words)
    add_cluster(parser)
    add_kubectl(parser)


def tools_of(options: argparse.Namespace, command: str, resource: str = "") -> Tools:
    """Return what the options name; raise ``ConfigError`` for what is wrong in them."""
    if options.namespace and not matches(options.namespace, NAME_PATTERN):
        raise ConfigError(f"--namespace {options.namespace!r}: is not the name of a namespace")
    progress = Progress(sys.stderr, command=command)
    asked = Asked(options.node, resource, options.namespace, options.selector)
    reader = Reader(cluster_of(options, _NAME), progress)
    return Tools(asked, reader, Kubectl.of(options), progress)
