"""Measure the generic plugin with very many devices, and how soon it reports a change.

    python build/bench_generic.py

This needs root, for device nodes and loop devices; it reports and skips what is unavailable. The
last part is ``deviceplugin bench`` with fewer entries. Each entry is a resource, and with 500
resources the simulated kubelet, which has a thread for each, would dominate the figures.
"""

import fcntl
import json
import os
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Queue
from threading import Event, Thread
from typing import Final, Self

from deviceplugin_generic import GenericPlugin, GenericSettings
from deviceplugin_testing.simulator import SimulatedKubelet

ENTRIES: Final = 500
NODES: Final = 5000
SERVED: Final = 20
"""Entries of the plugin that serves a kubelet; they share all nodes."""
TIMES: Final = 200
PAUSE: Final = 0.5
"""Seconds between changes. After a discovery, the plugin rests for as long as it took."""
BIN: Final = Path(sys.executable).parent
PLUGIN: Final = str(BIN / "generic-device-plugin")
LOOP_CONTROL: Final = Path("/dev/loop-control")
LOOP_ADD: Final = 0x4C80
LOOP_REMOVE: Final = 0x4C81
LOOP: Final = 200
"""Number of the loop device that is added and removed."""
NETLINK_KOBJECT_UEVENT: Final = 15
UEVENT: Final = Path("/sys/devices/virtual/mem/null/uevent")


def main() -> None:
    """Print all figures."""
    root = Path(tempfile.mkdtemp(prefix="generic-"))
    try:
        for number in range(NODES):
            make_node(root / f"d{number:04}", number)
        discoveries(write(root, ENTRIES), root)
        config = write(root, SERVED)
        soon("a node in a directory", node_of(root / "dp-soon"), config, time.monotonic)
        if os.access(LOOP_CONTROL, os.W_OK):
            with LoopEvents() as events:
                soon("a device, by the kernel's event", loop, loops(root), events.take)
        else:
            print(f"{LOOP_CONTROL} is unavailable: no figures from the kernel's event")
        options = ["--starts=3", "--idle=10", "--allocations=200", "--changes=100", "--restarts=3"]
        command = [PLUGIN, f"--config={config}"]
        bench = [str(BIN / "deviceplugin"), "bench", *options, f"--resources={SERVED}"]
        subprocess.run([*bench, f"--touch={root}", "--", *command], check=True)
    finally:
        shutil.rmtree(root)


def write(root: Path, entries: int) -> Path:
    """Return a configuration with so many entries, which share the nodes."""
    patterns: list[list[str]] = [[] for _ in range(entries)]
    for ten in range(NODES // 10):
        patterns[ten % entries].append(f"{root}/d{ten:03}*")
    groups = [[{"paths": [{"path": path}]} for path in paths] for paths in patterns]
    groups[0].append({"paths": [{"path": f"{root}/dp-*", "type": "Mount"}]})  # any file will do
    devices = [{"name": f"e{number}", "groups": some} for number, some in enumerate(groups)]
    config = root / "config.json"
    config.write_text(json.dumps({"devices": devices}))
    return config


def loops(root: Path) -> Path:
    """Return a configuration for loop devices."""
    config = root / "loops.json"
    group = {"select": {"subsystem": "block", "name": "loop*"}}
    config.write_text(json.dumps({"devices": [{"name": "loop", "groups": [group]}]}))
    return config


def make_node(path: Path, minor: int) -> None:
    """Make a device node, or a link to one if that is not allowed."""
    try:
        os.mknod(path, 0o020600, os.makedev(240, minor))
    except PermissionError:
        path.symlink_to("/dev/null")


def discoveries(config: Path, root: Path) -> None:
    """Print the CPU time of discoveries, and the memory of a process that only discovers."""
    plugin = GenericPlugin(GenericSettings.of_file(config))
    print(f"{ENTRIES} entries, {NODES} nodes; CPU time of one discovery, ms")
    row("the first discovery", [cpu(plugin.discover)])
    row("nothing changed", [cpu(plugin.discover) for _ in range(TIMES)])
    row("one node changed", list(after(plugin, node_of(root / "dp-one"))))
    with suppress(OSError):
        row("the kernel sent an event", list(after(plugin, sent_event)))
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"  {'resident memory, with this script':36}{rss:9.1f} MiB")


def cpu(work: Callable[[], object]) -> float:
    """Return the milliseconds of CPU time that ``work`` takes."""
    begin = time.process_time()
    work()
    return (time.process_time() - begin) * 1000


