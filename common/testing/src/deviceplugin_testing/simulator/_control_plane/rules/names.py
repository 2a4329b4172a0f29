"""The rules for names, labels and identifiers, in the API server's words."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from deviceplugin_testing.simulator._control_plane.kinds import Object
from deviceplugin_testing.simulator._control_plane.refusals import FieldError, invalid, required

_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_LABEL}(\.{_LABEL})*"
_IDENTIFIER: Final = "[A-Za-z_][A-Za-z0-9_]*"
_WORD: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LONGEST_LABEL: Final = 63
_LONGEST_SUBDOMAIN: Final = 253
_FORMS: Final = {
    _LABEL: (
        (
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
            "and must start and end with an alphanumeric character"
        ),
        ("my-name", "123-abc"),
    ),
    _SUBDOMAIN: (
        (
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, "
            "'-' or '.', and must start and end with an alphanumeric character"
        ),
        ("example.com",),
    ),
    _IDENTIFIER: (
        (
            "a valid C identifier must start with alphabetic character or '_', followed by a "
            "string of alphanumeric characters or '_'"
        ),
        ("my_name", "MY_NAME", "MyName"),
    ),
    _WORD: (
        (
            "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with "
            "an alphanumeric character"
        ),
        ("MyName", "my.name", "123-abc"),
    ),
}


def label(text: str) -> Iterator[str]:
    """Yield what is wrong with the name of a device or a request."""
    if len(text) > _LONGEST_LABEL:
        yield f"must be no more than {_LONGEST_LABEL} characters"
    if not _matches(_LABEL, text):
        yield "must not contain dots" if _matches(_SUBDOMAIN, text) else _form(_LABEL)


def subdomain(text: str, unit: str = "characters") -> Iterator[str]:
    """Yield what is wrong with a domain, or the name of an object or a node."""
    if len(text) > _LONGEST_SUBDOMAIN:
        yield f"must be no more than {_LONGEST_SUBDOMAIN} {unit}"
    if not _matches(_SUBDOMAIN, text):
        yield _form(_SUBDOMAIN)


def identifier(text: str) -> Iterator[str]:
    """Yield what is wrong with the name of an attribute, without its length."""
    if not _matches(_IDENTIFIER, text):
        yield _form(_IDENTIFIER)


def qualified(text: str) -> Iterator[str]:
    """Yield what is wrong with the key of a label, an annotation or a taint."""
    *domains, name = text.split("/")
    if len(domains) > 1:
        optional = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        yield f"a valid label key {_form(_WORD)} {optional}"
        return
    if domains == [""]:
        yield "prefix part must be non-empty"
    elif domains:
        yield from (f"prefix part {problem}" for problem in subdomain(domains[0], "bytes"))
    if not name:
        yield "name part must be non-empty"
    if len(name) > _LONGEST_LABEL:
        yield f"name part must be no more than {_LONGEST_LABEL} bytes"
    if not _matches(_WORD, name):
        yield f"name part {_form(_WORD)}"


def value(text: str) -> Iterator[str]:
    """Yield what is wrong with the value of a label or a taint."""
    if len(text.encode()) > _LONGEST_LABEL:
        yield f"must be no more than {_LONGEST_LABEL} bytes"
    if text and not _matches(_WORD, text):
        words, _ = _FORMS[_WORD]
        said = words.replace("must consist", "a valid label must be an empty string or consist")
        yield _with_examples(said, ("MyValue", "my_value", "12345"), f"({_WORD})?")


_QUOTA: Final = "requests."
"""Names of resources must stay valid with this prefix, because resource quotas use it."""


def is_extended_resource(text: str) -> bool:
    """Return whether ``text`` can be the resource of a plugin or of a device class."""
    native = "/" not in text or "kubernetes.io/" in text
    return not native and not text.startswith(_QUOTA) and not any(qualified(f"{_QUOTA}{text}"))


def _matches(form: str, text: str) -> bool:
    return re.fullmatch(form, text, re.ASCII) is not None


def _form(form: str) -> str:
    words, examples = _FORMS[form]
    return _with_examples(words, examples, form)


def _with_examples(words: str, examples: tuple[str, ...], form: str) -> str:
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{words} (e.g. {shown}regex used for validation is '{form}')"


_OWNER = {"kind": "must not be empty", "name": "must not be empty", "uid": "must not be empty"}


def segment(text: str) -> Iterator[str]:
    """Yield what is wrong with the name of an Event: it can be a part of an address."""
    yield from (f"may not contain '{one}'" for one in "/%" if one in text)


def check_metadata(
    metadata: Mapping[str, object], wrong: Callable[[str], Iterator[str]] = subdomain
) -> Iterator[FieldError]:
    """Yield the errors of ``metadata``; ``wrong`` yields those of its name, which is complete."""
    generated = str(metadata.get("generateName", ""))
    if generated:
        prefix = f"{generated[:-1]}a" if len(generated) > 1 and generated[-1] == "-" else generated
        for problem in wrong(prefix):
            yield invalid("metadata.generateName", generated, problem)
    name = str(metadata.get("name", ""))
    if not name:
        yield required("metadata.name", "name or generateName is required")
    else:
        yield from (invalid("metadata.name", name, one) for one in wrong(name))
    yield from _check_strings(metadata)
    owners: list[Object] = metadata.get("ownerReferences", [])  # type: ignore[assignment]
    for owner in owners:
        yield from _check_owner(owner)


def _check_strings(metadata: Mapping[str, object]) -> Iterator[FieldError]:
    labels: Mapping[str, str] = metadata.get("labels", {})  # type: ignore[assignment]
    for key, given in sorted(labels.items()):
        for problem in qualified(key):
            yield invalid("metadata.labels", key, problem)
        for problem in value(given):
            yield invalid("metadata.labels", given, problem)
    annotations: Mapping[str, str] = metadata.get("annotations", {})  # type: ignore[assignment]
    for key in sorted(annotations):
        for problem in qualified(key.lower()):
            yield invalid("metadata.annotations", key, problem)


def _check_owner(owner: Object) -> Iterator[FieldError]:
    place = "metadata.ownerReferences"
    if not owner["apiVersion"]:
        yield invalid(f"{place}.apiVersion", "", "version must not be empty")
    for field, problem in _OWNER.items():
        if not owner[field]:
            yield invalid(f"{place}.{field}", "", problem)
