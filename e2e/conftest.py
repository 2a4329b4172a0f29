"""Fixtures of the end to end suite."""

import os
import re
import signal
import tempfile
from collections.abc import Generator, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

import pytest

from containers import containerd as daemon
from containers.containerd import Containerd
from homes.case import cases
from homes.cluster.home import Cluster
from homes.cluster.installed_operator import InstalledOperator
from homes.cluster.kubectl import undisturbed
from homes.cluster.manifests import PATIENCE, Options
from homes.cluster.progress import Progress
from homes.cluster.session import Session, why_not_pretend
from homes.cluster.switched import Switched
from homes.home import Home
from homes.simulated.containerd_place import Containers
from homes.simulated.home import SimulatedHome
from homes.simulated.place import Place
from homes.simulated.process_place import Processes

FAILED = pytest.StashKey[bool]()
PLUGINS = Path(__file__).parents[1] / "plugins"


def pytest_configure(config: pytest.Config) -> None:
    for path in sorted(PLUGINS.glob("*/pyproject.toml")):
        name = path.parent.name
        config.addinivalue_line("markers", f"{name}: end to end tests of the {name} plugin")
    config.addinivalue_line("markers", "operator: end to end tests of the operator")


OPTIONS: Final[Mapping[str, tuple[bool | int | float | str | tuple[str, ...], str]]] = {
    "cluster": (False, "use KUBECONFIG's, in namespaces that are created and removed"),
    "image": ("", "name and tag of the plugin's image"),
    "operator-image": ("", "name and tag of the operator's image"),
    "pull-policy": ("IfNotPresent", "of all images"),
    "runtime-class": ("", "of the plugin's pod"),
    "pod-image": ("busybox:1.37", "with sh, env and find, for pods"),
    "node": ("", "the node to use; the first one"),
    "pretend-hardware": (False, "give the cluster's node the hardware of simulated nodes"),
    "restart-kubelet": ("", "shell command that restarts its kubelet"),
    "reboot": ("", "shell command that reboots it: see e2e/README.md"),
    "chaos": (0.0, "minutes of random faults"),
    "chaos-clock": (False, "also set the node's clock by an hour for seconds: disturbs all on it"),
    "chaos-node": (False, "also have the node's API server and container runtime hang"),
    "chaos-faults": ("", "the names of those faults that are made, with commas: see e2e/README.md"),
    "node-fault": (
        (),
        "NAME=COMMAND: a fault of the node, in PHASE begin and end; may be repeated",
    ),
    "dra-switches": (4, "between protocols, under load"),
    "seed": (1, "of the random faults"),
    "before": ("", "checkout of the release that is upgraded from"),
    "before-tag": ("", "tag of its images; that of its manifests"),
    "release": ("", "address or folder of a release to install"),
    "next-release": ("", "that of the one it is upgraded to"),
    "patience": (PATIENCE, "seconds to wait for each step on the cluster; 180"),
    "images": ("", "run images from this folder, without a cluster"),
    "containerd": (False, "run images and pods with a containerd that is started and removed here"),
    "logs": ("dist/e2e", "folder for the logs of failed tests"),
}
"""The default of each, and what it is for."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("e2e", "end to end suite")
    for name, (default, text) in OPTIONS.items():
        if default is False:
            group.addoption(f"--{name}", action="store_true", help=text)
        elif default == ():
            group.addoption(f"--{name}", action="append", default=[], help=text)
        else:
            group.addoption(f"--{name}", type=type(default), default=default, help=text)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.stash[FAILED] = item.stash.get(FAILED, False) or report.failed
    return report


@pytest.hookimpl(trylast=True)  # after they were shuffled
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--cluster"):  # where installing takes longest
        items.sort(key=_plugin_and_configuration)
    limits = {"--cluster": 5 * PATIENCE, "--containerd": PATIENCE}
    for option, limit in limits.items():
        if config.getoption(option):
            for item in items:
                if "home" in getattr(item, "fixturenames", ()):
                    item.add_marker(pytest.mark.timeout(limit))


def _plugin_and_configuration(item: pytest.Item) -> tuple[str, bool, str]:
    """Return what a case needs installed. A case that uninstalls comes after all others."""
    callspec = getattr(item, "callspec", None)
    plugin = callspec.params.get("plugin") if callspec is not None else None
    names = [mark.name for mark in item.iter_markers() if mark.name in cases()]
    return min(names, default=""), "removal" in item.name, repr(plugin)


@pytest.fixture(scope="session")
def containerd(pytestconfig: pytest.Config) -> Iterator[Containerd | None]:
    """Yield a containerd without pods, if requested, and remove it."""
    if not pytestconfig.getoption("--containerd"):
        yield None
        return
    if missing := daemon.why_not():
        pytest.skip(missing)
    with tempfile.TemporaryDirectory(prefix="containerd-", ignore_cleanup_errors=True) as root:
        with Containerd(Path(root)) as running:
            yield running
        assert ([], []) == (running.shims(), running.mounts())


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder for what is compiled once."""
    return tmp_path_factory.getbasetemp().parent / "fake-nvml"


