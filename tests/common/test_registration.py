"""Registering, and recovering from every way to lose a registration."""

import random
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, cast

import grpc
import pytest

from deviceplugin._kubelet.server import remove_stale_sockets
from deviceplugin._kubelet.streams import MAX_STREAMS
from deviceplugin._platform.waiting import Waiter
from deviceplugin._registration import by_kubelet_socket
from deviceplugin._telemetry.metrics import Metrics
from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from deviceplugin_testing.fixture import Kubelet, Node
from kubelets.odd_kubelet import odd_kubelet, stream
from patience import eventually
from releases import THREE_RELEASES
from scripted_plugin import RESOURCE, ScriptedPlugin, Unserved, descriptors, sick


def own_sockets(kubelet: Kubelet) -> list[Path]:
    return sorted(kubelet.simulated.plugin_dir.glob("example.com_*.sock"))


def registered_anew(node: Node, before: int) -> None:
    """Wait for a registration after the first ``before``, and its first list."""
    simulated = node.kubelet
    simulated.wait(lambda: simulated.registration_count(RESOURCE) > before)
    node.wait_for(RESOURCE, {"a", "b"})


@THREE_RELEASES
def test_a_plugin_that_starts_before_the_kubelet_registers_once_it_is_there(
    kubelet: Kubelet,
) -> None:
    kubelet.simulated.stop()
    kubelet.simulated.kubelet_socket.unlink()
    kubelet.simulated.plugin_dir.rmdir()
    with kubelet.running(ScriptedPlugin("a", "b")) as node:
        kubelet.simulated.start()
        node.wait_for(RESOURCE, {"a", "b"})


def test_the_first_list_is_complete_and_sockets_are_removed_at_the_end(kubelet: Kubelet) -> None:
    name = f"{'a' * 100}.example.com/{'b' * 60}"
    with kubelet.running(ScriptedPlugin("a", sick("b"), resource=name)) as node:
        node.wait_for(name, {"a"}, {"b"})
        assert 1 == node.kubelet.lists_received(name)
        (own,) = kubelet.simulated.plugin_dir.glob("aaa*.sock")
        assert len("x" * 40 + "-123456.sock") == len(own.name), "however long the resource's is"
    assert [kubelet.simulated.kubelet_socket] == [*kubelet.simulated.plugin_dir.glob("*.sock")]


def test_a_socket_that_is_deleted_is_replaced_and_so_is_a_plugin_directory(
    kubelet: Kubelet,
) -> None:
    simulated = kubelet.simulated
    with kubelet.running(ScriptedPlugin("a", "b")) as node:
        node.wait_for(RESOURCE, {"a", "b"})
        before = simulated.registration_count(RESOURCE)
        (old,) = own_sockets(kubelet)
        old.unlink()
        registered_anew(node, before)
        assert [old] != own_sockets(kubelet)
        simulated.stop()
        simulated.plugin_dir.rename(simulated.root / "old")
        simulated.start()
        node.wait_for(RESOURCE, {"a", "b"})
        assert 1 == len(own_sockets(kubelet))


def test_a_plugin_may_name_the_socket_of_its_resource(kubelet: Kubelet) -> None:
    class NamingPlugin(ScriptedPlugin):
        socket_name = "scripted"

    path = kubelet.simulated.plugin_dir / "scripted.sock"
    with kubelet.running(NamingPlugin("a", "b")) as node:
        node.wait_for(RESOURCE, {"a", "b"})
        eventually(path.is_socket)
        for lose in (node.restart_kubelet, lambda: node.hang_up(RESOURCE)) * 2:
            before = node.kubelet.registration_count(RESOURCE)
            lose()
            registered_anew(node, before)
            eventually(path.is_socket)
    assert not path.is_symlink()


def test_what_a_killed_plugin_left_behind_is_removed_and_what_lives_is_not(
    kubelet: Kubelet,
) -> None:
    directory = kubelet.simulated.plugin_dir
    with kubelet.running(ScriptedPlugin("a", "b")) as node:
        node.wait_for(RESOURCE, {"a", "b"})
        (live,) = own_sockets(kubelet)
        dead = directory / "example.com_thing-0badf0.sock"
        other = directory / "example.com_thing-else.sock"
        for path in (dead, other):
            with closing(socket.socket(socket.AF_UNIX)) as server:
                server.bind(str(path))
        remove_stale_sockets(RESOURCE, directory)
        assert {live, other} == set(own_sockets(kubelet))


