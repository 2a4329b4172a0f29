"""What becomes of what ``discover()`` gives, raises or does not do."""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from typing_extensions import override

import deviceplugin as dp
from deviceplugin._app import host
from deviceplugin._attribution.checkpoint import Checkpoint
from deviceplugin._attribution.tracker import _SHORT
from deviceplugin._discovery import triggers
from deviceplugin._discovery.resources import DiscoveredResources
from deviceplugin._discovery.retention import RECORDED_BUT_ABSENT
from deviceplugin._inventory import published
from deviceplugin._platform.checkpoint import FILE_NAME
from deviceplugin._platform.file_watcher import FileWatcher
from deviceplugin.proto.podresources import podresources_pb2 as pb
from deviceplugin_testing.fixture import Kubelet, Node
from deviceplugin_testing.fixture._node import PLUGIN_POD
from deviceplugin_testing.simulator import Pod
from held_clock import HeldClock
from kubelets.pod_resources import pod_resources
from patience import PATIENCE, eventually
from scripted_plugin import RESOURCE, ScriptedPlugin, sick

SHORT, SLOW = timedelta(milliseconds=100), timedelta(hours=1)


class HangingPlugin(ScriptedPlugin):
    """Its discovery hangs while ``hang`` is set, until ``release`` is."""

    def __init__(self, *devices: dp.Device | str) -> None:
        super().__init__(*devices)
        self.hang, self.release = Event(), Event()

    @override
    def discover(self) -> Iterable[dp.Device]:
        if self.hang.is_set():
            self.release.wait(PATIENCE)
        return super().discover()


def reasons(node: Node) -> dict[str, str]:
    """Return why each device of every resource is not well."""
    return {
        device["id"]: device["reason"]
        for resource in node.host.inventory()["resources"]
        for device in resource["devices"]
    }


