"""Entries of the configuration, read from their places in a text."""

import os
import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, cast

from deviceplugin_generic import globs, templates, words
from deviceplugin_generic.cursors import Cursor, texts_of
from deviceplugin_generic.entries import (
    MAX_COUNT,
    UNLIMITED,
    Check,
    Entry,
    ExtraMount,
    Group,
    Identity,
    PathSpec,
    Policy,
    Selector,
    UsbSpec,
)

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_LONGEST: Final = 86400.0


def entries(cursors: list[Cursor]) -> tuple[Entry, ...]:
    """Return the entries that are well; what is not is noted."""
    found: dict[str, Entry] = {}
    for cursor in cursors:
        entry = _entry(cursor)
        if entry is None:
            continue
        if entry.name in found:
            cursor.fault(f"the name {entry.name!r} is given twice")
        found[entry.name] = entry
    return tuple(found.values())


def _entry(cursor: Cursor) -> Entry | None:
    keys = cursor.mapping(words.ENTRY)
    if cursor.kind != "mapping":
        return None
    name = _matching(keys, "name", words.NAME, "lower-case letters, digits and hyphens, 2 to 63")
    if "name" not in keys:
        cursor.fault("needs a name")
    if "groups" not in keys:
        cursor.fault("needs groups")
    groups = tuple(_group(one) for one in _items(keys, "groups"))
    if "groups" in keys and keys["groups"].kind == "list" and not groups:
        keys["groups"].fault("needs a group")
    identity = keys["id"].choice(*words.IDENTITIES) if "id" in keys else ""
    return Entry(
        name=name.strip(),
        groups=groups,
        identity=cast("Identity", identity) if identity else None,
        envs=_templates(keys, "env", forbidden="=\0"),
        annotations=_templates(keys, "annotations"),
        mounts=tuple(_extra_mount(one) for one in _items(keys, "mounts")),
        cdi=tuple(_cdi(one) for one in _items(keys, "cdi")),
        health=_check(keys["health"]) if "health" in keys else Check(),
        policy=cast("Policy", (_choice(keys, "policy", *words.POLICIES)) or "spread"),
    )


def _group(cursor: Cursor) -> Group:
    keys = cursor.mapping(words.GROUP)
    kinds = [kind for kind in words.KINDS if kind in keys]
    if cursor.kind == "mapping" and len(kinds) != 1:
        given = f", not {' and '.join(kinds)}" if kinds else ""
        cursor.fault(f"needs one of paths, usb and select{given}")
    for key in words.BEHIND if "paths" in keys else ():
        if key in keys:
            keys[key].fault("is for usb and select only")
    for kind in ("paths", "usb"):
        if kind in keys and keys[kind].kind == "list" and not keys[kind].items():
            keys[kind].fault("is empty")
    nodes = tuple(_node(one) for one in _items(keys, "nodes"))
    behind = "select" in keys or bool(nodes)
    return Group(
        count=_count(keys),
        paths=tuple(_path(one) for one in _items(keys, "paths")),
        usb=tuple(_usb(one) for one in _items(keys, "usb")),
        select=_selector(keys["select"]) if "select" in keys else None,
        nodes=nodes,
        per_match=keys["perMatch"].truth() if "perMatch" in keys else behind,
        mount_path=_mount_path(keys),
        permissions=_permissions(keys) or "rw",
        shared=tuple(_shared(one) for one in _items(keys, "with")),
    )


def _node(cursor: Cursor) -> str | Selector:
    return _selector(cursor) if cursor.kind == "mapping" else _subsystem(cursor)


def _shared(cursor: Cursor) -> str:
    def problem(path: str) -> str:
        is_one = words.has_form(path, words.NODE)
        return "" if is_one else "is not the path of one device node below /dev"

    return _checked(problem, cursor)


def _count(keys: dict[str, Cursor]) -> int:
    if "count" in keys and keys["count"].kind == "str" and keys["count"].raw == words.UNLIMITED:
        return UNLIMITED
    return _number(keys, "count") or 1


def _path(cursor: Cursor) -> PathSpec:
    keys = cursor.mapping(words.PATH)
    if cursor.kind == "mapping" and "path" not in keys:
        cursor.fault("needs a path")
    is_mount = _choice(keys, "type", *words.TYPES) == "Mount"
    if is_mount and "permissions" in keys:
        keys["permissions"].fault("is for the type Device only; a mount has readOnly")
    read_only = keys["readOnly"].truth() if "readOnly" in keys else False
    if read_only and not is_mount:
        keys["readOnly"].fault("is for the type Mount only; a device has permissions")
    return PathSpec(
        path=_pattern(keys, "path"),
        mount_path=_mount_path(keys),
        permissions=_permissions(keys) or "mrw",
        is_mount=is_mount,
        read_only=read_only,
        limit=_number(keys, "limit") or 1,
        optional=keys["optional"].truth() if "optional" in keys else False,
    )


