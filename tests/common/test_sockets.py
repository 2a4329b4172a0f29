"""A fixed name of a socket: several plugins may want it, and the kubelet is never given it."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from queue import Queue

import pytest

from deviceplugin._kubelet import sockets
from deviceplugin._kubelet.server import is_socket_of
from deviceplugin._kubelet.sockets import OwnSockets, SocketAlias, SocketNews
from deviceplugin._platform.file_identity import file_identity
from deviceplugin._platform.file_watcher import FileWatcher
from deviceplugin._platform.unix_sockets import answers, is_ours
from deviceplugin._registration.by_kubelet_socket import KubeletSocket, RegistrarChoice
from deviceplugin._telemetry.metrics import Metrics
from deviceplugin_testing.fixture import Kubelet
from deviceplugin_testing.simulator import Pod
from held_clock import HeldClock
from patience import eventually
from scripted_plugin import RESOURCE, ScriptedPlugin

KUBELET = "kubelet.sock"


@pytest.fixture
def news(tmp_path: Path) -> Iterator[SocketNews]:
    watcher = FileWatcher(60)
    news = SocketNews(watcher, [tmp_path])
    thread = threading.Thread(target=watcher.run)
    thread.start()
    yield news
    watcher.stop()
    thread.join()


def told(heard: "Queue[str | None]") -> list[str | None]:
    """Return what has been heard until the kubelet's socket came."""
    names: dict[str | None, None] = {}
    while KUBELET not in names:
        names[heard.get(timeout=10)] = None
    return list(names)


def test_an_endpoint_hears_of_its_own_sockets_and_the_kubelets_only(
    news: SocketNews, tmp_path: Path
) -> None:
    one, other = Queue[str | None](), Queue[str | None]()
    news.listen("a.com/x", one.put)
    news.listen("a.com/x-ray", other.put)
    for name in ("a.com_x-000001.sock", "a.com_x-ray-000002.sock", "another", KUBELET):
        (tmp_path / name).touch()
    assert ["a.com_x-000001.sock", KUBELET] == told(one)
    assert ["a.com_x-ray-000002.sock", KUBELET] == told(other)


def test_several_may_want_one_name_until_they_have_another(
    news: SocketNews, tmp_path: Path
) -> None:
    one, other = Queue[str | None](), Queue[str | None]()
    for resource, heard in (("a.com/x", one), ("a.com/y", other)):
        news.listen(resource, heard.put)
        news.name(heard.put, "fixed.sock")
    news.name(one.put, "own.sock")
    for name in ("fixed.sock", "own.sock", KUBELET):
        (tmp_path / name).touch()
    assert ["own.sock", KUBELET] == told(one)
    assert ["fixed.sock", KUBELET] == told(other)


@pytest.mark.parametrize("when", ["before-we-register", "afterwards"])
@pytest.mark.parametrize("listens", [False, True])
def test_another_process_gets_5_s_to_listen_and_is_noticed_when_it_has_gone(
    news: SocketNews, tmp_path: Path, when: str, *, listens: bool
) -> None:
    clock, changed = HeldClock(), threading.Event()
    choice = RegistrarChoice([KubeletSocket(tmp_path, Metrics())])
    ours = OwnSockets("a.com/x", news, choice, changed.set, clock)
    ours.open()
    (tmp_path / "a.com_x-000001.sock").touch()
    ours.replace("a.com_x-000001.sock")
    if when == "afterwards":
        ours.registered()
    with closing(socket.socket(socket.AF_UNIX)) as theirs:
        theirs.bind(str(tmp_path / "a.com_x-000002.sock"))
        if when == "afterwards":
            eventually(lambda: ours.has_rival)
        else:
            ours.registered()
        clock.advance(4.9)
        assert (False, True) == (ours.outlived(), ours.has_rival)
        if listens:
            theirs.listen()
        clock.advance(0.2)
        assert (not listens, listens) == (ours.outlived(), ours.has_rival)
    assert (listens, False) == (ours.outlived(), ours.has_rival)
    ours.registered()
    assert not ours.has_rival, "what it leaves is known to be dead"


@pytest.mark.parametrize(("age", "may_be_later"), [(300, True), (3000, False)])
def test_a_process_with_an_older_socket_may_have_registered_after_us(
    news: SocketNews, tmp_path: Path, age: int, *, may_be_later: bool
) -> None:
    choice = RegistrarChoice([KubeletSocket(tmp_path, Metrics())])
    ours = OwnSockets("a.com/x", news, choice, lambda: None, HeldClock())
    (tmp_path / "a.com_x-000001.sock").touch()
    ours.replace("a.com_x-000001.sock")
    made = (tmp_path / "a.com_x-000001.sock").stat().st_mtime - age
    with listening(theirs := tmp_path / "a.com_x-000002.sock"):
        os.utime(theirs, (made, made))
        ours.registered()
        assert (False, may_be_later) == (ours.outlived(), ours.has_rival)
    assert may_be_later == ours.outlived()


def test_nobody_is_told_who_has_been_forgotten(news: SocketNews, tmp_path: Path) -> None:
    gone, here = Queue[str | None](), Queue[str | None]()
    news.listen("a.com/x", gone.put)
    news.name(gone.put, "mine.sock")
    news.forget("a.com/x", gone.put)
    news.listen("a.com/x", here.put)
    news.forget("a.com/x", gone.put)  # not the one that took its place
    for name in ("mine.sock", "a.com_x-000001.sock", KUBELET):
        (tmp_path / name).touch()
    assert ["a.com_x-000001.sock", KUBELET] == told(here)
    assert gone.empty()


