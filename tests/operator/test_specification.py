"""What objects ask for is judged by the plugins' own settings, with their own words."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import deviceplugin as dp
from deviceplugin_operator.command_line import main
from deviceplugin_operator.crd.specification import Rollout, Wanted, read
from operators.bad_objects import BAD, SHARED, Bad
from operators.crd_documents import SCHEMA, refused


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


NAMED = {"resources": {"gpus": [{"pattern": "*", "name": "a.b/c"}]}}
MONITORED = {"resource-name": "a.b/gpu", "enable-monitoring": True}


@pytest.mark.parametrize(
    ("plugin", "given", "resources"),
    [
        ("amd", {}, ("amd.com/gpu",)),
        ("amd", {"resource-naming-strategy": "mixed"}, ("amd.com/*",)),
        ("fpga", {}, ("fpga.intel.com/*",)),
        ("intelgpu", {}, ("gpu.intel.com/i915", "gpu.intel.com/xe")),
        ("intelgpu", MONITORED, ("a.b/gpu", "gpu.intel.com/monitoring")),
        ("gopher", {}, ("example.com/gopher",)),
        ("generic", {}, ()),
        ("generic", {"devices": []}, ()),
        ("gpu", {}, ("nvidia.com/*",)),
        ("gpu", NAMED, ("nvidia.com/*", "a.b/c")),
        ("simulated", {"number-devices": 0}, ("example.com/simple-device",)),
        ("custom", {"resources": ["a.b/*"]}, ("a.b/*",)),
        ("custom", {"resources": []}, ()),
        ("rdma", {}, ("rdma/hca",)),
        ("rdma", {"resourceList": []}, ()),
        ("rdma", {"resourceList": None}, ()),
        ("rdma", None, ("rdma/hca",)),
    ],
)
def test_it_is_known_what_a_plugin_offers(
    plugin: str, given: Any, resources: tuple[str, ...]
) -> None:
    spec = {"plugin": plugin, "image": "i", "rollout": None, plugin: given}
    assert resources == read(made(spec)).variants[0].resources


def test_a_profile_can_offer_nothing_of_what_the_others_do() -> None:
    profiles = {"idle": {"custom": {"resources": []}}, "other": {"custom": {"config": {"a": 1}}}}
    found = wanted(
        plugin="custom",
        image="lamp:1",
        custom={"resources": ["a.b/c"]},
        profileLabel="l",
        profiles=profiles,
    )
    assert [("a.b/c",), (), ("a.b/c",)] == [one.resources for one in found.variants]


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


@pytest.mark.parametrize("bad", BAD, ids=[one.fault for one in BAD])
def test_what_is_invalid_is_refused_with_the_name_of_the_field(bad: Bad) -> None:
    with pytest.raises(dp.ConfigError) as raised:
        read(made(bad.spec))
    assert bad.said in str(raised.value)
    assert bad.field in str(raised.value)


def test_the_api_server_refuses_most_of_them_by_itself() -> None:
    by_schema = [one.fault for one in BAD if refused(SCHEMA, made(one.spec))]
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
    assert any(line.startswith("spec.profiles.a.gpu: mig-strategy: 'x' ") for line in lines)


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
    theirs = [re.sub(rf"^[a-z-]+: {file}(:\d+)?: ", "", line) for line in said.splitlines() if line]
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
    ("text", "said"),
    [("a: [", "line 1: expected the node content"), ("", "has no DevicePlugin"), ("- 1", "has no")],
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
