"""The pages for the first hour: each is carried out, command by command, and timed."""

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import fresh_environment
from cluster.container import BIN
from cluster.following import Followed, Shell, follow
from cluster.small_cluster import PLUGINS, SHELL, running, why_not
from gpu.driver_root import DriverRoot
from gpu.fake_library import build_or_skip, kept
from gpu.fake_nvml import FakeGpu, FakeNvml, Fleet

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "demo/examples"
pytestmark = [
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "-"),
    pytest.mark.slow,  # a kubectl for each step, and plugins
]
Timed = Callable[[str, Followed], None]


@pytest.fixture
def timed(record_property: Callable[[str, object], None]) -> Timed:
    """Have the end of the run say how long the commands of a page took."""

    def record(page: str, done: Followed) -> None:
        record_property("page", f"{page}: {len(done.commands)} commands, {done.seconds:.1f} s")

    return record


@pytest.mark.parametrize(
    ("page", "problem"),
    [
        ("```console\n$ echo no\nyes\n```\n", "echo no\nyes\nIt said:\nno\n"),
        ("```console\n$ cd /\n$ pwd; exit 3\n/\n```\n", "pwd; exit 3\n/\nIt said:\n/\n"),
    ],
)
def test_a_page_that_is_not_true_is_noticed(page: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=re.escape(problem)):
        follow(page, Shell(tmp_path, {"PATH": os.environ["PATH"]}))


def test_dra_on_one_node(timed: Timed) -> None:
    with running({**PLUGINS, **SHELL}) as cluster:
        instead = [("sudo ", ""), ("/etc/", f"{cluster.node.root}/etc/")]
        page = (EXAMPLES / "dra/README.md").read_text()
        timed("DRA on one node", follow(page, cluster.reader(), instead=instead))


SMI = """#!/bin/sh
echo "GPU 0: NVIDIA H100 80GB HBM3 (UUID: $NVIDIA_VISIBLE_DEVICES)"
"""
"""What NVIDIA's container runtime brings."""
UUIDS = ("GPU-6f1d0c3e-52a7-4b7e-9d51-0a8be2c4f713", "GPU-c20e9b84-1d3f-4e60-8a7c-5b92f6d0e1a8")


def test_nvidia_gpus_on_a_cluster(
    timed: Timed, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    cache = kept(pytestconfig, "fake-nvml")
    library = build_or_skip(cache)
    DriverRoot(tmp_path, cache).install()
    shutil.copy(library, tmp_path / "usr/lib64")
    model = {"name": "NVIDIA H100 80GB HBM3", "memory": 81559}
    gpus = (FakeGpu(slot, values={"uuid": uuid, **model}) for slot, uuid in enumerate(UUIDS))
    fake = FakeNvml(tmp_path / "nvml", Fleet(tuple(gpus)))
    (tmp_path / "nvidia-smi").write_text(SMI)
    (tmp_path / "nvidia-smi").chmod(0o755)
    environment = {
        "PATH": f"{tmp_path}:{BIN}:{os.defpath}",
        "DP_DRIVER_ROOT_CTR_PATH": str(tmp_path),
        "FAKE_NVML_FLEET": str(fake.path),
        "DP_RECOVERY_TIME": "1s",  # in place of five minutes
        "DP_DISCOVERY_INTERVAL": "1s",
    }

    def fall_off() -> None:
        fake.change(1, state="lost")
        fake.xid(1, 79)

    events = {
        "GPU 1 falls off the bus": fall_off,
        "GPU 1 is repaired": lambda: fake.change(1, state="ok"),
    }
    with running({**PLUGINS, "ubuntu:24.04": []}, **environment) as cluster:
        page = (EXAMPLES / "gpu/README.md").read_text()
        timed("NVIDIA GPUs on a cluster", follow(page, cluster.reader(), events=events))


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Return the variables of a shell in which an environment as new as a reader's is active."""
    return fresh_environment.make(tmp_path / "venv", "deviceplugin-testing")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a checkout's parts that are installed."""
    place, leave = tmp_path / "checkout", shutil.ignore_patterns("__pycache__", "tests", "docs")
    shutil.copytree(ROOT / "common", place / "common", ignore=leave)
    return place


def test_the_environment_is_as_new_as_a_readers(
    environment: dict[str, str], tmp_path: Path
) -> None:
    names = ["deviceplugin", "deviceplugin_template", "pytest_timeout", "xdist", "pytest", "grpc"]
    code = f"import importlib.util as u; print(*(n for n in {names} if u.find_spec(n)))"
    assert (0, "pytest grpc\n") == Shell(tmp_path, environment).run(f"python -c {code!r}")


def test_your_own_plugin(
    timed: Timed, checkout: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    image = tmp_path / "image"
    program = [str(tmp_path / "venv/bin/python"), "-m", "deviceplugin_lamp"]
    images = {"lamp-device-plugin:0.1.0": program, **SHELL}
    with running(images, PYTHONPATH=str(image)) as cluster:
        cluster.node.path("/dev").mkdir()
        path = f"{environment['PATH']}:{os.environ['PATH']}"
        shell = cluster.reader(checkout, **{**environment, "PATH": path})
        (file,) = ROOT.glob("common/testing/src/*/tools/new/files/Dockerfile.in")
        (install,) = re.findall(
            r"^RUN python3 -m (pip install .*) \\$", file.read_text(), re.MULTILINE
        )
        build = install.replace("/opt/plugin", f"{image} --no-deps").replace("/src", ".")
        instead = [
            ("docker build --tag lamp-device-plugin:0.1.0 .", build),
            ("sudo ", ""),
            ("/tmp/lamps", f"{tmp_path}/lamps"),
            *((f"/dev/lamp{one}", f"{cluster.node.root}/dev/lamp{one}") for one in "01"),
        ]
        page = (ROOT / "plugins/template/README.md").read_text()
        printed = (f"{tmp_path}/lamps", "/tmp/lamps")
        timed("your own plugin", follow(page, shell, instead=instead, printed=printed))
