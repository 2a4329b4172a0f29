"""Writing entries as YAML with comments."""

from collections.abc import Sequence
from textwrap import wrap
from typing import Any, Final

import yaml

from deviceplugin.kit.usb import Ledger
from deviceplugin_generic.configuration.loading import Devices
from deviceplugin_generic.discovery.devices import of_entry
from deviceplugin_generic.discovery.health import Doctor
from deviceplugin_generic.discovery.tree import Tree
from deviceplugin_generic.explanation.proposals import Proposal

_WIDTH: Final = 100
_MOST_IDS: Final = 8
_OFTEN_NUMBERS: Final = frozenset({"vendor", "product", "serial", "index"})
_TOP: Final = """\
# Devices of this machine, as entries of a configuration. Remove what you do not mean, and rename
# what you keep: the name is that of the resource, and a part of its ids. Without serial or name, an
# entry selects all devices of a model.
devices:
"""


class _Quoted(str):
    """A string that YAML writes in quotes, because others might read a number."""

    __slots__ = ()


class _InOneLine(dict[str, Any]):
    """A mapping that YAML writes in braces."""


class _Dumper(yaml.SafeDumper):
    """Writes entries as people do."""


_Dumper.add_representer(
    _Quoted, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"')
)
_Dumper.add_representer(
    _InOneLine,
    lambda dumper, keys: dumper.represent_mapping(
        "tag:yaml.org,2002:map", keys.items(), flow_style=True
    ),
)


def document(found: Sequence[Proposal], tree: Tree) -> str:
    """Return a configuration with comments that say what each entry is."""
    return _TOP + "".join("\n" + _proposal(one, tree) for one in found)


def _proposal(one: Proposal, tree: Tree) -> str:
    comments = [
        f"{one.what}.",
        f"Recognized by {one.found_by}.",
        *(f"Warning: {text}." for text in one.warnings),
    ]
    text = yaml.dump(
        [_quoted(one.entry)], Dumper=_Dumper, sort_keys=False, default_flow_style=None, width=_WIDTH
    )
    comments.append(_now(one, tree))
    lines = [f"# {line}" for comment in comments for line in _lines(comment)]
    return "".join(f"  {line}\n" for line in (*lines, *text.splitlines()))


def _now(one: Proposal, tree: Tree) -> str:
    """Return the ids that the plugin would advertise."""
    (entry,) = Devices.parse(yaml.safe_dump(one.entry)).configuration.entries
    shares = of_entry(entry, "", tree, Doctor(), Ledger())
    ids = list({share.origin: share.device.id for share in reversed(shares)}.values())[::-1]
    more = len(ids) - _MOST_IDS
    listed = ", ".join([*ids[:_MOST_IDS], *([f"and {more} more"] if more > 0 else [])])
    each = f", each with {len(shares) // len(ids)} shares" if len(shares) > len(ids) else ""
    if not ids:
        return "Nothing is found by it now."
    return f"Its id is now {listed}{each}." if len(ids) == 1 else f"Ids are now {listed}{each}."


def _quoted(value: Any) -> Any:
    """Return a value whose strings are quoted where somebody may read a number."""
    if isinstance(value, dict):
        keys = {
            key: _Quoted(one) if key in _OFTEN_NUMBERS else _quoted(one)
            for key, one in value.items()
        }
        return _InOneLine(keys) if "subsystem" in keys else keys
    return [_quoted(one) for one in value] if isinstance(value, list) else value


def _lines(text: str) -> list[str]:
    """Return the lines of a comment. Devices say of themselves what they like."""
    printable = "".join(letter if letter.isprintable() else "?" for letter in text)
    return wrap(printable, _WIDTH - 4, break_long_words=False, break_on_hyphens=False)
