"""Two and more processes of one plugin, as while a pod is replaced with ``maxSurge``."""

import signal
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Self

import grpc
import pytest

from deviceplugin_testing.fixture._node import PLUGIN_POD
from deviceplugin_testing.simulator import Behaviour, KubeletConfig, SimulatedKubelet
from deviceplugin_testing.simulator._plugin_watcher import watcher
from overlap import Served, always, running
from patience import PATIENCE, eventually

RESOURCE = "example.com/gopher"
ALL = frozenset({"gary", "gerd"})
TRACKS_SOCKETS = replace(Behaviour.v1_36(), stale_stream_disconnects_successor=False)
"""A kubelet that knows a plugin by its socket, as Kubernetes 1.37 and newer do."""
SHARED = f"{RESOURCE}: another process serves it too; the kubelet uses the one that registered last"
EVENT = "another process serves the resource"
STOP = signal.SIGTERM, signal.SIGKILL


class Overlap:
    def __init__(self, root: Path, behaviour: Behaviour) -> None:
        self._stack = ExitStack()
        patch = self._stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(watcher, "GET_INFO_TIMEOUT", PATIENCE)  # or a slow machine makes it back off
        self._root = root
        (root / "gophers").mkdir()
        for name in ALL:
            (root / "gophers" / name).touch()
        config = KubeletConfig(watch_interval=0.05)
        self.kubelet = SimulatedKubelet(
            root / "k", config=config, behaviour=behaviour, dial_timeout=PATIENCE
        )

    def gives(self, device: str) -> bool:
        with suppress(grpc.RpcError, LookupError):
            return bool(self.kubelet.allocate(RESOURCE, [device]))
        return False

    def __enter__(self) -> Self:
        self._stack.enter_context(self.kubelet)
        self.kubelet.run(PLUGIN_POD)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start(self, *arguments: str) -> Served:
        """Start one more process, and wait until it has registered."""
        before = self.registrations
        found = self._stack.enter_context(
            running(
                self.kubelet.plugin_dir,
                f"--directory={self._root / 'gophers'}",
                f"--registry-dir={self.kubelet.registry_dir}",
                f"--pod-resources-socket={self.kubelet.pod_resources_socket}",
                *arguments,
            )
        )
        eventually(lambda: found.ready, lambda: f"{found.get('/readyz')} {found.events()}")
        if not arguments:
            assert before < self.registrations
        return found

    @property
    def registrations(self) -> int:
        return self.kubelet.registration_count(RESOURCE)

    def healthy(self) -> frozenset[str]:
        return self.kubelet.healthy(RESOURCE)

    def await_devices(self, expected: frozenset[str] = ALL) -> None:
        eventually(lambda: expected == self.healthy(), lambda: f"devices; {self.healthy()}")

    def add(self, gopher: str) -> None:
        (self._root / "gophers" / gopher).touch()


@pytest.fixture
def behaviour() -> Behaviour:
    return TRACKS_SOCKETS


@pytest.fixture
def overlap(root: Path, behaviour: Behaviour) -> Iterator[Overlap]:
    with Overlap(root, behaviour) as found:
        yield found


def said_once(process: Served) -> None:
    eventually(lambda: process.get("/readyz") == (200, f"ok\n{SHARED}\n"), "the remark")
    assert 1 == process.events().count(EVENT)


@pytest.mark.slow
@pytest.mark.parametrize("how", STOP)
def test_the_newer_process_has_the_resource_and_the_older_gets_it_back(
    overlap: Overlap, how: int
) -> None:
    older = overlap.start()
    with always(overlap.healthy, ALL) as odd:
        newer = overlap.start()
        said_once(older)
        assert (2, True) == (overlap.registrations, newer.ready)
    assert [] == odd
    newer.end(how)
    overlap.await_devices()
    eventually(lambda: older.get("/readyz") == (200, "ok\n"), "the end of the remark")
    assert 4 >= overlap.registrations, "there is no fight"
    overlap.kubelet.allocate(RESOURCE, ["gary"])


