"""What is preferred: the answers of AMD's own allocator, where they are on record."""

from collections import Counter
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

import deviceplugin as dp
from amd.machines import MI210, MI300X, MI308, SMALL, VEGA, Machine
from amd.tree import AmdTree, Build
from deviceplugin.kit.configuration import finished, of_text
from deviceplugin.kit.naming import Named, Naming, naming
from deviceplugin_amd import hosted
from deviceplugin_amd.settings import DOMAIN

Ask = Callable[..., list[int]]


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Ask:
    """Return what asks for devices by the numbers of their nodes in KFD."""
    tree = AmdTree(tmp_path_factory.mktemp("amd") / "node", request.param)
    plugin = tree.plugin(state_file=None)
    minors = {node.minor: node.number for node in tree.nodes()}

    def number(device: dp.Device) -> int:
        return minors[int(device.nodes[-1].container_path.removeprefix("/dev/dri/renderD"))]

    known = {number(device): device for device in plugin.discover()}

    def asked(free: Iterable[int], size: int, required: Iterable[int] = ()) -> list[int]:
        available = [device for place, device in known.items() if place in {*free}]
        needed = [known[place] for place in required]
        return sorted(map(number, plugin.prefer(available, needed, size)))

    return asked


@pytest.mark.parametrize("ask", [MI210], indirect=True)
def test_gpus_of_one_hive_go_together(ask: Ask) -> None:
    assert [2, 3] == ask([2, 3, 6, 7], 2)
    assert [6, 7, 8] == ask([2, 6, 7, 8], 3)
    assert ask([2, 6, 9], 2, required=[2]) in ([2, 6], [2, 9])  # equally far
    assert ask(range(2, 10), 4) in ([2, 3, 4, 5], [6, 7, 8, 9])


@pytest.mark.parametrize("ask", [MI300X], indirect=True)
def test_partitions_are_of_as_few_gpus_as_can_be_and_leave_others_whole(ask: Ask) -> None:
    everything = range(2, 65)
    assert list(range(58, 65)) == ask(everything, 7)
    whole = [list(range(first, first + 8)) for first in range(2, 58, 8)]
    assert ask(everything, 8) in whole
    assert [7, 8, 9] == ask([7, 8, 9, *range(13, 18), *range(18, 58)], 3)


@pytest.mark.parametrize("ask", [MI300X], indirect=True)
def test_several_gpus_are_of_one_numa_node(ask: Ask) -> None:
    def cpus(answer: list[int]) -> set[int]:
        return {0 if place < 34 else 1 for place in answer}

    for size in (9, 16, 24, 32):
        answer = ask(range(2, 65), size)
        assert size == len(answer)
        assert 1 == len(cpus(answer)), size
    assert {1} == cpus(ask([*range(26, 65)], 9, required=[42]))


@pytest.mark.parametrize("ask", [SMALL], indirect=True)
def test_without_links_the_numa_node_decides(ask: Ask) -> None:
    assert [2, 3] == ask([2, 3, 4], 2)
    assert [4, 5] == ask([3, 4, 5], 2)


@pytest.mark.parametrize(("policy", "expected"), [("spread", "abcd"), ("packed", "aaaa")])
def test_shares_are_spread_or_packed(build: Build, policy: str, expected: str) -> None:
    plugin = build(SMALL).plugin(shares=5, share_policy=policy)
    devices = list(plugin.discover())
    assert (20, "0000:05:00.0::0") == (len(devices), devices[0].id)
    names = dict(zip(SMALL.addresses, "abcd", strict=True))
    chosen = plugin.prefer(devices, (), 4)
    assert expected == "".join(names[device.id.partition("::")[0]] for device in chosen)


def written(path: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in path.read_text().splitlines())


def test_the_labels_are_those_of_amds_labeller(build: Build, tmp_path: Path) -> None:
    path = tmp_path / "features.d/amd"
    list(build(VEGA).plugin(labels_file=path).discover())
    facts = {
        "device-id": "6860",
        "product-name": "Radeon_Instinct_MI25",
        "vram": "16G",
        "simd-count": "256",
        "cu-count": "64",
    }
    assert {
        "amd.com/gpu.driver-version": "6.8.5",
        "amd.com/gpu.driver-src-version": "A6B0C2F29B2B9F9E6A64E19",
        "amd.com/gpu.compute-partitioning-supported": "false",
        "amd.com/gpu.memory-partitioning-supported": "false",
        **{f"amd.com/gpu.{kind}": value for kind, value in facts.items()},
        **{f"beta.amd.com/gpu.{kind}": value for kind, value in facts.items()},
        **{f"beta.amd.com/gpu.{kind}.{value}": "1" for kind, value in facts.items()},
    } == written(path)


