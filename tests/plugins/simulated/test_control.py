"""Controlling a running plugin."""

import json
import os
import select
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deviceplugin_simulated import SimulatedPlugin, SimulatedSettings, control, ctl_command, main
from deviceplugin_simulated.control import Control
from deviceplugin_simulated.life import Action
from deviceplugin_testing.fixture import Kubelet, Node
from patience import PATIENCE, eventually

GPU = "example.com/gpu"
HOUR = timedelta(hours=1)
IDS = [f"gpu-{index}" for index in range(8)]


@pytest.fixture
def path(kubelet: Kubelet) -> Path:
    return kubelet.simulated.root / "ctl.sock"


@pytest.fixture
def node(kubelet: Kubelet, path: Path) -> Iterator[Node]:
    plugin = SimulatedPlugin(SimulatedSettings(profile="8-gpus", control_socket=path))
    with kubelet.running(plugin, discovery_interval=HOUR) as node:
        node.wait_for(GPU, IDS)
        node.kubelet.wait(path.is_socket)
        yield node


@pytest.fixture
def ctl(path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    def run(*words: str) -> tuple[int, str]:
        status = ctl_command.run([*words, "--control-socket", str(path)])
        captured = capsys.readouterr()
        return status, (captured.err if status else captured.out)

    return run


Ctl = Callable[..., tuple[int, str]]


def test_a_fault_told_live_reaches_the_kubelet_at_once(node: Node, ctl: Ctl, path: Path) -> None:
    assert 0o600 == stat.S_IMODE(path.stat().st_mode)
    assert (0, "gpu-3  unhealthy: too hot\n") == ctl("unhealthy", "gpu-3", "--reason", "too hot")
    node.wait_for(GPU, set(IDS) - {"gpu-3"}, {"gpu-3"})
    assert (0, "gpu-3  healthy\n") == ctl("recover", "gpu-3")
    node.wait_for(GPU, IDS)
    assert (0, "gpu-6  unplugged\ngpu-7  unplugged\n") == ctl("unplug", "gpu-[67]")
    node.wait_for(GPU, IDS[:6], IDS[6:])
    assert 8 == ctl("plug")[1].count("healthy")
    assert 0 == ctl("unhealthy", "gpu-3", "--for", "1s")[0]  # it ends by itself
    node.wait_for(GPU, set(IDS) - {"gpu-3"}, {"gpu-3"})
    node.wait_for(GPU, IDS)


@pytest.mark.usefixtures("node")
def test_the_list_tells_how_everything_is(ctl: Ctl) -> None:
    ctl("slow", "gpu-1", "--by", "5s")
    ctl("fail", "gpu-1")
    assert (0, "plugin: hanging\n") == ctl("hang")
    status, text = ctl("list")
    lines = text.splitlines()
    assert (0, 9) == (status, len(lines))
    assert "gpu-1  failing: simulated fault, slow by 5 s" == lines[1]
    assert ["gpu-7  healthy", "plugin: hanging"] == lines[-2:]
    assert (0, "plugin: running\n") == ctl("resume")


@pytest.mark.usefixtures("node")
def test_a_wrong_order_is_refused_with_its_reason(ctl: Ctl) -> None:
    for words, expected in (
        ("unplug gpu-9", "devices: 'gpu-9' is not a device: did you mean 'gpu-7'?"),
        ("hang gpu-1", "devices: hang happens to the plugin, not to devices"),
        ("slow --by 5", "by: '5' is not a duration, such as 500ms, 30s or 1m30s"),
        ("plug --for 1s", "for: plug has no duration"),
    ):
        assert (1, f"simulated-device-plugin ctl: request.{expected}\n") == ctl(*words.split())


def test_without_the_setting_there_is_no_socket(kubelet: Kubelet) -> None:
    with kubelet.running(SimulatedPlugin(SimulatedSettings(profile="8-gpus"))) as node:
        node.wait_for(GPU, IDS)
        alias = kubelet.simulated.plugin_dir / "simple-device-plugin.sock"
        eventually(alias.is_socket)
        found = {path.name for path in kubelet.simulated.plugin_dir.iterdir()}
        known = {"kubelet.sock", "kubelet_internal_checkpoint", ".holds", alias.name}
        assert {kubelet.simulated.socket_of(GPU).name} == found - known


def test_a_client_that_says_nothing_or_nonsense_harms_nobody(
    node: Node, ctl: Ctl, path: Path
) -> None:
    for text in (b"", b"\n", b"nonsense\n", b"[]\n", b"\xff\n"):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(os.fspath(path))
            client.sendall(text)
    assert 0 == ctl("unhealthy", "gpu-3")[0]
    node.wait_for(GPU, set(IDS) - {"gpu-3"}, {"gpu-3"})


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (b"\xff", "this is not JSON"),
        (b"[]", "request: a list is not a mapping with keys"),
        (b'{"do": ' * 9_000, "the request is nested too deeply"),
        (b" " * 65_537, "the request has more than 65536 bytes"),
        (json.dumps({"do": "plug", "devices": [f"*{index}" for index in range(101)]}).encode(),
         "request.devices: more than 100 that are not ids"),
        (b'{"do": "explode"}', ("request.do: 'explode' is not an action: known are unhealthy, "
         "degraded, slow, fail, recover, unplug, plug, stick, make, unmake, reboot, hang, "
         "resume, crash")),
    ],
)  # fmt: skip
def test_nonsense_is_answered(request_: bytes, expected: str) -> None:
    plugin = SimulatedPlugin(SimulatedSettings(profile="8-gpus"))
    assert {"error": expected} == json.loads(plugin._obey(request_))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)
