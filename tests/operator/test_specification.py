"""What objects ask for is judged by the plugins' own settings, with their own words."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import deviceplugin as dp
from deviceplugin_operator import crd
from deviceplugin_operator.command_line import main
from deviceplugin_operator.specification import Rollout, Wanted, read
from operators.crd_documents import refused

SCHEMA = crd.crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
SHARED = {"timeSlicing": {"resources": [{"name": "nvidia.com/gpu", "replicas": 4}]}}


def made(spec: Any, name: str = "some") -> dict[str, Any]:
    metadata = {"name": name, "uid": "u", "generation": 3}
    return {
        "apiVersion": "deviceplugin.dev/v1alpha1",
        "kind": "DevicePlugin",
        "metadata": metadata,
        "spec": spec,
    }


def wanted(**spec: Any) -> Wanted:
    return read(made(spec))


def test_what_an_object_does_not_say_is_as_deployments_have_it() -> None:
    (variant,) = wanted(plugin="simulated").variants
    assert {"number-devices": 2, "env-prefix": "SIMULATED"} == yaml.safe_load(variant.config)
    (variant,) = wanted(plugin="simulated", simulated={"number-devices": 5}).variants
    assert 5 == yaml.safe_load(variant.config)["number-devices"]
    assert ("example.com/simple-device",) == variant.resources


def test_a_profile_takes_the_place_of_single_keys() -> None:
    found = wanted(
        plugin="gpu",
        gpu={"mig-strategy": "single", "recovery-time": "10m"},
        profileLabel="example.com/profile",
        profiles={"a100": {"gpu": {"mig-strategy": "mixed", "sharing": SHARED}}, "off": {}},
    )
    rest, a100, off = found.variants
    assert ["a100", "off"] == found.profiles
    assert rest.config == off.config
    document = yaml.safe_load(a100.config)
    assert ("mixed", "10m", SHARED) == (
        document["mig-strategy"],
        document["recovery-time"],
        document["sharing"],
    )


def test_a_component_gives_defaults_which_the_object_may_overrule() -> None:
    (variant,) = wanted(plugin="gpu", components=["gpu-cdi"]).variants
    assert "cdi-cri" == yaml.safe_load(variant.config)["device-list-strategy"]
    own = ["envvar", "cdi-annotations"]
    found = wanted(plugin="gpu", components=["gpu-cdi"], gpu={"device-list-strategy": own})
    assert own == yaml.safe_load(found.variants[0].config)["device-list-strategy"]
    (container,) = found.template.daemon_set["spec"]["template"]["spec"]["containers"]
    assert "DP_DEVICE_LIST_STRATEGY" not in [one["name"] for one in container["env"]]


def test_what_a_component_says_of_the_manifests_own_stays_with_the_manifest() -> None:
    found = wanted(plugin="gopher", components=["watcher"])
    (container,) = found.template.daemon_set["spec"]["template"]["spec"]["containers"]
    assert {"name": "DP_REGISTRATION", "value": "watcher"} in container["env"]
    assert "registration" not in yaml.safe_load(found.variants[0].config)


@pytest.mark.parametrize(
    ("spec", "resources"),
    [
        ({"plugin": "fpga"}, ("fpga.intel.com/*",)),
        ({"plugin": "gopher"}, ("example.com/gopher",)),
        ({"plugin": "generic"}, ("devic.es/fuse", "devic.es/kvm", "devic.es/serial")),
        ({"plugin": "gpu"}, ("nvidia.com/*",)),
        (
            {"plugin": "gpu", "gpu": {"resources": {"gpus": [{"pattern": "*", "name": "a.b/c"}]}}},
            ("nvidia.com/*", "a.b/c"),
        ),
        (
            {"plugin": "simulated", "simulated": {"number-devices": 0}},
            ("example.com/simple-device",),
        ),
        ({"plugin": "custom", "image": "i", "custom": {"resources": ["a.b/*"]}}, ("a.b/*",)),
    ],
)
def test_it_is_known_what_a_plugin_offers(spec: Any, resources: tuple[str, ...]) -> None:
    assert resources == read(made(spec)).variants[0].resources


def test_a_plugin_of_others_has_whatever_settings_and_an_image() -> None:
    found = wanted(plugin="custom", image="lamp:1", custom={"config": {"watts": 5}})
    assert ("lamp:1", {"watts": 5}) == (found.image, yaml.safe_load(found.variants[0].config))
    assert "{}\n" == wanted(plugin="custom", image="lamp:1").variants[0].config


@pytest.mark.parametrize(
    ("given", "nodes", "expected"),
    [("10%", 40, 4), ("10%", 3, 1), (3, 40, 3), ("100%", 7, 7), ("1%", 0, 1)],
)
def test_at_least_one_node_is_taken_at_once(given: int | str, nodes: int, expected: int) -> None:
    assert expected == Rollout(max_unavailable=given).at_once(nodes)


REFUSED: list[tuple[str, Any, str]] = [
    ("no spec", None, "spec: "),
    ("no plugin", {}, "spec: plugin is missing"),
    ("unknown plugin", {"plugin": "gpus"}, "spec.plugin: 'gpus' "),
    ("unknown key", {"plugin": "gpu", "image_": "a"}, "spec.image_: unknown key: did you mean"),
    ("image", {"plugin": "gpu", "image": "a b"}, "spec.image: 'a b' is not an image"),
    ("custom without image", {"plugin": "custom"}, "spec: image: is needed for plugin custom"),
    ("other plugin's", {"plugin": "gpu", "fpga": {}}, "spec.fpga: is for plugin fpga"),
    (
        "other plugin's in a profile",
        {"plugin": "gpu", "profileLabel": "l", "profiles": {"a": {"fpga": {}}}},
        "spec.profiles.a.fpga: is for plugin fpga",
    ),
    (
        "profiles without label",
        {"plugin": "gpu", "profiles": {"a": {}}},
        "spec: profileLabel: belongs to profiles",
    ),
    (
        "label without profiles",
        {"plugin": "gpu", "profileLabel": "l"},
        "spec: profileLabel: belongs",
    ),
    (
        "name of a profile",
        {"plugin": "gpu", "profileLabel": "l", "profiles": {"A.b": {}}},
        "spec.profiles.A.b: a name is 1 to 20",
    ),
    (
        "component",
        {"plugin": "gpu", "components": ["cdj"]},
        "spec.components[0]: 'cdj' ",
    ),
    (
        "events",
        {"plugin": "gpu", "components": ["events"]},
        "spec.components[0]: 'events' ",
    ),
    (
        "canary",
        {"plugin": "gpu", "rollout": {"canary": 0}},
        "spec.rollout.canary: 0 is not a whole",
    ),
    (
        "0%",
        {"plugin": "gpu", "rollout": {"maxUnavailable": "0%"}},
        "spec.rollout.maxUnavailable: '0%' is not a number above 0",
    ),
    (
        "no nodes at once",
        {"plugin": "gpu", "rollout": {"maxUnavailable": 0}},
        "spec.rollout.maxUnavailable: 0 is not a whole number from 1",
    ),
    (
        "deadline",
        {"plugin": "gpu", "rollout": {"deadline": "2"}},
        "spec.rollout.deadline: '2' is not",
    ),
    ("0s", {"plugin": "gpu", "rollout": {"deadline": "0s"}}, "spec.rollout.deadline: '0s' is not"),
    ("on failure", {"plugin": "gpu", "rollout": {"onFailure": "x"}}, "spec.rollout.onFailure: 'x'"),
    ("paused", {"plugin": "gpu", "paused": "yes"}, "spec.paused: 'yes' is not true or false"),
    (
        "selector",
        {"plugin": "gpu", "nodeSelector": {"a": True}},
        "spec.nodeSelector.a: true is not",
    ),
    ("settings that are none", {"plugin": "gpu", "gpu": []}, "spec.gpu: a list is not a mapping"),
    (
        "enum",
        {"plugin": "gpu", "gpu": {"mig-strategy": "sngle"}},
        "spec.gpu: config.yaml:2: mig-strategy: 'sngle'",
    ),
    (
        "typo",
        {"plugin": "gpu", "gpu": {"recovery-tim": "1m"}},
        "spec.gpu: config.yaml:2: recovery-tim: ",
    ),
    (
        "duration",
        {"plugin": "gopher", "gopher": {"discovery-interval": "0s"}},
        "spec.gopher: config.yaml:2: discovery-interval: '0s'",
    ),
    (
        "the manifest's",
        {"plugin": "gopher", "gopher": {"directory": "/gophers"}},
        "spec.gopher: directory: cannot be set here: the manifest mounts it",
    ),
    (
        "every manifest's",
        {"plugin": "gpu", "gpu": {"http-address": "off"}},
        "spec.gpu: http-address: cannot be set here: the manifest's probes ask there",
    ),
    (
        "mps without root",
        {"plugin": "gpu", "gpu": {"sharing": {"mps": SHARED["timeSlicing"]}}},
        "spec.gpu: mps-root",
    ),
    (
        "tegra with cdi",
        {
            "plugin": "gpu",
            "gpu": {"device-discovery-strategy": "tegra", "device-list-strategy": ["cdi-cri"]},
        },
        "spec.gpu: device-list-strategy: ",
    ),
    (
        "imex",
        {"plugin": "gpu", "gpu": {"imex-channel-ids": [1]}},
        "spec.gpu: imex-channel-ids: [1] ",
    ),
    (
        "both ways",
        {"plugin": "gpu", "gpu": {"sharing": {**SHARED, "mps": SHARED["timeSlicing"]}}},
        "spec.gpu: config.yaml:3: sharing: ",
    ),
    (
        "profile of the simulated plugin",
        {"plugin": "simulated", "simulated": {"profile": "nonsense"}},
        "spec.simulated: profile: ",
    ),
    (
        "too many",
        {"plugin": "simulated", "simulated": {"number-devices": -1}},
        "spec.simulated: number-devices -1 ",
    ),
    (
        "no devices",
        {"plugin": "generic", "generic": {"devices": []}},
        "spec.generic: config.yaml:1: devices: no devices",
    ),
    (
        "a device without a group",
        {"plugin": "generic", "generic": {"devices": [{"name": "abc"}]}},
        "spec.generic: config.yaml:2: devices[0]: groups is missing",
    ),
    (
        "variable",
        {"plugin": "gopher", "gopher": {"variable": "a=b"}},
        "spec.gopher: variable 'a=b' ",
    ),
    (
        "errors of FPGAs",
        {"plugin": "fpga", "fpga": {"ignore-errors": ["pcie9"]}},
        "spec.fpga: ignore-errors: 'pcie9' ",
    ),
    (
        "resources of others",
        {"plugin": "custom", "image": "i", "custom": {"resources": ["lamp"]}},
        "spec.custom.resources[0]: 'lamp' is not a resource",
    ),
]
"""At least thirty that the API server, or the operator at once, refuses, with the field's name."""


