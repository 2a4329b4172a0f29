"""Each value of the chart does what its page says, and what is wrong is refused."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import release
from chart import SCHEMA
from manifests.helm import helm, template
from manifests.kustomize import Manifest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "deployments/chart"
PROPERTIES = yaml.safe_load((SOURCE / SCHEMA).read_text())["definitions"]
VERSION = release.version()
DIGEST = f"sha256:{'0' * 64}"
POD = "spec.template.spec"
OWN = f"{POD}.containers.0"
NODES = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]}
AFFINITY = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": NODES}}


def field(manifest: Manifest, path: str) -> Any:
    """Return a field, such as ``metadata.name`` or ``containers.0``; None if there is none."""
    place: Any = manifest
    for name in path.split("."):
        place = place[int(name)] if isinstance(place, list) else place.get(name)
    return place


def of_kind(manifests: list[Manifest], kind: str) -> Manifest:
    (found,) = (one for one in manifests if one["kind"] == kind)
    return found


def daemon_set(chart: Path, plugin: str = "gopher", **values: Any) -> Manifest:
    return of_kind(template(chart, {plugin: {"enabled": True, **values}}), "DaemonSet")


def environment(manifest: Manifest, name: str) -> Any:
    entries = field(manifest, f"{OWN}.env")
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in entries}.get(name)


NAME = "gopher-device-plugin"
EXISTS = [{"key": "a", "operator": "Exists"}]
ALL_OF_IT = {"registry": "r", "repository": "n", "tag": "t", "digest": DIGEST}
IMAGES: list[tuple[dict[str, str], str]] = [
    ({"registry": "r.example:5000/hw"}, f"r.example:5000/hw/{NAME}:{VERSION}"),
    ({"repository": "team/mine"}, f"team/mine:{VERSION}"),
    ({"tag": "0.2.0"}, f"{NAME}:0.2.0"),
    ({"digest": DIGEST}, f"{NAME}@{DIGEST}"),
    (ALL_OF_IT, f"r/n:t@{DIGEST}"),
]
DAEMON_SET: list[tuple[str, Any, str, Any]] = [
    *(("image", value, f"{OWN}.image", expected) for value, expected in IMAGES),
    ("image", {"pullPolicy": "Always"}, f"{OWN}.imagePullPolicy", "Always"),
    ("image", {"pullSecrets": [{"name": "a"}]}, f"{POD}.imagePullSecrets", [{"name": "a"}]),
    ("args", ["--log-level=debug"], f"{OWN}.args", ["--log-level=debug"]),
    ("resources", {"limits": {"memory": "1Gi"}}, f"{OWN}.resources.limits.memory", "1Gi"),
    ("resources", {"requests": {"cpu": "1"}}, f"{OWN}.resources.requests.cpu", "1"),
    ("nodeSelector", {"a": "b"}, f"{POD}.nodeSelector", {"kubernetes.io/os": "linux", "a": "b"}),
    ("tolerations", [], f"{POD}.tolerations", []),
    ("tolerations", EXISTS, f"{POD}.tolerations", EXISTS),
    ("affinity", AFFINITY, f"{POD}.affinity", AFFINITY),
    ("priorityClassName", "low", f"{POD}.priorityClassName", "low"),
    ("priorityClassName", "", f"{POD}.priorityClassName", ""),
    ("runtimeClassName", "nvidia", f"{POD}.runtimeClassName", "nvidia"),
    (
        "updateStrategy",
        {"rollingUpdate": {"maxUnavailable": 1}},
        "spec.updateStrategy",
        {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
    ),
    ("updateStrategy", {"type": "OnDelete"}, "spec.updateStrategy", {"type": "OnDelete"}),
    ("podAnnotations", {"a": "b"}, "spec.template.metadata.annotations", {"a": "b"}),
    ("namespace", "hardware", "metadata.namespace", "hardware"),
]


@pytest.mark.parametrize(("name", "value", "path", "expected"), DAEMON_SET)
def test_a_value_changes_the_daemon_set(
    name: str, value: Any, path: str, expected: Any, chart_folder: Path
) -> None:
    changed = daemon_set(chart_folder, **{name: value})
    assert expected == field(changed, path)
    assert field(daemon_set(chart_folder), path) != expected


def test_a_value_for_all_gives_way_to_a_plugins_own(chart_folder: Path) -> None:
    values = {
        "defaults": {"nodeSelector": {"a": "1", "b": "1"}, "args": ["--x"]},
        "gopher": {"enabled": True, "nodeSelector": {"b": "2"}, "args": ["--y"]},
        "simulated": {"enabled": True},
    }
    rendered = template(chart_folder, values)
    found = {
        one["metadata"]["name"]: (field(one, f"{POD}.nodeSelector"), field(one, f"{OWN}.args"))
        for one in rendered
        if one["kind"] == "DaemonSet"
    }
    linux = {"kubernetes.io/os": "linux"}
    assert {
        "gopher-device-plugin": ({**linux, "a": "1", "b": "2"}, ["--y"]),
        "simulated-device-plugin": ({**linux, "a": "1", "b": "1"}, ["--x"]),
    } == found


def test_sidecars_and_init_containers_run_the_same_image(chart_folder: Path) -> None:
    image = {"registry": "registry.example.com", "pullPolicy": "Never"}
    found = daemon_set(chart_folder, "fpga", image=image, components={"events": True})
    pod = field(found, POD)
    containers = [*pod["containers"], *pod["initContainers"]]
    assert 3 == len(containers)
    wanted = (f"registry.example.com/fpga-device-plugin:{VERSION}", "Never")
    assert {wanted} == {(one["image"], one["imagePullPolicy"]) for one in containers}


def test_a_mirror_keeps_the_digest_that_the_chart_names(chart_folder: Path) -> None:
    path = chart_folder / "files/gopher.json"
    before = path.read_text()
    released = f"registry.example.com/hw/gopher-device-plugin@{DIGEST}"
    path.write_text(before.replace(f"gopher-device-plugin:{VERSION}", released))
    try:
        assert released == field(daemon_set(chart_folder), f"{OWN}.image")
        mirrored = daemon_set(chart_folder, image={"registry": "mirror.example.com"})
        tagged = daemon_set(chart_folder, image={"tag": "0.2.0"})
    finally:
        path.write_text(before)
    assert f"mirror.example.com/gopher-device-plugin@{DIGEST}" == field(mirrored, f"{OWN}.image")
    assert "registry.example.com/hw/gopher-device-plugin:0.2.0" == field(tagged, f"{OWN}.image")


def test_configuration_is_merged_into_that_of_the_manifest(chart_folder: Path) -> None:
    values = {"gpu": {"enabled": True, "config": {"mig-strategy": "single"}}}
    config = of_kind(template(chart_folder, values), "ConfigMap")["data"]["config.yaml"]
    assert {"fail-on-init-error": False, "mig-strategy": "single"} == yaml.safe_load(config)
    removed = {"gpu": {"enabled": True, "config": {"fail-on-init-error": None}}}
    config = of_kind(template(chart_folder, removed), "ConfigMap")["data"]["config.yaml"]
    assert {} == yaml.safe_load(config)


def test_numbers_and_strings_of_a_configuration_stay_what_they_are(chart_folder: Path) -> None:
    config = {"n": 10_000_000, "s": "0x1d6b", "on": "yes", "m": "1e3", "f": 0.5, "l": [{"a": True}]}
    values = {"gopher": {"enabled": True, "config": config}}
    found = of_kind(template(chart_folder, values), "ConfigMap")["data"]["config.yaml"]
    assert {"directory": "/etc/gophers", **config} == yaml.safe_load(found)


def test_pods_are_replaced_when_the_configuration_changes(chart_folder: Path) -> None:
    def annotations(**config: Any) -> Any:
        found = daemon_set(chart_folder, "simulated", config=config)
        return field(found, "spec.template.metadata.annotations")

    assert annotations() is None
    assert annotations(**{"number-devices": 2}) is None  # as it was
    three = annotations(**{"number-devices": 3})
    assert ["checksum/config"] == [*three]
    assert three != annotations(**{"number-devices": 4})
    assert three == annotations(**{"number-devices": 3})


def test_files_of_components_have_values(chart_folder: Path) -> None:
    aliases = {"aliases": [{"name": "nlb", "function": "a" * 32}]}
    values: dict[str, Any] = {
        "enabled": True,
        "components": {"fpga-aliases": True},
        "configMaps": {"aliases": {"aliases.yaml": aliases, "more.txt": "x"}},
    }
    rendered = template(chart_folder, {"fpga": values})
    (found,) = (one for one in rendered if one["metadata"]["name"] == "aliases")
    assert aliases == yaml.safe_load(found["data"]["aliases.yaml"])
    assert "x" == found["data"]["more.txt"]
    metadata = of_kind(rendered, "DaemonSet")["spec"]["template"]["metadata"]
    assert "checksum/config" in metadata["annotations"]
    with pytest.raises(ValueError, match=r"fpga.configMaps: there is no aliases: set its compon"):
        template(chart_folder, {"fpga": {**values, "components": {}}})


def test_variables_are_added_and_replaced(chart_folder: Path) -> None:
    env = [
        {"name": "DP_LOG_LEVEL", "value": "debug"},
        {"name": "DP_HTTP_ADDRESS", "value": ":9999"},
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
    ]
    found = daemon_set(chart_folder, env=env)
    assert "debug" == environment(found, "DP_LOG_LEVEL")
    assert ":9999" == environment(found, "DP_HTTP_ADDRESS")
    assert {"fieldRef": {"fieldPath": "spec.nodeName"}} == environment(found, "NODE")
    assert "/etc/device-plugin/config.yaml" == environment(found, "DP_CONFIG")


def test_volumes_are_added_and_replaced(chart_folder: Path) -> None:
    volumes = [
        {"name": "gophers", "hostPath": {"path": "/srv/gophers", "type": "Directory"}},
        {"name": "more", "emptyDir": {}},
    ]
    mounts = [{"name": "more", "mountPath": "/more"}]
    found = daemon_set(chart_folder, volumes=volumes, volumeMounts=mounts)
    by_name = {one["name"]: one for one in field(found, f"{POD}.volumes")}
    assert "/srv/gophers" == by_name["gophers"]["hostPath"]["path"]
    assert volumes[1] == by_name["more"]
    assert mounts[0] in field(found, f"{OWN}.volumeMounts")
    assert 5 == len(by_name)


def test_another_root_of_the_kubelet_is_mounted(chart_folder: Path) -> None:
    root = "/var/lib/k0s/kubelet"
    found = daemon_set(chart_folder, kubeletRoot=root)
    paths = {one["hostPath"]["path"] for one in field(found, f"{POD}.volumes") if "hostPath" in one}
    assert {"/var/lib/kubelet/device-plugins", f"{root}/pod-resources", "/etc/gophers"} == paths
    watched = daemon_set(chart_folder, kubeletRoot=root, components={"watcher": True})
    paths = {
        one["hostPath"]["path"] for one in field(watched, f"{POD}.volumes") if "hostPath" in one
    }
    assert {f"{root}/plugins_registry", f"{root}/pod-resources", "/etc/gophers"} == paths


def test_a_dra_driver_has_one_path_here_and_below_another_root(chart_folder: Path) -> None:
    root = "/var/lib/k0s/kubelet"
    found = daemon_set(chart_folder, kubeletRoot=root, components={"dra": True})
    (volume,) = (one for one in field(found, f"{POD}.volumes") if one["name"] == "driver")
    (mount,) = (one for one in field(found, f"{OWN}.volumeMounts") if one["name"] == "driver")
    (variable,) = (one for one in field(found, f"{OWN}.env") if one["name"] == "DP_DRIVER_DIR")
    paths = {volume["hostPath"]["path"], mount["mountPath"], variable["value"]}
    assert {f"{root}/plugins/gopher-device-plugin"} == paths


def test_a_namespace_holds_for_all_that_is_in_it(chart_folder: Path) -> None:
    values = {
        "enabled": True,
        "namespace": "hardware",
        "components": {"events": True, "monitoring": True},
    }
    rendered = template(chart_folder, {"gopher": values})
    assert "hardware" == of_kind(rendered, "Namespace")["metadata"]["name"]
    (subject,) = of_kind(rendered, "ClusterRoleBinding")["subjects"]
    assert "hardware" == subject["namespace"]
    assert {"hardware", None} == {one["metadata"].get("namespace") for one in rendered}
    assert "gopher-device-plugin'" not in json.dumps([one["metadata"] for one in rendered])


@pytest.mark.parametrize(
    ("values", "words"),
    [
        pytest.param({"createNamespace": False}, [], id="as is wanted"),
        pytest.param({"namespace": "hw"}, ["--namespace=hw"], id="that of the release"),
    ],
)
def test_a_namespace_that_there_is_is_not_created(
    values: dict[str, Any], words: list[str], chart_folder: Path
) -> None:
    rendered = template(chart_folder, {"gopher": {"enabled": True, **values}}, *words)
    assert "Namespace" not in {one["kind"] for one in rendered}
    assert 5 == len(rendered)


def test_plugins_can_share_a_namespace(chart_folder: Path) -> None:
    values: dict[str, Any] = {
        "defaults": {"namespace": "hw", "components": {"events": True, "monitoring": True}},
        "gopher": {"enabled": True},
        "simulated": {"enabled": True},
    }
    rendered = template(chart_folder, values)
    names = [
        (one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"]) for one in rendered
    ]
    assert sorted(set(map(str, names))) == sorted(map(str, names))
    assert 1 == [kind for kind, _, _ in names].count("PodMonitor")
    assert 2 == [kind for kind, _, _ in names].count("ClusterRole")
    with pytest.raises(ValueError, match="simulated: another plugin has a different NetworkPolicy"):
        template(chart_folder, {**values, "simulated": {"enabled": True, "labels": {"a": "b"}}})


def test_labels_are_on_all_objects_and_pods(chart_folder: Path) -> None:
    values = {"enabled": True, "labels": {"team": "hw"}, "components": {"evict": True}}
    rendered = template(chart_folder, {"gopher": values})
    assert {"hw"} == {one["metadata"]["labels"]["team"] for one in rendered}
    for kind in ("DaemonSet", "Deployment"):
        spec = of_kind(rendered, kind)["spec"]
        assert "hw" == spec["template"]["metadata"]["labels"]["team"]
        assert "team" not in spec["selector"]["matchLabels"]


def test_the_pod_of_a_component_has_the_image_of_the_plugin(chart_folder: Path) -> None:
    image = {"registry": "example.com/hw", "tag": "9", "pullSecrets": [{"name": "login"}]}
    values = {"enabled": True, "image": image, "components": {"startup-taint": True}}
    rendered = template(chart_folder, {"gopher": values})
    for kind in ("DaemonSet", "Deployment"):
        pod = of_kind(rendered, kind)["spec"]["template"]["spec"]
        assert "example.com/hw/gopher-device-plugin:9" == pod["containers"][0]["image"]
        assert [{"name": "login"}] == pod["imagePullSecrets"]


def test_prometheus_can_be_anywhere_and_select_by_labels(chart_folder: Path) -> None:
    monitoring = {"namespace": "prom", "labels": {"release": "prometheus"}}
    values = {"enabled": True, "components": {"monitoring": True}, "monitoring": monitoring}
    rendered = template(chart_folder, {"gopher": values})
    for kind in ("PodMonitor", "PrometheusRule"):
        assert "prometheus" == of_kind(rendered, kind)["metadata"]["labels"]["release"]
    assert "release" not in of_kind(rendered, "DaemonSet")["metadata"]["labels"]
    (policy,) = (one for one in rendered if one["metadata"]["name"] == "device-plugin-monitoring")
    peer = policy["spec"]["ingress"][0]["from"][0]["namespaceSelector"]["matchLabels"]
    assert {"kubernetes.io/metadata.name": "prom"} == peer
    with pytest.raises(ValueError, match=r"set gopher\.components\.monitoring to true"):
        template(chart_folder, {"gopher": {"enabled": True, "monitoring": monitoring}})


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({}, "no plugin is enabled: set one of amd.enabled"),
    ({"gpus": {"enabled": True}}, "(root): Additional property gpus is not allowed"),
    ({"gpu": {"enable": True}}, "gpu: Additional property enable is not allowed"),
    ({"gpu": {"enabled": "yes"}}, "gpu.enabled: Invalid type. Expected: boolean, given: string"),
    ({"defaults": {"enabled": True}}, "defaults: Additional property enabled is not allowed"),
    ({"gpu": {"image": {"tag": 1.0}}}, "gpu.image.tag: Invalid type. Expected: string"),
    ({"gpu": {"image": {"registry": "r/"}}}, "gpu.image.registry: Does not match pattern"),
    ({"gpu": {"image": {"digest": "0123"}}}, "gpu.image.digest: Does not match pattern"),
    ({"gpu": {"image": {"pullPolicy": "always"}}}, "gpu.image.pullPolicy"),
    ({"gpu": {"config": "a: 1"}}, "gpu.config: Invalid type. Expected: object, given: string"),
    ({"gpu": {"components": {"event": True}}}, "Additional property event is not allowed"),
    ({"gpu": {"components": {"fpga-aliases": True}}}, "Additional property fpga-aliases"),
    ({"gpu": {"configMaps": {"aliases": {}}}}, "Additional property aliases is not allowed"),
    ({"gpu": {"env": {"A": "b"}}}, "gpu.env: Invalid type. Expected: array, given: object"),
    ({"gpu": {"env": [{"name": "A", "value": True}]}}, "gpu.env.0.value: Invalid type"),
    ({"gpu": {"tolerations": [{"kye": "a"}]}}, "Additional property kye is not allowed"),
    ({"gpu": {"updateStrategy": {"rollingUpdate": {"maxSurge": 1}}}}, "property maxSurge"),
    ({"gpu": {"resources": {"limit": {}}}}, "Additional property limit is not allowed"),
    ({"gpu": {"affinity": {"nodeAffinity": {"required": {}}}}}, "property required is not"),
    ({"gpu": {"kubeletRoot": "var/lib"}}, "gpu.kubeletRoot: Does not match pattern"),
    ({"gpu": {"namespace": "My_ns"}}, "gpu.namespace: Does not match pattern"),
    ({"gpu": {"labels": {"app.kubernetes.io/name": "x"}}}, 'Property name of "app.kubernetes.io'),
]


@pytest.mark.parametrize(("values", "message"), REFUSED)
def test_what_is_wrong_is_refused(values: dict[str, Any], message: str, chart_folder: Path) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        template(chart_folder, values)


def test_a_chart_can_be_a_part_of_another(chart_folder: Path) -> None:
    values = {"global": {"imageRegistry": "r"}, "gopher": {"enabled": True}}
    assert f"gopher-device-plugin:{VERSION}" == field(
        of_kind(template(chart_folder, values), "DaemonSet"), f"{OWN}.image"
    )


def test_every_value_is_on_the_page_and_tried_here() -> None:
    page = (SOURCE / "README.md").read_text()
    rows = set(re.findall(r"^\| `([\w.]+)` \|", page, re.MULTILINE))
    nested = {
        f"{name}.{inner}"
        for name in ("image", "monitoring")
        for inner in PROPERTIES[name]["properties"]
    }
    assert (set(PROPERTIES) | nested) - {"image", "monitoring"} == rows
    own = Path(__file__).read_text()
    assert [] == [name for name in PROPERTIES if f'"{name}' not in own and f"{name}=" not in own]


def test_the_values_of_the_page_are_taken(chart_folder: Path) -> None:
    page = (SOURCE / "README.md").read_text()
    blocks = re.findall(r"^```yaml\n(.+?)^```$", page, re.MULTILINE | re.DOTALL)
    assert 2 <= len(blocks)
    for block in blocks:
        assert template(chart_folder, yaml.safe_load(block))


def test_the_values_that_the_chart_shows_are_taken(chart_folder: Path) -> None:
    shown = helm("show", "values", chart_folder)
    assert template(chart_folder, {**yaml.safe_load(shown), "gopher": {"enabled": True}})
    uncommented = re.sub(r"^defaults: \{\}", "defaults:", shown, flags=re.MULTILINE)
    uncommented = re.sub(r"^  # ", "  ", uncommented, flags=re.MULTILINE)
    values = yaml.safe_load(uncommented)
    assert {"image", "components"} <= set(values["defaults"])
    assert template(chart_folder, {**values, "gopher": {"enabled": True}})
