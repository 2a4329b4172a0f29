"""The command line of ``deviceplugin kubelet``."""

import argparse
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final, get_args

from deviceplugin._app.exit_status import FAILED
from deviceplugin._platform.waiting import Waiter
from deviceplugin.errors import ConfigError
from deviceplugin.tools import _command_line
from deviceplugin_testing.simulator._errors import KubeletStopped
from deviceplugin_testing.simulator._host.config import KubeletConfig, TopologyPolicy, TopologyScope
from deviceplugin_testing.simulator._host.release import Behaviour
from deviceplugin_testing.simulator._kubelet.kubelet import SimulatedKubelet
from deviceplugin_testing.simulator._releases import COMPARED, NEWEST, RELEASES
from deviceplugin_testing.tools._console import Console, listening, opened, send, serve, stopping
from deviceplugin_testing.tools.kubelet._commands import KubeletCommands, LeapingClock, LiveView

_CONTROL: Final = "control.sock"

_DESCRIPTION: Final = """\
Run a simulated kubelet, and show every change of plugins, devices and pods.

It listens on DIR/device-plugins/kubelet.sock, watches DIR/plugins_registry, and serves the pod
resources API on DIR/pod-resources/kubelet.sock. Without DIR it uses a new temporary directory. For
plugins with a fixed path, DIR must be /var/lib/kubelet.

Commands are typed, read from a script, or sent from another terminal with --send. 'help' lists
them."""

_EXAMPLES: Final = """\
examples:
  deviceplugin kubelet /tmp/kubelet
  deviceplugin kubelet /tmp/kubelet --send admit demo example.com/gopher=1
  deviceplugin kubelet /tmp/kubelet --script checks.txt

Exit status: 0 after a stop, 1 if a command failed or the kubelet cannot start, 2 if the command
line is wrong."""


def main(argv: Sequence[str]) -> int:
    """Run ``deviceplugin kubelet`` with the arguments ``argv`` and return its exit status.

    0 after a stop, 1 if a command of a script or of ``--send`` failed or the kubelet cannot start,
    2 for a wrong command line.
    """
    return _command_line.run(_parser(), argv, _act, (OSError, ValueError))


def _act(options: argparse.Namespace) -> int:
    with ExitStack() as stack:
        root = options.dir or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if options.send:
            return _send(root, options.send)
        return _run(root, options)


def _parser() -> argparse.ArgumentParser:
    parser = _command_line.parser("kubelet", _DESCRIPTION, _EXAMPLES)
    parser.add_argument(
        "dir", type=Path, nargs="?", metavar="DIR", help="the equivalent of /var/lib/kubelet"
    )
    parser.add_argument(
        "--script", metavar="FILE", help="run the commands in FILE (- is stdin) and stop"
    )
    parser.add_argument(
        "--send",
        nargs=argparse.REMAINDER,
        metavar="COMMAND",
        help="send a command to the simulated kubelet that runs in DIR",
    )
    parser.add_argument("--quiet", action="store_true", help="do not show changes")
    parser.add_argument("--seed", type=int, default=0, help="seed of every random choice")
    parser.add_argument(
        "--version",
        choices=RELEASES,
        default=COMPARED,
        metavar="RELEASE",
        help=f"behave like the kubelet of this release, {RELEASES[0]} to {NEWEST} ({COMPARED})",
    )
    parser.add_argument("--fixed", action="store_true", help="do not simulate known defects")
    words = "time between two updates of the node status"
    _command_line.add_seconds(parser, "--node-status-interval", "10s", words, "1ms")
    parser.add_argument("--topology-policy", choices=get_args(TopologyPolicy), default="none")
    parser.add_argument("--topology-scope", choices=get_args(TopologyScope), default="container")
    parser.add_argument(
        "--numa-nodes", default="0", metavar="IDS", help="NUMA nodes, such as 0,1 (default 0)"
    )
    return parser


def _send(root: Path, words: Sequence[str]) -> int:
    line = " ".join(words)
    try:
        return 0 if send(root / _CONTROL, line, sys.stdout) else FAILED
    except OSError as error:
        raise OSError(f"{root / _CONTROL}: {error.strerror}: no kubelet runs here") from None


def _run(root: Path, options: argparse.Namespace) -> int:
    _refuse_to_replace(root / "device-plugins" / "kubelet.sock")
    clock = LeapingClock()
    kubelet = SimulatedKubelet(
        root,
        seed=options.seed,
        clock=clock,
        behaviour=Behaviour.fixed() if options.fixed else None,
        config=KubeletConfig(
            version=options.version,
            topology_policy=options.topology_policy,
            topology_scope=options.topology_scope,
            numa_nodes=_numa_nodes(options.numa_nodes),
        ),
    )
    console = Console(KubeletCommands(kubelet, clock).table, sys.stdout)
    with ExitStack() as stack:
        stack.enter_context(stopping(console))
        script = opened(options.script, stack)
        stack.enter_context(kubelet)
        stack.enter_context(listening(console, root / _CONTROL))
        stack.enter_context(_node_status(kubelet, options.node_status_interval))
        if not options.quiet:
            stack.enter_context(LiveView(kubelet, console.show))
        return serve(console, script)


def _numa_nodes(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(each) for each in text.split(","))
    except ValueError:
        raise ConfigError(f"--numa-nodes {text}: not numbers separated by commas") from None


def _refuse_to_replace(path: Path) -> None:
    """Raise ConfigError if a kubelet listens on ``path``, which could be a real one."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return
    raise ConfigError(f"{path}: a kubelet is listening here already")


@contextmanager
def _node_status(kubelet: SimulatedKubelet, interval: float) -> Iterator[None]:
    waiter = Waiter()

    def run() -> None:
        for _ in waiter.ticks(interval):
            with suppress(KubeletStopped):
                kubelet.tick()

    thread = threading.Thread(target=run, name="node-status")
    thread.start()
    try:
        yield
    finally:
        waiter.end()
        thread.join()
