from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deviceplugin import Allocation, Device, DeviceNode, Mount, Topology, Version
from deviceplugin._config.names import resource_name_problem
from deviceplugin._inventory.validation import (
    allocation_problem,
    device_problem,
    natural_key,
    socket_name_problem,
)

NUMBERED = st.lists(st.sampled_from(["a", "gpu", "-", "0", "1", "9", "٣"])).map("".join)

ACCEPTED = [
    *("x/foo", "x.io/foo", "example.com/gpu", "x.io/Foo_1.b", "hugepages-x.io/foo"),
    *("limits.x.io/f", "1.io/1", "x-y.io/a-b", f"x.io/{'n' * 63}", f"{'d' * 244}/foo"),
    f"{'l' * 70}.io/foo",
]
NEEDS_A_DOMAIN = ["", "foo", "foo.io"]
RESERVED = [
    *("kubernetes.io/foo", "a.kubernetes.io/x", "notkubernetes.io/x", "x.io/kubernetes.io/x"),
    "requests.x.io/foo",
]
BAD_DOMAIN = [
    *("/foo", "X.io/foo", "x_y.io/foo", "x..io/foo", ".x.io/foo", "x.io./foo", "-x.io/foo"),
    *("x-.io/foo", "x.-y/foo", "é.io/foo", "x.io\n/foo", " x.io/foo", f"{'d' * 245}/foo"),
]
BAD_NAME = [
    *("x.io/", "x.io/-foo", "x.io/foo-", "x.io/.foo", "x.io/foo_", "x/y/z", "x.io/foo/"),
    *("x.io/fü", "x.io/f,o", f"x.io/{'n' * 64}", "x.io/foo\n", "x.io/f oo"),
]


@pytest.mark.parametrize("name", ACCEPTED)
def test_resource_names_that_the_kubelet_accepts(name: str) -> None:
    assert "" == resource_name_problem(name)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        *((name, "it needs a domain") for name in NEEDS_A_DOMAIN),
        *((name, "reserved by Kubernetes") for name in RESERVED),
        *((name, "the domain must be") for name in BAD_DOMAIN),
        *((name, "the name after the slash must be") for name in BAD_NAME),
    ],
)
def test_resource_names_that_the_kubelet_refuses(name: str, problem: str) -> None:
    assert problem in resource_name_problem(name)


CDI_NAMES = [
    *("nvidia.com/gpu=0", "vendor/class=name", "k8s.gpu.example.com/gpu=0b3-gpu-1"),
    *("v/c=0:1.2_3-4", "Vendor-1.com/my_class.v2=GPU-4404041a-04cf-1ccf-9e70-f139a9b1e23c"),
]
NUMBERS: dict[str, Any] = {"b": 2**63 - 1, "c": -(2**63), "d": True, "e": Version("1.2.3")}
QUANTITIES: list[Any] = ["0", "4", "80Gi", "1.5G", "500m", "1e3", "2E", "1E-3", 0, 2**63 - 1]


@pytest.mark.parametrize(
    "device",
    [
        Device("a"),
        Device("GPU-0123 x:/é"),
        Device("i" * 63),
        Device("a", nodes=[DeviceNode("/dev/a", permissions=p) for p in ("r", "w", "m", "rwm")]),
        Device("a", mounts=[Mount("/opt/a"), Mount("/", "/host")]),
        Device("a", envs={"A": "", "a-b.c": "=\n"}, annotations={"x.io/a": "1"}),
        Device("a", topology=Topology((0, 1023))),
        Device("a", topology=Topology()),
        Device("a", attributes={"a": "x", **NUMBERS}),
        *(Device("a", capacity={"memory": amount}) for amount in QUANTITIES),
        *(Device("a", cdi_names=[name]) for name in CDI_NAMES),
    ],
)
def test_devices_that_can_be_advertised(device: Device) -> None:
    assert "" == device_problem(device)
    assert "" == allocation_problem(device.allocation)


