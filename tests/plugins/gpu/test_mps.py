"""The life of MPS control daemons, with a stand-in for NVIDIA's program: ``gpu/mps.py``."""

import os
import shutil
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from deviceplugin_gpu.mps import control, keeper, supervisor
from deviceplugin_gpu.mps.daemons import RUNNING, WANTED
from gpu.mps import FakeMps, daemon
from patience import eventually

pytestmark = pytest.mark.slow  # each question starts a program

A, B = (f"GPU-0000000{n}-0000-4000-8000-000000000000" for n in range(2))
MIG = "MIG-00000000-0001-4000-8000-000000000000"
ONE, TWO = daemon(f"nvidia.com/gpu/{A}", A), daemon(f"nvidia.com/gpu/{B}", B)
LIMITS = (
    "set_default_active_thread_percentage 25",
    "set_default_device_pinned_mem_limit 0 10240M",
)


@pytest.fixture
def mps(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeMps]:
    folder = TemporaryDirectory(prefix="mps")  # the path of a socket has 107 bytes
    fake = FakeMps(Path(folder.name), Path(folder.name) / "mps")
    monkeypatch.setenv("FAKE_MPS", fake.environment["FAKE_MPS"])
    monkeypatch.setattr(keeper, "_LOOK", 0.05)
    monkeypatch.setattr(keeper, "_ASK", 0.1)
    monkeypatch.setattr(supervisor, "_EVERY", 0.05)
    with folder:
        yield fake


# Limits.


@pytest.mark.parametrize("takes", ["index", "uuid", "rounded"])
def test_a_daemon_has_its_limits_before_it_is_ready(mps: FakeMps, takes: str) -> None:
    mps.behave(**{A: {"memory": takes}})
    wanted = daemon("nvidia.com/gpu", A, B)
    mps.want(wanted)
    with mps.supervised():
        mps.wait_for(wanted)
        said = mps.commands("nvidia.com/gpu")
    for number, uuid in enumerate((A, B)):
        name = uuid if takes == "uuid" else number
        assert f"set_default_device_pinned_mem_limit {name} 10240M" in said
    assert LIMITS[0] in said


@pytest.mark.parametrize("holds", ["active_thread", "pinned_mem"])
def test_a_daemon_that_answers_and_has_no_limits_yet_is_not_ready(mps: FakeMps, holds: str) -> None:
    mps.behave(**{A: {"holds": f"set_default_{holds}"} if holds[0] == "a" else {"holds": holds}})
    mps.want(ONE)
    with mps.supervised():
        eventually((mps.root / ONE.name / "pipe/control").exists)
        assert "it is being started" == mps.problem(ONE.name, "started")
        mps.behave()
        mps.wait_for(ONE)


def test_a_mig_device_has_a_daemon_with_limits_of_its_own(mps: FakeMps) -> None:
    wanted = daemon(f"nvidia.com/mig-1g.10gb/{MIG}", MIG, memory=2432, threads=50)
    mps.want(wanted, ONE)
    with mps.supervised():
        mps.wait_for(wanted, ONE)
        said = mps.commands(wanted.name)
    assert "set_default_device_pinned_mem_limit 0 2432M" in said


def test_limits_that_the_driver_does_not_take_are_refused(mps: FakeMps) -> None:
    mps.behave(**{A: {"memory": "none"}})
    mps.want(ONE)
    with mps.supervised():
        mps.problem(ONE.name, f"the driver takes no limit of memory for {A}, by index or UUID")


def test_without_limits_none_are_set(mps: FakeMps) -> None:
    wanted = daemon("nvidia.com/gpu", A, memory=0, threads=0)
    mps.want(wanted)
    with mps.supervised():
        mps.wait_for(wanted)
        assert not [one for one in mps.commands(wanted.name) if one.startswith("set_")]


def test_changed_limits_wait_until_the_last_client_has_ended(mps: FakeMps) -> None:
    other = daemon(ONE.name, A, memory=5120, threads=12)
    mps.want(ONE)
    with mps.supervised():
        mps.wait_for(ONE)
        before = mps.pid(ONE.name)
        with mps.client(ONE.name):
            mps.want(other)
            asked = len(mps.commands(ONE.name))
            eventually(lambda: len(mps.commands(ONE.name)) > asked + 3)
            assert {ONE.name: ONE} == mps.running()
        mps.wait_for(other)
        assert before != mps.pid(ONE.name)


# Its life.


def test_a_daemon_that_hangs_at_its_start_holds_up_no_other(mps: FakeMps) -> None:
    mps.behave(**{A: {"start": "hang"}})
    mps.want(ONE, TWO)
    with mps.supervised():
        eventually(lambda: mps.running().get(TWO.name) == TWO, lambda: str(mps.running()))
        assert "it is being started" == mps.running()[ONE.name].problem
        mps.behave()
        mps.wait_for(ONE, TWO)


