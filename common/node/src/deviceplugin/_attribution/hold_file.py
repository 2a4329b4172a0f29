"""The file that remembers what is held, for the next process of the plugin."""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, get_args

from deviceplugin._attribution.holds import MOST, HeldDevice, Hold, HoldError, Then, check
from deviceplugin._inventory.validation import device_problem
from deviceplugin.kit.state import State
from deviceplugin.model import Attribute, Device, Version

_FORM: Final = 1


class HoldFile:
    """The file of one plugin's holds, and a copy of it that is as new. For one thread at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.names = (path.name, f"{path.name}.bak")
        self._states = [State(path.with_name(name), _FORM) for name in self.names]
        self._peeked = (0, 0)

    def load(self) -> tuple[Sequence[Hold], str]:
        """Return the holds, and what is wrong with that, if anything is.

        A file that is damaged is set aside, and what the copy names is held.
        """
        was_there = os.path.lexists(self.path)
        for number, state in enumerate(self._states):
            found = state.load(_read, None)
            if found is not None:
                return found, f"{self.path} was damaged: its copy is used" if number else ""
        lost = "is damaged, and so is its copy: what was held is not known, and not held"
        return (), f"{self.path} {lost}" if was_there else ""

    def peek(self) -> Sequence[Hold] | None:
        """Return the holds of the process that has the file; None if they are known, or not there.

        Such a file is replaced at each change.
        """
        before = self._peeked
        with suppress(OSError):
            status = self.path.stat()
            self._peeked = status.st_ino, status.st_mtime_ns
        return None if self._peeked == before else self._states[0].load(_read, None)

    def save(self, holds: Collection[Hold]) -> None:
        """Write all holds to the disk; HoldError if that fails, and then the file is as it was."""
        document = {"holds": [_written(one) for one in holds]}
        first, copy = self._states
        if not first.save(document):
            raise HoldError(f"{self.path} cannot be written, so nothing was changed: see the log")
        copy.save(document)


def _written(hold: Hold) -> Mapping[str, Any]:
    """Return a hold for JSON, in which shares, which are alike but for their ids, are one."""
    groups: dict[tuple[Any, ...], tuple[dict[str, Any], list[str]]] = {}
    for plugin, resource, one in hold.devices:
        facts = {key: _plain(value) for key, value in one.attributes.items()}
        entry = {
            "plugin": plugin,
            "resource": resource,
            "share_of": one.share_of,
            "hardware": list(one.hardware or [node.host_path for node in one.nodes]),
            "attributes": facts,
            "capacity": dict(one.capacity),
        }
        group = plugin, resource, one.share_of or one.id, tuple(one.hardware)
        groups.setdefault(group, (entry, []))[1].append(one.id)
    devices = [{**entry, "ids": ids} for entry, ids in groups.values()]
    own = {"name": hold.name, "reason": hold.reason, "since": hold.since}
    repair = {"then": hold.then, "tries": hold.tries, "was_reset": hold.was_reset}
    return {**own, **repair, "by_attribute": hold.by_attribute, "devices": devices}


def _plain(value: Attribute) -> object:
    return {"version": str(value)} if isinstance(value, Version) else value


def _read(document: Mapping[str, Any]) -> Sequence[Hold]:
    holds = [
        Hold(
            str(one["name"]),
            str(one["reason"]),
            float(one["since"]),
            [HeldDevice(*each) for entry in _list(one["devices"]) for each in _devices(entry)],
            bool(one["by_attribute"]),
            next((then for then in get_args(Then) if then == one.get("then")), ""),
            int(one.get("tries", 0)),
            bool(one.get("was_reset", False)),
        )
        for one in _list(document["holds"])
    ]
    if not len({one.name for one in holds}) == len(holds) <= MOST:
        raise ValueError(f"there are more than {MOST} holds, or two of one name")
    for hold in holds:
        check(hold)
        if not hold.devices:
            raise ValueError(f"the hold of {hold.name} is of no device")
        datetime.fromtimestamp(hold.since, UTC)  # it can be shown
        for _, _, one in hold.devices:
            if problem := device_problem(one):
                raise ValueError(problem)
    return holds


def _list(found: object) -> list[Any]:
    if not isinstance(found, list):
        raise TypeError(f"{type(found).__name__} is not a list")
    return found


def _devices(entry: Mapping[str, Any]) -> Iterator[tuple[str, str, Device]]:
    facts = {
        key: Version(value["version"]) if isinstance(value, dict) else value
        for key, value in entry["attributes"].items()
    }
    common = Device(
        "",
        resource=str(entry["resource"]),
        share_of=entry["share_of"],
        hardware=tuple(map(str, _list(entry["hardware"]))),
        attributes=facts,
        capacity=entry["capacity"],
    )
    for one in _list(entry["ids"]):
        yield str(entry["plugin"]), common.resource, replace(common, id=str(one))
