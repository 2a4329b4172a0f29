from hypothesis import given
from hypothesis import strategies as st

from deviceplugin import Allocation, Device, DeviceNode, Health, Mount, Topology
from deviceplugin._inventory.allocating import decode_allocation, encode_allocation
from deviceplugin._inventory.published import encode_list
from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
ALLOCATIONS = st.builds(
    Allocation,
    nodes=st.lists(st.builds(DeviceNode, TEXTS, TEXTS, TEXTS), max_size=3),
    mounts=st.lists(st.builds(Mount, TEXTS, TEXTS, st.booleans()), max_size=3),
    envs=st.dictionaries(TEXTS, TEXTS, max_size=3),
    annotations=st.dictionaries(TEXTS, TEXTS, max_size=3),
    cdi_names=st.lists(TEXTS, max_size=3),
)


def test_a_list_says_who_the_devices_are_and_how() -> None:
    sick = Device("a", health=Health.unhealthy("dust"), topology=Topology((1, 0)))
    answer = pb.ListAndWatchResponse.FromString(encode_list([Device("b"), sick]))
    topology = pb.TopologyInfo(nodes=[pb.NUMANode(ID=0), pb.NUMANode(ID=1)])
    expected = [
        pb.Device(ID="b", health="Healthy"),
        pb.Device(ID="a", health="Unhealthy", topology=topology),
    ]
    assert expected == list(answer.devices)


def test_a_topology_is_never_present_but_empty() -> None:
    answer = pb.ListAndWatchResponse.FromString(encode_list([Device("a", topology=Topology())]))
    assert not answer.devices[0].HasField("topology")


def test_the_same_devices_are_the_same_bytes() -> None:
    recipe = [Device("a", nodes=[DeviceNode("/dev/a")], attributes={"model": "T1"})]
    assert encode_list([Device("a")]) == encode_list(recipe)
    assert b"" == encode_list([])


def test_an_allocation_has_every_part_on_the_wire() -> None:
    allocation = Allocation(
        nodes=[DeviceNode("/dev/a", "/dev/b", "r")],
        mounts=[Mount("/opt/a", "/opt/b", read_only=True)],
        envs={"A": "1"},
        annotations={"x.io/a": "2"},
        cdi_names=["x.io/a=1"],
    )
    expected = pb.ContainerAllocateResponse(
        envs={"A": "1"},
        mounts=[pb.Mount(container_path="/opt/b", host_path="/opt/a", read_only=True)],
        devices=[pb.DeviceSpec(container_path="/dev/b", host_path="/dev/a", permissions="r")],
        annotations={"x.io/a": "2"},
        cdi_devices=[pb.CDIDevice(name="x.io/a=1")],
    )
    assert expected == encode_allocation(allocation)


@given(ALLOCATIONS)
def test_an_allocation_comes_back_from_the_wire_as_it_was(allocation: Allocation) -> None:
    encoded = encode_allocation(allocation).SerializeToString()
    response = pb.ContainerAllocateResponse.FromString(encoded)
    assert allocation == decode_allocation(response)
