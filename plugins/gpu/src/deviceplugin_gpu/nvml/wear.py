"""What the driver says of a GPU that works, and that will not for long or not as it should.

Memory is repaired with spare rows, on GPUs of before compute capability 8.0 by retiring pages. Both
take effect at a reset, and both are used up one day. NVIDIA replaces a GPU when a row could not be
remapped; 64 pages can be retired.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from deviceplugin_gpu.nvml.questions import Questions

_MOST_PAGES: Final = 64
_MANY_PAGES: Final = 60
_CAUSES: Final = range(2)
"""Of retired pages: several corrected errors, or one that could not be corrected."""
_SLOWDOWNS: Final = {
    0x80: "its power supply asks for it",
    0x40: "it is too hot",
    0x8: "it is too hot, or draws too much power",
}
"""Reasons why the hardware itself at least halves the clock, the most telling first."""


@dataclass(frozen=True, slots=True)
class Wear:
    """The wear of a GPU."""

    has_failed: bool
    """Whether a row of memory could not be remapped."""
    reasons: tuple[str, ...]
    """Why it will not work for long, or is to be reset soon."""
    slowdown: str
    """Why its hardware runs it slower now; empty if it does not. It may pass by itself."""


def read(asked: Questions) -> Wear:
    """Return the wear of a GPU. What the driver does not say is not there.

    Raises:
        NvmlError: The GPU cannot be used at all.
    """
    _, _, is_pending, has_failed = asked.ask((0, 0, 0, 0), "nvmlDeviceGetRemappedRows")
    reasons = ["a memory row is remapped at the next reset"] if is_pending else []
    reasons += [*_rows(asked), *_pages(asked)]
    bits = asked.ask(0, "nvmlDeviceGetCurrentClocksEventReasons")
    why = next((text for bit, text in _SLOWDOWNS.items() if bits & bit), "")
    return Wear(bool(has_failed), tuple(reasons), f"the hardware slows it down: {why}" * bool(why))


def _rows(asked: Questions) -> Iterator[str]:
    banks = asked.ask(None, "nvmlDeviceGetRowRemapperHistogram")
    if banks and banks.none:
        yield f"memory banks without spare rows: {banks.none}"


def _pages(asked: Questions) -> Iterator[str]:
    if asked.ask(0, "nvmlDeviceGetRetiredPagesPendingStatus"):
        yield "a memory page is retired at the next reset"
    nothing: tuple[Any, ...] = ()
    pages = sum(len(asked.ask(nothing, "nvmlDeviceGetRetiredPages", cause)) for cause in _CAUSES)
    if pages >= _MANY_PAGES:
        yield f"{pages} memory pages of at most {_MOST_PAGES} are retired"
