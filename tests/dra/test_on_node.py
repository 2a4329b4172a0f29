"""A whole plugin on a simulated node of a cluster: trouble with the API server, health, losses."""

import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from typing_extensions import override

import deviceplugin as dp
from cluster import certificates
from deviceplugin._app import dra
from deviceplugin._dra.slices import publisher
from deviceplugin.apiserver import ApiServer, _slices
from deviceplugin.apiserver._credentials import Account
from patience import eventually
from served.cluster_node import DRIVER, ServedNode, served

RESOURCE = "example.com/gopher"


class Gophers(dp.Plugin):
    """Three gophers, of which some are not healthy."""

    resource = RESOURCE

    def __init__(self) -> None:
        self.reasons: dict[str, str] = {}

    @override
    def discover(self) -> Iterator[dp.Device]:
        for name in ("gary", "gerd", "gina"):
            reason = self.reasons.get(name)
            health = dp.Health.unhealthy(reason) if reason else dp.Health()
            yield dp.Device(name, nodes=[dp.DeviceNode(f"/dev/{name}")], health=health)


def ids(node: ServedNode) -> set[str]:
    """Return the devices that are offered through DRA."""
    return {id_ for _, id_ in node.offered().values()}


def shown(node: ServedNode, pod: str) -> list[str]:
    """Return the health of the pod's devices, as its status says it."""
    return [
        resource["health"]
        for container in node.status(pod).get("containerStatuses", ())
        for status in container.get("allocatedResourcesStatus", ())
        for resource in status["resources"]
    ]


def test_a_pod_is_told_that_its_device_failed_and_with_no_execute_it_goes(root: Path) -> None:
    plugin = Gophers()
    with served(root, plugin, protocol="dra", on_unhealthy="no-execute") as node:
        node.await_offer()
        (place,) = [place for place, (_, id_) in node.offered().items() if id_ == "gary"]
        pod, other = node.claim(*place), node.claim(*place_of(node, "gina"))
        node.got(pod), node.got(other)
        eventually(lambda: shown(node, pod) == ["Healthy"], "the health of the device")
        plugin.reasons["gary"] = "too hot"
        eventually(lambda: not node.status(pod), "the eviction of the pod")
        assert "Running" == node.status(other)["phase"]
        plugin.reasons.clear()
        eventually(lambda: "gary" in ids(node), "the device, which is healthy again")


def place_of(node: ServedNode, id_: str) -> tuple[str, str]:
    """Return the pool and the name of a device."""
    (place,) = [place for place, (_, each) in node.offered().items() if each == id_]
    return place


def test_the_health_of_a_device_is_reported_again_after_the_driver_was_replaced(root: Path) -> None:
    plugin = Gophers()
    with served(root, plugin, protocol="dra") as node:
        node.await_offer()
        pod = node.claim(*place_of(node, "gary"))
        node.got(pod)
        eventually(lambda: shown(node, pod) == ["Healthy"], "the health of the device")
        # Without it, the driver serves again, with new streams.
        (node.kubelet.registry_dir / f"{DRIVER}-reg.sock").unlink()
        plugin.reasons["gary"] = "too hot"
        eventually(lambda: shown(node, pod) == ["Unhealthy"], "the failure")
        plugin.reasons.clear()
        eventually(lambda: shown(node, pod) == ["Healthy"], "the recovery")


def said(node: ServedNode) -> list[tuple[str, str]]:
    """Return the health of devices, as claims say it, and the reason."""
    return [
        (condition["status"], condition["message"])
        for claim in node.cluster.list("ResourceClaim")
        for device in claim["status"].get("devices", ())
        for condition in device["conditions"]
        if condition["type"] == "Healthy"
    ]


