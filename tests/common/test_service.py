"""Allocation, preferred allocation and pre-start, as the kubelet sees them."""

import asyncio
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from threading import Event
from typing import Any, NoReturn, cast

import grpc
import grpc.aio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

import deviceplugin as dp
from deviceplugin._attribution.ownership import Ownership
from deviceplugin._inventory.published import Resource
from deviceplugin._kubelet import service
from deviceplugin._kubelet.offer import Offer
from deviceplugin._platform import event_loop, rpc
from deviceplugin._platform.hooks import MAX_HANGING, HookFailedError, Hooks, call, reason_of
from deviceplugin._telemetry.metrics import Metrics
from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from deviceplugin_testing.fixture import Kubelet, _node
from idle_tracker import IdleTracker
from patience import PATIENCE, eventually
from scripted_plugin import RESOURCE, ScriptedPlugin, WaitingPlugin, sick

FULL = dp.Device(
    "d2",
    nodes=[dp.DeviceNode("/dev/d2"), dp.DeviceNode("/dev/ctl", permissions="r")],
    mounts=[dp.Mount("/lib/d", read_only=True)],
    envs={"D2": "yes", "BOTH": "yes"},
    annotations={"vendor.com/d2": "yes"},
    cdi_names=["vendor.com/d=2"],
)
OTHER = dp.Device(
    "d10",
    nodes=[dp.DeviceNode("/dev/d10", "/dev/ten"), dp.DeviceNode("/dev/ctl", permissions="r")],
    mounts=[dp.Mount("/lib/d", read_only=True)],
    envs={"D10": "yes", "BOTH": "yes"},
    cdi_names=["vendor.com/d=10"],
)


BEGIN = 'invalid allocation request for "example.com/thing": '


def refusal(info: "pytest.ExceptionInfo[grpc.RpcError]") -> tuple[grpc.StatusCode, str | None]:
    return info.value.code(), info.value.details()


# Allocate.


def test_the_default_allocation_is_the_sum_of_the_devices_in_natural_order(
    kubelet: Kubelet,
) -> None:
    with kubelet.running(ScriptedPlugin(OTHER, FULL)) as node:
        node.wait_for(RESOURCE, {"d2", "d10"})
        expected = dp.Allocation(
            nodes=[
                dp.DeviceNode("/dev/d2"),
                dp.DeviceNode("/dev/ctl", permissions="r"),
                dp.DeviceNode("/dev/d10", "/dev/ten"),
            ],
            mounts=[dp.Mount("/lib/d", read_only=True)],
            envs={"D2": "yes", "D10": "yes", "BOTH": "yes"},
            annotations={"vendor.com/d2": "yes"},
            cdi_names=["vendor.com/d=2", "vendor.com/d=10"],
        )
        assert expected == node.allocate("d10", "d2")
        assert expected == node.allocate("d2", "d10", "d2")


def test_an_unknown_or_unhealthy_device_is_refused_by_name(kubelet: Kubelet) -> None:
    with kubelet.running(ScriptedPlugin("a", sick("b", "on fire"))) as node:
        node.wait_for(RESOURCE, {"a"}, {"b"})
        for ids, code, text in (
            (("a", "no-10", "no-9"), "NOT_FOUND", "unknown device: no-9, no-10"),
            (("a", "b"), "FAILED_PRECONDITION", "unhealthy device: b (on fire)"),
        ):
            with pytest.raises(grpc.RpcError) as info:
                node.allocate(*ids)
            assert (grpc.StatusCode[code], BEGIN + text) == refusal(info)


class AnsweringPlugin(ScriptedPlugin):
    """Answers with what a test sets, or raises it."""

    answer: Any

    @override
    def allocate(self, devices: Sequence[dp.Device]) -> dp.Allocation:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer  # type: ignore[no-any-return]


def test_what_an_override_raises_or_returns_wrongly_becomes_a_status(kubelet: Kubelet) -> None:
    plugin = AnsweringPlugin("a")
    place = f"tests/common/test_service.py:{plugin.allocate.__code__.co_firstlineno + 3}"
    busy = dp.AllocationError("busy", device_ids=["a"])
    odd = dp.Allocation(envs={"X": 1})  # type: ignore[dict-item]
    cannot = "allocate() returned what cannot be used"
    with kubelet.running(plugin) as node:
        node.wait_for(RESOURCE, {"a"})
        for answer, code, text in (
            (busy, "FAILED_PRECONDITION", "busy"),
            (dp.UnknownDeviceError("what?"), "NOT_FOUND", "what?"),
            (dp.UnhealthyDeviceError("ill"), "FAILED_PRECONDITION", "ill"),
            (KeyError("model"), "INTERNAL", f"KeyError: 'model' ({place})"),
            (dp.DevicePluginError("odd"), "INTERNAL", "odd"),
            (None, "INTERNAL", "TypeError: allocate() must return an Allocation, not None"),
            (odd, "INTERNAL", f"TypeError: {cannot}: environment variable's value 1 is not a str"),
        ):
            plugin.answer = answer
            with pytest.raises(grpc.RpcError) as info:
                node.allocate("a")
            assert (grpc.StatusCode[code], BEGIN + text) == refusal(info)
        counted = node.host._metrics.allocations.read()
        codes = {"FAILED_PRECONDITION": 2, "NOT_FOUND": 1, "INTERNAL": 4}
        # All are there from the start, so that the first of each is an increase.
        assert {"OK": 0, "DEADLINE_EXCEEDED": 0, **codes} == {
            labels["code"]: count.value for labels, count in counted
        }
    assert RESOURCE == busy.resource


