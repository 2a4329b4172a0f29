"""Threads that are used again."""

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

import pytest
from typing_extensions import override

from deviceplugin._platform.threads import Task, Threads
from patience import PATIENCE, eventually


def ran(threads: Threads, name: str) -> threading.Thread:
    """Return the thread in which a task called ``name`` ran."""
    who: SimpleQueue[tuple[threading.Thread, str]] = SimpleQueue()

    def task() -> None:
        thread = threading.current_thread()
        who.put((thread, thread.name))

    threads.run(name, task)
    thread, named = who.get(timeout=PATIENCE)
    assert (name, True) == (named, thread.daemon)
    eventually(lambda: threads._free or not thread.is_alive(), "the thread to be free")
    return thread


def test_a_thread_is_used_again_by_the_name_of_its_task() -> None:
    threads = Threads(PATIENCE)
    assert ran(threads, "one") is ran(threads, "two")


def test_a_task_never_waits_for_another() -> None:
    threads, go_on = Threads(PATIENCE), threading.Event()
    begun = [threading.Event() for _ in range(20)]

    def hang(event: threading.Event) -> Callable[[], None]:
        def task() -> None:
            event.set()
            go_on.wait(PATIENCE)

        return task

    for event in begun:
        threads.run("hang", hang(event))
    assert all(event.wait(PATIENCE) for event in begun)
    go_on.set()


def test_a_thread_without_a_task_ends() -> None:
    threads = Threads(idle=0.01)
    thread = ran(threads, "one")
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert [] == threads._free
    assert ran(threads, "two") is not thread


def test_a_task_for_a_thread_that_was_about_to_end_is_done() -> None:
    threads, done = Threads(), threading.Event()

    class Chosen(SimpleQueue[Task]):
        @override
        def get(self, block: bool = True, timeout: float | None = None) -> Task:
            assert block
            if timeout is not None:
                raise Empty
            return done.set

    task = threads._next(Chosen())
    assert task is not None
    task()
    assert done.is_set()


def test_a_thread_that_cannot_be_had_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_thread)
    with pytest.raises(RuntimeError, match="can't start"):
        Threads().run("one", lambda: None)
