"""Records of claims that neither the API server nor the kubelet knows any more."""

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import deviceplugin as dp
from deviceplugin._attribution.ownership import Claim
from deviceplugin._attribution.podresources import ClaimedDevice, Holdings
from deviceplugin._dra.claims.forgotten import ForgottenClaims
from deviceplugin._platform.api_errors import NotFoundError
from drivers.driver_node import DRIVER, POOL, DriverNode, gopher, result
from held_clock import HeldClock
from patience import PATIENCE

INTERVAL = 30.0
SPAN = 20 * INTERVAL


class Server:
    """The claims of the node, as the client of the API server returns them."""

    def __init__(self, node: DriverNode) -> None:
        self.node = node
        self.reads = 0

    def get(self, namespace: str, name: str, _timeout: float = 0.0) -> Mapping[str, Any]:
        self.reads += 1
        if not self.node.store.away and (namespace, name) not in self.node.store.objects:
            raise NotFoundError("no such claim", status=404)
        return self.node.store.get(namespace, name)


class Kubelet:
    """What a kubelet says, and time, which passes poll by poll."""

    def __init__(self, path: Path) -> None:
        self.node = DriverNode(path, gopher("gary"), gopher("gina"))
        self.clock = HeldClock()
        self.named: list[Claim] = []
        self.holdings: Holdings | None = None
        self.registered = True
        self.server = Server(self.node)
        self.forgotten = ForgottenClaims(
            DRIVER,
            records=self.node.records.all,
            holdings=lambda: self.holdings,
            claims=self.server,
            release=self.node.preparing.release,
            is_registered=lambda: self.registered,
            interval=INTERVAL,
            clock=self.clock,
        )
        self.says()

    def says(self, *claims: Claim, complete: bool = True, pods: bool = True) -> None:
        claimed = frozenset(
            ClaimedDevice(DRIVER, POOL, "gary", one.name, one.namespace, "pod", "main")
            for one in claims
        )
        listed = frozenset({("default", "pod")} if pods else ())
        self.holdings = Holdings(frozenset(), listed, complete=complete, claimed=claimed)

    def pass_(self, seconds: float) -> None:
        for _ in range(int(seconds / INTERVAL)):
            self.forgotten.check()
            self.clock.advance(INTERVAL)
        self.forgotten.check()

    @property
    def recorded(self) -> list[str]:
        return [one.removesuffix(".json") for one in self.node.recorded()]


@pytest.fixture
def kubelet(tmp_path: Path) -> Kubelet:
    return Kubelet(tmp_path)


@pytest.fixture
def claim(kubelet: Kubelet) -> Claim:
    made = kubelet.node.allocate("one", result("gary"))
    kubelet.node.prepare(made)
    return made


def other_uid(node: DriverNode) -> None:
    node.allocate("one", result("gary"), uid="other")


def other_devices(node: DriverNode) -> None:
    node.allocate("one", result("gary", pool="elsewhere"))


def no_devices(node: DriverNode) -> None:
    node.allocate("one")


def not_allocated(node: DriverNode) -> None:
    node.store.objects["default", "one"]["status"] = {}


def deleted(node: DriverNode) -> None:
    node.store.objects.clear()


@pytest.mark.parametrize("become", [deleted, other_uid, other_devices, no_devices, not_allocated])
def test_a_claim_that_nobody_knows_is_released(
    kubelet: Kubelet,
    claim: Claim,
    become: Callable[[DriverNode], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    become(kubelet.node)
    kubelet.pass_(SPAN - INTERVAL)
    assert ([claim.uid], 0) == (kubelet.recorded, kubelet.server.reads)
    kubelet.pass_(INTERVAL)
    assert ([], {}) == (kubelet.recorded, kubelet.node.ownership.claims())
    assert ("released", ["gary"]) == kubelet.node.plugin.calls[-1]
    assert "forgotten claim released" in [one.message for one in caplog.records]


def test_a_claim_that_the_api_server_has_stays_and_is_rarely_asked_for(
    kubelet: Kubelet, claim: Claim
) -> None:
    kubelet.pass_(10 * SPAN)
    assert [claim.uid] == kubelet.recorded
    assert 4 == kubelet.server.reads  # in 100 min


def test_a_claim_that_the_kubelet_names_stays(kubelet: Kubelet, claim: Claim) -> None:
    kubelet.says(claim)
    deleted(kubelet.node)
    kubelet.pass_(10 * SPAN)
    assert ([claim.uid], 0) == (kubelet.recorded, kubelet.server.reads)


@pytest.mark.parametrize("what", ["unknown", "incomplete", "no pods", "unregistered", "named"])
def test_any_doubt_begins_the_wait_anew(kubelet: Kubelet, claim: Claim, what: str) -> None:
    deleted(kubelet.node)
    kubelet.pass_(SPAN - INTERVAL)
    named = [claim] if what == "named" else []
    kubelet.says(*named, complete=what != "incomplete", pods=what != "no pods")
    if what == "unknown":
        kubelet.holdings = None
    kubelet.registered = what != "unregistered"
    kubelet.pass_(2 * INTERVAL)
    kubelet.says()
    kubelet.registered = True
    kubelet.pass_(SPAN - INTERVAL)
    assert [claim.uid] == kubelet.recorded
    kubelet.pass_(INTERVAL)
    assert [] == kubelet.recorded


def test_a_claim_that_is_prepared_again_meanwhile_is_not_forgotten(
    kubelet: Kubelet, claim: Claim
) -> None:
    kubelet.pass_(SPAN - INTERVAL)
    again = kubelet.node.allocate("one", result("gina"))
    kubelet.node.prepare(again)
    deleted(kubelet.node)
    kubelet.pass_(SPAN - INTERVAL)
    assert [claim.uid] == kubelet.recorded


def test_while_the_api_server_is_away_nothing_is_released(kubelet: Kubelet, claim: Claim) -> None:
    deleted(kubelet.node)
    kubelet.node.store.away = True
    kubelet.pass_(2 * SPAN)
    assert [claim.uid] == kubelet.recorded
    kubelet.node.store.away = False
    kubelet.pass_(3 * SPAN)
    assert [] == kubelet.recorded


def test_a_release_that_fails_is_repeated_and_reported_once(
    kubelet: Kubelet, claim: Claim, caplog: pytest.LogCaptureFixture
) -> None:
    deleted(kubelet.node)
    kubelet.node.plugin.errors["released"] = dp.AllocationError("stuck")
    kubelet.pass_(9 * SPAN)
    assert [claim.uid] == kubelet.recorded
    assert 1 == [one.message for one in caplog.records].count("forgotten claim not released")
    kubelet.node.plugin.errors.clear()
    kubelet.pass_(3 * SPAN)
    assert [] == kubelet.recorded


def test_its_thread_checks_until_it_is_stopped(kubelet: Kubelet, claim: Claim) -> None:
    deleted(kubelet.node)
    thread = threading.Thread(target=kubelet.forgotten.run)
    thread.start()
    for _ in range(21):
        assert INTERVAL == kubelet.clock.skip_wait()
    kubelet.clock.wait_for_wait()
    assert claim.uid not in kubelet.recorded
    kubelet.forgotten.stop()
    thread.join(PATIENCE)
    assert not thread.is_alive()
