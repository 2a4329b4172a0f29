"""The life of MPS control daemons, with a stand-in for NVIDIA's program: ``gpu/mps.py``."""

import os
import shutil
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from types import ModuleType

import pytest

from deviceplugin_gpu.mps import control, keeper, supervisor
from deviceplugin_gpu.mps.daemons import RUNNING, WANTED, Daemons
from gpu.mps import FakeMps, daemon, fake_mps
from patience import eventually

A, B = (f"GPU-0000000{n}-0000-4000-8000-000000000000" for n in range(2))
MIG = "MIG-00000000-0001-4000-8000-000000000000"
NAME = f"nvidia.com/gpu/{A}"
ONE = {NAME: daemon(A)}
TWO = {f"nvidia.com/gpu/{B}": daemon(B)}
DEAD = "its clients (1 when last counted) lost their CUDA contexts: restart their pods"


@pytest.fixture
def mps(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeMps]:
    for name, seconds in (("_LOOK", 0.05), ("_ASK", 0.1), ("_AGAIN", 0.05)):
        monkeypatch.setattr(keeper, name, seconds)
    monkeypatch.setattr(supervisor, "_EVERY", 0.05)
    with fake_mps(monkeypatch) as fake:
        yield fake


# Its start.


@pytest.mark.parametrize("takes", ["index", "uuid", "rounded"])
def test_a_daemon_has_its_limits_before_it_is_ready(mps: FakeMps, takes: str) -> None:
    mps.behave(**{A: {"memory": takes}})
    wanted = {
        "nvidia.com/gpu": daemon(A, B),
        f"nvidia.com/mig/{MIG}": daemon(MIG, memory=2432, threads=50),
        "nvidia.com/old": daemon(B, memory=0, threads=0),
    }
    with mps.serving(wanted):
        said = {name: {*mps.commands(name)} for name in wanted}
    percent, limit = (
        f"set_default_{one}" for one in ("active_thread_percentage", "device_pinned_mem_limit")
    )
    names = (A, B) if takes == "uuid" else (0, 1)
    expected = {f"{percent} 25", *(f"{limit} {name} 10240M" for name in names)}
    assert expected <= said["nvidia.com/gpu"]
    assert {f"{percent} 50", f"{limit} 0 2432M"} <= said[f"nvidia.com/mig/{MIG}"]
    assert not [one for one in said["nvidia.com/old"] if one.startswith("set_")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("does", "why"),
    [
        ({"start": "die"}, "it ended with status 1: MPS: cannot open the device"),
        (
            {"memory": "none"},
            f"the driver does not take device_pinned_mem_limit 10240M for 0 or {A}",
        ),
        ({"holds": "set_default_active_thread"}, "it is being started"),
        ({"holds": "pinned_mem"}, "it is being started"),
        ({"start": "hang"}, "it is being started"),
    ],
)
def test_a_daemon_that_cannot_be_used_holds_up_no_other(
    mps: FakeMps, does: dict[str, str], why: str
) -> None:
    mps.behave(**{A: does})
    mps.want(ONE | TWO)
    with mps.supervised():
        eventually(lambda: TWO.items() <= mps.running().items(), lambda: str(mps.running()))
        mps.problem(NAME, why)
        mps.behave()
        mps.wait_for(ONE | TWO)


def test_a_daemon_that_never_answers_is_given_up_and_tried_again(
    mps: FakeMps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper, "_START", 0.2)
    mps.behave(**{A: {"start": "hang"}})
    mps.want(ONE)
    with mps.supervised():
        mps.problem(NAME, "it did not answer within 0.2 s")
        monkeypatch.setattr(keeper, "_START", 30.0)
        mps.behave()
        mps.wait_for(ONE)


def test_without_the_program_or_a_short_path_the_reason_says_so(mps: FakeMps) -> None:
    mps.program.unlink()
    long = f"nvidia.com/{'a' * 63}/{B}"
    mps.want({**ONE, long: daemon(B)})
    with mps.supervised():
        mps.problem(long, "pipe/control is too long: use a shorter resource")
        mps.problem(NAME, "NVIDIA_DRIVER_CAPABILITIES=compute,utility")


