"""What a file tells of the life of devices: a timeline, and faults at random."""

from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

from deviceplugin_simulated import reading
from deviceplugin_simulated.life import OF_PLUGIN, OPPOSITE, Action, Event
from deviceplugin_simulated.process import Process
from deviceplugin_simulated.reading import Reader

EVENT_KEYS: Final = ("at", "do", "devices", "for", "by", "reason")
_PROCESS_KEYS: Final = ("every", "lasting", "faults", "until", "slow-by")
DEFAULT_DELAY: Final = 1.0
"""Seconds that a slow allocation takes longer."""


def select(patterns: Sequence[str], ids: Sequence[str]) -> list[str]:
    """Return those of ``ids`` that a pattern fits: an id, or one with ``*`` and ``?`` in it.

    Raises:
        ValueError: A pattern fits none.
    """
    found: dict[str, None] = {}
    known = set(ids)
    for pattern in patterns:
        matches = [pattern] if pattern in known else [i for i in ids if fnmatchcase(i, pattern)]
        if not matches:
            raise ValueError(
                f"is no device: {reading.nearest(pattern, ids) if ids else 'there are none'}"
            )
        found.update(dict.fromkeys(matches))
    return list(found)


def read_timeline(reader: Reader, ids: Sequence[str]) -> list[Event]:
    """Return the events of the list ``timeline``, in order of time."""
    events: list[Event] = []
    for where, given in reader.each("timeline"):
        events += read_events(Reader(given, where, reader.problems, EVENT_KEYS), ids)
    return sorted(events, key=lambda event: event.at)


def read_events(reader: Reader, ids: Sequence[str], start: float = 0.0) -> Iterator[Event]:
    """Yield one event, so long after ``start``, and where it has an end the one that ends it."""
    for key in ("at", "do"):
        if key not in reader:
            reader.wrong(key, "is needed")
    at = start + reader.take("at", reading.seconds, 0.0)
    action = reader.take("do", _action, Action.RESUME)
    chosen = reader.take("devices", _devices(ids), list(ids))
    if action in OF_PLUGIN:
        chosen = []
        if "devices" in reader:
            reader.wrong("devices", f"{action} happens to the plugin, not to devices")
    yield Event(
        at,
        action,
        tuple(chosen),
        reader.take("reason", reading.text, ""),
        reader.take("by", reading.seconds, DEFAULT_DELAY) if action is Action.SLOW else 0.0,
    )
    if "for" in reader:
        lasting = reader.take("for", reading.positive, 0.0)
        if action in OPPOSITE:
            yield Event(at + lasting, OPPOSITE[action], tuple(chosen))
        else:
            reader.wrong("for", f"{action} does not last")


def _action(value: Any) -> Action:
    try:
        return Action(value)
    except ValueError:
        raise ValueError(
            f"cannot happen: {reading.nearest(str(value), [*map(str, Action)])}"
        ) from None


def _devices(ids: Sequence[str]) -> Callable[[Any], list[str]]:
    return lambda value: select(reading.texts(value), ids)


def _fault(value: Any) -> Action:
    action = _action(value)
    if action not in OPPOSITE and action is not Action.CRASH:
        raise ValueError(f"has {action}, which is no fault")
    return action


def read_process(reader: Reader) -> Process | None:
    """Return the process that ``random`` describes, if there is one."""
    if "random" not in reader:
        return None
    inner = reader.inner("random", _PROCESS_KEYS)

    def faults(value: Any) -> list[Action]:
        return [_fault(one) for one in reading.texts(value)]

    return Process(
        every=inner.take("every", reading.positive, 10.0),
        lasting=inner.take("lasting", reading.positive, 30.0),
        faults=inner.take("faults", faults, [Action.UNHEALTHY, Action.UNPLUG]),
        until=inner.take("until", reading.seconds, float("inf")),
        slow_by=inner.take("slow-by", reading.seconds, DEFAULT_DELAY),
    )