def events(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


# Discoveries that fail.


@pytest.mark.parametrize("error", [OSError("no such bus"), SystemExit(0)])
def test_a_discovery_that_raises_is_logged_once_and_keeps_the_last_good_snapshot(
    kubelet: Kubelet, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    plugin = ScriptedPlugin("a", "b")
    with kubelet.running(plugin, discovery_interval=timedelta(milliseconds=1)) as node:
        node.wait_for(RESOURCE, {"a", "b"})
        plugin.fail(error)
        failures = node.host._metrics.discovery_errors.labels("ScriptedPlugin")
        eventually(lambda: failures.value >= 5, "five failures")
        assert {"a": "Healthy", "b": "Healthy"} == node.kubelet.devices(RESOURCE)
        plugin.set("a", "b", "c")
        node.wait_for(RESOURCE, {"a", "b", "c"})
        assert 1 == node.kubelet.registration_count(RESOURCE)
    assert 1 == events(caplog).count("discovery failed")


def test_a_discovery_that_fails_for_too_long_makes_the_devices_unhealthy_with_the_reason(
    kubelet: Kubelet,
) -> None:
    plugin, other = ScriptedPlugin("a", sick("b")), ScriptedPlugin("c", resource="x.io/other")
    with kubelet.running(plugin, other, discovery_deadline=SHORT) as node:
        eventually(lambda: not node.host.ready(), "readiness")
        node.wait_for(RESOURCE, {"a"}, {"b"})
        plugin.fail(dp.DiscoveryError("the driver does not answer"))
        node.wait_for(RESOURCE, set(), {"a", "b"})
        why = "the driver does not answer"
        expected = {"a": f"not discovered for 0.1 s: {why}", "b": "out of order", "c": ""}
        eventually(lambda: expected == reasons(node), "the reasons")
        overdue = f"no discovery has succeeded for 0.1 s: ScriptedPlugin: {why}"
        eventually(lambda: overdue == node.host.ready(), overdue)
        eventually(lambda: not node.host.alive(), "liveness")
        plugin.set("a", "b")
        node.wait_for(RESOURCE, {"a", "b"})
        eventually(lambda: not node.host.ready(), "readiness")


class CountingPlugin(ScriptedPlugin):
    looks = 0

    @override
    def discover(self) -> Iterable[dp.Device]:
        self.looks += 1
        return super().discover()


def test_devices_are_looked_at_within_the_deadline_however_long_the_interval(
    kubelet: Kubelet,
) -> None:
    plugin = CountingPlugin("a")
    with kubelet.running(plugin, discovery_interval=SLOW, discovery_deadline=SHORT):
        eventually(lambda: plugin.looks >= 4, "discoveries that nothing called for")


def test_a_discovery_that_hangs_makes_the_devices_unhealthy_and_fails_the_liveness_probe(
    kubelet: Kubelet,
) -> None:
    plugin = HangingPlugin("a")
    with kubelet.running(plugin, discovery_deadline=SHORT) as node:
        node.wait_for(RESOURCE, {"a"})
        plugin.hang.set()
        node.wait_for(RESOURCE, set(), {"a"})
        hanging = "discover() does not return: HangingPlugin"
        eventually(lambda: hanging == node.host.alive(), hanging)
        assert {"a": "not discovered for 0.1 s: discover() does not return"} == reasons(node)
        assert node.host.ready().endswith(": discover() does not return")
        plugin.fail(dp.DiscoveryError("no such bus"))
        plugin.release.set()
        for text in ("no such bus", "no such driver"):
            plugin.fail(dp.DiscoveryError(text))
            said = f"not discovered for 0.1 s: {text}"
            eventually(lambda said=said: {"a": said} == reasons(node), said)  # type: ignore[misc]
        plugin.set("a")
        node.wait_for(RESOURCE, {"a"})
        eventually(lambda: not node.host.alive(), "liveness")


def test_a_discovery_that_has_returned_at_last_does_not_hang_while_its_devices_are_published(
    kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, told = HeldClock(), list[str]()
    with kubelet.running(ScriptedPlugin()) as node:
        eventually(lambda: not node.host.ready(), "readiness")
        (discovery,) = node.host._discoveries
        resources = discovery._resources

        def update(*given: Any) -> None:
            told.append(node.host.alive())
            DiscoveredResources.update(resources, *given)

        def discover() -> list[dp.Device]:
            discovery._clock = clock
            clock.advance(time.monotonic() + 3600)
            told.append(node.host.alive())
            return [dp.Device("late")]

        monkeypatch.setattr(resources, "update", update)
        monkeypatch.setattr(discovery.plugin, "discover", discover)
        node.wait_for(RESOURCE, {"late"})
    assert ["discover() does not return: ScriptedPlugin", ""] == told[-2:]


def test_a_discovery_that_hangs_does_not_keep_the_plugin_from_stopping(
    kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "_STOP_TIMEOUT", 0.5)
    plugin = HangingPlugin()
    plugin.hang.set()
    with kubelet.running(plugin, ScriptedPlugin("a", resource="example.com/b")) as node:
        node.wait_for("example.com/b", {"a"})
        assert "no discovery has succeeded yet: HangingPlugin" == node.host.ready()
    plugin.release.set()


def test_before_the_first_good_discovery_nothing_is_registered(kubelet: Kubelet) -> None:
    plugin = ScriptedPlugin()
    plugin.fail(OSError("not yet"))
    other = ScriptedPlugin("x", resource="example.com/other")
    with kubelet.running(plugin, other) as node:
        node.wait_for("example.com/other", {"x"})
        assert ["example.com/other"] == list(node.kubelet.registered)
        assert node.host.ready().startswith(
            "no discovery has succeeded yet: ScriptedPlugin: OSError: not yet (scripted_plugin.py:"
        )
        plugin.set("a")
        node.wait_for(RESOURCE, {"a"})
        eventually(lambda: not node.host.ready(), "the plugin to be ready")


@pytest.fixture
def few_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a kubelet that takes lists of some ten devices."""
    monkeypatch.setattr(published, "MAX_LIST_BYTES", 1000)


@pytest.mark.usefixtures("few_bytes")
def test_a_list_that_is_too_long_for_the_kubelet_is_refused_and_the_last_one_stays(
    kubelet: Kubelet, caplog: pytest.LogCaptureFixture
) -> None:
    plugin = ScriptedPlugin("a")
    other = ScriptedPlugin("x", resource="example.com/other")
    with kubelet.running(plugin, other) as node:
        node.wait_for(RESOURCE, {"a"})
        plugin.set(*(f"device-with-a-rather-long-name-{number:06}" for number in range(100)))
        eventually(lambda: "device list rejected" in events(caplog), "the list to be refused")
        assert {"a": "Healthy"} == node.kubelet.devices(RESOURCE)
        other.set("x", "y")
        node.wait_for("example.com/other", {"x", "y"})
        plugin.set("a", "b")
        node.wait_for(RESOURCE, {"a", "b"})
        assert 1 == node.kubelet.registration_count(RESOURCE)
    (record,) = (one for one in caplog.records if one.message == "device list rejected")
    assert (
        "the list of 101 devices for example.com/thing has 5216 bytes, but the kubelet "
        "accepts 1000 at most: use fewer devices or shorter ids"
    ) == vars(record)["error"]


# Resources that come and go.


def test_a_resource_appears_and_goes_with_its_devices(kubelet: Kubelet) -> None:
    plugin = ScriptedPlugin(resource="")
    nowhere = kubelet.simulated.root / "not-mounted" / "kubelet.sock"
    with kubelet.running(plugin, vanished_retention=SHORT, pod_resources_socket=nowhere) as node:
        plugin.set(dp.Device("a", resource="example.com/one"))
        node.wait_for("example.com/one", {"a"})
        plugin.set(dp.Device("b", resource="example.com/two"))
        node.wait_for("example.com/two", {"b"})
        node.wait_for("example.com/one", set(), {"a"})
        eventually(lambda: ("stop", "example.com/one") in plugin.hooks, "one to be stopped")
        node.kubelet.wait(lambda: ["example.com/two"] == list(node.kubelet.registered))
        plugin.set(dp.Device("a", resource="example.com/one"))
        node.wait_for("example.com/one", {"a"})
    assert {
        "example.com/one": ["start", "stop", "start", "stop"],
        "example.com/two": ["start", "stop"],
    } == {
        resource: [hook for hook, name in plugin.hooks if name == resource]
        for resource in ("example.com/one", "example.com/two")
    }


def test_the_plugins_own_resource_is_known_without_devices(kubelet: Kubelet) -> None:
    with kubelet.running(ScriptedPlugin()) as node:
        node.wait_for(RESOURCE, set())
        (resource,) = node.host.inventory()["resources"]
    known = {name: resource[name] for name in ("name", "registered", "problem", "devices")}
    assert {"name": RESOURCE, "registered": False, "problem": "", "devices": []} == known


def test_a_stop_hook_that_raises_is_logged_and_does_no_harm(
    kubelet: Kubelet, caplog: pytest.LogCaptureFixture
) -> None:
    class BadPlugin(ScriptedPlugin):
        @override
        def stop(self, resource: str) -> None:
            raise RuntimeError("will not stop")

    with kubelet.running(BadPlugin("a")) as node:
        node.wait_for(RESOURCE, {"a"})
    assert "stop() failed" in events(caplog)


def test_two_plugins_cannot_have_one_resource(
    kubelet: Kubelet, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = ScriptedPlugin("a"), ScriptedPlugin("b")
    with kubelet.running(one, two) as node:
        conflict = "resource belongs to another plugin"
        eventually(lambda: conflict in events(caplog), conflict)
        node.kubelet.wait(lambda: node.kubelet.devices(RESOURCE))
        assert node.kubelet.devices(RESOURCE) in ({"a": "Healthy"}, {"b": "Healthy"})
    assert 1 == events(caplog).count(conflict)


# Devices that vanish.


def test_a_device_that_vanishes_stays_listed_as_unhealthy_until_the_retention_is_over(
    kubelet: Kubelet,
) -> None:
    plugin = ScriptedPlugin("a", "b")
    nowhere = kubelet.simulated.root / "not-mounted" / "kubelet.sock"
    given = {"pod_resources_socket": nowhere, "vanished_grace": SHORT}
    with kubelet.running(plugin, vanished_retention=timedelta(seconds=1), **given) as node:
        node.wait_for(RESOURCE, {"a", "b"})
        plugin.set("a")
        node.wait_for(RESOURCE, {"a"}, {"b"})
        plugin.set("a", "b")
        node.wait_for(RESOURCE, {"a", "b"})
        plugin.set("a")
        node.wait_for(RESOURCE, {"a"}, {"b"})
        node.wait_for(RESOURCE, {"a"})


@pytest.mark.parametrize("recorded", [True, False])
def test_a_vanished_device_is_kept_for_as_long_as_a_pod_holds_it(
    kubelet: Kubelet, caplog: pytest.LogCaptureFixture, recorded: bool
) -> None:
    plugin = ScriptedPlugin("a", "b", "c")
    socket = kubelet.simulated.root / "told" / "kubelet.sock"
    with (
        pod_resources(socket) as pods,
        kubelet.running(plugin, pod_resources_socket=socket, vanished_grace=SHORT) as node,
    ):
        pods.held = {RESOURCE: ["b"]}
        node.wait_for(RESOURCE, {"a", "b", "c"})
        plugin.set("a")
        node.wait_for(RESOURCE, {"a"}, {"b", "c"})
        node.wait_for(RESOURCE, {"a"}, {"b"})
        if not recorded:
            (kubelet.simulated.plugin_dir / FILE_NAME).unlink()
        pods.held = None  # cannot tell now: nothing may be forgotten
        asked = pods.asked
        eventually(lambda: pods.asked > asked + 1, "the kubelet to be asked")
        assert {"a": "Healthy", "b": "Unhealthy"} == node.kubelet.devices(RESOURCE)
        pods.held = {}
        node.wait_for(RESOURCE, {"a"})
    instead = "pod resources unavailable, checkpoint used"
    assert recorded == (instead in events(caplog))


def test_the_kubelet_is_not_asked_what_pods_hold_while_nothing_has_vanished(
    kubelet: Kubelet,
) -> None:
    socket = kubelet.simulated.root / "told" / "kubelet.sock"
    quick = timedelta(milliseconds=1)
    plugin = ScriptedPlugin("a")
    with (
        pod_resources(socket) as pods,
        kubelet.running(
            plugin, pod_resources_socket=socket, discovery_interval=quick, vanished_grace=quick
        ) as node,
    ):
        node.wait_for(RESOURCE, {"a"})
        discoveries = node.host._metrics.discovery_seconds.labels("ScriptedPlugin")
        before = discoveries.sum
        eventually(lambda: discoveries.sum > before, "more discoveries")
        assert 1 == pods.asked


# Triggers.


class BusPlugin(dp.Plugin):
    """Devices by bus and number, as in ``/dev/bus/usb``."""

    resource = RESOURCE

    def __init__(self, bus: Path, *watched: Path) -> None:
        self.bus, self.watch_paths = bus, watched

    @override
    def discover(self) -> Iterable[dp.Device]:
        return [dp.Device(path.name) for path in self.bus.glob("*/*")]


def test_everything_below_a_directory_can_be_watched(kubelet: Kubelet, tmp_path: Path) -> None:
    bus = tmp_path / "usb"
    plugin = BusPlugin(bus, bus / "**")
    with kubelet.running(plugin, discovery_interval=SLOW, poll_interval=SLOW) as node:
        node.wait_for(RESOURCE, set())
        (bus / "001").mkdir(parents=True)
        (bus / "001" / "a").touch()
        node.wait_for(RESOURCE, {"a"})
        (bus / "002").mkdir()
        (bus / "002" / "c").touch()
        node.wait_for(RESOURCE, {"a", "c"})
        (bus / "002" / "c").rename(bus / "001" / "d")
        (bus / "002").rmdir()
        node.wait_for(RESOURCE, {"a", "d"}, {"c"})


def test_what_cannot_be_seen_is_said_at_the_start(
    kubelet: Kubelet, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    bus = tmp_path / "usb"
    (bus / "001").mkdir(parents=True)
    paths = (bus, bus / "001", Path("/sys/class"), tmp_path / "none")
    advices = []
    for watched in (paths[:1], paths[2:], (bus / "**",), paths[:2]):
        caplog.clear()
        with kubelet.running(BusPlugin(bus, *watched)) as node:
            node.wait_for(RESOURCE, set())
        advices += [vars(record)["advice"] for record in caplog.records if "advice" in vars(record)]
    assert [
        f"it has only sub-directories, which are not watched: write {bus}/** to watch them too",
        "the kernel reports no changes in /sys: use changes()",
    ] == advices


def test_directories_without_an_end_are_watched_to_a_limit(
    kubelet: Kubelet,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(triggers, "MAX_DIRECTORIES", 3)
    (tmp_path / "a" / "b").mkdir(parents=True)
    plugin = BusPlugin(tmp_path, tmp_path / "**")
    with kubelet.running(plugin, discovery_interval=timedelta(milliseconds=1)) as node:
        node.wait_for(RESOURCE, {"b"})
        assert "too many directories to watch" not in events(caplog)
        (tmp_path / "a" / "c").mkdir()
        node.wait_for(RESOURCE, {"b", "c"})
        (tmp_path / "a" / "d").mkdir()
        node.wait_for(RESOURCE, {"b", "c", "d"})
    assert 1 == events(caplog).count("too many directories to watch")


def test_paths_to_watch_may_change_with_each_discovery(kubelet: Kubelet, tmp_path: Path) -> None:
    class MovingPlugin(dp.Plugin):
        resource = RESOURCE

        def __init__(self) -> None:
            self._look_in(tmp_path / "first")

        def _look_in(self, directory: Path) -> None:
            self.directory, self.watch_paths = directory, [directory]

        @override
        def discover(self) -> Iterable[dp.Device]:
            if (self.directory / "next").exists():
                self._look_in(tmp_path / "second")
            return [dp.Device(path.name) for path in self.directory.glob("*")]

    with kubelet.running(MovingPlugin(), discovery_interval=SLOW, poll_interval=SLOW) as node:
        node.wait_for(RESOURCE, set())
        for name in ("second", "first"):
            (tmp_path / name).mkdir()
        (tmp_path / "second" / "a").touch()
        (tmp_path / "first" / "next").touch()
        node.wait_for(RESOURCE, {"a"})
        (tmp_path / "second" / "b").touch()
        node.wait_for(RESOURCE, {"a", "b"})


def test_changes_that_raise_are_reported_once_and_started_again(
    kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(triggers, "_LISTEN_AGAIN", 0.01)
    calls = threading.Semaphore(0)

    class BadPlugin(ScriptedPlugin):
        @override
        def changes(self, stop: Event) -> Iterator[None]:
            calls.release()
            yield
            raise OSError("netlink is gone")

    with kubelet.running(BadPlugin("a")) as node:
        node.wait_for(RESOURCE, {"a"})
        assert all(calls.acquire(timeout=PATIENCE) for _ in range(4))
    assert 1 == events(caplog).count("changes() failed")


class LatePlugin(dp.Plugin):
    """Its source begins to listen when the look is over that was to find what it missed."""

    resource = RESOURCE

    def __init__(self, *, fails: bool = False, tells: bool = False) -> None:
        self.fails, self.tells = fails, tells
        self.looks = threading.Semaphore(0)
        self.devices = ["a"]

    @override
    def discover(self) -> Iterable[dp.Device]:
        devices = [dp.Device(name) for name in self.devices]
        self.looks.release()
        return devices

    @override
    def changes(self, stop: Event) -> Iterator[None]:
        assert self.looks.acquire(timeout=PATIENCE)
        if self.fails:
            self.fails = False
            raise OSError("netlink is gone")
        self.devices = ["a", "b"]
        if self.tells:
            yield
        stop.wait()


@pytest.mark.parametrize("fails", [False, True], ids=["at the start", "after a failure"])
@pytest.mark.parametrize("tells", [False, True], ids=["silent", "telling"])
def test_what_comes_before_a_source_listens_is_found_soon(
    kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch, fails: bool, tells: bool
) -> None:
    monkeypatch.setattr(triggers, "_LISTEN_AGAIN", 0.01)
    often = tuple(number / 5 for number in range(100))
    monkeypatch.setattr(triggers, "_UNHEARD", () if tells else often)
    plugin = LatePlugin(fails=fails, tells=tells)
    with kubelet.running(plugin, discovery_interval=SLOW) as node:
        node.wait_for(RESOURCE, {"a", "b"})


def test_a_source_that_has_yielded_is_known_to_listen() -> None:
    watcher = FileWatcher(3600.0)
    source, silent = triggers.Triggers(watcher), LatePlugin()
    silent.looks.release()
    try:
        source.listen(ScriptedPlugin())
        eventually(lambda: not source._due, "its first call")
        source.listen(silent)
        assert len(triggers._UNHEARD) == len(source._due)
        source.listen(BusPlugin(Path("/none")))
        assert [] == source._due
    finally:
        source.close()
        watcher.close()


def test_paths_to_watch_that_make_no_sense_are_reported_and_do_no_harm(
    kubelet: Kubelet, caplog: pytest.LogCaptureFixture
) -> None:
    odd: Sequence[Any] = (None, "/dev", ["/dev/a\0b"])
    plugins = [ScriptedPlugin("a", resource=f"x.io/odd-{number}") for number in range(len(odd))]
    for plugin, paths in zip(plugins, odd, strict=True):
        plugin.watch_paths = paths
    with kubelet.running(*plugins) as node:
        for plugin in plugins:
            node.wait_for(plugin.resource, {"a"})
    assert len(odd) == events(caplog).count("invalid watch_paths ignored")


def test_what_cannot_be_advertised_is_skipped_and_the_rest_goes_on(
    kubelet: Kubelet, caplog: pytest.LogCaptureFixture
) -> None:
    plugin = ScriptedPlugin("a", *(f"x{number:02} " for number in range(30)))
    with kubelet.running(plugin) as node:
        node.wait_for(RESOURCE, {"a"})
        skipped = node.host._metrics.skipped_devices
        assert [0, 30] == [skipped.labels(name).value for name in ("Other", "ScriptedPlugin")]
    told = [vars(one)["problem"] for one in caplog.records if one.message == "device skipped"]
    blank = "has control characters, unreadable bytes or blanks at an end"
    assert [*(f"id 'x{number:02} ' {blank}" for number in range(10)), "20 more"] == told


def test_what_a_plugin_should_offer_and_does_not_is_logged_once_counted_and_shown(
    kubelet: Kubelet, caplog: pytest.LogCaptureFixture
) -> None:
    plugin = CountingPlugin("a")
    plugin.shortfalls = ["card 1 has no driver", "shares of b match nothing"]
    with kubelet.running(plugin, discovery_interval=timedelta(milliseconds=1)) as node:
        node.wait_for(RESOURCE, {"a"})
        eventually(lambda: plugin.looks > 3, "several discoveries")
        gauge = node.host._metrics.shortfalls.labels("CountingPlugin")
        assert 2 == gauge.value
        expected = [f"CountingPlugin: {text}" for text in plugin.shortfalls]
        assert expected == node.host.inventory()["shortfalls"]
        eventually(lambda: expected == node.host.troubles(), "no other trouble, as at the start")
        plugin.shortfalls = "one message alone"
        eventually(lambda: 1 == gauge.value, "the next discovery")
        plugin.shortfalls = []
        eventually(lambda: 0 == gauge.value, "the next discovery")
    told = [vars(one)["problem"] for one in caplog.records if one.message == "discovery incomplete"]
    assert ["card 1 has no driver", "shares of b match nothing", "one message alone"] == told


BIG = [dp.Device(f"{number:063}", resource="example.com/big") for number in range(20)]


@pytest.mark.usefixtures("few_bytes")
def test_what_pods_hold_is_in_the_first_list_that_fits(kubelet: Kubelet) -> None:
    socket = kubelet.simulated.root / "told" / "kubelet.sock"
    plugin = ScriptedPlugin("a", *BIG)
    with pod_resources(socket) as pods:
        pods.held = {"example.com/big": ["lost", BIG[1].id]}
        with kubelet.running(plugin, pod_resources_socket=socket) as node:
            node.wait_for(RESOURCE, {"a"})
            assert [RESOURCE] == list(node.kubelet.registered)
            plugin.set("a", BIG[0])
            node.wait_for("example.com/big", {BIG[0].id}, {"lost", BIG[1].id})
            assert 1 == node.kubelet.lists_received("example.com/big")


@pytest.mark.usefixtures("few_bytes")
def test_a_resource_that_was_never_advertised_goes_without_a_trace(kubelet: Kubelet) -> None:
    plugin = ScriptedPlugin("a", *BIG)
    with kubelet.running(plugin) as node:
        node.wait_for(RESOURCE, {"a"})
        assert 2 == len(node.host.inventory()["resources"])
        plugin.set("a")
        eventually(lambda: 1 == len(node.host.inventory()["resources"]), "the other one to go")


def test_the_first_list_waits_until_it_is_known_what_pods_hold(
    kubelet: Kubelet, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    socket = kubelet.simulated.root / "told" / "kubelet.sock"
    socket.parent.mkdir()
    given = {"pod_resources_socket": socket, "vanished_grace": SHORT}
    with kubelet.running(ScriptedPlugin("a"), **given) as node:
        waiting = "waiting for pod resources: ScriptedPlugin"
        eventually(lambda: waiting == node.host.ready(), waiting)
        with pod_resources(socket) as pods:
            pods.held = None
            eventually(lambda: pods.asked > 1, "the kubelet to be asked in vain")
            assert [] == list(node.kubelet.registered)
            pods.held = {RESOURCE: ["a", "lost"], "example.com/not-ours": ["x"]}
            node.wait_for(RESOURCE, {"a"}, {"lost"})
            assert 1 == node.kubelet.lists_received(RESOURCE)
            expected = "a pod holds it, but it has not been found since the plugin started"
            assert expected == reasons(node)["lost"]
            pods.held = {}
            node.wait_for(RESOURCE, {"a"})
    assert "pod resources available" == held_news(caplog)[-1].message


def held_news(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Return what the discovery has logged about what pods hold."""
    return [
        record
        for record in caplog.records
        if "pod resources" in record.message and "._discovery." in record.name
    ]


def test_the_wait_for_what_pods_hold_has_an_end_and_both_are_logged(
    kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("deviceplugin._discovery.retention._PATIENCE", PATIENCE)
    socket = kubelet.simulated.root / "told" / "kubelet.sock"
    socket.parent.mkdir()
    began = datetime.now(UTC)
    with kubelet.running(ScriptedPlugin("a"), pod_resources_socket=socket) as node:
        eventually(lambda: held_news(caplog), "the wait to be logged")
        latest = datetime.now(UTC) + timedelta(seconds=PATIENCE)
        node.host._discoveries[0]._holdings._give_up_at = 0.0
        node.wait_for(RESOURCE, {"a"})
    waiting, going_on = held_news(caplog)
    assert "waiting for pod resources before registering" == waiting.message
    assert "registering without pod resources" == going_on.message
    assert [f"{socket}: no such socket"] * 2 == [vars(r)["error"] for r in (waiting, going_on)]
    until = datetime.fromisoformat(vars(waiting)["until"])
    assert began < until <= latest


def rewritten(path: Path, edit: Callable[[bytes], bytes] = bytes, seconds: float = 0.0) -> None:
    """Write the checkpoint anew as ``edit`` changes it, as if that had been ``seconds`` later."""
    text = edit(path.read_bytes())
    path.unlink()
    path.write_bytes(text)
    os.utime(path, (time.time() + seconds,) * 2)


def hangs(_request: Any, context: Any) -> None:
    over = Event()
    context.add_callback(over.set)
    over.wait(PATIENCE)


LONG = pb.PodResources(name="x" * 17 * 1024**2)
TROUBLES: dict[str, dict[str, Any]] = {
    "its limit is used up": {},
    "it hangs": {"List": hangs},
    "its answer is too long": {
        "List": lambda *_: pb.ListPodResourcesResponse(pod_resources=[LONG])
    },
}


@pytest.fixture
def held_before(kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The checkpoint, which has the device a for a pod; no other answer is ever given up."""
    with kubelet.running(ScriptedPlugin("a")) as node:
        node.wait_for(RESOURCE, {"a"})
        assert node.kubelet.run(Pod.of("holder", main={RESOURCE: 1}))
    monkeypatch.setattr("deviceplugin._discovery.retention._PATIENCE", 10**6)
    return kubelet.simulated.plugin_dir / FILE_NAME


@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_plugin_that_starts_while_pod_resources_are_in_trouble_registers_by_the_checkpoint(
    kubelet: Kubelet, held_before: Path, caplog: pytest.LogCaptureFixture, trouble: str
) -> None:
    socket = kubelet.simulated.root / "told" / "kubelet.sock"
    given = {"pod_resources_socket": socket, "vanished_grace": SHORT}
    plugin = ScriptedPlugin("b", "c")  # a has gone meanwhile, and is held
    with pod_resources(socket, **TROUBLES[trouble]) as pods:
        pods.held = None
        with kubelet.running(plugin, **given) as node:
            node.wait_for(RESOURCE, {"b", "c"}, {"a"})
            assert {"a": RECORDED_BUT_ABSENT, "b": "", "c": ""} == reasons(node)
            assert not node.host._ownership.known, "DRA does not go by it"
            eventually(lambda: not node.host.ready(), "readiness")
    assert [] == held_news(caplog)
    assert 1 == events(caplog).count("pod resources unavailable, checkpoint used")
    assert held_before.exists()


def test_a_device_that_the_checkpoint_lacks_is_added_once_the_kubelet_answers(
    kubelet: Kubelet, held_before: Path
) -> None:
    """Such as that of a pod that was admitted just before, and whose device has gone."""
    assert held_before.exists()
    socket = kubelet.simulated.root / "told" / "kubelet.sock"
    given = {"pod_resources_socket": socket, "vanished_grace": SHORT}
    with pod_resources(socket) as pods:
        pods.held = None
        with kubelet.running(ScriptedPlugin("b"), **given) as node:
            node.wait_for(RESOURCE, {"b"}, {"a"})
            pods.held = {RESOURCE: ["late"]}
            node.wait_for(RESOURCE, {"b"}, {"a", "late"})


def test_only_the_first_answer_is_asked_for_in_a_hurry(kubelet: Kubelet, held_before: Path) -> None:
    """A kubelet that takes a second would have answered, and not, by turns."""
    assert held_before.exists()
    socket = kubelet.simulated.root / "told" / "kubelet.sock"
    held = pb.ContainerDevices(resource_name=RESOURCE, device_ids=["a"])
    pod = pb.PodResources(containers=[pb.ContainerResources(devices=[held])])
    left: list[float] = []

    def answer(_request: Any, context: Any) -> pb.ListPodResourcesResponse:
        left.append(context.time_remaining())
        return pb.ListPodResourcesResponse(pod_resources=[pod])

    given = {"pod_resources_interval": timedelta(hours=1), "vanished_grace": SHORT}
    with (
        pod_resources(socket, List=answer),
        kubelet.running(ScriptedPlugin("b"), pod_resources_socket=socket, **given),
    ):
        eventually(lambda: min([0.0, *left][-4:]) > _SHORT, "patience")  # four times in turn


@pytest.mark.parametrize(
    "edit",
    [
        lambda path: rewritten(path, lambda text: text[:-9]),
        lambda path: rewritten(path, seconds=-time.clock_gettime(time.CLOCK_BOOTTIME) - 60),
        lambda path: rewritten(path, seconds=3600),
        Path.unlink,
    ],
    ids=["torn", "of another boot", "of the future", "none"],
)
def test_a_checkpoint_that_may_not_be_this_kubelets_is_not_gone_by(
    kubelet: Kubelet,
    held_before: Path,
    caplog: pytest.LogCaptureFixture,
    edit: Callable[[Path], None],
) -> None:
    edit(held_before)
    socket = kubelet.simulated.root / "told" / "kubelet.sock"
    with pod_resources(socket) as pods:
        pods.held = None
        with kubelet.running(ScriptedPlugin("b"), pod_resources_socket=socket) as node:
            eventually(lambda: held_news(caplog), "the wait to be logged")
            asked = pods.asked
            eventually(lambda: pods.asked > asked, "another question")
            assert RESOURCE not in node.kubelet.registered
            pods.held = {RESOURCE: ["a"]}
            node.wait_for(RESOURCE, {"b"}, {"a"})


def test_a_kubelet_that_lists_no_pod_at_all_is_not_believed_that_nothing_is_held(
    kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = ScriptedPlugin("a", "b")
    kubelet.simulated.delete(PLUGIN_POD)
    monkeypatch.setattr(Checkpoint, "is_known", False)  # with one, an empty list is believed
    with kubelet.running(plugin, vanished_grace=timedelta(milliseconds=1)) as node:
        node.wait_for(RESOURCE, {"a", "b"})
        plugin.set("a")
        node.wait_for(RESOURCE, {"a"}, {"b"})
        asked = node.host._metrics.discovery_seconds.labels("ScriptedPlugin")
        before = asked.sum
        eventually(lambda: asked.sum > before, "more discoveries")
        assert {"a": "Healthy", "b": "Unhealthy"} == node.kubelet.devices(RESOURCE)
        node.kubelet.admit(Pod.of("any", main={}))
        node.wait_for(RESOURCE, {"a"})


class FleetingDevice(dp.Device):
    """Can be looked at when it is found, and no more."""

    looks = 0

    @override
    def __getattribute__(self, name: str) -> object:
        if name == "topology":
            FleetingDevice.looks += 1
            if FleetingDevice.looks > 2:  # both while it is checked
                raise OSError("handle is closed")
        return super().__getattribute__(name)


def test_a_device_that_raises_when_its_list_is_made_is_a_failed_discovery(
    kubelet: Kubelet, caplog: pytest.LogCaptureFixture
) -> None:
    plugin = ScriptedPlugin("a")
    with kubelet.running(plugin) as node:
        node.wait_for(RESOURCE, {"a"})
        plugin.set("a", FleetingDevice("b"))
        eventually(lambda: "discovery failed" in events(caplog), "the failure")
        plugin.set("a", "c")
        node.wait_for(RESOURCE, {"a", "c"})


# Which directories are watched for a path.


def test_directories_near_the_top_come_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a/1/x", "b/1", "c"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "file").touch()
    names = ["a", "b", "c", "a/1", "b/1", "a/1/x"]
    expected = [tmp_path, *(tmp_path / name for name in names)]
    assert [tmp_path / "none"] == triggers.expanded(tmp_path / "none" / "**")
    assert expected == triggers.expanded(tmp_path / "**")
    for limit in range(1, 8):
        monkeypatch.setattr(triggers, "MAX_DIRECTORIES", limit)
        assert expected[: limit + 1] == triggers.expanded(tmp_path / "**")


def test_links_are_not_followed_nor_other_file_systems_entered(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "round").symlink_to(tmp_path)
    assert [tmp_path, tmp_path / "a"] == triggers.expanded(tmp_path / "**")
    top = Path("/dev")
    found = triggers.expanded(top / "**")
    mounts = [path for path in top.iterdir() if path.is_mount() and path.is_dir()]
    assert not {*found} & {*mounts}


@pytest.mark.parametrize(
    ("place", "call", "left"),
    [(Path, "lstat", ["b"]), (os, "scandir", ["a", "b"])],
    ids=["before it is looked at", "before it is read"],
)
def test_a_directory_that_goes_meanwhile_has_nothing_below(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: Any, call: str, left: list[str]
) -> None:
    (tmp_path / "a" / "below").mkdir(parents=True)
    (tmp_path / "b").mkdir()
    usual = getattr(place, call)

    def gone(path: Path) -> object:
        if path.name == "a":
            raise FileNotFoundError
        return usual(path)

    monkeypatch.setattr(place, call, gone)
    assert [tmp_path, *(tmp_path / name for name in left)] == triggers.expanded(tmp_path / "**")


@pytest.mark.parametrize("names", [(), ("file",), ("sub/", "file")])
def test_a_file_and_a_directory_in_which_something_can_be_seen_have_no_blind_spot(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    for name in names:
        path = tmp_path / name
        path.mkdir() if name.endswith("/") else path.touch()
    assert "" == triggers.blind_spot(tmp_path, {tmp_path})
    assert "" == triggers.blind_spot(tmp_path / "file", ())
