"""Being found by the kubelet's plugin watcher, instead of registering."""

import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from deviceplugin._kubelet import endpoint
from deviceplugin._platform import rpc
from deviceplugin._platform.file_identity import Identity, file_identity
from deviceplugin._platform.waiting import Waiter
from deviceplugin._registration import by_plugin_watcher
from deviceplugin._telemetry.metrics import Metrics
from deviceplugin.proto.pluginregistration import pluginregistration_pb2 as pb
from deviceplugin_testing.fixture import Kubelet, Node
from deviceplugin_testing.simulator import KubeletConfig
from kubelets.odd_kubelet import stream
from patience import PATIENCE, eventually
from releases import THREE_RELEASES
from scripted_plugin import RESOURCE, ScriptedPlugin, Unserved

SOCKET = "example.com_thing-reg.sock"


@pytest.fixture
def watcher(kubelet_version: str) -> Iterator[Kubelet]:
    """Give a kubelet that looks at its plugins_registry often."""
    root = Path(tempfile.mkdtemp(prefix="kubelet-"))
    config = KubeletConfig(version=kubelet_version, watch_interval=0.02)
    try:
        with Kubelet(root, config) as running:
            yield running
    finally:
        shutil.rmtree(root)


@THREE_RELEASES
def test_the_socket_outlives_a_kubelet_restart_and_is_found_again(watcher: Kubelet) -> None:
    registry = watcher.simulated.registry_dir
    with watcher.running(ScriptedPlugin("a"), registration="watcher") as node:
        node.wait_for(RESOURCE, {"a"})
        eventually(lambda: not node.host.ready(), "readiness")
        assert [registry / SOCKET] == list(registry.iterdir())
        node.allocate("a")
        for _ in range(3):
            node.restart_kubelet()
            node.wait_for(RESOURCE, {"a"})
    assert [] == list(registry.iterdir())


def test_a_stream_that_is_lost_while_the_kubelet_lives_makes_a_new_socket(watcher: Kubelet) -> None:
    with watcher.running(ScriptedPlugin("a"), registration="watcher") as node:
        node.wait_for(RESOURCE, {"a"})
        node.hang_up()
        # A watcher that did not reach the new socket at once waits longer after each attempt.
        node.wait_for(RESOURCE, {"a"}, timeout=120)
        eventually(lambda: not node.host.ready(), "readiness")


@contextmanager
def early(watcher: Kubelet) -> Iterator[Node]:
    """Run a plugin while its kubelet does not."""
    watcher.simulated.stop()
    with watcher.running(
        ScriptedPlugin("a"),
        registration="watcher",
        pod_resources_socket=watcher.simulated.root / "not-mounted" / "kubelet.sock",
    ) as node:
        yield node


def test_a_refusal_by_the_watcher_is_told_and_the_plugin_stops_at_once(watcher: Kubelet) -> None:
    with early(watcher) as node:
        socket = watcher.simulated.registry_dir / SOCKET
        expected: dict[str, Any] = {
            "type": "DevicePlugin",
            "name": RESOURCE,
            "supported_versions": ["v1beta1"],
        }
        assert pb.PluginInfo(**expected) == tell(socket, NOT_TODAY)
        assert "example.com/thing: refused by the kubelet: not today" == node.host.ready()
        failures = node.host._metrics.registration_failures.labels(RESOURCE, "refused")
        assert 1 == failures.value
        begin = time.monotonic()
        node.host.stop()
        eventually(lambda: not socket.exists(), "the end")
        assert time.monotonic() - begin < PATIENCE / 2


NOT_TODAY = pb.RegistrationStatus(error="not today")


def tell(socket: Path, status: pb.RegistrationStatus) -> pb.PluginInfo:
    """Tell the plugin what became of its registration, as a kubelet does; return who it is."""
    eventually(socket.exists, "the socket")
    service = pb.DESCRIPTOR.services_by_name["Registration"]
    with rpc.connect(socket) as channel:
        calls = rpc.calls(channel, service)
        info = calls["GetInfo"](pb.InfoRequest(), wait_for_ready=True, timeout=PATIENCE)
        calls["NotifyRegistrationStatus"](status)
    return cast("pb.PluginInfo", info)


