"""What pods are told where a plugin is in the way: a kubelet's words, and those are Go's."""

import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

import forked_process
from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from deviceplugin_testing.simulator import Pod, StubError
from kubelets import equipped
from kubelets.equipped import Kubelet, R
from patience import PATIENCE, eventually


def refusal(kubelet: Kubelet) -> str:
    """Return why a pod that needs a device gets none."""
    outcome = kubelet.admit(Pod.of("p", main={R: 1}))
    prefix, suffix = "Allocate failed due to ", ", which is unexpected"
    assert outcome.event.startswith(prefix)
    assert outcome.event.endswith(suffix)
    return outcome.event[len(prefix) : -len(suffix)]


def die_unnoticed(kubelet: Kubelet) -> Path:
    """Have a plugin die whose end nobody notices, and return where its socket was."""
    mine, broken = kubelet.plugin(name="mine.sock"), kubelet.stub(name="broken.sock")
    broken.failing["GetDevicePluginOptions"] = StubError("no")
    equipped.refusal(broken)
    mine.stop()
    kubelet.wait(lambda: not kubelet._live().connections._readers)
    assert {"a", "b"} == kubelet.healthy(R)
    return mine.socket


def test_a_socket_that_is_missing(kubelet: Kubelet) -> None:
    path = die_unnoticed(kubelet)
    assert refusal(kubelet) == (
        'rpc error: code = Unavailable desc = connection error: desc = "transport: '
        f'Error while dialing: dial unix {path}: connect: no such file or directory"'
    )


def test_a_socket_that_nobody_listens_on(kubelet: Kubelet) -> None:
    path = die_unnoticed(kubelet)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    assert refusal(kubelet) == (
        'rpc error: code = Unavailable desc = connection error: desc = "transport: '
        f'Error while dialing: dial unix {path}: connect: connection refused"'
    )


def test_a_socket_of_somebody_who_hangs_up(kubelet: Kubelet) -> None:
    path = die_unnoticed(kubelet)
    with hanging_up(path):
        assert refusal(kubelet) == (
            'rpc error: code = Unavailable desc = connection error: desc = "error reading server '
            f'preface: read unix @->{path}: read: connection reset by peer"'
        )


@contextmanager
def hanging_up(path: Path) -> Iterator[None]:
    """Listen on ``path`` and close every connection."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            while True:
                try:
                    listener.accept()[0].close()
                except OSError:
                    return

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_an_answer_that_is_too_large(kubelet: Kubelet) -> None:
    huge = pb.ContainerAllocateResponse(envs={"X": "x" * 5_000_000})
    kubelet.plugin().on_allocate = lambda _: pb.AllocateResponse(container_responses=[huge])
    assert refusal(kubelet) == (
        "rpc error: code = ResourceExhausted desc = "
        "grpc: received message larger than max (5000018 vs. 4194304)"
    )


class Garbage:
    """An answer that is none."""

    def SerializeToString(self) -> bytes:  # noqa: N802 - protobuf's name
        return b"\xff\xff"


def test_an_answer_that_cannot_be_read(kubelet: Kubelet) -> None:
    answer: Any = Garbage()
    kubelet.plugin().on_allocate = lambda _: answer
    assert refusal(kubelet) == (
        "rpc error: code = Internal desc = grpc: failed to unmarshal the received message: "
        "proto: cannot parse invalid wire-format data"
    )


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
    admitting: list[str] = []
    thread = threading.Thread(target=lambda: admitting.append(refusal(kubelet)))
    thread.start()
    eventually(asked.exists, "the call")  # not killed with the call unread
    os.kill(plugin.pid, signal.SIGKILL)
    thread.join()
    plugin.wait(PATIENCE)
    assert ["rpc error: code = Unavailable desc = error reading from server: EOF"] == admitting


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
    assert f"rpc error: code = {told}" == refusal(kubelet)


@pytest.mark.parametrize("prefers", [False, True])
def test_a_plugin_that_was_hung_up_on_is_not_called(kubelet: Kubelet, prefers: bool) -> None:
    """A replaced plugin still lists devices of one that is gone."""
    options = pb.DevicePluginOptions(get_preferred_allocation_available=prefers)
    old, new = kubelet.plugin(name="old.sock"), kubelet.plugin(name="new.sock", options=options)
    new.end_streams()
    kubelet.wait_for(R, (), {"a", "b"})
    kubelet.relist(old, ["c"])
    stopped = f"endpoint &{{{R} {new.socket}}} has been stopped"
    failure = "device plugin GetPreferredAllocation rpc failed with err: " if prefers else ""
    assert f"{failure}{stopped}" == refusal(kubelet)
    assert [] == new.allocated