def test_what_a_dead_daemon_left_is_replaced_and_no_link_of_a_pod_is_followed(
    mps: FakeMps, tmp_path: Path
) -> None:
    pipe, precious = mps.root / NAME / "pipe", tmp_path / "precious"
    (pipe / "folder").mkdir(parents=True)
    precious.mkdir()
    (precious / "file").touch()
    (pipe / "folder/link").symlink_to(precious)
    (pipe / "link").symlink_to(precious)
    (pipe / "nvidia-cuda-mps-control.pid").write_text(str(os.getpid()))
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as dead:
        dead.bind(str(pipe / "control"))
    before = pipe.stat().st_ino
    with mps.serving(ONE):
        assert before == pipe.stat().st_ino, "containers have it mounted"
    assert [] == [*pipe.glob("*link"), *pipe.glob("folder")]
    assert (precious / "file").exists()


# Its life.


@pytest.mark.slow
@pytest.mark.parametrize(
    ("harm", "why"),
    [
        ("signal", "it ended with signal 9; "),
        ("pipe", "its directory of pipes, or its socket there, was deleted; "),
        ("pipe/control", "its directory of pipes, or its socket there, was deleted; "),
        ("never", "'get_server_list' was not answered in 0.2 s, 3 times; "),
        ("flood", "'get_server_list' failed with "),
    ],
)
def test_a_daemon_that_fails_under_clients_is_replaced_and_says_that_their_contexts_are_dead(
    mps: FakeMps,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    harm: str,
    why: str,
) -> None:
    served = ONE if harm == "never" else ONE | TWO  # on a busy machine no other answers in time

    def said() -> str:  # the file says it only until the next attempt
        problems = (getattr(one, "problem", "") for one in caplog.records)
        return next((one for one in problems if DEAD in one), "")

    def replaced() -> list[str]:
        with suppress(OSError, ValueError):  # it is being started
            return [name for name, pid in before.items() if pid != mps.pid(name)]
        return []

    with mps.serving(served):
        before, path = {name: mps.pid(name) for name in served}, mps.root / NAME / harm
        with mps.client(NAME) as client:
            if harm == "signal":
                os.kill(before[NAME], signal.SIGKILL)
            elif harm in {"never", "flood"}:
                monkeypatch.setattr(control, "_PATIENCE", 0.2 if harm == "never" else 60.0)
                mps.behave(**{A: {"answers": harm}})
            else:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            eventually(said, lambda: f"{DEAD}: {caplog.text}")
            assert said().startswith(why)
            assert len(said()) < 500
            assert b"" == client.recv(1)
        monkeypatch.setattr(control, "_PATIENCE", 10.0)
        mps.behave()
        eventually(lambda: [NAME] == replaced(), lambda: f"{replaced()} were replaced")
        mps.wait_for(served)
        assert [NAME] == replaced()


def test_long_logs_are_emptied(mps: FakeMps, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "_LOG_BYTES", 1 << 14)
    with mps.serving(ONE):
        log = mps.root / NAME / "log/server.log"
        log.write_bytes(b"x" * (1 << 16))
        eventually(lambda: not log.stat().st_size)


# What is wanted.


@pytest.mark.slow
@pytest.mark.parametrize("then", [TWO | {NAME: daemon(A, memory=5120, threads=12)}, TWO])
def test_other_limits_and_ends_wait_until_the_last_client_has_ended(
    mps: FakeMps, then: Daemons
) -> None:
    with mps.serving(ONE | TWO):
        before = mps.pid(NAME)
        with mps.client(NAME):
            mps.want(then)
            mps.counted(NAME)
            assert ONE | TWO == mps.running()
        mps.wait_for(then)
        assert (NAME in then) == (mps.root / NAME / "pipe/control").exists()
        mps.want(ONE | TWO)
        mps.wait_for(ONE | TWO)
        assert before != mps.pid(NAME)


ENTRY = '{"version": 1, "daemons": {"%s": {"devices": {%s}}}}'


