"""What becomes of NVIDIA's plugin beside its settings: profiles, its release, and its likes."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from deviceplugin.errors import ConfigError
from deviceplugin.kit.migration import Account, Migration, Setting, Workload
from deviceplugin_gpu.migrate import migrate

NVIDIA = "nvcr.io/nvidia/k8s-device-plugin"
SHARED = "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}"
MPS = "sharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}"
OLD_OPERATOR = (
    "[[ -f /run/nvidia/validations/host-driver-ready ]] && driver_root=/ || "
    "driver_root=/run/nvidia/driver; export NVIDIA_DRIVER_ROOT=$driver_root; "
    "exec nvidia-device-plugin;"
)
FLAGS = "flags: {plugin: {deviceListStrategy: cdi-cri}}"


def of_values(content: Mapping[str, Any]) -> Workload:
    """Return Helm values, or an object if they have a kind."""
    return Workload(
        place="f",
        values=content,
        kind=content.get("kind", ""),
        account=Account([("f", content)]),
    )


def of_pod(container: Mapping[str, Any], **pod: Any) -> Workload:
    """Return a container of a pod, which is the whole document."""
    inside = {"name": "one", **container}
    document = {"pod": {"containers": [inside], **pod}}
    return Workload(
        place="f: containers[0]",
        image=inside["image"],
        shell="sh" if "script" in inside else "",
        arguments=["-c", inside["script"]] if "script" in inside else [],
        account=Account([("f", document)]),
        root=(0, "pod", "containers", 0),
    )


def made(workload: Workload) -> Migration:
    """Return what becomes of a workload, which is NVIDIA's plugin."""
    found = migrate(workload)
    assert found is not None
    return found


def configuration(found: Migration) -> Mapping[str, Any]:
    assert isinstance(found.configuration, Mapping)
    return found.configuration


def test_a_label_chooses_profiles() -> None:
    found = made(of_values({"config": {"map": {"a": SHARED, "b": ""}, "default": "b"}}))
    later = {"fail-on-init-error": False}
    sharing = {"timeSlicing": {"resources": [{"name": "nvidia.com/gpu", "replicas": 4}]}}
    assert "nvidia.com/device-plugin.config" == found.profile_label
    assert {"a": {"sharing": sharing, **later}} == found.profiles
    assert later == found.configuration


@pytest.mark.parametrize(
    ("fallbacks", "files", "default", "profiles"),
    [
        (["named"], ["a", "default"], "default", {"a"}),
        (["single"], ["a"], "a", set()),
        (["named", "empty"], ["a", "b"], "", {"a", "b"}),
        (["empty"], ["a"], "", {"a"}),
    ],
)
def test_the_fallback_decides_for_nodes_without_the_label(
    fallbacks: list[str], files: list[str], default: str, profiles: set[str]
) -> None:
    texts = {name: f"flags: {{nvidiaDevRoot: /{name}}}" for name in files}
    found = made(of_values({"config": {"map": texts, "fallbackStrategies": fallbacks}}))
    assert profiles == found.profiles.keys()
    assert (f"/{default}" if default else None) == configuration(found).get("dev-root")


@pytest.mark.parametrize(
    ("values", "parts"),
    [
        ({"gfd": {"enabled": True}}, ["gpu-labels", "Node Feature Discovery of their release"]),
        ({"nfd": {"enabled": True}, "gfd": {}}, ["Node Feature Discovery of their release"]),
        ({"nfd": {"enabled": False}, "gfd": {"enabled": True}}, ["gpu-labels"]),
        ({"gfd": {"enabled": False}}, []),
        (
            {"nodeSelector": {"nvidia.com/gpu.product": "x", "a": "b"}, "gfd": {}},
            ["the label nvidia.com/gpu.product, if what sets it goes (GPU feature discovery"],
        ),
        (
            {"config": {"map": {"a": MPS}}},
            ["removed with their release, with the CUDA contexts of its clients"],
        ),
        (
            {"config": {"map": {"a": MPS}}, "mps": {"root": "/srv/mps"}},
            ["the component gpu-mps runs ours: plugins/gpu/docs/mps.md"],
        ),
        (
            {"toolkit": {}, "devicePlugin": {"config": {"name": "x", "data": {"a": MPS}}}},
            ["is stopped with their plugin"],
        ),
    ],
)
def test_what_goes_with_their_release_is_named(values: dict[str, Any], parts: list[str]) -> None:
    removed = made(of_values(values)).removed
    assert len(parts) == len(removed)
    for part, sentence in zip(parts, removed, strict=True):
        assert part in sentence


