"""A node with plugins on it, each in its own process."""

import json
import subprocess
import sys
from pathlib import Path

from deviceplugin_testing.simulator import SimulatedKubelet
from patience import PATIENCE

BIN = Path(sys.executable).parent


class Node:
    """A simulated kubelet, and the plugin's command on it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.kubelet = SimulatedKubelet(root / "kubelet")
        self.plugins: list[subprocess.Popen[str]] = []

    def start(self, command: str, *flags: str) -> subprocess.Popen[str]:
        """Start a plugin's command as its manifest does."""
        process = subprocess.Popen(
            [
                BIN / command,
                f"--plugin-dir={self.kubelet.plugin_dir}",
                f"--registry-dir={self.kubelet.registry_dir}",
                f"--pod-resources-socket={self.kubelet.pod_resources_socket}",
                "--http-address=off",
                *flags,
            ],
            stderr=subprocess.PIPE,
            text=True,
        )
        self.plugins.append(process)
        return process

    def uninstall(self, process: subprocess.Popen[str]) -> list[str]:
        """End a plugin by SIGTERM once it has logged that it is registered.

        It logs that after the kubelet has its devices, so it must not be ended before. Return the
        events of its log, whose threads may log "registered" before "started". The time limit of a
        test ends the wait for them.
        """
        assert process.stderr is not None
        events = []
        for line in process.stderr:
            events.append(json.loads(line)["event"])
            if "registered" == events[-1]:
                process.terminate()
        assert 0 == process.wait(PATIENCE)
        return events

    def stop(self) -> None:
        """Stop everything."""
        for process in self.plugins:
            process.kill()
            assert process.stderr is not None
            if not process.stderr.closed:
                sys.stderr.write(process.stderr.read())  # to explain a failed test
            process.communicate()
        self.kubelet.stop()
