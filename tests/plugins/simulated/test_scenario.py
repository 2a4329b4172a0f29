"""The configuration file: what it describes, and what is said of mistakes."""

import json
from pathlib import Path
from typing import Any

import pytest

import deviceplugin as dp
from deviceplugin._config.names import resource_name_problem
from deviceplugin._inventory.validation import device_problem
from deviceplugin_simulated import SimulatedSettings
from deviceplugin_simulated.life import Action, Event
from deviceplugin_simulated.scenario import PROFILES, Scenario, load
from deviceplugin_simulated.script import Process

GPU = "example.com/gpu"


def scenario(tmp_path: Path, content: object, **settings: Any) -> Scenario:
    path = tmp_path / "devices.json"
    path.write_text(json.dumps(content))
    return load(SimulatedSettings(devices=path, node_name="n1", **settings))


def problems(tmp_path: Path, content: object, **settings: Any) -> list[str]:
    with pytest.raises(dp.ConfigError) as raised:
        scenario(tmp_path, content, **settings)
    return str(raised.value).replace(f"{tmp_path}/devices.json:1", "FILE").splitlines()


# Resources.


@pytest.mark.parametrize("resources", [{}, None])
def test_a_file_without_any_resource_offers_nothing(tmp_path: Path, resources: object) -> None:
    nothing = dict.fromkeys(("profile", "timeline", "random", "seed"))
    assert [] == scenario(tmp_path, {"resources": resources, **nothing}).targets.ids
    assert 2 == len(scenario(tmp_path, {"profile": None}).targets.ids)


def test_a_pattern_describes_everything_that_a_device_has(tmp_path: Path) -> None:
    given = {
        "count": 4,
        "id": "{node}-gpu-{index}",
        "numa": "0-1",
        "nodes": ["/dev/gpu{index}", {"host": "/dev/ctl", "container": "/c", "permissions": "r"}],
        "mounts": [{"host": "/etc/{id}", "read-only": True}],
        "envs": {"GPU_{index}": "{id} of {node} on {numa}", "N": 1},
        "annotations": {"example.com/{id}": "yes"},
        "cdi-names": "example.com/gpu={index}",
        "attributes": {"model": "X"},
    }
    assert (
        dp.Device(
            "n1-gpu-3",
            resource=GPU,
            topology=dp.Topology([1]),
            nodes=[dp.DeviceNode("/dev/gpu3"), dp.DeviceNode("/dev/ctl", "/c", "r")],
            mounts=[dp.Mount("/etc/n1-gpu-3", read_only=True)],
            envs={"GPU_3": "n1-gpu-3 of n1 on 1", "N": "1"},
            annotations={"example.com/n1-gpu-3": "yes"},
            cdi_names=["example.com/gpu=3"],
            attributes={"model": "X"},
        )
        == scenario(tmp_path, {"resources": {GPU: given}}).devices[3]
    )


@pytest.mark.parametrize(
    ("count", "numa", "expected"),
    [
        (4, "0-1", [0, 0, 1, 1]),
        (5, [0, 2], [0, 0, 0, 2, 2]),
        (3, 7, [7, 7, 7]),
        (3, "1,3-4", [1, 3, 4]),
    ],
)
def test_devices_are_spread_over_numa_nodes_in_blocks(
    tmp_path: Path, count: int, numa: object, expected: list[int]
) -> None:
    devices = scenario(tmp_path, {"resources": {GPU: {"count": count, "numa": numa}}}).devices
    assert [(node,) for node in expected] == [
        one.topology.numa_nodes for one in devices if one.topology
    ]


def test_without_resources_the_devices_are_the_classic_ones(tmp_path: Path) -> None:
    found = scenario(tmp_path, {"seed": 3}, number_devices=1)
    assert ["simple-device-n1-0"] == found.targets.ids
    assert 3 == found.seed


# Profiles.


@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_is_accepted_by_the_framework(name: str) -> None:
    devices = load(SimulatedSettings(profile=name)).devices
    assert [] == [text for one in devices if (text := device_problem(one))]
    assert [""] == list({resource_name_problem(one.resource) for one in devices})
    assert {"/dev/null"} >= {node.host_path for one in devices for node in one.nodes}
    assert {()} == {one.cdi_names for one in devices}, "and a container can start anywhere"


