"""What holds for all tests."""

import logging
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import operator_manifests
from stalls import stalls

# A busy machine is late with everything, and that is no defect of what is tested.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As of a shell's background jobs; the commands that tests interrupt would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)

HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def pytest_xdist_auto_num_workers() -> int:
    """Return how many workers `-n auto` starts: more than cores, as half of the time is waiting."""
    cores = len(os.sched_getaffinity(0))
    return min(5 * cores // 2, cores + 4)


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        operator_manifests.write()  # deployments/ may have changed since it was installed


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("deviceplugin", "tests of deviceplugin")
    group.addoption(
        "--stalls",
        type=int,
        metavar="SEED",
        help="let all threads stall at random, as on a busy machine: see tests/support/stalls.py",
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how long the commands of the pages took that were carried out."""
    for report in terminalreporter.getreports("passed"):
        for name, told in report.user_properties:
            if name == "page":
                terminalreporter.write_line(f"carried out: {told}")


@pytest.fixture
def root() -> Iterator[Path]:
    """Short, because the path of a socket has 107 bytes at most, and not in memory."""
    path = Path(tempfile.mkdtemp(prefix="dp"))
    yield path
    shutil.rmtree(path)


@pytest.fixture(autouse=True)
def _stalls(request: pytest.FixtureRequest) -> Iterator[None]:
    seed: int | None = request.config.getoption("stalls", None)
    with nullcontext() if seed is None else stalls(seed):
        yield


@pytest.fixture(autouse=True)
def _log_as_before() -> Iterator[None]:
    """Take away what commands that ran in this process log to: it is closed by now."""
    root = logging.getLogger()
    level = root.level
    _take_away(root)  # of a test elsewhere, or of a thread that was late
    yield
    root.setLevel(level)
    _take_away(root)


@pytest.fixture(autouse=True)
def _signals_as_before() -> Iterator[None]:
    """Find out who leaves a handler to the tests that come later."""
    before = [signal.getsignal(number) for number in HANDLED]
    yield
    assert before == [signal.getsignal(number) for number in HANDLED]


def _take_away(root: logging.Logger) -> None:
    for handler in list(root.handlers):
        own = not type(handler).__module__.startswith("_pytest")
        if own and isinstance(handler, logging.StreamHandler):
            root.removeHandler(handler)
