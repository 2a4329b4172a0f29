"""kopf brings events to the controller, answers the probe, and leaves objects alone."""

import socket
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError

import pytest

from cluster.kinds import DAEMON_SET, DEVICE_PLUGIN, Object
from deviceplugin.apiserver import ApiServer
from deviceplugin_operator import shell
from deviceplugin_operator.command_line import main
from deviceplugin_operator.controller import Controller
from deviceplugin_operator.reconciler import Timing
from operators import fleet_cluster
from operators.fleet_cluster import SPACE, Fleet
from patience import eventually

TIMING = Timing(soon=0.1, settle=0.3, nodes=0.2)


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    with fleet_cluster.running(2) as found:
        yield found


@pytest.fixture
def probe() -> str:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return f"http://127.0.0.1:{free.getsockname()[1]}/healthz"


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
    eventually(lambda: answered(probe) == (200, '{"controller": "well"}'))


def test_the_probe_fails_where_a_restart_may_help(
    running: Controller, probe: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "problem", lambda: "nothing could be listed")
    eventually(lambda: answered(probe)[0] == 500)


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


def test_the_command_runs_the_shell_with_what_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[object] = []

    def run(controller: Controller, *words: object, **more: object) -> None:
        told.extend([type(controller).__name__, *words, more])

    monkeypatch.setattr(shell, "run", run)
    words = ["run", "--namespace", "n", "--api-server", "http://a:1", "--liveness", "http://b/c"]
    with pytest.raises(SystemExit) as raised:
        main(words)
    assert 0 == raised.value.code
    assert ["Controller", "n", "http://a:1", {"liveness": "http://b/c"}] == told
