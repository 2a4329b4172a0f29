"""What all forms of the output are written with: comments, and YAML that people read."""

from collections.abc import Iterable
from textwrap import wrap
from typing import Any, Final

_WIDTH: Final = 96


def comments(lines: Iterable[str]) -> str:
    """Return comments. Manifests may have any characters; lines that are indented are commands."""
    return "".join(map(_comment, lines))


def _comment(text: str) -> str:
    printable = "".join(letter if letter.isprintable() else " " for letter in text)
    if text.startswith(" "):
        return f"# {printable}\n"
    first = text.split(" ", 1)[0]
    indent = " " * (len(first) + 1) if first == "*" or first.rstrip(".").isdecimal() else ""
    lines = wrap(
        printable, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return "".join(f"# {line}\n" for line in lines) or "#\n"


def to_yaml(value: Any) -> str:
    """Return YAML, with strings of several lines as blocks."""
    import yaml

    class Dumper(yaml.SafeDumper):
        """Writes strings of several lines as blocks."""

    def text(dumper: Dumper, value: str) -> yaml.ScalarNode:
        style = "|" if "\n" in value else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    Dumper.ignore_aliases = lambda *_: True  # type: ignore[method-assign]
    written: str = yaml.dump(
        value,
        Dumper=Dumper,
        sort_keys=False,
        default_flow_style=False,
        allow_unicode=True,
        width=90,
    )
    return written
