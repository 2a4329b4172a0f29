"""Both protocols on one node of a simulated cluster, and the switch from one to the other."""

import logging
import threading
from dataclasses import replace
from datetime import timedelta

import pytest

from cluster.dra_objects import RESOURCE
from deviceplugin._app.dra import Dra
from deviceplugin._app.dra_settings import DraSettings
from deviceplugin._app.host_directories import HostDirectories
from deviceplugin._app.reload import reload
from deviceplugin._attribution.ownership import Ownership
from deviceplugin._config.settings import Settings
from deviceplugin._dra.serving.instances import LEADER, FileLock
from deviceplugin._platform.file_watcher import FileWatcher
from deviceplugin._telemetry.metrics import Metrics
from deviceplugin.apiserver import NotFoundError
from deviceplugin.errors import ConfigError
from drivers.dual_node import IDS, DualNode, gopher
from held_clock import HeldClock
from patience import eventually
from scripted_plugin import sick

ALL = set(IDS)


def test_devices_are_handed_back_as_their_claims_end(node: DualNode) -> None:
    node.start(protocol="dra", pod_resources_interval=timedelta(seconds=30))
    node.wait_for(plugin=set(), dra=ALL)
    held = node.run("one", 2)
    node.switch("device-plugin")
    node.wait_for(plugin=ALL - held, dra=set())
    node.end("one")
    node.wait_for(plugin=ALL, dra=set())
    assert 3 == len(node.run("two", 3))  # the plugin is not registered anew just then


def test_the_driver_stays_for_pods_that_may_be_on_their_way(node: DualNode) -> None:
    watcher, clock = FileWatcher(1.0), HeldClock()
    settings = node.settings(pod_resources_interval=timedelta(seconds=30))
    dra = Dra(
        settings,
        DraSettings.of(settings, [node.plugin]),
        ownership=Ownership(),
        resources=dict,
        discovered=lambda: True,
        watcher=watcher,
        metrics=Metrics(),
        thread=lambda name, run: threading.Thread(target=run, name=name),
        directories=HostDirectories(settings, is_connected=bool, metrics=Metrics()),
        clock=clock,
    )
    for _ in range(2):
        clock.advance(299)
        assert not dra.is_idle
        with pytest.raises(NotFoundError):  # the kubelet has asked for a claim
            dra.claims.get("default", "gone")
    clock.advance(300)
    assert dra.is_idle
    watcher.close()


@pytest.mark.slow
def test_containers_of_both_protocols_start_again_after_every_switch(plugin_node: DualNode) -> None:
    """With a hook for starts, a 1.36 kubelet would not start those that have it through DRA."""
    node = plugin_node
    by_plugin = node.run("one")
    node.switch("dra")
    node.wait_for(plugin=set(), dra=ALL - by_plugin)
    by_dra = node.run("two")
    assert (by_plugin, by_dra) == (node.start_again("one"), node.start_again("two"))
    node.switch("device-plugin")
    node.wait_for(plugin=ALL - by_dra, dra=set())
    assert (by_plugin, by_dra) == (node.start_again("one"), node.start_again("two"))
    node.end("two")
    node.wait_for(plugin=ALL, dra=set())
    assert by_plugin == node.start_again("one")
    eventually(lambda: node.kubelet.options(RESOURCE).pre_start_required, "the old options")


@pytest.mark.slow
def test_after_a_restart_the_device_plugin_offers_what_no_claim_holds(dra_node: DualNode) -> None:
    held = dra_node.run("one", 2)
    dra_node.stop()
    dra_node.start()
    dra_node.wait_for(plugin=ALL - held, dra=set())
    dra_node.end("one")
    dra_node.wait_for(plugin=ALL, dra=set())
    eventually(lambda: [] == dra_node.sockets(), "the driver to be gone")
    dra_node.stop()
    dra_node.start(node_name="", api_server="")  # nothing of DRA is left
    dra_node.wait_for(plugin=ALL, dra=set())


def test_a_process_beside_one_that_leads_publishes_nothing_and_says_so(dra_node: DualNode) -> None:
    dra_node.stop()
    leader = FileLock(dra_node.settings().driver_dir / "gopher.example.com" / LEADER)
    assert leader.take()
    dra_node.start()
    assert dra_node.host
    said = dra_node.host._status.remarks
    remark = ["DRA: another process of this driver publishes the slices"]
    eventually(lambda: said() == remark, "its remark")
    leader.release()
    eventually(lambda: said() == [], "its turn")
    dra_node.wait_for(plugin=set(), dra=ALL)