def _usb(cursor: Cursor) -> UsbSpec:
    keys = cursor.mapping(words.USB)
    for key in ("vendor", "product"):
        if cursor.kind == "mapping" and key not in keys:
            cursor.fault(f"needs a {key}")
    return UsbSpec(
        vendor=_hexadecimal(keys, "vendor") or 0,
        product=_hexadecimal(keys, "product") or 0,
        serial=_text(keys, "serial"),
    )


def _selector(cursor: Cursor) -> Selector:
    keys = cursor.mapping(words.SELECT)
    if cursor.kind == "mapping" and "subsystem" not in keys:
        cursor.fault("needs a subsystem")
    subsystem = _subsystem(keys["subsystem"]) if "subsystem" in keys else ""
    return replace(_criteria(keys), subsystem=subsystem, excluded=_excluded(keys))


def _excluded(keys: dict[str, Cursor]) -> tuple[Selector, ...]:
    """Return what is under ``not``: one mapping, or a list of them."""
    if "not" not in keys:
        return ()
    cursor = keys["not"]
    cursors = cursor.items() if cursor.kind == "list" else [cursor]
    found = []
    for one in cursors:
        inner = one.mapping(words.EXCLUDED)
        if one.kind == "mapping" and not one.mapping():
            one.fault("is empty")
        found.append(_criteria(inner))
    if cursor.kind == "list" and not cursors:
        cursor.fault("is empty")
    return tuple(found)


def _criteria(keys: dict[str, Cursor]) -> Selector:
    pci_class = _matching(keys, "class", words.PCI_CLASS, "a hexadecimal number")
    return Selector(
        subsystem="",
        name=_wildcard(keys, "name"),
        vendor=_hexadecimal(keys, "vendor"),
        product=_hexadecimal(keys, "product"),
        serial=_wildcard(keys, "serial"),
        driver=_wildcard(keys, "driver"),
        pci_class=pci_class.lower().removeprefix("0x"),
        link=_pattern(keys, "link"),
        properties=_presences(keys, "properties"),
        attributes=_presences(keys, "attributes"),
    )


def _check(cursor: Cursor) -> Check:
    keys = cursor.mapping(words.HEALTH)
    command = keys["command"].texts() if "command" in keys else ()
    if "command" in keys and not command:
        keys["command"].fault("is empty")
    for one in keys["command"].items() if command else ():
        _template(one)
    return Check(
        open=keys["open"].truth() if "open" in keys else False,
        command=command,
        timeout=_duration(keys, "timeout") or Check().timeout,
        properties=_wildcards(keys, "properties"),
        interval=_duration(keys, "interval") or Check().interval,
        failures=_number(keys, "failures", least=1, most=words.MOST_LOOKS) or 1,
        successes=_number(keys, "successes", least=1, most=words.MOST_LOOKS) or 1,
    )


def _extra_mount(cursor: Cursor) -> ExtraMount:
    keys = cursor.mapping(words.MOUNT)
    if cursor.kind == "mapping" and "path" not in keys:
        cursor.fault("needs a path")
    return ExtraMount(
        path=_no_node(keys, "path"),
        mount_path=_absolute(keys, "mountPath", templates.INSIDE),
        read_only=keys["readOnly"].truth() if "readOnly" in keys else False,
    )


def _cdi(cursor: Cursor) -> str:
    name = _template(cursor)
    if name and not words.has_form(name, words.CDI):
        cursor.fault(f"{name!r} is not of the form vendor.com/class=name")
    return name


def _items(keys: dict[str, Cursor], key: str) -> list[Cursor]:
    return keys[key].items() if key in keys else []


def _text(keys: dict[str, Cursor], key: str) -> str:
    return keys[key].text() or "" if key in keys else ""


def _choice(keys: dict[str, Cursor], key: str, *choices: str) -> str:
    return keys[key].choice(*choices) if key in keys else ""


def _number(keys: dict[str, Cursor], key: str, least: int = 0, most: int = MAX_COUNT) -> int:
    return keys[key].number(least=least, most=most) or 0 if key in keys else 0


