"""Intel's plugin and this one on the same nodes: where Intel's is right, both say the same.

With ``INTEL_GPU_PLUGIN=path/to/gpu_plugin``, as root on Linux. Where Intel's is not right, a test
shows what it does instead, for the page docs/coming-from-intel.md.
"""

import os
import random
import sys
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from containers.unshare import POSSIBLE
from intelgpu.machines import (
    DG1,
    FLEX,
    MAX,
    SMALL,
    TIGER_LAKE,
    TWO_DRIVERS,
    WORKSTATION,
    Card,
    Machine,
)
from intelgpu.tree import Build, IntelTree
from kubelets.on_node import OnNode, on_node
from patience import eventually

PEER: Final = os.environ.get("INTEL_GPU_PLUGIN", "")
OURS: Final = str(Path(sys.executable).with_name("intelgpu-device-plugin"))
I915, XE = "gpu.intel.com/i915", "gpu.intel.com/xe"
CARDS: Final = ("--device-ids=card",)
ELEVEN: Final = Machine(tuple(Card(f"0000:{bus:02x}:00.0", "56c0") for bus in range(1, 12)))
REQUESTS: Final = 30

pytestmark = [
    pytest.mark.skipif(not PEER, reason="INTEL_GPU_PLUGIN does not name Intel's plugin"),
    pytest.mark.skipif(not POSSIBLE, reason="needs root and unshare, for /sys and /dev"),
]


def real(tree: IntelTree) -> IntelTree:
    """Make links as sysfs has them, and device nodes: by these Intel's plugin finds NUMA nodes."""
    for path in tree.sys.rglob("*"):
        if path.is_symlink() and path.readlink().is_absolute():
            target = os.path.relpath(path.readlink(), path.parent)
            path.unlink()
            path.symlink_to(target)
    for path in tree.sys.glob("dev/char/*"):
        name = (path / "uevent").read_text().partition("DEVNAME=")[2].strip()
        (tree.dev / name).unlink(missing_ok=True)
        major, minor = map(int, path.name.split(":"))
        os.mknod(tree.dev / name, 0o20666, os.makedev(major, minor))
    return tree


def resources(machine: Machine) -> set[str]:
    return {f"gpu.intel.com/{card.driver}" for card in machine.cards if card.vendor == "8086"}


def running(program: str, tree: IntelTree, *flags: str) -> AbstractContextManager[OnNode]:
    own = [] if program == PEER else ["--discovery-interval=1s"]
    return on_node(tree.sys.parent, program, *own, *flags)


@contextmanager
def both(
    tree: IntelTree, *flags: str, ours: Collection[str] = (), expected: Collection[str] = (I915,)
) -> Iterator[tuple[OnNode, OnNode]]:
    """Run both with ``flags``, and this one with more, until the kubelets know their devices."""
    with running(PEER, tree, *flags) as theirs, running(OURS, tree, *flags, *ours) as own:
        for plugin in (theirs, own):
            for resource in expected:
                eventually(partial(plugin.kubelet.devices, resource), resource)
        yield theirs, own


def given(plugin: OnNode, resource: str) -> dict[str, tuple[object, ...]]:
    """Return what a container gets of each device, but for CDI, by id."""
    found: dict[str, tuple[object, ...]] = {}
    for one in plugin.kubelet.devices(resource):
        got = plugin.kubelet.allocate(resource, [one])
        found[one] = (
            sorted((node.host_path, node.container_path, node.permissions) for node in got.devices),
            sorted((each.host_path, each.container_path, each.read_only) for each in got.mounts),
            dict(got.envs),
            dict(got.annotations),
        )
    return found


@pytest.mark.parametrize("flags", [(), ("-bypath=all",), ("-bypath=none", "-shared-dev-num=3")])
@pytest.mark.parametrize(
    "machine",
    [TIGER_LAKE, TWO_DRIVERS, DG1, MAX, FLEX, WORKSTATION, SMALL],
    ids=["tiger-lake", "two-drivers", "dg1", "max", "flex", "workstation", "small"],
)
def test_both_find_the_same_devices(build: Build, machine: Machine, flags: list[str]) -> None:
    tree, expected = real(build(machine)), resources(machine)
    with both(tree, *flags, ours=CARDS, expected=expected) as (theirs, ours):
        assert expected == theirs.kubelet.registered == ours.kubelet.registered
        for resource in expected:
            assert {*theirs.kubelet.devices(resource)} == {*ours.kubelet.devices(resource)}
            assert given(theirs, resource) == given(ours, resource)
            if machine is not SMALL:
                assert theirs.numa(resource) == ours.numa(resource)


