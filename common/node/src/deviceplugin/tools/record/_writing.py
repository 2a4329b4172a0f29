"""Writing devices as ``umockdev-record`` does, with or without serial numbers."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from deviceplugin.tools.record._devices import Record

_SERIAL_ATTRIBUTES: Final = frozenset({"serial", "uniq", "unique_id"})
_SERIAL_PROPERTIES: Final = frozenset({"HID_UNIQ", "ID_SERIAL_SHORT", "ID_USB_SERIAL_SHORT"})
_NUMBERED: Final = re.compile("^(unique_id|hive_id) ([1-9][0-9]*)$", re.MULTILINE)
"""Serial numbers among the properties of a node of KFD, which are numbers."""
_SHORTEST: Final = 4
"""Characters of a serial number that is also masked inside of other values."""
_ADDRESS: Final = re.compile("[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\\.[0-7]")
"""A root hub has the address of its controller as its serial number."""
_ODD: Final = re.compile("[^A-Za-z0-9#+.:=@_-]")
"""What udev replaces in names of links."""


class Mask:
    """Replaces serial numbers: the same one by the same word, different ones by different words."""

    def __init__(self, found: Sequence[Record]) -> None:
        in_sysfs = dict.fromkeys(text for one in found for text in _serials(one.attributes))
        self._words = {text: f"SERIAL{number}" for number, text in enumerate(in_sysfs, 1)}
        forms = {_ODD.sub("_", text): word for text, word in self._words.items()}
        in_udev = dict.fromkeys(text for one in found for text in _serials(one.properties))
        new = [text for text in in_udev if text not in {**forms, **self._words}]
        forms |= {text: f"SERIAL{len(in_sysfs) + number}" for number, text in enumerate(new, 1)}
        self._words = {**forms, **self._words}
        self._numbers: dict[str, str] = {}
        parts = {text: word for text, word in self._words.items() if len(text) >= _SHORTEST}
        # The longest first, because one can be a part of another.
        escaped = map(re.escape, sorted(parts, key=len, reverse=True))
        self._parts, self._pattern = parts, re.compile("|".join(escaped)) if parts else None

    def text(self, text: str) -> str:
        """Return a value without serial numbers. One that has to be a number stays one."""
        text = _NUMBERED.sub(lambda found: f"{found[1]} {self._number(found[2])}", text)
        if text in self._words:
            return self._words[text]
        if self._pattern is None:
            return text
        return self._pattern.sub(lambda found: self._parts[found[0]], text)

    def _number(self, text: str) -> str:
        return self._numbers.setdefault(text, str(len(self._numbers) + 1))


def written(found: Sequence[Record], mask: Mask | None) -> Iterator[str]:
    for one in found:
        yield "\n".join(_lines(one, mask)) + "\n"


def _lines(one: Record, mask: Mask | None) -> Iterator[str]:
    def shown(text: str) -> str:
        return _escaped(mask.text(text) if mask else text)

    yield f"P: {_escaped(one.path)}"
    if one.node:
        yield f"N: {_escaped(one.node)}"
    yield from (f"S: {shown(link)}" for link in one.links)
    yield from (f"E: {key}={shown(text)}" for key, text in sorted(one.properties.items()))
    yield from (f"A: {name}={shown(text)}\\n" for name, text in one.attributes.items())
    yield from (f"L: {name}={_escaped(text)}" for name, text in one.targets.items())


def _serials(values: Mapping[str, str]) -> Iterator[str]:
    for key, text in values.items():
        is_serial = key in _SERIAL_ATTRIBUTES | _SERIAL_PROPERTIES
        if is_serial and text and not _ADDRESS.fullmatch(text):
            yield text


def _escaped(text: str) -> str:
    """Return a value in one line, as umockdev has it."""
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
