"""What becomes of the plugin that had the resource before."""

from contextlib import suppress
from typing import cast

import grpc
import pytest

from deviceplugin_testing.simulator import Behaviour, Pod, StubError
from deviceplugin_testing.simulator._device_manager.plugin_client import PluginClient
from deviceplugin_testing.simulator._device_manager.registration import Connections
from kubelets.equipped import Kubelet, R, refusal, why
from patience import PATIENCE

fixed = pytest.mark.parametrize("behaviour", [Behaviour.fixed()])


def broken(kubelet: Kubelet) -> None:
    """Have a plugin try to register, and fail."""
    plugin = kubelet.stub(name="broken")
    plugin.failing["GetDevicePluginOptions"] = StubError("no")
    refusal(plugin)


# As upstream's TestDevicePluginReRegistration.
def test_the_latest_list_replaces_that_of_earlier_sockets_and_lists_of_those_still_count(
    kubelet: Kubelet,
) -> None:
    old = kubelet.plugin(name="1")
    new = kubelet.plugin(devices=["b", "c"], name="2")
    assert {"b", "c"} == kubelet.healthy(R)
    assert kubelet.capacity(R) == kubelet.allocatable(R) == 2
    kubelet.relist(old, ["a"])
    kubelet.admitted()
    assert ([], [["a"]]) == (old.allocated, new.allocated)
    assert 1 == old.streams  # it is neither told nor disconnected
    assert {R} == kubelet.registered


@fixed
def test_fixed_a_replaced_plugin_neither_lists_nor_disconnects(kubelet: Kubelet) -> None:
    old, new = kubelet.plugin(name="old"), kubelet.plugin(devices=["b"], name="new")
    old.update(["x"])
    kubelet.relist(new, ["b", "c"])
    assert 3 == kubelet.lists_received(R)
    old.stop()
    kubelet.relist(new, ["c"])
    assert {R} == kubelet.registered
    kubelet.lose(new)


def test_the_end_of_a_replaced_plugins_stream_disconnects_the_new_one(kubelet: Kubelet) -> None:
    old, new = kubelet.plugin(name="old"), kubelet.plugin(name="new")
    kubelet.lose(old)
    new.wait(lambda: new.streams == 0)
    assert set() == kubelet.registered


def test_a_plugin_that_registers_twice_has_two_streams_and_loses_both(kubelet: Kubelet) -> None:
    twice = kubelet.plugin()
    twice.register()
    twice.wait(lambda: twice.streams == 2)
    kubelet.wait(lambda: kubelet.lists_received(R) == 2)
    twice.end_streams()
    twice.wait(lambda: twice.streams == 0)
    kubelet.wait_for(R, (), {"a", "b"})


def test_a_failed_registration_orphans_the_plugin_until_it_registers_again(
    kubelet: Kubelet,
) -> None:
    healthy = kubelet.plugin(name="healthy")
    broken(kubelet)
    healthy.end_streams()
    kubelet.wait(lambda: not kubelet.registered)
    assert {"a", "b"} == kubelet.healthy(R)
    healthy.register()
    kubelet.wait(lambda: kubelet.registered)
    kubelet.lose(healthy)


@fixed
def test_fixed_a_failed_registration_changes_nothing(kubelet: Kubelet) -> None:
    healthy = kubelet.plugin(name="healthy")
    broken(kubelet)
    assert {R} == kubelet.registered
    kubelet.lose(healthy)


@pytest.mark.parametrize("fails", [True, False])
def test_a_stream_that_ends_while_the_next_plugin_is_greeted_changes_no_answer_to_register(
    kubelet: Kubelet, fails: bool
) -> None:
    old, new = kubelet.plugin(name="old"), kubelet.stub(name="new")
    new.hold("GetDevicePluginOptions")
    if fails:
        new.failing["GetDevicePluginOptions"] = StubError("not now")
    with kubelet.registering(new) as call:
        new.wait(lambda: "GetDevicePluginOptions" in new.calls)
        old.end_streams()
        kubelet.wait_for(R, (), {"a", "b"})
        new.release()
        error = call.exception()
    failure = "failed to get device plugin options: rpc error: code = Internal desc = not now"
    assert (failure if fails else None) == (error and why(error))
    kubelet.wait(lambda: not kubelet._live().connections._readers)
    assert frozenset() == kubelet.registered


def test_a_stream_that_has_ended_does_not_disconnect_who_registers_then(
    kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However late the thread is that deals with the end."""
    deal = Connections._stream_ended
    old = kubelet.plugin(name="old")

    def late(connections: Connections, client: PluginClient) -> None:
        with suppress(TimeoutError):
            kubelet.wait(lambda: connections._current[R] is not client, timeout=0.5)
        deal(connections, client)

    monkeypatch.setattr(Connections, "_stream_ended", late)
    (reader,) = kubelet._live().connections._open
    old.stop()
    kubelet.wait(lambda: reader.ended)
    kubelet.stub(name="new").register()
    kubelet.wait_for(R, {"a", "b"})
    assert {R} == kubelet.registered


def test_a_call_of_a_plugin_that_was_hung_up_on_is_canceled(kubelet: Kubelet) -> None:
    plugin = kubelet.stub()
    client = PluginClient(R, str(plugin.socket))
    client.dial(PATIENCE)
    client.close()
    with pytest.raises(grpc.RpcError) as error:
        client.options(None)
    assert grpc.StatusCode.CANCELLED is cast("grpc.Call", error.value).code()
    assert [] == plugin.calls


def test_a_replaced_plugin_that_outlives_its_successor_lists_for_nobody(kubelet: Kubelet) -> None:
    old, new = kubelet.plugin(name="old"), kubelet.plugin(name="new")
    kubelet.lose(new)
    kubelet.expire()
    kubelet.relist(old, ["c"])
    expected = "endpoint not found in cache for a registered resource: x.io/dev"
    assert expected in kubelet.admit(Pod.of("p", main={R: 1})).message
    kubelet.tick()
    assert 0 == kubelet.capacity(R)
