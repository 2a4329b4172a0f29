"""The classic variables: what each means, its default, and what is refused."""

import socket
from collections.abc import Mapping
from pathlib import Path

import pytest

import deviceplugin as dp
from deviceplugin._config.loading import load
from deviceplugin_simulated import SimulatedPlugin, SimulatedSettings
from deviceplugin_testing.fixture import Kubelet
from patience import eventually

RESOURCE = "example.com/simple-device"


HOST = socket.gethostname()


def loaded(variables: Mapping[str, str], **flags: str) -> SimulatedSettings:
    return load(SimulatedSettings, flags=flags, environ=variables)


VARIABLES = [
    ("PLUGIN_NAME", "plugin-name", "simple-device-plugin", "other"),
    ("RESOURCE_NAME", "resource", RESOURCE, "example.com/other"),
    ("NUMBER_DEVICES", "number-devices", 2, 5),
    ("DEVICE_ID_PREFIX", "device-id-prefix", "simple-device", "gpu"),
    ("ANNOTATION_PREFIX", "annotation-prefix", "", "example.com/a"),
    ("ENV_PREFIX", "env-prefix", "", "SIM"),
    ("DEVICE_FILE_PREFIX", "device-file-prefix", "", "sim"),
    ("NODE_NAME", "node-name", "", "n1"),
]


@pytest.mark.parametrize(("variable", "key", "default", "other"), VARIABLES)
def test_each_classic_variable_has_its_default_and_sets_its_key(
    variable: str, key: str, default: object, other: object
) -> None:
    name = key.replace("-", "_")
    assert default == getattr(loaded({}), name)
    assert other == getattr(loaded({variable: str(other)}), name)


def test_a_variable_of_the_framework_wins_over_a_classic_one_and_a_flag_over_both() -> None:
    both = {"NUMBER_DEVICES": "3", "DP_NUMBER_DEVICES": "4"}
    assert 4 == loaded(both).number_devices
    assert 5 == loaded(both, **{"number-devices": "5"}).number_devices


def test_ids_are_prefix_node_name_and_index_and_the_node_is_the_host_where_none_is_given() -> None:
    plugin = SimulatedPlugin()
    assert (RESOURCE, "simple-device-plugin") == (plugin.resource, plugin.socket_name)
    expected = [dp.Device(f"simple-device-{HOST}-{number}", resource=RESOURCE) for number in (0, 1)]
    assert expected == list(plugin.discover())


@pytest.mark.parametrize(
    ("prefix", "form", "expected"),
    [
        ("annotation_prefix", "index", dp.Allocation(annotations={"x-simple-device-n1-1": ""})),
        ("env_prefix", "index", dp.Allocation(envs={"x_simple-device-n1-1": "/dev/1"})),
        (
            "env_prefix",
            "id",
            dp.Allocation(envs={"x_simple-device-n1-1": "/dev/simple-device-n1-1"}),
        ),
        ("device_file_prefix", "index", dp.Allocation([dp.DeviceNode("/dev/x-1", "/dev/x-1")])),
        ("device_file_prefix", "id", dp.Allocation([dp.DeviceNode("/dev/x-simple-device-n1-1")])),
    ],
)
def test_each_prefix_gives_its_part_in_both_forms(
    prefix: str, form: str, expected: dp.Allocation
) -> None:
    settings = SimulatedSettings(node_name="n1", **{prefix: "x", "value_form": form})  # type: ignore[arg-type]
    assert expected == list(SimulatedPlugin(settings).discover())[-1].allocation


def test_a_container_gets_all_parts_of_all_its_devices(kubelet: Kubelet) -> None:
    settings = SimulatedSettings(
        node_name="n1",
        number_devices=3,
        annotation_prefix="Example.com/a",  # a domain of any case
        env_prefix="E",
        device_file_prefix="sim/f",
    )
    ids = [f"simple-device-n1-{index}" for index in range(3)]
    with kubelet.running(SimulatedPlugin(settings)) as node:
        node.wait_for(RESOURCE, set(ids))
        eventually((node.kubelet.plugin_dir / "simple-device-plugin.sock").is_socket)
        expected = dp.Allocation(
            nodes=[dp.DeviceNode("/dev/sim/f-0"), dp.DeviceNode("/dev/sim/f-2")],
            envs={f"E_{ids[0]}": "/dev/0", f"E_{ids[2]}": "/dev/2"},
            annotations={f"Example.com/a-{one}": "" for one in (ids[0], ids[2])},
        )
        assert expected == node.allocate(ids[2], ids[0])


