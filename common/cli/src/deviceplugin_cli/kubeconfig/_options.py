"""The options that name a cluster, on every command line."""

import argparse
from pathlib import Path

from deviceplugin.apiserver import ApiServer
from deviceplugin.tools import _command_line
from deviceplugin_cli.kubeconfig._find import find_api_server

_SECONDS = 30


def add_cluster(parser: argparse.ArgumentParser, *, timeout: bool = True) -> None:
    """Add the options that ``cluster_of`` reads; without ``timeout``, all others."""
    add = parser.add_argument
    add("--kubeconfig", default="", metavar="FILE", help="the file that names the cluster")
    add("--context", default="", metavar="NAME", help="a context of the kubeconfig (current one)")
    words = "the API server, such as http://127.0.0.1:8001 of kubectl proxy"
    add("--api", metavar="URL", help=words)
    if timeout:
        _command_line.add_timeout(parser, _SECONDS)


def cluster_of(options: argparse.Namespace, name: str) -> ApiServer:
    """Return the API server that options name; ``name`` is ours, for its log.

    Raises:
        ConfigError: There is none, or something in a kubeconfig is wrong.
    """
    more = {"timeout": options.timeout, "name": name}
    if options.api:
        return ApiServer(options.api, **more)
    files = [Path(options.kubeconfig)] if options.kubeconfig else []
    return find_api_server(files, context=options.context, **more)
