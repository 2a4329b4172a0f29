"""Measures a small plugin of this file's own; no times are asserted, a machine can be busy."""

import os
from pathlib import Path

import pytest

import conformant
from deviceplugin_testing.tools.bench import _measure, _plan, _subject
from deviceplugin_testing.tools.bench._figures import BenchError, Figure
from deviceplugin_testing.tools.bench._many import ManyPlugin, ManySettings
from deviceplugin_testing.tools.bench._subject import BenchSubject, running

PLUGINS = "tests.conformance.bad_plugins"


@pytest.fixture(autouse=True)
def quick_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    conformant.fork(monkeypatch)


def forked(name: str) -> BenchSubject:
    return BenchSubject(title=name, command=[f"{PLUGINS}.{name}", "{devices_dir}"])


def by_name(figures: list[Figure]) -> dict[str, Figure]:
    return {figure.name: figure for figure in figures}


def test_each_start_is_measured_on_a_kubelet_of_its_own() -> None:
    figures = by_name(_measure.starts(forked("good.Good"), 2))
    assert {
        "start to registered",
        "CPU until registered",
        "start to first list",
        "RSS at first list",
        "threads at first list",
        "SIGTERM to exit",
    } == set(figures)
    assert {2} == {len(figure.values) for figure in figures.values()}
    assert all(value > 0 for figure in figures.values() for value in figure.values)


def test_a_running_plugin_is_measured_in_every_way() -> None:
    with running(_plan.many(8, 2)) as run:
        run.wait_listed()
        figures = by_name(
            [
                *_measure.idle(run, 0.1),
                *_measure.size(run),
                *_measure.message(run),
                *_measure.allocations(run, 5, 1),
                *_measure.allocations(run, 5, 8),
                *_measure.changes(run, 2),
            ]
        )
    assert [8, 8] == figures["devices per list"].values
    assert [8 * 47, 8 * 47] == figures["bytes per list, without topology"].values
    assert 5 == len(figures["Allocate of 1 device"].values)
    assert 5 == len(figures["Allocate of 8 devices"].values)
    assert 2 == len(figures["device change to list"].values)
    assert figures["PSS idle"].values[0] <= figures["RSS idle"].values[0]
    assert 0 <= min(value for figure in figures.values() for value in figure.values)


def test_restarts_of_the_kubelet_leave_nothing_behind_and_what_cannot_be_shown_is_left_out() -> (
    None
):
    with running(forked("good.Good")) as run:
        run.wait_listed()
        assert [[], []] == [_measure.allocations(run, 1, 9), _measure.changes(run, 1)]
        figures = by_name(_measure.restarts(run, 3, seed=1, settle=0.3))
    assert 3 == len(figures["kubelet listening to registered"].values)
    assert figures["sockets gained by 3 restarts"].values[0] <= 0
    assert [0] == figures["socket files gained by 3 restarts"].values


def test_a_plugin_that_leaks_with_each_restart_of_the_kubelet_is_caught() -> None:
    with running(forked("footprint.Leaks")) as run:
        run.wait_listed()
        figures = by_name(_measure.restarts(run, 4, seed=1, settle=0.3))
    # What follows the last restart can come after the count.
    assert figures["sockets gained by 4 restarts"].values[0] >= 2
    assert figures["descriptors gained by 4 restarts"].values[0] >= 2
    assert figures["threads gained by 4 restarts"].values[0] >= 2


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo no such device >&2; exit 3", "its last words:\n  no such device"),
        ("exit 1", "it wrote nothing"),
    ],
)
def test_a_plugin_that_dies_is_reported_with_its_last_words(script: str, words: str) -> None:
    dying = BenchSubject(title="dying", command=["sh", "-c", script])
    with running(dying) as run, pytest.raises(BenchError) as raised:
        run.wait_registered()
    assert f"the plugin ended before registration of 1; {words}" == str(raised.value)


def test_a_plugin_that_never_registers_is_given_up() -> None:
    idle = BenchSubject(title="idle", command=["sleep", "60"])
    with running(idle) as run, pytest.raises(BenchError, match=r"no registration within 0\.1 s"):
        run.wait(lambda: run.kubelet.registered, "registration", timeout=0.1)


def test_a_plugin_finds_its_directories_in_its_arguments_and_its_environment(
    tmp_path: Path,
) -> None:
    report = tmp_path / "report"
    script = 'echo "$1 $2 $DP_PLUGIN_DIR $DP_HTTP_ADDRESS $DP_STATE_FILE"; ls "$2"'
    words = ["sh", "-c", f"({script}) > {report}", "sh", "{plugin_dir}", "{devices_dir}"]
    with running(BenchSubject(title="x", command=words, files=2)) as run:
        with pytest.raises(BenchError, match="ended"):
            run.wait_registered()
        root = run.kubelet.root
    plugin_dir, devices_dir = f"{root}/device-plugins", f"{root}/devices"
    found = f"{plugin_dir} {devices_dir} {plugin_dir} off {root}/state\ndev0\ndev1\n"
    assert found == report.read_text()
    assert not root.exists()


def test_what_a_plugin_has_started_is_killed_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_subject, "_STOP_TIMEOUT", 0.1)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    stubborn = ["sh", "-c", "trap '' TERM; sleep 600 > \"$0\" & wait", str(pipe)]
    with running(BenchSubject(title="stubborn", command=stubborn)) as run, pipe.open("rb") as child:
        assert run.stop() >= 0.1, "it is killed then, with what it has started"
        assert b"" == child.read(), "the end of the pipe is the end of the child"


def test_the_end_of_a_plugin_is_noticed_at_once(tmp_path: Path) -> None:
    # Looks that are further apart each time would see it after 31.5 ms, and then after 63.5 ms.
    ready = tmp_path / "ready"
    program = "trap 'sleep 0.035; exit' TERM; touch \"$0\"; while :; do sleep 0.01; done"

    def stop() -> float:
        ready.unlink(missing_ok=True)
        command = ["sh", "-c", program, str(ready)]
        with running(BenchSubject(title="slow to stop", command=command)) as run:
            while not ready.exists():
                os.sched_yield()
            return run.stop()

    assert any(stop() < 0.06 for _ in range(20))  # a machine can be busy


@pytest.mark.parametrize("keep", [False, True])
def test_the_plugin_with_many_devices_has_as_many_as_it_is_told(
    tmp_path: Path, *, keep: bool
) -> None:
    plugin = ManyPlugin(ManySettings(devices=3, resources=2, directory=tmp_path, keep=keep))
    devices = list(plugin.discover())
    assert 6 == len({device.id for device in devices})
    assert {34} == {len(device.id) for device in devices}
    assert ["bench.example/many-000"] * 3 == [device.resource for device in devices[:3]]
    assert all(device.health for device in devices)
    (tmp_path / "file").touch()
    ill = [device for device in plugin.discover() if not device.health]
    assert [devices[0].id, devices[3].id] == [device.id for device in ill]