@pytest.mark.parametrize(
    ("spec", "said"), [row[1:] for row in REFUSED], ids=[r[0] for r in REFUSED]
)
def test_what_is_invalid_is_refused_with_the_name_of_the_field(spec: Any, said: str) -> None:
    with pytest.raises(dp.ConfigError) as raised:
        read(made(spec))
    assert said in str(raised.value)


def test_the_api_server_refuses_most_of_them_by_itself() -> None:
    by_schema = [name for name, spec, _ in REFUSED if refused(SCHEMA, made(spec))]
    assert 20 <= len(by_schema)
    assert {"enum", "typo", "duration", "the manifest's", "no plugin"} - {*by_schema} == {
        "duration"
    }


def test_all_that_is_wrong_with_any_profile_is_said_at_once() -> None:
    with pytest.raises(dp.ConfigError) as raised:
        wanted(
            plugin="gpu",
            gpu={"imex-channel-ids": [1], "state-file": "/x"},
            profileLabel="l",
            profiles={"a": {"gpu": {"mig-strategy": "x"}}},
        )
    lines = str(raised.value).splitlines()
    assert ["spec.gpu: state-file: cannot be set here: the manifest mounts it"] == lines[:1]
    assert any(line.startswith("spec.profiles.a.gpu: config.yaml:") for line in lines)


