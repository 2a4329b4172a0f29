"""What lasts is logged when it begins and when it changes, whatever its text does by itself."""

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from deviceplugin.kit.log import Problems, few, shape

log = logging.getLogger("tests.problems")


@pytest.fixture
def problems() -> Problems:
    return Problems(log, clock=lambda: 0.0)


def texts(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [vars(record)["problem"] for record in caplog.records]


def test_a_problem_is_logged_once_until_it_changes(
    problems: Problems, caplog: pytest.LogCaptureFixture
) -> None:
    news = [
        problems.say("kubelet", said, error=error, path="/a")
        for said, error in (
            *[("waiting", "no socket")] * 3,
            ("waiting", "refused"),
            ("tired", "refused"),
        )
    ]
    assert [True, False, False, True, True] == news
    assert [
        ("WARNING", "waiting", "no socket", "/a"),
        ("WARNING", "waiting", "refused", "/a"),
        ("WARNING", "tired", "refused", "/a"),
    ] == [(r.levelname, r.message, vars(r)["error"], vars(r)["path"]) for r in caplog.records]


@pytest.mark.parametrize(
    ("text", "most"),
    [
        (lambda now: f"/d/x-{0xA10000 + now:06x}.sock: no", 29),
        (lambda now: f"no answer for {now:.1f} s", 29),
        (lambda now: "x" * (now // 90), 39),
    ],
    ids=["a name", "a time", "endless new texts"],
)
def test_a_text_that_varies_by_itself_is_logged_less_and_less(
    caplog: pytest.LogCaptureFixture, text: Callable[[int], str], most: int
) -> None:
    now = 0
    problems = Problems(log, clock=lambda: now)
    for now in range(0, 86400, 30):
        problems.say("kubelet", "waiting", error=text(now))
    assert 1 < len(caplog.messages) <= most


def test_what_goes_to_and_fro_is_logged_less_and_less(caplog: pytest.LogCaptureFixture) -> None:
    now = 0
    problems = Problems(log, clock=lambda: now)
    for now in range(300):
        problems.say("kubelet", "waiting", error=("no socket", "refused")[now % 2])
    assert 4 == len(caplog.messages)  # two at once, one after 60 s and one after another 120 s


def test_texts_that_say_the_same_have_one_shape_and_long_ones_take_no_time() -> None:
    assert shape("no answer for 3.5 s from 0x7f01") == shape("no answer for 12 s from 0xbeef2")
    assert shape("no answer") != shape("no socket")
    for text in ("a" * 100_000, "7" * 100_000, "a." * 50_000):
        assert len(shape(text)) in {1, 1000}


def test_a_cause_is_logged_with_its_traceback(
    problems: Problems, caplog: pytest.LogCaptureFixture
) -> None:
    problems.say("kubelet", "failed", cause=ValueError("odd"))
    assert "ValueError: odd" == (caplog.records[0].exc_text or "").splitlines()[-1]


def test_a_problem_that_is_over_or_forgotten_is_logged_again_when_it_comes_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    problems = Problems(log, logging.ERROR, clock=lambda: 0.0)

    def say() -> list[bool]:
        return [problems.say(subject, "waiting") for subject in ("a", "b")]

    assert not problems.over("a")
    assert [[True, True], [False, False]] == [say(), say()]
    assert [True, False] == [problems.over("a"), problems.over("a")]
    assert [True, False] == say()
    problems.keep({"a"})
    assert [False, True] == say()
    assert {"ERROR"} == {record.levelname for record in caplog.records}


def test_however_many_threads_meet_a_problem_it_is_logged_once(
    problems: Problems, caplog: pytest.LogCaptureFixture
) -> None:
    with ThreadPoolExecutor(8) as pool:
        news = [pool.submit(problems.say, "a", "waiting") for _ in range(200)]
    assert 1 == sum(one.result() for one in news)
    assert ["waiting"] == caplog.messages


# Lists.


def lists(problems: Problems, *given: Sequence[str]) -> None:
    for one in given:
        problems.say_all("skipped", one)


def test_each_of_a_list_is_logged_when_it_is_new(
    problems: Problems, caplog: pytest.LogCaptureFixture
) -> None:
    lists(problems, ["port 1: odd"], ["port 0: odd", "port 1: odd"], ["port 1: odd", "port 2: odd"])
    assert ["port 1: odd", "port 0: odd"] == texts(caplog)  # 2 took the place of 0, and waits
    problems.say_all("skipped", ["port 1: odd", "port 2: odd", "port 3: odd"])
    assert "port 3: odd" == texts(caplog)[-1]


def test_one_of_a_list_that_was_away_is_logged_again(
    problems: Problems, caplog: pytest.LogCaptureFixture
) -> None:
    lists(problems, ["a", "b"], ["b"], ["a", "b"], ["a", "b"])
    assert ["a", "b", "a"] == texts(caplog)


def test_one_of_a_list_that_varies_by_itself_is_logged_less_and_less(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = 0
    problems = Problems(log, clock=lambda: now)
    for now in range(0, 86400, 30):
        problems.say_all("skipped", [f"gone for {now} s", f"gone for {now + 1} s", "odd"])
    assert 1 == texts(caplog).count("odd")
    assert 4 < len(caplog.messages) < 60


def test_of_a_long_list_ten_are_logged_and_how_many_more(
    problems: Problems, caplog: pytest.LogCaptureFixture
) -> None:
    many = [f"{letter}: odd" for letter in "abcdefghijklm"]
    lists(problems, [*many, *many], many, many[:10], many)
    assert [*many[:10], "3 more", "3 more"] == texts(caplog)
    problems.say_all("skipped", ["odd"], plugin="SerialPlugin")
    assert "SerialPlugin" == vars(caplog.records[-1])["plugin"]


def test_lists_that_grow_and_shrink_at_random_never_lose_what_stays(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What is in the list for hours has been logged, whatever took the place of what."""
    now = 0
    problems = Problems(log, clock=lambda: now)
    for number in range(120):
        now = 60 * number
        problems.say_all("skipped", ["stays 1", *(f"stays {n}" for n in range(2, 3 + number % 3))])
    assert {"stays 1", "stays 2", "stays 3", "stays 4"} == set(texts(caplog))


def test_a_problem_that_nobody_reports_any_more_is_over_by_itself() -> None:
    now = iter([0.0, 1.0, 59.0, 118.0, 179.0, 180.0])
    problems = Problems(log, clock=lambda: next(now), lasts=60)
    news = [problems.is_news(one, "waiting") for one in ("away", "busy", "away", "away", "away")]
    assert [True, True, False, False, True] == news
    assert problems.is_news("away", "tired")


def test_a_message_names_a_few_and_says_how_many_more_there_are() -> None:
    assert "0, 1 and 8 more" == few(map(str, range(10)), 2)
    assert "a; b" == few(["a", "b"], 2, "; ")
    assert "" == few([], 2)
