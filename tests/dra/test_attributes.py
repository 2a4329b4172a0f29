"""What slices say about a device."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import deviceplugin as dp
from deviceplugin._dra.slices.attributes import Describer, pcie_root, semantic
from deviceplugin._inventory.validation import device_problem
from deviceplugin_testing.simulator._control_plane.rules.slices import check_slice

DRIVER = "gopher.example.com"
RESOURCE = "example.com/gopher"
QUANTITY = r"[+-]?[0-9]+(\.[0-9]*)?([numkMGTPE]|[KMGTPE]i|[eE][-+]?[0-9]+)?"


def described(device: dp.Device, sysfs: Path = Path("/nowhere")) -> dict[str, Any]:
    found, cuts = Describer(DRIVER, sysfs).describe(device, RESOURCE)
    assert [] == cuts
    return found


def test_values_keep_their_types_beside_id_and_resource() -> None:
    device = dp.Device(
        "Gerd:1",
        attributes={"a": "12", "b": 12, "c": True, "d": dp.Version("1.2.3"), "e": False},
        capacity={"memory": "80Gi", "lenses": 3},
    )
    assert {
        "attributes": {
            "id": {"string": "Gerd:1"},
            "resource": {"string": RESOURCE},
            "a": {"string": "12"},
            "b": {"int": 12},
            "c": {"bool": True},
            "d": {"version": "1.2.3"},
            "e": {"bool": False},
        },
        "capacity": {"memory": {"value": "80Gi"}, "lenses": {"value": "3"}},
    } == described(device)
    assert "capacity" not in described(dp.Device("x"))


def test_the_numa_node_of_a_device_that_is_near_one() -> None:
    found = described(dp.Device("x", topology=dp.Topology([1])))["attributes"]
    assert [{"int": 1}] * 2 == [found["numaNode"], found["resource.kubernetes.io/numaNode"]]
    for topology in (None, dp.Topology(), dp.Topology([0, 1])):
        assert "numaNode" not in described(dp.Device("x", topology=topology))["attributes"]


@pytest.mark.parametrize("address", ["0000:3b:00.0", "0000:3B:00.0", "00000000:3B:00.0"])
def test_a_pci_device_has_its_address_and_its_root(tmp_path: Path, address: str) -> None:
    folder = tmp_path / "devices/pci0000:3a/0000:3a:01.0/0000:3b:00.0"
    folder.mkdir(parents=True)
    bus = tmp_path / "bus/pci/devices"
    bus.mkdir(parents=True)
    (bus / "0000:3b:00.0").symlink_to(folder)
    found = described(dp.Device("x", attributes={"pci": address}), tmp_path)["attributes"]
    assert {"string": address} == found["pci"]
    assert {"string": "0000:3b:00.0"} == found["resource.kubernetes.io/pciBusID"]
    assert {"string": "pci0000:3a"} == found["resource.kubernetes.io/pcieRoot"]


@pytest.mark.parametrize("pci", ["0000:3b:00.0,0000:3c:00.0", "x", "", 7, True])
def test_what_is_not_one_pci_address_stays_an_attribute(pci: str | int) -> None:
    found = described(dp.Device("x", attributes={"pci": pci}))["attributes"]
    assert "resource.kubernetes.io/pciBusID" not in found


def test_a_root_that_is_not_known_is_not_there(tmp_path: Path) -> None:
    assert "" == pcie_root("0000:3b:00.0", tmp_path)
    place = tmp_path / "bus/pci/devices/0000:3b:00.0"
    place.mkdir(parents=True)
    assert "" == pcie_root("0000:3b:00.0", tmp_path)
    loop = place.parent / "loop"
    loop.symlink_to(loop)
    assert "" == pcie_root("loop", tmp_path)


def test_what_an_author_says_of_a_standard_attribute_counts() -> None:
    given_root = {"resource.kubernetes.io/pciBusID": "0000:01:00.0", "pci": "0000:3b:00.0"}
    found = described(dp.Device("x", attributes=given_root))["attributes"]
    assert {"string": "0000:01:00.0"} == found["resource.kubernetes.io/pciBusID"]


@pytest.mark.parametrize(
    ("given_version", "expected"),
    [
        ("1.2.3", "1.2.3"),
        ("535.104", "535.104.0"),
        ("595.58.03", "595.58.3"),
        ("v1", "1.0.0"),
        ("000", "0.0.0"),
        ("1.2.3-rc.1+01.a", "1.2.3-rc.1+01.a"),
        ("1-rc", "1.0.0-rc"),
        ("1.2.3-01", ""),
        ("1.2.3-rc.01", ""),
        ("1.2.3.4", ""),
        (f"1{'0' * 19}", ""),
        (f"1.2.3-1{'0' * 19}", ""),
        (f"1.2.3-1{'0' * 19}a+1{'0' * 19}", f"1.2.3-1{'0' * 19}a+1{'0' * 19}"),
        ("1.2.3-", ""),
        ("1.2.3+", ""),
        ("x", ""),
        ("", ""),
    ],
)
def test_versions(given_version: str, expected: str) -> None:
    assert expected == semantic(given_version)


def test_long_resource_names_that_begin_alike_are_told_apart() -> None:
    names = ["example.com/" + "x" * 60 + end for end in "ab"]
    found = [Describer(DRIVER).describe(dp.Device("d"), name) for name in names]
    shown = [described["attributes"]["resource"]["string"] for described, _ in found]
    assert [64, 64] == [len(one) for one in shown]
    assert 2 == len(set(shown))
    assert [[], []] == [cuts for _, cuts in found]


def test_what_had_to_be_cut_is_said() -> None:
    device = dp.Device(
        "x",
        attributes={
            "long": "ä" * 40,
            "version": dp.Version("one"),
            "far": dp.Version("1" * 65),
            **{f"a{i}": i for i in range(26)},
        },
        capacity={f"c{i}": i for i in range(2)},
    )
    found, cuts = Describer(DRIVER).describe(device, RESOURCE)
    assert {"string": "ä" * 32} == found["attributes"]["long"]
    assert {"string": "one"} == found["attributes"]["version"]
    assert {"string": "1" * 64} == found["attributes"]["far"]
    assert (30, 2) == (len(found["attributes"]), len(found["capacity"]))
    assert [
        "long: is longer than 64 bytes",
        "version: 'one' is not a semantic version, and is a string in slices",
        f"far: '{'1' * 65}' is not a semantic version, and is a string in slices",
        "far: is longer than 64 bytes",
        "a25: a device has at most 32 attributes and capacities in slices",
    ] == cuts


def test_capacities_that_there_is_no_room_for_are_said() -> None:
    device = dp.Device("x", capacity={f"c{i}": i for i in range(31)})
    found, cuts = Describer(DRIVER).describe(device, RESOURCE)
    assert 30 == len(found["capacity"])
    assert ["c30: a device has at most 32 attributes and capacities in slices"] == cuts


VALUES = (
    st.text(max_size=90)
    | st.integers(-(2**63), 2**63 - 1)
    | st.booleans()
    | st.text(max_size=90).map(dp.Version)
    | st.from_regex(r"v?[0-9]{1,5}(\.[0-9]{1,5}){0,3}(-[0-9a-z.-]{1,8})?", fullmatch=True).map(
        dp.Version
    )
)
NAMES = st.text(max_size=40) | st.sampled_from(["id", "pci", "numaNode", "a-b", "a_b"])
AMOUNTS = st.integers(0, 2**63 - 1) | st.from_regex(
    r"[0-9]{1,5}(\.[0-9]{1,3})?([numkMGTPE]|[KMGTPE]i|e[0-9])?", fullmatch=True
)
DEVICES = st.builds(
    dp.Device,
    st.text(min_size=1, max_size=63),
    attributes=st.dictionaries(NAMES, VALUES, max_size=40),
    capacity=st.dictionaries(NAMES, AMOUNTS, max_size=40),
    topology=st.none() | st.builds(dp.Topology, st.lists(st.integers(0, 8), max_size=2)),
).filter(lambda device: not device_problem(device))


@settings(max_examples=25)
@given(DEVICES)
def test_whatever_a_device_has_the_api_server_accepts_it(device: dp.Device) -> None:
    found, _ = Describer(DRIVER).describe(device, RESOURCE)
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": "n", "pool": pool, "devices": [{"name": "x", **found}]}
    assert [] == [*check_slice({"spec": spec})]
    types = {"bool": bool, "int": int, "string": str, "version": str}
    for ((kind, value),) in (attribute.items() for attribute in found["attributes"].values()):
        assert types[kind] is type(value)
        assert not isinstance(value, int) or -(2**63) <= value < 2**63
    for amount in found.get("capacity", {}).values():
        assert re.fullmatch(QUANTITY, amount["value"])


# Lists.

TWO_SOCKETS_IN_QUARTERS = [
    " ".join("10" if a == b else "12" if a // 4 == b // 4 else "32" for b in range(8))
    for a in range(8)
]


def machine(root: Path, *distances: str, sockets: str = "00001111", online: str = "") -> Path:
    """Make a sysfs with a CPU for each NUMA node, in the socket of its digit; none for a space."""
    nodes = root / "devices/system/node"
    nodes.mkdir(parents=True)
    (nodes / "online").write_text(f"{online or f'0-{len(distances) - 1}'}\n")
    for number, row in enumerate(distances):
        (nodes / f"node{number}").mkdir()
        (nodes / f"node{number}/distance").write_text(f"{row}\n")
        cpus = "" if sockets[number] == " " else f"{number},{number + 8}"
        (nodes / f"node{number}/cpulist").write_text(f"{cpus}\n")
        place = root / f"devices/system/cpu/cpu{number}/topology"
        place.mkdir(parents=True)
        (place / "physical_package_id").write_text(f"{sockets[number]}\n")
    return root


@pytest.mark.parametrize(
    ("numa", "distances", "options", "expected"),
    [
        pytest.param([1], TWO_SOCKETS_IN_QUARTERS, {}, [1, 0, 2, 3], id="the own node is first"),
        pytest.param([5], TWO_SOCKETS_IN_QUARTERS, {}, [5, 4, 6, 7], id="of its own socket"),
        pytest.param([0], ["10 32", "32 10"], {"sockets": "01"}, [0], id="the next is far"),
        pytest.param([0], ["10 11 12", "", ""], {}, [0, 1], id="the nearest only"),
        pytest.param([0], ["10"], {}, [0], id="one node"),
        pytest.param([0], ["10 12", ""], {"sockets": "0 "}, [0], id="memory without CPUs"),
        pytest.param([0], ["10 12", ""], {"sockets": "  "}, [0], id="sockets are unknown"),
        pytest.param([0], ["10 12", ""], {"sockets": "--"}, [0], id="the kernel says -1"),
        pytest.param([0], ["10 12", ""], {"online": "0,4"}, [0], id="node 4 is not there"),
        pytest.param([0], ["10 12"], {"online": "0-2"}, [0], id="a row that is too short"),
        pytest.param([0], ["10 x", ""], {}, [0], id="no distance"),
        pytest.param([2], [""], {}, [2], id="a node that is not there"),
        pytest.param([0, 5], TWO_SOCKETS_IN_QUARTERS, {}, [0, 5], id="nodes that the plugin knows"),
    ],
)
def test_numa_nodes_in_lists(
    tmp_path: Path,
    numa: list[int],
    distances: list[str],
    options: dict[str, str],
    expected: list[int],
) -> None:
    sysfs = machine(tmp_path, *distances, **options)
    device = dp.Device("x", topology=dp.Topology(numa))
    found, cuts = Describer(DRIVER, sysfs, lists=True).describe(device, RESOURCE)
    assert [] == cuts
    assert {"ints": expected} == found["attributes"]["resource.kubernetes.io/numaNode"]
    assert ([{"int": numa[0]}] if len(numa) == 1 else []) == [
        value for name, value in found["attributes"].items() if name == "numaNode"
    ]
    assert "ints" not in str(described(device, sysfs))


@pytest.mark.parametrize(
    ("pci", "scalar", "listed"),
    [
        pytest.param("3b,3c", {"string": "pci0000:3a"}, {"string": "pci0000:3a"}, id="one root"),
        pytest.param("3b,81", None, {"strings": ["pci0000:3a", "pci0000:80"]}, id="two roots"),
        pytest.param("3b,99", None, None, id="of one the root is unknown"),
    ],
)
def test_roots_of_a_device_of_several_functions(
    tmp_path: Path, pci: str, scalar: object, listed: object
) -> None:
    bus = tmp_path / "bus/pci/devices"
    bus.mkdir(parents=True)
    for root, number in (("3a", "3b"), ("3a", "3c"), ("80", "81")):
        folder = tmp_path / f"devices/pci0000:{root}/0000:{number}:00.0"
        folder.mkdir(parents=True)
        (bus / folder.name).symlink_to(folder)
    pci = ",".join(f"0000:{one}:00.0" for one in pci.split(","))
    device = dp.Device("x", attributes={"pci": pci})
    for lists, expected in ((False, scalar), (True, listed)):
        found, _ = Describer(DRIVER, tmp_path, lists=lists).describe(device, RESOURCE)
        assert expected == found["attributes"].get("resource.kubernetes.io/pcieRoot")


def test_a_list_that_is_too_long_is_cut_and_that_is_said() -> None:
    attributes = {f"a{number:02}": number for number in range(40)}
    device = dp.Device("x", attributes=attributes, topology=dp.Topology(range(20)))
    found, cuts = Describer(DRIVER, lists=True).describe(device, RESOURCE)
    assert list(range(17)) == found["attributes"]["resource.kubernetes.io/numaNode"]["ints"]
    cut = "resource.kubernetes.io/numaNode: a device has at most 48 values of attributes in slices"
    assert [cut] == [one for one in cuts if "48" in one]
