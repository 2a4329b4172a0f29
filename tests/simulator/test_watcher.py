"""The plugin watcher on plugins_registry."""

import os
from typing import Any

import pytest

from deviceplugin.proto.pluginregistration.pluginregistration_pb2 import PluginInfo
from deviceplugin_testing.simulator import KubeletConfig, StubError, StubPlugin
from deviceplugin_testing.simulator._monitor import Monitor
from deviceplugin_testing.simulator._plugin_watcher import watcher
from held_clock import HeldClock
from kubelets.equipped import Kubelet, R


def complaint(stub: StubPlugin) -> str:
    assert not stub.statuses[-1].plugin_registered
    return stub.statuses[-1].error


# As upstream's TestPluginRegistration, TestNewManagerImplStartProbeMode, Test_ASW, Test_DSW,
# Test_Run_Positive_RegisterThenUnregister and TestMetricCollection.
def test_a_socket_that_appears_is_registered_and_one_that_is_deleted_is_not(
    kubelet: Kubelet,
) -> None:
    stub = kubelet.watched()
    kubelet.watch()
    assert stub.statuses[0].plugin_registered
    kubelet.wait_for(R, {"a", "b"})
    assert {str(stub.socket): R} == kubelet.watched_sockets
    assert 0 == kubelet.registration_count(R)
    stub.socket.unlink()
    kubelet.watch()
    kubelet.wait_for(R, (), {"a", "b"})
    kubelet.watch()
    assert {} == kubelet.watched_sockets


@pytest.mark.parametrize("info_timeout", [watcher.GET_INFO_TIMEOUT])
def test_options_have_no_deadline_and_come_before_the_notification(kubelet: Kubelet) -> None:
    stub = kubelet.watched()
    kubelet.watch()
    order = [call for call in stub.calls if call != "ListAndWatch"]
    assert ["GetInfo", "GetDevicePluginOptions", "NotifyRegistrationStatus"] == order
    assert stub.deadlines["GetDevicePluginOptions"] > 1e6
    assert 0 < stub.deadlines["GetInfo"] < 1.1
    assert 1 < stub.deadlines["NotifyRegistrationStatus"] < 5.1


# As upstream's TestPluginManager.
@pytest.mark.parametrize("name", ["one/two/stub.sock", "a bü.sock"])
def test_sockets_are_found_in_folders_or_moved_into_place_whatever_their_names(
    kubelet: Kubelet, name: str
) -> None:
    place = kubelet.registry_dir / name
    place.parent.mkdir(parents=True, exist_ok=True)
    kubelet.watch()
    stub = kubelet.watched(".hidden.sock")
    kubelet.watch()
    assert [] == stub.calls
    stub.socket.rename(place)
    kubelet.watch()
    assert [True] == [status.plugin_registered for status in stub.statuses]


# As upstream's TestPluginRegistrationAtKubeletStart.
def test_sockets_that_are_there_at_the_start_are_found(kubelet: Kubelet) -> None:
    stub = kubelet.watched()
    kubelet.watch()
    kubelet.restart()
    kubelet.watch()
    kubelet.wait_for(R, {"a", "b"})
    assert stub.socket.exists()


def test_other_files_are_ignored(kubelet: Kubelet) -> None:
    (kubelet.registry_dir / "folder").mkdir()
    kubelet.watch()
    (kubelet.registry_dir / "folder").rmdir()
    (kubelet.registry_dir / "file").touch()
    (kubelet.registry_dir / "gone").touch()
    (kubelet.registry_dir / "gone").unlink()
    kubelet.watch()
    assert {} == kubelet.watched_sockets


def test_a_socket_that_is_moved_away_stays_registered_and_again_when_moved_back(
    kubelet: Kubelet,
) -> None:
    stub = kubelet.watched()
    kubelet.watch()
    kubelet.wait_for(R, {"a", "b"})
    away = kubelet.root / "away.sock"
    stub.socket.rename(away)
    kubelet.watch()
    assert {R} == kubelet.registered
    away.rename(stub.socket)
    kubelet.watch()
    kubelet.watch()
    assert stub.statuses[1].plugin_registered


