"""What outsiders may write: the bytes and the places of valid documents, changed at random."""

import copy
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import yaml
from hypothesis import strategies as st
from typing_extensions import override

_HOSTILE: Final = (
    *("", " ", "x", "\0", "a\0b", "a\nb", "a\x1b[31mb", "\ud800", "\u202ea", "\u0661", "\xff"),
    *("../../../../etc", "/", "..", "/dev/mem", "a/../b", "%s{id}%", "$(id)", "{serial}", "<<"),
    *("99999999999999999999", "-1", "1e999", "0x", "1Gi", "10%", "30s", "*", "[", "example.com/a"),
    *("n" * 300, "n" * 2**20),
)
ODD: Final = (
    *map(json.dumps, _HOSTILE),
    *("null", "true", "false", "0", "1", "-1", "0.5", "1e400", "-1e400", "9" * 30, "9" * 5000),
    *("[]", "{}", "[null]", "[[]]", '{"":null}', '{"a":1,"a":{}}', '["a","a"]', "NaN"),
    *("[" * 300 + "]" * 300, "[" * 20000 + "]" * 20000, '{"a":' * 300 + "1" + "}" * 300),
    *("&a [*a]", "2026-11-26", "1:30", "!!binary x"),  # of YAML only
)
"""Values as they are written. All but the last are JSON, which YAML reads too."""
_TOKENS: Final = (
    *(b"\0", b"\n", b"\r\n\r\n", b" ", b'"', b"'", b"{", b"}", b"[", b"]", b":", b",", b"-", b"#"),
    *(b"\t", b"\n---\n", b"\n\t", b"\nx-a: ", b"\xff\xfe", b"\0{\0"),
    *(b"\xff", b"\xed\xa0\x80", b"\x1b[31m", b"null", b"../", b"9" * 40, b"a" * 5000, b"&a *a <<"),
)
_LONGEST: Final = 5000
"""Characters of a sample that are shown."""
_STAND_IN: Final = "ODD{}ODD"


class Form(NamedTuple):
    """How a document is written."""

    suffix: str
    write: Callable[[Any], str]


def _toml(document: Any) -> str:
    """Return ``document`` as TOML with inline tables, as far as TOML can have it."""
    if not isinstance(document, dict):
        return json.dumps(document)
    written = json.JSONEncoder(separators=(", ", " = ")).encode
    return "\n".join(f"{json.dumps(key)} = {written(one)}" for key, one in document.items())


JSON: Final = Form(".json", json.dumps)
YAML: Final = Form(".yaml", lambda document: str(yaml.safe_dump(document, width=10**9)))
TABS: Final = Form(".yaml", lambda document: json.dumps(document, indent="\t"))
TOML: Final = Form(".toml", _toml)


class Seed(NamedTuple):
    """Something valid."""

    document: Any
    """Bytes, or what a form can write."""
    form: Form = JSON

    @property
    def content(self) -> bytes:
        """The bytes of it."""
        document = self.document
        return document if isinstance(document, bytes) else self.form.write(document).encode()


class Sample(NamedTuple):
    """What is read, and the ending of the name of its file."""

    content: bytes
    suffix: str

    @override
    def __repr__(self) -> str:
        shown = repr(self.content)
        if len(shown) > _LONGEST:
            shown = f"{shown[:_LONGEST]}... ({len(self.content)} bytes)"
        return f"Sample({shown}, {self.suffix!r})"


def seeds(*documents: Any, forms: Sequence[Form] = (JSON,)) -> list[Seed]:
    """Return these documents in all ``forms``."""
    return [Seed(one, form) for one in documents for form in forms]


@st.composite
def changed_bytes(draw: st.DrawFn, given: Sequence[Seed]) -> Sample:
    """Draw random bytes, or the bytes of a seed with up to four changes."""
    encoded = [one for one in given if isinstance(one.document, bytes)]
    seed = draw(st.sampled_from(encoded or given))
    content = seed.content
    if not draw(st.integers(0, 9)):
        return Sample(draw(st.binary(max_size=200)), seed.form.suffix)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(content)))
        gone = draw(st.sampled_from((0, 1, 2, 8, len(content))))
        new = draw(st.one_of(st.sampled_from(_TOKENS), st.binary(max_size=8)))
        content = content[:at] + new + content[at + gone :]
    return Sample(content, seed.form.suffix)


@st.composite
def changed_places(draw: st.DrawFn, given: Sequence[Seed]) -> Sample:
    """Draw a seed of which up to three places are gone, another's, odd, or have an odd name."""
    seed = draw(st.sampled_from([one for one in given if not isinstance(one.document, bytes)]))
    root = [copy.deepcopy(seed.document)]
    odd: dict[str, str] = {}

    def stand_in(texts: Sequence[str]) -> str:
        name = _STAND_IN.format(len(odd))
        odd[name] = draw(st.sampled_from(texts))
        return name

    for _ in range(draw(st.integers(1, 3))):
        places = list(_places(root))
        holder, key = draw(st.sampled_from(places))
        deed = draw(st.sampled_from(("odd", "odd", "odd", "gone", "other", "name")))
        if deed == "gone" and holder is not root:
            del holder[key]
        elif deed == "other":
            other, at = draw(st.sampled_from(places))
            holder[key] = copy.deepcopy(other[at])
        elif deed == "name" and isinstance(holder, dict):
            holder[stand_in(_NAMES)] = holder.pop(key)
        else:
            holder[key] = stand_in(ODD)
    text = seed.form.write(root[0])
    for name, written in odd.items():
        text = text.replace(f'"{name}"', written).replace(name, written)
    return Sample(text.encode(), seed.form.suffix)


_NAMES: Final = tuple(map(json.dumps, _HOSTILE))


def _places(holder: Any) -> Iterator[tuple[Any, Any]]:
    """Yield all places of a document: what holds it, and the key or the index."""
    for key in holder if isinstance(holder, dict) else range(len(holder)):
        yield holder, key
        if isinstance(holder[key], dict | list):
            yield from _places(holder[key])
