"""kopf brings events to the controller, and leaves objects alone; a probe sees it work."""

import asyncio
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import islice, repeat
from pathlib import Path
from typing import Any

import pytest

import deviceplugin as dp
from cluster.kinds import DAEMON_SET, DEVICE_PLUGIN, Object
from deviceplugin.apiserver import ApiServer
from deviceplugin_operator import liveness, shell
from deviceplugin_operator.command_line import main
from deviceplugin_operator.controller import Controller
from deviceplugin_operator.reconciling.judge import Timing
from operators import fleet_cluster
from operators.fleet_cluster import SPACE, Fleet
from patience import PATIENCE, eventually

TIMING = Timing(soon=0.1, settle=0.3, nodes=0.2)


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    with fleet_cluster.running(2) as found:
        yield found


@pytest.fixture
def alive(tmp_path: Path) -> Path:
    """Return the file for the probe."""
    return tmp_path / "alive"


@pytest.fixture
def running(fleet: Fleet, alive: Path) -> Iterator[Controller]:
    """Run the operator as a process does, but in a thread."""
    api, stop = ApiServer(fleet.url), threading.Event()
    controller = Controller(api, SPACE, timing=TIMING, nodes_every=0.3)  # lists only at the start
    thread = threading.Thread(
        target=shell.run,
        args=(controller, SPACE, fleet.url),
        kwargs={"alive": alive, "stop": stop},
    )
    thread.start()
    yield controller
    stop.set()
    thread.join()


@pytest.mark.usefixtures("running")
def test_events_reach_the_controller_and_objects_are_left_alone(fleet: Fleet) -> None:
    fleet.apply("sim", plugin="simulated")
    eventually(lambda: fleet.is_ready("sim"))
    fleet.apply("sim", plugin="simulated", simulated={"number-devices": 5})
    eventually(lambda: fleet.is_ready("sim"))
    eventually(lambda: fleet.status("sim")["devices"] == "simple-device 10/10")

    def edit(found: Object) -> None:
        found["spec"]["template"]["spec"]["tolerations"] = []

    fleet.store.change(DAEMON_SET, SPACE, "dp-sim", edit)
    eventually(lambda: fleet.daemon_set("dp-sim")["spec"]["template"]["spec"]["tolerations"])
    metadata = fleet.store.get(DEVICE_PLUGIN, "", "sim")["metadata"]
    assert not {"finalizers", "annotations"} & metadata.keys()
    fleet.store.remove(DEVICE_PLUGIN, "", "sim")
    eventually(lambda: not fleet.store.list(DAEMON_SET, SPACE))