DURATIONS = st.from_regex(r"[0-9]{1,400}(ms|s|m|h)", fullmatch=True)


@settings(max_examples=60, deadline=None)
@given(
    st.fixed_dictionaries(
        {"do": st.sampled_from([*map(str, Action), "list"]) | VALUES},
        optional={
            "devices": st.sampled_from(["gpu-3", "gpu-*", "*"]) | VALUES,
            "for": DURATIONS | VALUES,
            "by": DURATIONS | VALUES,
            "at": DURATIONS | VALUES,
            "reason": VALUES,
            "more": VALUES,
        },
    )
    | VALUES
)
def test_every_request_is_answered(given_: object) -> None:
    plugin = SimulatedPlugin(SimulatedSettings(profile="8-gpus"), crash=lambda: None)
    reply = json.loads(plugin._obey(json.dumps(given_).encode()))
    assert ("error" in reply) != ("devices" in reply)


def test_a_request_may_name_all_devices_of_a_large_node() -> None:
    plugin = SimulatedPlugin(SimulatedSettings(number_devices=1000, node_name="n"))
    ids = [device.id for device in plugin.discover()]
    reply = plugin._obey(json.dumps({"do": "unplug", "devices": ids}).encode())
    assert dict.fromkeys(ids, "unplugged") == json.loads(reply)["devices"]


def test_no_more_ends_can_be_asked_for_than_are_worth_their_memory() -> None:
    plugin = SimulatedPlugin(SimulatedSettings(profile="8-gpus"), clock=lambda: 0.0)
    request_ = b'{"do": "unhealthy", "for": "1h"}'
    for _ in range(control._MAX_COMING):
        assert "error" not in json.loads(plugin._obey(request_))
    expected = "1000 faults have not ended yet: wait, or do not use 'for'"
    assert {"error": expected} == json.loads(plugin._obey(request_))
    assert "error" not in json.loads(plugin._obey(b'{"do": "recover"}'))


# Clients that misbehave.


def echo(request: bytes) -> bytes:
    return request


def connected(path: Path, text: bytes = b"") -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(PATIENCE)
    client.connect(os.fspath(path))
    client.sendall(text)
    return client


def rest(client: socket.socket) -> bytes:
    """Return what comes until the other side hangs up, with or without having read everything."""
    with suppress(ConnectionResetError), client.makefile("rb") as stream:
        return stream.read()
    return b""


def test_silent_clients_hold_up_neither_others_nor_what_is_to_happen(
    monkeypatch: pytest.MonkeyPatch, kubelet: Kubelet, path: Path, tmp_path: Path
) -> None:
    monkeypatch.setattr(control, "LIMIT", 10 * PATIENCE)
    script = tmp_path / "devices.json"
    event = {"at": "1s", "do": "unhealthy", "devices": "gpu-3"}
    script.write_text(json.dumps({"profile": "8-gpus", "timeline": [event]}))
    plugin = SimulatedPlugin(SimulatedSettings(devices=script, control_socket=path))
    texts = (b"", b"{", b" " * 1000)
    assert len(texts) < control.CLIENTS
    with kubelet.running(plugin, discovery_interval=HOUR) as node, ExitStack() as clients:
        node.kubelet.wait(path.is_socket)
        silent = [clients.enter_context(connected(path, text)) for text in texts]
        assert 8 == len(ctl_command._ask(path, {"do": "list"})["devices"])
        assert ([], [], []) == select.select(silent, [], [], 0)
        for _ in range(2 * control.CLIENTS):
            clients.enter_context(connected(path))
        node.wait_for(GPU, set(IDS) - {"gpu-3"}, {"gpu-3"})


def test_clients_that_wait_for_others_get_their_turn(
    monkeypatch: pytest.MonkeyPatch, path: Path
) -> None:
    monkeypatch.setattr(control, "LIMIT", 0.5)
    with Control(path, echo).listening(), ExitStack() as clients:
        for _ in range(3 * control.CLIENTS):
            clients.enter_context(connected(path))
        answer = b""
        for _ in range(20):  # because a busy machine may need longer than the limit
            with connected(path, b"hello\n") as client:
                answer = answer or rest(client)
        assert b"hello\n" == answer


