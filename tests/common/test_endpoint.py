"""An endpoint alone with a kubelet, by a clock of the test's own: how long it waits for what."""

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from typing_extensions import override

import deviceplugin as dp
from deviceplugin._attribution.ownership import Ownership
from deviceplugin._inventory.published import Resource
from deviceplugin._kubelet.endpoint import Endpoint
from deviceplugin._kubelet.offer import Offer
from deviceplugin._kubelet.sockets import SocketNews
from deviceplugin._platform.file_watcher import FileWatcher
from deviceplugin._registration import by_kubelet_socket
from deviceplugin._telemetry.metrics import Metrics
from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from deviceplugin_testing.fixture import Kubelet
from deviceplugin_testing.simulator import SimulatedKubelet
from held_clock import HeldClock, are_within
from idle_tracker import IdleTracker
from kubelets.odd_kubelet import odd_kubelet
from patience import PATIENCE, eventually
from scripted_plugin import RESOURCE, ScriptedPlugin

BOUNDS = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]


@contextmanager
def serving(
    directory: Path, plugin: dp.Plugin, clock: HeldClock, ownership: Ownership | None = None
) -> Iterator[Endpoint]:
    """Serve what ``plugin`` discovers now in ``directory``, and nothing around it."""
    watcher, metrics = FileWatcher(0.05), Metrics()
    resource = Resource(RESOURCE, plugin)
    resource.publish(plugin.discover())
    endpoint = Endpoint(
        Offer(resource, ownership or Ownership()),
        admission=IdleTracker(),
        registrars=[by_kubelet_socket.KubeletSocket(directory, metrics)],
        sockets=SocketNews(watcher, [directory]),
        metrics=metrics,
        clock=clock,
    )
    endpoint.on_poke((poked := threading.Event()).set)

    def run() -> None:
        for seconds in endpoint.steps():
            clock.pause(poked, seconds)
            poked.clear()

    threads = [threading.Thread(target=each) for each in (watcher.run, run)]
    for thread in threads:
        thread.start()
    try:
        yield endpoint
    finally:
        endpoint.stop()
        watcher.stop()
        for thread in threads:
            thread.join(PATIENCE)


@pytest.fixture
def clock() -> HeldClock:
    return HeldClock()


@pytest.fixture
def simulated(kubelet: Kubelet) -> SimulatedKubelet:
    return kubelet.simulated


def test_waits_between_short_lived_registrations_grow_up_to_a_limit(
    simulated: SimulatedKubelet, clock: HeldClock
) -> None:
    waits = []
    with serving(simulated.plugin_dir, ScriptedPlugin("a"), clock):
        for number in range(len(BOUNDS)):
            simulated.wait(lambda n=number: simulated.registration_count(RESOURCE) > n)  # type: ignore[misc]
            simulated.wait_for(RESOURCE, {"a"})
            simulated.hang_up(RESOURCE)
            waits.append(clock.skip_wait())
        simulated.wait_for(RESOURCE, {"a"})
    assert [True] * len(BOUNDS) == are_within(waits, BOUNDS)


