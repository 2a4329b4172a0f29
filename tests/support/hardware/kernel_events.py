"""Events of the kernel, as somebody who may write to sysfs can ask for them."""

import os
import socket
from pathlib import Path
from typing import Any, Final

import pytest

UEVENT: Final = Path("/sys/devices/virtual/mem/null/uevent")
_MANY: Final = 200
"""Events that do not fit into the smallest buffer of a socket."""


def emit() -> None:
    """Have the kernel send an event of a device."""
    try:
        UEVENT.write_text("change")
    except OSError as error:
        pytest.skip(f"the kernel cannot be asked for events here: {error}")


def overflow(monitor: Any) -> None:
    """Have the kernel send ``monitor`` more events than it has room for."""
    with socket.socket(fileno=os.dup(monitor.fileno())) as end:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    for _ in range(_MANY):
        emit()
