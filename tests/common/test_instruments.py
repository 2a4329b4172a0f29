import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from deviceplugin._telemetry.instruments import Count, Instrument, Level, Times


def test_counts_of_many_threads_are_all_counted() -> None:
    counter = Instrument(Count, "x", "Text.", "resource")
    begin = threading.Barrier(8)

    def count(_number: int) -> None:
        begin.wait()
        for _ in range(2000):
            counter.labels("a").inc()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(count, range(8)))
    assert 16_000 == counter.labels("a").value


def test_each_combination_of_labels_has_its_value_until_it_is_removed() -> None:
    gauge = Instrument(Level, "x", "Text.", "resource", "health")
    gauge.labels("a", "good").set(3)
    gauge.labels("a", "bad").set(1)
    good = {"resource": "a", "health": "good"}, 3.0
    bad = {"resource": "a", "health": "bad"}, 1.0
    assert [good, bad] == [(labels, value.value) for labels, value in gauge.read()]
    gauge.remove("a", "good")
    gauge.remove("a", "good")
    assert [bad] == [(labels, value.value) for labels, value in gauge.read()]


@pytest.mark.parametrize("values", [(), ("a",), ("a", "b", "c")])
def test_another_number_of_labels_is_an_error(values: tuple[str, ...]) -> None:
    gauge = Instrument(Level, "x", "Text.", "resource", "health")
    with pytest.raises(ValueError, match="x has the labels"):
        gauge.labels(*values)


def test_one_without_labels_begins_at_0() -> None:
    assert [0.0] == [value.value for _, value in Instrument(Count, "x", "Text.").read()]


def test_times_are_counted_up_to_each_bound() -> None:
    times = Times()
    for seconds in (0.0005, 0.0006, 2.5, 11):
        times.observe(seconds)
    counts, total = times.read()
    assert (1, 2, 3, 4) == (counts[0.0005], counts[0.001], counts[2.5], counts[float("inf")])
    assert 13.5011 == pytest.approx(total)


def test_a_context_that_raises_is_timed_too() -> None:
    times = Times()
    with pytest.raises(KeyError), times.time():
        raise KeyError
    assert 1 == times.read()[0][float("inf")]
    assert times.sum > 0
