"""The command line of ``deviceplugin devices``, and asking the kubelet and the plugins."""

import argparse
import gc
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

import grpc

from deviceplugin._app.exit_status import FAILED, complain
from deviceplugin._app.patience import waiting
from deviceplugin._platform import rpc
from deviceplugin.proto.podresources import podresources_pb2 as pb
from deviceplugin.tools import _command_line
from deviceplugin.tools._command_line import add_repeated, add_timeout, settings_of
from deviceplugin.tools._devices_page import Credentials, NoAnswerError, add_options, ask
from deviceplugin.tools.devices import _inventory
from deviceplugin.tools.devices._inventory import Inventory

_MAX_BYTES: Final = 64 * 1024 * 1024
_AT_ONCE: Final = 1000
"""Lines that are aligned at once on a terminal."""
_INIT: Final = (
    "devices of ordinary init containers: the kubelet does not list them, and such a device looks "
    "free"
)
_NO_PODS: Final = (
    "whether devices are in use: the kubelet lists no pods, which also happens when it has just "
    "started"
)
_UNHEALTHY: Final = (
    "devices that no pod has and that are unhealthy or offered by DRA, and why a device is not "
    "allocatable: the kubelet does not report that; ask the plugin with --plugin "
    "http://ADDRESS:9494"
)
_NAME: Final = "deviceplugin devices"
_SETTING: Final = "pod-resources-socket"

_DESCRIPTION: Final = """\
List the devices of this node and the containers that hold them, according to the kubelet. With
--plugin, also list health and reasons, according to the plugin. The command needs the kubelet's
pod resources socket, and no access to the cluster.

Before the kubelet answers, it frees the devices of pods that have ended, as it also does before
it allocates devices to a new pod. Do not run this more often than every few seconds."""

_EXAMPLES: Final = """\
examples:
  deviceplugin devices
  deviceplugin devices --plugin http://127.0.0.1:9494 --output json

Exit status: 0 if the kubelet and all plugins answered, 1 if not, 2 if the command line is wrong."""


def ask_kubelet(inventory: Inventory, socket: Path, timeout: float, *, with_plugins: bool) -> None:
    """Add the devices of the kubelet's PodResources API; raise ``NoAnswerError``.

    ``with_plugins`` is whether plugins have been asked too.
    """
    if not socket.exists():
        raise NoAnswerError(
            f"{socket}: does not exist: run this on a node with a kubelet, or in a pod that mounts "
            f"its directory; --{_SETTING} names another socket"
        )
    lister = pb.DESCRIPTOR.services_by_name["PodResourcesLister"]
    with rpc.connect(socket, max_receive_message_length=_MAX_BYTES) as channel:
        calls = rpc.calls(channel, lister)
        try:
            pods = calls["List"](pb.ListPodResourcesRequest(), timeout=timeout)
        except grpc.RpcError as error:
            raise NoAnswerError(f"{socket}: {rpc.status_text(error)}") from error
        inventory.add_pods(pods)
        inventory.unknown += [_INIT] if pods.pod_resources else [_NO_PODS, _INIT]
        try:
            request = pb.AllocatableResourcesRequest()
            inventory.add_allocatable(calls["GetAllocatableResources"](request, timeout=timeout))
        except grpc.RpcError as error:
            inventory.unknown.append(f"free devices: {socket}: {rpc.status_text(error)}")
            return
    inventory.close()
    if not with_plugins:
        inventory.unknown.append(_UNHEALTHY)


def main(argv: Sequence[str]) -> int:
    gc.disable()  # what is made stays until the end, and to look through it takes half the time
    try:
        return _command_line.run(_parser(), argv, _list)
    finally:
        gc.enable()


def _list(options: argparse.Namespace) -> int:
    socket = settings_of(options, [_SETTING]).pod_resources_socket
    inventory = Inventory()
    problems = _ask(inventory, socket, options)
    for problem in problems:
        complain(_NAME, problem)
    if problems and not any(True for _ in inventory) and not _command_line.is_json(options):
        return FAILED
    # Who looks at very many wants to see the first; what is piped is aligned as a whole.
    at_once = _AT_ONCE if sys.stdout.isatty() else sys.maxsize
    table = partial(_inventory.table, inventory, at_once)
    _command_line.write(options, table, partial(_inventory.document, inventory))
    return FAILED if problems else 0


def _ask(inventory: Inventory, socket: Path, options: argparse.Namespace) -> list[str]:
    problems = []
    for url in options.plugin:
        try:
            with waiting(_NAME, url):
                ask(url, inventory.add_plugin, options.timeout, Credentials.of(options), _MAX_BYTES)
        except NoAnswerError as error:
            problems.append(f"{url}: {error}")
    try:
        with waiting(_NAME, str(socket)):
            ask_kubelet(inventory, socket, options.timeout, with_plugins=bool(options.plugin))
    except NoAnswerError as error:
        inventory.unknown.append("which devices pods have: the kubelet does not answer")
        problems.append(str(error))
    return problems


def _parser() -> argparse.ArgumentParser:
    parser = _command_line.parser("devices", _DESCRIPTION, _EXAMPLES)
    add = parser.add_argument
    _command_line.add_output(parser)
    add_repeated(parser, "--plugin", "URL", "also ask the plugin at URL; can be repeated")
    add_options(parser)
    words = "the kubelet's socket; also the environment variable DP_POD_RESOURCES_SOCKET"
    add(f"--{_SETTING}", metavar="PATH", help=words)
    add_timeout(parser, 5)
    return parser
