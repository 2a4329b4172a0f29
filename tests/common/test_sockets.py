import threading
from collections.abc import Iterator
from pathlib import Path
from queue import Queue

import pytest

from deviceplugin._kubelet.sockets import SocketNews
from deviceplugin._platform.file_watcher import FileWatcher

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


def test_a_socket_with_a_name_of_its_own_is_heard_of_until_there_is_another(
    news: SocketNews, tmp_path: Path
) -> None:
    heard = Queue[str | None]()
    news.listen("a.com/x", heard.put)
    news.name(heard.put, "old.sock")
    news.name(heard.put, "new.sock")
    for name in ("old.sock", "new.sock", KUBELET):
        (tmp_path / name).touch()
    assert ["new.sock", KUBELET] == told(heard)


def test_several_may_want_one_name(news: SocketNews, tmp_path: Path) -> None:
    one, other = Queue[str | None](), Queue[str | None]()
    for resource, heard in (("a.com/x", one), ("a.com/y", other)):
        news.listen(resource, heard.put)
        news.name(heard.put, "fixed.sock")
    news.name(one.put, "own.sock")
    for name in ("fixed.sock", KUBELET):
        (tmp_path / name).touch()
    assert [KUBELET] == told(one)
    assert ["fixed.sock", KUBELET] == told(other)


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