def test_a_daemon_that_never_answers_is_given_up_and_tried_again(
    mps: FakeMps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper, "_START", 0.3)
    mps.behave(**{A: {"start": "hang"}})
    mps.want(ONE)
    with mps.supervised():
        mps.problem(ONE.name, "it did not answer within 0.3 s")
        monkeypatch.setattr(keeper, "_START", 30.0)
        mps.behave()
        mps.wait_for(ONE)


def test_a_daemon_that_dies_at_its_start_has_its_last_words_in_the_reason(mps: FakeMps) -> None:
    mps.behave(**{A: {"start": "die"}})
    mps.want(ONE)
    with mps.supervised():
        mps.problem(ONE.name, "it ended with status 1: MPS: cannot open the device")
        mps.behave()
        mps.wait_for(ONE)


def test_a_death_under_clients_says_that_their_contexts_are_dead(mps: FakeMps) -> None:
    mps.want(ONE, TWO)
    with mps.supervised():
        mps.wait_for(ONE, TWO)
        first, other = mps.pid(ONE.name), mps.pid(TWO.name)
        with mps.client(ONE.name) as client:
            asked = len(mps.commands(ONE.name))
            eventually(lambda: len(mps.commands(ONE.name)) > asked + 3, "its client is counted")
            os.kill(first, signal.SIGKILL)
            said = mps.problem(ONE.name, "it ended with signal 9")
            assert b"" == client.recv(1)
        assert said.endswith(
            "its clients (1 when last counted) lost their CUDA contexts: restart their pods"
        )
        mps.wait_for(ONE, TWO)
        assert (
            (first, other) != (mps.pid(ONE.name), other) == (mps.pid(ONE.name), mps.pid(TWO.name))
        )


def test_a_daemon_that_stops_answering_is_replaced_after_three_questions(
    mps: FakeMps, monkeypatch: pytest.MonkeyPatch
) -> None:
    mps.want(ONE)
    with mps.supervised():
        mps.wait_for(ONE)
        before = mps.pid(ONE.name)
        monkeypatch.setattr(control, "_PATIENCE", 0.2)
        mps.behave(**{A: {"answers": "never"}})
        mps.problem(ONE.name, "was not answered in 0.2 s, 3 times")
        monkeypatch.setattr(control, "_PATIENCE", 10.0)
        mps.behave()
        mps.wait_for(ONE)
        assert before != mps.pid(ONE.name)


@pytest.mark.parametrize("what", ["pipe", "pipe/control"])
def test_a_directory_of_pipes_deleted_under_a_live_daemon_is_made_again(
    mps: FakeMps, what: str
) -> None:
    mps.want(ONE)
    with mps.supervised():
        mps.wait_for(ONE)
        before, path = mps.pid(ONE.name), mps.root / ONE.name / what
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        mps.problem(ONE.name, "was deleted")
        mps.wait_for(ONE)
        with mps.client(ONE.name):
            assert before != mps.pid(ONE.name)


def test_what_a_dead_daemon_left_is_replaced_and_no_link_of_a_pod_is_followed(
    mps: FakeMps, tmp_path: Path
) -> None:
    pipe, precious = mps.root / ONE.name / "pipe", tmp_path / "precious"
    (pipe / "folder").mkdir(parents=True)
    precious.mkdir()
    (precious / "file").touch()
    (pipe / "folder/link").symlink_to(precious)
    (pipe / "link").symlink_to(precious)
    (pipe / "nvidia-cuda-mps-control.pid").write_text(str(os.getpid()))
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as dead:
        dead.bind(str(pipe / "control"))
    before = pipe.stat().st_ino
    mps.want(ONE)
    with mps.supervised():
        mps.wait_for(ONE)
    assert before == pipe.stat().st_ino, "containers have it mounted"
    assert [] == [*pipe.glob("*link"), *pipe.glob("folder")]
    assert (precious / "file").exists()


def test_without_the_program_the_reason_says_where_it_comes_from(mps: FakeMps) -> None:
    mps.program.unlink()
    mps.want(ONE)
    with mps.supervised():
        mps.problem(ONE.name, "NVIDIA_DRIVER_CAPABILITIES=compute,utility")


def test_long_logs_are_emptied(mps: FakeMps, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "_LOG_BYTES", 1 << 14)
    mps.want(ONE)
    with mps.supervised():
        mps.wait_for(ONE)
        log = mps.root / ONE.name / "log/server.log"
        log.write_bytes(b"x" * (1 << 16))
        eventually(lambda: not log.stat().st_size)


# What is wanted.