# As upstream's Test_Run_Positive_ReRegister and TestPluginReRegistration.
def test_a_lost_stream_is_healed_by_a_new_socket_at_the_second_look(kubelet: Kubelet) -> None:
    first = kubelet.watched()
    kubelet.watch()
    kubelet.wait_for(R, {"a", "b"})
    first.end_streams()
    kubelet.wait_for(R, (), {"a", "b"})
    kubelet.watch()
    assert set() == kubelet.registered
    first.stop()
    second = kubelet.watched(devices=["c"])
    kubelet.watch()
    assert [] == second.calls
    kubelet.watch()
    kubelet.wait_for(R, {"c"})


# As upstream's TestDevicePluginReRegistrationProbeMode.
def test_the_latest_socket_has_the_resource_and_loses_it_with_an_older_one(
    kubelet: Kubelet,
) -> None:
    older = kubelet.watched("older.sock")
    kubelet.watch()
    kubelet.wait_for(R, {"a", "b"})
    newer = kubelet.watched("newer.sock", devices="c")
    kubelet.watch()
    kubelet.wait_for(R, {"c"})
    older.socket.unlink()
    kubelet.watch()
    kubelet.wait_for(R, (), {"c"})
    newer.wait(lambda: newer.streams == 0)


# As upstream's TestOperationExecutor.
def test_there_is_one_attempt_for_a_socket_at_a_time(kubelet: Kubelet) -> None:
    stub = kubelet.watched()
    stub.hold("GetInfo")
    for _ in range(3):
        kubelet.clock.advance(10)
        kubelet.watch(settle=False)
    stub.release()
    kubelet.wait_for(R, {"a", "b"})
    assert 1 == stub.calls.count("GetInfo")


def test_the_endpoint_may_be_another_socket(kubelet: Kubelet) -> None:
    service = kubelet.stub(devices=["s"], name="service.sock")
    registering = kubelet.watched()
    registering.info.endpoint = str(service.socket)
    kubelet.watch()
    kubelet.wait_for(R, {"s"})
    assert ["GetInfo", "NotifyRegistrationStatus"] == registering.calls


@pytest.mark.parametrize("dial_timeout", [0.3])
@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("type", "CSI", "no handler registered for plugin type: CSI at socket {socket}"),
        (
            "supported_versions",
            ["v1alpha", "v2"],
            (
                "plugin validation failed with err: manager version, v1beta1, is not among plugin "
                "supported versions [v1alpha v2]"
            ),
        ),
        (
            "name",
            "nodomain",
            (
                "plugin validation failed with err: invalid name of device plugin socket: "
                'the ResourceName "nodomain" is invalid'
            ),
        ),
        (
            "endpoint",
            "stub.sock",  # which is relative
            (
                "plugin registration failed with err: "
                "failed to dial device plugin: context deadline exceeded"
            ),
        ),
    ],
)
def test_what_is_wrong_is_told(kubelet: Kubelet, field: str, value: Any, expected: str) -> None:
    stub = kubelet.watched()
    stub.info.ClearField(field)
    stub.info.MergeFrom(PluginInfo(**{field: value}))
    kubelet.watch()
    text = expected.format(socket=stub.socket)
    assert f"RegisterPlugin error -- {text}" == complaint(stub)
    assert {str(stub.socket): ""} == kubelet.watched_sockets


def test_failures_are_tried_again_with_growing_gaps(kubelet: Kubelet) -> None:
    stub = kubelet.watched()
    stub.info.type = "Odd"
    gaps: list[int] = []
    seconds = statuses = 0
    while len(gaps) < 5:
        kubelet.watch()
        if len(stub.statuses) > statuses:
            statuses = len(stub.statuses)
            gaps.append(seconds)
            seconds = 0
        kubelet.clock.advance(1)
        seconds += 1
    assert [0, 1, 1, 2, 4] == gaps