def test_selectors_of_a_pod_name_what_sets_their_labels() -> None:
    terms = [{"matchExpressions": [{"key": "feature.node.kubernetes.io/pci-10de.present"}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    workload = of_pod(
        {"image": NVIDIA},
        nodeSelector={"nvidia.com/gpu.deploy.device-plugin": "true"},
        affinity={"nodeAffinity": required},
    )
    operator, discovery = made(workload).removed
    assert "NVIDIA's operator" in operator
    assert "Node Feature Discovery" in discovery


def test_another_directory_at_the_drivers_root_is_named() -> None:
    workload = of_pod(
        {"image": NVIDIA, "volumeMounts": [{"name": "driver", "mountPath": "/driver-root"}]},
        volumes=[{"name": "driver", "hostPath": {"path": "/run/opengl-driver"}}],
    )
    assert "/driver-root: theirs is /run/opengl-driver of the host" in [
        one.partition(": mount")[0] for one in made(workload).differences
    ]


def test_the_daemon_of_mps_beside_a_daemon_set_goes_too() -> None:
    workload = replace(
        of_pod({"image": NVIDIA}),
        arguments=["--config-file=/c"],
        files={"/c": Setting("f", MPS)},
    )
    found = made(workload)
    assert [] == found.removed
    assert any(
        one.startswith("MPS control daemon: delete their DaemonSet") for one in found.differences
    )


@pytest.mark.parametrize(
    ("image", "more", "part"),
    [
        ("gke.gcr.io/nvidia-gpu-device-plugin", {}, "Google's plugin"),
        ("amazon/aws-virtual-gpu-device-plugin", {}, "k8s.amazonaws.com/vgpu"),
        ("projecthami/hami", {"command": ["nvidia-device-plugin"]}, "Project-HAMi"),
        ("4pdosc/k8s-device-plugin", {}, "4paradigm"),
        ("volcanosh/volcano-vgpu-device-plugin", {}, "volcano.sh/vgpu-*"),
        ("registry.example.com/acs/k8s-gpushare-plugin", {}, "aliyun.com/gpu-mem"),
        ("nvcr.io/nvidia/kubevirt-gpu-device-plugin", {}, "virtual machines"),
        ("example.com/jetson-device-plugin", {}, "Jetson"),
        (NVIDIA, {"command": ["/usr/bin/gpu-feature-discovery"]}, "gpu-labels"),
        (NVIDIA, {"command": ["mps-control-daemon"]}, "MPS control daemon"),
        ("nvcr.io/nvidia/gpu-feature-discovery", {}, "gpu-labels"),
    ],
)
def test_its_likes_are_named_with_what_differs(image: str, more: dict[str, Any], part: str) -> None:
    workload = of_pod({"image": image, **more})
    assert migrate(workload) is None
    ((path, why),) = workload.account.dropped()
    assert (0,) == path
    assert part in why


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ({"image": {"repository": "projecthami/hami"}, "kind": ""}, ""),
        ({"kind": "NVIDIADriver", "apiVersion": "nvidia.com/v1alpha1"}, "ClusterPolicy"),
        ({"kind": "GPUCluster", "apiVersion": "nvidia.com/v1alpha1"}, "DRA"),
        ({"nvidiaDriverRoot": "/", "resources": {"gpus": {"enabled": False}}}, "DRA"),
        ({"version": "v1", "flags": {}}, "--config"),
        ({"kind": "ClusterPolicy", "apiVersion": "kyverno.io/v1", "spec": {"rules": []}}, ""),
        ({"devicePlugin": {"deviceSplitCount": 10, "migStrategy": "none"}}, "Project-HAMi"),
        ({"config": {"map": {}, "other": 1}}, ""),
        ({"config": {"name": "mine"}, "replicas": 3}, ""),
        ({"devicePlugin": {"image": "mine", "version": "1"}}, ""),
        ({"devicePlugin": 5, "config": {"map": {"a": "b: c"}}, "x": 1}, ""),
        ({"driver": {"enabled": True}}, ""),
    ],
)
def test_what_is_not_migrated_is_named_or_left_to_others(
    content: dict[str, Any], part: str
) -> None:
    workload = of_values(content)
    assert migrate(workload) is None
    reasons = [why for _, why in workload.account.dropped()]
    assert bool(part) == bool(reasons)
    assert all(part in one for one in reasons)


def test_a_part_of_the_operators_values_is_none_of_the_chart() -> None:
    values = {"image": "k8s-device-plugin", "repository": "nvcr.io/nvidia", "version": "v0.18.0"}
    assert migrate(Workload(place="f", image=NVIDIA, values=values)) is None


def test_another_container_of_the_pod_may_still_be_the_plugin() -> None:
    workload = of_pod({"image": NVIDIA, "command": ["gpu-feature-discovery"]})
    workload.account.get(workload.root[:-1]).append({"image": NVIDIA})
    assert migrate(workload) is None
    assert [workload.root] == [path for path, _ in workload.account.dropped()]


@pytest.mark.parametrize(
    ("script", "settings"),
    [
        ("/bin/entrypoint.sh", {}),
        (OLD_OPERATOR, {}),
        ("exec nvidia-device-plugin --mig-strategy=mixed", {"mig-strategy": "mixed"}),
        ("/usr/bin/nvidia-device-plugin '--mig-strategy' single", {"mig-strategy": "single"}),
    ],
)
def test_a_shell_that_only_starts_the_plugin_is_read(script: str, settings: dict[str, Any]) -> None:
    found = made(of_pod({"image": NVIDIA, "script": script}))
    assert {**settings, "fail-on-init-error": False} == found.configuration


@pytest.mark.parametrize(
    "script", ["nvidia-device-plugin & wait", "nvidia-device-plugin 'x", "true; x", "x $(y)"]
)
def test_any_other_shell_is_refused(script: str) -> None:
    with pytest.raises(ConfigError, match="what a shell starts cannot be read"):
        migrate(of_pod({"image": NVIDIA, "script": script}))


def test_a_setting_whose_value_is_elsewhere_is_refused() -> None:
    given = Setting("f: env: MIG_STRATEGY", {"secretKeyRef": {"name": "s", "key": "k"}})
    workload = replace(of_pod({"image": NVIDIA}), references={"MIG_STRATEGY": given})
    with pytest.raises(ConfigError, match="env: MIG_STRATEGY: its value is not read"):
        migrate(workload)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"config": {"map": {"a": FLAGS, "b": ""}, "default": "a"}},
            "device-list-strategy differs",
        ),
        ({"config": {"map": {"a": 5}}}, "config.map.a: 5 is not the text of a file"),
        ({"config": {"map": {"a": ""}, "name": "b"}}, "their chart refuses it beside config.map"),
        ({"config": {"map": {"a": ""}, "fallbackStrategies": "named"}}, "'named' is not a list"),
        ({"config": {"map": {"a": ""}, "fallbackStrategies": ["x"]}}, "'x' is not named, single"),
        ({"gfd": {}, "mps": {"root": "mps"}}, "mps.root: 'mps' is not an absolute path"),
        ({"toolkit": {}, "devicePlugin": {"enabled": "false"}}, "runs no device plugin"),
        ({"toolkit": {}, "devicePlugin": {"env": {"A": "b"}}}, "is not a list, as of a container"),
        ({"toolkit": {}, "devicePlugin": {"config": {"default": "a"}}}, "is not a ConfigMap"),
        ({"toolkit": {}, "devicePlugin": {"config": {"name": "a"}}}, "is not in the values"),
    ],
)
def test_what_cannot_be_taken_over_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        migrate(of_values(values))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("spec", "variable", "component", "settings"),
    [
        ({}, "cdi-annotations,cdi-cri", "gpu-driver-container", {}),
        ({"cdi": {"enabled": False}}, "envvar", "gpu-driver-container", {}),
        ({"driver": {"enabled": False}}, "cdi-annotations,cdi-cri", "gpu-cdi", {}),
        (
            {"devicePlugin": {"version": "v0.17.4"}, "cdi": {"enabled": True}, "toolkit": None},
            *("envvar,cdi-annotations", "gpu-driver-container"),
            {"cdi-annotation-prefix": "nvidia.cdi.k8s.io/"},
        ),
        ({"devicePlugin": {"version": "v0.14.0"}}, "envvar", "gpu-driver-container", {}),
    ],
)
def test_the_operator_decides_how_pods_get_the_driver(
    spec: dict[str, Any], variable: str, component: str, settings: dict[str, Any]
) -> None:
    policy = {"kind": "ClusterPolicy", "apiVersion": "nvidia.com/v1", "spec": spec}
    found = made(of_values(policy))
    assert variable == found.variables["DP_DEVICE_LIST_STRATEGY"]
    assert [component, "gpu-operator"] == found.components
    assert settings.items() <= configuration(found).items()
    assert ["kubectl patch clusterpolicy/cluster-policy --type merge"] == [
        one.partition(" --patch")[0] for one in found.stop
    ]


