"""What the kubelet is offered of a resource, without a kubelet."""

from collections.abc import Iterable, Sequence

import pytest
from typing_extensions import override

import deviceplugin as dp
from deviceplugin._attribution.ownership import Claim, Ownership
from deviceplugin._attribution.podresources import Holdings
from deviceplugin._inventory.published import Resource, encode_list
from deviceplugin._kubelet.offer import Offer, Options, RegistrationNeed
from idle_tracker import IdleTracker

NAME = "x.io/dev"
CLAIM = Claim("default", "one", "uid-1")
SICK = dp.Health.unhealthy("dust")


class Plain(dp.Plugin):
    @override
    def discover(self) -> Iterable[dp.Device]:
        return ()


class Starting(Plain):
    @override
    def pre_start(self, devices: Sequence[dp.Device]) -> None: ...


class Node:
    def __init__(self, plugin: dp.Plugin) -> None:
        self.resource = Resource(NAME, plugin)
        self.ownership = Ownership(resources=lambda: {NAME: self.resource})
        self.ownership.observe(Holdings(frozenset()), None)
        self.offer = Offer(self.resource, self.ownership)

    def list(self) -> bytes | None:
        return self.offer.latest()


@pytest.fixture
def node() -> Node:
    return Node(Plain())


def listed(**healthy: bool) -> bytes:
    devices = [
        dp.Device(one, health=dp.Health() if well else SICK) for one, well in healthy.items()
    ]
    return encode_list(devices)


def test_nothing_is_offered_before_the_first_snapshot(node: Node) -> None:
    assert node.list() is None


def test_what_nobody_else_has_is_offered_as_it_is_encoded_in_the_inventory(node: Node) -> None:
    node.resource.publish([dp.Device("a"), dp.Device("b", health=SICK)])
    snapshot = node.resource.snapshot
    assert snapshot
    assert snapshot.encoded is node.list()
    assert listed(a=True, b=False) == node.list()


def test_a_withheld_device_is_listed_as_unhealthy_once(node: Node) -> None:
    node.resource.publish([dp.Device("a"), dp.Device("b"), dp.Device("c", health=SICK)])
    node.ownership.prepare(CLAIM, [(NAME, "a"), (NAME, "c")])
    first = node.list()
    assert listed(a=False, b=True, c=False) == first
    assert first is node.list()
    node.resource.publish([dp.Device("a")])
    assert listed(a=False) == node.list()
    node.ownership.unprepare(CLAIM.uid)
    assert listed(a=True) == node.list()


def test_lists_are_announced_by_ownership_too_until_the_offer_is_closed(node: Node) -> None:
    node.resource.publish([dp.Device("a")])
    lists: list[bytes | None] = []
    node.offer.watch(lambda: lists.append(node.list()))
    node.ownership.prepare(CLAIM, [(NAME, "a")])
    assert [listed(a=False)] == lists
    node.offer.close()
    node.ownership.unprepare(CLAIM.uid)
    node.resource.publish([])
    assert [listed(a=False)] == lists


def test_the_options_are_what_the_plugin_overrides(node: Node) -> None:
    assert Options(pre_start=False, prefer=False) == node.offer.options
    node.resource.plugin = Starting()
    assert Options(pre_start=True, prefer=False) == node.offer.options


def test_pre_start_is_not_required_while_dra_has_to_do_with_the_resource() -> None:
    node = Node(Starting())
    node.resource.publish([dp.Device("a")])
    required = [node.offer.options.pre_start]
    node.ownership.prepare(Claim("default", "other", "2"), [("x.io/other", "a")])
    required.append(node.offer.options.pre_start)
    node.ownership.prepare(CLAIM, [(NAME, "a")])
    required.append(node.offer.options.pre_start)
    node.ownership.switch("dra")
    node.ownership.unprepare(CLAIM.uid)
    required.append(node.offer.options.pre_start)
    node.ownership.acknowledged([])
    node.ownership.switch("device-plugin")
    required.append(node.offer.options.pre_start)
    assert [True, True, False, False, True] == required


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
    assert not node.offer.is_wanted
    node.ownership.switch("device-plugin")
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
    assert need.is_there
    need.told(node.offer.options)
    assert not need.is_there
    assert not RegistrationNeed(node.offer, IdleTracker()).is_there, (
        "the kubelet does not know the resource"
    )
