"""Waiting until a protocol can be left for good."""

import threading
from pathlib import Path

import pytest

from deviceplugin._attribution.ownership import Claim
from deviceplugin._dra.claims.record import Record, RecordedDevice
from deviceplugin._dra.claims.records import Records
from deviceplugin.tools.drain._cli import main
from deviceplugin_testing.simulator import Pod, SimulatedKubelet, StubPlugin
from held_clock import HeldClock
from patience import PATIENCE

DRIVER = "gopher.example.com"
RESOURCE = "example.com/gopher"


class Draining:
    """The command in a thread, with a clock that the test holds."""

    def __init__(self, *argv: str) -> None:
        self.clock = HeldClock()
        self.status: int | None = None
        self._thread = threading.Thread(target=self._run, args=(argv,))
        self._thread.start()

    def _run(self, argv: tuple[str, ...]) -> None:
        self.status = main(argv, self.clock)

    def end(self) -> int | None:
        self._thread.join(PATIENCE)
        return self.status


@pytest.fixture
def claims(tmp_path: Path) -> Records:
    return Records(tmp_path / DRIVER / "claims")


def record(uid: str, *ids: str) -> Record:
    devices = [RecordedDevice(RESOURCE, one, "one", "pool", one) for one in ids]
    return Record(Claim("default", uid, uid), "boot", "prepared", devices)


def test_it_waits_for_the_last_claim_and_says_who_holds_what(
    tmp_path: Path, claims: Records, capsys: pytest.CaptureFixture[str]
) -> None:
    for one in (record("one", "gary", "gerd"), record("two", "gina")):
        claims.write(one)
    (tmp_path / DRIVER / "offered").touch()
    (tmp_path / "other.example.com").mkdir()
    (tmp_path / "file").touch()
    draining = Draining("dra", "--driver-dir", str(tmp_path))
    draining.clock.wait_for_wait()
    offers = "the driver still serves: set protocol to device-plugin, and leave the plugin running "
    offers += "until this goes, some minutes after the last claim"
    first, second = "claim default/one has gary, gerd", "claim default/two has gina"
    expected = [f"{DRIVER}: {text}" for text in (offers, first, second)]
    assert expected == capsys.readouterr().out.splitlines()
    draining.clock.skip_wait()
    draining.clock.wait_for_wait()
    assert "" == capsys.readouterr().out  # nothing has changed
    claims.remove("one")
    claims.remove("two")
    draining.clock.skip_wait()
    draining.clock.wait_for_wait()
    assert [f"{DRIVER}: {offers}"] == capsys.readouterr().out.splitlines()
    (tmp_path / DRIVER / "offered").unlink()
    draining.clock.skip_wait()
    assert 0 == draining.end()
    assert "nobody holds devices through dra\n" == capsys.readouterr().out


def test_at_the_end_of_its_time_it_fails(
    tmp_path: Path, claims: Records, capsys: pytest.CaptureFixture[str]
) -> None:
    claims.write(record("one", "gary"))
    (claims.directory / ".draft.json").touch()
    (claims.directory / "bad.json").write_text("{}")
    assert 1 == main(["dra", "--driver-dir", str(tmp_path), "--timeout", "1ms"])
    out, err = capsys.readouterr()
    bad = claims.directory / "bad.json"
    assert [
        f"{DRIVER}: {bad} is not a readable record: deviceplugin doctor says what to do",
        f"{DRIVER}: claim default/one has gary",
    ] == out.splitlines()
    assert "deviceplugin drain: not drained within 0.001 s\n" == err


def test_only_the_drivers_that_are_named_are_waited_for(tmp_path: Path, claims: Records) -> None:
    claims.write(record("one", "gary"))
    directory = ["--driver-dir", str(tmp_path)]
    assert 0 == main(["dra", *directory, "--driver", "other.example.com"])
    assert 1 == main(["dra", *directory, "--driver", DRIVER, "--timeout", "1ms"])
    assert 0 == main(["dra", "--driver-dir", str(tmp_path / "none")])


def test_a_record_that_vanishes_while_it_is_read_counts_as_released(
    tmp_path: Path, claims: Records
) -> None:
    claims.directory.mkdir(parents=True)
    (claims.directory / "one.json").symlink_to(tmp_path / "gone")
    assert 0 == main(["dra", "--driver-dir", str(tmp_path)])


def test_a_directory_that_cannot_be_read_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert 1 == main(["dra", "--driver-dir", str(tmp_path / "file")])
    assert "Not a directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["both"],
        ["dra", "--resource", RESOURCE],
        ["device-plugin"],
        ["device-plugin", "--resource", RESOURCE, "--driver", DRIVER],
        ["dra", "--interval", "1ms"],
    ],
)
def test_a_wrong_command_line_is_refused(argv: list[str]) -> None:
    assert 2 == main(argv)


# Device plugins.


def test_pods_of_a_device_plugin_are_waited_for(
    tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path_factory.getbasetemp() / "k"
    with (
        SimulatedKubelet(root) as kubelet,
        StubPlugin(kubelet.plugin_dir, RESOURCE, ["gary"]) as stub,
    ):
        stub.register()
        kubelet.wait_for(RESOURCE, {"gary"})
        argv = ["--resource", RESOURCE, "--pod-resources-socket"]
        argv = ["device-plugin", *argv, str(kubelet.pod_resources_socket)]
        assert 1 == main([*argv, "--timeout", "1ms"])
        unknown = "what pods hold is unknown: the kubelet lists no pods\n"
        assert unknown == capsys.readouterr().out
        pod, other = Pod.of("p", main={RESOURCE: 1}), Pod.of("other", main={})
        kubelet.run(pod)
        kubelet.run(other)
        draining = Draining(*argv)
        draining.clock.wait_for_wait()
        assert f"{RESOURCE}: pod default/p has gary\n" == capsys.readouterr().out
        kubelet.terminate(pod)
        draining.clock.skip_wait()
        assert 0 == draining.end()
    assert 1 == main([*argv, "--timeout", "1ms"])
    assert "what pods hold is unknown: " in capsys.readouterr().out