@pytest.mark.parametrize(
    ("device_id", "problem"),
    [
        ("", "id '' must be a string that is not empty"),
        (None, "id None must be a string that is not empty"),
        ("i" * 64, f"id '{'i' * 64}' has 64 characters, of at most 63"),
        ("i" * 900, f"id '{'i' * 63}...' has 900 characters, of at most 63"),
        *(
            (text, f"id {text!r} has control characters, unreadable bytes or blanks at an end")
            for text in ("a\n", "a\0b", " a", "a ", "a\tb", "\udcff", "a\u2028b")
        ),
    ],
)
def test_ids_that_cannot_be_advertised(device_id: Any, problem: str) -> None:
    assert problem == device_problem(Device(device_id))


NOT_NORMALIZED = "is not normalized: it has '..', '.' or an empty part"


@pytest.mark.parametrize(
    ("recipe", "problem"),
    [
        ({"nodes": [DeviceNode("/dev/a", "dev/a")]}, "device node path 'dev/a' is not absolute"),
        ({"nodes": [DeviceNode("")]}, "device node path '' is not absolute"),
        ({"nodes": [DeviceNode("/dev/..")]}, f"device node path '/dev/..' {NOT_NORMALIZED}"),
        ({"mounts": [Mount("opt", "/opt")]}, "mount path 'opt' is not absolute"),
        *(
            ({"mounts": [Mount(path, "/x")]}, f"mount path {path!r} {NOT_NORMALIZED}")
            for path in ("/srv/../../etc", "/srv/", "/srv/.", "//etc")
        ),
        ({"mounts": [Mount("/x", "/data/..")]}, f"mount path '/data/..' {NOT_NORMALIZED}"),
        *(
            (
                {"nodes": [DeviceNode("/dev/a", permissions=text)]},
                f"device node /dev/a: permissions {text!r} are not r, w and m",
            )
            for text in ("", "x", "rr", "rw\n")
        ),
        *(
            ({"envs": {name: "1"}}, f"environment variable {name!r} is not a variable name")
            for name in ("", "A=B", "A\0")
        ),
        (
            {"envs": {"A": "1", "B": "2\0"}},
            "environment variable 'B' has a NUL character in its value",
        ),
        ({"annotations": {"": "1"}}, "an annotation has an empty key"),
        (
            {"annotations": {"x.io/a\0": "1"}},
            r"annotation 'x.io/a\x00' has a NUL character in its key",
        ),
        (
            {"annotations": {"x.io/a": "\0"}},
            "annotation 'x.io/a' has a NUL character in its value",
        ),
        ({"mounts": [Mount("/a\0b")]}, r"mount path '/a\x00b' has a NUL character"),
        ({"mounts": [Mount("/a\udcff")]}, r"mount path '/a\udcff' is not valid Unicode"),
        ({"envs": {"A": "\udcff"}}, r"environment variable's value '\udcff' is not valid Unicode"),
    ],
)
def test_devices_that_no_runtime_could_give_to_a_container(
    recipe: dict[str, Any], problem: str
) -> None:
    assert f"device a: {problem}" == device_problem(Device("a", **recipe))
    assert problem == allocation_problem(Allocation(**recipe))


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("my-device-plugin", ""),
        (7, "it must be a string"),
        ("a/b", "it must be the name of a file, without a slash"),
        ("a\0", "it must consist of printable characters"),
        ("a\udcff", "it must consist of printable characters"),
        ("kubelet", "kubelet.sock is the kubelet's own socket"),
    ],
)
def test_names_of_sockets(name: object, problem: str) -> None:
    assert problem == socket_name_problem(name)


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("resource", 7, "resource 7 is not a str"),
        ("health", "Unhealthy", "health 'Unhealthy' is not a Health"),
        ("health", True, "health True is not a Health"),
        ("topology", 0, "topology 0 is not a Topology"),
        ("nodes", "/dev/a", "node '/dev/a' is not a DeviceNode"),
        ("mounts", [DeviceNode("/dev/a")], f"mount {DeviceNode('/dev/a')} is not a Mount"),
        ("envs", {1: "a"}, "environment variable 1 is not a str"),
        ("envs", {"A": 1}, "environment variable's value 1 is not a str"),
        ("annotations", {"A": None}, "annotation's value None is not a str"),
        ("cdi_names", [0], "CDI name 0 is not a str"),
        ("attributes", {"cores": 4.5}, "attribute's value 4.5 is not a str or int"),
        (
            "attributes",
            {"cores": -(2**63) - 1},
            f"attribute 'cores' {-(2**63) - 1} has more than 64 bits",
        ),
        ("attributes", {1: "a"}, "attribute 1 is not a str"),
        ("capacity", {"memory": 1.5}, "capacity's value 1.5 is not a str or int"),
        ("capacity", {1: 1}, "capacity 1 is not a str"),
        *(
            ("topology", Topology((number,)), f"NUMA node {number} is not the number of a node")
            for number in (-1, 1024, 2**70)
        ),
        ("share_of", 3, "share_of 3 is not a str"),
        (
            "share_of",
            "a\n",
            "share_of 'a\\n' has control characters, unreadable bytes or blanks at an end",
        ),
        ("capacity", {"m": True}, "capacity 'm' True is not a quantity, such as 4 or 80Gi"),
        ("capacity", {"m": -1}, "capacity 'm' -1 is not a quantity, such as 4 or 80Gi"),
        ("capacity", {"m": "80 GB"}, "capacity 'm' '80 GB' is not a quantity, such as 4 or 80Gi"),
        ("capacity", {"m": 2**63}, f"capacity 'm' {2**63} is not a quantity, such as 4 or 80Gi"),
    ],
)
def test_what_an_author_without_a_type_checker_may_give_is_told(
    field: str, value: object, problem: str
) -> None:
    given_fields: dict[str, Any] = {field: value}
    assert f"device a: {problem}" == device_problem(Device("a", **given_fields))
    assert "discover() must return Device objects, not str" == device_problem("/dev/a")