def test_the_words_are_those_that_the_plugin_has_for_the_same_file(tmp_path: Path) -> None:
    spec = {"plugin": "gpu", "gpu": {"mig-strategy": "x", "recovery-time": "5", "include": {}}}
    with pytest.raises(dp.ConfigError) as raised:
        read(made(spec))
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump({"fail-on-init-error": False, **spec["gpu"]}, sort_keys=False))  # type: ignore[dict-item]
    program = Path(sys.executable).with_name("gpu-device-plugin")
    words = [str(program), "--config", str(file), "--print-config"]
    said = subprocess.run(words, capture_output=True, text=True, check=False, env={}).stderr
    mine = [line.removeprefix("spec.gpu: ") for line in str(raised.value).splitlines()]
    theirs = [
        line.partition(": ")[2].removeprefix(f"{tmp_path}/") for line in said.splitlines() if line
    ]
    assert 3 == len(mine)
    assert theirs[: len(mine)] == mine


def check(*words: str) -> int:
    with pytest.raises(SystemExit) as raised:
        main(["check", *words])
    assert isinstance(raised.value.code, int)
    return raised.value.code


def test_files_are_checked_without_a_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "objects.yaml"
    good, bad = made({"plugin": "gopher"}, "good"), made({"plugin": "gopher", "gpu": {}}, "bad")
    other = {"kind": "Namespace", "metadata": {"name": "n"}}
    file.write_text(yaml.safe_dump_all([good, other, None]))
    assert 0 == check(str(file))
    assert f"{file}: good: valid\n" == capsys.readouterr().out
    file.write_text(yaml.safe_dump_all([bad, good, made({}, "A.b"), {**good, "metadata": None}]))
    assert 2 == check(str(file))
    out, err = capsys.readouterr()
    assert f"{file}: good: valid\n" == out
    said = f"deviceplugin-operator: {file}"
    name = "metadata.name: 1 to 40 lower-case letters, digits and hyphens"
    assert [
        f"{said}: bad: spec.gpu: is for plugin gpu",
        f"{said}: A.b: {name}",
        f"{said}: None: {name}",
    ] == err.splitlines()


@pytest.mark.parametrize(
    ("text", "said"), [("a: [", "while parsing"), ("", "has no DevicePlugin"), ("- 1", "has no")]
)
def test_a_file_that_has_no_object_is_an_error(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "objects.yaml"
    file.write_text(text)
    assert 2 == check(str(file))
    assert said in capsys.readouterr().err
    assert 2 == check(str(tmp_path / "nowhere"))
    assert "No such file or directory" in capsys.readouterr().err