def test_a_plugin_that_cannot_be_connected_is_tried_again_at_each_look(kubelet: Kubelet) -> None:
    stub = kubelet.watched()
    stub.failing["GetDevicePluginOptions"] = StubError("no")
    expected = (
        "RegisterPlugin error -- plugin registration failed with err: "
        "failed to get device plugin options: rpc error: code = Internal desc = no"
    )
    for number in range(1, 6):  # the clock stands still
        kubelet.watch()
        assert number == len(stub.statuses)
        assert expected == complaint(stub)
    stub.failing.clear()
    kubelet.watch()
    kubelet.wait_for(R, {"a", "b"})


def test_a_plugin_that_cannot_even_be_told_is_tried_again_later(kubelet: Kubelet) -> None:
    stub = kubelet.watched()
    stub.failing["GetDevicePluginOptions"] = StubError("no")
    stub.failing["NotifyRegistrationStatus"] = StubError("not listening")
    kubelet.watch()
    stub.failing.clear()
    kubelet.watch()
    assert {str(stub.socket): ""} == kubelet.watched_sockets
    kubelet.clock.advance(1)
    kubelet.watch()
    kubelet.wait_for(R, {"a", "b"})


@pytest.mark.parametrize("dial_timeout", [1.0])
def test_a_dead_socket_is_left_alone_and_tried_again(kubelet: Kubelet) -> None:
    stub = kubelet.watched()
    kept = kubelet.registry_dir / "kept.sock"
    os.link(stub.socket, kept)
    stub.stop()
    kubelet.watch()
    assert "" == kubelet.watched_sockets[str(kept)]
    assert kept.exists()
    again = kubelet.watched("again.sock")
    again.socket.replace(kept)
    kubelet.clock.advance(1)
    kubelet.watch()
    assert R == kubelet.watched_sockets[str(kept)]


def test_a_plugin_that_rejects_its_registration_is_disconnected(kubelet: Kubelet) -> None:
    stub = kubelet.watched()
    stub.failing["NotifyRegistrationStatus"] = StubError("no")
    kubelet.watch()
    kubelet.wait(lambda: not kubelet._live().connections._readers)
    stub.wait(lambda: stub.streams == 0)
    assert {str(stub.socket): ""} == kubelet.watched_sockets
    stub.failing.clear()
    kubelet.clock.advance(1)
    kubelet.watch()
    kubelet.wait(lambda: kubelet.registered)


def test_a_plugin_that_hangs_does_not_hold_up_the_others(kubelet: Kubelet) -> None:
    hanging = kubelet.watched("1.sock")
    hanging.hold("GetDevicePluginOptions")
    kubelet.watched("2.sock", "x.io/other")
    kubelet.watch(settle=False)
    kubelet.wait_for("x.io/other", {"a", "b"})
    kubelet.stop()


@pytest.mark.parametrize("info_timeout", [None])
def test_a_kubelet_that_stops_does_not_wait_for_a_plugin_that_hangs(kubelet: Kubelet) -> None:
    hanging = kubelet.watched()
    hanging.hold("GetInfo")
    kubelet.watch(settle=False)
    hanging.wait(lambda: "GetInfo" in hanging.calls)
    kubelet.stop()
    assert ["GetInfo"] == hanging.calls


@pytest.fixture
def held(kubelet: Kubelet) -> HeldClock:
    """The clock by which ``kubelet``, which is restarted, waits."""
    kubelet.stop()
    clock = HeldClock()
    kubelet._host.changed = Monitor(clock)
    kubelet.start()
    return clock


@pytest.mark.parametrize("config", [KubeletConfig(sync_interval=None)])
def test_the_kubelet_looks_by_itself_every_second(kubelet: Kubelet, held: HeldClock) -> None:
    for resource in ("x.io/one", "x.io/two"):
        kubelet.watched(resource.replace("/", "-"), resource)
        assert 1.0 == held.skip_wait()
        kubelet.wait_for(resource, {"a", "b"})
