import math
import socket
from collections.abc import Callable
from pathlib import Path
from typing import cast

import grpc
import pytest

from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from deviceplugin_testing.simulator import StubError, StubPlugin
from deviceplugin_testing.simulator._control_plane.rules.names import is_extended_resource
from deviceplugin_testing.simulator._device_manager.plugin_client import DialError, PluginClient
from deviceplugin_testing.simulator._errors import ConnectError
from deviceplugin_testing.simulator._wire import dialled_path, go_quote, socket_path
from kubelets.equipped import PREFERS, Kubelet, R, refusal, why
from patience import PATIENCE


# As upstream's TestNewEndpoint.
def test_a_registered_plugin_is_watched(kubelet: Kubelet) -> None:
    plugin = kubelet.plugin(devices={"a": "Healthy", "b": "Unhealthy"}, options=PREFERS)
    kubelet.wait_for(R, {"a"}, {"b"})
    assert {R} == kubelet.registered
    assert {"a": "Healthy", "b": "Unhealthy"} == kubelet.devices(R)
    assert (2, 1) == (kubelet.capacity(R), kubelet.allocatable(R))
    assert kubelet.options(R).get_preferred_allocation_available
    assert (1, 1) == (kubelet.registration_count(R), kubelet.lists_received(R))
    assert ["GetDevicePluginOptions", "ListAndWatch"] == plugin.calls


# As upstream's TestAllocate of an endpoint.
def test_direct_calls_reach_the_plugin(kubelet: Kubelet) -> None:
    plugin = kubelet.plugin()
    assert plugin.socket == kubelet.socket_of(R)
    assert {"DEVICES": "a,b"} == dict(kubelet.allocate(R, ["b", "a"]).envs)
    assert ["b", "a"] == kubelet.prefer(R, ["a", "b"], ["b"], 2)
    kubelet.pre_start(R, ["a"])
    assert [["a", "b"]] == plugin.allocated
    assert [["a"]] == plugin.pre_started


def test_errors_of_direct_calls_come_as_they_are(kubelet: Kubelet) -> None:
    plugin = kubelet.plugin()
    plugin.failing["PreStartContainer"] = StubError("busy", grpc.StatusCode.FAILED_PRECONDITION)
    with pytest.raises(grpc.RpcError, match="busy"):
        kubelet.pre_start(R, ["a"])
    plugin.on_allocate = lambda _ids: pb.AllocateResponse()
    with pytest.raises(LookupError, match=r"x\.io/dev answered Allocate for no container"):
        kubelet.allocate(R, ["a"])
    with pytest.raises(LookupError, match=r"y\.io/none has no plugin"):
        kubelet.socket_of("y.io/none")
    kubelet.hang_up(R)
    with pytest.raises(grpc.RpcError) as raised:
        kubelet.allocate(R, ["a"])
    call = cast("grpc.Call", raised.value)
    expected = (grpc.StatusCode.CANCELLED, "grpc: the client connection is closing")
    assert expected == (call.code(), call.details())


# As upstream's end-to-end test: when GetDevicePluginOptions fails.
@pytest.mark.parametrize(
    ("resource", "request_", "expected"),
    [
        ("nodomain", {}, 'the ResourceName "nodomain" is invalid'),
        ("x.io/foo\n", {}, r'the ResourceName "x.io/foo\n" is invalid'),
        (
            "nodomain",
            {"version": "v9"},
            (
                'requested API version "v9" is not supported by kubelet. '
                'Supported version is ["v1beta1"]'
            ),
        ),
        (
            R,
            {"endpoint": "%zz"},
            'failed to dial device plugin: parse "passthrough:///{}/%zz": invalid URL escape "%zz"',
        ),
        (
            R,
            {"endpoint": "kubelet.sock"},
            (
                "failed to get device plugin options: rpc error: code = Unimplemented "
                "desc = unknown service v1beta1.DevicePlugin"
            ),
        ),
        (
            R,
            {},
            "failed to get device plugin options: rpc error: code = Internal desc = no options",
        ),
    ],
)
def test_what_is_wrong_with_a_registration_is_said(
    kubelet: Kubelet, resource: str, request_: dict[str, str], expected: str
) -> None:
    plugin = kubelet.stub(resource)
    plugin.failing["GetDevicePluginOptions"] = StubError("no options")
    assert expected.replace("{}", str(kubelet.plugin_dir)) == refusal(plugin, **request_)
    assert 1 == kubelet.registration_count(resource)
    assert set() == kubelet.registered
    assert "ListAndWatch" not in plugin.calls


@pytest.mark.parametrize("dial_timeout", [0.3])
def test_a_socket_that_nobody_serves_is_given_up_after_the_dial_timeout(kubelet: Kubelet) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(kubelet.plugin_dir / "silent.sock"))
        silent.listen()
        expected = "failed to dial device plugin: context deadline exceeded"
        assert expected == refusal(kubelet.stub(), endpoint="silent.sock")


@pytest.mark.parametrize("endpoint", ["sub/../stub.sock", "//stub.sock", "stub.sock/"])
def test_endpoints_are_cleaned(kubelet: Kubelet, endpoint: str) -> None:
    kubelet.stub().register(endpoint=endpoint)
    kubelet.wait_for(R, {"a", "b"})


@pytest.mark.parametrize("name", ["a b.sock", "ü.sock", "a:b.sock", "a%41.sock"])
def test_odd_names_of_sockets_work(kubelet: Kubelet, name: str) -> None:
    kubelet.stub(name="plain.sock").register(endpoint="plain.sock")
    (kubelet.plugin_dir / name.replace("%41", "A")).symlink_to("plain.sock")
    kubelet.stub(name="other.sock").register(endpoint=name)


