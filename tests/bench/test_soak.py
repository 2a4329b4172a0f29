import sys

import pytest

import conformant
from deviceplugin_testing.tools.bench import _bare, _measure, _plan
from deviceplugin_testing.tools.bench._figures import BenchError
from deviceplugin_testing.tools.bench._plan import soak
from deviceplugin_testing.tools.bench._subject import BenchSubject, running

STARVES = """
import sys
from concurrent import futures
from deviceplugin_testing.tools.bench import _bare
_bare.ThreadPoolExecutor = lambda max_workers: futures.ThreadPoolExecutor(2)
sys.argv = ["bare", sys.argv[1]]
_bare.main()
"""
GOOD = BenchSubject(
    title="good",
    command=("tests.conformance.bad_plugins.good.Good", "{devices_dir}"),
    touch="{devices_dir}",
)


@pytest.fixture(autouse=True)
def quick_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    conformant.fork(monkeypatch)


def test_a_plugin_that_lives_through_trouble_is_looked_at_all_the_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_plan, "_MOMENT", 0.02)
    said: list[str] = []
    # By this seed the first two things are a change and an allocation, however slow all is.
    section = soak(GOOD, 1.0, 6, said.append)
    figures = {figure.name: figure for figure in section.figures}
    assert 20 == len(said) == len(figures["RSS"].values)
    assert [0] == figures["kubelet crashed"].values
    assert {"allocations, times", "changes of devices, times"} <= figures.keys()
    assert 0 < min(figures["threads"].values)


def test_streams_are_opened_and_allocations_go_on_beside_them() -> None:
    with running(GOOD) as run:
        run.wait_listed()
        figures = {f.name: f for f in _measure.allocations_under(run, 3, 8)}
    assert [8] == figures["of 8 streams more, taken"].values
    assert 3 == len(figures["Allocate of 1 device under 8 streams"].values)


def test_a_plugin_whose_workers_are_all_in_streams_is_said_to_starve(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    directory = "{devices_dir}"
    subject = BenchSubject(title="starves", command=(sys.executable, "-c", STARVES, directory))
    monkeypatch.setattr(_measure, "_FIRST_LIST", 0.5)
    monkeypatch.setattr(_measure, "_ALLOCATE", 0.5)
    with running(subject) as run:
        run.wait_listed()
        with pytest.raises(BenchError, match="under 3 streams: DEADLINE_EXCEEDED"):
            _measure.allocations_under(run, 1, 3)


def test_the_bare_program_says_how_it_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["_bare.py"])
    with pytest.raises(SystemExit, match=r"usage: _bare\.py DIRECTORY"):
        _bare.main()


def test_the_bare_program_finds_the_messages_of_the_framework() -> None:
    assert "Device" in _bare._messages().DESCRIPTOR.message_types_by_name
