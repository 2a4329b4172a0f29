"""Shares of devices in clusters that count them, and in those that drop what says so."""

import threading
from collections.abc import Callable, Iterator

import pytest

from deviceplugin._attribution.ownership import HELD, OfferState
from deviceplugin._attribution.poll_schedule import Key
from deviceplugin._dra.naming import device_name
from deviceplugin._dra.slices.attributes import Describer
from deviceplugin._dra.slices.pools import Offers, PoolCatalogue, Site
from deviceplugin._dra.slices.publisher import Publisher
from deviceplugin._platform.api_errors import ApiServerError, ForbiddenError, UnavailableError
from deviceplugin.kit import sharing
from deviceplugin.model import Device
from dra.memory_store import MemoryStore
from held_clock import HeldClock
from patience import PATIENCE, eventually

DRIVER, NODE, RESOURCE = "gopher.example.com", "n1", "example.com/gopher"
SHARES = [share.id for share in sharing.shares(Device("gary"), 3)]
SINGLE = sorted(map(device_name, SHARES))


class Publishing:
    """A publisher in its thread, and what it offers of a device with three shares."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.clock = HeldClock()
        self.held: set[str] = set()
        self.mode = "shares"
        self.published: list[frozenset[Key]] = []
        self.publisher = Publisher(
            self.store,
            Site(DRIVER, NODE),
            catalogue=PoolCatalogue(Describer(DRIVER), NODE, "no-schedule"),
            offers=self.offers,
            published=lambda keys: self.published.append(frozenset(keys)),
            clock=self.clock,
        )
        self.thread = threading.Thread(target=self.publisher.run)

    def offers(self) -> Offers:
        if self.mode == "nothing":
            return {}
        devices = {
            "shares": [*sharing.shares(Device("gary"), 3)],
            "plain": [Device("gary")],
        }[self.mode]
        taints = {one.id: HELD if one.id in self.held else "" for one in devices}
        return {RESOURCE: {one.id: OfferState(one, True, taints[one.id], "") for one in devices}}

    def start(self) -> None:
        self.thread.start()

    def until(self, condition: Callable[[], object], what: str) -> None:
        def checked() -> object:
            if found := condition():
                return found
            self.clock.end_waits()
            return None

        eventually(checked, what)

    def names(self) -> list[str]:
        return sorted(
            one["name"] for each in self.store.slices.values() for one in each["spec"]["devices"]
        )

    def capacities(self) -> list[str]:
        return [
            one["capacity"]["shares"]["value"]
            for each in self.store.slices.values()
            for one in each["spec"]["devices"]
            if "allowMultipleAllocations" in one
        ]


@pytest.fixture
def publishing() -> Iterator[Publishing]:
    found = Publishing()
    yield found
    found.publisher.stop()
    if found.thread.ident:
        found.thread.join(PATIENCE)
    assert not found.thread.is_alive()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.message for one in caplog.records if one.levelname == "WARNING"]


def test_a_cluster_that_counts_shares_is_asked_once(publishing: Publishing) -> None:
    publishing.start()
    publishing.until(lambda: publishing.capacities() == ["3"], "the device")
    everything = frozenset((RESOURCE, one) for one in SHARES)
    publishing.until(lambda: publishing.published[-1:] == [everything], "what is published")
    publishing.held.add(SHARES[0])
    publishing.publisher.poke()
    publishing.until(lambda: publishing.capacities() == ["2"], "one less")
    publishing.mode = "nothing"
    publishing.publisher.poke()
    publishing.until(lambda: publishing.published[-1:] == [frozenset()], "nothing")
    asked = [text.split()[0] for text in publishing.store.asked]
    assert ["try", "create", "replace", "delete"] == asked


def test_a_cluster_without_shared_devices_is_not_asked(publishing: Publishing) -> None:
    publishing.mode = "plain"
    publishing.start()
    publishing.until(lambda: publishing.names() == ["gary"], "the device")
    assert "try out" not in publishing.store.asked


def test_where_shares_are_not_counted_each_is_a_device_from_the_start(
    publishing: Publishing, caplog: pytest.LogCaptureFixture
) -> None:
    publishing.store.counts_shares = False
    publishing.start()
    publishing.until(lambda: publishing.names() == SINGLE, "the shares")
    publishing.held.add(SHARES[0])
    writes = len(publishing.store.asked)
    publishing.publisher.poke()
    publishing.until(lambda: len(publishing.store.asked) > writes, "a taint")
    asked = [text.split()[0] for text in publishing.store.asked]
    assert ["try", "create", "replace"] == asked
    assert ["shares not counted by the cluster"] == warnings(caplog)


def test_a_server_that_drops_shares_later_gets_each_as_a_device(
    publishing: Publishing, caplog: pytest.LogCaptureFixture
) -> None:
    """As when one of several API servers is older, or the feature was switched off."""
    publishing.start()
    publishing.until(lambda: publishing.capacities() == ["3"], "the device")
    publishing.store.counts_shares = False
    publishing.held.add(SHARES[0])
    publishing.publisher.poke()
    publishing.until(lambda: publishing.names() == SINGLE, "the shares")
    publishing.store.counts_shares = True
    publishing.held.clear()
    publishing.publisher.poke()
    publishing.until(lambda: "taints" not in str(publishing.store.slices), "no taint")
    assert SINGLE == publishing.names()
    assert ["shares not counted by the cluster"] == warnings(caplog)


@pytest.mark.parametrize("status", [400, 422])
def test_a_webhook_that_refuses_dry_runs_decides_nothing(
    publishing: Publishing, status: int
) -> None:
    publishing.store.errors = [ApiServerError("does not support dry run", status=status)]
    publishing.start()
    publishing.until(lambda: publishing.capacities() == ["3"], "the device")


def test_a_server_that_cannot_be_asked_is_asked_again(publishing: Publishing) -> None:
    publishing.store.errors = [
        UnavailableError("away"),
        ForbiddenError("no", status=403),
        UnavailableError("away"),
    ]
    publishing.start()
    publishing.until(lambda: publishing.capacities() == ["3"], "the device")
    assert 4 == publishing.store.asked.count("try out")
