"""What pods are told where a plugin is in the way: a kubelet's words, and those are Go's."""

import os
import signal
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import grpc
import pytest

import forked_process
from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from deviceplugin_testing.simulator import Pod, StubError
from kubelets.equipped import PREFERS, Kubelet, R, reason, refusal
from patience import PATIENCE, eventually


def die_unnoticed(kubelet: Kubelet) -> Path:
    """Have a plugin die whose end nobody notices, and return where its socket was."""
    mine, broken = kubelet.plugin(name="mine.sock"), kubelet.stub(name="broken.sock")
    broken.failing["GetDevicePluginOptions"] = StubError("no")
    refusal(broken)
    mine.stop()
    kubelet.wait(lambda: not kubelet._live().connections._readers)
    assert {"a", "b"} == kubelet.healthy(R)
    return mine.socket


@contextmanager
def left_behind(path: Path) -> Iterator[None]:
    """Leave a socket at ``path`` that nobody listens on."""
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    yield


@contextmanager
def hanging_up(path: Path) -> Iterator[None]:
    """Listen on ``path`` and close every connection."""

    class HangingUp(socketserver.UnixStreamServer):
        def finish_request(self, *_: object) -> None:
            """Answer nothing."""

    with HangingUp(str(path), socketserver.BaseRequestHandler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield
        server.shutdown()
        thread.join()


DIALING = "transport: Error while dialing: dial unix {}: connect: "


@pytest.mark.parametrize(
    ("left", "told"),
    [
        (nullcontext, f"{DIALING}no such file or directory"),
        (left_behind, f"{DIALING}connection refused"),
        (
            hanging_up,
            "error reading server preface: read unix @->{}: read: connection reset by peer",
        ),
    ],
    ids=["nothing", "a socket", "one who hangs up"],
)
def test_what_a_dead_plugin_has_left_of_its_socket(
    kubelet: Kubelet, left: Callable[[Path], AbstractContextManager[None]], told: str
) -> None:
    path = die_unnoticed(kubelet)
    with left(path):
        refused = kubelet.refused()
    expected = f'desc = connection error: desc = "{told.format(path)}"'
    assert f"rpc error: code = Unavailable {expected}" == refused


HUGE = pb.AllocateResponse(
    container_responses=[pb.ContainerAllocateResponse(envs={"X": "x" * 5_000_000})]
)


class Garbage:
    """An answer that is none."""

    def SerializeToString(self) -> bytes:  # noqa: N802 - protobuf's name
        return b"\xff\xff"


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (
            HUGE,
            "ResourceExhausted desc = grpc: received message larger than max (5000018 vs. 4194304)",
        ),
        (
            Garbage(),
            (
                "Internal desc = grpc: failed to unmarshal the received message: "
                "proto: cannot parse invalid wire-format data"
            ),
        ),
    ],
    ids=["too large", "not readable"],
)
def test_an_answer_that_is_none(kubelet: Kubelet, answer: Any, told: str) -> None:
    kubelet.plugin().on_allocate = lambda _: answer
    assert f"rpc error: code = {told}" == kubelet.refused()


def test_a_plugin_that_is_killed_during_the_call(kubelet: Kubelet, tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    with (tmp_path / "log").open("wb") as log:
        plugin = forked_process.Popen(
            ["kubelets.equipped.HangingPlugin", str(kubelet.plugin_dir), str(asked)],
            env={},
            stdin=forked_process.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    kubelet.wait_for(R, {"a"})
    admitting = kubelet.admitting(Pod.of("p", main={R: 1}))
    eventually(asked.exists, "the call")  # not killed with the call unread
    os.kill(plugin.pid, signal.SIGKILL)
    plugin.wait(PATIENCE)
    # The kernel resets the connection if the plugin has not read all that it was sent.
    reset = f"read unix @->{kubelet.plugin_dir}/stub.sock: read: connection reset by peer"
    told = reason(admitting.result()).removeprefix("rpc error: code = Unavailable desc = ")
    assert told in {f"error reading from server: {why}" for why in ("EOF", reset)}


@pytest.mark.parametrize(
    ("code", "text", "told"),
    [
        (grpc.StatusCode.FAILED_PRECONDITION, "busy", "FailedPrecondition desc = busy"),
        (grpc.StatusCode.INTERNAL, "Deadline Exceeded", "Internal desc = Deadline Exceeded"),
        (
            grpc.StatusCode.UNAVAILABLE,
            "failed to connect to all addresses; last error: UNKNOWN: unix:/run/my.sock: gone",
            (
                "Unavailable desc = failed to connect to all addresses; "
                "last error: UNKNOWN: unix:/run/my.sock: gone"
            ),
        ),
    ],
)
def test_what_a_plugin_says_is_left_alone(
    kubelet: Kubelet, code: grpc.StatusCode, text: str, told: str
) -> None:
    kubelet.plugin().failing["Allocate"] = StubError(text, code)
    assert f"rpc error: code = {told}" == kubelet.refused()


@pytest.mark.parametrize(
    ("options", "failure"),
    [(None, ""), (PREFERS, "device plugin GetPreferredAllocation rpc failed with err: ")],
    ids=["without preferences", "with preferences"],
)
def test_a_plugin_that_was_hung_up_on_is_not_called(
    kubelet: Kubelet, options: pb.DevicePluginOptions | None, failure: str
) -> None:
    """A replaced plugin still lists devices of one that is gone."""
    old, new = kubelet.plugin(name="old.sock"), kubelet.plugin(name="new.sock", options=options)
    new.end_streams()
    kubelet.wait_for(R, (), {"a", "b"})
    kubelet.relist(old, ["c"])
    stopped = f"endpoint &{{{R} {new.socket}}} has been stopped"
    assert f"{failure}{stopped}" == kubelet.refused()
    assert [] == new.allocated
