from threading import Event

import pytest

from deviceplugin._group import Group


def test_the_first_actor_to_fail_stops_the_others_and_its_error_surfaces() -> None:
    stopped = Event()
    group = Group()

    def fail() -> None:
        raise RuntimeError("no more")

    group.add("waits", stopped.wait, stopped.set)  # type: ignore[arg-type]
    group.add("fails", fail, lambda: None)
    with pytest.raises(RuntimeError, match="no more"):
        group.run(5)
    assert stopped.is_set()


def test_an_actor_that_does_not_stop_is_named_and_left(caplog: pytest.LogCaptureFixture) -> None:
    release = Event()
    group = Group()
    group.add("stubborn", release.wait, lambda: None)  # type: ignore[arg-type]
    group.stop()
    group.run(0.01)
    release.set()
    assert [("not stopped in time", "stubborn")] == [
        (record.getMessage(), record.part)  # type: ignore[attr-defined]
        for record in caplog.records
    ]
