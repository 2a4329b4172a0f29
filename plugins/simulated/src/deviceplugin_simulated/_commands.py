"""What can be asked for on the control socket: an event, now, or a list. Pure, no socket."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from deviceplugin_simulated._life import Life
from deviceplugin_simulated._reading import Reader
from deviceplugin_simulated._script import EVENT_KEYS, read_events

LIST = "list"


def obey(request: bytes, life: Life, ids: Sequence[str], now: float) -> bytes:
    """Do what ``request`` says to ``life`` and return the reply, both JSON.

    A request is an entry of a timeline without ``at``: ``{"do": "unhealthy", "devices": "gpu-3"}``;
    ``{"do": "list"}`` is answered with what is wrong with each device. A reply has ``error``, or
    ``devices``: those concerned, with how they are now.
    """
    try:
        given = json.loads(request)
    except ValueError:
        return _reply(error="this is no JSON")
    if isinstance(given, dict) and given.get("do") == LIST:
        return _listed(life, ids)
    problems: list[str] = []
    stamped: Any = {"at": "0s", **given} if isinstance(given, dict) else given
    events = list(read_events(Reader(stamped, "request", problems, EVENT_KEYS), ids, now))
    if problems:
        return _reply(error="; ".join(problems))
    for event in events:
        life.add(event)
    life.advance(now)
    return _listed(life, events[0].ids)


def _listed(life: Life, ids: Sequence[str]) -> bytes:
    return _reply(
        devices={device_id: str(life.state.of(device_id)) for device_id in ids},
        plugin="hanging" if life.state.hangs else "well",
    )


def _reply(**fields: str | Mapping[str, str]) -> bytes:
    return json.dumps(fields).encode()
