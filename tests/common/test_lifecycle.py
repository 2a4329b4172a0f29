"""From start to stop, and what is told meanwhile."""

import gc
import json
import threading
import urllib.request
import weakref
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from threading import Event

import pytest
from typing_extensions import override

import deviceplugin as dp
from deviceplugin._app import command
from deviceplugin._app.host import Host
from deviceplugin_testing.fixture import Kubelet, Node
from deviceplugin_testing.simulator import Pod
from patience import eventually
from releases import THREE_RELEASES
from scripted_plugin import RESOURCE, ScriptedPlugin, WaitingPlugin, sick


def get(node: Node, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{node.host.http_port}{path}") as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


# Stopping.


@pytest.mark.parametrize(("needs_process", "lists"), [(True, 2), (False, 1)])
def test_only_devices_that_need_the_plugin_are_unhealthy_before_its_stream_ends(
    kubelet: Kubelet, needs_process: bool, lists: int
) -> None:
    plugin = ScriptedPlugin("a", sick("b"))
    plugin.needs_process = needs_process
    with kubelet.running(plugin) as node:
        node.wait_for(RESOURCE, {"a"}, {"b"})
    kubelet.simulated.wait(lambda: RESOURCE not in kubelet.simulated.registered)
    assert lists == kubelet.simulated.lists_received(RESOURCE)


OURS = (
    *("file-watcher", "http", "liveness", "discovery", "endpoint"),
    *("rpc-example.com", "changes", "hook", "host"),
)


EARLIER: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
"""What other tests of this process have left, such as a hook that hangs for a while."""


@pytest.fixture(autouse=True)
def earlier() -> None:
    EARLIER.update(threading.enumerate())


def threads() -> list[str]:
    own = {*threading.enumerate()} - {*EARLIER}
    return [thread.name for thread in own if thread.name.startswith(OURS)]


def all_end(*, but: str = "") -> None:
    """Wait for the end of all threads, with the names of those that are left as the reason."""
    eventually(lambda: {but}.issuperset(threads()), lambda: f"the end of {threads()}")


def test_a_garbage_collector_that_is_off_stays_off(kubelet: Kubelet) -> None:
    gc.disable()
    try:
        command._make_host([ScriptedPlugin("a")], kubelet.settings()).stop()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_plugin_stops_without_a_kubelet(kubelet: Kubelet) -> None:
    kubelet.simulated.stop()
    with kubelet.running(ScriptedPlugin("a")) as node:
        waiting = "waiting for pod resources: ScriptedPlugin"
        eventually(lambda: waiting == node.host.ready(), waiting)


def test_run_goes_on_until_its_event_is_set(kubelet: Kubelet) -> None:
    with pytest.raises(dp.ConfigError, match=r"^run\(\) needs at least one plugin$"):
        dp.run()
    stop = Event()
    arguments = {"settings": kubelet.settings(), "stop": stop}
    thread = threading.Thread(target=dp.run, args=(ScriptedPlugin("a"),), kwargs=arguments)
    thread.start()
    kubelet.simulated.wait_for(RESOURCE, {"a"})
    stop.set()
    thread.join(5)
    assert not thread.is_alive()


def test_a_plugin_directory_with_too_long_a_path_is_a_configuration_error() -> None:
    settings = dp.Settings(plugin_dir=Path("/" + "x" * 60), http_address="off")
    with pytest.raises(dp.ConfigError, match=r"^plugin-dir '/x+' is too long: .* 114 bytes"):
        Host([ScriptedPlugin()], settings)


# Going on with another configuration.


SOON = timedelta(milliseconds=50)


class NamedPlugin(ScriptedPlugin):
    def __init__(self, name: str, *devices: str, resource: str = RESOURCE) -> None:
        super().__init__(*devices, resource=resource)
        self.name = name

    @override
    def allocate(self, devices: object) -> dp.Allocation:
        return dp.Allocation(envs={"BY": self.name})


@THREE_RELEASES
def test_a_plugin_is_replaced_without_registering_anew(kubelet: Kubelet) -> None:
    old, new = NamedPlugin("old", "a", "b"), NamedPlugin("new", "b", "c")
    hooks = [("start", RESOURCE), ("stop", RESOURCE)]
    with kubelet.running(old) as node:
        node.wait_for(RESOURCE, {"a", "b"})
        with pytest.raises(dp.ConfigError):
            node.host.replace([NamedPlugin("odd", resource="nonsense")])
        assert {"BY": "old"} == dict(node.allocate("a").envs)
        node.host.replace([new])
        node.wait_for(RESOURCE, {"b", "c"}, {"a"})
        assert {"BY": "new"} == dict(node.allocate("c").envs)
        assert 1 == node.kubelet.registration_count(RESOURCE)
        new.set("b")
        node.wait_for(RESOURCE, {"b"}, {"a", "c"})
        assert hooks == old.hooks
    assert hooks == new.hooks


# What is told over HTTP.


def test_probes_tell_whether_devices_can_be_allocated_and_stopping_ends_every_thread(
    kubelet: Kubelet,
) -> None:
    with kubelet.running(ScriptedPlugin("a"), http_address="127.0.0.1:0") as node:
        node.wait_for(RESOURCE, {"a"})
        eventually(lambda: (200, "ok\n") == get(node, "/readyz"), "readiness")
        assert (200, "ok\n") == get(node, "/healthz")
        (told,) = json.loads(get(node, "/devices")[1])["resources"]
        assert (True, ["a"]) == (told["registered"], [one["id"] for one in told["devices"]])
        kubelet.simulated.stop()
        away = (503, "example.com/thing: waiting for the kubelet\n")
        eventually(lambda: away == get(node, "/readyz"), "the loss to be told")
        assert (200, "ok\n") == get(node, "/healthz")
        assert len(threads()) >= 6
    all_end()


def samples(node: Node) -> dict[str, float]:
    from prometheus_client.parser import text_string_to_metric_families

    _, text = get(node, "/metrics")
    return {
        sample.name + "".join(f" {v}" for _, v in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_metrics_count_what_happens(kubelet: Kubelet) -> None:
    plugin, other = ScriptedPlugin("a", sick("b")), ScriptedPlugin("c", resource="x.io/other")
    with kubelet.running(plugin, other, http_address="127.0.0.1:0") as node:
        node.wait_for(RESOURCE, {"a"}, {"b"})
        node.wait_for("x.io/other", {"c"})
        node.allocate("a", resource=RESOURCE)
        node.restart_kubelet()
        node.wait_for(RESOURCE, {"a"}, {"b"})
        plugin.fail(OSError("gone"))
        failed = "deviceplugin_discovery_errors_total ScriptedPlugin"
        eventually(lambda: samples(node)[failed] > 0, "a failed discovery")
        expected = {
            "deviceplugin_devices healthy example.com/thing": 1.0,
            "deviceplugin_devices unhealthy example.com/thing": 1.0,
            "deviceplugin_kubelet_restarts_total": 1.0,
            "deviceplugin_registered example.com/thing": 1.0,
            "deviceplugin_streams example.com/thing": 1.0,
            "deviceplugin_allocations_total OK example.com/thing": 1.0,
            "deviceplugin_allocation_duration_seconds_count example.com/thing": 1.0,
            "deviceplugin_skipped_devices ScriptedPlugin": 0.0,
            "deviceplugin_discovery_errors_total ScriptedPlugin-2": 0.0,
        }
        eventually(lambda: expected.items() <= samples(node).items(), f"the metrics {expected}")
        # At least: a kubelet that is about to stop may take one more.
        registrations = "deviceplugin_registrations_total example.com/thing"
        eventually(lambda: samples(node)[registrations] >= 2, "two registrations")
        told = samples(node)
        assert told["deviceplugin_discovery_last_success_timestamp_seconds ScriptedPlugin"] > 1e9
        assert told["deviceplugin_discovery_duration_seconds_count ScriptedPlugin"] >= 2


def test_run_and_the_fixture_raise_what_ended_the_plugin_early(
    kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_self: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("deviceplugin._platform.file_watcher.FileWatcher.run", fail)
    with pytest.raises(ZeroDivisionError), kubelet.running(ScriptedPlugin("a")):
        pass
    with pytest.raises(ZeroDivisionError):
        dp.run(ScriptedPlugin("a"), settings=kubelet.settings())


def test_an_endpoint_that_ends_by_what_is_no_exception_ends_the_process(kubelet: Kubelet) -> None:
    error = SystemExit(0)

    class Plugin(ScriptedPlugin):
        @property
        def socket_name(self) -> str:  # type: ignore[override]
            if threading.current_thread().name.startswith("endpoint-"):
                raise error
            return ""

    failed = f"endpoint-{RESOURCE} failed: SystemExit"
    with pytest.raises(RuntimeError, match=failed) as raised, kubelet.running(Plugin("a")):
        eventually(lambda: "host" not in threads(), "the process to end")
    assert error is raised.value.__cause__


def test_a_hanging_allocation_does_not_keep_the_plugin_from_stopping(kubelet: Kubelet) -> None:
    plugin = WaitingPlugin("a")
    with kubelet.running(plugin) as node:
        node.wait_for(RESOURCE, {"a"})
        pod = Pod.of("pod", main={RESOURCE: 1})
        admission = threading.Thread(target=node.kubelet.admit, args=(pod,))
        admission.start()
        assert plugin.asked.wait(5)
    admission.join(5)
    all_end(but="hook-allocate")
    plugin.go_on.set()


def test_what_the_old_plugin_finds_after_its_replacement_does_not_count(kubelet: Kubelet) -> None:
    looking, release = Event(), Event()

    class SlowPlugin(NamedPlugin):
        @override
        def discover(self) -> Iterable[dp.Device]:
            found = super().discover()
            if len(self.hooks) > 0:
                looking.set()
                release.wait(5)
            return found

    old = SlowPlugin("old", "a")
    nowhere = kubelet.simulated.root / "not-mounted" / "kubelet.sock"
    with kubelet.running(old, vanished_retention=SOON, pod_resources_socket=nowhere) as node:
        node.wait_for(RESOURCE, {"a"})
        assert looking.wait(5)
        node.host.replace([NamedPlugin("new", "b", resource="example.com/new")])
        release.set()
        node.wait_for("example.com/new", {"b"})
        node.kubelet.wait(lambda: ["example.com/new"] == list(node.kubelet.registered))


def test_a_resource_comes_back_after_a_stop_hook_that_took_its_time(kubelet: Kubelet) -> None:
    stopping, go_on = threading.Event(), threading.Event()

    class SlowToStop(ScriptedPlugin):
        @override
        def stop(self, resource: str) -> None:
            if resource == "x.io/loose":
                stopping.set()
                go_on.wait(10)

    loose = dp.Device("a0", resource="x.io/loose")
    plugin = SlowToStop(loose, resource=RESOURCE)
    with kubelet.running(plugin, http_address="127.0.0.1:0", vanished_grace=SOON) as node:
        node.wait_for("x.io/loose", {"a0"})
        plugin.set()
        assert stopping.wait(10)
        plugin.set(loose)
        go_on.set()
        node.wait_for("x.io/loose", {"a0"})
        node.kubelet.wait(lambda: samples(node).get("deviceplugin_registered x.io/loose") == 1)