def test_a_client_that_sends_a_little_at_a_time_has_no_more_time(
    monkeypatch: pytest.MonkeyPatch, path: Path
) -> None:
    monkeypatch.setattr(control, "LIMIT", 0.5)
    with Control(path, echo).listening(), connected(path) as client:
        for _ in range(int(PATIENCE / 0.01)):
            if select.select([client], [], [], 0.01)[0]:
                break
            with suppress(BrokenPipeError, ConnectionResetError):
                client.sendall(b" ")
        assert b"" == rest(client)


def test_a_request_without_an_end_is_refused(node: Node, path: Path) -> None:
    del node
    with connected(path) as client, client.makefile() as stream:
        with suppress(BrokenPipeError, ConnectionResetError):
            for _ in range(100):
                client.sendall(b"x" * 65_536)
        assert "the request has more than 65536 bytes" == json.loads(stream.readline())["error"]


def test_a_fault_in_serving_a_client_is_logged_and_the_others_are_served(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def obey(request: bytes) -> bytes:
        if request == b"bad":
            raise ZeroDivisionError
        return request

    with Control(path, obey).listening():
        for text in [b"bad"] * 2 * control.CLIENTS + [b"good"]:
            with connected(path, text + b"\n") as client, client.makefile("rb") as stream:
                assert (b"" if text == b"bad" else b"good\n") == stream.readline()
    assert ["request failed"] * 2 * control.CLIENTS == caplog.messages


def test_the_end_does_not_wait_for_clients(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    monkeypatch.setattr(control, "LIMIT", 10 * PATIENCE)
    with ExitStack() as clients:
        with Control(path, echo).listening():
            silent = [clients.enter_context(connected(path)) for _ in range(control.CLIENTS)]
            with connected(path, b"\n"):
                pass
        for client in silent:
            assert b"" == rest(client)


# The socket.


def test_a_socket_that_was_left_behind_is_replaced(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as old:
        old.bind(os.fspath(path))
    with Control(path, echo).listening():
        assert {"do": "list"} == ctl_command._ask(path, {"do": "list"})
    assert not path.exists()


def test_a_new_plugin_takes_the_socket_over_from_an_old_one(path: Path) -> None:
    control = Control(path, echo)
    with control.listening():
        inner = control.listening()
        inner.__enter__()
    assert path.is_socket()
    inner.__exit__(None, None, None)
    assert not path.exists()


def test_no_other_file_is_overwritten(path: Path) -> None:
    path.write_text("precious")
    for place, kind, expected in (
        (path, FileExistsError, "exists, and is not a socket"),
        (path.parent / "none/ctl.sock", OSError, r"none/ctl\.sock: No such file or directory"),
    ):
        with pytest.raises(kind, match=expected), Control(place, echo).listening():
            pass
    assert "precious" == path.read_text()


# The command.


def test_the_command_needs_a_socket_that_somebody_listens_on(ctl: Ctl, path: Path) -> None:
    expected = f"simulated-device-plugin ctl: {path}: No such file or directory\n"
    assert (1, expected) == ctl("list")


@pytest.mark.parametrize(
    ("action", "status", "text"),
    [
        ("list", 1, "simulated-device-plugin ctl: {}: the plugin did not reply\n"),
        ("crash", 0, ""),  # as it was told to
    ],
)
def test_no_reply_is_an_error_but_of_a_plugin_that_is_to_crash(
    ctl: Ctl, path: Path, action: str, status: int, text: str
) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.fspath(path))
        listener.listen()

        def hang_up() -> None:
            client, _ = listener.accept()
            client.recv(1000)
            client.close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        assert (status, text.format(path)) == ctl(action)
        thread.join()


def test_the_command_names_the_setting_that_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("DP_CONTROL_SOCKET", raising=False)
    monkeypatch.setattr(sys, "argv", ["simulated-device-plugin", "ctl", "list"])
    with pytest.raises(SystemExit, match="2"):
        main()
    expected = "simulated-device-plugin ctl: --control-socket (or DP_CONTROL_SOCKET) is needed\n"
    assert expected == capsys.readouterr().err


def test_the_installed_command_talks_to_a_plugin(node: Node, path: Path) -> None:
    def run(*words: str, out: int = subprocess.PIPE) -> tuple[int, str, str]:
        command = [sys.executable, "-m", "deviceplugin_simulated", "ctl", *words]
        env = {**os.environ, "DP_CONTROL_SOCKET": str(path)}
        done = subprocess.run(
            command, env=env, stdout=out, stderr=subprocess.PIPE, text=True, check=False
        )
        return done.returncode, done.stdout, done.stderr

    assert (0, "gpu-0  unhealthy: simulated fault\n", "") == run("unhealthy", "gpu-0")
    node.wait_for(GPU, IDS[1:], IDS[:1])
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb"):  # noqa: PTH123 - a descriptor
        assert (0, "") == run("list", out=writer)[::2]
