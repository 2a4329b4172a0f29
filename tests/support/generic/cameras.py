"""Cameras: real device nodes that everybody may open, and a stand-in for the ioctls of a camera."""

import errno
import fcntl
import os
import struct
from collections.abc import Sequence

import pytest

from generic.plugin import Machine

MINORS = {"null": 3, "zero": 5, "full": 7}
"""The nodes that stand for video nodes."""
CAPTURE, OUTPUT, M2M, METADATA, TOUCH = 0x1, 0x2, 0x8000, 0x80_0000, 0x1000_0000
_EACH_HAS_OWN = 0x8000_0000


class Video:
    """What the drivers of video nodes answer, by the node that stands for each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._answers: dict[int, tuple[int, Sequence[str]]] = {}
        self.asked: list[str] = []
        monkeypatch.setattr(fcntl, "ioctl", self._ioctl)

    def answer(self, stand_in: str, caps: int, *formats: str) -> None:
        """Let a node have capabilities of its own, and formats in each of its queues."""
        self._answers[MINORS[stand_in]] = (caps, formats)

    def _ioctl(self, file: int, request: int, buffer: bytearray) -> None:
        assert os.O_NONBLOCK == fcntl.fcntl(file, fcntl.F_GETFL) & (os.O_NONBLOCK | os.O_ACCMODE)
        minor = os.minor(os.fstat(file).st_rdev)
        caps, formats = self._answers.get(minor, (0, ()))
        index, queue = struct.unpack_from("=II", buffer)
        if request == 0x8068_5600:  # VIDIOC_QUERYCAP
            self.asked += [name for name, one in MINORS.items() if one == minor]
            # As uvcvideo: together the device can capture, whatever this node can.
            struct.pack_into("=II", buffer, 84, _EACH_HAS_OWN | CAPTURE | METADATA, caps)
        elif request == 0xC040_5602 and index < len(formats) and queue < 9:  # VIDIOC_ENUM_FMT
            struct.pack_into("=4s", buffer, 44, formats[index].encode())
        else:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))


def add_node(machine: Machine, usb: str, name: str, stand_in: str) -> None:
    """Make a video node of a USB camera, for which ``stand_in`` is opened."""
    folder = machine.behind_usb(usb, "1.0", "video4linux", name, index=name[5:], driver="uvcvideo")
    number = f"1:{MINORS[stand_in]}"
    (folder / "dev").write_text(f"{number}\n")
    (machine.sys / "dev/char" / number).symlink_to(folder)
    (machine.dev / name).unlink()
    (machine.dev / name).symlink_to(f"/dev/{stand_in}")
