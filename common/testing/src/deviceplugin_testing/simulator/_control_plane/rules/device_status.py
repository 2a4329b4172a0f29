"""What is wrong with the status of devices in claims, in the API server's words."""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from deviceplugin_testing.simulator._control_plane.kinds import Object
from deviceplugin_testing.simulator._control_plane.refusals import (
    FieldError,
    duplicate,
    invalid,
    required,
    too_long,
    too_many,
    unsupported,
)
from deviceplugin_testing.simulator._control_plane.rules import names

_MOST_CONDITIONS: Final = 8
_LONGEST_DATA: Final = 10 * 1024
_STATUSES: Final = ("False", "True", "Unknown")
_REASON: Final = "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?"
_BAD_REASON: Final = (
    "a condition reason must start with alphabetic character, optionally followed by a string of "
    "alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. "
    "'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex "
    f"used for validation is '{_REASON}')"
)
_LONGEST: Final = {"reason": 1024, "message": 32 * 1024}


def drop_deallocated(new: Object, old: Object) -> None:
    """Remove the status of devices that ``new`` has no more."""
    gone = {*map(_key, _results(old["status"]))} - {*map(_key, _results(new["status"]))}
    kept = [one for one in new["status"].pop("devices", ()) if _key(one) not in gone]
    new["status"] |= {"devices": kept} if kept else {}


def check_devices(status: Object) -> Iterator[FieldError]:
    """Yield the errors of ``status.devices``. Names of devices that are allocated are correct."""
    allocated = {*map(_key, _results(status))}
    seen = set()
    for index, one in enumerate(status.get("devices", ())):
        place, key = f"status.devices[{index}]", _key(one)
        shown = dict(zip(("Driver", "Pool", "Device", "ShareID"), key, strict=True))
        if key in seen:
            yield duplicate(place, shown)
        seen.add(key)
        if key not in allocated:
            yield invalid(place, shown, "must be an allocated device in the claim")
        yield from _check_conditions(f"{place}.conditions", one["conditions"] or [])
        yield from _check_data(f"{place}.data", one.get("data", {}))


def _results(status: Object) -> list[Object]:
    found: list[Object] = (status.get("allocation") or {}).get("devices", {}).get("results", [])
    return found


def _key(one: Object) -> tuple[str, str, str, str]:
    return one["driver"], one["pool"], one["device"], one.get("shareID") or ""


def _check_conditions(place: str, conditions: list[Object]) -> Iterator[FieldError]:
    if len(conditions) > _MOST_CONDITIONS:
        yield too_many(place, len(conditions), _MOST_CONDITIONS)
    for index, one in enumerate(conditions):
        at, kind = f"{place}[{index}]", one["type"]
        if kind in {before["type"] for before in conditions[:index]}:
            yield duplicate(f"{at}.type", kind)
        yield from (invalid(f"{at}.type", kind, problem) for problem in names.qualified(kind))
        yield from _check_condition(at, one)


def _check_condition(at: str, one: Object) -> Iterator[FieldError]:
    if one["status"] not in _STATUSES:
        yield unsupported(f"{at}.status", one["status"], _STATUSES)
    for name in ("lastTransitionTime", "reason"):
        if not one[name]:
            yield required(f"{at}.{name}")
    if one["reason"] and re.fullmatch(_REASON, one["reason"], re.ASCII) is None:
        yield invalid(f"{at}.reason", one["reason"], _BAD_REASON)
    for name, most in _LONGEST.items():
        if len(one[name].encode(errors="replace")) > most:
            yield too_long(f"{at}.{name}", most)


def _check_data(place: str, data: Any) -> Iterator[FieldError]:
    if len(json.dumps(data, separators=(",", ":")).encode()) > _LONGEST_DATA:
        yield too_long(place, _LONGEST_DATA)
    elif not isinstance(data, dict):
        yield invalid(place, "<value omitted>", "must be a valid JSON object")