def test_a_claim_says_that_its_device_failed_as_long_as_it_is_prepared(root: Path) -> None:
    plugin = Gophers()
    with served(root, plugin, protocol="dra") as node:
        node.await_offer()
        pod = node.claim(*place_of(node, "gary"))
        eventually(lambda: said(node) == [("True", "")], "the health of the device")
        plugin.reasons["gary"] = "too hot"
        eventually(lambda: said(node) == [("False", "too hot")], "the failure")
        plugin.reasons.clear()
        eventually(lambda: said(node) == [("True", "")], "the recovery")
        count = f'deviceplugin_claim_status_writes_total{{code="OK",driver="{DRIVER}"}} 3.0'
        eventually(lambda: count in node.host._metrics.expose("")[1].decode(), "three writes")
        node.end(pod)
        plugin.reasons["gary"] = "too hot"
        eventually(lambda: ids(node) == {"gerd", "gina"}, "the taint")
        assert [("True", "")] == said(node)  # until the API server frees the device


def test_claims_say_nothing_where_that_is_switched_off(root: Path) -> None:
    with served(root, Gophers(), protocol="dra", claim_status=False) as node:
        node.await_offer()
        node.got(node.claim(*place_of(node, "gary")))
        names = {thread.name for thread in threading.enumerate()}
        assert ("publisher" in names, "claim-status" in names) == (True, False)
        assert [] == said(node)


@pytest.mark.slow
def test_while_the_api_server_is_away_the_plugin_is_ready_and_says_so_once(
    root: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name in ((publisher, "_FIRST_WAIT"), (publisher, "_SPREAD"), (_slices, "_SPREAD")):
        monkeypatch.setattr(module, name, 0.1)
    plugin = Gophers()
    with served(root, plugin, protocol="dra") as node:
        node.await_offer()
        pod = node.claim(*place_of(node, "gary"))
        before = node.got(pod)
        eventually(lambda: not node.host.ready(), "readiness")
        node.cluster.go_away()
        eventually(node.host.troubles, "the trouble")
        assert "" == node.host.ready()
        known = node.node.pod(pod)
        node.kubelet.exit_container(known, "main")
        again = node.kubelet.start_container(known, "main")
        assert again
        assert before.devices == again.devices
        plugin.reasons["gerd"] = "too hot"  # which cannot be published now
        eventually(lambda: "gerd" in str(node.host.inventory()) and node.host.troubles(), "it")
        node.cluster.come_back()
        eventually(lambda: ids(node) == {"gary", "gina"}, "what has changed meanwhile")
        eventually(lambda: not node.host.troubles(), "the end of the trouble")
        assert "" == node.host.ready()
        page = node.host._metrics.expose("")[1].decode()
        assert 'deviceplugin_api_requests_total{code="0",method="GET"}' in page
        assert 'deviceplugin_api_requests_total{code="200",method="PUT"}' in page
    lines = [one.message for one in caplog.records if one.levelno >= logging.WARNING]
    assert 1 == lines.count("slices not published"), lines


@certificates.needs_openssl
@pytest.mark.slow
def test_a_token_and_an_authority_that_are_renewed_are_used_without_a_restart(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = root / "account"
    folder.mkdir()
    context, authority = certificates.certificate(root / "old")
    renew(folder / "ca.crt", authority)
    renew(folder / "token", "one")
    account = Account(folder)
    # The directory of the pod's account is always the same, and not this test's.
    monkeypatch.setattr(dra, "_api_server", lambda own, _: ApiServer(own.api_server, account))
    plugin = Gophers()
    with served(root, plugin, tls=context, account=account) as node:
        node.cluster.grant("one")
        node.host.offer_by("dra")
        eventually(lambda: ids(node) == {"gary", "gerd", "gina"}, "slices")

        node.cluster.grant("two")
        node.cluster.revoke("one")
        renew(folder / "token", "two")
        plugin.reasons["gary"] = "too hot"
        eventually(lambda: ids(node) == {"gerd", "gina"}, "a taint, by the new token")
        node.got(node.claim(*place_of(node, "gina")))

        context, authority = certificates.certificate(root / "new")
        node.cluster.use_certificate(context)
        node.cluster.go_away()
        node.cluster.come_back()
        renew(folder / "ca.crt", authority)
        plugin.reasons.clear()
        eventually(lambda: ids(node) == {"gary", "gerd", "gina"}, "no taint, by the new authority")
        node.got(node.claim(*place_of(node, "gerd")))
        eventually(lambda: not node.host.troubles(), "the end of the trouble")


def renew(path: Path, text: str) -> None:
    draft = path.with_suffix(".new")
    draft.write_text(text)
    draft.replace(path)