def _matching(keys: dict[str, Cursor], key: str, pattern: str, wanted: str) -> str:
    value = keys[key].text() if key in keys else None
    if value is not None and not words.has_form(value, pattern):
        keys[key].fault(f"{value!r} is not {wanted}")
        return ""
    return value or ""


def _permissions(keys: dict[str, Cursor]) -> str:
    return _matching(keys, "permissions", words.PERMISSIONS, "of the letters m, r and w, each once")


def _hexadecimal(keys: dict[str, Cursor], key: str) -> int | None:
    cursor = keys.get(key)
    if cursor is None:
        return None
    if cursor.kind in {"int", "float"}:
        cursor.fault(
            f"{cursor.raw} without quotes is a decimal number to some and hexadecimal to others: "
            f'write "{cursor.raw}"'
        )
        return None
    text = cursor.text()
    if text is not None and not words.has_form(text, words.HEXADECIMAL):
        cursor.fault(f"{text!r} is not a hexadecimal number of four digits")
        return None
    return None if text is None else int(text, 16)


def _duration(keys: dict[str, Cursor], key: str) -> float:
    text = _matching(keys, key, words.DURATION, "a duration, such as 500ms or 30s")
    found = re.match(r"([0-9.]+)([a-z]+)", text)
    seconds = float(found[1]) * _UNITS[found[2]] if found else 0.0
    if found and not 0 < seconds <= _LONGEST:
        keys[key].fault(f"{text!r} is not between 0 and a day")
    return seconds


def _checked(problem: Callable[[str], str], cursor: Cursor) -> str:
    """Return a text in which ``problem`` finds none."""
    value = cursor.text()
    what = problem(value) if value is not None else ""
    if what:
        cursor.fault(f"{value!r} {what}")
    return "" if what else value or ""


def _pattern(keys: dict[str, Cursor], key: str) -> str:
    def problem(pattern: str) -> str:
        return globs.problem(pattern.strip())

    return _checked(problem, keys[key]).strip() if key in keys else ""


def _mount_path(keys: dict[str, Cursor]) -> str:
    def problem(path: str) -> str:
        return "" if words.has_form(path, words.MOUNT_PATH) else "is not absolute"

    return _checked(problem, keys["mountPath"]).strip() if "mountPath" in keys else ""


def _absolute(
    keys: dict[str, Cursor], key: str, known: Mapping[str, str] = templates.PROPERTIES
) -> str:
    if key not in keys:
        return ""
    if not _checked(lambda path: "" if path.startswith("/") else "is not absolute", keys[key]):
        return ""
    return _template(keys[key], known)


def _no_node(keys: dict[str, Cursor], key: str) -> str:
    """Return an absolute path at which there is no device node, as far as can be seen from here."""
    path = _absolute(keys, key)
    try:
        mode = os.stat(path).st_mode if path else 0  # noqa: PTH116 - may have a zero byte
    except (OSError, ValueError):
        return path
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        keys[key].fault(f"{path!r} {words.NODE_AS_MOUNT}")
    return path


def _wild_problem(pattern: str) -> str:
    return globs.problem("/" + pattern)


def _wildcard(keys: dict[str, Cursor], key: str) -> str:
    return _checked(_wild_problem, keys[key]) if key in keys else ""


def _wildcards(keys: dict[str, Cursor], key: str) -> dict[str, str]:
    inner = keys[key].mapping() if key in keys else {}
    return {name: _checked(_wild_problem, cursor) for name, cursor in inner.items()}


def _presences(keys: dict[str, Cursor], key: str) -> dict[str, str | None]:
    """Return patterns, and None for what is to be absent."""
    inner = keys[key].mapping() if key in keys else {}
    return {
        name: None if cursor.kind == "null" else _checked(_wild_problem, cursor)
        for name, cursor in inner.items()
    }


def _subsystem(cursor: Cursor) -> str:
    return _checked(lambda name: "" if words.has_form(name, words.SUBSYSTEM) else "is none", cursor)


def _template(cursor: Cursor, known: Mapping[str, str] = templates.PROPERTIES) -> str:
    value = cursor.text()
    if value is not None and (what := templates.problem(value, known)):
        cursor.fault(what)
        return ""
    return value or ""


def _templates(keys: dict[str, Cursor], key: str, forbidden: str = "\0") -> dict[str, str]:
    inner = keys[key].mapping() if key in keys else {}
    for name, cursor in inner.items():
        _template(cursor, templates.INSIDE)
        if not name or set(forbidden) & set(name):
            cursor.fault(f"{name!r} cannot be a name")
        if what := templates.problem(name, templates.INSIDE):
            cursor.fault(what)
    return texts_of(inner)