@pytest.mark.slow
def test_a_file_that_cannot_be_used_ends_no_daemon(
    mps: FakeMps, caplog: pytest.LogCaptureFixture
) -> None:
    path = mps.root / WANTED
    with mps.serving(ONE):
        before = mps.pid(NAME)
        for content in (
            "{",
            '{"version": 2, "daemons": {}}',
            ENTRY % ("../etc/x", '"GPU-1": 0'),
            ENTRY % ("a/b/../c", '"GPU-1": 0'),
            ENTRY % ("a/b", '"-f": 0'),
            ENTRY % ("a/b", ""),
            ENTRY % ("a/b", '"GPU-1": "x"'),
        ):
            caplog.clear()
            path.write_text(content)
            eventually(lambda: "MPS daemons not updated" in caplog.text)
            assert str(path) in getattr(caplog.records[-1], "error", "")
            path.unlink()
            mps.want(ONE)
        mps.want(ONE | TWO)
        mps.wait_for(ONE | TWO)
        assert before == mps.pid(NAME)


def test_nothing_is_started_that_cannot_be_made_known(
    mps: FakeMps, caplog: pytest.LogCaptureFixture
) -> None:
    (mps.root / RUNNING).mkdir()  # as little can be written there as on a full disk
    mps.want(ONE)
    with mps.supervised():
        eventually(lambda: "MPS daemons not updated" in caplog.text)
        assert not (mps.root / NAME).exists()
        (mps.root / RUNNING).rmdir()
        mps.wait_for(ONE)


# The command.


@pytest.mark.slow
def test_two_commands_on_a_node_do_not_fight_and_one_that_was_killed_is_followed(
    mps: FakeMps, monkeypatch: pytest.MonkeyPatch
) -> None:
    mps.want(ONE)
    with mps.process() as first:
        mps.wait_for(ONE)
        before = mps.pid(NAME)
        with ExitStack() as client, mps.process() as second:
            eventually(lambda: "another gpu-mps-daemon runs: waiting for its end" in mps.events())
            monkeypatch.setattr(mps, "counted", lambda _: None)  # that takes a command 10 s
            client.enter_context(mps.client(NAME))
            assert (before, ONE) == (mps.pid(NAME), mps.running())
            first.kill()
            # What it left has a client, which is not hurt.
            mps.problem(NAME, "another control daemon serves 1 clients")
            assert before == mps.pid(NAME)
            client.close()
            mps.wait_for(ONE)
            pid = mps.pid(NAME)
            second.terminate()
            assert 0 == second.wait()
    assert not (mps.root / RUNNING).exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize(
    ("module", "limit", "holds"), [(keeper, "_GRACE", "\0"), (supervisor, "_STOP", "quit")]
)
def test_a_client_at_the_end_is_named_and_does_not_hold_it_up(
    mps: FakeMps,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    module: ModuleType,
    limit: str,
    holds: str,
) -> None:
    monkeypatch.setattr(module, limit, 0.2)
    with ExitStack() as clients:
        with mps.serving(ONE):
            client, pid = clients.enter_context(mps.client(NAME)), mps.pid(NAME)
            mps.behave(**{A: {"holds": holds}})
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
        assert b"" == client.recv(1)
    said = [getattr(one, "problem", "") for one in caplog.records]
    assert f"gpu-mps-daemon was stopped; {DEAD}" in said


def test_a_command_without_the_memory_that_is_shared_says_what_to_mount(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for shm, expected in (
        (tmp_path, f"mount the directory shm of the host's mps-root as {tmp_path}"),
        (tmp_path / "none", f"--mps-root {tmp_path}: "),
    ):
        with pytest.raises(SystemExit, match="2"):
            supervisor.main([f"--mps-root={tmp_path}", f"--shm={shm}"])
        assert expected in capsys.readouterr().err


def test_directories_for_containers_have_the_label_of_their_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "_SELINUX", tmp_path)
    try:
        control.open_to_containers(tmp_path)
    except OSError as error:
        pytest.skip(f"labels cannot be set here: {error}")
    assert b"container_file_t" in os.getxattr(tmp_path, "security.selinux")
