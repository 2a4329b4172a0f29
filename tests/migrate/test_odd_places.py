"""A manifest of which any place is odd: an overlay, or one clear error, and never a traceback."""

import io
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from deviceplugin.__main__ import main
from migration.peers import config_map, daemon_set, mounting
from migration.releases import APP_TEMPLATE, application, helm_release

ODD: Final[tuple[Any, ...]] = (
    *(5, None, True, -1.5, "", "x", [], {}, [[1]], ["x", 5], {"a": {"b": [None]}}, {5: 6}),
)
Path_ = tuple[str | int, ...]
SQUAT: Final = [
    config_map(
        "conf", **{"config.yaml": "devices: [{name: aa, groups: [{paths: [{path: /dev/a}]}]}]"}
    ),
    daemon_set(
        "squat/generic-device-plugin:0.2.1",
        "--config=/c/config.yaml",
        env={"A": "b"},
        tolerations=[{"operator": "Exists"}],
        nodeSelector={"a": "b"},
        initContainers=[{"name": "first"}],
        hostNetwork=True,
        priorityClassName="high",
        volumes=[
            {
                "name": "file",
                "configMap": {
                    "name": "conf",
                    "items": [{"key": "config.yaml", "path": "config.yaml"}],
                },
            },
            {"name": "plugins", "hostPath": {"path": "/srv/kubelet/device-plugins"}},
        ],
        container={
            "ports": [{"containerPort": 8080}],
            "resources": {"limits": {"memory": "20Mi", "cpu": 1}},
            "securityContext": {"privileged": True, "capabilities": {"add": ["SYS_ADMIN"]}},
            "livenessProbe": {},
            "volumeMounts": [
                {"name": "file", "mountPath": "/c/config.yaml", "subPath": "config.yaml"},
                {"name": "plugins", "mountPath": "/var/lib/kubelet/device-plugins"},
            ],
        },
    ),
]
NVIDIA: Final = [
    daemon_set(
        "nvcr.io/nvidia/k8s-device-plugin:v0.20.0",
        "--mig-strategy=mixed",
        env={"DEVICE_LIST_STRATEGY": "envvar"},
        **mounting("conf", "/config"),
    )
]
VALUES: Final = [
    {
        "image": {"repository": "nvcr.io/nvidia/k8s-device-plugin", "tag": "v0.20.0"},
        "config": {"default": "a", "map": {"a": "version: v1\n"}},
        "deviceListStrategy": ["cdi-cri"],
        "tolerations": [{"key": "a"}],
        "mps": {"root": "/run/mps"},
    }
]
POLICY: Final = [
    {
        "apiVersion": "nvidia.com/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "policy"},
        "spec": {
            "cdi": {"enabled": False},
            "devicePlugin": {
                "args": ["--mig-strategy=mixed"],
                "config": {"name": "conf", "default": "a"},
                "env": [{"name": "PASS_DEVICE_SPECS", "value": "true"}],
                "mps": {"root": "/run/mps"},
            },
            "driver": {"enabled": True},
            "hostPaths": {"driverInstallDir": "/opt"},
        },
    },
    config_map("conf", a="sharing: {mps: {resources: [{name: gpu, replicas: 2}]}}"),
]
RELEASES: Final = [
    helm_release(
        "app-template",
        APP_TEMPLATE,
        valuesFrom=[
            {"kind": "ConfigMap", "name": "conf", "valuesKey": "v", "optional": True},
            {"kind": "ConfigMap", "name": "conf", "valuesKey": "t", "targetPath": "a.b[0]"},
        ],
    ),
    config_map("conf", v="a: {b: [1]}", t="{1, 2}"),
]
CHART: Final = [
    application(
        "generic-device-plugin",
        values="deviceDomain: a.example",
        valueFiles=["a.yaml"],
        parameters=[{"name": "image.tag", "value": "0.2.1", "forceString": True}],
    )
]
LISTED: Final = {
    "apiVersion": "argoproj.io/v1alpha1",
    "kind": "ApplicationSet",
    "metadata": {"name": "all"},
    "spec": {
        "generators": [{"list": {"elements": [{"mig": "none"}]}}, {"git": {"repoURL": "a"}}],
        "template": application("nvidia-device-plugin", valuesObject={"migStrategy": "{{mig}}"}),
    },
}
OTHERS: Final = [
    {
        "apiVersion": "helm.cattle.io/v1",
        "kind": "HelmChart",
        "metadata": {"name": "gpu"},
        "spec": {"chart": "nvidia-device-plugin", "set": {"migStrategy": "none"}},
    },
    {"releases": [{"name": "a", "chart": "b/amd-gpu", "values": ["a.yaml", {"dp": {}}]}]},
    {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "configMapGenerator": [{"name": "a", "literals": ["b=c"], "files": ["d=e"]}],
        "helmCharts": [{"name": "smarter-device-manager", "valuesInline": {"config": "[]"}}],
    },
]
MANIFESTS: Final = (SQUAT, NVIDIA, VALUES, POLICY, RELEASES, CHART, [LISTED], OTHERS)


def places(value: Any, path: Path_ = ()) -> Iterator[Path_]:
    """Yield the paths of all values in ``value``."""
    inner = value.items() if isinstance(value, dict) else ()
    for key, one in enumerate(value) if isinstance(value, list) else inner:
        yield (*path, key)
        yield from places(one, (*path, key))


def replaced(value: Any, path: Path_, odd: object) -> Any:
    """Return ``value`` with ``odd`` at ``path``."""
    if not path:
        return odd
    copy = value.copy()
    copy[path[0]] = replaced(value[path[0]], path[1:], odd)
    return copy


ONE = st.sampled_from(MANIFESTS).flatmap(
    lambda documents: st.tuples(
        st.just(documents),
        st.sampled_from(sorted(places(documents), key=str)),
        st.sampled_from(ODD),
    )
)
SPEC = (1, "spec", "template", "spec")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file for the manifest."""
    return tmp_path_factory.mktemp("migrate") / "peer.yaml"


@settings(max_examples=30)
@given(one=ONE)
@example(one=(SQUAT, (*SPEC, "tolerations"), 5))
@example(one=(SQUAT, (*SPEC, "initContainers"), "x"))
@example(one=(SQUAT, (*SPEC, "initContainers", 0), None))
@example(one=(SQUAT, (*SPEC, "containers", 0, "ports"), 5))
@example(one=(SQUAT, (*SPEC, "volumes", 1, "hostPath", "path"), 5))
@example(one=(SQUAT, (*SPEC, "volumes", 0, "configMap", "name"), []))
@example(one=(SQUAT, (*SPEC, "volumes", 0, "configMap", "items"), 5))
@example(one=(SQUAT, (*SPEC, "volumes", 0, "configMap", "items", 0), "x"))
@example(one=(VALUES, (0, "config", "default"), [[1]]))
@example(one=(VALUES, (0, "deviceListStrategy"), 5))
def test_an_odd_place_is_an_overlay_or_a_clear_error(
    file: Path, one: tuple[list[Any], Path_, object]
) -> None:
    file.write_text(yaml.safe_dump_all(replaced(*one)), encoding="utf-8")
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = main(["migrate", str(file)])
    lines = err.getvalue().splitlines()
    assert (status == 2) == bool(lines) == (not out.getvalue())
    assert all(line.startswith("deviceplugin migrate: ") for line in lines)
    assert "report this" not in err.getvalue()
