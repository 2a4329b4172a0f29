"""Reading CDI specifications as runtimes do, with the checks that matter in practice."""

import json
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from deviceplugin.kit.cdi import is_device_name, is_kind

_VERSION: Final = re.compile(r"v?\d+\.\d+\.\d+")
_FIELDS: Final = frozenset({"cdiVersion", "kind", "annotations", "devices", "containerEdits"})


class SpecError(Exception):
    """A runtime would reject the file. The message says why."""


class UnreadableYAML(Exception):  # noqa: N818 - nothing is wrong with the file
    """PyYAML, which could read it, is not installed."""


def names(path: Path) -> list[str]:
    """Return the full names of the devices in ``path``.

    Raises:
        SpecError: A runtime would reject the file.
        UnreadableYAML: It is YAML, and PyYAML is not installed.
        OSError: It cannot be read.
    """
    spec = _parse(path)
    if not isinstance(spec, Mapping):
        raise SpecError("is not an object with keys")
    if unknown := sorted(map(str, spec.keys() - _FIELDS)):
        raise SpecError(f"has an unknown key: {', '.join(unknown)}")
    if not _VERSION.fullmatch(str(spec.get("cdiVersion", ""))):
        raise SpecError(f"cdiVersion {spec.get('cdiVersion')!r} is not a version such as '0.5.0'")
    kind = str(spec.get("kind", ""))
    if not is_kind(kind):
        raise SpecError(f"kind {kind!r} is not of the form vendor.example.com/class")
    devices = spec.get("devices")
    if not isinstance(devices, list) or not devices:
        raise SpecError("has no devices")
    found = [_name(device) for device in devices]
    if twice := [name for name, count in Counter(found).items() if count > 1]:
        raise SpecError(f"has a device twice: {', '.join(twice)}")
    return [f"{kind}={name}" for name in found]


def _name(device: Any) -> str:
    if not isinstance(device, Mapping) or not is_device_name(str(device.get("name", ""))):
        raise SpecError(f"has a device without a valid name: {str(device)[:80]}")
    name = str(device["name"])
    if not device.get("containerEdits"):
        raise SpecError(f"device {name} has no containerEdits")
    return name


def _parse(path: Path) -> Any:
    text = path.read_text(encoding="utf-8", errors="replace")
    try:
        if path.suffix == ".json":
            return json.loads(text)
        return _parse_yaml(text)
    except (ValueError, RecursionError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise SpecError(f"is not valid {path.suffix[1:].upper()}: {reason}") from error


def _parse_yaml(text: str) -> Any:
    try:
        import yaml
    except ImportError as error:
        raise UnreadableYAML from error
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error
