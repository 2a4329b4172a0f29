"""DRA drivers in plugins_registry: what is asked of them, and which instance gets the calls."""

import pytest

from deviceplugin.proto.dra import HEALTH, V1, V1BETA1
from deviceplugin.proto.pluginregistration.pluginregistration_pb2 import PluginInfo
from deviceplugin.proto.podresources import podresources_pb2
from deviceplugin_testing.simulator import CallError, KubeletConfig, StubDriver, StubError
from deviceplugin_testing.simulator._errors import ConnectError
from deviceplugin_testing.simulator._plugin_watcher import watcher
from kubelets.equipped import Kubelet
from patience import eventually

QUIET = {"watch_interval": None, "sync_interval": None}


# As upstream's TestRegistrationHandler.
@pytest.mark.parametrize("info_timeout", [watcher.GET_INFO_TIMEOUT])
def test_a_driver_is_asked_introduced_and_told(kubelet: Kubelet) -> None:
    stub = kubelet.driver()
    assert {"x.io": [str(stub.socket)]} == kubelet.dra.drivers
    assert {str(stub.socket): "x.io"} == kubelet.watched_sockets
    assert ["GetInfo", "NotifyRegistrationStatus"] == [
        call for call in stub.calls if call != "NodeWatchResources"
    ]
    assert stub.statuses[0].plugin_registered
    assert 0 < stub.deadlines["GetInfo"] < 1.1


@pytest.mark.parametrize(
    ("services", "chosen"),
    [
        ([V1, V1BETA1, HEALTH], V1),
        ([V1BETA1, V1], V1BETA1),
        (["v9.DRAPlugin", HEALTH, V1], V1),
    ],
)
def test_the_first_service_in_the_drivers_list_that_is_known_is_used(
    kubelet: Kubelet, services: list[str], chosen: str
) -> None:
    stub = kubelet.driver(services=services)
    pod = kubelet.claiming()
    assert kubelet.run(pod).options
    assert chosen == kubelet.dra.service("x.io")
    assert [chosen] == stub.versions


@pytest.mark.parametrize(
    ("services", "why"),
    [
        ((), "empty list of supported gRPC services (aka supported versions)"),
        (
            ("1.0.0", HEALTH),
            (
                'none of services supported by the plugin (["1.0.0" "v1alpha1.DRAResourceHealth"]) '
                'are supported by the kubelet (["v1.DRAPlugin" "v1beta1.DRAPlugin"])'
            ),
        ),
    ],
)
def test_a_driver_without_a_known_service_is_refused(
    kubelet: Kubelet, services: tuple[str, ...], why: str
) -> None:
    stub = kubelet.unnoticed(services=services)
    kubelet.watch()
    assert {} == kubelet.dra.drivers
    expected = (
        "RegisterPlugin error -- plugin validation failed with err: invalid supported gRPC "
        f"versions of DRA driver plugin x.io at endpoint {stub.socket}: {why}"
    )
    assert expected == stub.statuses[0].error


@pytest.mark.parametrize("config", [KubeletConfig(version="1.33", dra=True, **QUIET)])  # type: ignore[arg-type]
def test_before_1_34_drivers_are_called_by_v1beta1_and_claims_are_not_listed(
    kubelet: Kubelet,
) -> None:
    stub = kubelet.driver()
    assert kubelet.run(kubelet.claiming()).options
    assert [V1BETA1] == stub.versions
    listed = kubelet.agent["List"](podresources_pb2.ListPodResourcesRequest()).pod_resources
    assert [] == listed[0].containers[0].dynamic_resources
    refused = kubelet.unnoticed("new.io", "new.sock", services=[V1])
    kubelet.watch()
    assert 'by the kubelet (["v1beta1.DRAPlugin"])' in refused.statuses[0].error


@pytest.mark.parametrize("config", [KubeletConfig(version="1.33", **QUIET)])  # type: ignore[arg-type]
def test_before_1_34_no_driver_is_registered_by_default(kubelet: Kubelet) -> None:
    stub = kubelet.unnoticed(services=[V1BETA1])
    kubelet.watch()
    expected = f"no handler registered for plugin type: DRAPlugin at socket {stub.socket}"
    assert f"RegisterPlugin error -- {expected}" == stub.statuses[0].error
    assert kubelet.run(kubelet.claiming()).options == {"main": None}
    assert [] == stub.prepared


def test_before_1_32_there_is_no_gate_for_claims() -> None:
    with pytest.raises(ValueError, match=r"Kubernetes 1\.31 has no gate DynamicResourceAllocation"):
        KubeletConfig(version="1.31", dra=True)


