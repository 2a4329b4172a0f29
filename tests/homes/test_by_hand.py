"""The stand-in for a cluster, as somebody runs it who wants to try it."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from cluster.small_cluster import why_not

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "cluster"]
needs_kubectl = pytest.mark.skipif(bool(why_not()), reason=why_not() or "-")


def environment(**changes: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / "tests/support"), **changes}


def kubectl(config: str, *words: str) -> str:
    command = ["kubectl", f"--kubeconfig={config}", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def pods(folder: Path) -> list[str]:
    """Return the commands of processes here that know of ``folder``."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or is somebody else's
            if f"{folder}/".encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return found


@needs_kubectl
@pytest.mark.slow
def test_kubectl_deploys_a_plugin_until_ctrl_c_which_leaves_nothing() -> None:
    with subprocess.Popen(COMMAND, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            word, _, config = process.stdout.readline().strip().partition(" KUBECONFIG=")
            assert "export" == word
            folder = Path(config).parent
            kubectl(config, "apply", "--kustomize=deployments/gopher")
            words = ["rollout", "status", "daemonset", "--timeout=60s"]
            said = kubectl(config, "--namespace=gopher-device-plugin", *words)
            assert said.endswith(" successfully rolled out\n")
            assert 1 == len(pods(folder))
            process.send_signal(signal.SIGINT)
            assert 0 == process.wait(60)
        finally:
            process.terminate()
    assert [] == pods(folder)
    assert not folder.exists()


def test_without_kubectl_it_says_so(tmp_path: Path) -> None:
    done = subprocess.run(
        COMMAND, env=environment(PATH=str(tmp_path)), capture_output=True, text=True, check=False
    )
    assert (1, "no kubectl: it is what the stand-in is for\n") == (done.returncode, done.stderr)
