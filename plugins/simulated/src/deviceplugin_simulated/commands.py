"""What can be asked for on the control socket: an event, now, or a list. Pure, no socket."""

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
"""Texts of a request that are not ids: each is compared with all ids."""
_MAX_COMING: Final = 1000
"""Events that clients have asked for and that are still to come. Each has its ids in memory."""


@dataclass(frozen=True)
class Order:
    """What a request asks for."""

    events: Sequence[Event] = ()
    ids: Sequence[str] = ()
    """Devices that the reply is about."""
    problem: str = ""
    """Why nothing of it can be done; empty if it can."""


def read(request: bytes, ids: Sequence[str], now: float) -> Order:
    """Return what ``request`` says, which is JSON. This takes its time: hold no lock meanwhile.

    A request is an entry of a timeline without ``at``: ``{"do": "unhealthy", "devices": "gpu-3"}``;
    ``{"do": "list"}`` is answered with what is wrong with each device.
    """
    if len(request) > MAX_REQUEST:
        return Order(problem=f"the request has more than {MAX_REQUEST} bytes")
    try:
        return _order(json.loads(request), ids, now)
    except RecursionError:
        return Order(problem="the request is nested too deeply")
    except ValueError:
        return Order(problem="this is no JSON")


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
    """Do to ``life`` what ``order`` says, and return how everything is then.

    Raises:
        ValueError: Too much is still to come.
    """
    if len(order.events) > 1 and life.coming >= _MAX_COMING:
        raise ValueError(
            f"{_MAX_COMING} faults have an end that is still to come: wait, or use no 'for'"
        )
    for event in order.events:
        life.add(event)
    life.advance(now)
    return life.state


def reply(order: Order, state: State) -> bytes:
    """Return the answer, which is JSON: ``devices`` of the order with how they are in ``state``."""
    return _json(
        devices={device_id: str(state.of(device_id)) for device_id in order.ids},
        plugin="hanging" if state.hangs else "well",
    )


def refusal(problem: str) -> bytes:
    """Return the answer to a request that cannot be done, which is JSON with ``error``."""
    return _json(error=problem)


def _json(**fields: str | Mapping[str, str]) -> bytes:
    return json.dumps(fields).encode()
