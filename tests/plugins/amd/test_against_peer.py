"""AMD's plugin and this one on the same nodes: where AMD's is right, both say the same.

With ``AMD_PLUGIN=path/to/k8s-device-plugin``, as root on Linux. ``PEER_SEEDS=0:20`` says which
random requests. Where AMD's is not right, a test shows what it does instead, for the page
docs/coming-from-amd.md.
"""

import os
import random
import sys
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Final

import grpc
import pytest

from amd.machines import MI210, MI300X, MI308, SMALL, VEGA, Machine
from amd.tree import AmdTree, Build
from containers.unshare import POSSIBLE
from kubelets.on_node import OnNode, on_node
from patience import PATIENCE, eventually

PEER: Final = os.environ.get("AMD_PLUGIN", "")
SEEDS: Final = range(*map(int, os.environ.get("PEER_SEEDS", "0:20").split(":")))
OURS: Final = str(Path(sys.executable).with_name("amd-device-plugin"))
OLDER: Final = "amdgpu_xcp.{}"
GPU: Final = "amd.com/gpu"
MOST: Final = 1.2
"""How much farther partitions of fewer GPUs may be, and leave others whole."""

pytestmark = [
    pytest.mark.skipif(not PEER, reason="AMD_PLUGIN does not name AMD's plugin"),
    pytest.mark.skipif(not POSSIBLE, reason="needs root and unshare, for /sys and /dev"),
]


def running(program: str, tree: AmdTree, *flags: str) -> AbstractContextManager[OnNode]:
    own = ["-logtostderr"] if program == PEER else ["--discovery-interval=1s"]
    return on_node(tree.sys.parent, program, *own, *flags)


@contextmanager
def both(
    tree: AmdTree, *flags: str, pulse: int = 0, expected: Collection[str] = (GPU,)
) -> Iterator[tuple[OnNode, OnNode]]:
    """Run both until they have told the kubelet of their devices."""
    with (
        running(PEER, tree, f"-pulse={pulse}", *flags) as theirs,
        running(OURS, tree, *flags) as ours,
    ):
        for plugin in (theirs, ours):
            for resource in expected:
                eventually(partial(plugin.kubelet.devices, resource), resource)
        yield theirs, ours


@pytest.mark.parametrize(
    ("machine", "naming", "styles"),
    [
        *((machine, "single", ["gpu"]) for machine in (MI210, MI308, MI300X, SMALL)),
        (MI210, "mixed", ["gpu"]),
        (MI308, "mixed", ["cpx_nps1"]),
        (MI300X, "mixed", ["cpx_nps4"]),
        (SMALL, "mixed", ["qpx_nps1", "spx_nps1"]),
    ],
)
def test_both_find_the_same_devices(
    build: Build, machine: Machine, naming: str, styles: list[str]
) -> None:
    tree = build(machine)
    if len(styles) > 1:
        tree.divide(SMALL.addresses[0], "QPX")
    resources = [f"amd.com/{style}" for style in styles]
    flags = f"-resource_naming_strategy={naming}"
    with both(tree, flags, expected=resources) as (theirs, ours):
        assert {*resources} == theirs.kubelet.registered == ours.kubelet.registered
        for resource in resources:
            assert theirs.nodes(resource).keys() == ours.nodes(resource).keys()
            assert theirs.numa(resource) == ours.numa(resource)
            for one in (theirs, ours):
                assert {*one.kubelet.healthy(resource)} == {*one.kubelet.devices(resource)}


class Weights:
    """How far devices are from each other as AMD's plugin counts it, less being nearer."""

    def __init__(self, tree: AmdTree) -> None:
        self._machine = tree.machine
        self._nodes = {node.minor: node for node in tree.nodes()}

    def of(self, devices: Collection[frozenset[str]]) -> int:
        places = [self._nodes[minor(one)] for one in devices]
        return sum(self._pair(a.card.place, b.card.place) for a, b in combinations(places, 2))

    def gpus(self, devices: Collection[frozenset[str]]) -> int:
        return len({self._nodes[minor(one)].card.place for one in devices})

    def _pair(self, one: int, other: int) -> int:
        machine = self._machine
        linked = one == other or (machine.hives and machine.hive(one) == machine.hive(other))
        link = 10 if linked else 40 if machine.links.pcie else 50
        same_cpu = machine.cpu(one) == machine.cpu(other)
        return (10 if one == other else 20) + link + (10 if same_cpu else 20)


def minor(nodes: Collection[str]) -> int:
    (name,) = [one for one in nodes if "renderD" in one]
    return int(name.partition("renderD")[2])


@pytest.mark.parametrize("machine", [MI210, MI308, MI300X], ids=["mi210", "mi308", "mi300x"])
def test_ours_prefers_what_is_as_near_as_what_theirs_does(build: Build, machine: Machine) -> None:
    tree = build(machine)
    weights = Weights(tree)
    with both(tree) as (theirs, ours):
        names = {key: (their, ours.nodes(GPU)[key]) for key, their in theirs.nodes(GPU).items()}
        found = {one: key for key, pair in names.items() for one in pair}
        for seed in SEEDS:
            chance = random.Random(seed)
            free = chance.sample(sorted(names, key=minor), chance.randint(2, len(names)))
            size = chance.randint(1, len(free))
            needed = chance.sample(free, chance.randint(0, 1))
            their, our = (
                [
                    found[one]
                    for one in plugin.kubelet.prefer(
                        GPU,
                        [names[key][place] for key in free],
                        [names[key][place] for key in needed],
                        size,
                    )
                ]
                for place, plugin in enumerate((theirs, ours))
            )
            assert size == len({*our})
            assert {*needed} <= {*our} <= {*free}
            if machine.parts == 1:
                assert weights.of(our) <= weights.of(their), seed
            assert weights.gpus(our) <= weights.gpus(their), seed
            assert weights.of(our) <= MOST * weights.of(their), seed


