"""The variables of a container, in the kubelet's order, from wherever they come."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from deviceplugin.__main__ import main
from migration.peers import config_map, differences

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
    """Return what migrates a container of NVIDIA's plugin with some keys, and other documents."""

    def result(container: Mapping[str, Any], *documents: object) -> tuple[str, str]:
        pod = {"containers": [{"name": "peer", "image": NVIDIA, **container}]}
        peer = {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": "peer", "namespace": "kube-system"},
            "spec": {"template": {"spec": pod}},
        }
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


def env(*pairs: tuple[str, object]) -> list[dict[str, object]]:
    """Return the ``env`` of a container: values, or where they come from."""
    return [
        {"name": name, "value" if isinstance(one, str) else "valueFrom": one} for name, one in pairs
    ]


def of_map(name: str, key: str, **more: object) -> dict[str, object]:
    return {"configMapKeyRef": {"name": name, "key": key, **more}}


@pytest.mark.parametrize(
    ("container", "strategy"),
    [
        ({"envFrom": [{"configMapRef": {"name": "c"}}]}, "single"),
        ({"envFrom": [{"prefix": "MIG_", "configMapRef": {"name": "short"}}]}, "mixed"),
        (
            {"envFrom": [{"configMapRef": {"name": name}} for name in ("c", "again")]},
            "none",
        ),
        (
            {
                "envFrom": [{"configMapRef": {"name": "c"}}],
                "env": env(("MIG_STRATEGY", "mixed")),
            },
            "mixed",
        ),
        ({"env": env(("MIG_STRATEGY", of_map("c", "MIG_STRATEGY")))}, "single"),
        ({"env": env(("MIG_STRATEGY", "mixed"), ("MIG_STRATEGY", "none"))}, "none"),
        ({"env": env(("A", "mix"), ("MIG_STRATEGY", "$(A)ed"))}, "mixed"),
        ({"env": env(("A", "none")), "args": ["--mig-strategy=$(A)"]}, "none"),
        (
            {
                "envFrom": [{"configMapRef": {"name": "c"}}],
                "env": env(("A", "$(MIG_STRATEGY)"), ("MIG_STRATEGY", "mixed")),
                "args": ["--mig-strategy", "$(A)"],
            },
            "single",
        ),
    ],
)
def test_variables_have_the_value_that_the_kubelet_sets(
    run: Run, container: dict[str, Any], strategy: str
) -> None:
    maps = [
        config_map("c", MIG_STRATEGY="single"),
        config_map("short", STRATEGY="mixed"),
        config_map("again", MIG_STRATEGY="none"),
        {**config_map("c", MIG_STRATEGY="mixed"), "metadata": {"name": "c", "namespace": "other"}},
    ]
    out, err = run(container, *maps)
    assert strategy == settings(out)["mig-strategy"], err


@pytest.mark.parametrize(
    ("container", "listed"),
    [
        (
            {"env": env(("TZ", "UTC"), ("NODE", {"fieldRef": {"fieldPath": "spec.nodeName"}}))},
            "variables TZ, NODE: without effect here",
        ),
        (
            {"env": env(("MIG_STRATEGY", "mixed"), ("MIG_STRATEGY", "none"))},
            "variable MIG_STRATEGY: MIG_STRATEGY is set again: the last one counts",
        ),
        (
            {
                "envFrom": [{"configMapRef": {"name": "c"}}],
                "env": env(("MIG_STRATEGY", "none")),
            },
            "ConfigMap c: data.MIG_STRATEGY: MIG_STRATEGY is set again: the last one counts",
        ),
        (
            {"envFrom": [{"configMapRef": {"name": "absent"}}]},
            "envFrom 0: the ConfigMap absent is not in the input, so its variables are not taken",
        ),
        (
            {"envFrom": [{"configMapRef": {"name": "absent", "optional": True}}]},
            "envFrom 0: the ConfigMap absent, which is optional, is not in the input",
        ),
        (
            {"envFrom": [{"secretRef": {"name": "s"}}]},
            "envFrom 0: the Secret s is not read: set in ours what the plugin takes from it",
        ),
        (
            {"env": env(("MIG_STRATEGY", of_map("c", "absent", optional=True)))},
            "variable MIG_STRATEGY: is not set: the ConfigMap c with absent is not in the input",
        ),
    ],
)
def test_what_has_no_effect_or_no_value_is_listed(
    run: Run, container: dict[str, Any], listed: str
) -> None:
    out, err = run(container, config_map("c", MIG_STRATEGY="single"), SECRETS)
    assert "" == err
    assert [one for one in differences(out) if one.startswith(listed)], out


@pytest.mark.parametrize(
    ("container", "error"),
    [
        (
            {"env": env(("MIG_STRATEGI", "mixed"))},
            "env[MIG_STRATEGI]: not understood: did you mean 'MIG_STRATEGY'?",
        ),
        (
            {"env": env(("NVIDIA_DRIVER_ROOT", {"secretKeyRef": {"name": "s", "key": "k"}}))},
            "env: NVIDIA_DRIVER_ROOT: its value is not read",
        ),
        (
            {
                "env": env(("ROOT", {"secretKeyRef": {"name": "s", "key": "k"}})),
                "args": ["--nvidia-driver-root=/a/$(ROOT)"],
            },
            "env: ROOT: its value is in the Secret s, key k, which is not read, and our configurat",
        ),
        (
            {
                "env": env(("ROOT", of_map("absent", "k"))),
                "args": ["--nvidia-driver-root=/a/$(ROOT)"],
            },
            "env: ROOT: its value is in the ConfigMap absent, key k, which is not read",
        ),
        (
            {
                "env": env(("NODE", {"fieldRef": {"fieldPath": "spec.nodeName"}})),
                "args": ["--nvidia-driver-root=/a/$(NODE)"],
            },
            "env: NODE: its value is in a field of the pod, which is not read",
        ),
        ({"env": env(("A", 5))}, "valueFrom: 5 is not a mapping"),
        ({"env": [{"name": "A", "value": 5}]}, "env[A].value: 5 is not a string: put it in"),
        ({"env": [{"value": "a"}]}, "env[0]: name: is missing"),
        ({"envFrom": 5}, "envFrom: 5 is not a list of mappings"),
        (
            {"envFrom": [{"configMap": {"name": "c"}}]},
            "envFrom[0].configMap: not understood: did you mean 'configMapRef'?",
        ),
    ],
)
def test_what_cannot_be_read_is_refused(run: Run, container: dict[str, Any], error: str) -> None:
    assert error in run(container, SECRETS)[1]
