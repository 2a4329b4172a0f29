"""Which pod holds which device, and what is given back: with a kubelet, over its sockets."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from prometheus_client.parser import text_string_to_metric_families
from typing_extensions import override

import deviceplugin as dp
from deviceplugin._attribution import tracker
from deviceplugin._attribution.checkpoint import Checkpoint
from deviceplugin._attribution.ownership import Claim, Ownership
from deviceplugin._attribution.podresources import (
    ClaimedDevice,
    Hold,
    Holdings,
    PodName,
    PodResources,
)
from deviceplugin._attribution.poll_schedule import AttributionTiming
from deviceplugin._attribution.tracker import HoldingsTracker
from deviceplugin._discovery.retention import RECORDED_BUT_ABSENT
from deviceplugin._inventory.published import Resource
from deviceplugin._telemetry.metrics import Metrics
from deviceplugin.errors import KubeletUnavailableError
from deviceplugin_testing.fixture import Kubelet, Node
from deviceplugin_testing.simulator import Container, Pod
from kubelets.pod_resources import pod_resources
from patience import PATIENCE, eventually
from releases import THREE_RELEASES
from scripted_plugin import RESOURCE, ScriptedPlugin, sick

QUICK = timedelta(milliseconds=50)
SLOW = timedelta(hours=1)
ADMISSION = 0.5
"""Seconds that a pod may take from its allocation to the lists, where a test waits for that."""
POD = Pod.of("door", main={RESOURCE: 1})


class ReleasedPlugin(ScriptedPlugin):
    """Remembers what it was told of."""

    def __init__(self, *devices: dp.Device | str) -> None:
        super().__init__(*devices)
        self.released_ids: list[list[str]] = []

    @override
    def released(self, devices: Sequence[dp.Device]) -> None:
        self.released_ids.append([device.id for device in devices])


class ExclusivePlugin(ScriptedPlugin):
    exclusive = True


def samples(node: Node, name: str) -> dict[tuple[str, ...], float]:
    """The values of ``name`` by those of their labels in alphabetical order, but the resource's."""
    text = node.host._metrics.expose("")[1].decode()
    return {
        tuple(value for label, value in sorted(sample.labels.items()) if label != "resource"): (
            sample.value
        )
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == f"deviceplugin_{name}"
    }


def held(node: Node) -> set[tuple[str, str]]:
    """Device and pod of all that is held."""
    return {(device, pod) for _, device, _, pod in samples(node, "device_allocated")}


def wait_held(node: Node, *expected: tuple[str, str]) -> None:
    eventually(lambda: set(expected) == held(node), f"{expected} to be held")


def wait_counted(node: Node, **expected: float | None) -> None:
    """Wait until metrics of the resource have these values; None is absent.

    A machine under load can be so late that what is known gets too old for a moment.
    """
    wanted = {name: {} if value is None else {(): value} for name, value in expected.items()}
    eventually(lambda: wanted == {name: samples(node, name) for name in wanted}, str(expected))


def allow_late_pods(monkeypatch: pytest.MonkeyPatch, **changes: float) -> None:
    """Change the timing: a busy kubelet learns of one pod after the other, late for the usual."""
    timing = AttributionTiming.of(QUICK.total_seconds())._replace(**changes)
    monkeypatch.setattr(AttributionTiming, "of", lambda _: timing)


@contextmanager
def running(kubelet: Kubelet, *plugins: dp.Plugin, **changes: Any) -> Iterator[Node]:
    settings = {"pod_resources_interval": QUICK, "http_address": "127.0.0.1:0", **changes}
    with kubelet.running(*plugins, **settings) as node:
        kubelet.simulated.wait(lambda: listed(node) and not node.host.ready(), what="the plugin")
        yield node


def listed(node: Node) -> bool:
    """Whether the kubelet has devices, and so admits pods."""
    names = node.kubelet.registered
    return bool(names) and all(map(node.kubelet.lists_received, names))


# Attribution.


