"""What holds for all tests."""

import logging
import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# A busy machine is late with everything, and that is no defect of what is tested.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As of a shell's background jobs; the commands that tests interrupt would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_xdist_auto_num_workers() -> int:
    """Return how many workers `-n auto` starts: more than cores, as half of the time is waiting."""
    cores = len(os.sched_getaffinity(0))
    return min(2 * cores, cores + 4)


@pytest.fixture(autouse=True)
def _log_as_before() -> Iterator[None]:
    """Take away what a command that ran in this process logs to: it is closed by now."""
    root = logging.getLogger()
    level = root.level
    yield
    root.setLevel(level)
    for handler in [one for one in root.handlers if type(one) is logging.StreamHandler]:
        root.removeHandler(handler)
