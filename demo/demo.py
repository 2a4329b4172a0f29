"""The gopher plugin on a simulated kubelet. Every step prints what it did and checks the result.

It needs neither root nor a cluster. All files are in a temporary directory. The exit status is 1
if a step fails.
"""

import socket
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

from demo.stage import GREEN, PATIENCE, PLAIN, RED, Demo, Stopwatch, check, say

from deviceplugin_testing.simulator import Pod

RESOURCE: Final = "example.com/gopher"
COMMAND: Final = Path(sys.executable).with_name("gopher-device-plugin")


class GopherDemo(Demo):
    """A directory of gophers, and their plugin."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.gophers = root / "gophers"
        self.port = free_port()

    def start_plugin(self) -> None:
        address = f"--http-address=127.0.0.1:{self.port}"
        self.run_plugin(COMMAND, f"--directory={self.gophers}", address)

    def expect(self, healthy: Collection[str], unhealthy: Collection[str] = ()) -> None:
        """Wait until the kubelet has exactly these devices."""
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
        check("a second pod that asks for two is rejected: only one is left", not rejected)
        self.kubelet.delete(pod)

    def a_device_comes_and_goes(self) -> None:
        with Stopwatch() as took:
            (self.gophers / "gus").touch()
            self.expect({"gordon", "gary", "gina", "gus"})
        check(f"a new file is a device on the kubelet's list after {took}", truth=True)
        with Stopwatch() as took:
            (self.gophers / "gary").unlink()
            self.expect({"gordon", "gina", "gus"}, {"gary"})
        self.show_devices()
        check(f"a deleted one is unhealthy after {took}, and stays listed for now", truth=True)
        say("(dropping a device that a pod may hold can crash a 1.36 kubelet)")
        (self.gophers / "gary").touch()
        self.expect({"gordon", "gary", "gina", "gus"})
        check(
            "after it was put back, it is healthy again",
            self.kubelet.devices(RESOURCE)["gary"] == "Healthy",
        )

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
        self.registers_again_after("the kubelet closed the connection", self.hang_up)
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
        check(f"{what}: registered again, with all devices", truth=True)

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
        say(f"kill -9; meanwhile {held}, which pod default/holder holds, disappears")
        self.start_plugin()
        self.expect({"gordon", "gary", "gina", "gus"} - {held}, {held})
        check(f"the new process lists {held} as unhealthy: it asked which devices pods hold", held)

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
        self.stop_plugin()
        left = list(self.kubelet.plugin_dir.glob("example.com_*"))
        check("no socket is left behind", not left)
        check("nothing that happened would have crashed a real kubelet", not self.kubelet.crashes)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def main() -> int:
    """Run all steps. Return 0 if each was as claimed."""
    with tempfile.TemporaryDirectory(prefix="gophers-", ignore_cleanup_errors=True) as root:
        running = GopherDemo(Path(root))
        steps = {
            "A kubelet starts, then the plugin": running.a_kubelet_and_a_plugin,
            "A pod asks for two gophers": running.a_pod_gets_two,
            "A gopher arrives, another is lost": running.a_device_comes_and_goes,
            "The kubelet restarts, five times": running.the_kubelet_restarts,
            "The connection drops; the socket is deleted": running.connections_are_lost,
            "The plugin is killed while a pod holds a gopher": running.the_plugin_is_killed,
            "What it serves over HTTP": running.what_it_tells,
            "SIGTERM": running.it_stops,
        }
        more = "README.md shows how to write a plugin of your own in 15 lines"
        return running.play(steps, more)


if __name__ == "__main__":
    raise SystemExit(main())
