"""Each scripted fault, as a kubelet and an operator see it."""

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from threading import Event
from typing import Any

import grpc
import pytest

import deviceplugin as dp
from containers.unshare import POSSIBLE
from deviceplugin._config import parameters
from deviceplugin_simulated import SimulatedParameters, SimulatedPlugin, SimulatedSettings
from deviceplugin_testing.fixture import Kubelet, Node
from patience import PATIENCE, eventually

GPU = "example.com/gpu"
HOUR = timedelta(hours=1)


class HandClock:
    """Time goes on when somebody says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


Write = Callable[..., SimulatedSettings]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(*timeline: dict[str, Any], **settings: Any) -> SimulatedSettings:
        path = tmp_path / "devices.json"
        path.write_text(json.dumps({"resources": {GPU: {"count": 3}}, "timeline": list(timeline)}))
        return SimulatedSettings(devices=path, **settings)

    return written


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


def at(second: int, action: str, *devices: str, **more: str) -> dict[str, Any]:
    entry = {"at": f"{second}s", "do": action, **more}
    return {**entry, "devices": list(devices)} if devices else entry


@contextmanager
def running(kubelet: Kubelet, plugin: dp.Plugin, **settings: Any) -> Iterator[Node]:
    with kubelet.running(plugin, **settings) as node:
        node.wait_for(GPU, {"gpu-0", "gpu-1", "gpu-2"})
        yield node


def refusal(node: Node, *ids: str) -> grpc.RpcError:
    with pytest.raises(grpc.RpcError) as raised:
        node.allocate(*ids)
    return raised.value


# Faults of devices.


def test_faults_of_devices_are_seen_by_the_kubelet_until_they_end(
    kubelet: Kubelet, write: Write, clock: HandClock
) -> None:
    timeline = [
        at(1, "unhealthy", "gpu-1", reason="too hot"),
        at(2, "recover", "gpu-1"),
        at(3, "unplug", "gpu-1"),
        at(4, "plug", "gpu-1"),
        at(5, "unplug"),
    ]
    plugin = SimulatedPlugin(write(*timeline), clock=clock)
    grace = timedelta(milliseconds=100)
    with running(kubelet, plugin, vanished_grace=grace) as node:
        clock.now += 1
        node.wait_for(GPU, {"gpu-0", "gpu-2"}, {"gpu-1"})
        assert "unhealthy device: gpu-1 (too hot)" in str(refusal(node, "gpu-1"))
        clock.now += 1
        node.wait_for(GPU, {"gpu-0", "gpu-1", "gpu-2"})
        clock.now += 1
        node.wait_for(GPU, {"gpu-0", "gpu-2"})
        assert "unknown device: gpu-1" in str(refusal(node, "gpu-1"))
        clock.now += 1
        node.wait_for(GPU, {"gpu-0", "gpu-1", "gpu-2"})
        clock.now += 1
        node.wait_for(GPU, ())
        node.kubelet.wait(lambda: set() == node.kubelet.registered)
        node.host.replace([SimulatedPlugin(write(*timeline), clock=clock)])  # from its beginning
        node.wait_for(GPU, {"gpu-0", "gpu-1", "gpu-2"})


@pytest.mark.parametrize(
    ("action", "kind"),
    [
        ("unplug", dp.UnknownDeviceError),
        ("unhealthy", dp.UnhealthyDeviceError),
        ("fail", dp.AllocationError),
    ],
)
def test_a_fault_counts_for_an_allocation_before_the_kubelet_has_been_told(
    write: Write, clock: HandClock, action: str, kind: type[Exception]
) -> None:
    plugin = SimulatedPlugin(write(at(1, action, "gpu-1")), clock=clock)
    devices = list(plugin.discover())
    clock.now += 1
    plugin.allocate(devices[:1])
    with pytest.raises(kind, match="gpu-1"):
        plugin.allocate(devices)
    is_seen = action != "fail"
    assert is_seen == (devices != list(plugin.discover()))


def test_a_slow_device_takes_its_time(write: Write) -> None:
    plugin = SimulatedPlugin(
        write(at(0, "slow", "gpu-1", by="100ms"), at(0, "slow", "gpu-2", by="1h"))
    )
    devices = list(plugin.discover())
    plugin.allocate(devices[:1])
    before = time.monotonic()
    plugin.allocate(devices[:2])
    assert 0.1 <= time.monotonic() - before


# Faults of the plugin.


def test_a_plugin_that_hangs_answers_nothing_until_it_goes_on(
    kubelet: Kubelet, write: Write, clock: HandClock
) -> None:
    plugin = SimulatedPlugin(write(at(1, "hang"), at(2, "resume")), clock=clock)
    with running(kubelet, plugin) as node, ThreadPoolExecutor() as pool:
        clock.now += 1
        answer = pool.submit(node.allocate, "gpu-0")
        node.kubelet.wait(is_allocating)
        assert not answer.done()
        clock.now += 1
        assert dp.Allocation() == answer.result(PATIENCE)


def is_allocating() -> bool:
    return "hook-allocate_with" in {one.name for one in threading.enumerate()}


def test_devices_of_a_plugin_that_hangs_are_unhealthy_and_it_can_be_stopped(
    kubelet: Kubelet, write: Write, clock: HandClock
) -> None:
    timeline = [at(1, "hang"), at(2, "resume"), at(3, "hang")]
    plugin = SimulatedPlugin(write(*timeline), clock=clock)
    deadline = timedelta(milliseconds=200)
    with running(kubelet, plugin, discovery_deadline=deadline) as node:
        clock.now += 1
        node.wait_for(GPU, (), {"gpu-0", "gpu-1", "gpu-2"})
        clock.now += 1
        node.wait_for(GPU, {"gpu-0", "gpu-1", "gpu-2"})
        clock.now += 1
        node.wait_for(GPU, (), {"gpu-0", "gpu-1", "gpu-2"})
    eventually(lambda: "host" not in {one.name for one in threading.enumerate()}, "the end")


def test_a_slow_allocation_does_not_keep_a_plugin_from_stopping(
    kubelet: Kubelet, write: Write, clock: HandClock
) -> None:
    plugin = SimulatedPlugin(write(at(0, "slow", by="1h")), clock=clock)
    with ThreadPoolExecutor() as pool:
        with running(kubelet, plugin) as node:
            answer = pool.submit(node.allocate, "gpu-0")
            node.kubelet.wait(is_allocating)
        assert isinstance(answer.exception(PATIENCE), grpc.RpcError)


def test_a_plugin_crashes_once_when_its_time_has_come(
    kubelet: Kubelet, write: Write, clock: HandClock
) -> None:
    crash = Event()
    plugin = SimulatedPlugin(write(at(1, "crash")), clock=clock, crash=crash.set)
    with running(kubelet, plugin):
        assert not crash.is_set()
        clock.now += 1
        assert crash.wait(PATIENCE)
        crash.clear()
        clock.now += 1
        assert not crash.wait(0.6)


# Time.


def test_the_framework_is_woken_when_something_happens(kubelet: Kubelet, write: Write) -> None:
    timeline = [
        {"at": "300ms", "do": "unhealthy", "devices": "gpu-1"},
        {"at": "500ms", "do": "unplug", "devices": "gpu-2"},
        {"at": "700ms", "do": "recover"},
    ]
    plugin = SimulatedPlugin(write(*timeline))
    with kubelet.running(plugin, discovery_interval=HOUR, poll_interval=HOUR) as node:
        node.wait_for(GPU, {"gpu-0", "gpu-1"}, {"gpu-2"})


# What a claim may say.


def test_a_claim_gives_its_container_variables_or_is_refused(write: Write) -> None:
    plugin = SimulatedPlugin(write())
    devices = list(plugin.discover())[:1]
    given = plugin.allocate_with(devices, SimulatedParameters(environment={"TIER": "gold"}))
    assert "gold" == given.envs["TIER"]
    assert plugin.allocate(devices) == plugin.allocate_with(devices, SimulatedParameters())
    parameters = SimulatedParameters(refusal="not today", delay=timedelta(milliseconds=1))
    with pytest.raises(dp.AllocationError, match="not today"):
        plugin.allocate_with(devices, parameters)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({"environment": {"A=B": "1"}}, "environment.A=B: not a variable's name"),
        ({"environment": {"A": []}}, "environment.A: a list is not a string"),
        ({"refuse": "no"}, "refuse: unknown key: did you mean 'refusal'?"),
    ],
)
def test_what_a_claim_says_wrongly_is_named(found: Any, expected: str) -> None:
    with pytest.raises(dp.ConfigError) as info:
        parameters.read(SimulatedParameters, found)
    assert str(info.value).startswith(expected)
    numbers = parameters.read(SimulatedParameters, {"environment": {"RANK": 3}, "delay": "0s"})
    assert SimulatedParameters(environment={"RANK": "3"}) == numbers


@pytest.mark.skipif(not POSSIBLE, reason="needs root and unshare")
def test_a_crash_ends_the_first_process_of_a_container_too() -> None:
    code = "from deviceplugin_simulated.plugin import _die; _die()"
    done = subprocess.run(["unshare", "--pid", "--fork", sys.executable, "-c", code], check=False)
    assert 128 + signal.SIGKILL == done.returncode