# Where they differ.


def wait_for_a_pulse(theirs: OnNode) -> None:
    lists = theirs.kubelet.lists_received(GPU)
    eventually(lambda: theirs.kubelet.lists_received(GPU) > lists + 1, "a pulse of the peer")


def test_on_older_kernels_theirs_finds_one_partition_of_each_gpu(build: Build) -> None:
    with both(build(MI300X, xcp=OLDER)) as (theirs, ours):
        assert (8, 63) == (len(theirs.kubelet.devices(GPU)), len(ours.kubelet.devices(GPU)))


def test_on_old_kernels_theirs_has_numa_node_minus_one_and_no_healthy_gpu(build: Build) -> None:
    with both(build(VEGA), pulse=1) as (theirs, ours):
        assert ({(-1,): 1}, {(): 1}) == (theirs.numa(GPU), ours.numa(GPU))
        assert theirs.nodes(GPU) == ours.nodes(GPU)
        eventually(lambda: theirs.kubelet.unhealthy(GPU), "the pulse of the peer")
        assert (0, 1) == (len(theirs.kubelet.healthy(GPU)), len(ours.kubelet.healthy(GPU)))


def test_theirs_ends_where_gpus_are_divided_differently(build: Build) -> None:
    tree = build(SMALL)
    tree.divide(SMALL.addresses[0], "QPX")
    with running(PEER, tree) as theirs, running(OURS, tree) as ours:
        assert 1 == theirs.process.wait(PATIENCE)
        assert "not supported with single strategy" in theirs.log.read_text()
        eventually(lambda: ours.kubelet.devices(GPU), "devices")
        assert {*SMALL.addresses[1:]} == {*ours.kubelet.devices(GPU)}


def test_theirs_offers_a_gpu_with_an_error_and_one_that_kfd_does_not_have(build: Build) -> None:
    tree = build(MI210)
    broken, *_, lost = MI210.addresses
    card = tree.cards.pop(lost)
    tree.topology()
    tree.cards[lost] = card
    with both(tree, pulse=1) as (theirs, ours):
        tree.count(broken, "umc", ue=1)
        eventually(lambda: {broken, lost} == ours.kubelet.unhealthy(GPU), "unhealthy GPUs")
        wait_for_a_pulse(theirs)
        assert {*MI210.addresses} == theirs.kubelet.healthy(GPU)


def test_theirs_gives_another_gpus_nodes_for_one_without_any(build: Build) -> None:
    tree = build(MI210)
    first, lost = sorted(MI210.addresses)[:2]
    for node in (tree.cards[lost].folder / "drm").iterdir():
        node.rename(tree.sys / node.name)
    with both(tree) as (theirs, ours):
        one, other = (
            {node.host_path for node in theirs.kubelet.allocate(GPU, [id_]).devices}
            for id_ in (first, lost)
        )
        assert one == other
        assert {lost} == ours.kubelet.unhealthy(GPU)


def test_theirs_does_not_notice_that_a_gpu_was_divided(build: Build) -> None:
    tree = build(SMALL)
    first = SMALL.addresses[0]
    with both(tree, pulse=1) as (theirs, ours):
        for address in SMALL.addresses:
            tree.divide(address, "QPX")
        expected = {f"{one}-qpx_nps1-{part}" for one in SMALL.addresses for part in range(4)}
        eventually(lambda: expected == ours.kubelet.healthy(GPU), "partitions")
        assert {*SMALL.addresses} == ours.kubelet.unhealthy(GPU)
        wait_for_a_pulse(theirs)
        assert {*SMALL.addresses} == theirs.kubelet.healthy(GPU)
        assert 3 == len(theirs.kubelet.allocate(GPU, [first]).devices)


def test_theirs_gives_out_a_gpu_that_a_stranger_uses(build: Build) -> None:
    tree = build(MI210)
    used = MI210.addresses[0]
    tree.use(tree.node(used), 4711, 3 << 29)
    with both(tree) as (theirs, ours):
        assert 3 == len(theirs.kubelet.allocate(GPU, [used]).devices)
        with pytest.raises(grpc.RpcError, match="still in use by process 4711"):
            ours.kubelet.allocate(GPU, [used])


def test_theirs_never_notices_a_driver_that_comes_late(build: Build) -> None:
    tree = build(MI210)
    away = tree.sys / "away"
    kfd = tree.sys / "class/kfd"
    kfd.rename(away)
    for card in tree.cards.values():
        (card.folder / "driver").rename(card.folder / "later")
    with running(PEER, tree, "-pulse=1") as theirs, running(OURS, tree) as ours:
        eventually(lambda: "hwloc" in theirs.log.read_text(), "a start")
        eventually(lambda: "is not bound" in ours.log.read_text(), "a wait")
        away.rename(kfd)
        for card in tree.cards.values():
            (card.folder / "later").rename(card.folder / "driver")
        eventually(lambda: ours.kubelet.healthy(GPU) == {*MI210.addresses}, "GPUs")
        assert frozenset() == theirs.kubelet.registered
        assert theirs.process.poll() is None


def test_theirs_ends_when_the_kubelet_restarts(build: Build) -> None:
    with both(build(MI210)) as (theirs, ours):
        for plugin in (theirs, ours):
            plugin.kubelet.restart()
        eventually(lambda: ours.kubelet.healthy(GPU) == {*MI210.addresses}, "GPUs")
        assert 1 == theirs.process.wait(PATIENCE)
        assert ours.process.poll() is None
