"""What claims say of the health of their devices, and what that costs the API server."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from typing_extensions import override

from cluster.dra_objects import Simulated
from deviceplugin._app.dra_claims import Claims
from deviceplugin._attribution.ownership import Claim
from deviceplugin._dra import claim_status
from deviceplugin._dra.claim_status import edits
from deviceplugin_testing.simulator._control_plane.refusals import RefusedError
from dra.reporting import DRIVER, POOL, Reporting

OLD = "2026-01-01T00:00:00Z"


@pytest.fixture
def make() -> Iterator[Simulated]:
    with Simulated() as running:
        yield running


def allocated(make: Simulated, name: str = "c") -> Claim:
    """Create a claim that has the device d0."""
    uid = make.claim(name)["metadata"]["uid"]
    results = [{"request": "r", "driver": DRIVER, "pool": POOL, "device": "d0"}]
    status = {"allocation": {"devices": {"results": results}}}
    make.cluster.change("ResourceClaim", name, lambda draft: draft.update(status=status))
    return Claim("default", name, uid)


def many(make: Simulated, count: int) -> list[Claim]:
    return [allocated(make, f"c{number}") for number in range(count)]


def devices(make: Simulated, name: str = "c") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = make.get("ResourceClaim", name)["status"].get("devices", [])
    return found


def said(make: Simulated, name: str = "c") -> list[tuple[str, ...]]:
    """Return what a claim says of its device."""
    keys = ("type", "status", "reason", "message")
    conditions = [one for each in devices(make, name) for one in each["conditions"]]
    return [tuple(one[key] for key in keys) for one in conditions]


def asked(make: Simulated) -> list[str]:
    """Return the verbs of the requests about claims, without those of the test."""
    found = make.cluster.requests
    return [one.verb for one in found if one.verb in {"get", "patch"} and "claims" in one.resource]


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.message for one in caplog.records if one.name.startswith("deviceplugin.")]


@pytest.fixture(autouse=True)
def all_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


READY = ("Ready", "True", "Prepared", "")


@pytest.mark.parametrize(
    ("health", "condition"),
    [
        (("healthy", "worn"), ("Healthy", "True", "Healthy", "worn")),
        (("unhealthy", "too hot"), ("Healthy", "False", "Unhealthy", "too hot")),
        (("unknown", "x" * 2000), ("Healthy", "Unknown", "Unknown", "x" * 1021 + "...")),
    ],
)
def test_a_prepared_claim_says_whether_its_device_is_healthy(
    make: Simulated, health: tuple[Any, str], condition: tuple[str, ...]
) -> None:
    reporting = Reporting(make.api, [allocated(make)])
    reporting.say(*health)
    assert [READY, condition] == said(make)
    assert ["get", "patch"] == asked(make)
    reporting.say(*health)
    assert ["get", "patch"] == asked(make)


def test_a_new_process_reads_each_claim_and_writes_none(make: Simulated) -> None:
    claims = many(make, 3)
    Reporting(make.api, claims).say("unhealthy", "too hot")
    again = Reporting(make.api, claims)
    again.say("unhealthy", "too hot")
    assert [] == again.writes
    assert 2 * 3 + 3 == len(asked(make))


def test_the_time_of_a_condition_is_that_of_its_status(make: Simulated) -> None:
    reporting = Reporting(make.api, [allocated(make)])
    reporting.say("healthy")

    def age(draft: dict[str, Any]) -> None:
        for one in draft["status"]["devices"][0]["conditions"]:
            one["lastTransitionTime"] = OLD

    make.cluster.change("ResourceClaim", "c", age)
    reporting.say("unhealthy", "too hot")
    times = {one["type"]: one["lastTransitionTime"] for one in devices(make)[0]["conditions"]}
    assert OLD == times["Ready"]
    assert times["Healthy"] > OLD


def test_a_message_that_counts_is_written_every_five_minutes_at_most(make: Simulated) -> None:
    reporting = Reporting(make.api, [allocated(make)])
    for seconds in range(0, 610, 10):
        reporting.clock.time = seconds
        reporting.say("unhealthy", f"silent for {seconds} s")
    assert 3 == len(reporting.writes)
    reporting.say("healthy")
    assert ("Healthy", "True", "Healthy", "") == said(make)[1]


def test_what_others_have_changed_is_found_by_reading_six_claims_an_hour(make: Simulated) -> None:
    reporting = Reporting(make.api, many(make, 3))
    reporting.say("healthy")
    before = len(asked(make))
    for name in ("c0", "c1", "c2"):
        make.cluster.change("ResourceClaim", name, lambda draft: draft["status"].update(devices=[]))
    for _ in range(60):
        reporting.clock.time += 60
        reporting.say("healthy")
    assert [READY, ("Healthy", "True", "Healthy", "")] * 3 == [
        *said(make, "c0"),
        *said(make, "c1"),
        *said(make, "c2"),
    ]
    assert 6 + 3 == len(asked(make)) - before


def entry(driver: str, *conditions: Mapping[str, object], **more: Any) -> dict[str, Any]:
    return {"driver": driver, "pool": POOL, "device": "d0", "conditions": conditions, **more}


def test_only_what_is_ours_is_written() -> None:
    place = (POOL, "d0", "")
    mine = {"type": "Ready", "status": "True", "reason": "R", "message": ""}
    timed = {**mine, "lastTransitionTime": OLD, "observedGeneration": 3}
    cable = {"type": "Cable", "status": "True"}
    other, ours = entry("other"), entry(DRIVER, cable, timed, data={"a": 1})
    assert [] == edits([other, {**ours, "conditions": [cable, timed]}], DRIVER, {place: [mine]})
    (change,) = edits([other, ours], DRIVER, {place: [{**mine, "reason": "S"}]})
    expected = {**ours, "conditions": [cable, {**timed, "reason": "S"}]}
    assert ("/status/devices/1", expected) == (change["path"], change["value"])
    (change,) = edits([other], DRIVER, {(POOL, "d0", "uuid"): []})
    assert ("/status/devices/-", "uuid") == (change["path"], change["value"]["shareID"])
    assert [] == edits([other, ours], DRIVER, {})


def gone(make: Simulated) -> None:
    make.cluster.delete("ResourceClaim", "c")


def made_again(make: Simulated) -> None:
    gone(make)
    allocated(make)


def deallocated(make: Simulated) -> None:
    make.cluster.change("ResourceClaim", "c", lambda draft: draft.update(status={}))


@pytest.mark.parametrize("happens", [gone, made_again, deallocated])
def test_a_claim_that_is_not_as_it_was_is_asked_for_once(
    make: Simulated, happens: Callable[[Simulated], None], caplog: pytest.LogCaptureFixture
) -> None:
    reporting = Reporting(make.api, [allocated(make)])
    happens(make)
    for _ in range(3):
        reporting.say("healthy")
    assert (["get"], [], []) == (asked(make), reporting.writes, lines(caplog))


@pytest.mark.parametrize(
    ("times", "logged"),
    [(1, []), (9, ["claim status not written", "claim status written again"])],
)
def test_a_claim_that_changes_in_between_is_read_again(
    make: Simulated, times: int, logged: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    conflict = RefusedError(409, "Conflict", "the object has been modified")
    make.cluster.faults.refuse(conflict, times, matches=lambda wanted: wanted.verb == "patch")
    reporting = Reporting(make.api, [allocated(make)])
    for _ in range(times + 1):
        reporting.say("healthy")
    assert ([*[False] * times, True], logged) == (reporting.writes, lines(caplog))


def test_an_api_server_that_is_away_is_asked_seldom_and_reported_once(
    make: Simulated, caplog: pytest.LogCaptureFixture
) -> None:
    reporting = Reporting(make.api, many(make, 8))
    make.cluster.faults.overload(after=7)
    for _ in range(30):
        reporting.say("unhealthy", "too hot")
    assert 30 == len(asked(make))
    assert reporting.clock.time > 30 * 7
    make.cluster.faults.end()
    reporting.say("unhealthy", "too hot")
    assert 8 == len(reporting.writes)
    assert ["claim status not written", "claim status written again"] == lines(caplog)


def test_after_a_burst_a_claim_is_asked_for_each_second(
    make: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim_status, "_BURST", 3)
    reporting = Reporting(make.api, many(make, 8))
    while len(reporting.writes) < 8:
        reporting.say("healthy")
    assert 5 <= reporting.clock.time <= 6
    reporting.records.clear()
    reporting.say("healthy")
    assert {} == reporting.status._known


def test_a_device_that_flaps_holds_up_no_other_claim(
    make: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim_status, "_BURST", 1)
    reporting = Reporting(make.api, many(make, 3))
    wrong = RefusedError(500, "InternalError", "etcdserver: request is too large")
    make.cluster.faults.refuse(wrong, matches=lambda wanted: wanted.name == "c1")
    for _ in range(6):
        reporting.say("unhealthy")
        reporting.say("healthy")
    assert [2, 2, 2] == [len(said(make, one)) for one in ("c0", "c1", "c2")]


FORBIDDEN = RefusedError(403, "Forbidden", "cannot patch")
DENIED = RefusedError(422, "Invalid", "ValidatingAdmissionPolicy denied request", {})


@pytest.mark.parametrize("error", [FORBIDDEN, DENIED])
def test_without_the_right_one_claim_is_tried_every_ten_minutes(
    make: Simulated, error: RefusedError, caplog: pytest.LogCaptureFixture
) -> None:
    reporting = Reporting(make.api, many(make, 3))
    make.cluster.faults.refuse(error, 4, matches=lambda wanted: wanted.verb == "patch")
    for _ in range(4):
        before = reporting.clock.time
        reporting.say("healthy")
        assert 540 <= reporting.clock.time - before <= 605
    names = [one.name for one in make.cluster.requests if one.verb == "patch"]
    assert ["c0", "c1", "c2", "c0"] == names
    reporting.say("healthy")
    assert 3 == reporting.writes.count(True)
    assert ["claim status not written", "claim status written again"] == lines(caplog)
    assert "set claim-status to false" in caplog.records[0].__dict__["error"]


def test_one_claim_that_is_refused_does_not_hold_up_the_others(
    make: Simulated, caplog: pytest.LogCaptureFixture
) -> None:
    claims = many(make, 3)
    reporting = Reporting(make.api, claims[:1])
    reporting.say("healthy")
    reporting.records |= {one.uid: reporting.record(one) for one in claims}
    make.cluster.faults.refuse(
        DENIED, 9, matches=lambda wanted: wanted.verb == "patch" and wanted.name == "c1"
    )
    for _ in range(9):
        reporting.say("healthy")
    assert [True, False, True, False] == reporting.writes
    assert reporting.clock.time < 10
    assert [
        "claim status not written",
        "claim status refused",
        "claim status written again",
    ] == lines(caplog)


def test_a_token_that_is_not_valid_for_a_while_costs_no_claim_its_status(make: Simulated) -> None:
    reporting = Reporting(make.api, [allocated(make)])
    reporting.say("healthy")
    expired = RefusedError(401, "Unauthorized", "Unauthorized")
    make.cluster.faults.refuse(expired, 4)
    for _ in range(5):
        reporting.say("unhealthy", "too hot")
    assert ("Healthy", "False", "Unhealthy", "too hot") == said(make)[1]
    assert reporting.clock.time < 100


class Odd(Claims):
    """Claims of an API server that answers what it should not."""

    answer: Mapping[str, Any] = {}

    @override
    def get(self, namespace: str, name: str, timeout: float = 0.0) -> Mapping[str, Any]:
        return {**super().get(namespace, name, timeout), **self.answer}

    @override
    def edit_status(self, claim: Claim, operations: Sequence[dict[str, Any]]) -> Mapping[str, Any]:
        return {}


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ({}, "the API server drops it: enable the feature gate DRAResourceClaimDeviceStatus"),
        ({"metadata": {}}, "KeyError('uid')"),
        ({"status": 3}, "AttributeError(\"'int' object has no attribute 'get'\")"),
    ],
)
def test_an_answer_that_is_not_as_it_should_be_is_reported_once(
    make: Simulated, answer: Any, error: str, caplog: pytest.LogCaptureFixture
) -> None:
    reporting = Reporting(make.api, [allocated(make)])
    reporting.status.claims = odd = Odd(make.api, lambda: None)
    odd.answer = answer
    for _ in range(3):
        reporting.say("healthy")
    (line,) = caplog.records
    assert ("claim status refused", error) == (line.message, line.__dict__["error"])


def test_what_is_released_while_others_are_written_is_left_alone(make: Simulated) -> None:
    reporting = Reporting(make.api, many(make, 3))
    reporting.status.count = lambda _succeeded: reporting.records.clear()
    reporting.say("healthy")
    assert ["get", "patch"] == asked(make)


def test_what_is_not_prepared_yet_is_left_alone(make: Simulated) -> None:
    reporting = Reporting(make.api, [claim := allocated(make)])
    reporting.records[claim.uid] = replace(reporting.records[claim.uid], state="preparing")
    reporting.say("healthy")
    assert [] == asked(make)
