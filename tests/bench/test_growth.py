"""What a change costs as devices become more, in calls of Python functions: no clock is needed.

In calls of C functions nothing grows faster than these: they handle each device once.
"""

import gc
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

import deviceplugin as dp
from deviceplugin._discovery.found import discover
from deviceplugin._discovery.retention import KeptDevices
from deviceplugin._inventory.published import Resource
from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from deviceplugin_testing.simulator import SimulatedKubelet
from deviceplugin_testing.simulator._device_manager.records import Grant, HeldGrant

RESOURCE = "growth.example/dev"
FEW, MANY = 500, 4_000


def calls(work: Callable[[], object]) -> Counter[str]:
    """How often which Python function, by its name, is called or gone on with in ``work``."""
    counted: Counter[str] = Counter()

    def count(frame: Any, event: str, _argument: object) -> None:
        if event == "call":
            counted[frame.f_code.co_name] += 1

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return counted


class Many(dp.Plugin):
    """So many devices, made anew each time, of which one may be ill."""

    resource = RESOURCE

    def __init__(self, count: int) -> None:
        self.ids = [f"dev{number:06}" for number in range(count)]
        self.ill = ""

    @override
    def discover(self) -> Iterator[dp.Device]:
        for device_id in self.ids:
            ill = device_id == self.ill
            yield dp.Device(device_id, health=dp.Health.unhealthy("dust") if ill else dp.Health())


class Kept(Many):
    """The same, as objects that are kept until they change."""

    @override
    def __init__(self, count: int) -> None:
        super().__init__(count)
        self._devices: dict[str, dp.Device] = {d.id: d for d in super().discover()}

    @override
    def discover(self) -> Iterator[dp.Device]:
        sick = dp.Health.unhealthy("dust")
        yield from {**self._devices, self.ill: dp.Device(self.ill, health=sick)}.values()


class Cycle:
    """What a discovery goes through, from the plugin's hook to the encoded list."""

    def __init__(self, plugin: Many) -> None:
        self.plugin = plugin
        self.resource = Resource(RESOURCE, plugin)
        self._kept = KeptDevices(0)

    def __call__(self) -> None:
        groups, _ = discover(self.plugin, {RESOURCE: self._kept.present})
        self._kept = self._kept.updated(groups[RESOURCE], 1)
        self.resource.publish(self._kept.devices())


@pytest.mark.parametrize("kind", [Many, Kept])
def test_neither_a_first_list_nor_a_change_costs_more_than_in_proportion(kind: type[Many]) -> None:
    first, change = {}, {}
    for count in (FEW, MANY):
        cycle = Cycle(kind(count))
        first[count] = calls(cycle).total()
        cycle.plugin.ill = cycle.plugin.ids[count // 2]
        change[count] = calls(cycle).total()
    assert MANY / FEW * 1.01 > first[MANY] / first[FEW]
    assert MANY / FEW * 1.01 > change[MANY] / change[FEW]


@pytest.mark.parametrize(
    ("kind", "compared"),
    [
        # The devices, the health of each, and the piece of the list in which one has changed.
        pytest.param(Many, 2 * MANY + 600, id="each that is made anew is compared once"),
        pytest.param(Kept, 600, id="of those that are kept few are compared"),
    ],
)
def test_after_a_change_of_one_device_none_is_checked_again(
    kind: type[Many], compared: int
) -> None:
    cycle = Cycle(kind(MANY))
    cycle()
    cycle.plugin.ill = cycle.plugin.ids[0]
    counted = calls(cycle)
    assert compared >= counted["__eq__"]
    assert (1, 0) == (counted["device_problem"], counted["natural_key"])


def test_a_change_is_published_with_the_work_for_a_few_devices() -> None:
    resource = Resource(RESOURCE, Many(0))
    devices = list(Many(MANY).discover())
    resource.publish(devices)
    ill = [dp.Device(devices[0].id, health=dp.Health.unhealthy("dust")), *devices[1:]]
    assert 700 > calls(lambda: resource.publish(ill)).total(), "a few for each of 256"
    assert 100 > calls(lambda: resource.publish(ill)).total(), "nothing has changed"
    more = [*ill, dp.Device("dev000000a")]
    assert 20 > calls(lambda: resource.publish(more))["natural_key"], "few are looked at"


def test_devices_that_are_equal_to_those_before_are_let_go_one_by_one() -> None:
    alive = []

    class Watched(Many):
        @override
        def discover(self) -> Iterator[dp.Device]:
            yield from super().discover()
            alive.append(sum(type(each) is dp.Device for each in gc.get_objects()))

    cycle = Cycle(Watched(MANY))
    cycle()
    cycle()
    assert 10 > alive[1] - alive[0]


def test_the_kubelet_that_measures_takes_in_a_list_in_proportion_also_if_all_is_held(
    root: Path,
) -> None:
    taken = {}
    for count in (FEW, MANY):
        devices = [pb.Device(ID=f"dev{number}", health="Healthy") for number in range(count)]
        with SimulatedKubelet(root / str(count)) as kubelet:
            manager = kubelet._live().manager
            for device in devices:
                grant = Grant({-1: (device.ID,)}, pb.ContainerAllocateResponse())
                manager.records.insert(HeldGrant("uid", device.ID, RESOURCE, grant))
            counted = calls(lambda: manager.listed(RESOURCE, devices))  # noqa: B023
            taken[count] = counted.total()
    assert MANY / FEW * 1.01 > taken[MANY] / taken[FEW]
