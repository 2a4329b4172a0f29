"""Calls of NVML through pynvml, for tests of the fake driver itself."""

from collections.abc import Callable
from typing import Any

import pynvml


def code(function: Callable[..., object], *arguments: object) -> int:
    """Return the error that a call gives, 0 if none."""
    try:
        function(*arguments)
    except pynvml.NVMLError as error:
        return int(error.value)
    return 0


def gpu(index: int = 0) -> Any:
    """Return the handle of a GPU."""
    return pynvml.nvmlDeviceGetHandleByIndex(index)
