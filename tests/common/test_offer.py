"""What the kubelet is offered of a resource, without a kubelet."""

from collections.abc import Sequence

import pytest
from typing_extensions import override

import deviceplugin as dp
from deviceplugin._attribution.ownership import Claim, Ownership
from deviceplugin._attribution.podresources import Holdings
from deviceplugin._attribution.poll_schedule import AttributionTiming
from deviceplugin._inventory.published import Resource, encode_list
from deviceplugin._kubelet.offer import Offer, Options, RegistrationNeed
from idle_tracker import IdleTracker
from scripted_plugin import ScriptedPlugin

NAME = "x.io/dev"
CLAIM = Claim("default", "one", "uid-1")
TIMING = AttributionTiming.of(30)._replace(handover_confirm=0.0)
SICK = dp.Health.unhealthy("dust")


class Starting(ScriptedPlugin):
    @override
    def pre_start(self, devices: Sequence[dp.Device]) -> None: ...


class Node:
    def __init__(self, plugin: dp.Plugin) -> None:
        self.resource = Resource(NAME, plugin)
        self.ownership = Ownership(timing=TIMING, resources=lambda: {NAME: self.resource})
        self.ownership.observe(Holdings(frozenset()), None)
        self.offer = Offer(self.resource, self.ownership)
        self.list = self.offer.latest

    def hand_over(self) -> None:
        """Have the kubelet give out nothing, and say twice that nobody has anything."""
        self.ownership.acknowledged([])
        for _ in range(2):
            self.ownership.observe(Holdings(frozenset()), (1, 1, 1))


@pytest.fixture
def node() -> Node:
    return Node(ScriptedPlugin())


def listed(**healthy: bool) -> bytes:
    devices = [
        dp.Device(one, health=dp.Health() if well else SICK) for one, well in healthy.items()
    ]
    return encode_list(devices)


def test_what_nobody_else_has_is_offered_as_it_is_encoded_in_the_inventory(node: Node) -> None:
    assert node.list() is None, "before the first snapshot"
    node.resource.publish([dp.Device("a"), dp.Device("b", health=SICK)])
    snapshot = node.resource.snapshot
    assert snapshot
    assert snapshot.encoded is node.list()
    assert listed(a=True, b=False) == node.list()


def test_a_withheld_device_is_listed_as_unhealthy_until_the_offer_is_closed(node: Node) -> None:
    node.resource.publish([dp.Device("a"), dp.Device("b"), dp.Device("c", health=SICK)])
    lists: list[bytes | None] = []
    node.offer.watch(lambda: lists.append(node.list()))
    node.ownership.prepare(CLAIM, [(NAME, "a"), (NAME, "c")])
    assert lists[0] is node.list(), "it is encoded once"
    node.resource.publish([dp.Device("a")])
    node.ownership.unprepare(CLAIM.uid)
    told = [listed(a=False, b=True, c=False), listed(a=False), listed(a=True)]
    assert told == lists
    node.offer.close()
    node.ownership.prepare(CLAIM, [(NAME, "a")])
    node.resource.publish([])
    assert told == lists


def test_pre_start_is_required_if_it_is_there_but_while_dra_has_to_do_with_the_resource(
    node: Node,
) -> None:
    assert Options(pre_start=False, prefer=False) == node.offer.options
    node.resource.plugin = Starting()
    node.resource.publish([dp.Device("a")])
    assert Options(pre_start=True, prefer=False) == node.offer.options
    node.ownership.prepare(Claim("default", "other", "2"), [("x.io/other", "a")])
    required = [node.offer.options.pre_start]
    node.ownership.prepare(CLAIM, [(NAME, "a")])
    required.append(node.offer.options.pre_start)
    node.ownership.switch("dra")
    node.ownership.unprepare(CLAIM.uid)
    required.append(node.offer.options.pre_start)
    node.ownership.acknowledged([])
    node.ownership.switch("device-plugin")
    required.append(node.offer.options.pre_start)
    assert [True, False, False, True] == required


def test_a_registration_serves_pods_with_any_device_that_is_not_withheld(node: Node) -> None:
    assert not node.offer.is_wanted
    node.resource.publish([])
    assert not node.offer.is_wanted
    node.resource.publish([dp.Device("a"), dp.Device("b", health=SICK)])
    node.ownership.prepare(CLAIM, [(NAME, "a")])
    assert node.offer.is_wanted
    node.resource.publish([dp.Device("a")])
    assert not node.offer.is_wanted
    node.ownership.unprepare(CLAIM.uid)
    assert node.offer.is_wanted


def test_what_dra_offers_needs_no_registration_unless_a_pod_has_it(node: Node) -> None:
    node.resource.publish([dp.Device("a"), dp.Device("b")])
    node.ownership.switch("dra")
    assert node.offer.is_wanted, "until the kubelet would not give them out any more"
    node.hand_over()
    assert not node.offer.is_wanted
    node.ownership.switch("device-plugin")
    node.ownership.published([])
    with node.ownership.allocating(NAME, ["a"]):
        node.ownership.switch("dra")
        assert node.offer.is_wanted
    assert node.offer.is_wanted, "until it is certain that the pod has ended"


def test_a_hook_that_the_kubelet_knows_of_needs_another_registration() -> None:
    node = Node(Starting())
    node.resource.publish([dp.Device("a")])
    need = RegistrationNeed(node.offer, IdleTracker())
    need.told(node.offer.options)
    node.ownership.switch("dra")
    node.hand_over()
    assert need.is_there
    need.told(node.offer.options)
    assert not need.is_there
    assert not RegistrationNeed(node.offer, IdleTracker()).is_there, (
        "the kubelet does not know the resource"
    )
