"""Health turns when enough looks, for long enough, say so, and not before."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import deviceplugin as dp
from deviceplugin.kit.health import SteadyHealth, Tolerance, absence

WELL = dp.Health()
ILL = dp.Health.unhealthy("hot")
WORN = dp.Health.degraded("worn out")


class Node:
    """Devices that are looked at once a second."""

    def __init__(self, **tolerance: Any) -> None:
        self.now = 0.0
        self.steady = SteadyHealth[str](Tolerance(**tolerance), lambda: self.now)

    def looks(self, text: str, *, every: float = 1.0) -> str:
        """Return the verdicts after looks: + is healthy, ~ degraded, - unhealthy."""
        verdicts = ""
        for found in text:
            self.now += every
            health = self.steady.judge("a", {"+": WELL, "~": WORN, "-": ILL}[found])
            verdicts += {"healthy": "+", "degraded": "~", "unhealthy": "-"}[health.state]
        return verdicts


@pytest.mark.parametrize(
    ("tolerance", "found", "verdicts"),
    [
        # The first look decides.
        ({"failures": 5, "successes": 5, "patience": 60, "recovery": 60}, "+-", "++"),
        ({"failures": 5, "successes": 5, "patience": 60, "recovery": 60}, "-+", "--"),
        ({}, "+-+--+", "+-+--+"),
        ({"failures": 2}, "+-+--+-", "++++-++"),
        ({"successes": 3}, "-++-+++-", "------+-"),
        ({"failures": 2, "window": 3}, "+-+-+", "+++-+"),
        ({"failures": 3, "window": 5}, "+-+-+-+-", "+++++-++"),
        ({"failures": 2, "window": 3, "successes": 2}, "+--+-++", "++----+"),
        ({"patience": 2}, "+---", "+++-"),
        ({"recovery": 2}, "-+++-", "---+-"),
        ({"failures": 2, "patience": 3}, "+-----", "++++--"),
        ({"failures": 2, "patience": 2}, "+-+---", "+++++-"),
        ({"failures": 2, "window": 4, "patience": 3}, "+-++-", "++++-"),
        # A device gets degraded and sound after as much.
        ({}, "+~+-~-+", "+~+-~-+"),
        ({"failures": 2}, "+~+~~+", "++++~+"),
        ({"successes": 3}, "~++~+++~", "~~~~~~+~"),
        ({"patience": 2, "recovery": 2}, "+~~~++~+++", "+++~~~~~~+"),
        # A check that finds it unhealthy does not turn what is only degraded, nor the reverse.
        ({"failures": 2}, "+~-~", "+++~"),
        ({"failures": 2}, "+-~-", "++++"),
        ({"failures": 2}, "~-~--", "~~~~-"),
        # What recovers is at once what it is now.
        ({"successes": 2}, "-~~+", "--~~"),
        ({"failures": 3, "successes": 2}, "~---++", "~~~--+"),
    ],
)
def test_it_turns_after_so_many_looks_and_so_many_seconds(
    tolerance: dict[str, Any], found: str, verdicts: str
) -> None:
    assert verdicts == Node(**tolerance).looks(found)


def test_a_device_that_may_be_degraded_is_due_for_a_look() -> None:
    node = Node(patience=5)
    assert "+++" == node.looks("+~~")
    node.now += 5
    assert [True, False] == [node.steady.is_due(), node.steady.is_due()]
    assert "~" == node.looks("~")
    assert WORN == node.steady.latest("a", within=1)


def test_reasons_are_weighed() -> None:
    steady = SteadyHealth[str](Tolerance(failures=2))
    assert WELL == steady.weigh("a", certain=[""], doubtful=["", ""], wear=[])
    assert WELL == steady.weigh("a", doubtful=["slow", "loud"], wear=["worn out"])
    assert dp.Health.unhealthy("slow; loud") == steady.weigh("a", doubtful=["slow", "loud"])
    assert WELL == steady.weigh("a")
    assert dp.Health.unhealthy("hot; slow") == steady.weigh("a", certain=["hot"], doubtful=["slow"])
    worn = dp.Health.degraded("old; thin")
    assert worn == steady.weigh("a", wear=["old", "", "thin"])
    assert worn == steady.weigh("a", doubtful=["slow"], wear=["old", "thin"])


def test_the_reason_is_that_of_the_latest_look_that_agrees() -> None:
    steady = SteadyHealth[str](Tolerance(successes=2))
    steady.judge("a", ILL)
    other = dp.Health.unhealthy("very hot")
    assert other == steady.judge("a", other)
    assert other == steady.judge("a", WELL)


def test_what_leaves_no_doubt_counts_at_once_and_begins_anew() -> None:
    node = Node(failures=3, successes=2)
    assert "++" == node.looks("+-")
    assert ILL == node.steady.judge("a", ILL, at_once=True)
    assert "-+" == node.looks("++")
    assert "++-" == node.looks("---")


def test_a_tolerance_can_be_given_with_each_look() -> None:
    steady = SteadyHealth[tuple[str, int]](Tolerance(failures=2))
    keys = ("a", 1), ("a", 2)
    for key in keys:
        steady.judge(key, WELL)
    assert [True, False] == [
        bool(steady.judge(key, ILL, tolerance))
        for key, tolerance in zip(keys, [None, Tolerance()], strict=True)
    ]


def test_how_it_was_lately_can_be_asked_for_without_a_look() -> None:
    node = Node()
    assert node.steady.latest("a", within=10) is None
    node.looks("-")
    node.now += 9
    assert ILL == node.steady.latest("a", within=10)
    node.now += 1
    assert node.steady.latest("a", within=10) is None


def test_a_look_is_due_when_only_time_is_missing() -> None:
    node = Node(patience=5, failures=2)
    assert not node.steady.is_due()
    node.looks("+-")
    node.now += 100
    assert not node.steady.is_due(), "one look is not enough, whenever it is"
    node.looks("+--")
    node.now += 3.5
    assert not node.steady.is_due()
    node.now += 0.5
    assert node.steady.is_due()
    assert "-" == node.looks("-")
    assert not node.steady.is_due()


def test_nobody_need_ask_before_a_check_can_be_due() -> None:
    node = Node(patience=5, recovery=30)
    assert 5 == node.steady.until_due()
    node.looks("+-")
    node.now += 4
    left = node.steady.until_due()
    assert not node.steady.is_due()
    node.now += left
    assert 0 == node.steady.until_due()
    assert node.steady.is_due()
    assert 5 == node.steady.until_due(), "whatever others find"


def test_with_several_checks_the_last_of_them_can_make_it_due_sooner() -> None:
    node = Node(patience=20, failures=2)
    node.looks("+-")
    node.now += 15
    left = node.steady.until_due()
    assert 0 < left < 20
    node.looks("-")
    assert left - 1 <= node.steady.until_due() <= left
    node.now += 100
    node.looks("+-")
    node.now += 100
    assert 20 == node.steady.until_due(), "the next check turns it at once"


@pytest.mark.parametrize(("recovery", "looks", "left"), [(0, "+-", float("inf")), (5, "-+-", 5)])
def test_health_that_turns_at_once_or_has_not_changed_is_not_due(
    recovery: float, looks: str, left: float
) -> None:
    node = Node(recovery=recovery)
    node.looks(looks)
    node.now += 100
    assert (left, False) == (node.steady.until_due(), node.steady.is_due())


def test_devices_that_are_gone_begin_anew_when_they_are_back() -> None:
    steady = SteadyHealth[str](Tolerance(successes=5, recovery=60))
    for key in ("a", "b", "c"):
        steady.judge(key, ILL)
    steady.keep({"a", "b"})
    steady.forget("b")
    steady.forget("none")
    assert [False, True, True] == [bool(steady.judge(key, WELL)) for key in ("a", "b", "c")]


@pytest.mark.parametrize(
    "wrong",
    [
        {"failures": 0},
        {"successes": 0},
        {"patience": -1},
        {"recovery": -0.1},
        {"failures": 3, "window": 2},
    ],
)
def test_a_tolerance_that_nothing_can_meet_is_an_error(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"Tolerance.*: "):
        Tolerance(**wrong)


@given(st.text("+-", max_size=60), st.integers(1, 4), st.integers(0, 4), st.integers(1, 4))
def test_it_never_turns_against_a_look_nor_without_enough_of_them(
    found: str, failures: int, more: int, successes: int
) -> None:
    window = failures + more
    verdicts = Node(failures=failures, window=window, successes=successes).looks(found)
    for number in range(1, len(found)):
        if verdicts[number] != verdicts[number - 1]:
            assert found[number] == verdicts[number]
            wanted = failures if verdicts[number] == "-" else successes
            seen = window if verdicts[number] == "-" else successes
            assert found[max(0, number - seen + 1) : number + 1].count(found[number]) >= wanted
    streak = max(window, successes)
    assert found[-streak:] != "-" * streak or verdicts[-1:] != "+"
    assert found[-streak:] != "+" * streak or verdicts[-1:] != "-"


def test_many_threads_can_judge() -> None:
    steady = SteadyHealth[int](Tolerance(failures=3))
    with ThreadPoolExecutor(4) as pool:
        for number in range(400):
            pool.submit(steady.judge, number % 4, ILL if number > 7 else WELL)
        pool.submit(steady.keep, range(4))
    assert [False] * 4 == [bool(steady.latest(key, within=60)) for key in range(4)]


def test_what_is_not_there_has_a_reason(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    assert "" == absence(tmp_path / "file")
    assert f"{tmp_path}/none does not exist" == absence(tmp_path / "none")
    assert f"{tmp_path}/file/x does not exist" == absence(f"{tmp_path}/file/x")
    assert f"{tmp_path}/loop: Too many levels of symbolic links" == absence(tmp_path / "loop")