@THREE_RELEASES
def test_a_pod_that_starts_and_ends_is_told_and_its_devices_are_released(kubelet: Kubelet) -> None:
    plugin = ReleasedPlugin("a", "b", sick("c"))
    with running(kubelet, plugin) as node:
        for number, name in enumerate(("door", "gate"), 1):
            pod = Pod.of(name, main={RESOURCE: 2})
            assert node.kubelet.run(pod)
            expected = {("main", device, "default", name): 1 for device in "ab"}
            eventually(lambda all_=expected: all_ == samples(node, "device_allocated"), name)  # type: ignore[misc]
            wait_counted(node, devices_allocated=2, devices_allocatable=2, devices_free=0)
            node.kubelet.terminate(pod)
            eventually(lambda number=number: number == len(plugin.released_ids), "the release")  # type: ignore[misc]
            wait_counted(node, devices_allocated=0, devices_free=2)
            assert set() == held(node)
        wait_counted(node, released_devices_total=4)
    assert [["a", "b"]] * 2 == plugin.released_ids


def outlive_the_admission(node: Node) -> None:
    """Wait until polls begin later after an allocation than admission may take."""
    over = time.monotonic() + 2 * ADMISSION
    eventually(lambda: time.monotonic() > over, "the admission")
    turned(node, 3)  # a poll for no pod at all requests nothing


def polls(node: Node, count: int) -> None:
    """Wait for that many more looks that the kubelet answered."""

    def asked() -> float:
        return sum(samples(node, "pod_resources_requests_total").values())

    before = asked()
    eventually(lambda: asked() >= before + count, f"{count} looks")


def test_without_the_socket_holders_are_absent_and_not_0_and_nothing_is_refused(
    kubelet: Kubelet,
) -> None:
    socket = kubelet.simulated.root / "nowhere" / "kubelet.sock"
    with running(kubelet, ExclusivePlugin("a"), pod_resources_socket=socket) as node:
        wait_counted(node, devices_allocatable=1, devices_allocated=None)
        assert [None] == [d["holders"] for d in node.host.inventory()["resources"][0]["devices"]]
        assert {} == samples(node, "pod_resources_requests_total")
        node.allocate("a")