def test_a_runtime_that_needs_no_class_of_the_operator_is_named() -> None:
    found = made(of_values({"cdi": {"nriPluginEnabled": True}, "toolkit": {"enabled": True}}))
    assert any("because of cdi.nriPluginEnabled" in one for one in found.differences)


@pytest.mark.parametrize("strategy", ["volume-mounts", "[envvar, volume-mounts]"])
def test_profiles_may_differ_in_what_no_mount_depends_on(strategy: str) -> None:
    file = f"flags: {{nvidiaDriverRoot: /, plugin: {{deviceListStrategy: {strategy}}}}}"
    found = made(of_values({"config": {"map": {"a": file, "b": MPS}, "default": "a"}}))
    assert {"b"} == found.profiles.keys()
    assert "device-list-strategy" in configuration(found)


def test_the_directory_of_mps_may_be_in_the_file() -> None:
    file = f"{MPS}\nflags: {{mpsRoot: /srv/mps}}"
    found = made(of_values({"config": {"map": {"a": file}}}))
    assert "mps-root: /srv/mps becomes /run/nvidia/mps, which the component gpu-mps mounts" in (
        found.differences
    )
    other = made(of_values({"mps": {"root": "/srv/mps"}, "gfd": {}}))
    assert "mps-root: not taken over: no configuration shares by MPS" in other.differences


def test_shares_of_one_resource_are_as_many_as_theirs() -> None:
    two = (
        "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2, devices: [0]}, "
        "{name: gpu, replicas: 4, devices: [1]}]}}"
    )
    found = made(of_values({"config": {"map": {"a": two}}}))
    (share,) = configuration(found)["sharing"]["timeSlicing"]["resources"]
    assert {"name": "gpu", "replicas": 4} == share
