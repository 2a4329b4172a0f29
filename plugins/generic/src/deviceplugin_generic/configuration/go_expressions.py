"""Regular expressions in the syntax of Go's ``regexp``, which smarter-device-manager uses.

They are translated to Python's, which reads some of them differently without a word, such as
``[[:digit:]]``, ``a++``, ``a{,3}``, and ``$`` before a newline. What Go refuses is refused, too,
and so is the little that Python cannot do.
"""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Final

_NAMED: Final = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "ascii": r"\x00-\x7f", "blank": r"\t ",
    "cntrl": r"\x00-\x1f\x7f", "digit": "0-9", "graph": "!-~", "lower": "a-z", "print": " -~",
    "punct": r"!-/:-@\[-`{-~", "space": r"\t-\r ", "upper": "A-Z", "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}  # fmt: skip
_PERL: Final = {"d": _NAMED["digit"], "w": _NAMED["word"], "s": r"\t\n\f\r "}
_SPECIAL: Final = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_EMPTY: Final = {"A": r"(?:\A)", "z": r"(?:\Z)", "b": r"(?a:\b)", "B": r"(?a:\B)"}
"""What matches no character. Python repeats it in a group only; Go also in ``^*``."""
_PLAIN: Final = {".": ".", "^": "(?:^)"}
_NUMBER: Final = (
    r"\\x\{(?P<wide>[0-9A-Fa-f]{1,8})\}|\\x(?P<hex>[0-9A-Fa-f]{2})"
    r"|\\(?P<octal>0[0-7]{0,2}|[1-7][0-7]{1,2})|\\(?P<escaped>.)"
)
_TOKEN: Final = re.compile(
    rf"\\Q(?P<quoted>.*?)(?:\\E|\Z)|{_NUMBER}"
    r"|(?P<class>\[\^?\]?(?:\[:\^?[a-z]+:\]|\\.|[^\]\\])*\])"
    r"|\((?:\?(?:P?<(?P<name>\w+)>|(?P<flags>[imsU]*(?:-[imsU]+)?)(?P<kind>[:)])))"
    r"|(?P<repeat>(?:[*+?]|\{(?P<least>[0-9]+)(?:,(?P<most>[0-9]*))?\})\??)|(?P<plain>.)",
    re.DOTALL | re.ASCII,
)
_ITEM: Final = re.compile(
    rf"\[:(?P<not>\^?)(?P<named>[a-z]+):\]|{_NUMBER}|(?P<plain>.)", re.DOTALL | re.ASCII
)
_MOST_REPEATS: Final = 1000
_LAST: Final = 0x10FFFF


@lru_cache(maxsize=1024)
def compiled(pattern: str) -> re.Pattern[str]:
    """Return a pattern of Go's as one of Python's; ValueError if Go or Python cannot do it."""
    try:
        return re.compile("".join(_Translation(pattern)))
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(str(error)) from error