def test_devices_are_served_where_the_socket_cannot_be_looked_at(
    kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("deviceplugin._discovery.retention._PATIENCE", 0.1)
    socket = kubelet.simulated.root / ("x" * 300) / "kubelet.sock"  # as where SELinux denies it
    with running(kubelet, ScriptedPlugin("a"), pod_resources_socket=socket) as node:
        node.wait_for(RESOURCE, {"a"})
        wait_counted(node, devices_allocated=None)
        turned(node, 3)
    told = [r for r in caplog.records if "pod resources" in r.message]
    assert {f"{socket}: File name too long"} == {vars(record)["error"] for record in told}
    assert 1 == [r.message for r in told].count("pod resources unavailable")  # that of the looks
    assert not [r for r in caplog.records if r.exc_info]


def test_an_old_answer_says_nothing_any_more(
    kubelet: Kubelet, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    allow_late_pods(monkeypatch, stale=0.5)
    socket = kubelet.simulated.root / "told" / "kubelet.sock"
    with pod_resources(socket) as pods:
        pods.held = {RESOURCE: ["a"], "example.com/other": ["x"]}
        with running(kubelet, ScriptedPlugin("a"), pod_resources_socket=socket) as node:
            wait_held(node, ("a", "pod"))
            pods.held = None
            wait_counted(node, devices_allocated=None, devices_allocatable=1)
            pods.held = {RESOURCE: ["a"]}
            wait_held(node, ("a", "pod"))
    told = [r for r in caplog.records if r.message == "pod resources unavailable"]
    assert 1 == len(told)
    assert "RESOURCE_EXHAUSTED: rejected by rate limit" in vars(told[0])["error"]


def test_nobody_is_asked_while_there_are_no_devices(kubelet: Kubelet) -> None:
    socket = kubelet.simulated.root / "told" / "kubelet.sock"
    plugin = ScriptedPlugin()
    settings = {"pod_resources_interval": QUICK, "http_address": "127.0.0.1:0"}
    with (
        pod_resources(socket) as pods,
        kubelet.running(plugin, pod_resources_socket=socket, **settings) as node,
    ):
        node.wait_for(RESOURCE, ())
        turned(node, 3)
        assert 1 == pods.asked  # by the discovery
        plugin.set("a")
        pods.held = {RESOURCE: ["a"]}
        node.wait_for(RESOURCE, {"a"})


@pytest.mark.parametrize(
    ("plugin", "looked"),
    [(ScriptedPlugin("a"), False), (ReleasedPlugin("a"), True), (ExclusivePlugin("a"), True)],
)
def test_where_nobody_can_see_it_only_plugins_have_it_looked_for(
    kubelet: Kubelet, plugin: dp.Plugin, looked: bool
) -> None:
    socket = kubelet.simulated.root / "told" / "kubelet.sock"
    with (
        pod_resources(socket) as pods,
        running(kubelet, plugin, pod_resources_socket=socket, http_address="off") as node,
    ):
        node.wait_for(RESOURCE, {"a"})
        asked = pods.asked
        node.allocate("a")
        turned(node, 3)
        assert looked == (pods.asked > asked)


# Restarts.


@pytest.mark.slow
def test_a_kubelet_that_has_not_heard_of_its_pods_releases_nothing(
    kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    allow_late_pods(monkeypatch, confirm=1.2)
    plugin = ReleasedPlugin("a")
    with running(kubelet, plugin) as node:
        node.kubelet.run(POD)
        wait_held(node, ("a", "door"))
        node.kubelet.restart(readmit=False)
        node.wait_for(RESOURCE, {"a"})
        polls(node, 10)
        assert [] == plugin.released_ids
        node.kubelet.readmit()
        wait_held(node, ("a", "door"))
        polls(node, 3)
        assert [] == plugin.released_ids
        node.kubelet.terminate(POD)
        eventually(lambda: plugin.released_ids, "the release")
    assert [["a"]] == plugin.released_ids


@THREE_RELEASES
def test_a_pod_that_ends_while_the_kubelet_is_down_is_released(kubelet: Kubelet) -> None:
    plugin = ReleasedPlugin("a")
    with running(kubelet, plugin) as node:
        node.kubelet.run(POD)
        wait_held(node, ("a", "door"))
        node.kubelet.stop()
        node.kubelet.delete(POD)
        node.kubelet.start()
        eventually(lambda: plugin.released_ids, "the release")
        wait_held(node)
        polls(node, 3)
    assert [["a"]] == plugin.released_ids


# Releases.


@pytest.fixture
def hooked() -> Iterator[threading.Event]:
    """What a hook waits for; set at the end, so that nothing goes on."""
    event = threading.Event()
    yield event
    event.set()


def test_a_hanging_release_does_not_keep_the_plugin_from_stopping(
    kubelet: Kubelet, hooked: threading.Event
) -> None:
    class HangingPlugin(ScriptedPlugin):
        called = threading.Event()

        @override
        def released(self, devices: Sequence[dp.Device]) -> None:
            self.called.set()
            hooked.wait(PATIENCE)

    plugin = HangingPlugin("a")
    with running(kubelet, plugin) as node:
        node.kubelet.run(POD)
        wait_held(node, ("a", "door"))
        node.kubelet.terminate(POD)
        assert plugin.called.wait(PATIENCE)
    assert not [t for t in threading.enumerate() if t.name in {"holders", "host"}]


INIT = Pod("nursery", [Container("main")], [Container("first", {RESOURCE: 1})])


@THREE_RELEASES
def test_a_device_of_an_init_container_is_released_after_its_pod(
    kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    allow_late_pods(monkeypatch, admission=ADMISSION)
    plugin = ReleasedPlugin("a", "b")
    with running(kubelet, plugin) as node:
        node.kubelet.run(INIT)
        outlive_the_admission(node)
        assert [] == plugin.released_ids
        node.kubelet.terminate(INIT)
        node.host._tracker.ask()  # has the kubelet collect the devices
        plugin.set("a", "b", "c")  # has it write the checkpoint
        eventually(lambda: plugin.released_ids, "the release")
    assert 1 == len(plugin.released_ids)


def test_a_pod_that_is_listed_during_its_allocation_has_the_device_of_its_init_container(
    kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    allow_late_pods(monkeypatch, admission=ADMISSION)
    monkeypatch.setattr(tracker, "_IDLE_TIMEOUT", 0.0)

    class SlowPlugin(ReleasedPlugin):
        @override
        def allocate(self, devices: Sequence[dp.Device]) -> dp.Allocation:
            node.host._tracker.ask()
            return dp.Allocation()

    plugin = SlowPlugin("a")
    with running(kubelet, plugin) as node:
        node.kubelet.run(INIT)
        outlive_the_admission(node)
        assert [] == plugin.released_ids


def test_a_vanished_device_that_an_init_container_holds_stays_listed(
    kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    allow_late_pods(monkeypatch, settle=10.0)
    plugin = ReleasedPlugin("a", "b")
    grace = timedelta(milliseconds=1)
    with running(kubelet, plugin, vanished_grace=grace) as node:
        outcome = node.kubelet.run(INIT)
        (device,) = outcome.devices["first"][RESOURCE]
        (other,) = {"a", "b"} - {device}
        plugin.set()
        node.wait_for(RESOURCE, set(), {device})
        node.kubelet.restart()  # in which the kubelet looks for it
        node.wait_for(RESOURCE, set(), {device})
    assert () == node.kubelet.crashes
    assert other not in node.kubelet.devices(RESOURCE)


def test_a_device_that_a_kubelet_has_recorded_is_in_the_first_list(kubelet: Kubelet) -> None:
    with running(kubelet, ScriptedPlugin("a")) as node:
        node.kubelet.run(INIT)
    with running(kubelet, ScriptedPlugin("b")) as node:
        node.wait_for(RESOURCE, {"b"}, {"a"})
        reason = node.host._tracker._resources()[RESOURCE].devices["a"].health.reason
    assert RECORDED_BUT_ABSENT == reason


def turned(node: Node, count: int) -> None:
    """Wait for that many more turns of the thread, which may ask nobody."""
    turns = threading.Semaphore(0)
    turn = node.host._tracker._poll_once

    def counted() -> None:
        turn()
        turns.release()

    node.host._tracker._poll_once = counted  # type: ignore[method-assign]
    assert all(turns.acquire(timeout=PATIENCE) for _ in range(count))


# Exclusive.


def test_a_device_that_another_pod_holds_is_refused(kubelet: Kubelet) -> None:
    with running(kubelet, ExclusivePlugin("a", "b")) as node:
        node.kubelet.run(Pod.of("door", main={RESOURCE: 2}))
        wait_held(node, ("a", "door"), ("b", "door"))
        with pytest.raises(grpc.RpcError) as info:
            node.allocate("b")
        told = "held by another pod: b (default/door)"
        assert (
            grpc.StatusCode.FAILED_PRECONDITION,
            f'invalid allocation request for "example.com/thing": {told}',
            told,
        ) == (info.value.code(), info.value.details(), node.host._metrics.events.latest()[0].detail)


def test_without_an_answer_a_device_is_given_out(
    kubelet: Kubelet, caplog: pytest.LogCaptureFixture
) -> None:
    socket = kubelet.simulated.root / "told" / "kubelet.sock"
    with pod_resources(socket) as pods:  # which has no Get
        pods.held = {RESOURCE: ["a"]}
        with running(kubelet, ExclusivePlugin("a"), pod_resources_socket=socket) as node:
            wait_held(node, ("a", "pod"))
            node.allocate("a")
    anyway = "pod resources unavailable, allocating anyway"
    (told,) = [r for r in caplog.records if r.message.startswith(anyway)]
    assert "UNIMPLEMENTED" in vars(told)["error"]


def test_a_device_whose_pod_has_ended_or_was_replaced_is_not_refused(kubelet: Kubelet) -> None:
    with running(kubelet, ExclusivePlugin("a"), pod_resources_interval=SLOW) as node:
        node.kubelet.run(POD)
        wait_held(node, ("a", "door"))
        node.kubelet.delete(POD)
        assert {("a", "door")} == held(node)  # remembered
        assert node.kubelet.run(Pod("door", POD.containers, uid="another"))
        node.kubelet.terminate(Pod("door", POD.containers, uid="another"))
        assert node.kubelet.run(Pod.of("gate", main={RESOURCE: 1}))


def test_a_device_of_an_init_container_may_go_to_a_later_container(kubelet: Kubelet) -> None:
    pod = Pod(
        "door",
        [Container("main", {RESOURCE: 1})],
        [Container("first", {RESOURCE: 1}), Container("second", {RESOURCE: 1})],
    )
    with running(kubelet, ExclusivePlugin("a")) as node:
        assert node.kubelet.run(pod)
        wait_held(node, ("a", "door"))


# How the kubelet is asked.


def holders(
    service: PodResources,
    plugin: dp.Plugin | None = None,
    *,
    own_pod: str = "",
    interval: float = 0.05,
    ownership: Ownership | None = None,
) -> HoldingsTracker:
    resource = Resource(RESOURCE, plugin or ScriptedPlugin("a"))
    resource.publish([dp.Device("a")])
    return HoldingsTracker(
        service,
        AttributionTiming.of(interval),
        resources=lambda: {RESOURCE: resource},
        metrics=Metrics(),
        ownership=ownership or Ownership(),
        own_pod=own_pod,
        checkpoint=Checkpoint(service.socket.parent),
    )


class Service(PodResources):
    """Says what a test wants, as long as the socket is the same."""

    def __init__(self, socket: Path) -> None:
        super().__init__(socket, lambda _method, _code: None)
        socket.touch()
        self.answer = Holdings(frozenset(), frozenset({("default", "door")}))
        self.on_list: Callable[[], object] = lambda: None
        self.got: list[frozenset[PodName]] = []
        """The pods that were asked for."""

    @override
    def list(self, timeout: float = 2) -> Holdings:
        self.on_list()
        return self.answer

    @override
    def get(self, pods: Iterable[PodName], timeout: float = 2) -> Holdings:
        self.got.append(frozenset(pods))
        holds = self.answer.holds or frozenset()
        return Holdings(frozenset(hold for hold in holds if hold.owner in self.got[-1]))

    def restart(self) -> None:
        self.socket.unlink()
        self.socket.with_name("new").touch()
        self.socket.with_name("new").rename(self.socket)


@pytest.fixture
def service(tmp_path: Path) -> Service:
    return Service(tmp_path / "kubelet.sock")


def test_a_kubelet_that_restarts_meanwhile_has_not_answered(service: Service) -> None:
    asking = holders(service)
    service.on_list = service.restart
    with pytest.raises(KubeletUnavailableError, match="the kubelet restarted meanwhile"):
        asking.ask()
    assert asking.current() is None


def test_a_kubelet_that_has_just_failed_is_spared_until_it_is_another_one(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deviceplugin._attribution.poll_interval._FIRST_WAIT", 10**6)
    monkeypatch.setattr("deviceplugin._attribution.poll_interval._LONGEST_WAIT", 10**6)
    asking = holders(service)
    asked: list[None] = []

    def refuse() -> None:
        asked.append(None)
        raise KubeletUnavailableError("RESOURCE_EXHAUSTED")

    service.on_list = refuse
    for kubelets in (1, 2):
        for _ in range(3):
            with pytest.raises(KubeletUnavailableError, match="RESOURCE_EXHAUSTED"):
                asking.ask()
        assert kubelets == len(asked)
        service.restart()
    service.socket.unlink()  # a kubelet that is not there costs nobody anything
    for _ in range(3):
        with pytest.raises(KubeletUnavailableError):
            asking.ask()
    assert 5 == len(asked)
    service.socket.touch()
    service.on_list = lambda: None
    assert asking.ask().answered


def test_a_kubelet_that_lists_the_static_pods_only_does_not_know_all(service: Service) -> None:
    asking = holders(service, own_pod="me", interval=0.001)
    complete = []
    for own in ((), [("kube-system", "me")], ()):  # at first the process may not be in a pod
        service.answer = Holdings(frozenset(), frozenset({("default", "door"), *own}))
        complete.append(asking.ask().complete)
    assert [True, True, False] == complete


def at_once(end: Callable[[], None]) -> None:
    end()


def test_no_list_is_made_before_an_allocation_is_recorded(service: Service) -> None:
    asking = holders(service, interval=30)
    later: list[Callable[[], None]] = []
    listed: list[bool] = []
    service.on_list = lambda: listed.append(not later)
    with asking.admit(Resource(RESOURCE, ScriptedPlugin("a")), ["a"], later.append):
        assert not later
    (end,) = later
    thread = threading.Thread(target=asking.ask)
    thread.start()
    eventually(lambda: asking._awaits_idle, "the list to be waited for")
    assert asking._ownership._pods.held
    assert [] == listed
    later.clear()
    end()
    thread.join(PATIENCE)
    assert [True] == listed
    assert [(RESOURCE, "a")] == [*asking._schedule.unseen]


def test_an_allocation_that_is_refused_is_expected_nowhere(service: Service) -> None:
    asking = holders(service, ReleasedPlugin("a"), interval=30)
    resource = asking._resources()[RESOURCE]
    with pytest.raises(dp.AllocationError), asking.admit(resource, ["a"], at_once):
        raise dp.AllocationError("not today")
    assert not asking._schedule.unseen
    assert not asking._ownership._pods.held


def test_an_allocation_wakes_the_thread_only_if_a_poll_is_due_earlier(service: Service) -> None:
    asking = holders(service, interval=30)
    woken: list[bool] = []
    asking._changed.notify_all = lambda: woken.append(True)  # type: ignore[method-assign]
    asking._wakes_at = time.monotonic() + 30
    resource = Resource(RESOURCE, ScriptedPlugin("a"))
    for _ in range(3):
        with asking.admit(resource, ["a"], at_once):
            pass
        asking._wakes_at = time.monotonic()  # as the thread does then
    assert [True] == woken


def test_a_pod_that_is_admitted_late_is_looked_for(service: Service) -> None:
    asking = holders(service, interval=30)
    resource = Resource(RESOURCE, ScriptedPlugin("a"))
    asking.ask()
    with asking.admit(resource, ["a"], at_once):
        pass
    lists: list[bool] = []
    service.on_list = lambda: lists.append(True)
    for _ in range(2):
        asking._poll_once()
    service.answer = Holdings(frozenset({Hold(RESOURCE, "a", "default", "door", "main")}))
    asking._poll_once()
    assert [True] * 3 == lists
    assert asking._schedule.wait(time.monotonic()) > 20, "until the next look"
    current = asking.current()
    assert current
    assert {"a"} == current.of(RESOURCE)


def test_a_pod_that_seems_to_have_gone_is_asked_for_again(service: Service) -> None:
    plugin = ReleasedPlugin("a")
    asking = holders(service, plugin, interval=30)
    held = Holdings(frozenset({Hold(RESOURCE, "a", "default", "door", "main")}))
    free = Holdings(frozenset(), frozenset({("default", "other")}))
    for service.answer in (held, free, held, free, free):
        asking._poll_once()
    assert [frozenset({("default", "door")})] * 4 == service.got
    assert [] == plugin.released_ids  # two looks in a row are one


def test_what_a_kubelet_that_never_answers_does_not_show_is_forgotten(service: Service) -> None:
    service.socket.unlink()
    service.on_list = lambda: PodResources.list(service)
    asking = holders(service, interval=0.001)
    resource = Resource(RESOURCE, ScriptedPlugin("a"))
    for number in range(100):
        with asking.admit(resource, [str(number)], at_once):
            pass

    def forgotten() -> bool:
        asking._poll_once()
        return not asking._schedule.unseen

    eventually(forgotten, "all to be forgotten")
    assert asking.current() is None


def test_a_look_that_breaks_does_not_end_all_looks(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    asking = holders(service)

    def fail() -> None:
        service.on_list = lambda: None
        raise LookupError("odd")

    service.on_list = fail
    thread = threading.Thread(target=asking.run)
    thread.start()
    try:
        eventually(asking.current, "another look")
    finally:
        asking.stop()
        thread.join(PATIENCE)
    assert not thread.is_alive()
    assert "pod resources check failed" in caplog.messages


def test_what_claims_hold_is_held_by_the_pods_that_have_them(service: Service) -> None:
    """Both have shares of a device, and one has a whole one and one that is in no slice."""
    one, two = (Claim("default", name, f"uid-{name}") for name in ("one", "two"))
    asking = holders(service, ownership=(ownership := Ownership()))
    shares = [(RESOURCE, f"a::{number}") for number in range(4)]
    whole, gone = (RESOURCE, "d"), (RESOURCE, "b")
    ownership.restore({one: [shares[0], shares[2], whole, gone], two: [shares[1]]})
    asking.places = lambda: {("d.io", "n1/x", "a"): shares, ("d.io", "n1/x", "d-1"): [whole]}
    service.answer = Holdings(
        frozenset({Hold(RESOURCE, "c", "default", "gate", "main")}),
        frozenset({("default", "first"), ("default", "second")}),
        claimed=frozenset(
            ClaimedDevice("d.io", "n1/x", device, claim, "default", pod, "main")
            for device, claim, pod in (
                ("a", "one", "first"),
                ("a", "two", "second"),
                ("d-1", "one", "first"),
                ("of-somebody-else", "one", "first"),
            )
        ),
    )
    expected = {
        Hold(RESOURCE, "a::0", "default", "first", "main", "one"),
        Hold(RESOURCE, "a::2", "default", "first", "main", "one"),
        Hold(RESOURCE, "a::1", "default", "second", "main", "two"),
        Hold(RESOURCE, "d", "default", "first", "main", "one"),
        Hold(RESOURCE, "b", "default", "", "", "one"),
        Hold(RESOURCE, "c", "default", "gate", "main"),
    }
    assert expected == set(asking.ask().holds or ())
    current = asking.current()
    assert current
    assert expected == set(current.holds or ())
    service.answer = Holdings()
    assert asking.ask().holds is None
