"""One odd file, link or directory costs no plugin the devices that it does not concern.

The seeds are fixed. ``FAULT_SEED=2`` plays others, and ``FAULT_ROUNDS`` sets their number.
"""

import os
import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

import pytest

import deviceplugin as dp
from gpu import fake_library
from gpu.fake_nvml import FakeGpu, Fleet
from gpu.rig import GpuRig
from hardware.failing_calls import Calls, failing_calls
from hardware.faults import Fault, Faults
from served.odd_hardware import SUBJECTS, Concern, Make

ROUNDS = int(os.environ.get("FAULT_ROUNDS", "40"))
"""Of two discoveries each: with a fault, and without it again."""
SEED = os.environ.get("FAULT_SEED", "1")
IN_A_LIFE = 15
"""Faults that one process of a plugin meets. It has seen nothing before the first of them."""
MANY = 50
"""Devices that make a discovery slow: with more there are fewer rounds."""
OwnFault = Callable[[], AbstractContextManager[tuple[str, frozenset[str]]]]
"""A fault of something else than a file, and the devices that it concerns."""


class Trial:
    """A plugin among faults, and what is wrong with what it finds."""

    def __init__(self, make: Make, root: Path, calls: Calls, chance: random.Random) -> None:
        self._make = make
        self._calls = calls
        self._chance = chance
        self.plugin = make()
        with calls.on():
            self.usual = {one.id: one for one in self.plugin.discover()}
        self._length = max(calls.count, 1)
        """Calls of a discovery."""
        self.concern = Concern(self.usual.values(), root)
        self._concerned: set[str] = set()
        """By all faults of this life."""
        self._left: set[str] = set()
        """Not yet as usual again."""

    def begin(self) -> None:
        """Begin a life."""
        self.plugin = self._make()
        self._concerned, self._left = set(), set()

    def discover(self, faults: list[Fault], more: frozenset[str] = frozenset()) -> Iterator[str]:
        """Discover with these faults, and yield what is wrong. ``more`` are concerned as well."""
        concerned = self._left.union(more, *(self.concern.of(one.path) for one in faults))
        self._concerned |= concerned
        try:
            found = self._found()
        except dp.DiscoveryError as error:
            if {*self.usual} - concerned:
                yield f"discovery failed: {error}"
            return
        devices = {one.id: one for one in found}
        if len(found) != len(devices):
            yield "an id is there twice"
        for name in {*self.usual} - concerned:
            if devices.get(name) != self.usual[name]:
                yield f"{name} is {devices.get(name)}, and was {self.usual[name]}"
        added = {str(one.path) for one in faults}
        for device in devices.values():
            yield from self._wrong(device, added)

    def _found(self) -> list[dp.Device]:
        spared = self._chance.choice((0, self._chance.randrange(self._length)))
        with self._calls.on(spared):
            found = list(self.plugin.discover())
        healthy = [one for one in found if one.health]
        with self._calls.on():
            if type(self.plugin).prefer is not dp.Plugin.prefer:
                self.plugin.prefer(healthy, healthy[:1], min(2, len(healthy)))
            if type(self.plugin).metrics is not dp.Plugin.metrics:
                list(self.plugin.metrics())
            self.plugin.allocate(healthy[:1])
        return found

    def _wrong(self, device: dp.Device, added: set[str]) -> Iterator[str]:
        """Yield how a device is not what it was, and healthy; or unhealthy without a reason."""
        if not device.health:
            if not device.health.reason:
                yield f"{device.id} is unhealthy without a reason"
            return
        nodes = {node for node in device.nodes if node.host_path not in added}
        known = self.usual.get(device.id)
        if not any(nodes <= {*one.nodes} for one in ([known] if known else self.usual.values())):
            yield f"{device.id} is healthy, with other nodes: {nodes}"

    def recover(self) -> Iterator[str]:
        """Discover without a fault, and yield what is not as before.

        What a fault has made unhealthy may stay so for a while, and what had another name keep it.
        """
        devices = {one.id: one for one in self.plugin.discover()}
        both = {*devices, *self.usual}
        self._left = {one for one in both if devices.get(one) != self.usual.get(one)}
        for name in self._left:
            device = devices.get(name)
            known = device or self.usual[name]
            others = devices if known is not device else self.usual
            is_renamed = any(known.nodes and known.nodes == one.nodes for one in others.values())
            is_known = name in self._concerned or known is device
            if not (is_known and (is_renamed or not known.health)):
                yield f"afterwards, {name} is {device}, and was {self.usual.get(name)}"


