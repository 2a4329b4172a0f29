"""A fault that a reset ends, in a plugin of its own process, which is killed meanwhile."""

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deviceplugin.__main__ import main
from deviceplugin_simulated import ctl_command
from deviceplugin_testing.fixture import Kubelet
from patience import eventually
from plugin_process import Process, started

GPU = "example.com/gpu"
IDS = {f"gpu-{index}" for index in range(8)}
PLUGIN = f"{sys.executable} -m deviceplugin_simulated --profile=8-gpus --discovery-interval=1s"


@contextmanager
def plugin(kubelet: Kubelet, control: Path) -> Iterator[Process]:
    words = ["--control-socket", str(control), "--instance=simulated", "--auto-repair=simulated"]
    sockets = f"--pod-resources-socket={kubelet.simulated.pod_resources_socket}"
    with started(kubelet.simulated.plugin_dir, sockets, *words, command=PLUGIN) as process:
        yield process


@pytest.mark.slow
def test_a_reset_in_which_the_plugin_is_killed_is_done_by_the_next(
    kubelet: Kubelet, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    control, simulated = tmp_path / "ctl", kubelet.simulated

    def ctl(*words: str) -> None:
        assert 0 == ctl_command.run([*words, "--control-socket", str(control)])

    def states() -> dict[str, str]:
        capsys.readouterr()
        main(["hold", f"--plugin-dir={simulated.plugin_dir}", "--output=json"])
        found = json.loads(capsys.readouterr().out or "{}").get("holds", ())
        return {one["device"]: one["state"] for one in found}

    with plugin(kubelet, control) as process:
        simulated.wait_for(GPU, IDS)
        ctl("hang")
        ctl("unhealthy", "gpu-3", "--reason", "too hot")
        words = ["hold", f"--plugin-dir={simulated.plugin_dir}", "gpu-3", "--reason=ticket 12"]
        assert 0 == main([*words, "--repair"])
        eventually(lambda: states() == {"gpu-3": "resetting"}, lambda: str(states()))
        process.process.send_signal(signal.SIGKILL)
    simulated.wait_for(GPU, set(), IDS)
    with plugin(kubelet, control) as process:
        assert "gpu-3" == process.wait_for("hold released")["device"]
        ctl("unhealthy", "gpu-5")  # and now by itself
        assert "gpu-5" == process.wait_for("hold released")["device"]
        simulated.wait_for(GPU, IDS)