@pytest.mark.parametrize(
    ("name", "resource", "count", "numa"),
    [
        ("8-gpus", GPU, 8, 2),
        ("36-numa-nodes", GPU, 72, 36),
        ("1000-dongles", "example.com/dongle", 1000, 0),
    ],
)
def test_a_profile_has_so_many_devices_on_so_many_numa_nodes(
    name: str, resource: str, count: int, numa: int
) -> None:
    every = load(SimulatedSettings(profile=name)).devices
    devices = [one for one in every if one.resource == resource]
    nodes = {one.topology.numa_nodes for one in devices if one.topology}
    assert (count, numa) == (len(devices), len(nodes))


def test_a_file_names_a_profile_and_adds_to_it(tmp_path: Path) -> None:
    given = {"profile": "8-gpus", "resources": {"example.com/nic": {}}}
    assert dp.Device("nic-0", resource="example.com/nic") == scenario(tmp_path, given).devices[8]
    assert ["gpu-0"] == scenario(
        tmp_path, {"profile": "8-gpus", "resources": {GPU: {}}}
    ).targets.ids
    assert 1000 == len(
        scenario(tmp_path, {"profile": "8-gpus"}, profile="1000-dongles").targets.ids
    )


# The script.


def test_a_timeline_is_read_in_order_of_time(tmp_path: Path) -> None:
    given = {
        "resources": {GPU: {"count": 3}},
        "timeline": [
            {"at": "1m", "do": "unhealthy", "devices": "gpu-1", "reason": "hot", "for": "1m30s"},
            {"at": "500ms", "do": "slow", "by": "2s"},
            {"at": "2s", "do": "fail", "devices": ["gpu-[01]"]},
            {"at": "3s", "do": "hang", "for": "4s"},
            {"at": "9s", "do": "slow"},
        ],
    }
    everything = ("gpu-0", "gpu-1", "gpu-2")
    assert [
        Event(0.5, Action.SLOW, everything, by=2),
        Event(2, Action.FAIL, ("gpu-0", "gpu-1")),
        Event(3, Action.HANG),
        Event(7, Action.RESUME),
        Event(9, Action.SLOW, everything, by=1),
        Event(60, Action.UNHEALTHY, ("gpu-1",), "hot"),
        Event(150, Action.RECOVER, ("gpu-1",)),
    ] == list(scenario(tmp_path, given).timeline)


def test_a_random_process_is_read(tmp_path: Path) -> None:
    given = {"every": "20ms", "lasting": "5s", "until": "1m", "slow-by": "3s"}
    faults = (Action.SLOW, Action.SLOW, Action.CRASH)
    expected = Process(every=0.02, lasting=5, faults=faults, until=60, slow_by=3)
    written = {"random": {**given, "faults": [*map(str, faults)]}}
    assert expected == scenario(tmp_path, written).process
    assert None is scenario(tmp_path, {}).process
    assert Process(every=10, lasting=30) == scenario(tmp_path, {"random": {}}).process


def test_the_seed_of_the_settings_wins_over_the_files(tmp_path: Path) -> None:
    given = {"random": {"every": "1s"}, "seed": 3}
    lives = [scenario(tmp_path, given, seed=seed).life() for seed in (None, 3, 4)]
    for life in lives:
        life.advance(20)
    assert lives[0].state == lives[1].state != lives[2].state


