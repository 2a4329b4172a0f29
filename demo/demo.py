"""The gopher plugin on a simulated kubelet: every step shows what it did and checks it.

No root, no cluster; all files are in a temporary directory. Exits with 1 at the first step that
is not as it should be.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

from deviceplugin.simulator import Pod, RunOptions, SimulatedKubelet

RESOURCE: Final = "example.com/gopher"
COMMAND: Final = Path(sys.executable).with_name("gopher-device-plugin")
PATIENCE: Final = 10.0
"""Seconds; each step takes milliseconds."""
SOON: Final = 1000
"""Milliseconds for what is to happen at once, on a busy machine."""

BOLD, DIM, GREEN, RED, PLAIN = (
    ("\033[1m", "\033[2m", "\033[32m", "\033[31m", "\033[0m")
    if sys.stdout.isatty() and "NO_COLOR" not in os.environ
    else ("",) * 5
)


class DemoError(Exception):
    """Something is not as the demo says."""


def say(text: str) -> None:
    print(f"    {text}", flush=True)


def check(claim: str, truth: object) -> None:
    """Print ``claim`` if it is true, and end the demo if it is not."""
    if not truth:
        raise DemoError(claim)
    print(f"    {GREEN}ok{PLAIN}  {claim}", flush=True)


class Stopwatch:
    """Milliseconds that a ``with`` block took."""

    def __enter__(self) -> Self:
        self._start = time.monotonic()
        return self

    def __exit__(self, *_error: object) -> None:
        self.ms = round(1000 * (time.monotonic() - self._start))

    def __str__(self) -> str:
        return f"{self.ms} ms"


class Demo:
    """One kubelet, one directory of gophers, one plugin process at a time."""

    def __init__(self, root: Path) -> None:
        self.gophers = root / "gophers"
        self.kubelet = SimulatedKubelet(root / "kubelet")
        self.log = root / "plugin.log"
        self.plugin: subprocess.Popen[bytes]
        self.port = 0

    def start_plugin(self) -> None:
        with self.log.open("ab") as log:
            self.plugin = subprocess.Popen(
                [
                    COMMAND,
                    f"--directory={self.gophers}",
                    f"--plugin-dir={self.kubelet.plugin_dir}",
                    f"--pod-resources-socket={self.kubelet.pod_resources_socket}",
                    f"--http-address=127.0.0.1:{self.port}",
                    "--log-format=text",
                ],
                stderr=log,
            )

    def expect(self, healthy: Collection[str], unhealthy: Collection[str] = ()) -> None:
        """Wait until the kubelet has been told just this."""
        self.kubelet.wait_for(RESOURCE, healthy, unhealthy, timeout=PATIENCE)

    def show_devices(self) -> None:
        for device, health in sorted(self.kubelet.devices(RESOURCE).items()):
            colour = GREEN if health == "Healthy" else RED
            say(f"    {device:<8} {colour}{health}{PLAIN}")

    def get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
            text: str = answer.read().decode()
        return text

    # The steps, in order.

    def a_kubelet_and_a_plugin(self) -> None:
        for name in ("gordon", "gary", "gina"):
            self.gophers.mkdir(exist_ok=True)
            (self.gophers / name).touch()
        self.kubelet.start()
        say(f"kubelet listens on {self.kubelet.kubelet_socket}")
        say(f"$ gopher-device-plugin --directory={self.gophers} ...")
        with Stopwatch() as took:
            self.start_plugin()
            self.expect({"gordon", "gary", "gina"})
        self.show_devices()
        check(f"started, registered, and three files listed as devices in {took}", truth=True)

    def a_pod_gets_two(self) -> None:
        pod = Pod.of("digger", main={RESOURCE: 2})
        options = self.run_pod(pod)
        names = options.envs["Gopher"].split(",")
        say(f"pod default/digger runs; its container has Gopher={options.envs['Gopher']}")
        check("two different gophers were allocated", len(set(names)) == len(names) > 1)
        rejected = self.kubelet.admit(Pod.of("too-greedy", main={RESOURCE: 2}))
        say(f"pod default/too-greedy: {rejected.message}")
        check("a second pod that asks for two is turned away: one is left", not rejected)
        self.kubelet.delete(pod)

    def run_pod(self, pod: Pod) -> RunOptions:
        outcome = self.kubelet.admit(pod)
        if not outcome:
            raise DemoError(f"pod {pod.name} was rejected: {outcome.message}")
        options = self.kubelet.start_container(pod, pod.containers[0].name)
        if options is None:
            raise DemoError(f"the container of pod {pod.name} got nothing")
        return options

    def a_device_comes_and_goes(self) -> None:
        with Stopwatch() as took:
            (self.gophers / "gus").touch()
            self.expect({"gordon", "gary", "gina", "gus"})
        check(f"a new file is a device on the kubelet's list after {took}", took.ms < SOON)
        with Stopwatch() as took:
            (self.gophers / "gary").unlink()
            self.expect({"gordon", "gina", "gus"}, {"gary"})
        self.show_devices()
        check(f"a deleted one is unhealthy after {took}, and stays listed for now", took.ms < SOON)
        say("(dropping a device that a pod may hold can crash a 1.36 kubelet)")
        (self.gophers / "gary").touch()
        self.expect({"gordon", "gary", "gina", "gus"})
        check("put back, it is healthy again", self.kubelet.devices(RESOURCE)["gary"] == "Healthy")

    def the_kubelet_restarts(self) -> None:
        before = self.kubelet.registration_count(RESOURCE)
        times = []
        for _ in range(5):
            self.kubelet.stop()
            self.kubelet.start()
            with Stopwatch() as took:
                self.expect({"gordon", "gary", "gina", "gus"})
            times.append(str(took))
        say(f"from listening again to a full list: {', '.join(times)}")
        check("registered again each time", self.kubelet.registration_count(RESOURCE) >= before + 5)

    def connections_are_lost(self) -> None:
        self.registers_again_after("the kubelet hung up", self.hang_up)
        self.registers_again_after("its socket was deleted", self.delete_plugin_socket)

    def registers_again_after(self, what: str, lose: Callable[[], None]) -> None:
        before = self.kubelet.registration_count(RESOURCE)
        lose()
        self.kubelet.wait(
            lambda: self.kubelet.registration_count(RESOURCE) > before,
            timeout=PATIENCE,
            what="another registration",
        )
        self.expect({"gordon", "gary", "gina", "gus"})
        check(f"{what}: registered again, all devices there", truth=True)

    def hang_up(self) -> None:
        self.kubelet.hang_up(RESOURCE)

    def delete_plugin_socket(self) -> None:
        for path in self.kubelet.plugin_dir.glob("example.com_gopher-*.sock"):
            path.unlink()

    def the_plugin_is_killed(self) -> None:
        pod = Pod.of("holder", main={RESOURCE: 1})
        held = self.run_pod(pod).envs["Gopher"]
        self.plugin.kill()
        self.plugin.wait()
        self.kubelet.wait(lambda: not self.kubelet.registered, what="the kubelet to notice")
        (self.gophers / held).unlink()
        say(f"kill -9; and {held}, which pod default/holder has, disappears meanwhile")
        self.start_plugin()
        self.expect({"gordon", "gary", "gina", "gus"} - {held}, {held})
        check(f"the new process lists {held} as unhealthy: it asked what pods hold", held)

    def what_it_tells(self) -> None:
        metrics = [
            line
            for line in self.get("/metrics").splitlines()
            if line.startswith(("deviceplugin_devices{", "deviceplugin_registered{"))
        ]
        for line in metrics:
            say(line)
        healthy = f'deviceplugin_devices{{health="healthy",resource="{RESOURCE}"}} 3.0'
        check("three are healthy, one is not", healthy in metrics)
        check("/readyz says ok", "ok" in self.get("/readyz"))

    def it_stops(self) -> None:
        with Stopwatch() as took:
            self.plugin.send_signal(signal.SIGTERM)
            self.plugin.wait()
        check(f"exit status 0 after {took}", self.plugin.returncode == 0)
        left = list(self.kubelet.plugin_dir.glob("example.com_*"))
        check("no socket is left behind", not left)
        check("nothing that happened would have crashed a kubelet", not self.kubelet.crashes)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@contextmanager
def demo() -> Iterator[Demo]:
    root = Path(tempfile.mkdtemp(prefix="gophers-"))
    running = Demo(root)
    running.port = free_port()
    try:
        yield running
    except Exception:
        if running.log.exists():
            sys.stderr.write(f"--- log of the plugin\n{running.log.read_text()}")
        raise
    finally:
        if hasattr(running, "plugin") and running.plugin.poll() is None:
            running.plugin.kill()
            running.plugin.wait()
        running.kubelet.stop()
        shutil.rmtree(root, ignore_errors=True)


def main() -> int:
    """Run all steps; 0 if each was as claimed."""
    start = time.monotonic()
    try:
        with demo() as running:
            steps = {
                "A kubelet starts, then the plugin": running.a_kubelet_and_a_plugin,
                "A pod asks for two gophers": running.a_pod_gets_two,
                "A gopher arrives, another is lost": running.a_device_comes_and_goes,
                "The kubelet restarts, five times": running.the_kubelet_restarts,
                "The connection drops; the socket is deleted": running.connections_are_lost,
                "The plugin is killed while a pod holds a gopher": running.the_plugin_is_killed,
                "What it tells over HTTP": running.what_it_tells,
                "SIGTERM": running.it_stops,
            }
            for number, (title, step) in enumerate(steps.items(), 1):
                print(f"\n{BOLD}{number}. {title}{PLAIN}", flush=True)
                step()
    except (DemoError, TimeoutError, OSError) as error:
        print(f"\n{RED}FAILED{PLAIN}  {error}", flush=True)
        return 1
    took = time.monotonic() - start
    print(f"\n{GREEN}All {len(steps)} steps were as claimed{PLAIN} ({took:.1f} s).")
    print(f"{DIM}Next: README.md shows how to write a plugin of your own in 15 lines.{PLAIN}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