Change = Callable[[bool], None]
"""Adds something if the argument is true; otherwise removes it."""


def after(plugin: GenericPlugin, change: Change) -> Iterator[float]:
    """Yield the CPU time of a discovery after each change."""
    for number in range(TIMES):
        change(number % 2 == 0)
        yield cpu(plugin.discover)


def node_of(path: Path) -> Change:
    """Return a function that makes and removes a node."""

    def change(is_new: bool) -> None:  # noqa: FBT001
        if is_new:
            make_node(path, 9999)
        else:
            path.unlink()

    return change


def sent_event(_is_new: bool) -> None:  # noqa: FBT001
    """Make the kernel send an event without any change."""
    UEVENT.write_text("change")


def loop(is_new: bool) -> None:  # noqa: FBT001
    """Add or remove a loop device. Its node and the kernel's event are real."""
    control = os.open(LOOP_CONTROL, os.O_RDWR)
    try:
        fcntl.ioctl(control, LOOP_ADD if is_new else LOOP_REMOVE, LOOP)
    finally:
        os.close(control)


class LoopEvents:
    """Records the times at which the kernel sends events of the loop device."""

    def __enter__(self) -> Self:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_KOBJECT_UEVENT)
        self._socket.bind((0, 1))
        self._times: Queue[float] = Queue()
        self._socket.settimeout(0.2)
        self._stop = Event()
        self._thread = Thread(target=self._listen)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._socket.close()

    def _listen(self) -> None:
        while not self._stop.is_set():
            with suppress(TimeoutError):
                message = self._socket.recv(16384)
                if message.partition(b"\0")[0].endswith(b"/block/loop%d" % LOOP):
                    self._times.put(time.monotonic())

    def take(self) -> float:
        """Return the time of the next event."""
        return self._times.get(timeout=5)


def soon(what: str, change: Change, config: Path, begin: Callable[[], float]) -> None:
    """Print how long it takes from a change to the list at the kubelet."""
    took = []
    with running(config) as kubelet:
        name = min(kubelet.registered)
        before = healthy(kubelet, name)
        for number in range(TIMES):
            time.sleep(PAUSE)
            is_new = number % 2 == 0
            began = begin() if begin is time.monotonic else None
            thread = Thread(target=change, args=[is_new])  # removing a loop device takes time
            thread.start()
            wait_healthy(kubelet, name, before + is_new)
            listed = time.monotonic()
            took.append((listed - (began or begin())) * 1000)
            thread.join()
    print(f"from {what} to the list at the kubelet, ms")
    row("", took)


def wait_healthy(kubelet: SimulatedKubelet, name: str, wanted: int) -> None:
    """Wait until the kubelet has that many healthy devices."""
    kubelet.wait(lambda: wanted == healthy(kubelet, name), timeout=30, what=f"{wanted} devices")


def healthy(kubelet: SimulatedKubelet, name: str) -> int:
    """Return how many healthy devices the kubelet has."""
    return sum(health == "Healthy" for health in kubelet.devices(name).values())


@contextmanager
def running(config: Path) -> Iterator[SimulatedKubelet]:
    """Run the plugin on a kubelet."""
    folder = Path(tempfile.mkdtemp(prefix="kubelet-"))
    with SimulatedKubelet(folder) as kubelet:
        arguments = [f"--config={config}", "--discovery-interval=1h", "--http-address=off"]
        paths = [f"--plugin-dir={kubelet.plugin_dir}", "--log-level=error"]
        paths += [f"--pod-resources-socket={kubelet.pod_resources_socket}"]
        process = subprocess.Popen([PLUGIN, *arguments, *paths])
        wanted = len(json.loads(config.read_text())["devices"])
        try:
            kubelet.wait(
                lambda: (
                    len(kubelet.registered) >= wanted
                    and all(map(kubelet.lists_received, kubelet.registered))
                ),
                timeout=30,
                what="a list",
            )
            yield kubelet
        finally:
            process.terminate()
            process.wait()
    shutil.rmtree(folder)


def row(name: str, values: list[float]) -> None:
    """Print median, 95th percentile and maximum."""
    ordered = sorted(values)
    middle, high = statistics.median(ordered), ordered[int(len(ordered) * 0.95)]
    print(f"  {name:36}{middle:9.1f} {high:9.1f} {ordered[-1]:9.1f}   {len(values):4} times")


if __name__ == "__main__":
    main()