# Mistakes.


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"zzz": 1}, "zzz: unknown key: known are profile, resources, timeline, random, seed"),
        ({"seed": -1}, "seed: -1 is not a whole number from 0 to 9223372036854775808"),
        ({"profile": "8-gpu"}, "profile: '8-gpu' is not a profile: did you mean '8-gpus'?"),
        (
            {"resources": {"gpu": {}}},
            f"resources.gpu: is not the name of a resource, such as {GPU}",
        ),
        ({"timeline": [{"at": "1s"}]}, "timeline[0]: do is missing"),
        ({"timeline": [{"do": "hang"}]}, "timeline[0]: at is missing"),
        (
            {"timeline": [{"at": "1s", "do": "unplugg"}]},
            "timeline[0].do: 'unplugg' is not an action: did you mean 'unplug'?",
        ),
        (
            {"timeline": [{"at": "1s", "do": "unplug", "devices": "simple-device-n1-7"}]},
            (
                "timeline[0].devices: 'simple-device-n1-7' is not a device: did you mean "
                "'simple-device-n1-1'?"
            ),
        ),
        (
            {"timeline": [{"at": "1s", "do": "hang", "devices": "*"}]},
            "timeline[0].devices: hang happens to the plugin, not to devices",
        ),
        (
            {"timeline": [{"at": "1s", "do": "crash", "for": "1s"}]},
            "timeline[0].for: crash has no duration",
        ),
        (
            {"timeline": [{"at": "1s", "do": "hang", "for": "0s"}]},
            "timeline[0].for: '0s' is not above zero",
        ),
        ({"random": {"faults": ["recover"]}}, "random.faults[0]: 'recover' is not a fault"),
    ],
)
def test_a_mistake_is_told_with_its_place(
    tmp_path: Path, given: dict[str, Any], expected: str
) -> None:
    assert [f"FILE: {expected}"] == problems(tmp_path, given)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"count": -1}, ".count: -1 is not a whole number from 0 to 100000"),
        ({"id": "x" * 64}, f": id {'x' * 64!r} has 64 characters, of at most 63"),
        ({"id": ""}, ": id '' is empty"),
        ({"id": " a"}, ": id ' a' has control characters or blanks at an end"),
        ({"id": "{indx}"}, ".id: '{indx}' has {indx}: did you mean 'index'?"),
        ({"id": "{id}"}, ".id: '{id}' has {id}: known are index, node"),
        ({"numa": "3-1"}, ".numa: '3-1' is not a list of NUMA nodes, such as 0-3,8"),
        ({"numa": 1024}, ".numa: 1024 is not a list of NUMA nodes, such as 0-3,8"),
        ({"nodes": ["dev/x"]}, ".nodes[0]: 'dev/x' is not an absolute path"),
        (
            {"nodes": [{"host": "/x", "permissions": "rx"}]},
            ".nodes[0].permissions: 'rx' is not of the letters r, w and m, each once",
        ),
        (
            {"mounts": [{"host": "/{x}"}]},
            ".mounts[0].host: '/{x}' has {x}: known are index, id, numa, node",
        ),
        ({"envs": {"A=": "1"}}, ": device gpu-0: 'A=' is not the name of a variable"),
        (
            {"annotations": {"a/b/c": "1"}},
            ": device gpu-0: annotation 'a/b/c' has more than one slash",
        ),
        (
            {"cdi-names": ["gpu"]},
            ": device gpu-0: 'gpu' is not a CDI name, such as example.com/gpu=0",
        ),
    ],
)
def test_a_mistake_in_a_resource_is_told_with_its_place(
    tmp_path: Path, given: object, expected: str
) -> None:
    assert [f"FILE: resources.{GPU}{expected}"] == problems(tmp_path, {"resources": {GPU: given}})


def test_ids_have_to_differ_within_a_resource_and_between_resources(tmp_path: Path) -> None:
    same = {"resources": {GPU: {"count": 3, "id": "x"}}}
    told = "resources: 2 ids are not unique: put {index} into them"
    assert [f"FILE: {told}"] == problems(tmp_path, same)
    both = {"resources": {GPU: {"id": "x"}, "example.com/nic": {"id": "x"}}}
    told = f"resources.example.com/nic: id 'x' belongs to {GPU} too"
    assert [f"FILE: {told}"] == problems(tmp_path, both)


def test_a_device_is_looked_for_in_vain_where_there_are_none(tmp_path: Path) -> None:
    given = {"timeline": [{"at": "1s", "do": "unplug", "devices": "gpu-0"}]}
    assert ["FILE: timeline[0].devices: 'gpu-0' is not a device: there are none"] == problems(
        tmp_path, given, number_devices=0
    )


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    given = {
        "seed": "x",
        "resources": {GPU: {"count": -1, "numa": "x", "nodes": ["x", "y"]}},
        "timeline": [{"do": "x"}],
        "random": {"every": 1},
    }
    assert 8 == len(problems(tmp_path, given))
