"""What devices can do, by the kernel's own word, for the key ``can``. udev is not asked.

Sysfs says it of DRM nodes, sound and input devices; a camera has to be asked itself.
"""

import re
from collections.abc import Iterable
from struct import calcsize
from typing import Final

from deviceplugin.kit.hardware import Device
from deviceplugin_generic.configuration.entries import CAMERAS

_SOUNDS: Final = {
    "capture": re.compile(r"pcmC\d+D\d+c"),
    "midi": re.compile(r"(midi|ump)C\d+D\d+"),
    "playback": re.compile(r"pcmC\d+D\d+p"),
}
_WORDS: Final = re.compile("[0-9a-f]{1,16}( [0-9a-f]{1,16}){0,63}")
_WORD_BITS: Final = 8 * calcsize("l")
"""The kernel writes words as long as those of whoever reads them."""

# Codes of linux/input-event-codes.h.
_KEYS: Final = (range(1, 0x100), range(0x160, 0x220), range(0x230, 0x2C0))
"""All keys that are not buttons."""
_LETTERS: Final = range(1, 32)
"""Esc to S: what has these is more than a few keys."""
_STICKS: Final = (range(0x120, 0x140), range(0x220, 0x224), range(0x2C0, 0x2E8))
"""Buttons of joysticks and gamepads."""
_LEFT, _PEN, _FINGER, _TOUCH = 0x110, 0x140, 0x145, 0x14A
_X, _Y, _MULTI_X, _MULTI_Y = 0x00, 0x01, 0x35, 0x36
_DIRECT: Final = 0x01


def in_sysfs(device: Device) -> frozenset[str] | None:
    """Return the abilities of a device; None if sysfs does not say them."""
    if device.subsystem == "drm":
        return _of_drm(device)
    if device.subsystem == "input":
        return _of_input(device)
    if device.subsystem == "sound":
        names = [one.name for one in device.behind("sound")]  # of a card, all its nodes
        return frozenset(
            ability for ability, one in _SOUNDS.items() if any(map(one.fullmatch, names))
        )
    if device.subsystem == CAMERAS and device.name.startswith("video"):
        return None
    return frozenset()


def _of_drm(device: Device) -> frozenset[str]:
    if device.name.startswith("renderD"):
        return frozenset({"render"})
    if not re.fullmatch(r"card\d+", device.name):
        return frozenset()
    connectors = (name.startswith(f"{device.name}-") for name in device.tree.entries(device.path))
    return frozenset({"card", "display"} if any(connectors) else {"card"})


def _of_input(device: Device) -> frozenset[str] | None:
    """Return what the bits of an input device mean; the device is above its nodes."""
    owner = next((one for one in device.line[:3] if one.attribute("capabilities/ev")), None)
    names = ("capabilities/key", "capabilities/rel", "capabilities/abs", "properties")
    found = [_bits(owner.attribute(name)) for name in names] if owner else [None]
    if None in found:
        return None
    keys, relative, absolute, properties = (one or 0 for one in found)
    is_flat = _has(absolute, _X, _Y) or _has(absolute, _MULTI_X, _MULTI_Y)
    is_direct = _has(properties, _DIRECT)
    is_pad = _has(keys, _FINGER) and not is_direct
    can = {
        "joystick": _has_any(keys, _STICKS) and _has(absolute, _X, _Y),
        "keyboard": _has(keys, *_LETTERS),
        "keys": _has_any(keys, _KEYS),
        "pointer": (_has(relative, _X, _Y) and _has(keys, _LEFT))
        or (is_flat and not is_direct and (is_pad or _has(keys, _LEFT))),
        "touch": is_flat
        and not is_pad
        and not _has(keys, _PEN)
        and (is_direct or _has(keys, _TOUCH)),
    }
    return frozenset(name for name, is_so in can.items() if is_so)


def _bits(text: str) -> int | None:
    """Return the number that the kernel writes as words, the highest first; None if it is none."""
    if not _WORDS.fullmatch(text):
        return None
    bits = 0
    for word in text.split(" "):
        bits = bits << _WORD_BITS | int(word, 16)
    return bits


def _has(bits: int, *codes: int) -> bool:
    return all(bits >> code & 1 for code in codes)


def _has_any(bits: int, ranges: Iterable[range]) -> bool:
    return any(bits >> one.start & (1 << len(one)) - 1 for one in ranges)