@pytest.mark.slow
def test_fifty_kubelet_restarts_at_random_moments_leak_nothing(kubelet: Kubelet) -> None:
    simulated = kubelet.simulated
    rng = random.Random(7)
    pause = threading.Event()
    with kubelet.running(ScriptedPlugin("a", "b")) as node:
        node.restart_kubelet()
        node.wait_for(RESOURCE, {"a", "b"})
        before = (threading.active_count(), descriptors())
        few = 5  # how many workers a server happens to have, against 50 of anything leaked
        for _ in range(50):
            pause.wait(rng.uniform(0, 0.02))
            simulated.stop()
            pause.wait(rng.uniform(0, 0.02))
            simulated.start()
        node.wait_for(RESOURCE, {"a", "b"})
        assert 1 == len(own_sockets(kubelet))
        eventually(
            lambda: threading.active_count() < before[0] + few and descriptors() < before[1] + few,
            f"threads and descriptors to be about {before} again",
        )


# Streams.


def healths(message: Any) -> dict[str, str]:
    return {device.ID: device.health for device in message.devices}


def test_every_stream_sees_the_last_of_a_hundred_rapid_changes(kubelet: Kubelet) -> None:
    plugin = ScriptedPlugin("a")
    with kubelet.running(plugin) as node:
        node.wait_for(RESOURCE, {"a"})
        (socket,) = own_sockets(kubelet)
        with stream(socket) as one, stream(socket) as two, stream(socket) as three:
            streams = (one, two, three)
            assert [{"a": "Healthy"}] * 3 == [healths(next(s)) for s in streams]
            for number in range(100):
                plugin.set("a", *(["b"] if number % 2 else [sick("b")]))
            plugin.set("a", "b", "last")
            for each in streams:
                assert any("last" in healths(message) for message in each)
        node.wait_for(RESOURCE, {"a", "b", "last"})


def test_surplus_streams_are_refused_and_the_others_go_on(kubelet: Kubelet) -> None:
    with kubelet.running(ScriptedPlugin("a")) as node, ExitStack() as stack:
        node.wait_for(RESOURCE, {"a"})
        (socket,) = own_sockets(kubelet)
        streams = [stack.enter_context(stream(socket)) for _ in range(MAX_STREAMS - 1)]
        assert MAX_STREAMS - 1 == len([next(one) for one in streams])
        with stream(socket) as surplus, pytest.raises(grpc.RpcError) as refusal:
            next(surplus)
        assert grpc.StatusCode.RESOURCE_EXHAUSTED is refusal.value.code()
        node.allocate("a")
        assert (RESOURCE,) == tuple(node.kubelet.registered)


# Kubelets that misbehave.


def unknown(kubelet: Kubelet) -> Path:
    """Return a PodResources socket of which nothing can be known."""
    return kubelet.simulated.root / "not-mounted" / "kubelet.sock"


