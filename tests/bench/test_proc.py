import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from deviceplugin_testing.conformance import _process


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """Has started a process of its own, and waits for a line."""
    command = "sleep 60 & echo ready; read line"
    with subprocess.Popen(
        ["sh", "-c", command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        os.killpg(process.pid, signal.SIGKILL)


GAIN = """
import os, socket, threading
from deviceplugin_testing.conformance import _process
before = _process.holdings(os.getpid())
stop = threading.Event()
threading.Thread(target=stop.wait).start()
with socket.socket():
    after = _process.holdings(os.getpid())
stop.set()
print(*(getattr(after, n) - getattr(before, n) for n in ("threads", "descriptors", "sockets")))
"""


def test_a_thread_more_and_a_socket_more_are_seen() -> None:
    # In a process of its own: in this one, those of earlier tests come to their ends.
    output = subprocess.run(
        [sys.executable, "-c", GAIN], capture_output=True, text=True, check=True
    ).stdout
    assert "1 1 1" == output.strip()


def test_memory_is_counted_in_bytes_and_shared_pages_in_part_only() -> None:
    found = _process.holdings(os.getpid())
    assert 4 * 1024 * 1024 < found.pss <= found.rss


def test_the_processes_that_a_process_started_belong_to_it(
    sleeper: subprocess.Popen[bytes],
) -> None:
    assert 2 == len(list(_process.family(sleeper.pid)))
    assert 2 == _process.holdings(sleeper.pid).threads


def test_a_process_that_does_not_exist_has_nothing() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    assert _process.Holdings(0, 0, 0, 0, 0, 0) == _process.holdings(process.pid)
    assert {} == _process.activity(process.pid).by_thread


def test_work_is_cpu_time_and_waiting_is_wakeups() -> None:
    begin = _process.activity(os.getpid())
    for _ in range(10):
        threading.Event().wait(0.001)
    sum(range(1_000_000))
    cpu, wakeups = _process.activity(os.getpid()).since(begin)
    assert cpu > 0
    assert wakeups >= 10


def test_a_thread_that_was_not_there_before_counts_in_full_and_one_that_ended_does_not() -> None:
    earlier = _process.Activity({1: (1_000_000_000, 5), 2: (9, 9)})
    later = _process.Activity({1: (3_000_000_000, 6), 3: (500_000_000, 2)})
    assert (2.5, 3) == later.since(earlier)
