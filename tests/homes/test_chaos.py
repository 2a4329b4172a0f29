"""What the chaos does on a node, on this machine: its scripts, and its arithmetic."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deviceplugin_testing.fixture import Kubelet
from deviceplugin_testing.simulator import Pod, SimulatedKubelet
from homes.chaos.checks import growth, is_of_the_future
from homes.chaos.comparison import shared
from homes.chaos.scripts import BIND, FILL, FREEZE, JUMP, LOCK, READ, SOCKETS, UNDO, WITNESS
from homes.chaos.witness import KUBELET
from homes.cluster.odd_plugin import ANSWER, IDS, PREFERENCES, RESOURCE, SCRIPT, SILENT
from patience import PATIENCE, eventually

CLOCK = """
import time
now = [1000.0, 50.0]
time.time, time.monotonic = lambda: now[0], lambda: now[1]
def sleep(seconds): now[:] = [now[0] + seconds, now[1] + seconds]
def settime(_, to): now[0] = to; print(to)
time.sleep, time.clock_settime = sleep, settime
"""
"""A clock that can be set without harm."""


def run(script: str, *words: object) -> str:
    command = [sys.executable, "-c", script, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


# Locks.


def test_a_lock_says_who_had_a_device_at_the_same_time(tmp_path: Path) -> None:
    script = LOCK.replace("/locks", str(tmp_path))
    own = {"SIMULATED_sim-0": "/dev/0", "PART_0": "first"}
    environment = {**os.environ, "Gopher": "gary,gina", **own}
    command = [sys.executable, "-c", script]
    subprocess.run([*command, "0"], env=environment, check=True)
    with subprocess.Popen([*command, "600"], env=environment) as first:
        try:
            eventually(lambda: is_locked(tmp_path / "PART_0"))  # the last
            other = {**os.environ, "Gopher": "gina", "PART_0": "second"}
            subprocess.run([*command, "0"], env=other, check=True)
        finally:
            first.terminate()
    notes = run(READ, tmp_path / "violations").splitlines()
    assert [str(tmp_path / one) for one in ("gina", "PART_0")] == [one.split()[0] for one in notes]
    assert all(f", held by {os.uname().nodename} " in note for note in notes)
    view = json.loads(run(READ, tmp_path / "views" / f"{os.uname().nodename}.main.json"))
    assert {"Gopher": ["gina"], "SIMULATED": []} == view["envs"]


def names(folder: Path) -> set[str]:
    return {one.name for one in folder.iterdir()}


def is_locked(path: Path) -> bool:
    return f":{path.stat().st_ino} " in Path("/proc/locks").read_text()


# The disk.


def test_a_large_disk_is_not_filled(tmp_path: Path) -> None:
    assert f"{tmp_path} is in a file system of " in run(FILL, tmp_path, 60)
    assert [] == [*tmp_path.iterdir()]


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_full_disk_has_no_room_for_a_socket_and_is_empty_afterwards(tmp_path: Path) -> None:
    fill, bind = tmp_path / "fill.py", tmp_path / "bind.py"
    fill.write_text(FILL.replace("/dev/shm/", f"{tmp_path}/"))
    bind.write_text(BIND)
    disk = tmp_path / "disk"
    disk.mkdir()
    script = """
    mount -t tmpfs -o size=1m,nr_inodes=50 tmpfs $1
    $2 fill.py $1 600 &
    until $2 bind.py $1 | grep space; do true; done
    touch over; wait; $2 bind.py $1; ls -A $1
    """
    command = ["unshare", "--mount", "sh", "-ec", script, "-", str(disk), sys.executable]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (0, "No space left on device\n", "") == (done.returncode, done.stdout, done.stderr)


def test_sockets_are_deleted_and_nothing_else_is(kubelet: Kubelet) -> None:
    directory = kubelet.simulated.plugin_dir
    run(BIND.replace("path.unlink()", ""), directory)
    (directory / "else").touch()
    there = names(directory)
    run(SOCKETS, directory)
    assert {"chaos-full.sock"} == there - names(directory)


# Programs that hang.


@pytest.mark.parametrize("running", [0, 0.01], ids=["hangs", "is slow"])
def test_a_program_that_was_stopped_goes_on(tmp_path: Path, running: float) -> None:
    freeze = FREEZE.replace("/dev/shm/", f"{tmp_path}/")
    program = tmp_path / f"chaos-{os.getpid()}"  # of this worker: they see each other's
    program.symlink_to(shutil.which("sleep") or "sleep")
    with subprocess.Popen([str(program), "600"]) as victim:
        try:
            state = Path(f"/proc/{victim.pid}/stat")
            command = [sys.executable, "-c", freeze, program.name, "600", str(running)]
            with subprocess.Popen(command) as frozen:
                eventually(lambda: state.read_text().split()[2] == "T")
                (tmp_path / "over").touch()
                assert 0 == frozen.wait(PATIENCE)
            assert "T" != state.read_text().split()[2]
        finally:
            victim.kill()
    assert {"over", program.name} == names(tmp_path)
    assert f"no process {program.name} on the node" == run(freeze, program.name, 600, 0)


# The clock.


def test_the_clock_is_put_right_by_whoever_is_there(tmp_path: Path) -> None:
    place = f"{tmp_path}/"
    jump = CLOCK + JUMP.replace("/dev/shm/", place)
    assert ["4600.0", "1003.0"] == run(jump, 3600, 3).split()
    assert [] == [*tmp_path.iterdir()]
    killed = jump.replace("time.sleep(float(sys.argv[2]))", "os._exit(0)")
    assert "-2600.0" == run(killed.replace("print(to)", "print(to, flush=True)"), -3600, 3)
    witness = CLOCK + WITNESS.replace("/dev/shm/", place)
    assert "1007.5" == run(witness, 7, tmp_path)
    assert {"over"} == names(tmp_path)


def test_what_is_left_of_a_full_disk_is_removed(tmp_path: Path) -> None:
    for name in ("chaos-full", "chaos-full-7", "kubelet.sock"):
        (tmp_path / name).touch()
    run(f"{UNDO}undo(sys.argv[1])", tmp_path)
    assert {"kubelet.sock"} == names(tmp_path)


# Arithmetic.


def test_a_device_of_two_pods_is_found() -> None:
    one, other = ("example.com/a", "0"), ("example.com/b", "0")
    assert {} == shared([(one, "p"), (one, "p"), (other, "q")])
    assert {one: {"p", "q"}} == shared([(one, "p"), (other, "p"), (one, "q")])


def test_growth_is_told_from_a_start_and_from_chance() -> None:
    assert 1 == growth([5, 8, 10, 10, 10, 10, 99, 10, 10, 10, 10, 10])
    assert 2 == growth([9, 9, 9, 10, 10, 10, 15, 15, 15, 20, 20, 20])


# The plugin with odd preferences, on the simulated kubelet.


@pytest.fixture
def answer(kubelet: Kubelet) -> Iterator[Path]:
    simulated = kubelet.simulated
    path = simulated.root / "answer"
    script = SCRIPT.replace(KUBELET, str(simulated.plugin_dir)).replace(ANSWER, str(path))
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as plugin:
        try:
            simulated.wait_for(RESOURCE, IDS)
            simulated.wait_for(SILENT, {f"silent-{one}" for one in IDS})
            yield path
        finally:
            plugin.terminate()
        assert 0 == plugin.wait(PATIENCE)
    assert {"kubelet.sock"} == {one.name for one in simulated.plugin_dir.glob("*.sock")}


def test_the_simulated_kubelet_follows_preferences_as_a_real_one_does(
    kubelet: Kubelet, answer: Path
) -> None:
    simulated: SimulatedKubelet = kubelet.simulated
    for number, (preferred, size, certain, possible) in enumerate(PREFERENCES):
        answer.write_text(json.dumps(preferred))
        pod = Pod.of(f"p{number}", main={RESOURCE: size})
        given = simulated.run(pod).devices["main"][RESOURCE]
        assert size == len(given)
        assert certain <= given <= possible
        simulated.delete(pod)
    for code, name in (("INTERNAL", "Internal"), ("UNIMPLEMENTED", "Unimplemented")):
        answer.write_text(json.dumps(code))
        message = simulated.admit(Pod.of(code.lower(), main={RESOURCE: 1})).message
        assert f"rpc error: code = {name} desc = oops" in message
    assert simulated.run(Pod.of("silent", main={SILENT: 2}))


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({"running": {"startedAt": "2026-01-01T00:00:00Z"}}, False),
        ({"running": {"startedAt": "2999-01-01T00:00:00Z"}}, True),
        ({"waiting": {}}, False),
        ({}, False),
    ],
)
def test_a_container_that_started_while_the_clock_was_ahead_is_told(
    state: dict[str, dict[str, str]], expected: bool
) -> None:
    assert expected == is_of_the_future({"state": state})
