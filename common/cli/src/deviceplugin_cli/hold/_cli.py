"""The command lines of ``kubectl deviceplugin hold`` and ``kubectl deviceplugin release``.

Both run the command of the node in the plugin's pod there, by ``kubectl exec``.
"""

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from typing import Final

from deviceplugin._app.exit_status import FAILED, complain
from deviceplugin._config.documents.faults import printable
from deviceplugin._config.kinds.scalars import NAME_PATTERN, matches
from deviceplugin.apiserver import ApiServerError
from deviceplugin.errors import ConfigError
from deviceplugin.tools import _command_line
from deviceplugin.tools.hold import _cli as node
from deviceplugin_cli.diagnosis._answers import PROGRAM, in_pod
from deviceplugin_cli.diagnosis._cluster import Asked
from deviceplugin_cli.diagnosis._kubectl import Kubectl, Ran, add_kubectl
from deviceplugin_cli.diagnosis._pods import SELECTOR, PluginPod, plugin_pod
from deviceplugin_cli.fleet._progress import Progress
from deviceplugin_cli.fleet._question import Reader
from deviceplugin_cli.kubeconfig import add_cluster, cluster_of

_NAME: Final = "deviceplugin-hold"
_API: Final = 30.0
"""Seconds for each answer of the API server."""
_ANSWER: Final = 75.0
"""Seconds that a command in a pod may take, beyond what it waits for."""


def hold(argv: Sequence[str]) -> int:
    return _run("hold", argv)


def release(argv: Sequence[str]) -> int:
    return _run("release", argv)


def _run(command: str, argv: Sequence[str]) -> int:
    parser = node.parser(command, node=True)
    add = parser.add_argument
    add("-n", "--namespace", default="", metavar="NAME", help="only plugins in it (all)")
    words = f"the labels of the plugins' pods ({SELECTOR})"
    add("-l", "--selector", default=SELECTOR, metavar="LABELS", help=words)
    add_cluster(parser, timeout=False)
    add_kubectl(parser)
    return _command_line.run(parser, argv, partial(_act, command), (ApiServerError,))


def _act(command: str, options: argparse.Namespace) -> int:
    if options.namespace and not matches(options.namespace, NAME_PATTERN):
        raise ConfigError(f"--namespace {options.namespace!r}: is not the name of a namespace")
    words = [command, *_words(options)]
    waits = options.timeout if getattr(options, "wait", False) else 0.0
    options.timeout = _API
    pods: Sequence[PluginPod] = _pods(options)
    options.timeout = waits + _ANSWER
    kubectl = Kubectl.of(options)
    if len(pods) > 1 and options.device:
        pods = _able(pods, kubectl, [*words, "--dry-run"], options.device)
    return max([_in(pod, kubectl, words) for pod in pods], default=FAILED)


def _words(options: argparse.Namespace) -> list[str]:
    """Return the arguments of the command in the pod."""
    given = {name: getattr(options, name, None) for name in ("reason", "resource", "output")}
    words = [f"--{name}={value}" for name, value in given.items() if value]
    flags = [
        name
        for name in ("all", "reset", "repair", "wait", "dry_run")
        if getattr(options, name, False)
    ]
    words += [f"--{name.replace('_', '-')}" for name in flags]
    words += [f"--timeout={options.timeout:g}s"] if "wait" in flags else []
    return [*words, "--", options.device] if options.device else words


def _pods(options: argparse.Namespace) -> list[PluginPod]:
    """Return the plugins' pods on the node that commands can be run in; ConfigError without any."""
    asked = Asked(options.node, "", options.namespace, options.selector)
    query = {"labelSelector": asked.selector, "fieldSelector": f"spec.nodeName={asked.node}"}
    with_progress = Reader(cluster_of(options, _NAME), Progress(sys.stderr, command=_NAME))
    found = with_progress.read(asked.path("api/v1", "pods"), "plugins' pods", plugin_pod, query)
    if pods := [pod for pod in found if pod.runs]:
        return pods
    raise ConfigError(f"no plugin runs on node {options.node!r}: kubectl deviceplugin doctor")


def _able(
    pods: Sequence[PluginPod], kubectl: Kubectl, words: Sequence[str], device: str
) -> Sequence[PluginPod]:
    """Return the pod whose plugin has the device; none, and say why, unless it is one."""
    tried = [(pod, in_pod(pod, kubectl, *PROGRAM, *words)) for pod in pods]
    able = [pod for pod, ran in tried if ran.status == 0]
    if not able:
        for pod, ran in tried:
            _complain(pod, ran)
    elif len(able) > 1:
        named = ", ".join(map(str, able))
        complain(_NAME, f"{named} have {device!r}: give --namespace or --selector")
    return able if len(able) == 1 else ()


def _in(pod: PluginPod, kubectl: Kubectl, words: Sequence[str]) -> int:
    ran = in_pod(pod, kubectl, *PROGRAM, *words)
    sys.stdout.write("".join(f"{printable(line)}\n" for line in ran.out.splitlines()))
    if ran.status != 0:
        _complain(pod, ran)
    return FAILED if ran.status is None else ran.status


def _complain(pod: PluginPod, ran: Ran) -> None:
    lines = ran.error.splitlines() or ["the command did not end"]
    complain(_NAME, "\n".join(f"{pod}: {printable(line)}" for line in lines))
