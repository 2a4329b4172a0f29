"""A process that may open few files only."""

import errno
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from typing_extensions import override

from deviceplugin._attribution.podresources import PodResources
from deviceplugin._platform import open_files
from deviceplugin._platform.waiting import Waiter
from deviceplugin._registration.by_kubelet_socket import KubeletSocket as Registrar
from deviceplugin._telemetry.metrics import Metrics
from deviceplugin.errors import KubeletUnavailableError
from deviceplugin_testing.conformance._subject import free_port
from deviceplugin_testing.fixture import Kubelet
from http_server import ask, serving
from patience import PATIENCE, eventually
from scripted_plugin import RESOURCE, Unserved

PLUGIN = """
import json, resource, sys
import deviceplugin as dp

class Plugin(dp.Plugin):
    resource = "example.com/thing"

    def discover(self):
        return [dp.Device("a")]

resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[2])))
dp.main(Plugin, argv=sys.argv[3:])
"""


@contextmanager
def running(
    kubelet: Kubelet, limit: int, port: int, soft: int = 0
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a plugin in a process of its own that may have ``limit`` files open."""
    words = {
        "plugin-dir": kubelet.simulated.plugin_dir,
        "pod-resources-socket": "/nowhere/kubelet.sock",  # not waited for
        "http-address": f"127.0.0.1:{port}",
    }
    flags = [f"--{name}={value}" for name, value in words.items()]
    process = subprocess.Popen(
        [sys.executable, "-c", PLUGIN, str(soft or limit), str(limit), *flags]
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(PATIENCE)


def told(port: int, path: str) -> tuple[int, str]:
    """Return what a page says, with its status; 0 without an answer."""
    try:
        return ask(port, path)[:2]
    except OSError:
        return 0, ""


def opened(process: "subprocess.Popen[bytes]") -> int:
    return len(os.listdir(f"/proc/{process.pid}/fd"))  # noqa: PTH208


@pytest.mark.slow
def test_clients_that_say_nothing_take_no_open_file_that_the_kubelet_needs(
    kubelet: Kubelet,
) -> None:
    port = free_port()
    with running(kubelet, 40, port) as process, ExitStack() as stack:
        kubelet.simulated.wait_for(RESOURCE, {"a"}, timeout=PATIENCE)
        for _ in range(32):
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            assert 200 == told(port, "/healthz")[0]  # behind all of them
            assert opened(process) <= 40 - open_files.NEEDED
        for _ in range(3):
            kubelet.simulated.restart()
            kubelet.simulated.wait_for(RESOURCE, {"a"}, timeout=PATIENCE)
        assert process.poll() is None
    assert 0 == process.returncode


def test_a_plugin_with_too_few_open_files_says_so_and_does_not_abort(kubelet: Kubelet) -> None:
    port = free_port()
    with running(kubelet, 13, port) as process:
        reason = "fewer than 8 of 13 open files are left"
        eventually(lambda: reason in told(port, "/readyz")[1], reason)
        assert 200 == told(port, "/healthz")[0]
        assert process.poll() is None
    assert 0 == process.returncode


@pytest.mark.slow
def test_a_plugin_may_open_as_many_files_as_the_hard_limit_allows_and_so_may_the_tools(
    kubelet: Kubelet,
) -> None:
    with running(kubelet, 64, free_port(), soft=13) as process:
        kubelet.simulated.wait_for(RESOURCE, {"a"}, timeout=PATIENCE)
        assert (64, 64) == resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
    program = (
        "import resource, sys; from deviceplugin.__main__ import main; "
        "resource.setrlimit(resource.RLIMIT_NOFILE, (256, 2048)); sys.exit(main(sys.argv[1:]))"
    )
    words = [sys.executable, "-c", program, "doctor", "--only=open-files", "--verbose"]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    assert "a process may have 2048" in done.stdout


def test_a_limit_that_may_not_be_raised_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_kind: int, _limits: tuple[int, int]) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    monkeypatch.setattr(resource, "setrlimit", refuse)
    open_files.raise_limit()
    assert before == resource.getrlimit(resource.RLIMIT_NOFILE)


def test_a_client_that_cannot_be_taken_is_not_tried_again_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[float] = []

    class Full(socket.socket):
        @override
        def accept(self) -> tuple[socket.socket, object]:
            tried.append(time.monotonic())
            raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr("deviceplugin._http.connections._PAUSE", 0.05)
    with (
        serving(of=lambda listening: Full(fileno=listening.detach())) as server,
        socket.create_connection(("127.0.0.1", server.port)),
    ):
        eventually(lambda: len(tried) > 3, "some attempts")
    assert tried[3] - tried[0] >= 3 * 0.05


def test_nothing_is_called_with_too_few_open_files(
    kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_files, "spare", lambda: 7)
    said = "cannot be called: fewer than 8 of "
    pods = PodResources(kubelet.simulated.pod_resources_socket, lambda _method, _code: None)
    with pytest.raises(KubeletUnavailableError, match=said):
        pods.list()
    registrar = Registrar(kubelet.simulated.plugin_dir, Metrics())
    with pytest.raises(KubeletUnavailableError, match=said):
        registrar._call(registrar.identity(), Unserved("a.sock"), Waiter())


@pytest.mark.parametrize("counts", [True, False], ids=["by-size", "before-linux-6.2"])
def test_what_is_left_is_the_limit_less_what_is_open(
    counts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not counts:
        old = SimpleNamespace(stat=lambda _: SimpleNamespace(st_size=0), listdir=os.listdir)
        monkeypatch.setattr(open_files, "os", old)
    opened = len(os.listdir("/proc/self/fd")) - 1  # noqa: PTH208
    monkeypatch.setattr(resource, "getrlimit", lambda _: (opened + 5, 4096))
    assert 5 == open_files.spare()
    limit = opened + 5
    assert f"fewer than 8 of {limit} open files are left: raise the limit" == (
        open_files.shortage()
    )
    with Path("/dev/null").open():
        assert 4 == open_files.spare()
    monkeypatch.setattr(resource, "getrlimit", lambda _: (opened - 5, 4096))
    assert 0 == open_files.spare()


def test_without_a_limit_there_is_enough_and_none_where_none_is_left_to_look_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    infinite = resource.RLIM_INFINITY
    with monkeypatch.context() as patch:
        patch.setattr(resource, "getrlimit", lambda _: (infinite, infinite))
        assert "" == open_files.shortage()

    def fail(_path: str) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(open_files, "os", SimpleNamespace(stat=fail))
    assert 0 == open_files.spare()
