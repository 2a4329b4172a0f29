"""The grammar of configuration entries, with their groups and selectors.

``schema.json`` has them as JSON Schema, for editors.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Final

from deviceplugin.kit import configuration as cfg
from deviceplugin.kit.configuration import Key, Kind, Place
from deviceplugin_generic.configuration import globs, string_kinds, templates
from deviceplugin_generic.configuration.entries import (
    ABILITIES,
    IDENTITIES,
    MAX_COUNT,
    MOST_LOOKS,
    NAME,
    POLICIES,
    TYPES,
    UNLIMITED,
    UNLIMITED_WORD,
    Check,
    Entry,
    ExtraMount,
    Group,
    PathSpec,
    Rule,
    Selector,
    UsbSpec,
)

Given = Mapping[str, Place]

_KINDS: Final = ("paths", "usb", "select")
"""A group has one of these."""
_BEHIND: Final = ("nodes", "perMatch", "mountPath", "permissions", "with")
"""Keys of a group that has no paths."""
_USES: Final = cfg.integer(0, MAX_COUNT).to(lambda count: count or 1)
_LOOKS: Final = cfg.integer(1, MOST_LOOKS)
_SECONDS: Final = cfg.duration(timedelta(days=1)).to(timedelta.total_seconds)
_DAY: Final = _SECONDS.described("Such as 500ms or 30s, at most a day")


def _made(make: Any) -> Any:
    """Return ``make`` with its own defaults instead of empty strings."""
    return lambda **given: make(**{key: one for key, one in given.items() if one != ""})


def _with(key: str, value: object) -> dict[str, Any]:
    return {"properties": {key: {"enum": [value]}}}


def _nothing_else_mounted(_place: Place, given: Given) -> None:
    is_mount = "type" in given and given["type"].raw == "Mount"
    if is_mount and "permissions" in given:
        given["permissions"].fault("is for the type Device only; a mount has readOnly")
    if is_mount and "can" in given:
        given["can"].fault("is for the type Device only")
    if (
        not is_mount
        and "readOnly" in given
        and given["readOnly"].take(cfg.boolean(), instead=False)
    ):
        given["readOnly"].fault("is for the type Mount only; a device has permissions")


def _nothing_of_everybody(_place: Place, given: Given) -> None:
    """Refuse what everybody can put at a path: device nodes, and whatever a pattern matches."""
    is_mount = "type" in given and given["type"].raw == "Mount"
    place = given.get("path")
    pattern = place.raw.strip() if place and place.kind == "text" else ""
    folder = globs.passed_over(pattern, "/dev")
    if place and folder and not (is_mount and not globs.is_magic(pattern)):
        place.fault(f"{pattern!r} is in {folder}, {globs.REASON}")


_NAMES: Final = sorted({name for names in ABILITIES.values() for name in names})
_ABLE: Final = cfg.as_argument(
    cfg.list_of(cfg.choice(*_NAMES).called("ability"), 1, single=True).described(
        "What it can do, all of it"
    ),
    "abilities",
)
_MOUNT: Final = {**_with("type", "Mount"), "required": ["type"]}
PATH: Final = cfg.record(
    _made(PathSpec),
    {
        "path": cfg.needed(string_kinds.PATTERN),
        "mountPath": cfg.as_argument(string_kinds.MOUNT_PATH, "mount_path"),
        "permissions": string_kinds.PERMISSIONS,
        "readOnly": cfg.as_argument(cfg.boolean(), "read_only"),
        "type": cfg.as_argument(cfg.choice(*TYPES).to(lambda kind: kind == "Mount"), "is_mount"),
        "limit": _USES.described("How often one match may be used; 1 by default"),
        "optional": cfg.boolean(),
        "can": _ABLE,
    },
    rules=[_nothing_else_mounted, _nothing_of_everybody],
    schema={
        "if": _MOUNT,
        "then": {"not": {"anyOf": [{"required": [one]} for one in ("permissions", "can")]}},
        "anyOf": [_MOUNT, _with("readOnly", value=False)],
    },
).called("path")
USB: Final = cfg.record(
    UsbSpec,
    {
        "vendor": cfg.needed(string_kinds.HEXADECIMAL),
        "product": cfg.needed(string_kinds.HEXADECIMAL),
        "serial": cfg.text(),
    },
).called("usb")


def _says_something(place: Place, _given: Given) -> None:
    if not place.keys():
        place.fault("is empty")


CRITERIA: Final[Mapping[str, Kind[Any] | Key[Any]]] = {
    "name": string_kinds.WILDCARD,
    "vendor": string_kinds.HEXADECIMAL,
    "product": string_kinds.HEXADECIMAL,
    "serial": string_kinds.WILDCARD,
    "driver": string_kinds.WILDCARD,
    "class": cfg.as_argument(string_kinds.PCI_CLASS, "pci_class"),
    "link": string_kinds.PATTERN,
    "properties": string_kinds.PRESENCES,
    "attributes": string_kinds.PRESENCES,
    "can": _ABLE,
}
_EXCLUDED: Final = cfg.record(
    partial(Selector, subsystem=""),
    CRITERIA,
    rules=[_says_something],
    schema={"minProperties": 1},
).called("excluded")


def _selector(**given: Any) -> Selector:
    """Return a selector. No device of another subsystem has the abilities that it names."""
    selector = Selector(**given)
    known = ABILITIES.get(selector.subsystem, ())
    named = [name for one in (selector, *selector.excluded) for name in one.abilities]
    if odd := next((name for name in named if name not in known), ""):
        has = ", ".join(known) or f"none; {', '.join(ABILITIES)} have some, also in nodes"
        raise ValueError(f"can: {odd!r} is not an ability of {selector.subsystem}, which has {has}")
    return selector


SELECT: Final = cfg.record(
    _selector,
    {
        "subsystem": cfg.needed(string_kinds.SUBSYSTEM),
        **CRITERIA,
        "not": cfg.as_argument(cfg.list_of(_EXCLUDED, 1, single=True), "excluded"),
    },
).called("select")
NODES: Final = cfg.list_of(cfg.either(string_kinds.SUBSYSTEM, SELECT))


def _one_kind(place: Place, given: Given) -> None:
    kinds = [kind for kind in _KINDS if kind in given]
    if [*given] == ["count"]:
        place.fault("is a count alone: put it into the braces of the group before it")
    elif len(kinds) != 1:
        more = f", not {' and '.join(kinds)}" if kinds else ""
        place.fault(f"needs one of {', '.join(_KINDS[:-1])} and {_KINDS[-1]}{more}")
    for key in _BEHIND if "paths" in given else ():
        if key in given:
            given[key].fault("is for usb and select only")


def _group(**given: Any) -> Group:
    behind = "select" in given or bool(given.get("nodes"))
    group: Group = _made(Group)(**{"per_match": behind, **given})
    return group


def _unlimited(word: str) -> int:
    if word != UNLIMITED_WORD:
        raise ValueError(f"is not a whole number from 0 to {MAX_COUNT}, or {UNLIMITED_WORD}")
    return UNLIMITED


def _misplaced(where: str) -> Kind[Any]:
    """Return a key that somebody may write a level too high."""

    def refuse(place: Place) -> None:
        raise place.fault(f"belongs into {where.format(place.raw)}")

    return Kind(refuse, {"not": {}}, cfg.anything().takes, "absent")


_OTHERS: Final = {"not": {"anyOf": [{"required": [key]} for key in _BEHIND]}}
_GROUP: Final = cfg.record(
    _group,
    {
        "count": cfg.either(
            _USES, cfg.text().to(_unlimited, schema={"enum": [UNLIMITED_WORD]})
        ).described("Shares; 1 by default"),
        "paths": cfg.list_of(PATH, 1),
        "usb": cfg.list_of(USB, 1),
        "select": SELECT,
        "nodes": NODES,
        "perMatch": cfg.as_argument(cfg.boolean(), "per_match"),
        "mountPath": cfg.as_argument(string_kinds.MOUNT_PATH, "mount_path"),
        "permissions": string_kinds.PERMISSIONS,
        "with": cfg.as_argument(cfg.list_of(string_kinds.NODE), "shared"),
        "limit": _misplaced("a path; for shares of each device of the group write count: {0}"),
    },
    rules=[_one_kind],
    schema={
        "oneOf": [{"required": [kind], **(_OTHERS if kind == "paths" else {})} for kind in _KINDS],
    },
).called("group")


def _values_are_words(words: Sequence[tuple[Place, str]]) -> None:
    texts = tuple(text for _, text in words)
    for index, (place, _) in enumerate(words):
        if what := templates.command_problem(texts, index):
            place.fault(what)


_CHECK: Final = cfg.record(
    Check,
    {
        "open": cfg.boolean(),
        "command": cfg.list_of(string_kinds.WORD, 1, together=_values_are_words),
        "timeout": _DAY,
        "reset": cfg.list_of(string_kinds.WORD, 1, together=_values_are_words),
        "resetTimeout": cfg.as_argument(_DAY, "reset_timeout"),
        "properties": cfg.mapping_of(string_kinds.WILDCARD),
        "interval": _DAY,
        "failures": _LOOKS,
        "successes": _LOOKS,
    },
).called("health")
_EXTRA_MOUNT: Final = cfg.record(
    ExtraMount,
    {
        "path": cfg.needed(string_kinds.MOUNTED),
        "mountPath": cfg.as_argument(string_kinds.INSIDE_PATH_TEMPLATE, "mount_path"),
        "readOnly": cfg.as_argument(cfg.boolean(), "read_only"),
    },
).called("mount")


def _one_value(_place: Place, given: Given) -> None:
    first, second = (given[key].keys() if key in given else () for key in ("env", "joinedEnv"))
    for name in {*first}.intersection(second):
        given["joinedEnv"].fault(f"{name} is in env too: leave it out of one")


def _entry(**given: Any) -> Entry:
    """Return an entry. Ids by path would change once it is known what nodes can do."""
    entry = Entry(**given)
    selectors = [one for group in entry.groups if group.nodes for one in group.selectors]
    if entry.identity == "path" and any(one.abilities for one in selectors):
        raise ValueError("id: path would make ids that change with what nodes can: leave id out")
    return entry


ENTRY: Final = cfg.record(
    _entry,
    {
        "name": cfg.needed(
            cfg.text(NAME, "lower-case letters, digits and hyphens, 2 to 63", strip=True)
        ),
        "groups": cfg.needed(cfg.list_of(_GROUP, 1)),
        "id": cfg.as_argument(cfg.choice(*IDENTITIES), "identity"),
        "env": cfg.as_argument(string_kinds.VARIABLES, "envs"),
        "joinedEnv": cfg.as_argument(string_kinds.VARIABLES, "joined"),
        "annotations": string_kinds.ANNOTATIONS,
        "mounts": cfg.list_of(_EXTRA_MOUNT),
        "cdi": cfg.list_of(string_kinds.CDI),
        "health": _CHECK,
        "policy": cfg.choice(*POLICIES),
        "count": _misplaced("a group, as in groups: [{{count: {0}, ...}}]"),
    },
    rules=[_one_value],
).called("device")


RULE: Final = cfg.record(
    Rule,
    {
        "devicematch": cfg.needed(string_kinds.DEVICE_MATCH, "pattern"),
        "nummaxdevices": cfg.needed(cfg.integer(0, MAX_COUNT), "count"),
    },
).called("rule")
"""An entry of smarter-device-manager."""
