"""Shared by the demos: a simulated kubelet, a plugin, and steps that are printed and checked."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Self

from deviceplugin_testing.simulator import Pod, RunOptions, SimulatedKubelet

PATIENCE: Final = 60.0
"""Seconds, on the busiest machine; each step takes milliseconds."""

BOLD, DIM, GREEN, RED, PLAIN = (
    ("\033[1m", "\033[2m", "\033[32m", "\033[31m", "\033[0m")
    if (sys.stdout.isatty() or "FORCE_COLOR" in os.environ) and "NO_COLOR" not in os.environ
    else ("",) * 5
)


class DemoError(Exception):
    """A claim of the demo is not true."""


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
    """One kubelet, and one plugin process at a time. All files are below ``root``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.kubelet = SimulatedKubelet(root / "kubelet")
        self.log = root / "plugin.log"
        self.plugin: subprocess.Popen[bytes]

    def run_plugin(self, command: Path, *options: str, **variables: str) -> None:
        sockets = [
            f"--plugin-dir={self.kubelet.plugin_dir}",
            f"--pod-resources-socket={self.kubelet.pod_resources_socket}",
        ]
        with self.log.open("ab") as log:
            self.plugin = subprocess.Popen(
                [command, *sockets, "--log-format=text", *options],
                env={**os.environ, **variables},
                stderr=log,
            )

    def run_pod(self, pod: Pod) -> RunOptions:
        """Return the allocation of ``pod``'s container."""
        outcome = self.kubelet.admit(pod)
        if not outcome:
            raise DemoError(f"pod {pod.name} was rejected: {outcome.message}")
        options = self.kubelet.start_container(pod, pod.containers[0].name)
        if options is None:
            raise DemoError(f"the container of pod {pod.name} got nothing")
        return options

    def stop_plugin(self) -> None:
        with Stopwatch() as took:
            self.plugin.send_signal(signal.SIGTERM)
            self.plugin.wait()
        check(f"exit status 0 after {took}", self.plugin.returncode == 0)

    def close(self) -> None:
        if hasattr(self, "plugin") and self.plugin.poll() is None:
            self.plugin.kill()
            self.plugin.wait()
        self.kubelet.stop()

    def play(self, steps: Mapping[str, Callable[[], None]], more: str) -> int:
        """Run all steps, by title. Return 0 if each was as claimed. ``more`` is further reading."""
        start = time.monotonic()
        try:
            for number, (title, step) in enumerate(steps.items(), 1):
                print(f"\n{BOLD}{number}. {title}{PLAIN}", flush=True)
                step()
        except (DemoError, TimeoutError, OSError, subprocess.CalledProcessError) as error:
            if self.log.exists():
                sys.stderr.write(f"--- log of the plugin\n{self.log.read_text()}")
            print(f"\n{RED}FAILED{PLAIN}  {error}", flush=True)
            return 1
        finally:
            self.close()
        took = time.monotonic() - start
        print(f"\n{GREEN}All {len(steps)} steps were as claimed{PLAIN} ({took:.1f} s).")
        print(f"{DIM}Next: {more}.{PLAIN}")
        return 0