def test_a_refused_resource_stops_alone_and_is_tried_again_with_the_next_kubelet(
    kubelet: Kubelet, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse_one(request: Any, context: grpc.ServicerContext) -> Any:
        if request.resource_name == "example.com/bad":
            context.abort(grpc.StatusCode.UNKNOWN, 'the ResourceName "example.com/bad" is invalid')
        return pb.Empty()

    bad = ScriptedPlugin("x", resource="example.com/bad")
    with (
        odd_kubelet(kubelet, refuse_one) as odd,
        kubelet.running(
            ScriptedPlugin("a", "b"), bad, pod_resources_socket=unknown(kubelet)
        ) as node,
    ):
        odd.wait_asked(2)
        refused = "registration refused"
        eventually(lambda: "refused by the kubelet" in node.host.ready(), refused)
        eventually(lambda: refused in [record.message for record in caplog.records], refused)
        assert 1 == odd.asked.count("example.com/bad")
        assert 1 == [record.message for record in caplog.records].count(refused)
        odd.stop()
        kubelet.simulated.start()
        node.wait_for("example.com/bad", {"x"})
        node.wait_for(RESOURCE, {"a", "b"})


def test_a_socket_that_is_deleted_while_registering_is_replaced_at_once(kubelet: Kubelet) -> None:
    hang = threading.Event()

    def dial(_request: Any, _context: grpc.ServicerContext) -> Any:
        hang.wait(10)
        return pb.Empty()

    with (
        odd_kubelet(kubelet, dial) as odd,
        kubelet.running(ScriptedPlugin("a"), pod_resources_socket=unknown(kubelet)),
    ):
        try:
            odd.wait_asked(1)
            own_sockets(kubelet)[0].unlink()
            odd.wait_asked(2)
        finally:
            hang.set()


def test_a_kubelet_that_is_another_one_while_registering_is_not_waited_for(
    kubelet: Kubelet,
) -> None:
    hang, waiter = threading.Event(), Waiter()
    registrar = by_kubelet_socket.KubeletSocket(kubelet.simulated.plugin_dir, Metrics())

    def register() -> object:
        return registrar.register(Unserved("a.sock"), waiter)

    def dial(_request: Any, _context: grpc.ServicerContext) -> Any:
        hang.wait(15)
        return pb.Empty()

    with odd_kubelet(kubelet, dial) as odd, ThreadPoolExecutor(1) as pool:
        found = pool.submit(register)
        try:
            odd.wait_asked(1)
            registrar.socket.unlink()
            registrar.socket.touch()
            waiter.poke()
            assert found.result(10) is None
        finally:
            hang.set()


def test_only_so_many_resources_are_registered_at_a_time(kubelet: Kubelet) -> None:
    names = {f"example.com/{letter}" for letter in "abcdefghijk"}
    go_on, lock = threading.Event(), threading.Lock()
    inside, most = 0, 0

    def hang(_request: Any, _context: grpc.ServicerContext) -> Any:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        go_on.wait()
        with lock:
            inside -= 1
        return pb.Empty()

    plugins = [ScriptedPlugin("x", resource=name) for name in names]
    with (
        odd_kubelet(kubelet, hang) as odd,
        kubelet.running(*plugins, pod_resources_socket=unknown(kubelet)) as node,
    ):
        turns = cast("by_kubelet_socket.KubeletSocket", node.host._registrars[0])._slots
        try:
            odd.wait_asked(8)
            eventually(lambda: len(turns._row) == len(names), "the others in the row")
        finally:
            go_on.set()
        eventually(lambda: names == set(odd.asked), "all")
    assert 8 == most


def test_a_kubelet_that_is_away_is_reported_once_for_all_resources(
    kubelet: Kubelet, caplog: pytest.LogCaptureFixture
) -> None:
    names = [f"example.com/thing-{number}" for number in range(20)]
    told = "waiting for the kubelet"
    with kubelet.running(*(ScriptedPlugin("a", resource=name) for name in names)) as node:
        for name in names:
            node.wait_for(name, {"a"})
        kubelet.simulated.stop()
        kubelet.simulated.kubelet_socket.unlink()
        all_wait = sorted(f"{name}: {told}" for name in names)
        eventually(lambda: all_wait == sorted(node.host.ready().splitlines()), told)
        failures = node.host._metrics.registration_failures

        def have_tried() -> bool:
            return all(failures.labels(n, "unavailable").value >= 3 for n in names)

        eventually(have_tried, "three attempts each")
        kubelet.simulated.start()
        for name in names:
            node.wait_for(name, {"a"})
    said = [str(vars(record)["error"]) for record in caplog.records if record.message == told]
    assert any("no such socket" in error for error in said)
    assert len(set(said)) == len(said)


@THREE_RELEASES
def test_a_plugin_comes_back_when_another_one_for_its_resource_has_left(kubelet: Kubelet) -> None:
    simulated = kubelet.simulated
    with kubelet.running(ScriptedPlugin("a", "b")) as node:
        node.wait_for(RESOURCE, {"a", "b"})
        before = simulated.registration_count(RESOURCE)

        def is_there() -> bool:
            """Return whether the other is registered, or was, and the first is back already."""
            devices = simulated.devices(RESOURCE)
            return {"c": "Healthy"} == devices or simulated.registration_count(
                RESOURCE
            ) > before + 1

        with kubelet.running(ScriptedPlugin("c")):
            simulated.wait(is_there)
        node.wait_for(RESOURCE, {"a", "b"})


def test_a_kubelet_is_not_asked_to_reach_a_socket_that_is_gone(kubelet: Kubelet) -> None:
    # It would dial for ten seconds, and with a hundred resources that is all it would do.
    registrar = by_kubelet_socket.KubeletSocket(kubelet.simulated.plugin_dir, Metrics())
    waiter = Waiter().unless(lambda: True)
    assert registrar.register(Unserved("gone.sock"), waiter) is None
    assert 0 == kubelet.simulated.registration_count(RESOURCE)