@pytest.fixture(scope="session")
def session(pytestconfig: pytest.Config, cache: Path) -> Iterator[Session | None]:
    """Yield the cluster, if requested, and leave nothing on it."""
    if not pytestconfig.getoption("--cluster"):
        yield None
        return
    # Clean up as after Ctrl-C: the cluster has plugins, and a node of it may be cordoned.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="cluster-") as name:
        made = Session(Path(name), _options(pytestconfig), _progress(pytestconfig), cache)
        try:
            yield made
        finally:
            for one in (signal.SIGINT, signal.SIGTERM):  # nothing but the end is left
                signal.signal(one, signal.SIG_IGN)
            made.progress.begin("the end")
            made.close()
            made.progress.end()


@pytest.fixture
def home(
    request: pytest.FixtureRequest,
    containerd: Containerd | None,
    session: Session | None,
    cache: Path,
) -> Iterator[Home]:
    """Yield a home without other plugins, and leave it so."""
    options: Any = request.config.getoption
    if session is not None:
        session.progress.begin(request.node.name)
        session.keep({mark.name for mark in request.node.iter_markers()})
    with tempfile.TemporaryDirectory(prefix="home-", ignore_cleanup_errors=True) as name:
        root = Path(name)
        made = (
            SimulatedHome(root, _place(root, options, containerd), cache)
            if session is None
            else Cluster(session)
        )
        try:
            yield made
        finally:
            if request.node.stash.get(FAILED, False):
                made.collect(_logs(request))
            made.close()
            if session is not None:
                session.progress.end()


@pytest.fixture(scope="module")
def installed_operator(
    session: Session | None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[InstalledOperator]:
    """Yield the operator on a cluster that has none, and remove it."""
    if session is None:
        pytest.skip("needs a cluster")
    root = tmp_path_factory.mktemp("operator")
    made = InstalledOperator(root, session.options, session.node, session.progress)
    if made.is_there():
        pytest.skip("the operator is there already: the end of this would delete all its objects")
    try:
        made.install()
        yield made
    finally:
        session.progress.begin("the end of the operator")
        with undisturbed(session.progress.say):
            made.remove()
        session.progress.end()


@pytest.fixture
def operator(
    request: pytest.FixtureRequest, session: Session, installed_operator: InstalledOperator
) -> Iterator[InstalledOperator]:
    """Yield the operator for one test."""
    session.progress.begin(request.node.name)
    yield installed_operator
    if request.node.stash.get(FAILED, False):
        installed_operator.collect(_logs(request))
    session.progress.end()


@pytest.fixture
def cluster(home: Home) -> Cluster:
    """Give the home if it is a cluster's, for what no other can show."""
    if not isinstance(home, Cluster):
        pytest.skip("needs a cluster")
    return home


@pytest.fixture
def switched(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[Switched]:
    """Yield the gopher plugin with the rights and the DeviceClass for DRA, and remove them."""
    cluster.need_cdi()
    made = Switched(cluster)
    made.need_device_class()
    made.install()
    try:
        yield made
    finally:
        if failed := request.node.stash.get(FAILED, False):
            folder = _logs(request) / "before"
            folder.mkdir(exist_ok=True)
            cluster.collect(folder)
        made.release()
    if not failed:
        made.uninstall()


@pytest.fixture
def logs(request: pytest.FixtureRequest) -> Path:
    """Return a folder for the logs of a test that fails before its end."""
    return _logs(request) / "before"


def _logs(request: pytest.FixtureRequest) -> Path:
    """Return a folder for the logs of a test."""
    name = re.sub(r"\W+", "-", request.node.name).strip("-")
    folder = Path(request.config.getoption("--logs"), name)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _place(root: Path, options: Any, containerd: Containerd | None) -> Place:
    images = Path(options("--images")).resolve() if options("--images") else None
    if containerd is None:
        return Processes(root, images)
    if images is None:
        raise pytest.UsageError("--containerd needs --images, the folder with the images to run")
    return Containers(root, containerd, images)


def _options(config: pytest.Config) -> Options:
    if not os.environ.get("KUBECONFIG"):
        raise pytest.UsageError(
            "--cluster needs KUBECONFIG, so that the cluster is chosen explicitly"
        )
    names = [field.name for field in fields(Options)]
    options = Options(**{name: config.getoption(name) for name in names})
    if options.pretend_hardware and (missing := why_not_pretend()):
        raise pytest.UsageError(missing)
    return options


def _progress(config: pytest.Config) -> Progress:
    """Return a function that writes to the terminal, even while output is captured."""
    terminal: Any = config.pluginmanager.get_plugin("terminalreporter")
    capture: Any = config.pluginmanager.get_plugin("capturemanager")

    def say(line: str) -> None:
        with capture.global_and_fixture_disabled():
            terminal.ensure_newline()
            terminal.write_line(line)
            terminal.flush()

    return Progress(say)