def play(root: Path, make: Make, chance: random.Random, own: OwnFault) -> list[str]:
    """Return what is wrong in all rounds."""
    wrong: list[str] = []
    aside = root.with_name("aside")
    aside.mkdir()
    with failing_calls(root) as calls:
        trial = Trial(make, root, calls, chance)
        faults = Faults(root, calls, chance, aside)
        trial.concern.learn(faults.paths)
        for number in range(ROUNDS // (1 + len(trial.usual) // MANY)):
            if number % IN_A_LIFE == 0:
                trial.begin()
            with faults.some() as done, own() as (what, more):
                found = list(trial.discover(done, more))
            found += trial.recover()
            wrong += [f"{done} {what}: {one}" for one in found]
    return wrong


@contextmanager
def nothing() -> Iterator[tuple[str, frozenset[str]]]:
    """Have no fault but those of files."""
    yield "", frozenset()


@pytest.fixture
def root(root: Path) -> Path:
    path = root / "root"
    path.mkdir()
    return path


@pytest.mark.parametrize("name", SUBJECTS)
def test_a_fault_costs_only_the_devices_that_it_concerns(name: str, root: Path) -> None:
    chance = random.Random(f"{name} {SEED}")
    assert [] == play(root, SUBJECTS[name](root), chance, nothing)[:3]


@pytest.mark.parametrize("strategy", ["envvar", "cdi-annotations"])
def test_a_fault_costs_only_the_nvidia_gpus_that_it_concerns(
    strategy: str, root: Path, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = fake_library.build_or_skip(fake_library.kept(pytestconfig, "fake-nvml"))
    rig = gpus(root, library, monkeypatch)
    chance = random.Random(f"{strategy} {SEED}")

    @contextmanager
    def own() -> Iterator[tuple[str, frozenset[str]]]:
        """Have a query about one GPU fail, every other time."""
        slot, code = chance.randrange(3), chance.choice((3, 4, 6, 9, 10, 15, 999))
        queries = sorted(one for one in rig.fake.calls() if one.startswith("nvmlDevice"))
        if not queries or chance.random() < 0.5:
            yield "", frozenset()
            return
        query = chance.choice(queries)
        rig.fake.fail(query, code, gpu=slot)
        yield f"{query} fails with {code}", frozenset({FakeGpu(slot).uuid})
        rig.fake.mend()

    make = partial(rig.plugin, device_list_strategy=strategy, pass_device_specs=True)
    assert [] == play(root, make, chance, own)[:3]
    rig.close()


def gpus(root: Path, library: Path, monkeypatch: pytest.MonkeyPatch) -> GpuRig:
    """Return a node with three GPUs that are on the PCI bus and in DRM, too."""
    rig = GpuRig(root, library, monkeypatch).has(Fleet.of(3, name="NVIDIA L4"))
    for slot in range(3):
        address = FakeGpu(slot).pci
        rig.has_card(address, driver="nvidia")
        for name in (f"card{slot}", f"renderD{128 + slot}"):
            (rig.roots.sys / "bus/pci/devices" / address / "drm" / name).mkdir(parents=True)
            rig.has_nodes(f"dri/{name}")
        rig.has_nodes(f"nvidia{slot}")
    rig.bind(0, 1, 2)
    rig.has_nodes("nvidiactl", "nvidia-uvm")
    return rig
