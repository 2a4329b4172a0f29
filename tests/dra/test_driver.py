"""A driver on its sockets, as the kubelet, a reboot and other processes meet it."""

import fcntl
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

import pytest

import deviceplugin as dp
from deviceplugin._attribution.ownership import Claim
from deviceplugin._dra import driver as driver_module
from deviceplugin._dra.serving import server as server_module
from deviceplugin._dra.serving.instances import FileLock, Turn, instance, remove_stale_sockets
from deviceplugin._dra.serving.server import DriverSettings
from deviceplugin._dra.slices.attributes import Describer
from deviceplugin._platform import open_files
from deviceplugin.proto.dra import HEALTH, V1, V1BETA1, dra_v1_pb2, dra_v1beta1_pb2
from deviceplugin.proto.dra.dra_health_v1alpha1_pb2 import HEALTHY, UNHEALTHY
from drivers.driver_node import DRIVER, NODE, POOL, RESOURCE, cdi_name, gopher, result
from drivers.running_driver import Registered, RunningDriver, connected, register
from full_disk import full_disk
from patience import eventually

Trouble = Callable[[DriverSettings], AbstractContextManager[None]]


@pytest.fixture
def running() -> Iterator[RunningDriver]:
    with TemporaryDirectory(prefix="dra-") as path:
        found = RunningDriver(Path(path))
        yield found
        found.close()


@pytest.mark.parametrize("messages", [dra_v1_pb2, dra_v1beta1_pb2])
def test_the_kubelet_finds_the_driver_and_each_claim_of_a_call_has_its_own_answer(
    running: RunningDriver, messages: ModuleType
) -> None:
    driver = running.start()
    eventually(lambda: driver.problem() == "waiting for the kubelet")
    found = running.register()
    versions = [V1, V1BETA1, HEALTH]
    assert Registered("DRAPlugin", DRIVER, running.service_socket, versions) == found
    assert "" == driver.problem()
    good = running.node.allocate("good", result("gary", shareID="s-1"), result("gerd"))
    bad = running.node.allocate("bad", result("nobody"))
    with connected(found.endpoint, messages) as kubelet:
        for _ in range(2):
            answers = kubelet.prepare(bad, good)
            assert f"unknown device: device nobody of pool {POOL}" == answers[bad.uid].error
            assert [
                (["one"], POOL, "gary", [cdi_name(good)]),
                (["one"], POOL, "gerd", []),
            ] == [
                (list(one.request_names), one.pool_name, one.device_name, list(one.cdi_device_ids))
                for one in answers[good.uid].devices
            ]
            if messages is dra_v1_pb2:
                shares = [one.share_id for one in answers[good.uid].devices]
                assert ["s-1", ""] == shares
        running.node.plugin.errors["released"] = dp.AllocationError("busy")
        answers = kubelet.unprepare(good, bad, Claim("default", "unknown", "unknown"))
        assert {good.uid: "busy", bad.uid: "", "unknown": ""} == {
            uid: one.error for uid, one in answers.items()
        }
        running.node.plugin.errors.clear()
        assert "" == kubelet.unprepare(good)[good.uid].error


def test_claims_are_counted(running: RunningDriver) -> None:
    def values() -> list[float]:
        metrics = running.node.metrics
        calls = [("prepare", "OK"), ("prepare", "FAILED"), ("unprepare", "OK")]
        counted = [metrics.claim_calls.labels(DRIVER, *call).value for call in calls]
        return [metrics.claims_prepared.labels(DRIVER).value, *counted]

    driver = running.start()
    good, bad = (running.node.allocate(name, result(name)) for name in ("gary", "nobody"))
    with connected(running.register().endpoint) as kubelet:
        kubelet.prepare(good, bad)
        assert [1, 1, 1, 0] == values()
        page = running.node.metrics.expose("")[1].decode()
        labels = f'driver="{DRIVER}",method="prepare"'
        assert f"deviceplugin_claim_call_duration_seconds_count{{{labels}}} 2.0\n" in page
        assert ["claim prepared", "claim not prepared"] == [
            one.event for one in reversed(running.node.metrics.events.latest())
        ]
        running.stop(driver)
    running.start()
    assert [1, 0, 0, 0] == values()
    with connected(running.register().endpoint) as kubelet:
        kubelet.unprepare(good)
    assert [0, 0, 0, 1] == values()