@pytest.mark.parametrize("mode", ["single", "split"])
def test_both_have_the_same_monitoring_devices(build: Build, mode: str) -> None:
    flags = ("-enable-monitoring", f"-monitoring-mode={mode}")
    names = {"single": ["monitoring"], "split": ["i915_monitoring", "xe_monitoring"]}[mode]
    expected = [I915, XE, *(f"gpu.intel.com/{name}" for name in names)]
    with both(real(build(SMALL)), *flags, ours=CARDS, expected=expected) as (theirs, ours):
        assert {*expected} == theirs.kubelet.registered == ours.kubelet.registered
        for resource in expected:
            assert given(theirs, resource) == given(ours, resource)
        assert [["all"]] * len(names) == [[*ours.kubelet.devices(one)] for one in expected[2:]]


@pytest.mark.parametrize("flag", ["-allow-ids=0xa780,0xe211", "-deny-ids=0xa780"])
def test_both_choose_the_same_models(build: Build, flag: str) -> None:
    with both(real(build(SMALL)), flag, ours=CARDS, expected=[XE]) as (theirs, ours):
        for resource in theirs.kubelet.registered | ours.kubelet.registered:
            assert given(theirs, resource) == given(ours, resource)


@pytest.mark.parametrize("policy", ["none", "balanced", "packed"])
def test_both_prefer_as_many_or_as_few_gpus(build: Build, policy: str) -> None:
    flags = ("-shared-dev-num=5", f"-allocation-policy={policy}")
    chance = random.Random(policy)
    with both(real(build(DG1)), *flags, ours=CARDS) as (theirs, ours):
        known = sorted(theirs.kubelet.devices(I915))
        for _ in range(REQUESTS):
            count = len(known) if policy == "packed" else chance.randint(1, len(known))
            free = chance.sample(known, count)
            size = chance.randint(1, len(free))
            their, our = (
                {one.partition("-")[0] for one in plugin.kubelet.prefer(I915, free, [], size)}
                for plugin in (theirs, ours)
            )
            if policy == "balanced":  # theirs takes two of a GPU that has many free
                assert len(their) <= len(our), (free, size)
            else:
                assert len(their) == len(our), (free, size)


# Where they differ.


def test_theirs_counts_as_text_and_leaves_out_what_must_be_in(build: Build) -> None:
    flags = ("-allocation-policy=packed",)
    with both(real(build(ELEVEN)), *flags, ours=CARDS) as (theirs, ours):
        free = [f"card{number}-0" for number in range(11)]
        first = [*theirs.kubelet.prefer(I915, free, [], 3)]
        assert ["card0-0", "card1-0", "card10-0"] == first
        assert ["card0-0", "card1-0", "card2-0"] == [*ours.kubelet.prefer(I915, free, [], 3)]
        assert "card7-0" not in theirs.kubelet.prefer(I915, free, ["card7-0"], 2)
        assert "card7-0" in ours.kubelet.prefer(I915, free, ["card7-0"], 2)


def test_their_ids_are_other_gpus_when_cards_are_renumbered(build: Build) -> None:
    def links(plugin: OnNode) -> dict[str, list[str]]:
        """Return the links of each device: they have the address of its GPU."""
        return {
            one: sorted(each.host_path for each in plugin.kubelet.allocate(I915, [one]).mounts)
            for one in plugin.kubelet.devices(I915)
        }

    tree = build(Machine(DG1.cards[:2]))
    found: list[tuple[dict[str, list[str]], ...]] = []
    for _ in range(2):
        with both(real(tree), "-bypath=single") as plugins:
            found.append(tuple(map(links, plugins)))
        before, chance = dict(tree.numbers), random.Random(1)
        while before == tree.numbers:
            tree.renumber(chance)
    (their_first, our_first), (their_second, our_second) = found
    assert their_first == {"card0-0": their_second["card1-0"], "card1-0": their_second["card0-0"]}
    assert our_first == our_second


def test_theirs_has_numa_nodes_for_some_devices_of_a_resource(build: Build) -> None:
    with both(real(build(SMALL))) as (theirs, ours):
        assert ({(): 1, (0,): 1}, {(): 2}) == (theirs.numa(I915), ours.numa(I915))


def test_theirs_offers_a_gpu_that_runs_nothing_and_drops_one_that_is_gone(build: Build) -> None:
    tree = real(build(Machine(DG1.cards[:2])))
    dead, gone = (card.address for card in DG1.cards[:2])
    (tree.folder(dead) / "survivability_mode").write_text("Survivability mode type: Runtime\n")
    with both(tree) as (theirs, ours):
        assert 2 == len(theirs.kubelet.healthy(I915))
        assert [dead] == [*ours.kubelet.unhealthy(I915)]
        tree.vanish(gone)
        eventually(lambda: 1 == len(theirs.kubelet.devices(I915)), "one device")
        eventually(lambda: {dead, gone} == ours.kubelet.unhealthy(I915), "unhealthy devices")
