"""How long to wait after how many failures."""

from collections.abc import Iterable

from deviceplugin._platform.backoff import Backoff

BOUNDS = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]


def waits_of_many(*, full_jitter: bool) -> Iterable[list[float]]:
    """Return the first, second, ... waits, each of many that fail at once."""
    many = [Backoff(0.1, 5.0, full_jitter=full_jitter) for _ in range(100)]
    return [[one.next_wait() for one in many] for _ in BOUNDS]


def test_waits_double_up_to_the_longest_less_up_to_a_half_by_chance() -> None:
    for bound, waits in zip(BOUNDS, waits_of_many(full_jitter=False), strict=True):
        assert bound / 2 <= min(waits) < 0.6 * bound
        assert 0.9 * bound < max(waits) <= bound


def test_with_full_jitter_they_go_down_to_the_first() -> None:
    first, *others = waits_of_many(full_jitter=True)
    assert [0.1] * 100 == first
    for bound, waits in zip(BOUNDS[1:], others, strict=True):
        assert 0.1 <= min(waits) < 0.1 + 0.1 * bound
        assert 0.9 * bound < max(waits) <= bound


def test_those_who_fail_together_can_be_spread_from_the_first_attempt_on() -> None:
    many = [Backoff(1.0, 60.0, spread=5.0) for _ in range(200)]
    first, second = ([one.next_wait() for one in many] for _ in range(2))
    assert 0.5 <= min(first) < 1.5
    assert 5.0 < max(first) <= 6.0
    assert max(second) <= 2.0


def test_thousands_of_failures_do_not_make_it_fail_and_after_a_reset_waits_are_short_again() -> (
    None
):
    backoff = Backoff(1.0, 300.0)
    for _ in range(1100):  # 2 to the power of 1024 is no number of floating point
        backoff.next_wait()
    assert 150 <= backoff.next_wait() <= 300
    backoff.reset()
    assert backoff.next_wait() <= 1.0
