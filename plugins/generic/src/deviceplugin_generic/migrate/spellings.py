"""What squat's plugin reads in another way than ours: rewritten, so that ours reads the same."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from deviceplugin.kit.configuration import Place
from deviceplugin_generic.configuration.grammar import ENTRY

Differs = Callable[[str, str], None]
_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "": ("name", "groups"),
    "groups": ("count", "paths", "usb"),
    "paths": ("path", "mountPath", "permissions", "readOnly", "type", "limit", "optional"),
    "usb": ("vendor", "product", "serial"),
}
"""The keys of its entries, and of what is in their lists."""
_NO_EFFECT: Final = {
    ("", "count"): "beside groups: if it was meant, put it into a group",
    ("groups", "limit"): "in a group: if shares were meant, write count",
}
"""Keys that people write a level too high."""
_OURS: Final = frozenset(ENTRY.schema["properties"]) | {
    *("select", "nodes", "perMatch", "mountPath", "permissions", "with")
}


def rewrite(place: Place, differs: Differs, *, is_flag: bool, within: str = "") -> None:
    """Rewrite an entry, or what is in its lists. What it ignores and ours would not is a fault."""
    if place.kind != "mapping":
        return
    _rename(place, _KEYS[within])
    for key, inner in place.keys().items():
        if why := _NO_EFFECT.get((within, key)):
            del place.node.pairs[key]
            differs(f"{inner}", f"has no effect {why}")
        elif key not in _KEYS[within] and key in _OURS:
            del place.node.pairs[key]
            inner.fault("is not a key of theirs, which ignores it: take it out")
        elif key in ("vendor", "product") and is_flag and inner.kind == "integer":
            _quote(inner, differs)
        elif key in _KEYS and inner.kind == "list":
            kept = [one for one in inner.items() if not _is_lost_count(one, key, differs)]
            inner.node.items[:] = [one.node for one in kept]
            for one in kept:
                rewrite(one, differs, is_flag=is_flag, within=key)


def _rename(place: Place, known: tuple[str, ...]) -> None:
    """Write keys as they are written here, for theirs may be in any case, and none that is null."""
    cases = {key.lower(): key for key in known}
    pairs = {key: node for key, node in place.node.pairs.items() if node.kind != "nothing"}
    if len({key.lower() for key in pairs}) == len(pairs):
        place.node.pairs = {cases.get(key.lower(), key): node for key, node in pairs.items()}


def _quote(place: Place, differs: Differs) -> None:
    """Make a number the string that it stands for: a flag's are JSON, read as hexadecimal."""
    text, node = f"{place.plain():04d}", place.node
    differs(str(place), f'{node.raw} without quotes is "{text}", hexadecimal, as theirs reads it')
    node.kind, node.raw, node.value = "text", text, text


def _is_lost_count(place: Place, within: str, differs: Differs) -> bool:
    keys: Iterator[str] = iter(place.keys() if place.kind == "mapping" else ())
    is_one = within == "groups" and [*keys] == ["count"]
    if is_one:
        differs(str(place), "a count alone has no effect: put it into the group before it")
    return is_one
