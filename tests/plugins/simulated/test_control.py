"""Telling a running plugin what shall happen."""

import json
import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from deviceplugin.testing import Kubelet, Node
from deviceplugin_simulated import SimulatedPlugin, SimulatedSettings, _ctl, main
from deviceplugin_simulated._commands import obey
from deviceplugin_simulated._control import Control
from deviceplugin_simulated._life import Life

GPU = "example.com/gpu"
HOUR = timedelta(hours=1)
COMMAND = Path(sys.executable).with_name("simulated-device-plugin")
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
        status = _ctl.run([*words, "--control-socket", str(path)])
        captured = capsys.readouterr()
        return status, (captured.err if status else captured.out)

    return run


Ctl = Callable[..., tuple[int, str]]


def test_a_fault_told_live_reaches_the_kubelet_at_once(node: Node, ctl: Ctl) -> None:
    assert (0, "gpu-3  unhealthy: too hot\n") == ctl("unhealthy", "gpu-3", "--reason", "too hot")
    node.wait_for(GPU, set(IDS) - {"gpu-3"}, {"gpu-3"})
    assert (0, "gpu-3  well\n") == ctl("recover", "gpu-3")
    node.wait_for(GPU, IDS)
    assert (0, "gpu-6  unplugged\ngpu-7  unplugged\n") == ctl("unplug", "gpu-[67]")
    node.wait_for(GPU, IDS[:6], IDS[6:])
    assert 8 == ctl("plug")[1].count("well")
    node.wait_for(GPU, IDS)


def test_what_is_told_live_may_end_by_itself(node: Node, ctl: Ctl) -> None:
    assert 0 == ctl("unhealthy", "gpu-3", "--for", "1s")[0]
    node.wait_for(GPU, set(IDS) - {"gpu-3"}, {"gpu-3"})
    node.wait_for(GPU, IDS)


def test_the_list_tells_how_everything_is(node: Node, ctl: Ctl) -> None:
    del node
    ctl("slow", "gpu-1", "--by", "5s")
    ctl("fail", "gpu-1")
    assert (0, "plugin: hanging\n") == ctl("hang")
    status, text = ctl("list")
    lines = text.splitlines()
    assert (0, 9) == (status, len(lines))
    assert "gpu-1  failing: simulated fault, slow by 5 s" == lines[1]
    assert ["gpu-7  well", "plugin: hanging"] == lines[-2:]
    assert (0, "plugin: well\n") == ctl("resume")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["unplug", "gpu-9"], "request.devices: ['gpu-9'] is no device: did you mean 'gpu-7'?"),
        (["hang", "gpu-1"], "request.devices: hang happens to the plugin, not to devices"),
        (["slow", "--by", "5"], "request.by: '5' is not a duration, such as 500ms, 30s or 1m30s"),
        (["plug", "--for", "1s"], "request.for: plug does not last"),
    ],
)
def test_a_wrong_order_is_refused_with_its_reason(
    node: Node, ctl: Ctl, words: list[str], expected: str
) -> None:
    assert (1, f"simulated-device-plugin ctl: {expected}\n") == ctl(*words)
    node.wait_for(GPU, IDS)


def test_only_the_owner_can_open_the_socket(node: Node, path: Path) -> None:
    del node
    assert 0o600 == stat.S_IMODE(path.stat().st_mode)


def test_without_the_setting_there_is_no_socket(kubelet: Kubelet) -> None:
    with kubelet.running(SimulatedPlugin(SimulatedSettings(profile="8-gpus"))) as node:
        node.wait_for(GPU, IDS)
        found = {path.name for path in kubelet.simulated.plugin_dir.iterdir()}
        assert {"kubelet.sock", "simple-device-plugin.sock"} == found - {
            "kubelet_internal_checkpoint"
        }


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
        (b"nonsense", "this is no JSON"),
        (b"\xff", "this is no JSON"),
        (b"[]", ("request: [] has no keys and values; request.at: is needed; "
         "request.do: is needed")),
        (b"{}", "request.do: is needed"),
        (b'{"do": "explode"}', ("request.do: 'explode' cannot happen: known are crash, fail, hang, "
         "plug, recover, resume, slow, unhealthy, unplug")),
    ],
)  # fmt: skip
def test_nonsense_is_answered(request_: bytes, expected: str) -> None:
    assert {"error": expected} == json.loads(obey(request_, Life(), IDS, 0))


# The socket.


def test_a_socket_that_was_left_behind_is_replaced(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as old:
        old.bind(os.fspath(path))
    with Control(path, lambda request: request).listening() as serve:
        thread = threading.Thread(target=serve, args=(5,))
        thread.start()
        assert {"do": "list"} == _ctl._ask(path, {"do": "list"})
        thread.join()
    assert not path.exists()


def test_a_new_plugin_takes_the_socket_over_from_an_old_one(path: Path) -> None:
    control = Control(path, lambda request: request)
    with control.listening():
        inner = control.listening()
        inner.__enter__()
    assert path.is_socket()
    inner.__exit__(None, None, None)
    assert not path.exists()


def test_no_other_file_is_overwritten(path: Path) -> None:
    path.write_text("precious")
    with (
        pytest.raises(FileExistsError, match="is there already, and is no socket"),
        Control(path, lambda request: request).listening(),
    ):
        pass
    assert "precious" == path.read_text()


def test_a_directory_that_is_missing_is_told(path: Path) -> None:
    with (
        pytest.raises(OSError, match=r"none/ctl\.sock: No such file or directory"),
        Control(path.parent / "none/ctl.sock", lambda request: request).listening(),
    ):
        pass


# The command.


def test_the_command_needs_a_socket_that_somebody_listens_on(ctl: Ctl, path: Path) -> None:
    expected = f"simulated-device-plugin ctl: {path}: No such file or directory\n"
    assert (1, expected) == ctl("list")


def test_no_reply_is_an_error(ctl: Ctl, path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.fspath(path))
        listener.listen()

        def hang_up() -> None:
            client, _ = listener.accept()
            client.recv(1000)
            client.close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        expected = f"simulated-device-plugin ctl: {path}: the plugin gave no reply\n"
        assert (1, expected) == ctl("list")
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


@pytest.mark.parametrize("argv", [[COMMAND], [sys.executable, "-m", "deviceplugin_simulated"]])
def test_the_installed_command_talks_to_a_plugin(node: Node, path: Path, argv: list[str]) -> None:
    done = subprocess.run(
        [*argv, "ctl", "unhealthy", "gpu-0"],
        env={**os.environ, "DP_CONTROL_SOCKET": str(path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "gpu-0  unhealthy: simulated fault\n" == done.stdout
    node.wait_for(GPU, IDS[1:], IDS[:1])
