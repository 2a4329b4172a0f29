"""What can go wrong in the fake NVIDIA driver while a program runs."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pynvml
import pytest

from gpu import fake_library
from gpu.fake_nvml import FakeGpu, FakeNvml, Fleet
from gpu.nvml_calls import code, gpu
from patience import PATIENCE, eventually

XID = pynvml.nvmlEventTypeXidCriticalError


@pytest.fixture
def fake(nvml_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    """Two GPUs, and pynvml that will find them at the next init."""
    fake = FakeNvml(tmp_path / "nvml", Fleet.of(2))
    fake.load(nvml_library, monkeypatch)
    return fake


@pytest.fixture
def nvml(fake: FakeNvml) -> Iterator[FakeNvml]:
    """The same, initialized."""
    pynvml.nvmlInit()
    yield fake
    fake.mend()
    pynvml.nvmlShutdown()


def event_set(*indices: int, kinds: int = XID) -> Any:
    created = pynvml.nvmlEventSetCreate()
    for index in indices:
        pynvml.nvmlDeviceRegisterEvents(gpu(index), kinds, created)
    return created


def wait(events: Any, milliseconds: int = 0) -> tuple[str, int, int]:
    event = pynvml.nvmlEventSetWait_v2(events, milliseconds)
    return pynvml.nvmlDeviceGetUUID(event.device), event.eventType, event.eventData


def is_silent(events: Any) -> bool:
    return code(wait, events) == int(pynvml.NVML_ERROR_TIMEOUT)


def test_nothing_can_be_asked_before_init_and_after_shutdown(fake: FakeNvml) -> None:
    uninitialized = pynvml.NVML_ERROR_UNINITIALIZED
    pynvml.nvmlInit()
    pynvml.nvmlInit()
    pynvml.nvmlShutdown()
    handle = gpu()
    pynvml.nvmlShutdown()
    assert uninitialized == code(pynvml.nvmlShutdown)
    assert uninitialized == code(pynvml.nvmlDeviceGetCount)
    assert uninitialized == code(pynvml.nvmlDeviceGetUUID, handle)
    assert 2 == fake.calls()["nvmlInitWithFlags"]


@pytest.mark.usefixtures("nvml")
def test_a_shutdown_ends_event_sets() -> None:
    events = event_set(0)
    pynvml.nvmlShutdown()
    pynvml.nvmlInit()
    assert pynvml.NVML_ERROR_INVALID_ARGUMENT == code(wait, events)
    assert pynvml.NVML_ERROR_INVALID_ARGUMENT == code(pynvml.nvmlEventSetFree, events)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("gpu 0\nbogus", '2: "bogus" is none of driver, gpu, mig, link, switch, path, fault'),
        ("gpu", "1: gpu needs a GPU such as 0, 0-3 or all"),
        ("gpu x", '1: "x" is no GPU such as 0, 0-3 or all'),
        ("gpu 64", '1: "64" is no GPU such as 0, 0-3 or all'),
        ("gpu 3-1", '1: "3-1" is no GPU such as 0, 0-3 or all'),
        ("gpu 0 colour=red", '1: gpu has no key "colour"'),
        ("gpu 0 minor", '1: "minor" is not key=value'),
        ("gpu 0 minor=one", "1: one is no value of minor"),
        ("gpu 0 memory=1TB", "1: 1TB is no value of memory"),
        ("gpu 0 compute=8", "1: 8 is no value of compute"),
        ("gpu 0 state=ill", "1: ill is no value of state"),
        (f"gpu 0 name={'x' * 96}", f"1: {'x' * 96} is no value of name"),
        ('gpu 0 name="x', "1: a quote is not closed"),
        ("gpu 0 pci=here", " gpu 0: here is no PCI address such as 0000:3b:00.0"),
        ("gpu 0-1 uuid=GPU-1", " gpu 0 and gpu 1 have the same uuid or pci"),
        ("gpu 0 memory=1GiB used=2GiB", " gpu 0 uses more memory than it has"),
        ("mig 0 gi=1", "1: there is no gpu 0 above this line"),
        ("gpu 0\nmig 0 profile=1g.5gb", "2: mig needs gi=N, and ci=N if not 0"),
        ("gpu 0\nmig 0 gi=1 profile=5g.5gb", '2: "5g.5gb" is no profile such as 1g.5gb'),
        ("gpu 0\nmig 0 gi=1 profile=3c.1g.5gb", '2: "3c.1g.5gb" is no profile such as 1g'),
        ("gpu 0\nmig 0 gi=1 profile=1g.5gb+x", '2: "1g.5gb+x" is no profile such as 1g.5gb'),
        ("gpu 0\nmig 0,0 gi=1 profile=1g.5gb\nmig 0 gi=1 profile=1g.5gb", "3: gpu 0 has this MIG"),
        ("gpu 0-1\nlink 0 1 count=37", "2: gpu 0 has more than 36 NVLinks"),
        ("gpu 0-1\npath 0 1 near", "2: path needs two GPUs and one of internal, single"),
        ("fault nvmlNothing rc=1", "1: fault needs init, wait, all or a function"),
        ("event 0 xid", "1: event needs a number from 1 on, and xid, sbe, dbe or mig"),
    ],
)
def test_a_malformed_file_fails_init_and_is_told_once(
    fake: FakeNvml, capfd: pytest.CaptureFixture[str], text: str, problem: str
) -> None:
    fake.write(text)
    assert pynvml.NVML_ERROR_UNKNOWN == code(pynvml.nvmlInit)
    assert pynvml.NVML_ERROR_UNKNOWN == code(pynvml.nvmlInit)
    [line] = capfd.readouterr().err.splitlines()
    assert line.startswith(f"fake nvml: {fake.path}:{problem}")


def test_a_missing_file_is_told(fake: FakeNvml, capfd: pytest.CaptureFixture[str]) -> None:
    fake.path.unlink()
    assert pynvml.NVML_ERROR_UNKNOWN == code(pynvml.nvmlInit)
    expected = f"fake nvml: {fake.path}: No such file or directory\n"
    assert expected == capfd.readouterr().err


def test_a_file_that_becomes_malformed_changes_nothing(
    nvml: FakeNvml, capfd: pytest.CaptureFixture[str]
) -> None:
    assert 2 == pynvml.nvmlDeviceGetCount()
    nvml.write("gpu 0\n gpu 1 minor=one")
    assert [2, 2] == [pynvml.nvmlDeviceGetCount() for _ in range(2)]
    assert f"fake nvml: {nvml.path}:2: one is no value of minor\n" == capfd.readouterr().err


def test_gpus_come_and_go(nvml: FakeNvml) -> None:
    first, second = gpu(0), gpu(1)
    nvml.remove(0)
    assert 1 == pynvml.nvmlDeviceGetCount()
    assert pynvml.NVML_ERROR_GPU_IS_LOST == code(pynvml.nvmlDeviceGetUUID, first)
    assert 0 == pynvml.nvmlDeviceGetIndex(second)
    assert 1 == pynvml.nvmlDeviceGetMinorNumber(second)
    nvml.add(FakeGpu(0))
    assert 1 == pynvml.nvmlDeviceGetIndex(second)
    assert 0 == pynvml.nvmlDeviceGetMinorNumber(first)


def test_an_event_is_told_once(nvml: FakeNvml) -> None:
    nvml.xid(0, 13)
    events, others = event_set(0, 1), event_set(0)
    assert is_silent(events)
    nvml.xid(1, 79)
    nvml.xid(0, 48, gi=3, ci=0)
    assert (nvml.fleet.gpus[1].uuid, XID, 79) == wait(events)
    event = pynvml.nvmlEventSetWait_v2(events, 0)
    assert (48, 3, 0) == (event.eventData, event.gpuInstanceId, event.computeInstanceId)
    nvml.change(0, temperature=90)
    assert is_silent(events)
    assert (nvml.fleet.gpus[0].uuid, XID, 48) == wait(others)
    assert is_silent(others)
    pynvml.nvmlEventSetFree(others)
    assert pynvml.NVML_ERROR_INVALID_ARGUMENT == code(wait, others)


def test_only_what_was_asked_for_is_told(nvml: FakeNvml) -> None:
    double = pynvml.nvmlEventTypeDoubleBitEccError
    events = event_set(0, kinds=double | pynvml.nvmlEventMigConfigChange)
    nvml.xid(0, 79)
    nvml.sbe(0)
    nvml.dbe(1)
    nvml.dbe(0)
    nvml.mig_changed(0)
    assert double == wait(events)[1]
    assert pynvml.nvmlEventMigConfigChange == wait(events)[1]
    assert is_silent(events)
    pynvml.nvmlDeviceRegisterEvents(gpu(0), pynvml.nvmlEventTypeSingleBitEccError, events)
    nvml.sbe(0)
    assert pynvml.nvmlEventTypeSingleBitEccError == wait(events)[1]


def test_events_can_be_unsupported(nvml: FakeNvml) -> None:
    nvml.change(0, events="no")
    nvml.change(1, compute="7.0", ecc="off")
    unsupported = pynvml.NVML_ERROR_NOT_SUPPORTED
    assert unsupported == code(pynvml.nvmlDeviceGetSupportedEventTypes, gpu(0))
    assert unsupported == code(event_set, 0)
    assert XID == pynvml.nvmlDeviceGetSupportedEventTypes(gpu(1))
    nvml.change(1, compute="8.0", ecc="on")
    both = pynvml.nvmlEventTypeSingleBitEccError | pynvml.nvmlEventTypeDoubleBitEccError
    expected = XID | both | pynvml.nvmlEventMigConfigChange
    assert expected == pynvml.nvmlDeviceGetSupportedEventTypes(gpu(1))


@pytest.mark.usefixtures("nvml")
def test_a_wait_ends_after_its_time() -> None:
    events, start = event_set(0), time.monotonic()
    assert pynvml.NVML_ERROR_TIMEOUT == code(wait, events, 50)
    assert 0.045 <= time.monotonic() - start


def waiting(nvml: FakeNvml, pool: ThreadPoolExecutor, events: Any) -> "Future[Any]":
    """Start a long wait in another thread and return when it has begun."""
    before = nvml.calls()["nvmlEventSetWait_v2"]
    future = pool.submit(wait, events, 60_000)
    eventually(lambda: nvml.calls()["nvmlEventSetWait_v2"] > before, "the wait to begin")
    return future


def test_a_wait_ends_when_its_set_is_freed(nvml: FakeNvml) -> None:
    events = event_set(0)
    with ThreadPoolExecutor(1) as pool:
        future = waiting(nvml, pool, events)
        pynvml.nvmlEventSetFree(events)
        assert isinstance(future.exception(5), pynvml.NVMLError_InvalidArgument)


def test_calls_of_many_threads_are_all_counted(nvml: FakeNvml) -> None:
    handles, start, turn_of_one = [gpu(0), gpu(1)], threading.Barrier(4), threading.Lock()
    before = nvml.calls()["nvmlDeviceGetName"]

    def call_often() -> None:
        start.wait(PATIENCE)
        for turn in range(200):
            pynvml.nvmlDeviceGetName(handles[turn % 2])
            if turn % 20 == 0:
                with turn_of_one:
                    nvml.change(0, temperature=turn)

    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(call_often) for _ in range(4)]:
            future.result(PATIENCE)
    assert 800 == nvml.calls()["nvmlDeviceGetName"] - before


PROGRAM = """
import json, pynvml
pynvml.nvmlInit()
handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
print(json.dumps([pynvml.nvmlDeviceGetUUID(handle) for handle in handles]))
"""


def test_another_process_finds_the_library_and_counts_its_calls(
    nvml_library: Path, tmp_path: Path
) -> None:
    fake = FakeNvml(tmp_path, Fleet.of(3))
    assert 0 == fake.calls().total()
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=fake.environment(nvml_library),
        capture_output=True,
        check=True,
    )
    assert [gpu.uuid for gpu in fake.fleet.gpus] == json.loads(done.stdout)
    assert {
        "nvmlInitWithFlags": 1,
        "nvmlDeviceGetCount_v2": 1,
        "nvmlDeviceGetHandleByIndex_v2": 3,
        "nvmlDeviceGetUUID": 3,
    } == fake.calls()


def test_tests_are_skipped_on_a_machine_without_a_compiler_but_not_in_ci(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="needs a C compiler: install cc"):
        fake_library.build_or_skip(tmp_path / "library")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(RuntimeError, match="needs a C compiler: install cc"):
        fake_library.build_or_skip(tmp_path / "library")


def test_the_library_is_compiled_once(
    nvml_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = nvml_library.stat().st_mtime_ns
    assert nvml_library == fake_library.build(nvml_library.parents[1])
    assert changed == nvml_library.stat().st_mtime_ns
    monkeypatch.setenv("CFLAGS", "-O9 -fno-such-thing")
    with pytest.raises(RuntimeError, match="the fake NVML does not compile"):
        fake_library.build(tmp_path)
