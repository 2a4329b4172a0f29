"""One configuration for different nodes."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import deviceplugin as dp
from deviceplugin.kit.configuration import Place
from deviceplugin_gpu import main
from deviceplugin_gpu.configuration.node_choice import (
    LABEL,
    Chosen,
    NodeFacts,
    NodeReader,
    Reloading,
)
from deviceplugin_gpu.configuration.settings import of_node
from gpu.fake_nvml import Fleet
from gpu.rig import GpuRig, devices, uuids

FILE = """
version: v1
flags: {failOnInitError: false}
sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2}]}}
nodes:
  - name: cut
    flags: {migStrategy: mixed}
  - match: {node: ["train-*", "big"]}
    sharing: {}
    exclude: ["0"]
  - name: small
    match: {model: "*T4*"}
    sharing: {timeSlicing: {resources: [{name: gpu, replicas: 8}]}}
  - match: {label: {pool: "inf*"}, model: "*H100*"}
    flags: {plugin: {deviceIDStrategy: index}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(FILE)
    return path


def chosen(path: Path, node: NodeFacts) -> tuple[str, Mapping[str, Any]]:
    settings = of_node(lambda: node)
    root = settings.open_file(path)
    found = dict(settings.from_file(root))
    root.faults.refuse()
    why = found.pop("node-choice", Chosen())
    assert isinstance(why, Chosen)
    places = {key: place for key, place in found.items() if isinstance(place, Place)}
    return why.text, {key: place.plain() for key, place in places.items()}


TWO = {"timeSlicing": {"resources": [{"name": "gpu", "replicas": 2}]}}


@pytest.mark.parametrize(
    ("node", "why", "expected"),
    [
        (
            NodeFacts("big", {LABEL: "cut"}),
            f"nodes[0] (cut), by label {LABEL}=cut",
            {"mig-strategy": "mixed", "sharing": TWO},
        ),
        (
            NodeFacts("train-7", {}, ("Tesla T4",)),
            "nodes[1], by node train-7",
            {"exclude": ["0"], "sharing": {}},
        ),
        (
            NodeFacts("n", {}, ("NVIDIA L4", "Tesla T4")),
            "nodes[2] (small), by model Tesla T4",
            {"sharing": {"timeSlicing": {"resources": [{"name": "gpu", "replicas": 8}]}}},
        ),
        (
            NodeFacts("n", {"pool": "inference"}, ("NVIDIA H100",)),
            "nodes[3], by model NVIDIA H100, label pool=inference",
            {"device-id-strategy": "index", "sharing": TWO},
        ),
        (
            NodeFacts("n", {"pool": "other"}, ("NVIDIA H100",)),
            "none of nodes: none fits node n, models: NVIDIA H100, labels: pool=other",
            {"sharing": TWO},
        ),
        (
            NodeFacts(),
            "none of nodes: none fits node ?, models: none, labels: none",
            {"sharing": TWO},
        ),
    ],
)
def test_the_entry_that_is_for_the_node_is_taken_before_the_rest(
    file: Path, node: NodeFacts, why: str, expected: Mapping[str, Any]
) -> None:
    assert (why, {"fail-on-init-error": False, **expected}) == chosen(file, node)


def test_where_no_other_entry_fits_the_one_called_default_does(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("nodes: [{name: default, exclude: [a]}, {match: {node: b}, exclude: [c]}]")
    expected = ("nodes[0] (default): none fits", {"exclude": ["a"]})
    assert expected == chosen(path, NodeFacts("n"))
    assert {"exclude": ["c"]} == chosen(path, NodeFacts("b"))[1]
    path.write_text("nodes: [{match: {node: '*'}, exclude: [a]}]")
    assert {} == chosen(path, NodeFacts())[1], "its name is not known"


def test_a_file_without_nodes_chooses_nothing_and_other_entries_are_no_matter(
    tmp_path: Path,
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("exclude: [a]")
    assert ("", {"exclude": ["a"]}) == chosen(path, NodeFacts("n", {LABEL: "anything"}))
    path.write_text("nodes: [{match: {node: other}, flags: {migStrategy: all}}]")
    assert {} == chosen(path, NodeFacts("n"))[1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nodes: [{name: a, migStrategy: none}]", "nodes[0].migStrategy: unknown key"),
        (
            "nodes: [{name: a, flags: {migStrategi: none}}]",
            "nodes[0].flags.migStrategi: unknown key",
        ),
        ("nodes: [{name: a, nodes: []}]", "nodes[0].nodes: unknown key"),
        ("nodes: [{name: a, version: v1}]", "nodes[0].version: unknown key"),
        ("nodes: [{exclude: [a]}]", "nodes[0]: needs a name, or node, model or label in match"),
        ("nodes: [{match: {label: x}}]", "nodes[0].match.label: 'x' is not a mapping with keys"),
        (
            "nodes: [{match: {node: n}, flags: {migStrategy: all}}]",
            "nodes[0].flags.migStrategy: 'all' is not one of none, single, mixed",
        ),
        (
            "nodes: [{match: {node: n}, sharing: {mps: {a: 1}}}]",
            "nodes[0].sharing.mps.a: unknown key",
        ),
    ],
)
def test_what_is_wrong_names_the_entry(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(dp.ConfigError) as raised:
        of_node(lambda: NodeFacts("n")).of_file(path)
    assert f"{path}:1: {expected}" in str(raised.value) or expected in str(raised.value)
    assert str(path) in str(raised.value)


def test_a_label_that_names_nothing_is_an_error_with_what_there_is(file: Path) -> None:
    with pytest.raises(dp.ConfigError, match=r"names 'smal', .*did you mean 'small'\? \(node n"):
        of_node(lambda: NodeFacts("n", {LABEL: "smal"})).of_file(file)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a directory as the kubelet mounts a ConfigMap."""
    (tmp_path / "..2026").mkdir()
    (tmp_path / "..data").symlink_to("..2026")
    for name, strategy in (("default", "none"), ("cut.yaml", "mixed")):
        (tmp_path / "..2026" / name).write_text(f"version: v1\nflags: {{migStrategy: {strategy}}}")
        (tmp_path / name).symlink_to(f"..data/{name}")
    return tmp_path


@pytest.mark.parametrize(
    ("labels", "why", "strategy"),
    [
        ({}, f"default, without label {LABEL}", "none"),
        ({LABEL: "cut"}, f"cut.yaml, by label {LABEL}=cut", "mixed"),
        ({LABEL: "cut.yaml"}, f"cut.yaml, by label {LABEL}=cut.yaml", "mixed"),
        ({LABEL: ""}, f"default, without label {LABEL}", "none"),
    ],
)
def test_the_label_names_a_file_of_a_mounted_configmap(
    folder: Path, labels: dict[str, str], why: str, strategy: str
) -> None:
    assert (why, {"mig-strategy": strategy}) == chosen(folder, NodeFacts("n", labels))


def test_the_only_file_of_a_directory_needs_no_label(tmp_path: Path) -> None:
    (tmp_path / "any.yaml").write_text("nodes: [{match: {node: n}, exclude: [a]}]")
    expected = ("any.yaml, the only one; nodes[0], by node n", {"exclude": ["a"]})
    assert expected == chosen(tmp_path, NodeFacts("n"))
    (tmp_path / "other.yaml").write_text("")
    with pytest.raises(dp.ConfigError, match=r"has any.yaml, other.yaml: name the file of this"):
        of_node(lambda: NodeFacts("n")).of_file(tmp_path)


def test_a_label_that_names_no_file_is_an_error(folder: Path) -> None:
    with pytest.raises(dp.ConfigError, match=r"names 'mps', .*known are cut.yaml, default"):
        of_node(lambda: NodeFacts("n", {LABEL: "mps"})).of_file(folder)


def test_facts_of_the_node_are_read_from_files(tmp_path: Path) -> None:
    for number, model in enumerate(("Tesla T4", "NVIDIA L4", "Tesla T4")):
        gpu = tmp_path / f"driver/nvidia/gpus/0000:0{number}:00.0"
        gpu.mkdir(parents=True)
        (gpu / "information").write_text(f"Model: \t\t {model}\nIRQ:   \t\t 1{number}\n")
    labels = tmp_path / "labels"
    labels.write_text('a.b/c="x \\"y\\""\npool=plain\nodd line\nbroken="\\\n')
    found = NodeReader("n", labels, tmp_path).facts()
    expected = {"a.b/c": 'x "y"', "pool": "plain", "broken": '"\\'}
    assert ("n", ("NVIDIA L4", "Tesla T4"), expected) == (found.name, found.models, found.labels)
    assert NodeFacts("n") == NodeReader("n", tmp_path / "none", tmp_path / "none").facts()


@pytest.mark.parametrize("way", ["flags", "variables", "classic"])
def test_the_command_shows_what_was_chosen_and_why(
    file: Path, way: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = file.with_name("labels")
    labels.write_text(f'{LABEL}="cut"\n')
    arguments = {
        "flags": [f"--config-file={file}", "--node-name", "n", f"--node-labels-file={labels}"],
        "variables": ["--config", str(file)],
        "classic": ["-config-file", str(file), f"--node-labels-file={labels}"],
    }[way]
    if way != "flags":
        monkeypatch.setenv("NODE_NAME", "n")
        monkeypatch.setenv("DP_NODE_LABELS_FILE", str(labels))
    with pytest.raises(SystemExit):
        main([*arguments, "--print-config"])
    found = json.loads(capsys.readouterr().out)
    expected = ("n", "mixed", f"nodes[0] (cut), by label {LABEL}=cut")
    assert expected == (found["node-name"], found["mig-strategy"], found["node-choice"])


def test_what_was_chosen_cannot_be_given(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--node-choice=this", "--print-config"])
    assert "--node-choice: cannot be set" in capsys.readouterr().err


def test_another_label_or_model_has_the_settings_read_again(tmp_path: Path) -> None:
    labels = tmp_path / "labels"
    calls: list[int] = []
    file = Reloading(NodeReader("n", labels, tmp_path / "proc").facts, lambda: calls.append(1))
    assert (False, []) == (file.check(), calls)
    labels.write_text("a=b")
    assert (True, False) == (file.check(), file.check())
    gpu = tmp_path / "proc/driver/nvidia/gpus/0000:01:00.0"
    gpu.mkdir(parents=True)
    (gpu / "information").write_text("Model: \t\t NVIDIA L4\n")
    assert (True, [1, 1]) == (file.check(), calls)


def test_a_file_of_labels_that_vanishes_changes_nothing(tmp_path: Path) -> None:
    labels = tmp_path / "labels"
    labels.write_text('pool="a"\n')
    node = NodeReader("n", labels, tmp_path)
    expected = NodeFacts("n", {"pool": "a"})
    assert expected == node.facts()
    labels.unlink()
    assert expected == node.facts()
    labels.mkdir()
    assert expected == node.facts()
    labels.rmdir()
    labels.write_text("")
    assert NodeFacts("n") == node.facts(), "labels that were taken away are no longer there"


def test_nothing_is_offered_by_settings_of_before_the_driver(rig: GpuRig) -> None:
    models: list[tuple[str, ...]] = [()]
    plugin = rig.has(Fleet.of(1)).plugin()
    plugin._node = Reloading(lambda: models[0], lambda: None)
    models[0] = ("NVIDIA L4",)  # the driver has come
    with pytest.raises(dp.DiscoveryError, match="is read again first"):
        plugin.discover()
    assert uuids(0) == devices(plugin).keys()