@pytest.mark.parametrize(
    "name",
    [
        *("", "0", "gpu=0", "nvidia.com=0", "nvidia.com/=0", "/gpu=0", "nvidia.com/gpu"),
        *("nvidia.com/gpu=", "nvidia.com/gpu=0=1", "nvidia.com/gpu/x=0", "nvidia.com/gpu=0\n"),
        *("nvidia.com/gpu=:0", "nvidia.com/gpu=0:", "nvidia.com/gpu=a b", "nvidia.com/-gpu=0"),
        *("nvidia.com/gpu-=0", "nvidia.com./gpu=0", "1vendor/gpu=0", "vendor/1gpu=0"),
        "vendör/gpu=0",
    ],
)
def test_cdi_names_that_runtimes_refuse(name: str) -> None:
    expected = f"device a: CDI name {name!r} is not of the form vendor.com/class=name"
    assert expected == device_problem(Device("a", cdi_names=[name]))


def test_numbers_in_ids_count_as_numbers() -> None:
    mixed = ["x", "gpu10", "10", "gpu1-10", "gpu2", "a", "gpu", "2", "gpu1-2", "", "gpu1"]
    ordered = ["", "2", "10", "a", "gpu", "gpu1", "gpu1-2", "gpu1-10", "gpu2", "gpu10", "x"]
    assert ordered == sorted(mixed, key=natural_key)
    assert natural_key("a" + "1" * 5000) < natural_key("b")


@given(NUMBERED, NUMBERED)
def test_only_equal_ids_have_equal_places(one: str, other: str) -> None:
    assert (one == other) == (natural_key(one) == natural_key(other))


@given(st.integers(0, 10**60), st.integers(0, 10**60))
def test_ids_that_differ_in_a_number_are_in_its_order(one: int, other: int) -> None:
    expected = one < other
    assert expected == (natural_key(f"gpu{one}-a") < natural_key(f"gpu{other}-a"))
