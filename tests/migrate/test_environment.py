"""The variables of a container, in the kubelet's order, from wherever they come."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from deviceplugin.__main__ import main
from migration.peers import config_map, daemon_set, differences

Run = Callable[..., tuple[str, str]]
NVIDIA = "nvcr.io/nvidia/k8s-device-plugin:v0.20.0"
SECRET = "hunter2"
SECRETS = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "s"},
    "stringData": {"MIG_STRATEGY": SECRET},
}


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return what migrates a container of NVIDIA's plugin, of which YAML is given."""

    def result(container: str, *documents: object) -> tuple[str, str]:
        keys = yaml.safe_load(container)
        peer = daemon_set(NVIDIA)
        peer["spec"]["template"]["spec"]["containers"] = [{"name": "peer", "image": NVIDIA, **keys}]
        file = tmp_path / "peer.yaml"
        file.write_text(yaml.safe_dump_all([peer, *documents]), encoding="utf-8")
        status = main(["migrate", str(file)])
        out, err = capsys.readouterr()
        assert (status == 0) == (not err)
        assert SECRET not in out + err
        return out, err.replace(f"{tmp_path}/", "")

    return result


def settings(out: str) -> Any:
    """Return the settings in an overlay's config.yaml."""
    (patch,) = (
        yaml.safe_load(one["patch"])
        for one in yaml.safe_load(out)["patches"]
        if one["target"] == {"kind": "ConfigMap", "name": "config"}
    )
    return yaml.safe_load(patch[0]["value"])


@pytest.mark.parametrize(
    ("container", "strategy"),
    [
        ("envFrom: [{configMapRef: {name: c}}]", "single"),
        ("envFrom: [{prefix: MIG_, configMapRef: {name: short}}]", "mixed"),
        ("envFrom: [{configMapRef: {name: c}}, {configMapRef: {name: again}}]", "none"),
        (
            "{envFrom: [{configMapRef: {name: c}}], env: [{name: MIG_STRATEGY, value: mixed}]}",
            "mixed",
        ),
        (
            "env: [{name: MIG_STRATEGY, valueFrom: {configMapKeyRef: {name: other, key: it}}}]",
            "mixed",
        ),
        ("env: [{name: MIG_STRATEGY, value: mixed}, {name: MIG_STRATEGY, value: none}]", "none"),
        ("env: [{name: A, value: mix}, {name: MIG_STRATEGY, value: $(A)ed}]", "mixed"),
        ("{env: [{name: A, value: none}], args: [--mig-strategy=$(A)]}", "none"),
        (
            """
            envFrom: [{configMapRef: {name: c}}]
            env: [{name: A, value: $(MIG_STRATEGY)}, {name: MIG_STRATEGY, value: mixed}]
            args: [--mig-strategy, $(A)]
            """,
            "single",
        ),
    ],
)
def test_variables_have_the_value_that_the_kubelet_sets(
    run: Run, container: str, strategy: str
) -> None:
    maps = [
        config_map("c", MIG_STRATEGY="single"),
        config_map("short", STRATEGY="mixed"),
        config_map("other", it="mixed"),
        config_map("again", MIG_STRATEGY="none"),
        {**config_map("c", MIG_STRATEGY="mixed"), "metadata": {"name": "c", "namespace": "other"}},
    ]
    out, err = run(container, *maps)
    assert strategy == settings(out)["mig-strategy"], err


@pytest.mark.parametrize(
    ("container", "listed"),
    [
        (
            "env: [{name: TZ, value: UTC}, {name: N, valueFrom: {fieldRef: {fieldPath: a}}}]",
            "variables TZ, N: without effect here",
        ),
        (
            "env: [{name: MIG_STRATEGY, value: mixed}, {name: MIG_STRATEGY, value: none}]",
            "variable MIG_STRATEGY: MIG_STRATEGY is set again: the last one counts",
        ),
        (
            "{envFrom: [{configMapRef: {name: c}}], env: [{name: MIG_STRATEGY, value: none}]}",
            "ConfigMap c: data.MIG_STRATEGY: MIG_STRATEGY is set again: the last one counts",
        ),
        (
            "envFrom: [{configMapRef: {name: absent}}]",
            "envFrom 0: the ConfigMap absent is not in the input, so its variables are not taken",
        ),
        (
            "envFrom: [{configMapRef: {name: absent, optional: true}}]",
            "envFrom 0: the ConfigMap absent, which is optional, is not in the input",
        ),
        (
            "envFrom: [{secretRef: {name: s}}]",
            "envFrom 0: the Secret s is not read: set in ours what the plugin takes from it",
        ),
        (
            "env: [{name: A, valueFrom: {configMapKeyRef: {name: c, key: x, optional: true}}}]",
            "variable A: is not set: the ConfigMap c with x is not in the input",
        ),
    ],
)
def test_what_has_no_effect_or_no_value_is_listed(run: Run, container: str, listed: str) -> None:
    out, err = run(container, config_map("c", MIG_STRATEGY="single"), SECRETS)
    assert "" == err
    assert [one for one in differences(out) if one.startswith(listed)], out


ROOT = "args: [--nvidia-driver-root=/a/$(A)], env: [{name: A, valueFrom:"
"""A variable that our configuration would need."""


@pytest.mark.parametrize(
    ("container", "error"),
    [
        (
            "env: [{name: MIG_STRATEGI, value: mixed}]",
            "env[MIG_STRATEGI]: not understood: did you mean 'MIG_STRATEGY'?",
        ),
        (
            "env: [{name: NVIDIA_DRIVER_ROOT, valueFrom: {secretKeyRef: {name: s, key: k}}}]",
            "env: NVIDIA_DRIVER_ROOT: its value is not read",
        ),
        (
            f"{{{ROOT} {{secretKeyRef: {{name: s, key: k}}}}}}]}}",
            "env: A: its value is in the Secret s, key k, which is not read, and our configurat",
        ),
        (
            f"{{{ROOT} {{configMapKeyRef: {{name: absent, key: k}}}}}}]}}",
            "env: A: its value is in the ConfigMap absent, key k, which is not read",
        ),
        (
            f"{{{ROOT} {{fieldRef: {{fieldPath: spec.nodeName}}}}}}]}}",
            "env: A: its value is in a field of the pod, which is not read",
        ),
        ("env: [{name: A, valueFrom: 5}]", "valueFrom: 5 is not a mapping"),
        ("env: [{name: A, value: 5}]", "env[A].value: 5 is not a string: put it in"),
        ("env: [{value: a}]", "env[0]: name: is missing"),
        ("envFrom: 5", "envFrom: 5 is not a list of mappings"),
        (
            "envFrom: [{configMap: {name: c}}]",
            "envFrom[0].configMap: not understood: did you mean 'configMapRef'?",
        ),
    ],
)
def test_what_cannot_be_read_is_refused(run: Run, container: str, error: str) -> None:
    assert error in run(container, SECRETS)[1]
