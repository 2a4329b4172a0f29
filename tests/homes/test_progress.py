"""What the end to end suite says while it waits."""

import pytest

from homes.cluster.node import why_no_cdi
from homes.cluster.progress import LONG, Progress


class Clock:
    """Goes on by a second each time it is read."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
def progress(lines: list[str]) -> Progress:
    made = Progress(lines.append, Clock())
    made.begin("a case")
    return made


def test_a_long_wait_is_said_once_and_again_if_the_reason_changes(
    progress: Progress, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("homes.cluster.progress.PAUSE", 0.01)
    notes = iter([""] * int(LONG + 2) + ["no image"] * 2)

    def is_there() -> bool:
        note = next(notes, None)
        progress.note(note or "")
        return note is None

    progress.wait(is_there, "a pod", 30)
    assert ["a case: waiting for a pod", "a case: waiting for a pod (no image)"] == lines


def test_the_end_of_a_case_says_its_longest_wait(progress: Progress, lines: list[str]) -> None:
    progress.wait(lambda: True, "a short thing", 1)
    answers = iter([False, True])
    progress.wait(lambda: next(answers), "a long thing", 5)
    progress.end()
    (line,) = lines
    assert line.endswith("s waiting for a long thing")


def test_what_never_comes_fails_with_the_reason(progress: Progress) -> None:
    def is_there() -> bool:
        progress.note("ErrImagePull: no such image")
        return False

    with pytest.raises(AssertionError, match=r"waited 0 s for a pod") as failure:
        progress.wait(is_there, "a pod", 0)
    assert ["ErrImagePull: no such image"] == failure.value.__notes__


@pytest.mark.parametrize(
    ("runtime", "why"),
    [
        ("containerd://2.1.9", ""),
        ("containerd://v2.0.0-rc.1", ""),
        ("cri-o://1.28.0", ""),
        (
            "containerd://1.7.24",
            "containerd://1.7.24 has no CDI of its own: containerd 2.0 or newer has",
        ),
        ("docker://28.0", "it is unknown whether the runtime docker://28.0 has CDI"),
        ("", "it is unknown whether the runtime (none) has CDI"),
    ],
)
def test_a_runtime_has_cdi_from_the_version_that_has_it_by_default(runtime: str, why: str) -> None:
    assert why == why_no_cdi(runtime)
