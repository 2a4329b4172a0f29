"""Requests to the control socket: an event that happens now, or a list. Pure, without a socket."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from deviceplugin.kit.configuration import InvalidError, of_plain
from deviceplugin_simulated.life import Event, Life, State
from deviceplugin_simulated.script import read_order

LIST: Final = "list"
MAX_REQUEST: Final = 65536
"""Bytes."""
_MAX_PATTERNS: Final = 100
"""The most strings of a request that are not ids. Each is compared with all ids."""
_MAX_COMING: Final = 1000
"""The most pending events that clients have requested. Each keeps its ids in memory."""


@dataclass(frozen=True)
class Order:
    """A parsed request."""

    events: Sequence[Event] = ()
    ids: Sequence[str] = ()
    """Devices that the reply is about."""
    problem: str = ""
    """Why the request is refused; empty if it is not."""


def read(request: bytes, ids: Sequence[str], now: float) -> Order:
    """Parse ``request``, which is JSON. This may be slow, so do not hold a lock meanwhile.

    A request is an entry of a timeline without ``at``: ``{"do": "unhealthy", "devices": "gpu-3"}``.
    The reply to ``{"do": "list"}`` says what is wrong with each device.
    """
    if len(request) > MAX_REQUEST:
        return Order(problem=f"the request has more than {MAX_REQUEST} bytes")
    try:
        return _order(json.loads(request), ids, now)
    except RecursionError:
        return Order(problem="the request is nested too deeply")
    except ValueError:
        return Order(problem="this is not JSON")


def _order(given: Any, ids: Sequence[str], now: float) -> Order:
    if isinstance(given, dict) and given.get("do") == LIST:
        return Order(ids=ids)
    wanted = given.get("devices") if isinstance(given, dict) else None
    if isinstance(wanted, list) and len({*map(str, wanted)} - {*ids}) > _MAX_PATTERNS:
        return Order(problem=f"request.devices: more than {_MAX_PATTERNS} that are not ids")
    root = of_plain(given, "request")
    try:
        events = read_order(root, ids, now)
    except InvalidError:
        return Order(problem="; ".join(root.faults.lines))
    return Order(events, events[0].ids)


def obey(order: Order, life: Life, now: float) -> State:
    """Apply ``order`` to ``life``, and return the resulting state.

    Raises:
        ValueError: Too many events are pending.
    """
    if len(order.events) > 1 and life.coming >= _MAX_COMING:
        raise ValueError(f"{_MAX_COMING} faults have not ended yet: wait, or do not use 'for'")
    for event in order.events:
        life.add(event)
    life.advance(now)
    return life.state


def reply(order: Order, state: State) -> bytes:
    """Return the reply as JSON: the order's ``devices`` with their condition in ``state``."""
    return _json(
        devices={device_id: str(state.of(device_id)) for device_id in order.ids},
        plugin="hanging" if state.hangs else "running",
    )


def refusal(problem: str) -> bytes:
    """Return the reply to a refused request: JSON with ``error``."""
    return _json(error=problem)


def _json(**fields: str | Mapping[str, str]) -> bytes:
    return json.dumps(fields).encode()
