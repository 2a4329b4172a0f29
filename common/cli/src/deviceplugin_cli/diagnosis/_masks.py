"""Masking what is secret in objects, logs and messages. Secrets themselves are never read."""

import re
from collections.abc import Mapping
from typing import Any, Final

from deviceplugin._config.documents.faults import bounded

MASK: Final = "***"
_WORDS: Final = (
    r"pass(?:word|wd|phrase)?|secret|token|(?:api|access|private)[-_]?key|key[-_]data|credentials?"
)
_NAMED: Final = re.compile(rf"(?i)(?:^|[a-z0-9_.-])(?:{_WORDS})$|^(?:{_WORDS})$")
"""A key, a variable or a flag whose value is a secret: the last word says so."""
_FLAG: Final = re.compile(rf"(?i)--?[\w.-]*(?:{_WORDS})$")
_PATTERNS: Final = (
    (
        re.compile(r"-----BEGIN ([A-Z ]*PRIVATE KEY)-----.*?(?:-----END \1-----|\Z)", re.DOTALL),
        MASK,
    ),
    (
        re.compile(
            rf"(?im)^([ \t]*)(\S*(?:{_WORDS})\"?:\s*)[|>][-+\d]*\n(?:\1[ \t]+.*(?:\n|\Z)|[ \t]*\n)+"
        ),
        rf"\1\2{MASK}\n",
    ),
    (re.compile(rf"(?i)((?<!\S)--?[\w.-]*(?:{_WORDS}) +)[^\s-]\S*"), rf"\1{MASK}"),
    (re.compile(r"\beyJ[\w-]{8,}\.[\w-]+(?:\.[\w-]*)?"), MASK),  # a JSON web token
    (re.compile(r"(?i)\b(bearer|basic) [\w.~+/=-]{6,}"), rf"\1 {MASK}"),
    (re.compile(r"(://[^/\s:@\"']*:)[^/\s@\"']+@"), rf"\1{MASK}@"),
    (
        re.compile(rf"(?i)((?:{_WORDS})\\?[\"']?\s*[:=]\s*)(\\?[\"'])(?:(?!\2)(?:\\.|[^\n]))+"),
        rf"\1\2{MASK}",
    ),
    (re.compile(rf"(?i)((?:{_WORDS})\s*[:=]\s*)(?![\s\"'\\*])[^\s,;}}\]\"'\\]+"), rf"\1{MASK}"),
)
_DROPPED: Final = frozenset({"managedFields", "kubectl.kubernetes.io/last-applied-configuration"})
"""What an object says twice, or only for machines."""


def masked(text: str) -> str:
    """Return ``text`` without what looks like a password, a token or a private key."""
    for pattern, mask in _PATTERNS:
        text = pattern.sub(mask, text)
    return text


def said(text: str) -> str:
    """Return what somebody said, for a finding: masked, and not too long."""
    return bounded(masked(text))


def masked_object(value: Any, key: str = "") -> Any:
    """Return a part of an object with its secrets masked: values whose key or name says so."""
    if isinstance(value, Mapping):
        name = value.get("name")
        of_name = name if isinstance(name, str) and "value" in value else ""
        return {
            one: masked_object(part, of_name if one == "value" else str(one))
            for one, part in value.items()
            if one not in _DROPPED
        }
    if isinstance(value, list):
        before = ["", *value]
        return [
            MASK if _is_flag(flag) and isinstance(one, str) else masked_object(one)
            for flag, one in zip(before, value, strict=False)
        ]
    if isinstance(value, str):
        return MASK if value and _NAMED.search(key) else masked(value)
    return value


def _is_flag(word: object) -> bool:
    return isinstance(word, str) and _FLAG.fullmatch(word) is not None