def test_a_test_waits_until_it_is_told_that_an_allocation_hangs() -> None:
    assert _node._ANSWER > service._ALLOCATE_TIMEOUT


def test_an_allocation_that_hangs_is_given_up_and_later_ones_are_refused_at_once(
    kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "_ALLOCATE_TIMEOUT", 0.05)
    plugin = WaitingPlugin("a")
    with kubelet.running(plugin) as node:
        node.wait_for(RESOURCE, {"a"})
        answers = []
        for _ in range(MAX_HANGING + 1):
            with pytest.raises(grpc.RpcError) as info:
                node.allocate("a")
            answers.append(refusal(info))
        plugin.go_on.set()
    late = [f"{BEGIN}allocate() did not return within 0.05 s"] * MAX_HANGING
    refused = f"{BEGIN}allocate() is not called: {MAX_HANGING} earlier calls hang"
    assert [(grpc.StatusCode.DEADLINE_EXCEEDED, text) for text in (*late, refused)] == answers


# Preferred allocation.


class PreferringPlugin(ScriptedPlugin):
    """Prefers what a test says, known or not."""

    wish: Sequence[object] = ()

    @override
    def prefer(
        self, available: Sequence[dp.Device], required: Sequence[dp.Device], size: int
    ) -> Iterable[dp.Device]:
        if isinstance(self.wish, Exception):
            raise self.wish
        return [dp.Device(i) if isinstance(i, str) else i for i in self.wish]  # type: ignore[misc]


def servicer(
    plugin: dp.Plugin, ids: Iterable[str], admission: IdleTracker | None = None
) -> service.Servicer:
    resource = Resource(RESOURCE, plugin)
    resource.publish([dp.Device(device_id) for device_id in ids])
    return service.Servicer(
        Offer(resource, Ownership()),
        admission=admission or IdleTracker(),
        hooks=Hooks(),
        metrics=Metrics(),
        news=lambda: None,
    )


def preferred(
    answering: service.Servicer, available: Iterable[str], required: Iterable[str], size: int
) -> list[str]:
    request = pb.ContainerPreferredAllocationRequest(
        available_deviceIDs=available, must_include_deviceIDs=required, allocation_size=size
    )
    message = pb.PreferredAllocationRequest(container_requests=[request])
    answered = asyncio.run(answering.GetPreferredAllocation(message, NO_CONTEXT))
    (answer,) = answered.container_responses
    return list(answer.deviceIDs)


NO_CONTEXT = cast("service.Context", None)
IDS = [f"d{number}" for number in range(8)]


@cache
def preferring() -> tuple[PreferringPlugin, service.Servicer]:
    """Return a plugin and its service, for all that a test has to ask."""
    plugin = PreferringPlugin()
    return plugin, servicer(plugin, IDS)


@given(
    available=st.lists(st.sampled_from(IDS)),
    wish=st.lists(st.sampled_from([*IDS, "unknown", "", None])),
    data=st.data(),
)
def test_the_answer_to_a_preference_is_valid_whatever_the_hook_returns(
    available: list[str], wish: list[object], data: st.DataObject
) -> None:
    required = data.draw(
        st.lists(st.sampled_from(available), unique=True) if available else st.just([])
    )
    size = data.draw(st.integers(len(required), max(len(required), len(set(available)))))
    plugin, answering = preferring()
    plugin.wish = wish
    answer = preferred(answering, available, required, size)
    assert size == len(answer) == len(set(answer))
    assert set(required) <= set(answer) <= set(available)


def test_a_preference_is_followed_as_far_as_it_goes() -> None:
    plugin = PreferringPlugin()
    plugin.wish = ["d5", "d3", "gone"]
    answering = servicer(plugin, IDS)
    assert ["d1", "d5", "d3", "d0"] == preferred(answering, IDS, ["d1"], 4)