@pytest.mark.slow
@pytest.mark.parametrize("how", STOP)
def test_nothing_is_lost_when_the_older_process_ends(overlap: Overlap, how: int) -> None:
    older = overlap.start()
    newer = overlap.start()
    said_once(older)
    with always(lambda: ALL <= overlap.healthy(), expected=True) as odd:
        older.end(how)
        overlap.add("gina")  # the kubelet hears of it from the newer one
        overlap.await_devices(ALL | {"gina"})
    assert [] == odd
    eventually(lambda: newer.ready, "the end of its registration")
    assert 3 >= overlap.registrations, "once more, as the older one is not much older"


@pytest.mark.slow
def test_of_three_processes_each_gets_the_resource_back_from_the_next(overlap: Overlap) -> None:
    processes = [overlap.start() for _ in range(3)]
    for process in processes[:2]:
        said_once(process)
    for left in (3, 4):
        processes.pop().end(signal.SIGKILL)
        eventually(lambda left=left: overlap.registrations > left, "a registration")  # type: ignore[misc]
        overlap.await_devices()
        overlap.kubelet.allocate(RESOURCE, ["gary"])
    eventually(lambda: processes[0].get("/readyz") == (200, "ok\n"))
    assert 8 >= overlap.registrations, "there is no fight"


@pytest.mark.slow
def test_a_newer_process_that_hangs_is_replaced_once_it_is_killed(overlap: Overlap) -> None:
    older, newer = overlap.start(), overlap.start()
    said_once(older)
    newer.process.send_signal(signal.SIGSTOP)
    newer.end(signal.SIGKILL)  # as the kubelet does, because of its liveness probe
    overlap.await_devices()
    eventually(lambda: older.get("/readyz")[1] == "ok\n")
    overlap.kubelet.allocate(RESOURCE, ["gary"])


@pytest.mark.slow
def test_a_newer_process_is_replaced_that_was_killed_before_the_older_one_asked_it(
    overlap: Overlap,
) -> None:
    older = overlap.start()
    older.process.send_signal(signal.SIGSTOP)
    overlap.start().end(signal.SIGKILL)  # it leaves a socket that has never answered the older one
    eventually(lambda: not overlap.healthy())
    older.process.send_signal(signal.SIGCONT)
    overlap.await_devices()
    eventually(lambda: older.get("/readyz") == (200, "ok\n"))


@pytest.mark.slow
@pytest.mark.parametrize("behaviour", [TRACKS_SOCKETS, Behaviour.v1_36(), Behaviour.fixed()])
@pytest.mark.parametrize("how", STOP)
def test_whatever_happens_to_two_processes_the_devices_come_back_and_nobody_fights(
    overlap: Overlap, how: int
) -> None:
    older, newer = overlap.start(), overlap.start()
    overlap.kubelet.restart()
    overlap.await_devices()
    eventually(lambda: older.ready and newer.ready)
    newer.end(how)
    overlap.await_devices()
    eventually(lambda: older.get("/readyz") == (200, "ok\n"))
    newest = overlap.start()
    older.end(how)
    overlap.add("gina")
    overlap.await_devices(ALL | {"gina"})
    eventually(lambda: newest.get("/readyz") == (200, "ok\n"))
    assert 16 >= overlap.registrations, "there is no fight"
    eventually(lambda: overlap.gives("gina"))  # 1.36 may just be losing the new stream with the old


@pytest.mark.slow
@pytest.mark.parametrize("how", STOP)
def test_two_processes_that_the_plugin_watcher_finds_do_not_take_the_socket_from_each_other(
    overlap: Overlap, how: int
) -> None:
    pair = [overlap.start("--registration=watcher") for _ in range(2)]

    def waiting() -> list[Served]:
        return [one for one in pair if SHARED in one.get("/readyz")[1]]

    (other,) = eventually(lambda: found if len(found := waiting()) == 1 else [], "one to wait")
    overlap.await_devices()
    eventually(lambda: all(one.ready for one in pair))
    (serving,) = (one for one in pair if one is not other)
    serving.end(how)
    eventually(lambda: other.get("/readyz") == (200, "ok\n"))
    overlap.await_devices()
