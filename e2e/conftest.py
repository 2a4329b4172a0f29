"""Fixtures of the end to end suite."""

import os
import re
import shutil
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from containers import containerd as daemon
from containers.containerd import Containerd
from homes.cluster_home import PATIENCE, Cluster, Options
from homes.containerd_place import Containers
from homes.home import Home
from homes.place import Place
from homes.process_place import Processes
from homes.simulated_home import SimulatedHome
from homes.simulated_node import Node
from patience import be_patient

be_patient()
FAILED = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("e2e", "end to end suite")
    group.addoption(
        "--cluster",
        action="store_true",
        help="use the cluster of KUBECONFIG; its namespaces are made and removed",
    )
    group.addoption("--image", default="", help="name and tag of the plugin's image")
    group.addoption("--pull-policy", default="IfNotPresent", help="of all images")
    group.addoption("--runtime-class", default="", help="of the plugin's pod")
    group.addoption("--pod-image", default="busybox:1.37", help="with sh, env and find, for pods")
    group.addoption("--node", default="", help="the node to use; the first one")
    group.addoption("--restart-kubelet", default="", help="shell command that restarts its kubelet")
    group.addoption(
        "--patience", type=float, default=PATIENCE, help="seconds to wait for the cluster; 180"
    )
    group.addoption("--images", default="", help="run images of this folder, without a cluster")
    group.addoption(
        "--containerd",
        action="store_true",
        help="have a containerd run the images, and pods; started and removed here",
    )
    group.addoption("--logs", default="dist/e2e", help="where to put logs of what fails")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.stash[FAILED] = item.stash.get(FAILED, False) or report.failed
    return report


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    limits = {"--cluster": 5 * PATIENCE, "--containerd": PATIENCE}
    for option, limit in limits.items():
        if config.getoption(option):
            for item in items:
                if "home" in getattr(item, "fixturenames", ()):
                    item.add_marker(pytest.mark.timeout(limit))


@pytest.fixture
def node(pytestconfig: pytest.Config) -> Iterator[Node]:
    """Give a node without plugins; its kubelet is simulated."""
    if pytestconfig.getoption("--cluster"):
        pytest.skip("looks into a simulated kubelet")
    root = Path(tempfile.mkdtemp(prefix="node-"))
    running = Node(root)
    running.kubelet.start()
    try:
        yield running
    finally:
        running.stop()
        shutil.rmtree(root, ignore_errors=True)
    assert [] == list(running.kubelet.crashes)


@pytest.fixture(scope="session")
def containerd(pytestconfig: pytest.Config) -> Iterator[Containerd | None]:
    """Give a containerd without pods if there is to be one, and leave nothing of it."""
    if not pytestconfig.getoption("--containerd"):
        yield None
        return
    if missing := daemon.why_not():
        pytest.skip(missing)
    with tempfile.TemporaryDirectory(prefix="containerd-", ignore_cleanup_errors=True) as root:
        with Containerd(Path(root)) as running:
            yield running
        assert ([], []) == (running.shims(), running.mounts())


@pytest.fixture
def home(
    request: pytest.FixtureRequest,
    containerd: Containerd | None,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Home]:
    """Give a place where plugins run, without any, and leave it so."""
    options: Any = request.config.getoption
    cache = tmp_path_factory.getbasetemp().parent / "fake-nvml"
    with tempfile.TemporaryDirectory(prefix="home-", ignore_cleanup_errors=True) as name:
        root = Path(name)
        made = (
            _cluster(root, options)
            if options("--cluster")
            else SimulatedHome(root, _place(root, options, containerd), cache)
        )
        try:
            yield made
        finally:
            if request.node.stash.get(FAILED, False):
                folder = Path(options("--logs"), re.sub(r"\W+", "-", request.node.name).strip("-"))
                folder.mkdir(parents=True, exist_ok=True)
                made.collect(folder)
            made.close()


def _place(root: Path, options: Any, containerd: Containerd | None) -> Place:
    images = Path(options("--images")).resolve() if options("--images") else None
    if containerd is None:
        return Processes(root, images)
    if images is None:
        raise pytest.UsageError("--containerd needs --images, the folder with what it is to run")
    return Containers(root, containerd, images)


def _cluster(root: Path, options: Any) -> Cluster:
    if not os.environ.get("KUBECONFIG"):
        raise pytest.UsageError("--cluster needs KUBECONFIG, so that it is clear which one")
    return Cluster(
        root,
        Options(
            image=options("--image"),
            pull_policy=options("--pull-policy"),
            runtime_class=options("--runtime-class"),
            pod_image=options("--pod-image"),
            node=options("--node"),
            restart_kubelet=options("--restart-kubelet"),
            patience=options("--patience"),
        ),
    )