def probed(file: Path) -> tuple[int, str]:
    """Return status and output of the probe, as the kubelet runs it."""
    words = [sys.executable, "-m", "deviceplugin_operator.liveness", str(file)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def test_the_probe_says_what_is_wrong(alive: Path) -> None:
    assert (1, f"{alive}: No such file or directory\n") == probed(alive)
    problems = ["", "no complete list"]
    sign = liveness.Sign(alive, problems.pop)
    assert (1, "it does not watch yet\n") == probed(alive)
    sign.renew()
    assert (1, "no complete list\n") == probed(alive)
    sign.renew()
    assert (0, "ok\n") == probed(alive)
    alive.unlink()
    alive.mkdir()
    Path(alive).touch()
    problems.append("")
    sign.renew()
    assert (1, f"{alive}: Is a directory\n") == probed(alive)


def test_what_is_old_or_an_operator_before_it_has_left_is_no_sign_of_life(alive: Path) -> None:
    liveness.Sign(alive, str).renew()
    now = time.time()
    os.utime(alive, (now, now - liveness.STALE + 10))
    assert "" == liveness.fault(alive)
    os.utime(alive, (now, now - liveness.STALE - 10))
    assert f"{alive}: was written 70 s ago" == liveness.fault(alive)
    liveness.Sign(alive, str).renew()
    liveness.Sign(alive, str)
    assert "it does not watch yet" == liveness.fault(alive)


def test_it_is_renewed_for_as_long_as_the_loop_runs(alive: Path) -> None:
    loop, waits = asyncio.new_event_loop(), list[float]()
    with closing(loop):
        shell._renew(liveness.Sign(alive, str), loop)
        waits += [one.when() - loop.time() for one in loop._scheduled]  # type: ignore[attr-defined]
    assert "" == liveness.fault(alive)
    assert [liveness.EVERY] == [round(one) for one in waits]
    assert 3 * liveness.EVERY < liveness.STALE


def test_the_probe_needs_one_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == liveness.main([])
    assert "one file belongs here\n" == capsys.readouterr().err


@pytest.mark.slow  # a process that loads kopf and all plugins
def test_it_listens_nowhere_so_nobody_can_hold_its_connections(fleet: Fleet, alive: Path) -> None:
    words = [sys.executable, "-m", "deviceplugin_operator", "run", "--namespace", SPACE]
    words += ["--api-server", fleet.url, "--alive", str(alive)]
    with subprocess.Popen(words, stderr=subprocess.DEVNULL) as process:
        eventually(lambda: liveness.fault(alive) == "")
        fleet.apply("sim", plugin="simulated")
        eventually(lambda: fleet.is_ready("sim"))
        own = {one.readlink().name for one in Path(f"/proc/{process.pid}/fd").iterdir()}
        rows = [
            line.split()
            for name in ("tcp", "tcp6")
            for line in Path(f"/proc/{process.pid}/net/{name}").read_text().splitlines()[1:]
        ]
        listening = [row[1] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in own]
        process.terminate()
    assert [] == listening
    assert 0 == process.returncode


def run(fleet: Fleet, **more: Any) -> None:
    controller = Controller(ApiServer(fleet.url), SPACE, timing=TIMING)
    shell.run(controller, SPACE, fleet.url, **more)


def test_without_its_kind_it_does_not_start(fleet: Fleet) -> None:
    fleet.unknown.add(DEVICE_PLUGIN)
    with pytest.raises(dp.ConfigError, match="the API server does not know the kind DevicePlugin"):
        run(fleet)


@pytest.mark.slow  # kopf waits 5 s for its tasks
def test_a_kind_that_is_deleted_ends_it_with_one_error_and_no_traceback(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    with ThreadPoolExecutor() as pool, caplog.at_level(logging.WARNING):
        running = pool.submit(run, fleet)
        fleet.apply("sim", plugin="simulated")
        eventually(lambda: fleet.is_ready("sim"))
        fleet.unknown.add(DEVICE_PLUGIN)
        with pytest.raises(dp.ConfigError, match="does not know the kind DevicePlugin: kubectl"):
            running.result(PATIENCE)
    assert [] == [one.name for one in caplog.records if one.exc_info]


@pytest.mark.slow
def test_an_api_server_that_is_away_is_logged_once(
    fleet: Fleet, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = threading.Event()
    monkeypatch.setattr(shell._Waits, "__iter__", lambda _: repeat(0.1))
    fleet.away.set()
    with ThreadPoolExecutor() as pool, caplog.at_level(logging.WARNING):
        running = pool.submit(run, fleet, stop=stop)
        said: list[str] = []

        def has_tried_again() -> bool:
            messages = (one.getMessage() for one in caplog.records)
            said[:] = [one for one in messages if "OS signals" not in one]  # it is in a thread
            return fleet.asked.count("") > 4

        try:
            eventually(has_tried_again)
        finally:
            fleet.away.clear()
            stop.set()
            running.result(PATIENCE)
    assert {"API server unavailable"} == {*said}
    assert 2 >= len(said)  # of objects, and of nodes


def test_a_fault_of_another_kind_is_not_taken_for_a_missing_one(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(**_: Any) -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr("kopf.run", fail)
    with pytest.raises(RuntimeError, match="a fault"):
        run(fleet)


def test_attempts_while_the_server_is_away_never_end_and_are_five_seconds_apart() -> None:
    waits = [*islice(shell._Waits(), 200)]
    assert [1.0, 1.0, 2.0, 3.0] == waits[:4]
    assert {5.0} == {*waits[4:]}


def test_a_connection_has_the_token_and_the_authority_of_the_pod(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("secret\n")
    monkeypatch.setattr(shell, "SERVICE_ACCOUNT", tmp_path)
    found = shell._connection("https://10.0.0.1:443")
    assert ("secret", str(tmp_path / "ca.crt")) == (found.token, found.ca_path)
    assert None is shell._connection("http://localhost").token


EXAMPLE = "an example is registry.example.com/"
OF_N = ("run", "--namespace", "n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run"], "--namespace or POD_NAMESPACE is needed, for the DaemonSets"),
        (OF_N, "this is not a pod: KUBERNETES_SERVICE_HOST and _PORT are not set"),
        (
            [*OF_N, "--image-prefix", "https://a/"],
            f"--image-prefix 'https://a/' cannot begin an image: {EXAMPLE}",
        ),
        (
            [*OF_N, "--api-server", "http://a:1", "--alive", "/nowhere/alive"],
            "--alive /nowhere/alive: No such file or directory",
        ),
    ],
)
def test_the_command_says_in_one_line_what_is_wrong(
    words: Sequence[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("POD_NAMESPACE", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SystemExit) as raised:
        main(words)
    assert 2 == raised.value.code
    assert f"deviceplugin-operator: {said}\n" == capsys.readouterr().err


def test_the_command_runs_the_shell_with_what_it_is_told(
    alive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[object] = []

    def run(controller: Controller, *words: object, **more: object) -> None:
        told.extend([type(controller).__name__, *words, more])

    monkeypatch.setattr(shell, "run", run)
    with pytest.raises(SystemExit) as raised:
        main([*OF_N, "--api-server", "http://a:1", "--alive", str(alive)])
    assert 0 == raised.value.code
    assert ["Controller", "n", "http://a:1", {"alive": alive}] == told


def test_an_interrupt_before_it_watches_ends_it_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(shell, "run", interrupt)
    with pytest.raises(SystemExit) as raised:
        main([*OF_N, "--api-server", "http://a:1"])
    assert 130 == raised.value.code