def test_a_preference_that_raises_is_replaced_by_the_natural_order(
    caplog: pytest.LogCaptureFixture,
) -> None:
    plugin = PreferringPlugin()
    plugin.wish = RuntimeError("no topology")  # type: ignore[assignment]
    assert ["d2", "d10"] == preferred(servicer(plugin, ["d2", "d10"]), ["d10", "d2"], [], 2)
    assert ["prefer() failed, using default order"] == [r.getMessage() for r in caplog.records]


def test_a_preference_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "_PREFER_TIMEOUT", 0.05)
    release = Event()

    class HangingPlugin(ScriptedPlugin):
        @override
        def prefer(
            self, available: Sequence[dp.Device], required: Sequence[dp.Device], size: int
        ) -> Iterable[dp.Device]:
            release.wait(10)
            return available

    assert ["d0"] == preferred(servicer(HangingPlugin(), IDS), IDS, [], 1)
    release.set()


# Pre-start.


class PreparingPlugin(ScriptedPlugin):
    @override
    def pre_start(self, devices: Sequence[dp.Device]) -> None:
        self.hooks.append(("pre_start", ",".join(device.id for device in devices)))
        if "stuck" in self.hooks[-1][1]:
            raise dp.AllocationError("reset failed")


def test_pre_start_is_given_the_devices_healthy_or_not_and_may_refuse(kubelet: Kubelet) -> None:
    """A container that restarts keeps a device that has become unhealthy."""
    plugin = PreparingPlugin("d2", sick("d10"), "stuck")
    with kubelet.running(plugin) as node:
        node.wait_for(RESOURCE, {"d2", "stuck"}, {"d10"})
        node.pre_start("d10", "d2")
        assert ("pre_start", "d2,d10") == plugin.hooks[-1]
        with pytest.raises(grpc.RpcError) as info:
            node.pre_start("stuck")
    said = 'invalid pre-start request for "example.com/thing": reset failed'
    assert (grpc.StatusCode.FAILED_PRECONDITION, said) == refusal(info)


class Both(PreferringPlugin, PreparingPlugin):
    """Has both of the optional hooks."""


def test_only_what_is_overridden_is_offered(kubelet: Kubelet) -> None:
    with kubelet.running(ScriptedPlugin("a"), Both("b", resource="example.com/both")) as node:
        node.wait_for(RESOURCE, {"a"})
        node.wait_for("example.com/both", {"b"})
        options = [node.kubelet.options(name) for name in (RESOURCE, "example.com/both")]
        assert [(False, False), (True, True)] == [
            (option.pre_start_required, option.get_preferred_allocation_available)
            for option in options
        ]
        assert ["a"] == node.prefer(["a"], 1, resource=RESOURCE)
        node.pre_start("a", resource=RESOURCE)


class SpeechlessError(dp.AllocationError):
    @override
    def __str__(self) -> str:
        raise ZeroDivisionError


def raising(error: Exception) -> None:
    raise error


def failed(cause: Exception) -> dp.DevicePluginError:
    """Return what becomes of ``cause`` where a hook raises it."""
    with pytest.raises(HookFailedError) as info:
        call(raising, cause)
    return info.value


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (dp.AllocationError("busy"), "busy"),
        (dp.AllocationError(" two\nlines "), "two lines"),
        (dp.AllocationError(" \n"), "AllocationError was raised without a message"),
        (dp.UnknownDeviceError(None), "UnknownDeviceError was raised without a message"),  # type: ignore[arg-type]
        (SpeechlessError("x"), "SpeechlessError was raised without a message"),
        (failed(OSError(None)), "OSError was raised without a message"),
        (dp.AllocationError("x" * 400), "x" * 400),
        (dp.AllocationError("x" * 401), "x" * 397 + "..."),
        (dp.AllocationError("é" * 300), "é" * 198 + "..."),
        (dp.AllocationError("g\udcff"), "g?"),
    ],
)
def test_the_kubelet_is_told_a_short_reason_whatever_was_raised(
    error: dp.DevicePluginError, reason: str
) -> None:
    assert reason == reason_of(error)


# Admission.


Defer = Callable[[Callable[[], None]], Any]


class Register(IdleTracker):
    """Notes what is admitted, and how it ended."""

    def __init__(self) -> None:
        super().__init__()
        self.entries: list[tuple[str, list[str], str]] = []

    @override
    @contextmanager
    def admit(self, resource: Resource, ids: Collection[str], defer: Defer) -> Iterator[None]:
        try:
            yield
        except dp.AllocationError as error:
            self.entries.append((resource.name, list(ids), str(error)))
            raise
        self.entries.append((resource.name, list(ids), "given"))