@contextmanager
def replaced_socket(watcher: Kubelet) -> Iterator[Path]:
    """Give the socket of a plugin, which must make another one then and be registered by it."""
    with early(watcher) as node:
        socket = watcher.simulated.registry_dir / SOCKET
        eventually(socket.exists, "the socket")
        first = file_identity(socket)
        yield socket
        eventually(lambda: file_identity(socket) not in {None, first}, "another socket")
        watcher.simulated.start()
        node.wait_for(RESOURCE, {"a"})
        eventually(lambda: not node.host.ready(), "readiness")


@pytest.mark.parametrize(
    ("module", "timeout", "status"),
    [
        pytest.param(by_plugin_watcher, "_AFTER_REFUSAL", NOT_TODAY, id="never tries again"),
        pytest.param(
            endpoint,
            "_STREAM_TIMEOUT",
            pb.RegistrationStatus(plugin_registered=True),
            id="opens no stream",
        ),
    ],
)
def test_a_kubelet_that_comes_to_nothing_finds_a_new_socket(
    watcher: Kubelet,
    monkeypatch: pytest.MonkeyPatch,
    module: object,
    timeout: str,
    status: pb.RegistrationStatus,
) -> None:
    monkeypatch.setattr(module, timeout, 0.1)
    with replaced_socket(watcher) as socket:
        tell(socket, status)


def test_a_kubelet_that_tries_again_by_itself_finds_the_same_socket(watcher: Kubelet) -> None:
    with early(watcher) as node:
        socket = watcher.simulated.registry_dir / SOCKET
        tell(socket, NOT_TODAY)
        first = file_identity(socket)
        watcher.simulated.start()
        node.wait_for(RESOURCE, {"a"})
        eventually(lambda: not node.host.ready(), "readiness")
        assert first == file_identity(socket)


def test_a_stream_that_ended_before_it_was_looked_at_is_a_lost_registration(
    watcher: Kubelet,
) -> None:
    registry = by_plugin_watcher.Registry(watcher.simulated.registry_dir, Metrics())
    ended = Unserved("gone.sock", was_watched=True)
    assert registry.identity() == registry.register(ended, Waiter())


def test_a_kubelet_that_hangs_up_before_the_plugin_waits_for_it_finds_a_new_socket(
    watcher: Kubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    hung_up = threading.Event()
    identity = by_plugin_watcher.Registry.identity

    def wait_before(registry: by_plugin_watcher.Registry) -> Identity:
        assert hung_up.wait(PATIENCE)
        return identity(registry)

    monkeypatch.setattr(by_plugin_watcher.Registry, "identity", wait_before)
    with replaced_socket(watcher) as socket:
        with stream(socket) as one:
            next(one)
        hung_up.set()


@pytest.mark.parametrize(("changes", "registrations"), [({}, 1), ({"plugin_dir": "none"}, 0)])
def test_auto_registers_itself_where_there_is_a_plugin_directory(
    watcher: Kubelet, changes: dict[str, str], registrations: int
) -> None:
    root = watcher.simulated.root
    given: dict[str, Any] = {name: root / value for name, value in changes.items()}
    with watcher.running(ScriptedPlugin("a"), registration="auto", **given) as node:
        node.wait_for(RESOURCE, {"a"})
        assert registrations == node.kubelet.registration_count(RESOURCE)
        assert 1 - registrations == len(list(watcher.simulated.registry_dir.glob("*.sock")))


def test_auto_waits_for_either_directory(watcher: Kubelet) -> None:
    root = watcher.simulated.root / "later"
    with watcher.running(
        ScriptedPlugin("a"), plugin_dir=root / "plugins", registry_dir=root / "registry"
    ) as node:
        problem = f"example.com/thing: cannot serve: {root / 'plugins'}: no such directory"
        eventually(lambda: problem == node.host.ready(), problem)
        (root / "registry").mkdir(parents=True)
        eventually((root / "registry" / SOCKET).exists, "the socket")