def test_labels_count_partitions_by_what_differs(build: Build, tmp_path: Path) -> None:
    path = tmp_path / "labels"
    list(build(MI308, links=False).plugin(labels_file=path).discover())
    found = written(path)
    assert "48G" == found["amd.com/gpu.vram"]
    assert "20" == found["amd.com/gpu.cu-count"]
    assert "32" == found["beta.amd.com/gpu.cu-count.20"]
    assert "cpx_nps1" == found["amd.com/gpu.compute-memory-partition"]
    assert "true" == found["amd.com/gpu.compute-partitioning-supported"]
    tree = build()
    tree.divide(SMALL.addresses[0], "QPX")
    list(tree.plugin(resource_naming_strategy="mixed", labels_file=path).discover())
    found = written(path)
    assert ("3", "4") == (found["amd.com/gpu.vram.48G"], found["amd.com/gpu.vram.12G"])
    assert not {"amd.com/gpu.vram", "amd.com/gpu.compute-memory-partition"} & {*found}


def test_labels_go_with_the_last_gpu(build: Build, tmp_path: Path) -> None:
    tree, path = build(MI210, links=False), tmp_path / "labels"
    tree.refuse()
    plugin = tree.plugin(labels_file=path)
    list(plugin.discover())
    found = written(path)
    assert "64G" == found["amd.com/gpu.vram"], "without privilege it is what PCI says"
    assert "amd.com/gpu.cu-count" not in found
    for address in MI210.addresses:
        tree.vanish(address)
    list(plugin.discover())
    assert not path.exists()


NAMES = '{gpus: [{pattern: "*MI210", name: mi210}, {pattern: 740f, name: x.org/a}]%s}'


@pytest.mark.parametrize(
    ("machine", "names", "expected"),
    [
        (MI210, NAMES % "", {"amd.com/mi210": 8}),
        (MI210, NAMES.replace("210", "250") % "", {"x.org/a": 8}),
        (MI210, '{gpus: [{pattern: "0000:0*", name: a}]}', {"amd.com/a": 1, "amd.com/gpu": 7}),
        (MI210, '{partitions: [{pattern: "*", name: a}]}', {"amd.com/gpu": 8}),
        # Partitions are not whole GPUs, whatever their model.
        (MI300X, '{gpus: [{pattern: "*", name: a}]}', {"amd.com/cpx_nps4": 63}),
        (MI300X, '{partitions: [{pattern: "CPX_*", name: part}]}', {"amd.com/part": 63}),
        (MI300X, NAMES % ', partitions: [{pattern: "qpx*", name: q}]', {"amd.com/cpx_nps4": 63}),
    ],
)
def test_resources_are_named_by_model_and_partitions_by_how_gpus_are_divided(
    build: Build, machine: Machine, names: str, expected: dict[str, int]
) -> None:
    tree = build(machine, links=False)
    named = finished(of_text(names, "config.yaml"), naming(DOMAIN, "partitions"))
    plugin = tree.plugin(resources=named, resource_naming_strategy="mixed")
    devices = list(plugin.discover())
    assert expected == Counter(device.resource for device in devices)
    assert [one.attributes for one in tree.plugin().discover()] == [
        one.attributes for one in devices
    ]
    offered = hosted().resources
    assert offered
    patterns = offered(plugin._settings)
    assert all(any(fnmatchcase(name, one) for one in patterns) for name in expected)


def test_a_product_name_that_is_unreadable_for_once_renames_nothing(build: Build) -> None:
    tree = build(SMALL)
    named = Naming((Named(f"{SMALL.name[:5]}*", "amd.com/model"), Named("*", "amd.com/x")))
    plugin = tree.plugin(resources=named)
    assert {"amd.com/model"} == {one.resource for one in plugin.discover()}
    for address in SMALL.addresses:
        (tree.sys / "bus/pci/devices" / address / "product_name").unlink()
    assert {"amd.com/model"} == {one.resource for one in plugin.discover()}
    assert {"amd.com/x"} == {one.resource for one in tree.plugin(resources=named).discover()}
