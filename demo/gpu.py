"""The GPU plugin on a simulated kubelet and a fake driver. Every step is printed and checked.

    make demo ARGS=gpu

It needs a C compiler (cc) for the fake driver, and neither root, a cluster nor a GPU. All files are
in a temporary directory. The exit status is 1 if a step fails.
"""

import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection
from pathlib import Path
from typing import Final

from demo.stage import PATIENCE, Demo, DemoError, Stopwatch, check, say

from deviceplugin_testing.simulator import Pod

GPU: Final = "nvidia.com/gpu"
COMMAND: Final = Path(sys.executable).with_name("gpu-device-plugin")
SOURCES: Final = Path(__file__).parents[1] / "plugins/gpu/fake-nvml"
FLEET: Final = SOURCES / "fleets/dgx-1.fleet"
LIBRARY: Final = "libnvidia-ml.so.1"
ROW: Final = struct.Struct("56sQ")
GPUS: Final = [f"GPU-{slot:08x}-0000-4000-8000-{slot:012x}" for slot in range(8)]


class GpuDemo(Demo):
    """A fake driver with a fleet of GPUs, and their plugin."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.fleet = root / "node.fleet"
        self.counters = root / "calls"
        self.stamp = time.time_ns()

    def has(self, *lines: str) -> None:
        """Write the fleet file, with ``lines`` added."""
        partial = self.fleet.with_suffix(".new")
        partial.write_text("\n".join([FLEET.read_text(), *lines, ""]))
        self.stamp += 1_000_000
        os.utime(partial, ns=(self.stamp, self.stamp))
        partial.replace(self.fleet)

    def build(self) -> None:
        compiler = shutil.which("cc")
        if compiler is None:
            raise DemoError("a C compiler is needed for the fake driver: install gcc or clang")
        sources = sorted(str(path) for path in SOURCES.glob("*.c"))
        flags = ["-std=gnu11", "-O1", "-fPIC", "-shared", "-pthread", "-fvisibility=hidden"]
        target = self.root / "driver/usr/lib64" / LIBRARY
        target.parent.mkdir(parents=True)
        subprocess.run(
            [compiler, *flags, f"-Wl,-soname,{LIBRARY}", "-o", str(target), *sources], check=True
        )

    def start_plugin(self, http: str = "--http-address=off") -> None:
        self.run_plugin(
            COMMAND,
            f"--driver-root-ctr-path={self.root}/driver",
            f"--state-file={self.root}/health.json",
            *("--discovery-interval=200ms", "--discovery-deadline=1s"),
            *("--recovery-time=200ms", http),
            FAKE_NVML_FLEET=str(self.fleet),
            FAKE_NVML_CALLS=str(self.counters),
        )

    def expect(self, healthy: Collection[str], unhealthy: Collection[str] = ()) -> None:
        self.kubelet.wait_for(GPU, healthy, unhealthy, timeout=PATIENCE)

    def calls(self, function: str) -> int:
        """Return how often a function of the fake driver was called."""
        rows = ROW.iter_unpack(self.counters.read_bytes())
        return next((n for name, n in rows if name.rstrip(b"\0").decode() == function), 0)

    # The steps, in order.

    def a_plugin_starts(self) -> None:
        self.build()
        self.has()
        self.kubelet.start()
        say(f"a fake {LIBRARY} with {FLEET.name}: 8 GPUs in two islands of NVLinks")
        with Stopwatch() as took:
            self.start_plugin()
            self.expect(GPUS)
        check(f"started, and 8 GPUs are listed as healthy after {took}", truth=True)

    def a_pod_gets_near_ones(self) -> None:
        links = self.calls("nvmlDeviceGetNvLinkState")
        pod = Pod.of("training", main={GPU: 4})
        visible = self.run_pod(pod).envs["NVIDIA_VISIBLE_DEVICES"].split(",")
        numbers = [GPUS.index(one) for one in visible]
        say(f"pod default/training has the GPUs {numbers}")
        check("four of one island: 0 to 3, or 4 to 7", numbers in ([0, 1, 2, 3], [4, 5, 6, 7]))
        asked = self.calls("nvmlDeviceGetNvLinkState") - links
        check("the driver was not queried for that: the links are in memory", asked == 0)
        self.kubelet.delete(pod)

    def a_gpu_falls_off_the_bus(self) -> None:
        lost, others = GPUS[2], [one for one in GPUS if one != GPUS[2]]
        with Stopwatch() as took:
            self.has("gpu 2 state=lost", "event 1 xid gpu=2 code=79")
            self.expect(others, {lost})
        check(f"GPU 2 is unhealthy after {took}", truth=True)
        pod = Pod.of("others", main={GPU: 7})
        visible = self.run_pod(pod).envs["NVIDIA_VISIBLE_DEVICES"].split(",")
        check("a pod that asks for seven gets the other seven", set(visible) == set(others))
        self.kubelet.delete(pod)

    def it_is_reset(self) -> None:
        self.has()
        self.expect(GPUS)
        check("after a reset, and some time without errors, it is healthy again", truth=True)

    def the_driver_is_unloaded(self) -> None:
        self.has("driver gone=yes")
        self.expect((), GPUS)
        check("the health of the GPUs is unknown: all are unhealthy, and stay listed", truth=True)
        self.has()
        self.expect(GPUS)
        check("the driver is back, and so are the GPUs; nothing was restarted", truth=True)

    def it_stops(self) -> None:
        self.stop_plugin()
        check("there was only one registration", self.kubelet.registration_count(GPU) == 1)


def main() -> int:
    """Run all steps. Return 0 if each was as claimed."""
    with tempfile.TemporaryDirectory(prefix="gpus-", ignore_cleanup_errors=True) as root:
        running = GpuDemo(Path(root))
        steps = {
            "Eight GPUs, a kubelet, the plugin": running.a_plugin_starts,
            "A pod asks for four": running.a_pod_gets_near_ones,
            "A GPU falls off the bus (XID 79)": running.a_gpu_falls_off_the_bus,
            "It is reset": running.it_is_reset,
            "The driver is unloaded, and loaded again": running.the_driver_is_unloaded,
            "SIGTERM": running.it_stops,
        }
        return running.play(steps, "plugins/gpu/README.md")


if __name__ == "__main__":
    raise SystemExit(main())
