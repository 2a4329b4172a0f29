"""What a container requests, by the OCI state and the bundle's configuration."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from deviceplugin.kit.sysfs import natural
from deviceplugin_fpga.drivers import ALL_ONES, DRIVERS, Driver
from deviceplugin_fpga.hook import files
from deviceplugin_fpga.hook.files import HookError, shown

if TYPE_CHECKING:
    from typing import BinaryIO

_LONGEST = 16 * 1024**2
"""The most bytes of JSON. The largest pods have far less."""
_VARIABLE = re.compile(r"FPGA_(REGION|AFU)_([0-9]+)=(.*)", re.ASCII | re.DOTALL)
_KINDS = {"REGION": re.compile(r"[0-9a-f]{32}"), "AFU": re.compile(r"[0-9a-f]{8,40}")}
"""Ids become parts of paths, so nothing else is allowed in them."""


@dataclass(frozen=True)
class Wish:
    """A region to program. Ids are lower case, without hyphens."""

    number: str
    """The number in the names of the variables."""
    region: str
    """The interface id."""
    afu: str
    """The id of the AFU; for OpenCL, that of the bitstream."""


@dataclass(frozen=True)
class Node:
    """The device node of a port in the container."""

    driver: Driver
    name: str
    number: str
    """Major and minor, as in ``/sys/dev/char``."""


@dataclass(frozen=True)
class Request:
    """All regions that one container requests, and the ports that it has."""

    wishes: tuple[Wish, ...]
    nodes: tuple[Node, ...]


def read(stream: BinaryIO) -> Request:
    """Return the request of the container whose state is in ``stream``, or raise HookError."""
    state = _parse(stream.read(_LONGEST + 1), "the state on standard input")
    bundle = state.get("bundle")
    if not isinstance(bundle, str) or not bundle:
        raise HookError("the state on standard input: no bundle")
    path = Path(bundle) / "config.json"
    text, what = files.load(path, _LONGEST), shown(path)
    if text is None:
        raise HookError(f"{what}: No such file or directory")
    config = _parse(text, what)
    return Request(
        _wishes(_list(config, what, "process", "env"), what),
        _nodes(_list(config, what, "linux", "devices"), what),
    )


def _parse(text: bytes, what: str) -> dict[str, Any]:
    if len(text) > _LONGEST:
        raise HookError(f"{what}: more than {_LONGEST} bytes")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise HookError(f"{what}: not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise HookError(f"{what}: not a JSON object")
    return value


def _list(config: dict[str, Any], what: str, part: str, key: str) -> list[Any]:
    section = config.get(part)
    values = section.get(key) if isinstance(section, dict) else None
    if not isinstance(values, list) or not values:
        raise HookError(f"{what}: no {part}.{key}")
    return values


def _wishes(environment: list[Any], what: str) -> tuple[Wish, ...]:
    ids: dict[str, dict[str, str]] = {"REGION": {}, "AFU": {}}
    for text in environment:
        found = _VARIABLE.fullmatch(text) if isinstance(text, str) else None
        if found:
            kind, number, value = found.groups()
            ids[kind][number] = _canonical(f"FPGA_{kind}_{shown(number, 20)}", value, _KINDS[kind])
    regions, afus = ids["REGION"], ids["AFU"]
    if not regions:
        raise HookError(f"{what}: no variable FPGA_REGION_1")
    for number in sorted(regions.keys() ^ afus.keys(), key=natural):
        have, need = ("REGION", "AFU") if number in regions else ("AFU", "REGION")
        short = shown(number, 20)
        raise HookError(f"{what}: FPGA_{have}_{short} without FPGA_{need}_{short}")
    numbers = sorted(regions, key=natural)
    return tuple(Wish(number, regions[number], afus[number]) for number in numbers)


def _canonical(name: str, value: str, kind: re.Pattern[str]) -> str:
    text = value.strip().replace("-", "").lower()
    if not kind.fullmatch(text) or text == ALL_ONES:
        raise HookError(f"{name}: '{shown(value, 80)}' is not an id")
    return text


def _nodes(devices: list[Any], what: str) -> tuple[Node, ...]:
    nodes: dict[Node, None] = {}  # a repeated port counts once
    for device in devices:
        if not isinstance(device, dict):
            raise HookError(f"{what}: linux.devices: {shown(repr(device), 80)} is not an object")
        name = PurePosixPath(str(device.get("path", ""))).name
        driver = next((one for one in DRIVERS if one.port.fullmatch(name)), None)
        if driver:
            numbers = [device.get("major"), device.get("minor")]
            if not all(isinstance(number, int) for number in numbers):
                raise HookError(f"{what}: linux.devices: {shown(name, 40)} has no device number")
            nodes[Node(driver, name, ":".join(map(str, numbers)))] = None
    if not nodes:
        raise HookError(f"{what}: no FPGA among linux.devices")
    return tuple(nodes)
