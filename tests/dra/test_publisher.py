"""Keeping slices current, whatever the API server, the kubelet and people do to them."""

import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from typing_extensions import override

from deviceplugin._attribution.ownership import UNHEALTHY, OfferState
from deviceplugin._attribution.poll_schedule import Key
from deviceplugin._config.slices import HELD
from deviceplugin._dra.naming import device_name, pool_name, slice_name
from deviceplugin._dra.slices.attributes import Describer
from deviceplugin._dra.slices.pools import Offers, PoolCatalogue, Site
from deviceplugin._dra.slices.publisher import BURST, REFILL, Publisher
from deviceplugin._platform.api_errors import (
    ApiServerError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    UnavailableError,
)
from deviceplugin.kit import sharing as sharing_of
from deviceplugin.model import Counters, Device, Part, Topology
from dra.memory_store import MemoryStore
from held_clock import HeldClock
from patience import PATIENCE, eventually

DRIVER, NODE, RESOURCE = "gopher.example.com", "n1", "example.com/gopher"
POOL = pool_name(NODE, RESOURCE)
_P = TypeVar("_P", bound="Publishing")


def name(index: int) -> str:
    return slice_name(DRIVER, NODE, POOL, index)


class Publishing:
    """A publisher in its thread, the API server that it has, and the devices that it offers."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.clock = HeldClock()
        self.devices: dict[str, str] | None = {"a": "", "b": ""}
        self.published: list[frozenset[Key]] = []
        self.counted: list[tuple[str, bool]] = []
        self.error: Exception | None = None
        self.looked = 0
        self.publisher = Publisher(
            self.store,
            Site(DRIVER, NODE),
            catalogue=PoolCatalogue(Describer(DRIVER), NODE, "no-schedule"),
            offers=self.offers,
            published=lambda keys: self.published.append(frozenset(keys)),
            count=lambda action, succeeded: self.counted.append((action, succeeded)),
            clock=self.clock,
        )
        self.thread = threading.Thread(target=self._run)

    def offers(self) -> Offers | None:
        self.looked += 1
        if self.devices is None:
            return None
        if not self.devices:
            return {}
        states = {
            key: OfferState(Device(key), True, taint, "") for key, taint in self.devices.items()
        }
        return {RESOURCE: states}

    def _run(self) -> None:
        try:
            self.publisher.run()
        except RuntimeError as error:
            self.error = error

    def offer(self, devices: dict[str, str] | None) -> None:
        self.devices = devices
        self.publisher.poke()

    def until(self, condition: Callable[[], Any], what: str) -> None:
        """Let all waits pass until ``condition()``."""

        def checked() -> Any:
            if found := condition():
                return found
            self.clock.end_waits()
            return None

        eventually(checked, what)

    def look(self, times: int) -> None:
        """Make the publisher look at what is offered so many times."""
        for _ in range(times):
            before = self.looked
            self.publisher.poke()
            self.until(lambda: self.looked > before, "a look")  # noqa: B023

    def has(self, *device_ids: str) -> Callable[[], bool]:
        return lambda: self.names() == [*device_ids] and self.settled(device_ids)

    def settled(self, device_ids: Any) -> bool:
        wanted = frozenset((RESOURCE, device_id) for device_id in device_ids)
        return bool(self.published) and self.published[-1] == wanted

    def names(self) -> list[str] | None:
        one = self.store.slices.get(name(0))
        return None if one is None else [device["name"] for device in one["spec"]["devices"]]

    def writes(self) -> list[str]:
        return [text for text in self.store.asked if text != "list"]


def stopped_afterwards(publishing: _P) -> Iterator[_P]:
    yield publishing
    publishing.publisher.stop()
    if publishing.thread.ident:
        publishing.thread.join(PATIENCE)
    assert not publishing.thread.is_alive()


@pytest.fixture
def publishing() -> Iterator[Publishing]:
    yield from stopped_afterwards(Publishing())


@pytest.fixture
def running(publishing: Publishing) -> Publishing:
    publishing.thread.start()
    publishing.until(publishing.has("a", "b"), "the first slices")
    return publishing


def test_slices_are_published_and_follow_the_devices(running: Publishing) -> None:
    assert [f"create {name(0)}"] == running.store.asked
    assert [("create", True)] == running.counted
    running.offer({"a": UNHEALTHY, "b": ""})
    running.until(lambda: "taints" in running.store.slices[name(0)]["spec"]["devices"][0], "taint")
    running.offer({"b": "", "c": HELD})
    running.until(running.has("b", "c"), "other devices")
    assert 3 == len(running.writes())
    assert "" == running.publisher.problem()
    running.offer({})
    running.until(lambda: running.settled(()), "the acknowledgement that all is withdrawn")
    assert {} == running.store.slices


def test_nothing_is_written_while_it_is_not_known_what_is_offered(publishing: Publishing) -> None:
    publishing.devices = None
    publishing.thread.start()
    publishing.until(lambda: publishing.store.watches, "the watch")
    publishing.look(3)
    assert [] == publishing.store.asked
    publishing.offer({"a": ""})
    publishing.until(publishing.has("a"), "the slices")
    publishing.offer(None)
    publishing.store.wipe()
    publishing.look(3)
    assert 1 == len(publishing.writes())
    publishing.offer({"a": ""})
    publishing.until(publishing.has("a"), "the slices, once more")


def test_a_device_is_acknowledged_only_once_the_server_has_answered(running: Publishing) -> None:
    running.store.lost = True
    running.store.errors.append(UnavailableError("timeout"))
    before = len(running.published)
    running.offer({"a": ""})
    running.until(running.publisher.problem, "the timeout")
    assert before == len(running.published)
    running.until(running.has("a"), "the slices")


def test_slices_that_are_wiped_while_they_are_compared_are_not_replaced(
    running: Publishing,
) -> None:
    offers, known = running.publisher.offers, running.publisher._known

    def wiped_meanwhile() -> Offers | None:
        running.publisher.offers = offers
        running.store.wipe()
        eventually(lambda: known.current() == [], "the watch")
        return offers()

    running.publisher.offers = wiped_meanwhile
    running.publisher.poke()
    running.until(lambda: len(running.writes()) > 1 and running.store.slices, "the slices")
    assert [f"create {name(0)}"] * 2 == running.writes()


def test_an_edit_by_hand_is_restored_and_a_label_is_not_touched(running: Publishing) -> None:
    running.store.edit(name(0), lambda one: one["metadata"].update(labels={"x": "y"}))
    running.store.edit(
        name(0), lambda one: one["spec"]["devices"][0]["attributes"].update(id={"string": "evil"})
    )
    running.until(lambda: len(running.writes()) == 2, "the repair")
    one = running.store.slices[name(0)]
    assert {"string": "a"} == one["spec"]["devices"][0]["attributes"]["id"]
    assert {"x": "y"} == one["metadata"]["labels"]


def test_it_stops_between_two_writes(publishing: Publishing) -> None:
    publishing.devices = {f"d{i:03}": "" for i in range(130)}
    publishing.store.on_write = publishing.publisher.stop
    publishing.thread.start()
    publishing.until(lambda: not publishing.thread.is_alive(), "the end")
    assert 1 == len(publishing.writes())


def test_after_a_registration_slices_are_listed_though_the_watch_is_dead(
    running: Publishing,
) -> None:
    running.store.deaf = True
    running.store.wipe()
    running.publisher.registered()
    running.until(lambda: name(0) in running.store.slices, "the slices")
    assert 1 == running.store.asked.count("list")
    assert running.clock.now() >= 5


def test_slices_are_published_once_they_were_checked_after_the_registration(
    running: Publishing,
) -> None:
    publisher = running.publisher
    running.until(lambda: publisher.is_settled, "the first slices")
    running.store.deaf = True
    running.store.wipe()  # as a kubelet that starts does
    publisher.registered()
    assert not publisher.is_settled
    running.until(lambda: publisher.is_settled, "the check")
    assert name(0) in running.store.slices
    running.offer(None)
    running.until(lambda: not publisher.is_settled, "that nothing is known")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (UnavailableError("away"), "away"),
        (
            ForbiddenError("no", status=403),
            "no; apply the ClusterRole, its binding and the policy of the component dra",
        ),
        (ForbiddenError("who", status=401), "who; is the token of the component dra mounted?"),
        (InvalidError("bad", status=400), "bad"),
    ],
)
def test_an_error_is_reported_once_and_tried_again_ever_later(
    running: Publishing, caplog: pytest.LogCaptureFixture, error: ApiServerError, text: str
) -> None:
    running.store.errors += [error] * 4
    began = running.clock.now()
    running.offer({"a": ""})
    running.until(lambda: text == running.publisher.problem(), "the problem")
    running.until(running.has("a"), "the slices")
    running.until(lambda: not running.publisher.problem(), "no problem")
    assert running.clock.now() - began >= 4
    (line,) = [one for one in caplog.records if one.levelno == logging.WARNING]
    assert ("slices not published", text) == (line.message, vars(line)["error"])
    assert 4 == running.counted.count(("replace", False))


def test_the_server_is_given_the_time_that_it_asks_for(running: Publishing) -> None:
    running.store.errors.append(UnavailableError("busy", status=429, after=100))
    began = running.clock.now()
    running.offer({"a": ""})
    running.until(running.publisher.problem, "the problem")
    running.publisher.registered()
    running.until(running.has("a"), "the slices")
    assert running.clock.now() - began >= 100


def test_a_registration_ends_a_long_wait(running: Publishing) -> None:
    running.store.errors += [UnavailableError("away")] * 12
    running.offer({"a": ""})
    running.until(lambda: len(running.store.errors) == 4, "many failures")
    del running.store.errors[1:]
    running.until(lambda: not running.store.errors, "one more")
    began = running.clock.now()
    running.publisher.registered()
    running.until(running.has("a"), "the slices")
    assert running.clock.now() - began < 60


@pytest.mark.parametrize("error", [ConflictError("changed", status=409), NotFoundError("gone")])
def test_after_a_conflict_the_slices_are_listed_and_written_at_once(
    running: Publishing, caplog: pytest.LogCaptureFixture, error: ApiServerError
) -> None:
    running.store.errors.append(error)
    began = running.clock.now()
    running.offer({"a": ""})
    running.until(running.has("a"), "the slices")
    assert running.clock.now() - began < 1
    assert [f"replace {name(0)}", "list", f"replace {name(0)}"] == running.store.asked[1:]
    assert [] == [one for one in caplog.records if one.levelno == logging.WARNING]


def test_a_name_that_somebody_else_has_is_not_tried_all_the_time(publishing: Publishing) -> None:
    publishing.store.errors += [ConflictError("exists", status=409)] * 20
    publishing.thread.start()
    publishing.until(lambda: publishing.publisher.problem() == "exists", "the problem")
    publishing.until(publishing.has("a", "b"), "the slices")
    assert publishing.clock.now() > 30


def test_a_slice_that_somebody_else_deletes_meanwhile_is_gone(running: Publishing) -> None:
    running.store.errors.append(NotFoundError("gone", status=404))
    running.store.deaf = True
    running.offer({})
    running.until(lambda: running.settled(()), "no slices")
    assert [f"delete {name(0)}"] == running.writes()[1:]


def test_a_refused_device_hides_no_other(
    publishing: Publishing, caplog: pytest.LogCaptureFixture
) -> None:
    causes = [("spec.devices[1].name", "ugly"), ("spec.devices[1]", "odd"), ("spec", "x")]
    causes += [("spec.devices[9].name", "who")]
    publishing.store.errors.append(InvalidError("invalid", status=422, causes=causes))
    publishing.devices = {"a": "", "b": "", "c": ""}
    publishing.thread.start()
    publishing.until(publishing.has("a", "c"), "the others")
    assert {(RESOURCE, "b"): "odd"} == publishing.publisher.refused()
    assert "" == publishing.publisher.problem()
    lines = [vars(one) for one in caplog.records if one.levelno == logging.WARNING]
    assert ["name: ugly", "odd"] == [line["error"] for line in lines]
    assert {("b", RESOURCE)} == {(line["device"], line["resource"]) for line in lines}
    publishing.offer({"a": "", "b": HELD, "c": ""})
    publishing.until(publishing.has("a", "b", "c"), "the device, which has changed")
    assert {} == publishing.publisher.refused()


def test_a_refused_slice_hides_no_other(publishing: Publishing) -> None:
    publishing.devices = {f"d{i:03}": "" for i in range(130)}
    publishing.store.errors.append(InvalidError("bad", status=422, causes=[("spec.pool", "bad")]))
    publishing.thread.start()
    publishing.until(lambda: name(2) in publishing.store.slices, "the others")
    publishing.until(lambda: len(publishing.store.slices) == 3, "all")


def flap(running: Publishing) -> None:
    devices = {"a": UNHEALTHY if len(running.writes()) % 2 else "", "b": ""}
    if devices != running.devices:
        running.offer(devices)


def fight(running: Publishing) -> None:
    running.store.wipe(set(running.store.slices))


@pytest.mark.parametrize("trouble", [flap, fight])
def test_neither_health_that_flaps_nor_another_writer_keeps_the_server_busy(
    running: Publishing, trouble: Callable[[Publishing], None]
) -> None:
    began, before = running.clock.now(), len(running.writes())

    def written() -> bool:
        trouble(running)
        return len(running.writes()) >= before + BURST + 5

    running.until(written, "many writes")
    assert running.clock.now() - began >= 4 * REFILL


def test_a_watch_that_fails_is_a_problem_until_it_is_back(
    running: Publishing, caplog: pytest.LogCaptureFixture
) -> None:
    running.store.deaf = True
    running.store.failed(UnavailableError("away"))
    running.store.failed(UnavailableError("away"))
    before = len(running.published)
    running.publisher.poke()
    running.until(lambda: len(running.published) > before, "a look at slices that are right")
    assert "away" == running.publisher.problem()
    running.store.deaf = False
    running.offer({"a": ""})
    running.until(running.has("a"), "the slices")
    running.until(lambda: not running.publisher.problem(), "the end of the problem")
    assert 1 == len([one for one in caplog.records if one.levelno == logging.WARNING])


def test_a_defect_of_the_watch_ends_the_publisher(publishing: Publishing) -> None:
    publishing.store.defect = RuntimeError("a defect")
    publishing.thread.start()
    publishing.until(lambda: not publishing.thread.is_alive(), "the end")
    assert publishing.error is publishing.store.defect


def test_without_the_uid_of_the_node_slices_have_no_owner(publishing: Publishing) -> None:
    publishing.store.node_uid = ""
    publishing.thread.start()
    publishing.until(publishing.has("a", "b"), "the slices")
    assert "ownerReferences" not in publishing.store.slices[name(0)]["metadata"]


def test_what_had_to_be_cut_is_logged_once(
    publishing: Publishing, caplog: pytest.LogCaptureFixture
) -> None:
    device = "ä" * 63
    publishing.devices = {device: ""}
    publishing.thread.start()
    publishing.until(publishing.names, "the slices")
    publishing.offer({device: HELD})
    publishing.until(lambda: len(publishing.writes()) == 2, "a change")
    (line,) = [vars(one) for one in caplog.records if one.message == "device cut in slices"]
    assert line["problem"].endswith("id: is longer than 64 bytes")


# Shares of devices in clusters that count them, and in those that drop what says so.


SHARES = [share.id for share in sharing_of.shares(Device("gary"), 3)]
SINGLE = sorted(map(device_name, SHARES))


class Sharing(Publishing):
    """It offers a device with three shares, of which some are held."""

    def __init__(self) -> None:
        super().__init__()
        self.held: set[str] = set()
        self.offered = [*sharing_of.shares(Device("gary"), 3)]

    @override
    def offers(self) -> Offers:
        states = {
            one.id: OfferState(one, True, HELD if one.id in self.held else "", "")
            for one in self.offered
        }
        return {RESOURCE: states} if states else {}

    def in_slices(self) -> list[dict[str, Any]]:
        return [one for each in self.store.slices.values() for one in each["spec"]["devices"]]

    def devices_named(self) -> list[str]:
        return sorted(one["name"] for one in self.in_slices())

    def capacities(self) -> list[str]:
        return [
            one["capacity"]["shares"]["value"]
            for one in self.in_slices()
            if "allowMultipleAllocations" in one
        ]


@pytest.fixture
def sharing() -> Iterator[Sharing]:
    yield from stopped_afterwards(Sharing())


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.message for one in caplog.records if one.levelname == "WARNING"]


def test_a_cluster_that_counts_shares_is_asked_once(sharing: Sharing) -> None:
    sharing.thread.start()
    sharing.until(lambda: sharing.capacities() == ["3"], "the device")
    everything = frozenset((RESOURCE, one) for one in SHARES)
    sharing.until(lambda: sharing.published[-1:] == [everything], "what is published")
    sharing.held.add(SHARES[0])
    sharing.publisher.poke()
    sharing.until(lambda: sharing.capacities() == ["2"], "one less")
    sharing.offered = []
    sharing.publisher.poke()
    sharing.until(lambda: sharing.published[-1:] == [frozenset()], "nothing")
    asked = [text.split()[0] for text in sharing.store.asked]
    assert ["try", "create", "replace", "delete"] == asked


def test_where_shares_are_not_counted_each_is_a_device_from_the_start(
    sharing: Sharing, caplog: pytest.LogCaptureFixture
) -> None:
    sharing.store.counts_shares = False
    sharing.thread.start()
    sharing.until(lambda: sharing.devices_named() == SINGLE, "the shares")
    sharing.held.add(SHARES[0])
    writes = len(sharing.store.asked)
    sharing.publisher.poke()
    sharing.until(lambda: len(sharing.store.asked) > writes, "a taint")
    asked = [text.split()[0] for text in sharing.store.asked]
    assert ["try", "create", "replace"] == asked
    assert ["shares not counted by the cluster"] == warnings(caplog)


def test_a_server_that_drops_shares_later_gets_each_as_a_device(
    sharing: Sharing, caplog: pytest.LogCaptureFixture
) -> None:
    """As when one of several API servers is older, or the feature was switched off."""
    sharing.thread.start()
    sharing.until(lambda: sharing.capacities() == ["3"], "the device")
    sharing.store.counts_shares = False
    sharing.held.add(SHARES[0])
    sharing.publisher.poke()
    sharing.until(lambda: sharing.devices_named() == SINGLE, "the shares")
    sharing.store.counts_shares = True
    sharing.held.clear()
    sharing.publisher.poke()
    sharing.until(lambda: "taints" not in str(sharing.store.slices), "no taint")
    assert SINGLE == sharing.devices_named()
    assert ["shares not counted by the cluster"] == warnings(caplog)


NO_DRY_RUN = "does not support dry run"


@pytest.mark.parametrize(
    "errors",
    [
        pytest.param([ApiServerError(NO_DRY_RUN, status=400)], id="a webhook refuses dry runs"),
        pytest.param([ApiServerError(NO_DRY_RUN, status=422)], id="it calls them invalid"),
        pytest.param(
            [UnavailableError("away"), ForbiddenError("no", status=403), UnavailableError("away")],
            id="nobody can be asked for a while",
        ),
    ],
)
def test_a_server_that_does_not_answer_whether_it_counts_is_asked_again_or_believed(
    sharing: Sharing, errors: list[ApiServerError]
) -> None:
    sharing.store.errors = [*errors]
    sharing.thread.start()
    sharing.until(lambda: sharing.capacities() == ["3"], "the device")
    assert (4 if len(errors) == 3 else 1) == sharing.store.asked.count("try out")


# Attributes with several values, in clusters that keep them, and in those that do not.


NUMA = "resource.kubernetes.io/numaNode"
NO_LISTS = "lists not kept by the cluster"


class Listing(Publishing):
    """Its devices are near two NUMA nodes."""

    def __init__(self) -> None:
        super().__init__()
        describer = Describer(DRIVER, Path("/nowhere"), lists=True)
        self.publisher.catalogue = PoolCatalogue(describer, NODE, "no-schedule")
        self.facts = dict[str, str]()
        self.numa = [0]

    @override
    def offers(self) -> Offers:
        topology = Topology(self.numa)
        devices = [Device(one, topology=topology, attributes=self.facts) for one in "ab"]
        return {RESOURCE: {one.id: OfferState(one, True, "", "") for one in devices}}

    def values(self) -> list[Any]:
        (one,) = self.store.slices.values()
        return [each["attributes"][NUMA] for each in one["spec"]["devices"]]

    def is_published(self, *values: Any) -> Callable[[], bool]:
        return lambda: bool(self.store.slices) and self.values() == [*values]


@pytest.fixture
def listing() -> Iterator[Listing]:
    yield from stopped_afterwards(Listing())


def test_lists_are_published_where_they_are_kept_which_is_asked_once(listing: Listing) -> None:
    listing.thread.start()
    listing.until(listing.is_published({"ints": [0]}, {"ints": [0]}), "the lists")
    listing.numa = [0, 1]
    listing.publisher.poke()
    listing.until(listing.is_published({"ints": [0, 1]}, {"ints": [0, 1]}), "longer lists")
    assert ["try", "create", "replace"] == [text.split()[0] for text in listing.writes()]


@pytest.mark.parametrize("is_policy", [False, True], ids=["no gate", "a policy refuses dry runs"])
def test_without_lists_a_device_has_its_only_value(
    listing: Listing, caplog: pytest.LogCaptureFixture, *, is_policy: bool
) -> None:
    listing.store.keeps_lists = is_policy
    listing.store.errors = [ApiServerError(NO_DRY_RUN, status=422)] if is_policy else []
    listing.thread.start()
    listing.until(listing.is_published({"int": 0}, {"int": 0}), "the only value")
    assert ["try", "create"] == [text.split()[0] for text in listing.writes()]
    assert [NO_LISTS] == warnings(caplog)


def test_lists_that_are_refused_later_take_no_device_along(
    listing: Listing, caplog: pytest.LogCaptureFixture
) -> None:
    """As when the feature was switched off, or one of several API servers is older."""
    listing.thread.start()
    listing.until(listing.is_published({"ints": [0]}, {"ints": [0]}), "the lists")
    listing.store.keeps_lists = False
    listing.store.wipe()
    listing.until(listing.is_published({"int": 0}, {"int": 0}), "the only value")
    assert {} == listing.publisher.refused()
    assert [NO_LISTS] == warnings(caplog)


def test_a_device_that_is_refused_for_something_else_does_not_end_lists(listing: Listing) -> None:
    listing.thread.start()
    listing.until(listing.is_published({"ints": [0]}, {"ints": [0]}), "the lists")
    causes = [("spec.devices[0].attributes[x].string", "odd")]
    listing.store.errors = [InvalidError("invalid", status=422, causes=causes)]
    listing.facts = {"x": "y"}
    listing.publisher.poke()
    listing.until(listing.is_published({"ints": [0]}), "the other device")
    assert {(RESOURCE, "a"): "attributes[x].string: odd"} == listing.publisher.refused()


# Parts, in clusters that count them, and in those that do not.


class Parting(Publishing):
    """Its devices are a whole, and parts of it, one of them with a group."""

    @override
    def offers(self) -> Offers:
        self.looked += 1
        of = Counters("cake", {"quarters": 4})
        whole = Part(of, {"quarters": 4}, on_demand=False)
        half, grouped = Part(of, {"quarters": 2}), Part(of, {"quarters": 2}, ["g"])
        parts = {"whole": whole, "half": half, "grouped": grouped}
        devices = [Device(name, part=part) for name, part in parts.items()] + [Device("none")]
        return {RESOURCE: {one.id: OfferState(one, True, "", "") for one in devices}}

    def counted_devices(self) -> dict[str, bool]:
        """Return which devices are in the slices, and whether they take something of counters."""
        devices = [one["spec"].get("devices", ()) for one in self.store.slices.values()]
        return {one["name"]: "consumesCounters" in one for each in devices for one in each}

    def sets(self) -> list[str]:
        sets = [one["spec"].get("sharedCounters", ()) for one in self.store.slices.values()]
        return [one["name"] for each in sets for one in each]


@pytest.fixture
def parting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Parting]:
    monkeypatch.setattr("dra.memory_store.check_slice", lambda _one: ())
    yield from stopped_afterwards(Parting())


ALL_PARTS = {"whole": True, "half": True, "grouped": True, "none": False}
NO_GROUPS = {name: there for name, there in ALL_PARTS.items() if name != "grouped"}
NO_PARTS = {"whole": False, "none": False}


@pytest.mark.parametrize(
    ("keeps", "expected", "logged"),
    [
        ({}, ALL_PARTS, []),
        ({"keeps_groups": False}, NO_GROUPS, ["groups of parts not kept by the cluster"]),
        ({"keeps_counters": False}, NO_PARTS, ["parts not counted by the cluster"]),
    ],
)
def test_only_parts_that_the_cluster_counts_are_offered_which_is_asked_once(
    parting: Parting,
    caplog: pytest.LogCaptureFixture,
    keeps: dict[str, bool],
    expected: dict[str, bool],
    logged: list[str],
) -> None:
    vars(parting.store).update(keeps)
    parting.thread.start()
    parting.until(lambda: parting.counted_devices() == expected, "the devices")
    sets = ["cake"] if expected["whole"] else []
    parting.until(lambda: parting.sets() == sets, "the counters")
    parting.look(2)
    tries = 1 if logged == ["parts not counted by the cluster"] else 2
    assert tries == parting.store.asked.count("try out")
    assert logged == warnings(caplog)


def test_without_a_clear_answer_no_part_is_offered(parting: Parting) -> None:
    parting.store.errors = [ApiServerError(NO_DRY_RUN, status=422)]
    parting.thread.start()
    parting.until(lambda: parting.counted_devices() == NO_PARTS, "the devices")


@pytest.mark.parametrize(
    ("lacks", "expected"), [("keeps_counters", NO_PARTS), ("keeps_groups", NO_GROUPS)]
)
def test_parts_that_are_not_counted_any_more_are_withdrawn(
    parting: Parting, lacks: str, expected: dict[str, bool]
) -> None:
    parting.thread.start()
    parting.until(lambda: parting.sets() == ["cake"], "the counters")
    setattr(parting.store, lacks, False)
    parting.store.wipe()
    parting.until(lambda: parting.counted_devices() == expected, "the devices")


def test_counters_alone_that_are_dropped_end_parts_too(parting: Parting) -> None:
    parting.thread.start()
    parting.until(lambda: parting.sets() == ["cake"], "the counters")
    parting.store.keeps_counters = False
    parting.store.wipe(name for name in [*parting.store.slices] if name.endswith("-c000"))
    parting.until(lambda: parting.counted_devices() == NO_PARTS, "the devices")
