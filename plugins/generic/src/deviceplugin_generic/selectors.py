"""Selectors in the configuration: which devices of a subsystem are meant."""

from dataclasses import replace

from deviceplugin_generic import values, words
from deviceplugin_generic.cursors import Cursor
from deviceplugin_generic.entries import Selector


def selector(cursor: Cursor) -> Selector:
    """Return what ``select``, or a node behind another, asks for."""
    keys = cursor.mapping(words.SELECT)
    if cursor.kind == "mapping" and "subsystem" not in keys:
        cursor.fault("needs a subsystem")
    subsystem = subsystem_name(keys["subsystem"]) if "subsystem" in keys else ""
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
    pci_class = values.matching(keys, "class", words.PCI_CLASS, "a hexadecimal number")
    return Selector(
        subsystem="",
        name=values.wildcard(keys, "name"),
        vendor=values.hexadecimal(keys, "vendor"),
        product=values.hexadecimal(keys, "product"),
        serial=values.wildcard(keys, "serial"),
        driver=values.wildcard(keys, "driver"),
        pci_class=pci_class.lower().removeprefix("0x"),
        link=values.pattern(keys, "link"),
        properties=_presences(keys, "properties"),
        attributes=_presences(keys, "attributes"),
    )


def _presences(keys: dict[str, Cursor], key: str) -> dict[str, str | None]:
    """Return patterns, and None for what is to be absent."""
    inner = keys[key].mapping() if key in keys else {}
    return {
        name: None if cursor.kind == "null" else values.checked(values.wild_problem, cursor)
        for name, cursor in inner.items()
    }


def subsystem_name(cursor: Cursor) -> str:
    """Return the name of a subsystem of the kernel, or an empty text."""
    return values.checked(
        lambda name: "" if words.has_form(name, words.SUBSYSTEM) else "is none", cursor
    )
