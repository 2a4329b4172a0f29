"""Parts of hardware: which are listed, by which protocol, and which exclude each other."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import deviceplugin as dp
from deviceplugin._attribution.ownership import Claim, Mode, Ownership
from deviceplugin._attribution.podresources import Hold, Holdings
from deviceplugin._attribution.poll_schedule import AttributionTiming
from deviceplugin._discovery.found import describe, discover, sort_out
from deviceplugin._discovery.plugin_check import check_plugins
from deviceplugin._http.devices_report import attribution
from deviceplugin._inventory.published import Resource, encode_list
from deviceplugin._kubelet.offer import Offer
from drivers.cakes import RESOURCE, Cakes, Kitchen
from scripted_plugin import ScriptedPlugin

TIMING = AttributionTiming.of(30)._replace(handover_confirm=0.0)
OF = dp.Counters("cake", {"quarters": 4})
HALF = dp.Part(OF, {"quarters": 2})


def odd(what: Any, **fields: Any) -> Any:
    """Return ``what`` with ``fields`` as only an author without a type checker has them."""
    return replace(what, **fields)


def claim(name: str) -> Claim:
    return Claim("default", name, f"uid-{name}")


def key(device_id: str) -> tuple[str, str]:
    return RESOURCE, device_id


class Table:
    """Cakes, and who may have what of them."""

    def __init__(self, mode: Mode = "dra", *cakes: str) -> None:
        self.plugin = Cakes(Kitchen(*(cakes or ("cake",))))
        self.resource = Resource(RESOURCE, self.plugin)
        self.discover()
        self.ownership = Ownership(mode, timing=TIMING, resources=lambda: {RESOURCE: self.resource})
        self.pods()

    def discover(self) -> list[dp.Device]:
        groups, problems = discover(self.plugin)
        assert not problems
        return self.resource.publish(groups[RESOURCE].values())

    def pods(self, *ids: str) -> None:
        holds = frozenset(Hold(RESOURCE, one, "default", "pod", "main") for one in ids)
        self.ownership.observe(Holdings(holds, frozenset({("default", "pod")})), (0, 0, 0))

    def take(self, name: str, *ids: str) -> str:
        """Have a claim get ``ids``; return why it does not."""
        try:
            self.ownership.prepare(claim(name), [key(one) for one in ids])
        except dp.AllocationError as error:
            return str(error)
        return ""

    def allocate(self, *ids: str) -> str:
        """Have a pod get ``ids``; return why it does not."""
        try:
            with self.ownership.allocating(RESOURCE, ids):
                return ""
        except dp.AllocationError as error:
            return str(error)

    def tainted(self) -> dict[str, str]:
        states = self.ownership.offered(self.resource)
        return {one: state.reason for one, state in states.items() if state.taint}

    def withheld(self) -> dict[str, str]:
        return dict(self.ownership.withheld(RESOURCE, self.resource.listed))


# What is found.


@pytest.mark.parametrize(
    ("part", "problem"),
    [
        ("half", "part 'half' is not a Part"),
        (odd(HALF, of={"quarters": 4}), "part of {'quarters': 4}, which is not Counters"),
        (
            odd(HALF, of=odd(OF, name="")),
            "part: the name of counters '' must be a string that is not empty",
        ),
        (
            odd(HALF, of=odd(OF, amounts={})),
            "part: counters 'cake' has 0 counters, of 1 to 32",
        ),
        (
            odd(HALF, of=odd(OF, amounts={f"q{n}": 1 for n in range(33)})),
            "part: counters 'cake' has 33 counters, of 1 to 32",
        ),
        (
            odd(HALF, of=odd(OF, amounts=["quarters"])),
            "part: counters 'cake' is of type list, not a mapping",
        ),
        (
            odd(HALF, of=odd(OF, amounts={"quarters": -1})),
            "part: counters 'cake': quarters is -1, not a whole number from 0",
        ),
        *(
            (
                odd(HALF, consumes={"quarters": given}),
                f"part: what it consumes: quarters is {given!r}, not a whole number from 0",
            )
            for given in (-1, 1.5, True, 2**63, "2")
        ),
        (
            odd(HALF, consumes={"slices": 1}),
            "part: what it consumes: slices is none of its counters: quarters",
        ),
        (
            odd(HALF, consumes={"quarters\n": 1}),
            (
                "part: what it consumes: counter 'quarters\\n' has control characters, "
                "unreadable bytes or blanks at an end"
            ),
        ),
        (odd(HALF, consumes={}), "part: what it consumes has 0 counters, of 1 to 32"),
        (odd(HALF, groups=["a", 1]), "part: group 1 must be a string that is not empty"),
        (
            odd(HALF, groups=[f"g{n}" for n in range(33)]),
            "part: it has 33 groups, of at most 32",
        ),
        (odd(HALF, on_demand="yes"), "part: on_demand 'yes' is not a bool"),
        (
            odd(HALF, identity="a\n"),
            "part: identity 'a\\n' has control characters or unreadable bytes",
        ),
        (odd(HALF, identity=1), "part: identity 1 must be a string that is not empty"),
        (
            odd(HALF, identity="i" * 254),
            f"part: identity '{'i' * 63}...' has 254 characters, of at most 253",
        ),
    ],
)
def test_a_part_that_cannot_be_is_skipped_and_said(part: Any, problem: str) -> None:
    bad, good = dp.Device("bad", part=part), dp.Device("good", part=HALF)
    groups, problems = sort_out([bad, good], RESOURCE, makes=True)
    assert ({f"device bad: {problem}": 1}, ["good"]) == (problems, list(groups[RESOURCE]))


def test_a_share_is_never_a_part() -> None:
    _, problems = sort_out([dp.Device("a", share_of="b", part=HALF)], RESOURCE, makes=True)
    assert [
        "device a: a share cannot be a part: its counters would be counted for each share"
    ] == list(problems)


OTHER = replace(HALF, of=replace(OF, amounts={"quarters": 8}))
DISPUTED = "part of cake, which has other amounts, or another resource, than most of its parts say"


@pytest.mark.parametrize(
    "odd", [dp.Device("odd", part=OTHER), dp.Device("odd", resource="x.io/b", part=HALF)]
)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_of_parts_that_contradict_each_other_most_are_right(odd: dp.Device, place: int) -> None:
    devices = [dp.Device("a", part=HALF), dp.Device("b", part=HALF)]
    devices.insert(place, odd)
    groups, problems = sort_out(devices, RESOURCE, makes=True)
    assert {f"device odd: {DISPUTED}": 1} == problems
    assert ["a", "b"] == list(groups[RESOURCE])


def test_without_make_part_there_are_no_parts_on_demand() -> None:
    whole = dp.Device("whole", part=replace(HALF, on_demand=False))
    found = sort_out([whole, dp.Device("half", part=HALF)], RESOURCE)
    said = "device half: it is made on demand, but the plugin has no make_part()"
    assert ({RESOURCE: {"whole": whole}}, Counter({said: 1})) == found


def test_a_plugin_both_makes_and_removes_parts_in_a_time() -> None:
    members = {"make_part": Cakes.make_part, "unmake_part": Cakes.unmake_part}

    def plugin(*names: str, **more: object) -> dp.Plugin:
        made: dp.Plugin = type("Half", (ScriptedPlugin,), {n: members[n] for n in names} | more)()
        return made

    check_plugins([plugin("make_part", "unmake_part"), plugin(part_timeout="soon")])
    for names, more, problem in (
        (["make_part"], {}, "make_part() is there without unmake_part()"),
        (["unmake_part"], {}, "unmake_part() is there without make_part()"),
        (["make_part", "unmake_part"], {"part_timeout": "1m"}, "part_timeout '1m' is not a number"),
        (["make_part", "unmake_part"], {"part_timeout": 0}, "part_timeout 0 is not a number"),
    ):
        with pytest.raises(dp.ConfigError) as raised:
            check_plugins([plugin(*names, **more)])
        assert problem in str(raised.value)


def test_a_part_is_described_in_json() -> None:
    part = replace(HALF, groups=["g"])
    assert {
        "of": "cake",
        "amounts": {"quarters": 4},
        "consumes": {"quarters": 2},
        "groups": ["g"],
        "on_demand": True,
    } == describe(dp.Device("a", part=part), 0)["part"]
    assert "part" not in describe(dp.Device("a"), 0)


# By the device plugin.


def test_the_device_plugin_lists_wholes_and_no_parts_on_demand() -> None:
    table = Table("device-plugin", "a", "b")
    assert 14 == len(table.resource.devices)
    assert ["a", "b"] == list(table.resource.listed)
    expected = encode_list([dp.Device("a"), dp.Device("b")])
    assert expected == Offer(table.resource, table.ownership).latest()
    table.plugin.whole = False
    table.discover()
    offer = Offer(table.resource, table.ownership)
    assert (b"", False) == (offer.latest(), offer.is_wanted)


def test_that_a_part_changes_is_news_for_others_than_the_kubelet() -> None:
    table = Table("device-plugin")
    news: list[str] = []
    table.resource.subscribe(lambda: news.append("changed"))
    assert ([], []) == (table.discover(), news)
    sick = replace(table.resource.devices["cake/half@0"], health=dp.Health.unhealthy("burnt"))
    devices = [sick if one.id == sick.id else one for one in table.resource.devices.values()]
    assert ([sick], ["changed"]) == (table.resource.publish(devices), news)


# Who excludes whom.

NO_ROOM = "cake/half@0 is without room: 2 quarters of cake are needed, and 1 of 4 are free beside "


def test_claims_get_parts_until_a_counter_is_used_up() -> None:
    table = Table()
    assert "" == table.take("one", "cake/half@2", "cake/quarter@0")
    assert f"{NO_ROOM}cake/half@2, cake/quarter@0" == table.take("two", "cake/half@0")
    assert "cake/quarter@2 is without room: 1 quarter-2 of cake are needed" in table.take(
        "two", "cake/quarter@2"
    )
    assert "without room" in table.take("two", "cake")
    assert {} == table.tainted(), "Kubernetes knows what claims have"
    assert "" == table.take("two", "cake/quarter@1")
    table.ownership.unprepare("uid-one")
    table.ownership.unprepare("uid-two")
    assert "without room" in table.take("two", "cake/half@0", "cake/quarter@1"), "both at once"
    assert "" == table.take("two", "cake")
    assert "without room" in table.take("one", "cake/quarter@0")


def test_what_a_claim_has_it_keeps_whatever_others_do_to_the_counters() -> None:
    table = Table()
    assert "" == table.take("one", "cake/half@0")
    table.plugin.made = {"cake/half@0": "cut-1"}
    table.plugin.kitchen.strange = {"cake/half@2": "x"}
    table.discover()
    table.plugin.made = {}
    table.plugin.kitchen.strange |= {"cake/quarter@0": "y"}
    table.discover()
    assert "" == table.take("one", "cake/half@0")
    assert (
        "cake/half@0 is without room: 3 quarters of cake are needed, and 1 of 1 are free"
        == table.take("one", "cake/half@0", "cake/quarter@1")
    )


GROUPS = {"half@0": ["a", "b"], "half@2": ["c"], "quarter@2": ["b"], "quarter@3": ["a"]}


@pytest.mark.parametrize(
    ("first", "second", "fits"),
    [
        (["half@0"], ["half@2"], False),
        (["half@0"], ["quarter@2"], True),
        (["half@0"], ["quarter@3"], True),
        (["half@0", "quarter@2"], ["quarter@3"], False),
        (["quarter@0"], ["quarter@1"], True),
        (["quarter@0"], ["quarter@3"], False),
        (["quarter@3"], ["quarter@0"], False),
    ],
)
def test_parts_without_a_group_in_common_are_not_there_together(
    first: list[str], second: list[str], *, fits: bool
) -> None:
    table = Table()
    table.plugin.groups = GROUPS
    table.discover()
    assert "" == table.take("one", *(f"cake/{name}" for name in first))
    why = table.take("two", *(f"cake/{name}" for name in second))
    assert fits == (not why), why
    if not fits:
        assert "it has no group in common with the other parts of cake beside cake/" in why


def test_of_many_parts_in_the_way_five_are_named() -> None:
    room = "0 of 8 are free beside "
    table = Table()
    of = dp.Counters("pie", {"eighths": 8})
    parts = [dp.Device(f"pie/{n}", part=dp.Part(of, {"eighths": 1})) for n in range(9)]
    table.resource.publish(parts)
    assert "" == table.take("one", *(one.id for one in parts[:8]))
    expected = f"{room}pie/0, pie/1, pie/2, pie/3, pie/4 and 3 more"
    assert expected in table.take("two", "pie/8")


def test_a_whole_that_a_pod_has_closes_its_parts_and_the_other_way_round() -> None:
    table = Table("device-plugin", "cake", "pie")
    assert "" == table.take("one", "cake/quarter@0")
    assert ["cake"] == list(table.withheld())
    assert "cake is without room: 4 quarters of cake are needed" in table.allocate("cake")
    assert "" == table.allocate("pie")
    assert "pie/half@0 is without room" in table.take("two", "pie/half@0")
    table.ownership.unprepare("uid-one")
    assert {} == table.withheld()


def test_in_slices_parts_of_a_whole_that_a_pod_has_are_held() -> None:
    table = Table("dra", "cake", "pie")
    table.pods("cake")
    closed = table.tainted()
    assert {"cake"} | {f"cake/{name}" for name in ("half@0", "half@2", *QUARTERS)} == {*closed}
    assert "held by pod default/pod through the device plugin" == closed["cake"]
    assert closed["cake/half@0"].endswith("0 of 4 are free beside cake")


QUARTERS = [f"quarter@{n}" for n in range(4)]


def test_in_a_switch_parts_are_offered_once_the_kubelet_cannot_give_out_their_whole() -> None:
    table = Table("device-plugin")
    table.pods("cake")
    table.ownership.switch("dra")
    assert 7 == len(table.tainted())
    table.ownership.acknowledged([])
    for _ in range(3):
        table.pods()
    assert ({}, frozenset()) == (table.tainted(), table.ownership.leaving)
    table.ownership.switch("device-plugin")
    assert ["cake"] == list(table.withheld())
    table.ownership.published([key("cake/half@0")])
    assert {} == table.withheld()
    assert {key("cake/half@0")} == table.ownership.leaving
    table.ownership.published([])
    assert frozenset() == table.ownership.leaving


@pytest.mark.parametrize(
    "lose",
    [
        lambda table: table.resource.publish([table.resource.devices["cake"]]),
        lambda _table: None,
    ],
)
def test_what_a_restored_claim_has_counts_even_if_the_plugin_does_not_list_it(
    lose: Callable[[Table], object],
) -> None:
    table = Table("device-plugin")
    lose(table)
    part = dp.Part(dp.Counters("cake", {}), {"quarters": 1})
    table.ownership.restore(
        {claim("one"): [key("cake/quarter@0")]}, parts={key("cake/quarter@0"): part}
    )
    assert "3 of 4 are free beside cake/quarter@0" in table.withheld()["cake"]
    table.ownership.unprepare("uid-one")
    assert {} == table.withheld()


@pytest.mark.parametrize(
    ("held", "allocatable", "free"),
    [([], 2, 2), (["pie"], 2, 1), (["cake/half@0"], 3, 1), (["cake/half@0", "pie"], 3, 0)],
)
def test_of_parts_metrics_count_those_that_somebody_has(
    held: list[str], allocatable: int, free: int
) -> None:
    table = Table("dra", "cake", "pie")
    holds = frozenset(Hold(RESOURCE, one, "default", "pod", "main") for one in held)
    found = attribution(table.resource, Holdings(holds))
    assert (allocatable, free) == (found.allocatable, found.free)