def test_a_failure_is_logged_once_however_often_the_kubelet_tries(
    running: RunningDriver, caplog: pytest.LogCaptureFixture
) -> None:
    running.start()
    claim = running.node.allocate("one", result("nobody"))
    with connected(running.register().endpoint) as kubelet:
        for _ in range(3):
            kubelet.prepare(claim)
    assert ["claim not prepared"] == [
        one.message for one in caplog.records if one.name.endswith("_dra.serving.service")
    ]


def test_a_cdi_file_that_is_removed_is_there_again_once_it_can_be_written(
    running: RunningDriver, caplog: pytest.LogCaptureFixture
) -> None:
    def said(words: str) -> set[str]:
        return {vars(one)["file"] for one in caplog.records if words in one.message}

    running.node.describe = Describer(DRIVER).describe
    running.start()
    claim = running.node.allocate("one", result("gary"))
    with connected(running.register().endpoint) as kubelet:
        kubelet.prepare(claim)
    (path,) = running.settings.cdi_dir.iterdir()
    (mounted,) = running.settings.metadata_dir.iterdir()
    mounted.unlink()
    eventually(mounted.exists, "the metadata")
    with full_disk():
        path.unlink()
        eventually(lambda: any("cannot be written" in one.message for one in caplog.records))
    eventually(path.exists, "the file")
    running.settings.cdi_dir.rename(running.settings.driver_dir / "moved")
    eventually(path.exists, "the directory")
    eventually(lambda: {path.name, mounted.name} == said("restored"), "the message")


def test_the_driver_serves_again_when_its_sockets_are_removed(
    running: RunningDriver, caplog: pytest.LogCaptureFixture
) -> None:
    driver = running.start()
    for path in (running.registry_socket, running.service_socket):
        running.register()
        assert "" == driver.problem()
        path.unlink()
        eventually(lambda: driver.problem() == "waiting for the kubelet")
    running.register()
    assert 2 == [one.message for one in caplog.records].count(
        "sockets of the driver removed, serving again"
    )


