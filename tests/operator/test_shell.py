"""kopf brings events to the controller, answers the probe, and leaves objects alone."""

import logging
import socket
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

import deviceplugin as dp
from cluster.kinds import DAEMON_SET, DEVICE_PLUGIN, Object
from deviceplugin.apiserver import ApiServer
from deviceplugin.conformance._place import free_port
from deviceplugin_operator import liveness, shell
from deviceplugin_operator.command_line import main
from deviceplugin_operator.controller import Controller
from deviceplugin_operator.reconciling.rolling import Timing
from operators import fleet_cluster
from operators.fleet_cluster import SPACE, Fleet
from patience import PATIENCE, eventually

TIMING = Timing(soon=0.1, settle=0.3, nodes=0.2)


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    with fleet_cluster.running(2) as found:
        yield found


@pytest.fixture
def probe() -> str:
    return f"http://127.0.0.1:{free_port()}/healthz"


@pytest.fixture
def running(fleet: Fleet, probe: str) -> Iterator[Controller]:
    """Run the operator as a process does, but in a thread."""
    api, stop = ApiServer(fleet.url), threading.Event()
    controller = Controller(api, SPACE, timing=TIMING, nodes_every=0.3)  # lists only at the start
    thread = threading.Thread(
        target=shell.run,
        args=(controller, SPACE, fleet.url),
        kwargs={"liveness": probe, "stop": stop},
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


def answered(url: str) -> tuple[int, str]:
    """Return status and text of an answer, or zero."""
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, ""
    except OSError:
        return 0, ""


def test_the_probe_is_answered_by_what_the_controller_says(
    running: Controller, probe: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "problem", lambda: "")
    eventually(lambda: answered(probe) == (200, '{"controller": "ok"}'))


def test_a_probe_is_not_logged(
    running: Controller, probe: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert "" == running.problem()
    with caplog.at_level(logging.INFO):
        eventually(lambda: answered(probe)[0] == 200)
        assert 200 == answered(probe)[0]  # the first is logged by now, if at all
    assert [] == [one.name for one in caplog.records if one.name.startswith("aiohttp")]


def test_the_probe_fails_where_a_restart_may_help(
    running: Controller, probe: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "problem", lambda: "no complete list")
    eventually(lambda: answered(probe)[0] == 500)


def run(fleet: Fleet, **more: Any) -> None:
    controller = Controller(ApiServer(fleet.url), SPACE, timing=TIMING)
    shell.run(controller, SPACE, fleet.url, **more)


def test_without_its_kind_it_does_not_start(fleet: Fleet) -> None:
    fleet.unknown.add(DEVICE_PLUGIN)
    with pytest.raises(dp.ConfigError, match="the API server does not know the kind DevicePlugin"):
        run(fleet)


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


def test_an_api_server_that_is_away_is_logged_once(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    stop = threading.Event()
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


def test_the_command_says_what_is_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("POD_NAMESPACE", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    for words, said in ((["run"], "--namespace"), (["run", "--namespace", "n"], "is not a pod")):
        with pytest.raises(SystemExit) as raised:
            main(words)
        assert 2 == raised.value.code
        assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("healthz", "is not an address with port and path, such as http://0.0.0.0:8080/healthz"),
        ("https://127.0.0.1:8080/healthz", "is not an address"),
        ("http://127.0.0.1/healthz", "is not an address"),
        ("http://127.0.0.1:8080", "is not an address"),
        ("http://127.0.0.1:99999/healthz", "Port out of range 0-65535"),
        ("http://nowhere.invalid:8080/healthz", "cannot listen there: "),
        ("http://[::1:8080/healthz", "Invalid IPv6 URL"),
    ],
)
def test_a_probe_that_could_not_be_answered_is_an_error(address: str, said: str) -> None:
    with pytest.raises(dp.ConfigError) as raised:
        liveness.check(address)
    assert f"--liveness {address!r}" in str(raised.value)
    assert said in str(raised.value)


def test_a_port_that_is_taken_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"http://127.0.0.1:{taken.getsockname()[1]}/healthz"
        words = ["run", "--namespace", "n", "--api-server", "http://a:1", "--liveness", address]
        with pytest.raises(SystemExit) as raised:
            main(words)
    assert 2 == raised.value.code
    said = f"deviceplugin-operator: --liveness '{address}': cannot listen there: "
    assert [f"{said}Address already in use"] == capsys.readouterr().err.splitlines()


def test_the_command_runs_the_shell_with_what_it_is_told(
    probe: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[object] = []

    def run(controller: Controller, *words: object, **more: object) -> None:
        told.extend([type(controller).__name__, *words, more])

    monkeypatch.setattr(shell, "run", run)
    words = ["run", "--namespace", "n", "--api-server", "http://a:1", "--liveness", probe]
    with pytest.raises(SystemExit) as raised:
        main(words)
    assert 0 == raised.value.code
    assert ["Controller", "n", "http://a:1", {"liveness": probe}] == told


def test_an_interrupt_before_it_watches_ends_it_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(shell, "run", interrupt)
    with pytest.raises(SystemExit) as raised:
        main(["run", "--namespace", "n", "--api-server", "http://a:1"])
    assert 130 == raised.value.code
