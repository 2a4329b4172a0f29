"""Entries of the configuration, read from their places in a text: their keys and groups."""

from typing import cast

from deviceplugin_generic import selectors, templates, values, words
from deviceplugin_generic.cursors import Cursor
from deviceplugin_generic.entries import (
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
    name = values.matching(
        keys, "name", words.NAME, "lower-case letters, digits and hyphens, 2 to 63"
    )
    if "name" not in keys:
        cursor.fault("needs a name")
    if "groups" not in keys:
        cursor.fault("needs groups")
    groups = tuple(_group(one) for one in values.items(keys, "groups"))
    if "groups" in keys and keys["groups"].kind == "list" and not groups:
        keys["groups"].fault("needs a group")
    identity = keys["id"].choice(*words.IDENTITIES) if "id" in keys else ""
    return Entry(
        name=name.strip(),
        groups=groups,
        identity=cast("Identity", identity) if identity else None,
        envs=values.named_templates(keys, "env", forbidden="=\0"),
        annotations=values.named_templates(keys, "annotations"),
        mounts=tuple(_extra_mount(one) for one in values.items(keys, "mounts")),
        cdi=tuple(_cdi(one) for one in values.items(keys, "cdi")),
        health=_check(keys["health"]) if "health" in keys else Check(),
        policy=cast("Policy", (values.choice(keys, "policy", *words.POLICIES)) or "spread"),
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
    nodes = tuple(_node(one) for one in values.items(keys, "nodes"))
    behind = "select" in keys or bool(nodes)
    return Group(
        count=_count(keys),
        paths=tuple(_path(one) for one in values.items(keys, "paths")),
        usb=tuple(_usb(one) for one in values.items(keys, "usb")),
        select=selectors.selector(keys["select"]) if "select" in keys else None,
        nodes=nodes,
        per_match=keys["perMatch"].truth() if "perMatch" in keys else behind,
        mount_path=values.mount_path(keys),
        permissions=values.permissions(keys) or "rw",
        shared=tuple(_shared(one) for one in values.items(keys, "with")),
    )


def _node(cursor: Cursor) -> str | Selector:
    return (
        selectors.selector(cursor) if cursor.kind == "mapping" else selectors.subsystem_name(cursor)
    )


def _shared(cursor: Cursor) -> str:
    def problem(path: str) -> str:
        is_one = words.has_form(path, words.NODE)
        return "" if is_one else "is not the path of one device node below /dev"

    return values.checked(problem, cursor)


def _count(keys: dict[str, Cursor]) -> int:
    if "count" in keys and keys["count"].kind == "str" and keys["count"].raw == words.UNLIMITED:
        return UNLIMITED
    return values.number(keys, "count") or 1


def _path(cursor: Cursor) -> PathSpec:
    keys = cursor.mapping(words.PATH)
    if cursor.kind == "mapping" and "path" not in keys:
        cursor.fault("needs a path")
    is_mount = values.choice(keys, "type", *words.TYPES) == "Mount"
    if is_mount and "permissions" in keys:
        keys["permissions"].fault("is for the type Device only; a mount has readOnly")
    read_only = keys["readOnly"].truth() if "readOnly" in keys else False
    if read_only and not is_mount:
        keys["readOnly"].fault("is for the type Mount only; a device has permissions")
    return PathSpec(
        path=values.pattern(keys, "path"),
        mount_path=values.mount_path(keys),
        permissions=values.permissions(keys) or "mrw",
        is_mount=is_mount,
        read_only=read_only,
        limit=values.number(keys, "limit") or 1,
        optional=keys["optional"].truth() if "optional" in keys else False,
    )


def _usb(cursor: Cursor) -> UsbSpec:
    keys = cursor.mapping(words.USB)
    for key in ("vendor", "product"):
        if cursor.kind == "mapping" and key not in keys:
            cursor.fault(f"needs a {key}")
    return UsbSpec(
        vendor=values.hexadecimal(keys, "vendor") or 0,
        product=values.hexadecimal(keys, "product") or 0,
        serial=values.text(keys, "serial"),
    )


def _check(cursor: Cursor) -> Check:
    keys = cursor.mapping(words.HEALTH)
    command = keys["command"].texts() if "command" in keys else ()
    if "command" in keys and not command:
        keys["command"].fault("is empty")
    for one in keys["command"].items() if command else ():
        values.template(one)
    return Check(
        open=keys["open"].truth() if "open" in keys else False,
        command=command,
        timeout=values.duration(keys, "timeout") or Check().timeout,
        properties=values.wildcards(keys, "properties"),
        interval=values.duration(keys, "interval") or Check().interval,
        failures=values.number(keys, "failures", least=1, most=words.MOST_LOOKS) or 1,
        successes=values.number(keys, "successes", least=1, most=words.MOST_LOOKS) or 1,
    )


def _extra_mount(cursor: Cursor) -> ExtraMount:
    keys = cursor.mapping(words.MOUNT)
    if cursor.kind == "mapping" and "path" not in keys:
        cursor.fault("needs a path")
    return ExtraMount(
        path=values.no_node(keys, "path"),
        mount_path=values.absolute(keys, "mountPath", templates.INSIDE),
        read_only=keys["readOnly"].truth() if "readOnly" in keys else False,
    )


def _cdi(cursor: Cursor) -> str:
    name = values.template(cursor)
    if name and not words.has_form(name, words.CDI):
        cursor.fault(f"{name!r} is not of the form vendor.com/class=name")
    return name