class _Translation:
    """The parts of a translated pattern."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._open: list[list[str]] = [[]]
        """For each group that is open, the flags that were set in it, which last until its end."""
        self._multiline = [False]
        """For each group that is open, whether ``$`` is the end of a line."""
        self._names: set[str] = set()

    def __iter__(self) -> Iterator[str]:
        was_repeat = False
        for found in _TOKEN.finditer(self._pattern):
            is_repeat = found["repeat"] is not None
            if is_repeat and was_repeat:
                raise ValueError(f"{found[0]!r} repeats a repetition")
            was_repeat = is_repeat
            yield self._part(found)
        yield ")" * len(self._open[0])

    def _part(self, found: re.Match[str]) -> str:
        kinds: dict[str, Callable[[re.Match[str]], str]] = {
            "quoted": lambda one: re.escape(one["quoted"]),
            "class": lambda one: _class(one["class"]),
            "name": self._group,
            "kind": self._flagged,
            "repeat": _repeat,
            "escaped": _escaped,
            "plain": self._plain,
        }
        make = next((make for kind, make in kinds.items() if found[kind] is not None), None)
        return make(found) if make else re.escape(_character(found))

    def _plain(self, found: re.Match[str]) -> str:
        character = found["plain"]
        flags = self._open[-1]
        match character:
            case "(":
                if self._pattern.startswith("(?", found.start()):
                    raise ValueError(f"{self._pattern[found.start() :][:4]!r} is not in Go")
                return self._begin()
            case ")" if len(self._open) > 1:
                self._open.pop()
                self._multiline.pop()
                return ")" * (len(flags) + 1)
            case ")":
                raise ValueError("a ) too many")
            case "|":
                return f"{')' * len(flags)}|{''.join(flags)}"
            case "$":
                return "(?:$)" if self._multiline[-1] else _EMPTY["z"]
            case "[" | "\\":
                raise ValueError(f"{character} at the end, or without its end")
        return _PLAIN.get(character) or re.escape(character)

    def _group(self, found: re.Match[str]) -> str:
        if found["name"] in self._names:
            raise ValueError(f"the name {found['name']!r} is given twice")
        self._names.add(found["name"])
        return self._begin()

    def _flagged(self, found: re.Match[str]) -> str:
        if "U" in found["flags"]:
            raise ValueError("the flag U is not supported: write *? for * and * for *?")
        start = f"(?{found['flags']}:"
        if found["kind"] == ":":
            self._open.append([])
            self._multiline.append(self._multiline[-1])
        elif found["flags"]:
            self._open[-1].append(start)
        else:
            raise ValueError("(?) has no flags")
        on, _, off = found["flags"].partition("-")
        self._multiline[-1] = ("m" in on or self._multiline[-1]) and "m" not in off
        return start

    def _begin(self) -> str:
        self._open.append([])
        self._multiline.append(self._multiline[-1])
        return "("


def _repeat(found: re.Match[str]) -> str:
    least, most = found["least"], found["most"]
    if any(int(number) > _MOST_REPEATS for number in (least, most) if number):
        raise ValueError(f"{found[0]} repeats more than {_MOST_REPEATS} times")
    return found[0]


def _escaped(found: re.Match[str]) -> str:
    letter = found["escaped"]
    if letter in _EMPTY:
        return _EMPTY[letter]
    return f"[{_set(found)}]" if letter.lower() in _PERL else re.escape(_character(found))


def _class(text: str) -> str:
    """Return a class in brackets, all of whose characters are escaped."""
    negated = text.startswith("[^")
    items = [*_ITEM.finditer(text, 2 if negated else 1, len(text) - 1)]
    parts = []
    while items:
        item = items.pop(0)
        if chosen := _set(item):
            parts.append(chosen)
            continue
        first = last = _character(item)
        if len(items) > 1 and items[0][0] == "-":
            last = _character(items[1])
            del items[:2]
        if first > last:
            raise ValueError(f"{first}-{last} is not a range")
        parts.append(f"{re.escape(first)}-{re.escape(last)}")
    return f"[{'^' * negated}{''.join(parts)}]"


def _set(item: re.Match[str]) -> str:
    """Return the inside of a class for a set of characters; empty for a single character."""
    groups = item.groupdict()
    if name := groups.get("named"):
        if name not in _NAMED:
            raise ValueError(f"[:{name}:] is not a class of characters")
        return _not(_NAMED[name]) if groups["not"] else _NAMED[name]
    letter = groups["escaped"] or ""
    chosen = _PERL.get(letter.lower(), "")
    return _not(chosen) if letter.isupper() and chosen else chosen


def _not(chosen: str) -> str:
    """Return the inside of a class for all characters but these of ASCII."""
    regex = re.compile(f"[{chosen}]")
    others = (re.escape(chr(code)) for code in range(128) if not regex.match(chr(code)))
    return f"{''.join(others)}\\x80-\\U0010ffff"


def _character(found: re.Match[str]) -> str:
    """Return the character that a token or an item stands for."""
    for kind, base in (("wide", 16), ("hex", 16), ("octal", 8)):
        if number := found[kind]:
            code = int(number, base)
            if code > _LAST:
                raise ValueError(f"{found[0]} is not a character")
            return chr(code)
    letter = found["escaped"]
    if letter is None:
        return found["plain"]
    if letter in "pP":
        raise ValueError(f"{found[0]}: Unicode classes are not supported: write the characters")
    if letter.isascii() and not letter.isalnum():
        return letter
    if letter not in _SPECIAL:
        raise ValueError(f"{found[0]} is not in Go")
    return _SPECIAL[letter]
