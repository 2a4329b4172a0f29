"""The plugin in Go that ours is measured against builds, and does what a kubelet expects."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "bench_go" / "build.sh"
CHECKS = ("registration", "lists", "allocation", "restart.again", "stream-loss", "hot-plug")


def test_what_the_build_takes_from_the_checkout_is_there() -> None:
    named = re.findall(r"(?:build|common)/[\w./-]+", BUILD.read_text())
    assert len(named) >= 2
    assert [] == [name for name in named if not (ROOT / name).exists()]


@pytest.mark.skipif(not shutil.which("go"), reason="needs Go: see build/bench_go/build.sh")
@pytest.mark.skipif(
    not (ROOT / "dist" / "bench_go" / "bench-go-plugin").exists(),
    reason="the first build takes long: run build/bench_go/build.sh once",
)
def test_the_plugin_in_go_is_built_and_passes_the_conformance_suite(tmp_path: Path) -> None:
    subprocess.run([BUILD, tmp_path], check=True, capture_output=True)
    tool = [str(Path(sys.executable).with_name("deviceplugin")), "conformance", "--quick"]
    only = [f"--only={check}" for check in CHECKS]
    change = ["--trigger-change", "rm {devices_dir}/dev0"]
    command = [str(tmp_path / "bench-go-plugin"), "--directory", "{devices_dir}"]
    done = subprocess.run(
        [*tool, *only, *change, "--", *command], capture_output=True, text=True, check=False
    )
    assert (0, "") == (done.returncode, done.stdout if done.returncode else "")
