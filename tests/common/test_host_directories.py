"""Directories that a container has by mounts, while the host deletes, renames and hides them."""

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import deviceplugin as dp
from deviceplugin._app.host import Host
from deviceplugin._app.host_directories import CoveredSockets, HostDirectories
from deviceplugin._telemetry.metrics import Metrics
from held_clock import HeldClock
from patience import PATIENCE, eventually

POD = "90 1 8:1 /var/lib/kubelet/pods/u1/etc-hosts /etc/hosts rw - ext4 /dev/sda1 rw"
UID = "/var/lib/kubelet/pods/u1"


class Container:
    """A container: what is mounted where, as the kernel lists it, and a kubelet."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.listing = root / "mountinfo"
        self.lines: dict[Path, str] = {}
        self.in_pod = True
        self.connected: bool | None = True
        self.clock = HeldClock()
        self.metrics = Metrics()
        self.news = 0
        self.settings = dp.Settings(
            plugin_dir=root / "device-plugins",
            registry_dir=root / "plugins_registry",
            driver_dir=root / "plugins",
            pod_resources_socket=root / "pod-resources/kubelet.sock",
            cdi_dir=root / "cdi",
        )
        self.directories = HostDirectories(
            self.settings,
            is_connected=lambda: self.connected,
            metrics=self.metrics,
            mountinfo=self.listing,
            clock=self.clock,
        )
        self.directories.subscribe(self._noted)
        for one in ("device-plugins", "plugins_registry", "plugins", "pod-resources", "cdi"):
            self.mount(one, f"/var/lib/kubelet/{one}")

    def _noted(self) -> None:
        self.news += 1

    def mount(self, name: str, host: str, *, number: int = 0, kind: str = "ext4") -> Path:
        """Mount ``host``, or have it there under another name."""
        point = self.root / name
        if not point.exists():
            point.mkdir()
        number = number or 100 + len(self.lines)
        if point in self.lines:
            number = number if number < 100 else int(self.lines[point].split()[0])
        self.lines[point] = f"{number} 1 8:1 {host} {point} rw - {kind} /dev/sda1 rw"
        return point

    def problems(self) -> list[str]:
        lines = [*self.lines.values(), *([POD] if self.in_pod else [])]
        self.listing.write_text("\n".join(lines))
        self.directories.check()
        return list(self.directories.problems())


@pytest.fixture
def container(tmp_path: Path) -> Container:
    found = Container(tmp_path)
    assert [] == found.problems()
    return found


ALL = ["device-plugins", "plugins_registry", "plugins", "pod-resources", "cdi"]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("in_pod", [True, False])
def test_each_directory_that_is_deleted_is_lost_until_it_is_back(
    name: str, in_pod: bool, container: Container, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    container.in_pod = in_pod
    point = container.mount(name, f"/var/lib/kubelet/{name}//deleted")
    for _ in range(2):
        assert [f"{point} has been deleted under its mount"] == container.problems()
    assert (1, 1) == (container.news, container.metrics.lost_directories.labels().value)
    container.mount(name, f"/var/lib/kubelet/{name}")
    assert ([], 2) == (container.problems(), container.news)
    assert [("host directory lost", str(point)), ("host directory back", str(point))] == [
        (one.message, vars(one)["directory"]) for one in caplog.records
    ]


@pytest.mark.parametrize("name", ALL)
def test_each_directory_that_is_renamed_is_lost_to_a_kubelet_that_has_gone(
    name: str, container: Container
) -> None:
    container.connected = False
    point = container.mount(name, f"/old/{name}")
    assert [
        f"{point} has been renamed under its mount, from /var/lib/kubelet/{name} to /old/{name}"
    ] == container.problems()


def test_a_kubelet_that_is_still_connected_has_us_in_a_renamed_directory(
    container: Container, caplog: pytest.LogCaptureFixture
) -> None:
    names = ALL[:-1]
    for name in names:
        container.mount(name, f"/old/{name}")
    assert [] == container.problems()
    assert [] == container.problems()
    assert ["host directory lost"] * 4 == [one.message for one in caplog.records]
    assert "the kubelet still uses this one" in vars(caplog.records[0])["advice"]
    container.connected = False
    assert 4 == len(container.problems())
    container.connected = True  # the new name leads to it, and so does a link with the old one
    assert [] == container.problems()


def restarted(container: Container) -> None:
    """Have another kubelet make its socket."""
    path = container.settings.plugin_dir / "kubelet.sock"
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))


@pytest.mark.parametrize("looks", [True, False])
@pytest.mark.parametrize(
    ("mounted", "driver", "again", "lost"),
    [
        ("plugins_registry", True, False, 1),
        ("plugins_registry", True, True, 0),  # it has found it, although late
        ("plugins", True, True, 1),  # it cannot reach it there
        ("plugins_registry", False, False, 0),  # it watches us, and that is enough
    ],
)
def test_a_driver_that_a_new_kubelet_does_not_find_or_reach_is_lost(
    short: Path, mounted: str, driver: bool, again: bool, lost: int, looks: bool
) -> None:
    container = Container(short)
    if driver:
        container.directories.registered()
    container.problems()
    container.mount(mounted, "/old")
    if looks:
        assert [] == container.problems()
    restarted(container)
    if again:
        container.directories.registered()
    assert lost == len(container.problems())


def test_without_anything_to_register_a_kubelet_is_there_while_it_listens(short: Path) -> None:
    container = Container(short)
    container.connected = None
    container.problems()
    with socket.socket(socket.AF_UNIX) as kubelet:
        kubelet.bind(str(container.settings.plugin_dir / "kubelet.sock"))
        kubelet.listen()
        container.problems()
        container.mount("plugins", "/old")
        assert [] == container.problems()
    assert 1 == len(container.problems())


@pytest.fixture
def short() -> Iterator[Path]:
    """Short, because the path of a socket has 107 bytes at most."""
    with TemporaryDirectory(prefix="dp") as path:
        yield Path(path)


def test_what_a_manifest_mounts_for_a_plugin_is_lost_too(container: Container) -> None:
    point = container.mount("gophers", "/etc/gophers")
    assert [] == container.problems()
    container.mount("gophers", "/etc/old")
    (problem,) = container.problems()
    assert problem.startswith(f"{point} has been renamed")
    assert problem == container.directories.problem([point / "below" / "**"])
    assert "" == container.directories.problem([container.root / "cdi"])


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        (f"{UID}/volumes/kubernetes.io~configmap/c/a", f"{UID}/volumes/x//deleted", "ext4"),
        (f"{UID}/volume-subpaths/c/p/0", f"{UID}/volume-subpaths/c/p/0//deleted", "ext4"),
        ("/", "/other", "overlay"),
        ("/a", "/a//deleted", "nfs4"),
        ("/1/net", "/1/net//deleted", "proc"),
        ("/kubepods/a", "/kubepods/b", "cgroup2"),
        ("/gone//deleted", "/gone//deleted", "ext4"),  # a restart would not bring it back
        ("/a", "/a//deleted", "a file"),
        ("/somebody/elses", "/somebody/elses//deleted", "outside of a pod"),
    ],
)
def test_what_changes_without_being_lost_is_not(
    before: str, after: str, kind: str, container: Container
) -> None:
    container.in_pod = kind != "outside of a pod"
    for host in (before, after):
        point = container.mount("odd", host, kind=kind if " " not in kind else "ext4")
        if "a file" == kind and point.is_dir():
            point.rmdir()
            point.touch()
        assert [] == container.problems()


def test_mounts_of_the_host_in_a_directory_are_its_own_affair(container: Container) -> None:
    top, inner = container.mount("nvidia", "/nvidia"), container.root / "nvidia/driver"
    (inner / "usr").mkdir(parents=True)
    line = f"70 1 8:1 /nvidia {top} rw master:5 - ext4 /dev/sda1 rw"
    container.lines[top] = line
    container.lines[inner] = f"71 70 0:9 / {inner} rw master:6 - overlay none rw"
    container.lines[inner / "usr"] = f"72 71 8:1 /usr {inner}/usr rw master:7 - ext4 none rw"
    assert [] == container.problems()
    gone = container.lines[inner / "usr"].replace("/usr ", "/usr//deleted ", 1)
    container.lines[inner / "usr"] = gone
    assert [] == container.problems()
    container.lines[top] = line.replace("/nvidia ", "/old ", 1)
    assert 1 == len(container.problems())


def test_a_mount_that_takes_the_number_of_another_is_not_a_renamed_one(
    container: Container,
) -> None:
    point = container.mount("driver", "/run/driver/one")
    container.problems()
    point.rename(container.root / "gone")
    container.mount("driver", "/run/driver/two")
    assert [] == container.problems()
    container.mount("driver", "/run/driver/three")
    assert 1 == len(container.problems())


def test_what_is_known_stays_known_while_mounts_or_a_directory_cannot_be_read(
    container: Container,
) -> None:
    point = container.mount("gophers", "/etc/gophers")
    container.problems()
    hidden = point.rename(container.root / "hidden")
    assert [] == container.problems()
    container.mount("gophers", "/old").rmdir()
    lost = container.problems()
    assert 1 == len(lost)
    hidden.rename(point)
    assert lost == container.problems()
    container.listing.unlink()
    container.directories.check()
    assert lost == container.directories.problems()


def test_a_directory_that_a_kubelet_does_not_use_any_more_is_hidden(short: Path) -> None:
    container = Container(short)
    socket_path = container.settings.plugin_dir / "kubelet.sock"
    with socket.socket(socket.AF_UNIX) as kubelet:
        kubelet.bind(str(socket_path))
        kubelet.listen()
        container.problems()
    container.connected = False
    assert [] == container.problems()
    container.clock.advance(45)
    container.directories.probed()
    (problem,) = container.problems()
    assert f"{socket_path.parent} is hidden on the host by another mount" in problem
    assert f"does not listen on {socket_path}" in problem


class Watching(dp.Plugin):
    """Has a device, and finds it in a directory."""

    resource = "example.com/gopher"

    def __init__(self, directory: Path) -> None:
        self.watch_paths = [directory]

    def discover(self) -> list[dp.Device]:
        return [dp.Device("gary")]


def test_a_discovery_notices_a_lost_directory_and_offers_none_of_its_devices(short: Path) -> None:
    for name in ("device-plugins", "gone"):
        (short / name).mkdir()
    opened = os.open(short / "gone", os.O_RDONLY)
    gone = Path(f"/proc/self/fd/{opened}")  # leads to what it was, as a mount does
    settings = dp.Settings(
        plugin_dir=short / "device-plugins",
        registry_dir=short / "none",
        pod_resources_socket=short / "none/kubelet.sock",
        driver_dir=gone,
        http_address="off",
        discovery_interval=timedelta(seconds=0.1),
    )
    host = Host([Watching(gone)], settings)
    thread = threading.Thread(target=host.run)
    thread.start()

    def reasons() -> list[str]:
        resources = host.inventory()["resources"]
        return [one["reason"] for each in resources for one in each["devices"]]

    try:
        eventually(lambda: reasons() == [""], "the device")
        (short / "gone").rmdir()
        lost = f"{gone} has been deleted under its mount"
        eventually(lambda: reasons() == [lost], "its reason")
        assert lost == host.alive()
        assert host.alive() in host.ready()
        assert host.alive() in host.troubles()
    finally:
        host.stop()
        thread.join(PATIENCE)
        os.close(opened)


# Sockets of the kubelet that another mount hides on the host, and those that are just not used.


class Kubelet:
    """Sockets of a kubelet that can end without removing them, and time."""

    def __init__(self, directory: Path) -> None:
        self.paths = [directory / "kubelet.sock", directory / "pod-resources.sock"]
        self.clock = HeldClock()
        self.covered = CoveredSockets(self.paths, self.clock)
        self.listening: list[socket.socket] = []

    def start(self) -> None:
        for path in self.paths:
            path.unlink(missing_ok=True)
            self.listening.append(socket.socket(socket.AF_UNIX))
            self.listening[-1].bind(str(path))
            self.listening[-1].listen(64)

    def end(self) -> None:
        for one in self.listening:
            one.close()
        self.listening = []

    def after(self, seconds: float, *, probed: bool = False, connected: bool = False) -> list[Path]:
        self.clock.advance(seconds)
        if probed:
            self.covered.probed()
        return sorted(self.covered.check(connected=connected))


@pytest.fixture
def kubelet() -> Iterator[Kubelet]:
    with TemporaryDirectory(prefix="dp") as path:
        found = Kubelet(Path(path))
        found.start()
        assert [] == found.after(0, connected=True)
        found.end()
        yield found
        found.end()


def test_a_kubelet_that_probes_and_does_not_listen_looks_elsewhere(kubelet: Kubelet) -> None:
    assert [] == kubelet.after(15)
    assert [] == kubelet.after(15, probed=True)
    assert kubelet.paths == kubelet.after(15, probed=True)
    assert kubelet.paths == kubelet.after(15)


def test_a_kubelet_that_is_down_for_an_hour_or_ends_again_and_again_hides_nothing(
    kubelet: Kubelet,
) -> None:
    assert [] == kubelet.after(1, probed=True)  # sent just before its end
    assert [[]] * 240 == [kubelet.after(15) for _ in range(240)]
    kubelet.start()
    assert [[], []] == [kubelet.after(seconds, probed=True) for seconds in (1, 15)]
    kubelet.end()
    for _ in range(10):
        assert [] == kubelet.after(15)
        kubelet.start()
        kubelet.covered.probed()
        kubelet.end()


def test_a_kubelet_that_watches_us_hides_nothing(kubelet: Kubelet) -> None:
    assert [] == kubelet.after(15)
    assert [] == kubelet.after(60, probed=True, connected=True)
    assert [] == kubelet.after(15, probed=True)


def test_a_socket_that_no_kubelet_has_used_is_nobodys(kubelet: Kubelet) -> None:
    stranger = CoveredSockets(kubelet.paths, kubelet.clock)
    stranger.check(connected=False)
    kubelet.clock.advance(60)
    stranger.probed()
    assert [] == list(stranger.check(connected=False))


def test_a_socket_that_is_gone_is_not_hidden(kubelet: Kubelet) -> None:
    kubelet.after(15)
    kubelet.paths[0].unlink()
    assert [kubelet.paths[1]] == kubelet.after(60, probed=True)


def test_what_cannot_be_tried_proves_nothing(tmp_path: Path) -> None:
    odd = tmp_path / ("x" * 200)  # too long for a socket
    covered = CoveredSockets([odd], HeldClock())
    assert [] == list(covered.check(connected=True))
    covered._used.add(odd)
    with closing(odd.open("w")):
        assert [] == list(covered.check(connected=False))
