"""Reading a claim while the kubelet waits: what is asked again, for how long, and what is not."""

import threading
from collections.abc import Iterator, Mapping
from itertools import repeat
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

import deviceplugin as dp
from deviceplugin._attribution.ownership import Claim
from deviceplugin._dra.claims.reading import PatientReader
from deviceplugin._platform import rpc
from deviceplugin._platform.api_errors import UnavailableError, error_of
from drivers.driver_node import DRIVER, ClaimStore, result
from drivers.running_driver import DriverClient, RunningDriver
from held_clock import HeldClock
from patience import PATIENCE, eventually

CALL = 40.0
"""Seconds of a call, without its reserve."""
CLAIM = Claim("default", "one", "uid-one")
LOST = UnavailableError("the connection was reset")


class Reading:
    """A read in a thread of its own, by a clock that passes from wait to wait."""

    def __init__(self, reader: PatientReader, clock: HeldClock, seconds: float = CALL) -> None:
        self.seconds = seconds
        self.found: Mapping[str, Any] | None = None
        self.error = ""
        self._reader, self._clock = reader, clock
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            left = lambda: self.seconds - self._clock.now()  # noqa: E731
            for claim, attempt in self._reader.attempts([CLAIM], left):
                self.found = self._reader.read(claim, left, attempt)
        except dp.DevicePluginError as error:
            self.error = str(error)

    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def finish(self) -> "Reading":
        """Let time pass until the end."""

        def over() -> bool:
            self._clock.end_waits()
            return self.is_over()

        eventually(over, "the end")
        return self

    def join(self) -> "Reading":
        """Wait until the end, without letting time pass."""
        self._thread.join(PATIENCE)
        assert self.is_over()
        return self


@pytest.fixture
def clock() -> HeldClock:
    return HeldClock()


@pytest.fixture
def store() -> ClaimStore:
    store = ClaimStore()
    store.objects["default", "one"] = {"kind": "ResourceClaim"}
    return store


@pytest.fixture
def reader(store: ClaimStore, clock: HeldClock) -> PatientReader:
    return PatientReader(store, clock)


@pytest.mark.parametrize("status", [0, 408, 429, 500, 502, 503, 504])
def test_one_lost_answer_costs_a_pod_less_than_five_seconds(
    status: int, store: ClaimStore, reader: PatientReader, clock: HeldClock
) -> None:
    after = "1" if status == 429 else ""
    store.failures = iter([error_of(status, {}, after)])
    assert store.objects["default", "one"] == Reading(reader, clock).finish().found
    first, _ = store.reads
    assert clock.now() >= float(after or 0)
    assert first + clock.now() < 5


def test_a_pod_starts_within_five_seconds_of_the_end_of_an_outage(
    store: ClaimStore, reader: PatientReader, clock: HeldClock, caplog: pytest.LogCaptureFixture
) -> None:
    outage = 30.0

    def failures() -> Iterator[UnavailableError]:
        while clock.now() < outage:
            yield LOST

    store.failures = failures()
    assert Reading(reader, clock).finish().found is not None
    assert outage <= clock.now() < outage + 5
    assert len(store.reads) < outage, "a storm"
    assert ["waiting for the API server"] == [one.message for one in caplog.records]


def test_the_kubelet_is_answered_in_time_and_hooks_would_have_had_theirs(
    store: ClaimStore, reader: PatientReader, clock: HeldClock
) -> None:
    store.failures = repeat(LOST)
    assert str(LOST) == Reading(reader, clock).finish().error
    assert CALL / 2 < clock.now() <= CALL - 5
    first, second, *_, last = store.reads
    assert (2.5, 10.0) == (first, second), "later attempts have more time"
    assert last < 10, "unless the call has less"


def test_a_server_that_asks_for_more_time_than_the_call_has_is_not_asked_again(
    store: ClaimStore, reader: PatientReader, clock: HeldClock
) -> None:
    store.failures = iter([error_of(429, {}, "60")])
    assert "429" in Reading(reader, clock).join().error
    assert 1 == len(store.reads)


@pytest.mark.parametrize("status", [401, 403, 404, 422])
def test_what_the_server_refuses_is_not_asked_again(
    status: int, store: ClaimStore, reader: PatientReader, clock: HeldClock
) -> None:
    for failures in ([], [LOST]):
        store.failures, store.reads = iter([*failures, error_of(status, {}, "1")]), []
        assert str(status) in Reading(reader, clock).finish().error
        assert 1 + len(failures) == len(store.reads)


def test_a_shutdown_ends_the_wait_and_nobody_waits_afterwards(
    store: ClaimStore, reader: PatientReader, clock: HeldClock
) -> None:
    store.failures = repeat(LOST)
    reading = Reading(reader, clock)
    clock.wait_for_wait()
    reader.close()
    assert str(LOST) == reading.join().error
    assert str(LOST) == Reading(reader, clock).join().error


def test_only_so_many_claims_wait_that_others_can_be_released(
    store: ClaimStore, reader: PatientReader, clock: HeldClock
) -> None:
    store.failures = repeat(LOST)
    waiting = [Reading(reader, clock) for _ in range(16)]
    clock.wait_for_wait(16)
    assert str(LOST) == Reading(reader, clock).join().error
    store.failures = iter(())
    assert all(one.finish().found for one in waiting)


def test_a_call_that_fails_waits_for_no_read_that_it_began(clock: HeldClock) -> None:
    hangs, ended = threading.Event(), []

    class Claims:
        def get(self, _namespace: str, name: str, _timeout: float = 0.0, /) -> Mapping[str, Any]:
            if name == "slow":
                hangs.wait(PATIENCE)
                ended.append(name)
            return {"name": name}

    claims = [CLAIM, Claim("default", "slow", "uid-slow")]
    attempts = PatientReader(Claims(), clock).attempts(claims, lambda: CALL)
    claim, attempt = next(attempts)
    assert (CLAIM, {"name": "one"}) == (claim, attempt())
    del attempts
    assert not ended
    hangs.set()
    eventually(lambda: ended, "the end of the read")


def test_a_kubelet_that_has_hung_up_is_not_waited_for(clock: HeldClock) -> None:
    with TemporaryDirectory(prefix="dra-") as path:
        driver = RunningDriver(Path(path))
        driver.start(clock)
        try:
            hang_up(driver, clock)
        finally:
            driver.close()


def hang_up(driver: RunningDriver, clock: HeldClock) -> None:
    """Cancel a call whose claim cannot be read, and wait until it has failed."""
    driver.register()
    driver.node.store.failures = repeat(LOST)
    claim = driver.node.allocate("one", result("gary"))
    with rpc.connect(driver.service_socket) as channel:
        call = DriverClient(channel).begin_prepare(claim)
        eventually(lambda: driver.node.store.reads, "the first attempt")
        call.cancel()

        def failed() -> bool:
            clock.advance(0.02)
            labels = driver.node.metrics.claim_calls.labels(DRIVER, "prepare", "FAILED")
            return bool(labels.value)

        eventually(failed, "the end of the wait")
    assert clock.now() < CALL / 2
