"""What a container gets that is given several devices."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

import deviceplugin as dp
from deviceplugin.kit.environment import Joined, variable
from deviceplugin.model._device import merged
from deviceplugin_testing.fixture import Kubelet

ADVICE = (
    ': request one of them for each container, or have their plugin number them with "{position}"'
)


def camera(number: int, inside: str = "/dev/video0") -> dp.Device:
    return dp.Device(f"cam{number}", nodes=[dp.DeviceNode(f"/dev/video{number}", inside)])


def numbered(device_id: str, text: str, host: str = "/dev/x") -> dp.Device:
    """Return a device that has ``text`` wherever it can be numbered."""
    return dp.Device(
        device_id,
        nodes=[dp.DeviceNode(f"{host}{device_id}{text}", f"/dev/node{text}")],
        mounts=[dp.Mount(f"{host}{device_id}", f"/mnt{text}", read_only=True)],
        envs={f"NAME{text}": f"value{text} of {device_id}"},
        annotations={f"x.io/name{text}": f"value{text}"},
        numbered=True,
    )


@pytest.mark.parametrize(
    ("one", "other", "problem"),
    [
        (
            camera(0),
            camera(1, "/dev/./video0"),
            "/dev/video0 in the container would be /dev/video0 of cam0 and /dev/video1 of cam1",
        ),
        (
            dp.Device("a", mounts=[dp.Mount("/opt/a", "/data")]),
            dp.Device("b", mounts=[dp.Mount("/opt/b", "/data")]),
            "/data in the container would be /opt/a of a and /opt/b of b",
        ),
        (
            dp.Device("a", nodes=[dp.DeviceNode("/dev/a", "/data")]),
            dp.Device("b", mounts=[dp.Mount("/opt/b", "/data")]),
            "/data in the container would be /dev/a of a and /opt/b of b",
        ),
        (
            dp.Device("a", envs={"SEAT": "secret1"}),
            dp.Device("b", envs={"SEAT": "secret2"}),
            "environment variable SEAT would have different values for a and b",
        ),
        (
            dp.Device("a", annotations={"x.io/seat": "1"}),
            dp.Device("b", annotations={"x.io/seat": "2"}),
            "annotation x.io/seat would have different values for a and b",
        ),
    ],
)
def test_devices_that_would_hide_each_other_are_refused(
    one: dp.Device, other: dp.Device, problem: str
) -> None:
    with pytest.raises(dp.AllocationError) as caught:
        merged([one, other])
    assert problem + ADVICE == str(caught.value)
    assert (one.id, other.id) == caught.value.device_ids


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["b", "a"], "b,a"),
        (["a,b", "b,c", ""], "a,b,c"),  # equal parts once, and nothing of who has none
        (["", ""], ""),
        (["a"], "a"),
    ],
)
def test_lists_of_devices_are_joined(values: Iterable[str], expected: str) -> None:
    devices = [dp.Device(f"d{i}", envs={"LIST": Joined(v)}) for i, v in enumerate(values)]
    assert {"LIST": expected} == merged(devices).envs


@pytest.mark.parametrize("values", [("a", Joined("b")), (Joined("a"), "b")])
def test_a_list_and_a_value_of_one_name_are_in_conflict(values: Iterable[str]) -> None:
    devices = [dp.Device(f"d{i}", envs={"LIST": value}) for i, value in enumerate(values)]
    with pytest.raises(dp.AllocationError, match="LIST would have different values for d0 and d1"):
        merged(devices)


def test_a_list_of_numbered_devices_has_their_numbers() -> None:
    devices = [dp.Device(x, envs={"L": Joined(f"{x}{{position}}")}, numbered=True) for x in "ab"]
    assert {"L": "a0,b1"} == merged(devices).envs


def test_a_variable_after_a_resource_is_named_as_others_name_it() -> None:
    assert "DEVIC_ES_GPU-A_1_B" == variable("devic.es/gpu-a_1.b")


def test_what_several_devices_have_in_common_is_given_once() -> None:
    devices = [
        dp.Device(
            name,
            nodes=[dp.DeviceNode("/dev/ctl"), dp.DeviceNode(f"/dev/{name}")],
            mounts=[dp.Mount("/opt")],
            envs={"A": "1", name: ""},
            annotations={"x.io/a": "1"},
            cdi_names=["x.io/a=1", f"x.io/a={name}"],
        )
        for name in ("b", "c")
    ]
    expected = dp.Allocation(
        nodes=[dp.DeviceNode(path) for path in ("/dev/ctl", "/dev/b", "/dev/c")],
        mounts=[dp.Mount("/opt")],
        envs={"A": "1", "b": "", "c": ""},
        annotations={"x.io/a": "1"},
        cdi_names=["x.io/a=1", "x.io/a=b", "x.io/a=c"],
    )
    assert expected == merged(devices)


def test_a_place_may_have_other_permissions_and_a_device_may_hide_a_part_of_itself() -> None:
    nodes = [dp.DeviceNode("/dev/ctl", permissions=letters) for letters in ("r", "rw")]
    one, other = (dp.Device(name, nodes=[node]) for name, node in zip("ab", nodes, strict=True))
    assert tuple(nodes) == merged([one, other]).nodes
    hidden = [dp.DeviceNode("/dev/a", "/dev/x"), dp.DeviceNode("/dev/b", "/dev/x")]
    shares = [dp.Device(name, nodes=hidden) for name in ("a0", "a1")]
    assert tuple(hidden) == merged(shares).nodes


def test_numbered_devices_get_their_position_in_the_container() -> None:
    allocation = merged([numbered("a", "{position}"), numbered("b", "{position}")])
    expected = dp.Allocation(
        nodes=[
            dp.DeviceNode("/dev/xa{position}", "/dev/node0"),
            dp.DeviceNode("/dev/xb{position}", "/dev/node1"),
        ],
        mounts=[
            dp.Mount("/dev/xa", "/mnt0", read_only=True),
            dp.Mount("/dev/xb", "/mnt1", read_only=True),
        ],
        envs={"NAME0": "value0 of a", "NAME1": "value1 of b"},
        annotations={"x.io/name0": "value0", "x.io/name1": "value1"},
    )
    assert expected == allocation


def test_a_device_alone_is_the_first() -> None:
    device = numbered("a", "{position}")
    assert merged([device]) == device.allocation == device.allocation_at(0)
    assert {"NAME3": "value3 of a"} == device.allocation_at(3).envs


def test_devices_with_one_recipe_have_one_position() -> None:
    shares = [
        dp.Device(
            f"{card}-{share}",
            nodes=[dp.DeviceNode(f"/dev/{card}", "/dev/card{position}")],
            numbered=True,
        )
        for card in ("x", "y")
        for share in range(2)
    ]
    expected = (dp.DeviceNode("/dev/x", "/dev/card0"), dp.DeviceNode("/dev/y", "/dev/card1"))
    assert expected == merged(shares).nodes


@given(st.text("{}position 0", max_size=20))
def test_other_braces_stay_as_they_are(text: str) -> None:
    device = dp.Device("a", envs={"A": text})
    assert {"A": text} == merged([device]).envs
    if "{position}" not in text:
        assert device.allocation == merged([dp.Device("a", envs={"A": text}, numbered=True)])


class CameraPlugin(dp.Plugin):
    resource = "example.com/camera"

    @override
    def discover(self) -> Iterable[dp.Device]:
        for number in (2, 10, 1):
            node = dp.DeviceNode(f"/dev/video{number}", "/dev/video{position}")
            yield dp.Device(f"cam{number}", nodes=[node], numbered=True)


def test_positions_follow_the_natural_order_however_often_it_is_asked(kubelet: Kubelet) -> None:
    with kubelet.running(CameraPlugin()) as node:
        node.wait_for("example.com/camera", {"cam1", "cam2", "cam10"})
        for _ in range(2):
            allocation = node.allocate("cam10", "cam2")
            assert {"/dev/video2": "/dev/video0", "/dev/video10": "/dev/video1"} == {
                one.host_path: one.container_path for one in allocation.nodes
            }
