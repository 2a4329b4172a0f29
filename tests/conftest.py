"""What holds for all tests."""

import logging
from collections.abc import Iterator

import pytest

from patience import be_patient

be_patient()


@pytest.fixture(autouse=True)
def _log_as_before() -> Iterator[None]:
    """Take away what a command that ran in this process logs to: it is closed by now."""
    root = logging.getLogger()
    level = root.level
    yield
    root.setLevel(level)
    for handler in [one for one in root.handlers if type(one) is logging.StreamHandler]:
        root.removeHandler(handler)