class ReluctantPlugin(ScriptedPlugin):
    """Gives nothing but d0."""

    @override
    def allocate(self, devices: Sequence[dp.Device]) -> dp.Allocation:
        if [device.id for device in devices] != ["d0"]:
            raise dp.AllocationError("not today")
        return super().allocate(devices)


def test_each_container_s_devices_are_admitted_around_their_allocation() -> None:
    register = Register()
    answering = servicer(ReluctantPlugin(), IDS, register)
    asyncio.run(answering._allocate(["d0", "d0"]))
    with pytest.raises(dp.AllocationError):
        asyncio.run(answering._allocate(["d2", "d1"]))
    with pytest.raises(dp.DevicePluginError):
        asyncio.run(answering._allocate(["unknown"]))  # so nobody needs to be asked
    assert [(RESOURCE, ["d0"], "given"), (RESOURCE, ["d1", "d2"], "not today")] == register.entries


class SlowRegister(Register):
    """Takes its time, and says in which thread that was."""

    threads: list[str] = []  # noqa: RUF012 - a test has one

    @override
    @contextmanager
    def admit(self, resource: Resource, ids: Collection[str], defer: Defer) -> Iterator[None]:
        self.threads.append(threading.current_thread().name)
        if ids == ["d1"]:
            raise dp.AllocationError("not yet released")
        yield

    @override
    def may_wait(self, resource: Resource) -> bool:
        return True


def test_an_admission_that_may_take_long_keeps_nobody_else_waiting() -> None:
    answering = servicer(ScriptedPlugin(), IDS, SlowRegister())
    asyncio.run(answering._allocate(["d0"]))
    with pytest.raises(dp.AllocationError, match="not yet released"):
        asyncio.run(answering._allocate(["d1"]))
    assert ["admission"] * 2 == SlowRegister.threads


def test_a_refusal_is_logged_even_if_the_node_has_no_thread_left(
    kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_thread(_name: str, _task: Callable[[], None]) -> NoReturn:
        raise RuntimeError("can't start new thread")

    plugin = ScriptedPlugin("a")
    with kubelet.running(plugin) as node:
        node.wait_for(RESOURCE, {"a"})
        monkeypatch.setattr(event_loop._THREADS, "run", no_thread)
        with pytest.raises(grpc.RpcError, match="unknown device: b"):
            node.allocate("b")
        plugin.exclusive = True
        with pytest.raises(grpc.RpcError, match="can't start new thread"):
            node.allocate("a")
    assert 2 == caplog.messages.count("request refused")


# Clients that go away, and clients that come in numbers.


def test_an_allocation_counts_although_its_client_has_gone(kubelet: Kubelet) -> None:
    plugin = WaitingPlugin("a")
    with kubelet.running(plugin) as node:
        node.wait_for(RESOURCE, {"a"})
        (endpoint,) = node.host._endpoints.running()
        assert endpoint.server
        ids = [pb.ContainerAllocateRequest(devices_ids=["a"])]
        with rpc.connect(endpoint.server.path) as channel:
            allocate = rpc.calls(channel, pb.DESCRIPTOR.services_by_name["DevicePlugin"])
            call = allocate["Allocate"].future(pb.AllocateRequest(container_requests=ids))
            assert plugin.asked.wait(PATIENCE)
            call.cancel()
        plugin.go_on.set()
        eventually(lambda: node.host._ownership._pods.held, "the device to count as held")


def test_one_hanging_resource_keeps_no_other_waiting(kubelet: Kubelet) -> None:
    hanging, other = WaitingPlugin("a"), ScriptedPlugin("b", resource="example.com/other")
    with (
        kubelet.running(hanging, other) as node,
        ThreadPoolExecutor(MAX_HANGING) as kubelets,
    ):
        node.wait_for(RESOURCE, {"a"})
        node.wait_for(other.resource, {"b"})
        calls = [kubelets.submit(node.allocate, "a", resource=RESOURCE) for _ in range(MAX_HANGING)]
        for _ in range(20):
            assert dp.Allocation() == node.allocate("b", resource=other.resource)
        assert not any(call.done() for call in calls)
        hanging.go_on.set()
        assert [dp.Allocation()] * MAX_HANGING == [call.result() for call in calls]


class Gone:
    """The context of a call whose client has gone, without gRPC having noticed."""

    async def write(self, _encoded: bytes) -> None:
        raise grpc.aio.BaseError


def test_a_stream_to_a_client_that_has_gone_ends_without_a_word(
    caplog: pytest.LogCaptureFixture,
) -> None:
    answering = servicer(ScriptedPlugin(), IDS)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(answering.ListAndWatch(pb.Empty(), cast("service.Context", Gone())))
    assert not answering.streams.watched
    assert [] == caplog.messages
