"""The classic variables: what each means, its default, and what is refused."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import deviceplugin as dp
from deviceplugin_simulated import SimulatedPlugin, SimulatedSettings
from deviceplugin_testing.fixture import Kubelet
from patience import PATIENCE, eventually

RESOURCE = "example.com/simple-device"
COMMAND = Path(sys.executable).with_name("simulated-device-plugin")
HOST = socket.gethostname()


def run(*flags: str, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in {"PATH", "HOME"} or name.startswith("COV")
    }
    return subprocess.run(
        [COMMAND, *flags],
        env={**kept, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )


def config(*flags: str, **variables: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(run("--print-config", *flags, **variables).stdout)
    return found


def device(**changes: object) -> dp.Device:
    settings = SimulatedSettings(node_name="n1", **changes)  # type: ignore[arg-type]
    return list(SimulatedPlugin(settings).discover())[-1]


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


@pytest.fixture(scope="module")
def defaults() -> dict[str, object]:
    return config()


@pytest.fixture(scope="module")
def by_variable() -> dict[str, object]:
    return config(**{variable: str(other) for variable, _, _, other in VARIABLES})


@pytest.mark.parametrize(("variable", "key", "default", "other"), VARIABLES)
def test_each_classic_variable_has_its_default_and_sets_its_key(
    variable: str,
    key: str,
    default: object,
    other: object,
    defaults: Mapping[str, object],
    by_variable: Mapping[str, object],
) -> None:
    del variable
    assert (default, other) == (defaults[key], by_variable[key])


def test_a_variable_of_the_framework_wins_over_a_classic_one_and_a_flag_over_both() -> None:
    both = {"NUMBER_DEVICES": "3", "DP_NUMBER_DEVICES": "4"}
    assert 4 == config(**both)["number-devices"]
    assert 5 == config("--number-devices=5", **both)["number-devices"]


def test_ids_are_prefix_node_name_and_index() -> None:
    settings = SimulatedSettings(node_name="n1")
    ids = [one.id for one in SimulatedPlugin(settings).discover()]
    assert ["simple-device-n1-0", "simple-device-n1-1"] == ids


@pytest.mark.parametrize("name", ["", None])
def test_the_node_name_is_that_of_the_host_where_none_is_given(name: str | None) -> None:
    settings = SimulatedSettings() if name is None else SimulatedSettings(node_name=name)
    assert f"simple-device-{HOST}-0" == next(iter(SimulatedPlugin(settings).discover())).id


def test_the_plugin_without_settings_has_the_defaults() -> None:
    plugin = SimulatedPlugin()
    assert (RESOURCE, "simple-device-plugin") == (plugin.resource, plugin.socket_name)
    assert 2 == len(list(plugin.discover()))


def test_without_prefixes_a_container_gets_nothing() -> None:
    assert dp.Allocation() == device().allocation


@pytest.mark.parametrize(
    ("prefix", "form", "expected"),
    [
        ("annotation_prefix", "index", dp.Allocation(annotations={"x-simple-device-n1-1": ""})),
        ("annotation_prefix", "id", dp.Allocation(annotations={"x-simple-device-n1-1": ""})),
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
    assert expected == device(**{prefix: "x", "value_form": form}).allocation


def test_a_device_node_may_be_in_a_directory() -> None:
    assert "/dev/sim/gpu-1" == device(device_file_prefix="sim/gpu").nodes[0].host_path


def test_a_container_gets_all_parts_of_all_its_devices(kubelet: Kubelet) -> None:
    settings = SimulatedSettings(
        node_name="n1",
        number_devices=3,
        annotation_prefix="a",
        env_prefix="E",
        device_file_prefix="f",
    )
    ids = [f"simple-device-n1-{index}" for index in range(3)]
    with kubelet.running(SimulatedPlugin(settings)) as node:
        node.wait_for(RESOURCE, set(ids))
        eventually((node.kubelet.plugin_dir / "simple-device-plugin.sock").is_socket)
        expected = dp.Allocation(
            nodes=[dp.DeviceNode("/dev/f-0"), dp.DeviceNode("/dev/f-2")],
            envs={f"E_{ids[0]}": "/dev/0", f"E_{ids[2]}": "/dev/2"},
            annotations={f"a-{ids[0]}": "", f"a-{ids[2]}": ""},
        )
        assert expected == node.allocate(ids[2], ids[0])


def test_a_node_may_have_none(kubelet: Kubelet) -> None:
    with kubelet.running(SimulatedPlugin(SimulatedSettings(number_devices=0))) as node:
        node.wait_for(RESOURCE, ())
        assert set() == node.kubelet.registered


BLANKS = "has blanks or control characters"
DOMAIN = "has no domain before the slash, such as example.com"
NAME = "must be letters, digits, '-', '_' and '.', with a letter or digit at both ends"


def _no_annotation(prefix: str, problem: str) -> str:
    name = f"{prefix}-simple-device-n1-1"
    return (
        f"annotation-prefix {prefix!r} does not make the name of an annotation: {name!r} {problem}"
    )


def empty(variable: str, default: str) -> str:
    """Return what is said of a variable that is set to nothing."""
    where = f"environment variable {variable}: '' is empty"
    return f"{where}: give a value, or leave it out for {default!r}"


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("NUMBER_DEVICES", "-1", "number-devices -1 is not between 0 and 100000"),
        ("NUMBER_DEVICES", "100001", "number-devices 100001 is not between 0 and 100000"),
        (
            "NUMBER_DEVICES",
            "two",
            "environment variable NUMBER_DEVICES: 'two' is not a whole number",
        ),
        (
            "RESOURCE_NAME",
            "gpu",
            (
                "environment variable RESOURCE_NAME: 'gpu' is not the name of a resource: it needs "
                "a domain, as in example.com/gpu"
            ),
        ),
        ("RESOURCE_NAME", "", empty("RESOURCE_NAME", "example.com/simple-device")),
        ("PLUGIN_NAME", "", empty("PLUGIN_NAME", "simple-device-plugin")),
        ("PLUGIN_NAME", "a/b", "plugin-name 'a/b' cannot be the name of a plugin's socket"),
        ("PLUGIN_NAME", "kubelet", "plugin-name 'kubelet' cannot be the name of a plugin's socket"),
        (
            "PLUGIN_NAME",
            "x" * 80,
            (
                f"plugin-name {'x' * 80!r} is too long: its socket would have a path of 117 bytes, "
                "of at most 107"
            ),
        ),
        ("DEVICE_ID_PREFIX", "", empty("DEVICE_ID_PREFIX", "simple-device")),
        ("DEVICE_ID_PREFIX", "a b", f"device-id-prefix 'a b' {BLANKS}"),
        (
            "DEVICE_ID_PREFIX",
            "x" * 60,
            (
                f"device-id-prefix {'x' * 60!r} and node-name 'n1' cannot be combined: "
                f"id '{'x' * 60}-n1-1' has 65 characters, of at most 63"
            ),
        ),
        (
            "NODE_NAME",
            "n" * 50,
            (
                f"device-id-prefix 'simple-device' and node-name {'n' * 50!r} cannot be combined: "
                f"id 'simple-device-{'n' * 50}-1' has 66 characters, of at most 63"
            ),
        ),
        ("NODE_NAME", "n\n", f"node-name 'n\\n' {BLANKS}"),
        ("ANNOTATION_PREFIX", "a b", f"annotation-prefix 'a b' {BLANKS}"),
        ("ANNOTATION_PREFIX", "a/b/c", _no_annotation("a/b/c", "has more than one slash")),
        ("ANNOTATION_PREFIX", "/a", _no_annotation("/a", DOMAIN)),
        ("ANNOTATION_PREFIX", "a_b/c", _no_annotation("a_b/c", DOMAIN)),
        ("ANNOTATION_PREFIX", "-a", _no_annotation("-a", NAME)),
        ("ANNOTATION_PREFIX", "a=b", _no_annotation("a=b", NAME)),
        ("ENV_PREFIX", "a b", f"env-prefix 'a b' {BLANKS}"),
        ("ENV_PREFIX", "A=B", "env-prefix 'A=B' cannot begin the name of a variable: it has a ="),
        ("DEVICE_FILE_PREFIX", "/dev/x", "device-file-prefix '/dev/x' is not a path below /dev"),
        ("DEVICE_FILE_PREFIX", "../x", "device-file-prefix '../x' is not a path below /dev"),
        ("DEVICE_FILE_PREFIX", "a b", f"device-file-prefix 'a b' {BLANKS}"),
        (
            "DP_VALUE_FORM",
            "name",
            "environment variable DP_VALUE_FORM: 'name' is not one of index, id",
        ),
    ],
)
def test_nonsense_is_one_clear_line_and_exit_status_2(
    variable: str, value: str, expected: str
) -> None:
    done = run("--once", **{"NODE_NAME": "n1", variable: value})
    assert (2, f"simulated-device-plugin: {expected}\n") == (done.returncode, done.stderr)


@pytest.mark.parametrize("key", ["device-id-prefix", "plugin-name"])
def test_a_name_that_a_program_gives_is_not_empty_either(key: str) -> None:
    with pytest.raises(dp.ConfigError, match=f"^{key} '' "):
        SimulatedSettings(**{key.replace("-", "_"): ""})  # type: ignore[arg-type]


def test_an_id_that_cannot_be_part_of_an_annotation_is_refused() -> None:
    settings = SimulatedSettings(annotation_prefix="a", device_id_prefix="gpu:0", node_name="n1")
    with pytest.raises(dp.ConfigError, match="annotation: 'a-gpu:0-n1-1' must be letters"):
        SimulatedPlugin(settings)


def test_an_annotation_may_have_a_domain_of_any_case() -> None:
    found = device(annotation_prefix="Example.com/Lab")
    assert {"Example.com/Lab-simple-device-n1-1": ""} == found.annotations


def test_a_control_socket_has_a_path_that_a_socket_can_have() -> None:
    path = Path("/run") / ("x" * 99)
    expected = (
        f"control-socket {str(path)!r} is too long: its socket would have a path of 108 bytes, "
        "of at most 107"
    )
    with pytest.raises(dp.ConfigError) as raised:
        SimulatedSettings(control_socket=path)
    assert expected == str(raised.value)


def test_all_nonsense_is_told_at_once() -> None:
    with pytest.raises(dp.ConfigError) as raised:
        SimulatedSettings(number_devices=-1, env_prefix="=")
    assert 2 == len(str(raised.value).splitlines())
