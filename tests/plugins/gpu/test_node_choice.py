"""One configuration for different nodes: what is of GPUs in it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import deviceplugin as dp
from deviceplugin._config.loading import load
from deviceplugin._config.settings import dump
from deviceplugin_gpu import main
from deviceplugin_gpu.configuration import settings as gpu_settings
from deviceplugin_gpu.configuration.node_choice import LABEL, Reloading, models
from deviceplugin_gpu.configuration.settings import GpuSettings
from gpu.fake_nvml import Fleet
from gpu.rig import GpuRig, devices, uuids

FILE = """
version: v1
flags: {failOnInitError: false, plugin: {passDeviceSpecs: true}}
sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2}]}}
nodes:
  - name: cut
    flags: {migStrategy: mixed}
  - name: small
    match: {model: "*T4*"}
    sharing: {timeSlicing: {resources: [{name: gpu, replicas: 8}]}}
  - match: {label: {pool: "inf*"}, model: "*H100*"}
    flags: {plugin: {deviceIDStrategy: index}}
"""


T4 = ("Tesla T4", "Tesla T4")
NONE = "none fits node n, model: none, labels: none"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(FILE)
    return path


@pytest.fixture
def models_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return a directory in the place of ``/proc``."""
    monkeypatch.setattr(gpu_settings, "models", lambda _proc: models(tmp_path))
    return tmp_path


def put(proc: Path, *names: str) -> None:
    for number, name in enumerate(names):
        gpu = proc / f"driver/nvidia/gpus/0000:0{number}:00.0"
        gpu.mkdir(parents=True)
        (gpu / "information").write_text(f"Model: \t\t {name}\nIRQ:   \t\t 1{number}\n")


@pytest.mark.parametrize(
    ("labels", "names", "why", "expected"),
    [
        (
            *(f'{LABEL}="cut"', T4, f"nodes[0] (cut), by label {LABEL}=cut"),
            {"mig-strategy": "mixed", "replicas": 2},
        ),
        ("", (*T4, "NVIDIA L4"), "nodes[1] (small), by model Tesla T4", {"replicas": 8}),
        (
            *('pool="inference"', ("NVIDIA H100",)),
            "nodes[2], by model NVIDIA H100, label pool=inference",
            {"device-id-strategy": "index", "replicas": 2},
        ),
        ("", (), f"none of nodes: {NONE}", {"replicas": 2}),
    ],
)
def test_the_keys_of_the_entry_override_those_for_all_nodes_one_by_one(
    file: Path,
    models_are: Path,
    labels: str,
    names: tuple[str, ...],
    why: str,
    expected: Mapping[str, Any],
) -> None:
    put(models_are, *names)
    file.with_name("labels").write_text(labels)
    flags = {"node-name": "n", "node-labels-file": str(file.with_name("labels"))}
    settings = load(GpuSettings, flags=dict(flags), file=file, environ={})
    found = dump(settings)
    shares = [share.replicas for share in settings.sharing.shares]
    defaults = {"mig-strategy": "none", "device-id-strategy": "uuid"}
    wanted = {**defaults, "pass-device-specs": True, "fail-on-init-error": False, **expected}
    replicas = wanted.pop("replicas", None)
    assert (why, [replicas] if replicas else []) == (found["node-choice"], shares)
    assert wanted == {key: found[key] for key in wanted}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nodes: [{name: a, migStrategy: none}]", "nodes[0].migStrategy: unknown key"),
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
        load(GpuSettings, flags={"node-name": "n"}, file=path, environ={})
    assert f"{path}:1: {expected}" in str(raised.value)


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


def test_other_models_have_the_settings_read_again(tmp_path: Path) -> None:
    calls: list[int] = []
    file = Reloading(lambda: models(tmp_path), lambda: calls.append(1))
    assert (False, []) == (file.check(), calls)
    put(tmp_path, "Tesla T4", "NVIDIA L4", "Tesla T4")
    assert (True, False, [1]) == (file.check(), file.check(), calls)
    assert ("NVIDIA L4", "Tesla T4") == models(tmp_path)


def test_nothing_is_offered_by_settings_of_before_the_driver(rig: GpuRig) -> None:
    models: list[tuple[str, ...]] = [()]
    plugin = rig.has(Fleet.of(1)).plugin()
    plugin._node = Reloading(lambda: models[0], lambda: None)
    models[0] = ("NVIDIA L4",)  # the driver has come
    with pytest.raises(dp.DiscoveryError, match="is read again first"):
        plugin.discover()
    assert uuids(0) == devices(plugin).keys()
