"""Any plugin on a simulated kubelet of its own, with the hardware of a tree as /sys and /dev.

Needs root and ``unshare``: see ``containers.unshare.POSSIBLE``.
"""

import os
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from deviceplugin_testing.simulator import SimulatedKubelet

_NAMESPACE: Final = """
for name in $4; do ip link add "$name" type ifb; done
mount -t tmpfs none /var/lib
mkdir -p /var/lib/kubelet/device-plugins
mount --bind "$1" /var/lib/kubelet/device-plugins
mount --bind "$3" /run
mount --rbind "$2/sys" /sys
mount -t tmpfs none /mnt
cp -a /dev/null /dev/zero /dev/random /dev/urandom "$2"/dev/* /mnt
mount --move /mnt /dev
shift 4
exec "$@"
"""
"""The kubelet's directory, /run, /sys and /dev as the plugin sees them, and interfaces by name."""


@dataclass
class OnNode:
    """A plugin that runs."""

    kubelet: SimulatedKubelet
    process: "subprocess.Popen[bytes]"
    log: Path
    run: Path
    """What is its /run."""

    def nodes(self, resource: str) -> dict[frozenset[str], str]:
        """Return which device stands for which device nodes."""
        return {
            frozenset(one.container_path for one in answer.devices): id_
            for id_ in self.kubelet.devices(resource)
            for answer in [self.kubelet.allocate(resource, [id_])]
        }

    def numa(self, resource: str) -> "Counter[tuple[int, ...]]":
        """Return how many devices there are on which NUMA nodes."""
        listed = self.kubelet._manager.devices[resource].values()
        return Counter(tuple(node.ID for node in one.topology.nodes) for one in listed)


@contextmanager
def on_node(
    root: Path,
    *command: str,
    interfaces: Iterable[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Iterator[OnNode]:
    """Run a plugin on a node whose /sys and /dev are those below ``root``.

    With ``interfaces``, it has a network of its own, in which the kernel knows these.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="dp")))
        kubelet = stack.enter_context(SimulatedKubelet(folder))
        log, run = folder / "log", folder / "run"
        run.mkdir()
        names = " ".join(sorted(interfaces))
        unshare = ["unshare", "-m", *(["-n"] if names else []), "sh", "-ec", _NAMESPACE, "sh"]
        inside = [str(kubelet.plugin_dir), str(root), str(run), names, *command]
        process = stack.enter_context(
            subprocess.Popen(
                [*unshare, *inside],
                env={
                    **os.environ,
                    "DP_HTTP_ADDRESS": "off",
                    "DP_STATE_FILE": "",
                    **(environment or {}),
                },
                stdout=subprocess.DEVNULL,
                stderr=stack.enter_context(log.open("w")),
            )
        )
        stack.callback(process.kill)
        yield OnNode(kubelet, process, log, run)