@pytest.mark.parametrize("info_timeout", [watcher.GET_INFO_TIMEOUT])
def test_a_driver_whose_info_is_late_is_tried_again(kubelet: Kubelet) -> None:
    stub = kubelet.unnoticed(services=[V1])
    stub.hold("GetInfo")
    kubelet.watch()
    assert {} == kubelet.dra.drivers
    assert [] == stub.statuses


def test_a_driver_that_does_not_take_the_notice_is_not_registered(kubelet: Kubelet) -> None:
    stub = kubelet.unnoticed(services=[V1])
    stub.failing["NotifyRegistrationStatus"] = StubError("no")
    kubelet.watch()
    assert {} == kubelet.dra.drivers
    stub.failing.clear()
    kubelet.clock.advance(1)
    kubelet.watch()
    assert "x.io" in kubelet.dra.drivers


# As upstream's TestConnectionHandling.
def test_the_newest_connected_instance_gets_the_calls_or_else_the_last(kubelet: Kubelet) -> None:
    old, new = kubelet.driver(socket="old.sock"), kubelet.driver(socket="new.sock")
    assert {"x.io": [str(old.socket), str(new.socket)]} == kubelet.dra.drivers
    kubelet.run(kubelet.claiming("one"))
    assert ([], [["one"]]) == (old.prepared, new.prepared)
    new.kill()
    kubelet.wait(lambda: kubelet.dra.connected == {"x.io": [str(old.socket)]})
    kubelet.run(kubelet.claiming("two"))
    assert [["two"]] == old.prepared
    old.kill()
    kubelet.wait(lambda: not kubelet.dra.connected)
    outcome = kubelet.run(kubelet.claiming())
    assert outcome
    assert "rpc error: code = Unavailable" in outcome.event
    old.start()
    kubelet.watch()
    kubelet.reconnect()


def test_only_the_instance_whose_socket_is_deleted_is_dropped(kubelet: Kubelet) -> None:
    old, new = kubelet.driver(socket="old.sock"), kubelet.driver(socket="new.sock")
    old.stop()
    kubelet.watch()
    assert {"x.io": [str(new.socket)]} == kubelet.dra.drivers
    new.stop()
    kubelet.watch()
    assert {} == kubelet.dra.drivers
    with pytest.raises(CallError, match=r"^DRA driver x\.io is not registered$"):
        kubelet.dra.prepare("x.io")
    with pytest.raises(LookupError, match=r"x\.io is not registered"):
        kubelet.dra.service("x.io")


def test_an_endpoint_apart_from_the_registration_is_used(kubelet: Kubelet) -> None:
    served = StubDriver(kubelet.root / "plugins", "x.io", socket="dra.sock")  # without CDI files
    introduced = StubDriver(kubelet.registry_dir, "x.io")
    introduced.info.endpoint = str(served.socket)
    with served, introduced:
        kubelet.watch()
        kubelet.wait(lambda: kubelet.dra.connected)
        pod = kubelet.claiming()
        assert {"main": None} == kubelet.run(pod).options
        kubelet.terminate(pod)
        assert ([["p"]], [["p"]], []) == (
            served.prepared,
            served.unprepared,
            introduced.prepared,
        )


def test_an_endpoint_that_cannot_be_dialled_or_is_of_another_is_refused(kubelet: Kubelet) -> None:
    stub = kubelet.driver()
    for endpoint, why in (
        ("/run/%zz", "create gRPC connection to DRA driver x.io plugin"),
        (
            str(stub.socket),
            f"endpoint {stub.socket} already registered for DRA driver plugin x.io",
        ),
    ):
        other = kubelet.unnoticed(socket=f"{len(endpoint)}.sock")
        other.info.endpoint = endpoint
        kubelet.watch()
        assert why in other.statuses[0].error
    assert {"x.io": [str(stub.socket)]} == kubelet.dra.drivers


def test_drivers_register_again_by_themselves_after_a_restart(kubelet: Kubelet) -> None:
    stub = kubelet.driver()
    kubelet.restart()
    kubelet.reconnect()
    assert 2 == len(stub.statuses)
    kubelet.stop()
    assert ({}, {}, {}) == (kubelet.dra.drivers, kubelet.dra.connected, kubelet.dra.wipes)
    eventually(lambda: stub.streams == 0)


def test_a_driver_that_registers_while_the_kubelet_stops_is_refused(kubelet: Kubelet) -> None:
    drivers = kubelet._live().dra.drivers
    drivers.close()
    with pytest.raises(ConnectError, match="the kubelet has stopped"):
        drivers.register(PluginInfo(name="x.io", supported_versions=[V1]), "/run/dra.sock")