def test_another_kubelets_socket_is_a_restart_although_the_stream_goes_on(
    simulated: SimulatedKubelet, clock: HeldClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    socket = simulated.kubelet_socket
    with serving(simulated.plugin_dir, ScriptedPlugin("a"), clock) as endpoint:
        simulated.wait_for(RESOURCE, {"a"})
        eventually(lambda: "" == endpoint.problem, "the endpoint to be content")
        old = socket.rename(socket.with_name("old"))
        socket.touch()
        said = "registration lost"
        eventually(lambda: said in [record.getMessage() for record in caplog.records], said)
        old.replace(socket)
    (lost,) = [record for record in caplog.records if record.getMessage() == said]
    assert "the kubelet restarted" == vars(lost)["reason"]


def test_without_a_plugin_directory_attempts_are_ever_rarer_and_it_is_said_once(
    tmp_path: Path, clock: HeldClock, caplog: pytest.LogCaptureFixture
) -> None:
    nowhere = tmp_path / "nowhere"
    with serving(nowhere, ScriptedPlugin("a"), clock) as endpoint:
        waits = [clock.skip_wait() for _ in BOUNDS]
        assert f"cannot serve: {nowhere}: no such directory" == endpoint.problem
    assert [True] * len(BOUNDS) == are_within(waits, BOUNDS)
    assert 1 == [r.getMessage() for r in caplog.records].count("cannot serve")


def test_a_kubelet_that_is_away_is_tried_ever_less(
    simulated: SimulatedKubelet, clock: HeldClock
) -> None:
    simulated.stop()
    simulated.kubelet_socket.unlink()
    with serving(simulated.plugin_dir, ScriptedPlugin("a"), clock) as endpoint:
        first, *others = [clock.skip_wait() for _ in range(15)]
        assert "waiting for the kubelet" == endpoint.problem
    assert by_kubelet_socket._FIRST_WAIT == first
    assert all(first <= wait <= by_kubelet_socket._LONGEST_WAIT for wait in others)
    assert max(others) > 10 * first


def test_a_kubelet_that_never_opens_its_stream_is_asked_again_after_longer_each_time(
    kubelet: Kubelet, clock: HeldClock
) -> None:
    with (
        odd_kubelet(kubelet, lambda *_: pb.Empty()) as odd,
        serving(kubelet.simulated.plugin_dir, ScriptedPlugin("a"), clock) as endpoint,
    ):
        waits = []
        for number in range(1, 6):
            odd.wait_asked(number)
            waits.append(clock.skip_wait())
        odd.wait_asked(6)
        eventually(lambda: "waiting for the kubelet's stream" == endpoint.problem, "the last")
    assert [2.0, 4.0, 8.0, 10.0, 10.0] == waits


def test_start_comes_before_registration_and_one_that_lasted_is_replaced_at_once(
    simulated: SimulatedKubelet, clock: HeldClock
) -> None:
    registered: list[int] = []

    class LatePlugin(ScriptedPlugin):
        @override
        def start(self, resource: str) -> None:
            super().start(resource)
            registered.append(simulated.registration_count(resource))
            if len(registered) < 3:
                raise RuntimeError("the daemon is not up yet")

    plugin = LatePlugin("a")
    with serving(simulated.plugin_dir, plugin, clock) as endpoint:
        assert [5.0, 5.0] == [clock.skip_wait(), clock.skip_wait()]
        simulated.wait_for(RESOURCE, {"a"})
        eventually(lambda: "" == endpoint.problem, "the endpoint to be content")
        clock.advance(1.0)
        simulated.hang_up(RESOURCE)
        simulated.wait(lambda: simulated.registration_count(RESOURCE) == 2)
        simulated.wait_for(RESOURCE, {"a"})
    assert [0, 0, 0] == registered
    assert [*[("start", RESOURCE)] * 3, ("stop", RESOURCE)] == plugin.hooks


def test_a_replacement_that_cannot_start_is_unregistered_until_it_can(
    simulated: SimulatedKubelet, clock: HeldClock
) -> None:
    ready = threading.Event()
    too_early: list[str] = []

    class LatePlugin(ScriptedPlugin):
        @override
        def start(self, resource: str) -> None:
            if not ready.is_set():
                too_early.append(resource)
                raise dp.DevicePluginError("not yet")

    with serving(simulated.plugin_dir, ScriptedPlugin("a"), clock) as endpoint:
        simulated.wait_for(RESOURCE, {"a"})
        endpoint.resource.plugin = LatePlugin("a")
        endpoint.poke()
        assert 5.0 == clock.skip_wait()
        simulated.wait_for(RESOURCE, set(), {"a"})
        assert pytest.approx(0.1) == clock.skip_wait()
        eventually(lambda: 2 == len(too_early), "the second attempt")
        problem = "start() failed: not yet"
        eventually(lambda: problem == endpoint.problem, problem)
        ready.set()
        assert 5.0 == clock.skip_wait()
        simulated.wait_for(RESOURCE, {"a"})


def test_an_endpoint_that_fails_for_a_reason_of_ours_starts_over(
    simulated: SimulatedKubelet, clock: HeldClock, caplog: pytest.LogCaptureFixture
) -> None:
    failures = iter([ZeroDivisionError(f"a bug at {number} s") for number in range(3)])

    class Plugin(ScriptedPlugin):
        @property
        def socket_name(self) -> str:  # type: ignore[override]
            for failure in failures:
                raise failure
            return ""

    with serving(simulated.plugin_dir, Plugin("a"), clock):
        assert [5.0] * 3 == [clock.skip_wait() for _ in range(3)]
        simulated.wait_for(RESOURCE, {"a"})
    (told,) = [r for r in caplog.records if r.getMessage() == "endpoint failed, starting over"]
    assert told.exc_info
    assert "ZeroDivisionError: a bug at 0 s" == vars(told)["error"]


class StartingPlugin(ScriptedPlugin):
    @override
    def pre_start(self, devices: Sequence[dp.Device]) -> None:
        self.hooks.append(("pre_start", ",".join(device.id for device in devices)))


def test_it_is_registered_anew_when_its_options_change(
    simulated: SimulatedKubelet, clock: HeldClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    plugin, ownership = StartingPlugin("a"), Ownership()
    with serving(simulated.plugin_dir, plugin, clock, ownership) as endpoint:
        eventually(lambda: endpoint.up_to_date, "the kubelet to have the list")
        eventually(lambda: not endpoint.problem, "the endpoint to know that it is registered")
        clock.advance(1.0)
        simulated.allocate(RESOURCE, ["a"])
        assert [] == [hook for hook in plugin.hooks if hook[0] == "pre_start"]
        ownership.switch("dra")
        assert pytest.approx(0.1) == clock.skip_wait(), "time for the kubelet to notice the end"
        simulated.wait(lambda: simulated.registration_count(RESOURCE) == 2)
        simulated.wait_for(RESOURCE, set(), {"a"})
        eventually(lambda: endpoint.up_to_date, "the kubelet to have the list")
        # A pod that was bound before: the kubelet does not ask for it at its start.
        simulated.allocate(RESOURCE, ["a"])
        assert ("pre_start", "a") == plugin.hooks[-1]
    lost = [vars(r)["reason"] for r in caplog.records if r.getMessage() == "registration lost"]
    assert ["the options of the registration changed"] == lost
    assert not endpoint.up_to_date


def test_what_has_no_device_any_more_does_not_wait_for_a_kubelet(
    simulated: SimulatedKubelet, clock: HeldClock
) -> None:
    simulated.stop()
    with serving(simulated.plugin_dir, ScriptedPlugin("a"), clock) as endpoint:
        eventually(lambda: endpoint.problem == "waiting for the kubelet", "the attempt")
        endpoint.resource.publish([])
        eventually(lambda: endpoint.up_to_date, "the end of the attempts")
        assert ("", False) == (endpoint.problem, endpoint.is_registered)
        simulated.start()
        endpoint.resource.publish([dp.Device("b")])
        simulated.wait_for(RESOURCE, {"b"})
        assert 1 == simulated.registration_count(RESOURCE)
