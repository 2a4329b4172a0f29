"""Names of resources: those of Intel's own plugin for FPGAs, or aliases that people choose."""

import re
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from deviceplugin.kit import configuration
from deviceplugin.kit.configuration import Place, list_of, needed, record
from deviceplugin_fpga.drivers import ALL_ONES, ID
from deviceplugin_fpga.settings import MODES

NAMESPACE: Final = "fpga.intel.com"
REGION_MODE: Final = f"{NAMESPACE}/region"
"""Value of the annotation by which a runtime knows that a region is to be programmed."""

Key: TypeAlias = tuple[str, str]
"""An interface id and the id of a function, which is empty for the interface itself."""
_NAME: Final = re.compile(r"(?=.{1,63}\Z)[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_OWN: Final = re.compile(rf"({'|'.join(MODES)})|(af|region)-.*", re.IGNORECASE)
"""Names that the modes use, or could give to another function."""


@dataclass(frozen=True)
class Aliases:
    """The resource names of functions and interfaces: the alias, or the name of the mode."""

    names: Mapping[Key, str] = field(default_factory=dict)

    def af(self, interface_id: str, afu_id: str) -> str:
        """Return the resource of a port that is programmed with ``afu_id``.

        Both ids in full would be too long. They are in base64, after the first digits of each, by
        which people can distinguish them.
        """
        both = urlsafe_b64encode(bytes.fromhex(interface_id + afu_id)).decode().rstrip("=")
        own = f"af-{interface_id[:3]}.{afu_id[:3]}.{both}"
        return f"{NAMESPACE}/{self.names.get((interface_id, afu_id), own)}"

    def region(self, interface_id: str) -> str:
        """Return the resource of an FME whose regions can be programmed."""
        return f"{NAMESPACE}/{self.names.get((interface_id, ''), f'region-{interface_id}')}"


def read_aliases(path: Path | None) -> Aliases:
    """Return the aliases in the file at ``path``; none without a path."""
    return Aliases() if path is None else configuration.read(path, _FILE)


def canonical(text: str) -> str:
    """Return an id as sysfs writes it. The message of a ValueError continues after the value."""
    found = text.strip().replace("-", "").lower()
    if not ID.fullmatch(found):
        raise ValueError("is not an id of 32 hex digits")
    if found == ALL_ONES:
        raise ValueError("is what hardware returns that does not answer")
    return found


def alias_name(text: str) -> str:
    """Return a name as it is. The message of a ValueError continues after the value."""
    if not _NAME.fullmatch(text):
        raise ValueError(
            "is not 1 to 63 letters, digits, '-', '_' or '.' with a letter or digit at both ends"
        )
    if _OWN.fullmatch(text):
        raise ValueError("is a name of the plugin's modes: choose another")
    return text


@dataclass(frozen=True)
class _Alias:
    name: str
    interface: str
    function: str = ""


def _distinct(aliases: Sequence[tuple[Place, _Alias]]) -> None:
    """Collect repeated names, and repeated functions and interfaces."""
    places: dict[object, Place] = {}
    for entry, alias in aliases:
        name = entry.within("name")
        what = entry.within("function" if alias.function else "interface")
        if (first := places.setdefault(alias.name, name)) is not name:
            name.fault(f"{alias.name!r} is taken by {first.key}")
        key = (alias.interface, alias.function)
        if (first := places.setdefault(key, what)) is not what:
            what.fault(f"has a name already, in {first.key}")


def _aliases(aliases: Sequence[_Alias] = ()) -> Aliases:
    return Aliases({(alias.interface, alias.function): alias.name for alias in aliases})


_ID: Final = configuration.text().to(canonical)
_ALIAS: Final = record(
    _Alias,
    {
        "name": needed(configuration.text().to(alias_name)),
        "interface": needed(_ID),
        "function": _ID,
    },
)
_FILE: Final = record(_aliases, {"aliases": list_of(_ALIAS, together=_distinct)})
