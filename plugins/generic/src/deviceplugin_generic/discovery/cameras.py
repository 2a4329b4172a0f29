"""What cameras can do, which only they themselves say: their nodes are opened, and asked.

Nothing is set, and no picture is taken, so whoever uses a camera does not notice. A container may
open the nodes only if it is privileged.
"""

import errno
import fcntl
import os
import posixpath
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from struct import Struct
from threading import Thread
from time import monotonic
from typing import Final

from deviceplugin.kit.hardware import Device

AGAIN: Final = 300.0
"""Seconds after which a camera is asked again for what it could not do, or did not say."""
_PATIENCE: Final = 2.0
"""Seconds that a discovery waits for answers."""
_LEAST_PATIENCE: Final = 0.2
"""Seconds for each camera once another has used up the time."""
_CLOSED: Final = frozenset({errno.EACCES, errno.ENOENT, errno.EPERM})
_ADVICE: Final = "; the component generic-privileged lets the plugin ask cameras"
_MOST_SILENT: Final = 8
"""Cameras that hang, each of which keeps a thread, before no other is asked."""
_SILENT: Final = "it does not answer"
_NUMBER: Final = re.compile("[0-9]{1,9}")

# <linux/videodev2.h>, as on all machines but PowerPC, MIPS and SPARC.
_CAPABILITY: Final = Struct("=84xII12x")
_FORMAT: Final = Struct("=II36x4s16x")
_QUERY: Final = 0x8000_5600 | _CAPABILITY.size << 16
_ENUMERATE: Final = 0xC000_5602 | _FORMAT.size << 16
_HAS_OWN: Final = 0x8000_0000
"""The capabilities are those of all nodes of the device, and this node's own follow."""
_CAPTURE, _OUTPUT, _CODEC, _TOUCHPAD = 0x1 | 0x1000, 0x2 | 0x2000, 0x4000 | 0x8000, 0x1000_0000
_QUEUES: Final = {
    1: 0x1 | _CODEC, 2: 0x2 | _CODEC, 9: 0x1000 | _CODEC, 10: 0x2000 | _CODEC
}  # fmt: skip
"""Types of buffers, and the capabilities of nodes that have them."""
_CAPTURING: Final = (1, 9)
_MOST_FORMATS: Final = 64
_FORMATS: Final = {
    b"MJPG": "mjpeg", b"JPEG": "mjpeg", b"H264": "h264", b"HEVC": "hevc", b"NV12": "nv12",
    b"VP80": "vp8", b"VP90": "vp9", b"YUYV": "yuyv",
}  # fmt: skip


def ask(path: str, number: int) -> frozenset[str]:
    """Return the abilities of the video node at ``path``, whose device number is ``number``.

    Raises:
        OSError: It cannot be opened or asked, or is another file by now.
    """
    _check(os.stat(path), number)  # noqa: PTH116 - to open another device could change it
    opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        _check(os.fstat(opened), number)
        return frozenset(_abilities(opened))
    finally:
        os.close(opened)


def _check(status: os.stat_result, number: int) -> None:
    if not stat.S_ISCHR(status.st_mode) or status.st_rdev != number:
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))


def _abilities(opened: int) -> Iterator[str]:
    answer = bytearray(_CAPABILITY.size)
    fcntl.ioctl(opened, _QUERY, answer)  # fails where the numbers of ioctls are others
    *_, together, own = _CAPABILITY.unpack(answer)
    has = own if together & _HAS_OWN else together
    formats = {queue: {*_formats(opened, queue)} for queue, of in _QUEUES.items() if has & of}
    if has & _CODEC:
        yield "codec"
    if has & _OUTPUT:
        yield "output"
    if has & _CAPTURE and not has & _TOUCHPAD and any(map(formats.get, _CAPTURING)):
        yield "capture"
    for found in formats.values():
        yield from (_FORMATS[one] for one in found & _FORMATS.keys())


def _formats(opened: int, queue: int) -> Iterator[bytes]:
    for index in range(_MOST_FORMATS):
        answer = bytearray(_FORMAT.pack(index, queue, b""))
        try:
            fcntl.ioctl(opened, _ENUMERATE, answer)
        except OSError as error:
            if error.errno in {errno.ENOTTY, errno.EINVAL}:  # there is no more, or none at all
                return
            raise
        yield _FORMAT.unpack(answer)[2]


@dataclass(slots=True)
class _Camera:
    """A camera, and its answers so far."""

    asked_at: float = -inf
    thread: Thread | None = None
    abilities: frozenset[str] = frozenset()
    problem: str = _SILENT
    is_wanted: bool = True

    @property
    def is_silent(self) -> bool:
        """Whether it has been asked, and has not answered."""
        return self.thread is not None and self.thread.is_alive()


class Cameras:
    """Asks cameras, each in a thread of its own, and remembers what they answered.

    What a camera has answered stays so while it is plugged in, but for what it can do besides. One
    that hangs is not asked again.
    For the thread of discovery; ``clock`` returns monotonic seconds.
    """

    def __init__(
        self,
        question: Callable[[str, int], frozenset[str]] = ask,
        clock: Callable[[], float] = monotonic,
        patience: float = _PATIENCE,
    ) -> None:
        self._ask, self._clock, self._patience = question, clock, patience
        self._left = patience
        self._known: dict[object, _Camera] = {}

    def begin(self) -> None:
        """Begin a discovery. Forget cameras that the last one did not ask about."""
        self._left = self._patience
        cameras = self._known.items()
        self._known = {key: one for key, one in cameras if one.is_wanted or one.is_silent}
        for one in self._known.values():
            one.is_wanted = False

    def abilities(self, device: Device, wanted: Iterable[str]) -> frozenset[str] | str:
        """Return what the camera of a video node can do, or why that is unknown.

        It is asked now if nothing is known, or if it could not do what is ``wanted`` a while ago.
        """
        major, _, minor = device.attribute("dev").partition(":")
        if not (_NUMBER.fullmatch(major) and _NUMBER.fullmatch(minor) and device.node):
            return "sysfs has no device node of it"
        number = os.makedev(int(major), int(minor))
        camera = self._known.setdefault(
            (device.path, device.tree.identity("char", number)), _Camera()
        )
        camera.is_wanted = True
        lacks = camera.problem or not camera.abilities.issuperset(wanted)
        if lacks and not camera.is_silent and self._clock() - camera.asked_at >= AGAIN:
            if sum(one.is_silent for one in self._known.values()) < _MOST_SILENT:
                self._begin(camera, device.node, number)
            elif camera.problem:
                camera.problem = "too many others do not answer"
        return camera.problem or camera.abilities

    def _begin(self, camera: _Camera, path: str, number: int) -> None:
        """Ask a camera, and wait for the answer for a while. One that comes later counts too."""

        def run() -> None:
            try:
                camera.abilities |= self._ask(path, number)
                camera.problem = ""
            except OSError as error:
                if camera.problem:
                    advice = _ADVICE if error.errno in _CLOSED else ""
                    camera.problem = f"it cannot be asked: {error.strerror}{advice}"

        began = camera.asked_at = self._clock()
        name = f"camera {posixpath.basename(path)}"
        camera.thread = Thread(target=run, name=name, daemon=True)
        with suppress(RuntimeError):  # the pod has no thread left
            camera.thread.start()
            camera.thread.join(max(self._left, min(self._patience, _LEAST_PATIENCE)))
        self._left -= self._clock() - began
