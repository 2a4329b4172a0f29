"""Threads that are used again."""

from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Barrier, Event, Thread, current_thread

import pytest
from typing_extensions import override

from deviceplugin._app.threads import ThreadGroup, join
from deviceplugin._platform.threads import Task, Threads
from patience import PATIENCE, eventually


def ran(threads: Threads, name: str) -> Thread:
    """Return the thread in which a task called ``name`` ran."""
    who: SimpleQueue[tuple[Thread, str]] = SimpleQueue()
    threads.run(name, lambda: who.put((current_thread(), current_thread().name)))
    thread, named = who.get(timeout=PATIENCE)
    assert (name, True) == (named, thread.daemon)
    eventually(lambda: threads._free or not thread.is_alive(), "the thread to be free")
    return thread


def test_a_thread_is_used_again_by_the_name_of_its_task() -> None:
    threads = Threads(PATIENCE)
    assert ran(threads, "one") is ran(threads, "two")


def test_a_task_never_waits_for_another() -> None:
    threads, together = Threads(PATIENCE), Barrier(21)

    def meet() -> None:
        together.wait(PATIENCE)

    for _ in range(20):
        threads.run("meet", meet)
    meet()


def test_a_thread_without_a_task_ends() -> None:
    threads = Threads(idle=0.01)
    thread = ran(threads, "one")
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert [] == threads._free
    assert ran(threads, "two") is not thread


def test_a_task_for_a_thread_that_was_about_to_end_is_done() -> None:
    threads, done = Threads(), Event()

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
    def no_thread(_thread: Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Thread, "start", no_thread)
    with pytest.raises(RuntimeError, match="can't start"):
        Threads().run("one", lambda: None)


# Actors.


def fails_with(error: BaseException) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    ("run", "text"),
    [
        (fails_with(RuntimeError("no more")), "^no more"),
        (fails_with(SystemExit(0)), "file-watcher failed: SystemExit"),
        (fails_with(KeyboardInterrupt()), "file-watcher failed: KeyboardInterrupt"),
        (lambda: None, "file-watcher ended by itself"),
    ],
)
def test_the_first_actor_to_end_stops_the_others_and_is_an_error(
    run: Callable[[], None], text: str, caplog: pytest.LogCaptureFixture
) -> None:
    stopped = Event()
    group = ThreadGroup()
    group.add("waits", stopped.wait, stopped.set)  # type: ignore[arg-type]
    group.add("file-watcher", run, lambda: None)
    with pytest.raises(RuntimeError, match=text):
        group.run(5)
    assert stopped.is_set()
    assert ["fatal error, stopping"] == [r.getMessage() for r in caplog.records]


def test_a_thread_beside_the_actors_may_end_at_any_time_and_ends_all_if_it_fails() -> None:
    stopped = Event()
    group = ThreadGroup()
    group.add("waits", stopped.wait, stopped.set)  # type: ignore[arg-type]
    done = group.thread("done", lambda: None)
    done.start()
    done.join()
    assert not stopped.is_set()
    for error in (SystemExit(0), ValueError("later")):
        thread = group.thread("fails", fails_with(error))
        thread.start()
        thread.join()
    with pytest.raises(RuntimeError, match="fails failed: SystemExit: 0"):
        group.run(5)
    assert stopped.is_set()


def test_of_many_threads_that_do_not_stop_most_are_only_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    release = Event()
    threads = [Thread(target=release.wait, name=f"t{number:02}") for number in range(13)]
    for thread in threads:
        thread.start()
    join(threads, 0)
    release.set()
    join(threads, 10)
    # Threads of other tests may still end, and say so.
    records = [record for record in caplog.records if record.name == join.__module__]
    named = [("part not stopped in time", f"t{number:02}") for number in range(10)]
    *first, last = [(one.getMessage(), vars(one)) for one in records]
    assert named == [(text, fields["part"]) for text, fields in first]
    assert ("more parts not stopped in time", 3) == (last[0], last[1]["count"])


def test_an_actor_that_does_not_stop_is_left() -> None:
    release = Event()
    group = ThreadGroup()
    group.add("stubborn", release.wait, lambda: None)  # type: ignore[arg-type]
    group.stop()
    group.run(0.01)
    release.set()