BLANKS = "has blanks or control characters"
DOMAIN = "has no domain before the slash, such as example.com"
NAME = "must be letters, digits, '-', '_' and '.', with a letter or digit at both ends"
COUNT = "is not between 0 and 100000"
SOCKET = "cannot be the name of a plugin's socket"
LONG = "is too long: its socket would have a path of 117 bytes, of at most 107"
PATH = "is not a path below /dev"
EMPTY = "is empty: give a value, or leave it out for"


def _no_annotation(prefix: str, problem: str) -> str:
    name = f"{prefix}-simple-device-n1-1"
    return f"{prefix!r} does not make the name of an annotation: {name!r} {problem}"


def _too_long(prefix: str, node: str, length: int) -> str:
    both = f"device-id-prefix {prefix!r} and node-name {node!r} cannot be combined: "
    return f"{both}id '{prefix}-{node}-1' has {length} characters, of at most 63"


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("NUMBER_DEVICES", "-1", f"number-devices -1 {COUNT}"),
        ("NUMBER_DEVICES", "100001", f"number-devices 100001 {COUNT}"),
        ("RESOURCE_NAME", "", f"{{}}: '' {EMPTY} {RESOURCE!r}"),
        ("PLUGIN_NAME", "a/b", f"plugin-name 'a/b' {SOCKET}"),
        ("PLUGIN_NAME", "kubelet", f"plugin-name 'kubelet' {SOCKET}"),
        ("PLUGIN_NAME", "x" * 80, f"plugin-name {'x' * 80!r} {LONG}"),
        ("DEVICE_ID_PREFIX", "a b", f"device-id-prefix 'a b' {BLANKS}"),
        ("DEVICE_ID_PREFIX", "x" * 60, _too_long("x" * 60, "n1", 65)),
        ("NODE_NAME", "n" * 50, _too_long("simple-device", "n" * 50, 66)),
        ("NODE_NAME", "n\n", f"node-name 'n\\n' {BLANKS}"),
        ("ANNOTATION_PREFIX", "a b", f"annotation-prefix 'a b' {BLANKS}"),
        *(
            ("ANNOTATION_PREFIX", prefix, f"annotation-prefix {_no_annotation(prefix, problem)}")
            for prefix, problem in (
                ("a/b/c", "has more than one slash"),
                *(("a_b/c", DOMAIN), ("a=b", NAME)),
            )
        ),
        ("ENV_PREFIX", "a b", f"env-prefix 'a b' {BLANKS}"),
        ("ENV_PREFIX", "A=B", "env-prefix 'A=B' cannot begin the name of a variable: it has a ="),
        ("DEVICE_FILE_PREFIX", "/dev/x", f"device-file-prefix '/dev/x' {PATH}"),
        ("DEVICE_FILE_PREFIX", "../x", f"device-file-prefix '../x' {PATH}"),
        ("DEVICE_FILE_PREFIX", "a b", f"device-file-prefix 'a b' {BLANKS}"),
    ],
)
def test_nonsense_is_one_clear_line(variable: str, value: str, expected: str) -> None:
    with pytest.raises(dp.ConfigError) as raised:
        SimulatedPlugin(loaded({"NODE_NAME": "n1", variable: value}))
    assert expected.replace("{}", f"environment variable {variable}") == str(raised.value)


@pytest.mark.parametrize("key", ["device-id-prefix", "plugin-name"])
def test_a_name_that_a_program_gives_is_not_empty_either(key: str) -> None:
    with pytest.raises(dp.ConfigError, match=f"^{key} '' "):
        SimulatedSettings(**{key.replace("-", "_"): ""})  # type: ignore[arg-type]


def test_a_control_socket_has_a_path_that_a_socket_can_have_and_all_nonsense_is_told() -> None:
    path = Path("/run") / ("x" * 99)
    with pytest.raises(dp.ConfigError) as raised:
        SimulatedSettings(control_socket=path, number_devices=-1)
    told = "is too long: its socket would have a path of 108 bytes, of at most 107"
    assert sorted(str(raised.value).splitlines()) == [
        f"control-socket {str(path)!r} {told}",
        f"number-devices -1 {COUNT}",
    ]