def test_a_daemon_that_is_no_longer_wanted_ends_after_its_last_client(mps: FakeMps) -> None:
    mps.want(ONE, TWO)
    with mps.supervised():
        mps.wait_for(ONE, TWO)
        with mps.client(ONE.name):
            mps.want(TWO)
            asked = len(mps.commands(ONE.name))
            eventually(lambda: len(mps.commands(ONE.name)) > asked + 3)
            assert {ONE.name, TWO.name} == mps.running().keys()
        mps.wait_for(TWO)
        assert not (mps.root / ONE.name / "pipe/control").exists()
        mps.want(ONE, TWO)
        mps.wait_for(ONE, TWO)


ENTRY = '{"version": 1, "daemons": [{"name": "%s", "devices": [%s]}]}'


def test_a_file_that_cannot_be_used_ends_no_daemon(
    mps: FakeMps, caplog: pytest.LogCaptureFixture
) -> None:
    mps.want(ONE)
    path = mps.root / WANTED
    with mps.supervised():
        mps.wait_for(ONE)
        before = mps.pid(ONE.name)
        for content in (
            "{",
            '{"version": 2, "daemons": []}',
            ENTRY % ("../etc/x", '{"uuid": "GPU-1"}'),
            ENTRY % ("a/b/../c", '{"uuid": "GPU-1"}'),
            ENTRY % ("a/b", '{"uuid": "-f"}'),
            ENTRY % ("a/b", ""),
            ENTRY % ("a/b", '{"uuid": "GPU-1", "x": 1}'),
        ):
            caplog.clear()
            path.write_text(content)
            eventually(lambda: "MPS daemons not updated" in caplog.text)
            assert str(path) in getattr(caplog.records[-1], "error", "")
            path.unlink()
            mps.want(ONE)
        mps.want(ONE, TWO)
        mps.wait_for(ONE, TWO)
        assert before == mps.pid(ONE.name)


def test_nothing_is_started_that_cannot_be_made_known(
    mps: FakeMps, caplog: pytest.LogCaptureFixture
) -> None:
    (mps.root / RUNNING).mkdir()  # as little can be written there as on a full disk
    mps.want(ONE)
    with mps.supervised():
        eventually(lambda: "MPS daemons not updated" in caplog.text)
        assert not (mps.root / ONE.name).exists()
        (mps.root / RUNNING).rmdir()
        mps.wait_for(ONE)


# The command.


def test_two_commands_on_a_node_do_not_fight_and_one_that_was_killed_is_followed(
    mps: FakeMps,
) -> None:
    mps.want(ONE)
    with mps.process() as first:
        mps.wait_for(ONE)
        before = mps.pid(ONE.name)
        with mps.client(ONE.name), mps.process():
            eventually(lambda: "another gpu-mps-daemon runs: waiting for its end" in mps.events())
            assert (before, {ONE.name: ONE}) == (mps.pid(ONE.name), mps.running())
            first.kill()
            # What it left has a client, which is not hurt.
            mps.problem(ONE.name, "another control daemon serves 1 clients")
            assert before == mps.pid(ONE.name)
        with mps.process():
            mps.wait_for(ONE)
            assert before != mps.pid(ONE.name)


def test_at_its_end_daemons_are_ended_and_clients_counted(mps: FakeMps) -> None:
    mps.want(ONE)
    with mps.process() as process:
        mps.wait_for(ONE)
        pid = mps.pid(ONE.name)
        process.terminate()
        assert 0 == process.wait()
    assert not (mps.root / RUNNING).exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_client_at_the_end_is_named_and_does_not_hold_it_up(
    mps: FakeMps, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(keeper, "_GRACE", 0.2)
    mps.want(ONE)
    with ExitStack() as clients:
        with mps.supervised():
            mps.wait_for(ONE)
            client = clients.enter_context(mps.client(ONE.name))
            asked = len(mps.commands(ONE.name))
            eventually(lambda: len(mps.commands(ONE.name)) > asked + 3, "its client is counted")
        assert b"" == client.recv(1)
    dead = "its clients (1 when last counted) lost their CUDA contexts: restart their pods"
    assert f"gpu-mps-daemon was stopped; {dead}" in [
        getattr(one, "problem", "") for one in caplog.records
    ]


def test_a_command_without_the_memory_that_is_shared_says_what_to_mount(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        supervisor.main([f"--mps-root={tmp_path}", f"--shm={tmp_path}"])
    assert (
        f"mount the directory shm of the host's mps-root as {tmp_path}" in capsys.readouterr().err
    )
    with pytest.raises(SystemExit, match="2"):
        supervisor.main([f"--mps-root={tmp_path}", f"--shm={tmp_path}/none"])
    assert f"--mps-root {tmp_path}: " in capsys.readouterr().err


def test_directories_for_containers_have_the_label_of_their_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "_SELINUX", tmp_path)
    try:
        control.open_to_containers(tmp_path)
    except OSError as error:
        pytest.skip(f"labels cannot be set here: {error}")
    assert b"container_file_t" in os.getxattr(tmp_path, "security.selinux")