def test_a_second_process_serves_too_and_knows_what_the_first_has_done(
    running: RunningDriver, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    first = running.start()
    running.register()
    claim, other = (running.node.allocate(name, result(name)) for name in ("gary", "gerd"))
    with connected(running.service_socket) as kubelet:
        kubelet.prepare(other)
        running.node.discovered = False
        second = running.start()
        why = "another process serves; it is not known yet what pods hold"
        eventually(lambda: second.problem() == why)
        running.node.discovered = True
        kubelet.prepare(claim)
        kubelet.unprepare(other)
    own = replace(running.settings, instance=2)
    register(own.registry_socket)
    eventually(lambda: (first.leads, second.leads) == (True, False))
    rival = running.node.allocate("rival", result("gary"))
    with connected(own.service_socket) as kubelet:
        assert "held by claim default/gary" in kubelet.prepare(rival)[rival.uid].error
    assert {claim.uid} == second.records().keys()
    assert {(RESOURCE, "gary"): claim} == running.node.ownership.claims()
    running.stop(first)
    eventually(lambda: second.leads)
    assert "" == second.problem()

    def said(event: str) -> int:
        return [one.message for one in caplog.records].count(event)

    eventually(lambda: said("driver leads") == 1, "what it says after it has begun to lead")
    assert 1 == said("another process of the driver leads")


def test_a_process_that_cannot_lead_serves_and_tries_again(
    running: RunningDriver, caplog: pytest.LogCaptureFixture
) -> None:
    first = running.start()
    running.register()
    second = running.start()
    register(replace(running.settings, instance=2).registry_socket)
    with connected(running.service_socket) as kubelet:
        kubelet.prepare(running.node.allocate("gary", result("gary")))
    running.settings.claims_dir.rename(running.settings.directory / "away")
    running.settings.claims_dir.touch()
    running.stop(first)
    eventually(lambda: "driver cannot lead" in [one.message for one in caplog.records])
    assert ("", False) == (second.problem(), second.leads)
    running.settings.claims_dir.unlink()
    eventually(lambda: second.leads)


def test_sockets_of_a_killed_process_are_removed_and_those_of_others_stay(
    running: RunningDriver,
) -> None:
    settings = running.settings
    settings.directory.mkdir()
    with instance(settings) as own:
        found = [replace(settings, instance=number) for number in (2, 3)]
        for one in found:
            one.registry_socket.touch()
        with instance(settings) as other:
            assert (1, 2) == (own.instance, other.instance)
            remove_stale_sockets(own)
            assert [True, False] == [one.registry_socket.exists() for one in found]
    with ExitStack() as all_of_them:
        for _ in range(8):
            all_of_them.enter_context(instance(settings))
        with pytest.raises(OSError, match="8 processes serve this driver"), instance(settings):
            pass


def test_only_one_process_at_a_time_changes_claims(tmp_path: Path) -> None:
    seen: list[str] = []
    news: list[str] = []

    def failing() -> None:
        raise OSError("no disk")

    ours, theirs, broken = (
        Turn(
            tmp_path / "lock",
            news=lambda: bool(news),
            refresh=refresh,
            leave=lambda: seen.append("left"),
        )
        for refresh in (lambda: seen.append("refreshed"), lambda: None, failing)
    )
    with pytest.raises(OSError, match="no disk"), broken.hold(lambda: 1.0):
        pass
    with ours.hold(lambda: 1.0), ours.hold(lambda: 1.0):
        with pytest.raises(dp.AllocationError, match="another process"), theirs.hold(lambda: 0.0):
            pass
        theirs.close()
        with pytest.raises(dp.AllocationError, match="another process"), theirs.hold(lambda: 9.0):
            pass
    with ours.hold(lambda: 1.0):  # of which no time of a file need tell the others
        pass
    with theirs.hold(lambda: 1.0):
        pass
    with ours.hold(lambda: 1.0):
        pass
    assert ["refreshed", "left", "left", "left", "refreshed", "left"] == seen
    news.append("a file was removed")
    with ours.hold(lambda: 1.0):
        pass
    assert ["refreshed", "left"] == seen[6:]
    with ExitStack() as busy:
        busy.enter_context(ours.hold(lambda: 1.0))

        def left() -> float:
            busy.close()
            return 1.0

        late = Turn(tmp_path / "lock", news=lambda: False, refresh=lambda: None, leave=lambda: None)
        with late.hold(left):
            assert not ours.is_ours(), "it waited for its turn"


def test_a_driver_leaves_its_sockets_and_the_slices_to_an_older_release(
    running: RunningDriver,
) -> None:
    settings = running.settings
    settings.directory.mkdir()
    older = FileLock(settings.directory / "lock")
    assert older.take()
    with socket.socket(socket.AF_UNIX) as served:
        served.bind(str(settings.service_socket))
        served.listen()
        driver = running.start()
        sockets = replace(settings, instance=2)
        eventually(lambda: "" == driver.problem() or sockets.registry_socket.exists())
        register(sockets.registry_socket)
        assert ("", False) == (driver.problem(), driver.leads)
        assert not settings.registry_socket.exists()
    older.release()
    eventually(lambda: driver.leads, "the lead")
    eventually(lambda: not settings.service_socket.exists(), "the removal of the dead socket")


def test_a_claim_is_released_without_a_call_of_the_kubelet(running: RunningDriver) -> None:
    driver = running.start()
    claim = running.node.allocate("gary", result("gary"))
    running.register()
    with connected(running.service_socket) as kubelet:
        kubelet.prepare(claim)
    assert {claim.uid} == driver.records().keys()
    driver.release(claim, lambda: 10.0)
    assert ({}, {}) == (running.node.ownership.claims(), dict(driver.records()))


@contextmanager
def removed(path: Path) -> Iterator[None]:
    path.rmdir()
    yield
    path.mkdir()


@contextmanager
def replaced(place: object, name: str, value: object) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(place, name, value)
        yield


def no_locks(_descriptor: int, _operation: int) -> None:
    raise OSError(37, "No locks available")


@pytest.mark.parametrize(
    ("trouble", "problem"),
    [
        pytest.param(
            lambda settings: removed(settings.registry_dir),
            "{0.registry_dir}: no such directory",
            id="the directory of registrations is not mounted",
        ),
        pytest.param(
            lambda settings: removed(settings.driver_dir),
            "{0.directory}: No such file or directory",
            id="the directory of drivers is not mounted, and not created",
        ),
        pytest.param(
            lambda _: replaced(open_files, "shortage", lambda: "too few open files are left"),
            "{0.directory}: cannot serve in it: too few open files are left",
            id="there are too few open files",
        ),
        pytest.param(
            lambda _: replaced(fcntl, "flock", no_locks),
            "[Errno 37] No locks available",
            id="no lock can be taken",
        ),
    ],
)
def test_what_keeps_a_driver_from_serving_is_named_and_waited_for(
    running: RunningDriver, trouble: Trouble, problem: str
) -> None:
    with trouble(running.settings):
        driver = running.start()
        eventually(lambda: driver.problem() == problem.format(running.settings))
    running.register()
    assert "" == driver.problem()


def test_a_directory_that_vanishes_while_sockets_are_made_is_named(
    running: RunningDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        registry = running.settings.registry_dir
        patch.setattr(server_module, "try_socket", lambda _: shutil.rmtree(registry))
        patch.setattr(server_module, "check_exists", lambda _: registry.mkdir(exist_ok=True))
        driver = running.start()
        eventually(lambda: driver.problem().endswith("cannot listen"))


def test_a_driver_that_the_kubelet_refuses_says_so(running: RunningDriver) -> None:
    def registered() -> dict[str, float]:
        found = running.node.metrics.driver_registered.read()
        return {labels["driver"]: level.value for labels, level in found}

    driver = running.start()
    assert {DRIVER: 0} == registered()
    register(running.registry_socket, "no such version")
    assert ("refused by the kubelet: no such version", {DRIVER: 0}) == (
        driver.problem(),
        registered(),
    )
    running.register()
    assert ("", {DRIVER: 1}) == (driver.problem(), registered())
    running.stop(driver)
    assert {} == registered()


def test_records_that_cannot_be_read_keep_the_driver_from_serving(running: RunningDriver) -> None:
    running.settings.directory.mkdir()
    driver = running.start()
    running.register()
    running.stop(driver)
    running.settings.claims_dir.write_text("a file")
    with pytest.raises(NotADirectoryError):
        running.start()
    assert not running.registry_socket.exists()


def test_an_error_of_the_framework_itself_is_logged_and_tried_again(
    running: RunningDriver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(driver_module, "_AFTER_FAILURE", 0.01)
    with monkeypatch.context() as patch:
        patch.setattr(driver_module, "Server", None)
        driver = running.start()
        eventually(lambda: "TypeError" in driver.problem())
    running.register()
    assert "" == driver.problem()
    (record,) = [one for one in caplog.records if one.message == "driver cannot serve"]
    assert record.exc_info


def test_paths_that_are_too_long_for_sockets_are_named(running: RunningDriver) -> None:
    running.settings = DriverSettings(
        name=DRIVER,
        node=NODE,
        driver_dir=Path("/tmp") / ("x" * 100),
        registry_dir=Path("/tmp"),
        cdi_dir=Path("/tmp"),
    )
    with pytest.raises(dp.ConfigError, match=r"driver-dir '/tmp/x+/gopher\.example\.com' is too"):
        running.start()


def test_the_boot_is_the_kernels(running: RunningDriver) -> None:
    running.node.boot_id = ""
    running.start()
    claim = running.node.allocate("one", result("gary"))
    with connected(running.register().endpoint) as kubelet:
        kubelet.prepare(claim)
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert {boot} == {one.boot for one in running.started[0][0].records().values()}


def test_pods_see_at_once_that_a_device_fails_and_that_its_driver_stops(
    running: RunningDriver,
) -> None:
    running.node.plugin.needs_process = True
    driver = running.start()
    running.register()
    with connected(running.service_socket) as kubelet:
        stream = kubelet.watch()
        first = next(stream)
        assert {HEALTHY} == {one.health for one in first.devices}
        began = time.monotonic()
        running.node.resource.publish([gopher("gary", health=dp.Health.unhealthy("hot"))])
        driver.changed()
        assert "hot" in [one.message for one in next(stream).devices]
        assert time.monotonic() - began < 9, "without a push, it is sent again after 10 s"
        stopping = threading.Thread(target=running.stop, args=(driver,))
        stopping.start()
        last = next(stream)
        stopping.join()
    assert {("its plugin has stopped", UNHEALTHY)} == {
        (one.message, one.health) for one in last.devices
    }


def test_a_record_that_was_set_aside_is_replaced_when_its_claim_is_prepared_again(
    running: RunningDriver,
) -> None:
    node = running.node
    claim = node.allocate("one", result("gary"))
    node.claims_dir.mkdir()
    (node.claims_dir / f"{claim.uid}.json").write_text("{")
    node.restart()
    assert [f"{claim.uid}.json.bad"] == node.recorded()
    node.plugin.errors = {"allocate": dp.AllocationError("no")}
    node.refusal(claim)
    assert [f"{claim.uid}.json.bad"] == node.recorded(), "a container may still use what it had"
    node.plugin.errors = {}
    node.prepare(claim)
    assert [f"{claim.uid}.json"] == node.recorded()