def test_options_have_the_deadline_of_the_register_call(kubelet: Kubelet) -> None:
    plugin = kubelet.stub()
    with pytest.raises(TimeoutError, match=r"x\.io/dev waited 0 s; calls were \[\]"):
        plugin.wait(lambda: plugin.calls, timeout=0)
    plugin.register(timeout=7)
    assert 7 == pytest.approx(plugin.deadlines["GetDevicePluginOptions"], abs=1)
    plugin.register(timeout=None)
    assert plugin.deadlines["GetDevicePluginOptions"] > 1000


def test_a_plugin_that_gives_up_on_register_is_not_registered(kubelet: Kubelet) -> None:
    plugin = kubelet.stub()
    plugin.hold("GetDevicePluginOptions")
    with kubelet.registering(plugin) as call:
        plugin.wait(lambda: plugin.calls)
        call.cancel()
        kubelet.wait(lambda: not kubelet._live().connections._open)
    kubelet.plugin(resource="x.io/other", name="other.sock")
    plugin.release()
    kubelet.wait_for("x.io/other", {"a", "b"})
    assert {"x.io/other"} == kubelet.registered
    assert ["GetDevicePluginOptions"] == plugin.calls


@pytest.mark.parametrize(
    "name",
    [
        "x/foo",
        "x.io/Foo_1.b",
        "hugepages-x.io/foo",
        "limits.x.io/f",
        "x.io/" + "n" * 63,
        "a" * 244 + "/f",
        ".".join(["a" * 60] * 4) + "/f",
    ],
)
def test_valid_resource_names(name: str) -> None:
    assert is_extended_resource(name)


@pytest.mark.parametrize(
    "name",
    [
        "foo",
        "/foo",
        "x.io/",
        "X.io/foo",
        "x..io/foo",
        "x.io/-foo",
        "x/y/z",
        "x.io/" + "n" * 64,
        "a" * 245 + "/f",
        "x.io/foo\n",
        "notkubernetes.io/x",
        "requests.x.io/f",
        "x.io/é",
    ],
)
def test_invalid_resource_names(name: str) -> None:
    assert not is_extended_resource(name)


@pytest.mark.parametrize(
    ("endpoint", "path"),
    [
        ("", "/d"),
        ("../o/a", "/o/a"),
        ("/x/a", "/d/x/a"),
        ("a/", "/d/a"),
        ("//a", "/d/a"),
    ],
)
def test_endpoints_are_joined_to_the_directory(endpoint: str, path: str) -> None:
    assert path == socket_path(Path("/d"), endpoint)


def test_what_follows_a_question_mark_or_hash_is_lost() -> None:
    assert "/d/a" == dialled_path("/d/a?b") == dialled_path("/d/a#b")


class GivenUp:
    """Who called Register gave up when the call was last known to be alive."""

    def is_active(self) -> bool:
        return True

    def time_remaining(self) -> float:
        return math.inf

    def add_callback(self, _callback: Callable[[], None]) -> bool:
        return False


def test_who_gives_up_while_the_options_are_asked_for_is_not_waited_for(kubelet: Kubelet) -> None:
    plugin = kubelet.stub()
    plugin.hold("GetDevicePluginOptions")
    client = PluginClient(R, str(plugin.socket))
    client.dial(PATIENCE)
    with pytest.raises(grpc.FutureCancelledError):
        client.options(cast("grpc.ServicerContext", GivenUp()))
    client.close()
    assert set() == kubelet.registered


def test_quotes_are_those_of_go() -> None:
    assert r'"a\"\\\n\x00\u200b\U000e0001ü"' == go_quote('a"\\\n\0\u200b\U000e0001ü')


@pytest.mark.parametrize("dial_timeout", [2.0])
def test_a_socket_that_appears_while_the_kubelet_dials_is_found(kubelet: Kubelet) -> None:
    late = StubPlugin(kubelet.plugin_dir, R, ["a"])
    with kubelet.registering(late) as call:
        kubelet.wait(lambda: kubelet.registration_count(R))
        late.start()
        call.result()
    kubelet.wait_for(R, {"a"})
    late.stop()


@pytest.mark.parametrize("dial_timeout", [2.0])
def test_a_plugin_that_gives_up_while_the_kubelet_dials_is_not_registered(kubelet: Kubelet) -> None:
    late = StubPlugin(kubelet.plugin_dir, R, ["a"])
    with kubelet.registering(late) as call:
        kubelet.wait(lambda: kubelet._live().connections._open)
        call.cancel()
    late.start()
    kubelet.wait(lambda: not kubelet._live().connections._open)
    assert set() == kubelet.registered
    assert [] == late.calls
    late.stop()


def test_a_kubelet_stops_while_it_dials(kubelet: Kubelet) -> None:
    with kubelet.registering(StubPlugin(kubelet.plugin_dir, R)):
        connections = kubelet._live().connections
        kubelet.wait(lambda: connections._open)
        kubelet.stop()
    with pytest.raises(ConnectError, match="the kubelet has stopped"):
        connections.connect(R, "nowhere", None)


def test_a_client_that_was_closed_does_not_dial() -> None:
    client = PluginClient(R, "/nowhere")
    client.close()
    with pytest.raises(DialError, match="context canceled"):
        client.dial(1)


def test_hanging_up_ends_a_registration(kubelet: Kubelet) -> None:
    plugin = kubelet.stub()
    plugin.hold("GetDevicePluginOptions")
    with kubelet.registering(plugin) as call:
        plugin.wait(lambda: plugin.calls)
        kubelet.hang_up(R)
        expected = "failed to get device plugin options: rpc error: code = Canceled desc = "
        assert why(call.exception()).startswith(expected)
    assert {} == kubelet.devices(R)