def test_what_dra_has_left_cannot_be_ended_without_the_name_of_the_node(dra_node: DualNode) -> None:
    dra_node.stop()
    with pytest.raises(ConfigError, match=r"^node-name is needed: .* offered devices through DRA"):
        dra_node.start(node_name="")


def test_dra_outside_a_cluster_needs_the_address_of_its_api_server(node: DualNode) -> None:
    with pytest.raises(ConfigError, match=r"^api-server is needed for DRA: this is not a pod"):
        node.start(protocol="dra", api_server="")


def test_records_that_cannot_be_read_keep_the_process_from_starting(node: DualNode) -> None:
    claims = node.settings().driver_dir / "gopher.example.com/claims"
    claims.parent.mkdir()
    claims.touch()
    with pytest.raises(ConfigError, match=f"^driver-dir: {claims}: Not a directory$"):
        node.start(protocol="dra")


def reloaded(node: DualNode, **changes: object) -> Settings | None:
    """Read these settings as after SIGHUP, and return them unless they are ignored."""
    assert node.host
    before, new = node.settings(), node.settings(**changes)
    return reload(node.host, before, lambda: new, lambda _settings: [node.plugin])


def test_the_protocol_is_switched_by_the_file_without_a_restart(
    node: DualNode, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    node.start()
    node.wait_for(plugin=ALL, dra=set())
    assert reloaded(node, protocol="dra")
    node.wait_for(plugin=set(), dra=ALL)
    assert reloaded(node)
    node.wait_for(plugin=ALL, dra=set())
    eventually(lambda: 2 == caplog.text.count("protocol switched\n"), "the second message")
    assert "restart required" not in caplog.text


def test_a_protocol_that_cannot_be_used_here_is_ignored(
    node: DualNode, caplog: pytest.LogCaptureFixture
) -> None:
    node.start(node_name="")
    node.wait_for(plugin=ALL, dra=set())
    assert reloaded(node, protocol="dra") is None
    (record,) = [r for r in caplog.records if r.getMessage() == "invalid configuration ignored"]
    assert "protocol dra: node-name is needed, in a pod spec.nodeName" == vars(record)["error"]
    assert ALL == node.by_plugin()


def test_the_device_plugin_goes_on_while_the_api_server_is_away(plugin_node: DualNode) -> None:
    plugin_node.cluster.go_away()
    plugin_node.switch("dra")
    eventually(lambda: plugin_node.host and plugin_node.host.troubles(), "the trouble")
    assert ALL == plugin_node.by_plugin()
    plugin_node.cluster.come_back()
    plugin_node.wait_for(plugin=set(), dra=ALL)


@pytest.mark.slow
def test_readiness_is_that_of_the_protocol_that_is_wanted(dra_node: DualNode) -> None:
    assert dra_node.host
    eventually(lambda: dra_node.host and not dra_node.host.ready(), "the kubelet")
    dra_node.kubelet.stop()
    dra_node.cluster.go_away()
    eventually(lambda: dra_node.host and dra_node.host.ready(), "the loss of the kubelet")


def test_health_and_the_end_of_a_resource_reach_the_slices(dra_node: DualNode) -> None:
    dra_node.plugin.set(gopher("gary"), sick("gerd"))
    dra_node.wait_for(plugin=set(), dra={"gary"})
    dra_node.plugin.set(gopher("gary"), replace(gopher("x"), resource="example.com/other"))
    dra_node.wait_for(plugin=set(), dra={"gary", "x"})
    dra_node.plugin.set(gopher("gary"))
    dra_node.wait_for(plugin=set(), dra={"gary"})
    eventually(
        lambda: dra_node.host and len(dra_node.host.inventory()["resources"]) == 1, "its end"
    )


def test_the_page_shows_the_pod_that_has_a_claim_and_what_it_uses(dra_node: DualNode) -> None:
    (held,) = dra_node.run("one")

    def holders() -> list[object]:
        assert dra_node.host
        (resource,) = dra_node.host.inventory()["resources"]
        (found,) = [one["holders"] for one in resource["devices"] if one["id"] == held]
        return [(one["pod"], one.get("usage"), bool(one["claim"])) for one in found or ()]

    eventually(lambda: [("one", {"holes": 1}, True)] == holders(), "the pod on the page")
