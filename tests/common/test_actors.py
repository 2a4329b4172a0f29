from threading import Event, Thread

import pytest

from deviceplugin._app.threads import ThreadGroup, join


def test_the_first_actor_to_fail_stops_the_others_and_its_error_surfaces() -> None:
    stopped = Event()
    group = ThreadGroup()

    def fail() -> None:
        raise RuntimeError("no more")

    group.add("waits", stopped.wait, stopped.set)  # type: ignore[arg-type]
    group.add("fails", fail, lambda: None)
    with pytest.raises(RuntimeError, match="no more"):
        group.run(5)
    assert stopped.is_set()


@pytest.mark.parametrize("error", [SystemExit(0), KeyboardInterrupt(), GeneratorExit()])
def test_an_actor_never_ends_the_program_as_if_all_were_well(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    group = ThreadGroup()

    def fail() -> None:
        raise error

    group.add("file-watcher", fail, lambda: None)
    with pytest.raises(RuntimeError, match=f"watcher failed: {type(error).__name__}") as raised:
        group.run(5)
    assert error is raised.value.__cause__
    assert ["fatal error, stopping"] == [r.getMessage() for r in caplog.records]


def test_an_actor_that_ends_unasked_is_an_error() -> None:
    stopped = Event()
    group = ThreadGroup()
    group.add("waits", stopped.wait, stopped.set)  # type: ignore[arg-type]
    group.add("file-watcher", lambda: None, lambda: None)
    with pytest.raises(RuntimeError, match="watcher ended by itself"):
        group.run(5)
    assert stopped.is_set()


def test_a_thread_beside_the_actors_may_end_at_any_time_and_ends_all_if_it_fails() -> None:
    stopped = Event()
    group = ThreadGroup()

    def fail() -> None:
        raise SystemExit(0)

    group.add("waits", stopped.wait, stopped.set)  # type: ignore[arg-type]
    done = group.thread("done", lambda: None)
    done.start()
    done.join()
    assert not stopped.is_set()
    group.thread("fails", fail).start()
    with pytest.raises(RuntimeError, match="fails failed: SystemExit: 0"):
        group.run(5)
    assert stopped.is_set()


def test_of_many_threads_that_do_not_stop_most_are_only_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    release = Event()
    threads = [Thread(target=release.wait) for _ in range(13)]
    for thread in threads:
        thread.start()
    join(threads, 0)
    release.set()
    join(threads, 10)
    # Threads of other tests may still end, and say so.
    records = [record for record in caplog.records if record.name == join.__module__]
    messages = [record.getMessage() for record in records]
    assert [*["part not stopped in time"] * 10, "more parts not stopped in time"] == messages
    assert 3 == records[-1].count  # type: ignore[attr-defined]


def test_an_actor_that_does_not_stop_is_named_and_left(caplog: pytest.LogCaptureFixture) -> None:
    release = Event()
    group = ThreadGroup()
    group.add("stubborn", release.wait, lambda: None)  # type: ignore[arg-type]
    group.stop()
    group.run(0.01)
    release.set()
    assert [("part not stopped in time", "stubborn")] == [
        (record.getMessage(), record.part)  # type: ignore[attr-defined]
        for record in caplog.records
    ]
