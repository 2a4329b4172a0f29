"""An event that can be waited for together with file descriptors."""

import gc
import os
import select

import pytest

from deviceplugin._platform.pollable_event import PollableEvent


@pytest.mark.parametrize("before", [True, False])
def test_it_is_readable_once_it_is_set_and_stays_so(before: bool) -> None:
    event = PollableEvent()
    if before:
        event.set()
    end = event.fileno()
    assert end == event.fileno()
    assert before == bool(select.select([end], [], [], 0)[0])
    event.set()
    event.set()
    assert event.is_set()
    assert [end] == select.select([end], [], [], 0)[0]
    assert [event] == select.select([event], [], [], 0)[0]


def test_its_descriptor_is_closed_with_it() -> None:
    event = PollableEvent()
    end = event.fileno()
    assert os.fstat(end)
    del event
    gc.collect()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(end)


def test_it_cannot_be_cleared() -> None:
    with pytest.raises(TypeError, match="cannot be cleared"):
        PollableEvent().clear()