# With a kubelet.


ONE, OTHER = "example.com/one", "example.com/other"
EVENT = "socket name not available"


class Named(ScriptedPlugin):
    socket_name = "fixed"


def one() -> ScriptedPlugin:
    return Named("one-0", "one-1", resource=ONE)


def other() -> ScriptedPlugin:
    return Named("other-0", resource=OTHER)


@pytest.fixture
def path(kubelet: Kubelet) -> Path:
    return kubelet.simulated.plugin_dir / "fixed.sock"


@contextmanager
def listening(path: Path) -> Iterator[None]:
    with closing(socket.socket(socket.AF_UNIX)) as server:
        server.bind(str(path))
        server.listen()
        yield


def leads_to(path: Path, resource: str) -> bool:
    return path.is_symlink() and is_socket_of(resource, path.readlink().name) and path.is_socket()


def events(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    found = [vars(one) for one in caplog.records if one.getMessage() == EVENT]
    return [(one["resource"], one["error"]) for one in found]


def test_a_resource_has_its_own_devices_whoever_has_the_name(kubelet: Kubelet, path: Path) -> None:
    simulated = kubelet.simulated
    with kubelet.running(one()) as node, kubelet.running(other()):
        eventually(path.is_symlink)
        for lose in (path.unlink, node.restart_kubelet) * 2:
            lose()
            simulated.wait_for(ONE, {"one-0", "one-1"})
            simulated.wait_for(OTHER, {"other-0"})
            for resource in (ONE, OTHER):
                assert is_socket_of(resource, simulated.socket_of(resource).name)
            eventually(path.is_symlink)
        pod = Pod.of("both", main={ONE: 1, OTHER: 1})
        held = simulated.run(pod).devices["main"]
        assert {"other-0"} == held[OTHER] < held[ONE] | {"other-0"}


def test_whoever_has_the_name_keeps_it_and_the_next_one_gets_it_afterwards(
    kubelet: Kubelet, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    simulated = kubelet.simulated
    with ExitStack() as later:
        with kubelet.running(one()):
            simulated.wait_for(ONE, {"one-0", "one-1"})
            eventually(lambda: leads_to(path, ONE))
            path.unlink()
            eventually(lambda: leads_to(path, ONE))
            assert 1 == simulated.registration_count(ONE), "it is given again without another one"
            later.enter_context(kubelet.running(other()))
            simulated.wait_for(OTHER, {"other-0"})
            eventually(lambda: events(caplog))
            assert leads_to(path, ONE)
            before = simulated.registration_count(OTHER)
        eventually(lambda: leads_to(path, OTHER))
        assert before == simulated.registration_count(OTHER)
        assert [(OTHER, "another plugin that is running has this name")] == events(caplog)
    assert not path.is_symlink()


def test_the_name_of_a_dead_plugin_is_taken_and_that_of_a_stranger_is_not(
    kubelet: Kubelet, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with listening(path):  # as earlier releases did, under this very name
        identity = file_identity(path)
        with kubelet.running(one()):
            kubelet.simulated.wait_for(ONE, {"one-0", "one-1"})
            eventually(lambda: events(caplog))
        assert identity == file_identity(path)
    assert not answers(path)
    with kubelet.running(one()):
        eventually(lambda: leads_to(path, ONE))


def test_a_plugin_works_without_its_name(
    kubelet: Kubelet, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.mkdir()
    with kubelet.running(one()):
        kubelet.simulated.wait_for(ONE, {"one-0", "one-1"})
        eventually(lambda: events(caplog))
        assert [(ONE, "Is a directory")] == events(caplog)
        path.rmdir()
        eventually(lambda: leads_to(path, ONE))


def test_only_the_last_that_claimed_a_name_releases_it(tmp_path: Path) -> None:
    path = tmp_path / "fixed.sock"
    first, second = SocketAlias(path, "first.sock"), SocketAlias(path, "second.sock")
    assert ["", "", ""] == [first.claim(), second.claim(), second.claim()]
    first.release()
    assert "second.sock" == str(path.readlink())
    second.release()
    assert [] == [*tmp_path.iterdir()]
    second.release()
    assert "AF_UNIX path too long" == SocketAlias(tmp_path / ("x" * 107), "a.sock").claim()


def test_a_socket_is_ours_only_if_this_process_listens_on_it(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours.sock", tmp_path / "theirs.sock"
    code = f"""
import socket
served = socket.socket(socket.AF_UNIX)
served.bind({str(theirs)!r})
served.listen()
print("listens", flush=True)
input()
"""
    words = [sys.executable, "-c", code]
    with (
        listening(ours),
        subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other,
    ):
        assert other.stdout is not None
        assert b"listens\n" == other.stdout.readline()
        assert [True, False] == [is_ours(ours), is_ours(theirs)]
        other.communicate(b"\n")
    assert [False, False] == [is_ours(ours), is_ours(tmp_path / "none.sock")]


def test_another_process_of_a_resource_is_known_by_its_socket(kubelet: Kubelet) -> None:
    with kubelet.running(ScriptedPlugin("a")) as node:
        node.wait_for(RESOURCE, {"a"})
        endpoints = node.host._endpoints
        assert set() == endpoints.shared()
        with kubelet.running(ScriptedPlugin("a")):
            eventually(lambda: endpoints.shared() == {RESOURCE}, "the other one")
        eventually(lambda: endpoints.shared() == set(), "its end")


def test_a_socket_that_is_gone_is_older_than_any_other(tmp_path: Path) -> None:
    assert sockets._time_of(tmp_path / "gone.sock") == 0.0
