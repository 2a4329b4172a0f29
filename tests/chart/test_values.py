"""Each value of the chart does what its page says, and what is wrong is refused."""

import json
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

import versions
from deviceplugin._config.settings import dump
from deviceplugin_operator.crd.catalogue import PLUGINS
from manifests.helm import helm, template
from manifests.kustomize import Manifest, of_kind

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "deployments/chart"
PROPERTIES = yaml.safe_load((SOURCE / "values.schema.yaml").read_text())["definitions"]
VERSION = versions.current()
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


def enabled(chart: Path, plugin: str = "gopher", **values: Any) -> list[Manifest]:
    return template(chart, {plugin: {"enabled": True, **values}})


def daemon_set(chart: Path, plugin: str = "gopher", **values: Any) -> Manifest:
    found: Manifest = of_kind(enabled(chart, plugin, **values), "DaemonSet")
    return found


def environment(manifest: Manifest) -> Any:
    entries = field(manifest, f"{OWN}.env")
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in entries}


def host_paths(manifest: Manifest) -> set[str]:
    volumes = field(manifest, f"{POD}.volumes")
    return {one["hostPath"]["path"] for one in volumes if "hostPath" in one}


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
    (
        "updateStrategy",
        {"rollingUpdate": {"maxSurge": 1}},
        "spec.updateStrategy",
        {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
    ),
    ("updateStrategy", {"type": "OnDelete"}, "spec.updateStrategy", {"type": "OnDelete"}),
    ("podAnnotations", {"a": "b"}, "spec.template.metadata.annotations", {"a": "b"}),
    ("namespace", "hardware", "metadata.namespace", "hardware"),
]


@pytest.mark.parametrize(("name", "value", "path", "expected"), DAEMON_SET)
def test_a_value_changes_the_daemon_set(
    name: str, value: Any, path: str, expected: Any, chart_folder: Path, plain: Manifest
) -> None:
    assert expected == field(daemon_set(chart_folder, **{name: value}), path)
    assert field(plain, path) != expected


@pytest.fixture(scope="module")
def plain(chart_folder: Path) -> Manifest:
    """Return the DaemonSet without a value."""
    return daemon_set(chart_folder)


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


def test_configuration_is_merged_and_numbers_and_strings_stay_what_they_are(
    chart_folder: Path,
) -> None:
    config = {"n": 10_000_000, "s": "0x1d6b", "on": "yes", "m": "1e3", "f": 0.5, "l": [{"a": True}]}
    rendered = enabled(chart_folder, "node", config={"generic": None, "lamp": config})
    found = of_kind(rendered, "ConfigMap")["data"]["config.yaml"]
    assert {"lamp": config} == yaml.safe_load(found)


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


def test_variables_and_volumes_are_added_and_replaced(chart_folder: Path) -> None:
    env = [
        {"name": "DP_LOG_LEVEL", "value": "debug"},
        {"name": "DP_HTTP_ADDRESS", "value": ":9999"},
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
    ]
    volumes = [
        {"name": "gophers", "hostPath": {"path": "/srv/gophers", "type": "Directory"}},
        {"name": "more", "emptyDir": {}},
    ]
    mounts = [{"name": "more", "mountPath": "/more"}]
    found = daemon_set(chart_folder, env=env, volumes=volumes, volumeMounts=mounts)
    assert {
        "DP_LOG_LEVEL": "debug",
        "DP_HTTP_ADDRESS": ":9999",
        "DP_CONFIG": "/etc/device-plugin/config.yaml",
        "NODE": {"fieldRef": {"fieldPath": "spec.nodeName"}},
    } == environment(found)
    by_name = {one["name"]: one for one in field(found, f"{POD}.volumes")}
    assert "/srv/gophers" == by_name["gophers"]["hostPath"]["path"]
    assert volumes[1] == by_name["more"]
    assert mounts[0] in field(found, f"{OWN}.volumeMounts")
    assert 5 == len(by_name)


def test_another_root_of_the_kubelet_is_mounted(chart_folder: Path) -> None:
    root = "/var/lib/k0s/kubelet"
    found = daemon_set(chart_folder, kubeletRoot=root)
    common = {f"{root}/pod-resources", "/etc/gophers"}
    assert {"/var/lib/kubelet/device-plugins", *common} == host_paths(found)
    watched = daemon_set(chart_folder, kubeletRoot=root, components={"watcher": True})
    assert {f"{root}/plugins_registry", *common} == host_paths(watched)
    dra = daemon_set(chart_folder, kubeletRoot=root, components={"dra": True})
    (mount,) = (one for one in field(dra, f"{OWN}.volumeMounts") if one["name"] == "driver")
    driver = f"{root}/plugins/gopher-device-plugin"
    assert [driver] * 2 == [mount["mountPath"], environment(dra)["DP_DRIVER_DIR"]]
    assert driver in host_paths(dra)


def test_a_namespace_holds_for_all_that_is_in_it(chart_folder: Path) -> None:
    components = {"events": True, "monitoring": True}
    rendered = enabled(chart_folder, namespace="hardware", components=components)
    assert "hardware" == of_kind(rendered, "Namespace")["metadata"]["name"]
    (subject,) = of_kind(rendered, "ClusterRoleBinding")["subjects"]
    assert "hardware" == subject["namespace"]
    assert {"hardware", None} == {one["metadata"].get("namespace") for one in rendered}
    assert "gopher-device-plugin'" not in json.dumps([one["metadata"] for one in rendered])


@pytest.mark.parametrize(
    ("values", "namespace", "is_created"),
    [
        ({}, "hw", False),  # that of the release
        ({"namespace": "hw"}, "hw", False),
        ({"namespace": "mine"}, "mine", True),
        ({"namespace": "mine", "createNamespace": False}, "mine", False),
    ],
)
def test_a_plugin_is_in_the_namespace_of_the_release_or_its_own(
    values: Any, namespace: str, is_created: bool, chart_folder: Path
) -> None:
    rendered = template(chart_folder, {"gopher": {"enabled": True, **values}}, "--namespace=hw")
    namespaces = [one for one in rendered if one["kind"] == "Namespace"]
    assert [namespace] * is_created == [one["metadata"]["name"] for one in namespaces]
    others = {one["metadata"]["namespace"] for one in rendered if one not in namespaces}
    assert {namespace} == others


def test_plugins_can_share_a_namespace(chart_folder: Path) -> None:
    values: dict[str, Any] = {
        "defaults": {"namespace": "hw", "components": {"events": True, "monitoring": True}},
        "gopher": {"enabled": True},
        "simulated": {"enabled": True},
    }
    rendered = template(chart_folder, values)
    names = Counter((one["kind"], one["metadata"]["name"]) for one in rendered)
    assert {1} == {*names.values()}
    kinds = Counter(kind for kind, _ in names)
    assert (1, 2) == (kinds["PodMonitor"], kinds["ClusterRole"])
    with pytest.raises(ValueError, match="simulated: another plugin has a different NetworkPolicy"):
        template(chart_folder, {**values, "simulated": {"enabled": True, "labels": {"a": "b"}}})


def test_labels_are_on_all_objects_and_pods(chart_folder: Path, operator_chart: Path) -> None:
    wanted = {
        "app.kubernetes.io/instance": "release",
        "app.kubernetes.io/managed-by": "Helm",
        "app.kubernetes.io/part-of": "device-plugins",
        "app.kubernetes.io/version": VERSION,
        "team": "hw",
    }
    values: dict[str, Any] = {"labels": {"team": "hw"}}
    of_plugins = enabled(chart_folder, **values, components={"evict": True, "monitoring": True})
    for name, rendered in (
        ("device-plugins", of_plugins),
        ("device-plugins-operator", template(operator_chart, values)),
    ):
        every = {**wanted, "helm.sh/chart": f"{name}-{VERSION}"}
        pods = [one["spec"] for one in rendered if one["kind"] in {"DaemonSet", "Deployment"}]
        for one in (*rendered, *(spec["template"] for spec in pods)):
            assert every.items() <= one["metadata"]["labels"].items()
        for spec in pods:  # a selector cannot change
            assert set() == every.keys() & spec["selector"]["matchLabels"].keys()


def test_the_pod_of_a_component_has_the_image_of_the_plugin(chart_folder: Path) -> None:
    image = {"registry": "example.com/hw", "tag": "9", "pullSecrets": [{"name": "login"}]}
    rendered = enabled(chart_folder, image=image, components={"startup-taint": True})
    for kind in ("DaemonSet", "Deployment"):
        pod = of_kind(rendered, kind)["spec"]["template"]["spec"]
        assert "example.com/hw/gopher-device-plugin:9" == pod["containers"][0]["image"]
        assert [{"name": "login"}] == pod["imagePullSecrets"]


def test_prometheus_can_be_anywhere_and_select_by_labels(chart_folder: Path) -> None:
    monitoring = {"namespace": "prom", "labels": {"release": "prometheus"}}
    rendered = enabled(chart_folder, components={"monitoring": True}, monitoring=monitoring)
    for kind in ("PodMonitor", "PrometheusRule"):
        assert "prometheus" == of_kind(rendered, kind)["metadata"]["labels"]["release"]
    assert "release" not in of_kind(rendered, "DaemonSet")["metadata"]["labels"]
    (policy,) = (one for one in rendered if one["metadata"]["name"] == "device-plugin-monitoring")
    peer = policy["spec"]["ingress"][0]["from"][0]["namespaceSelector"]["matchLabels"]
    assert {"kubernetes.io/metadata.name": "prom"} == peer
    with pytest.raises(ValueError, match=r"set gopher\.components\.monitoring to true"):
        enabled(chart_folder, monitoring=monitoring)


REFUSED: dict[str, Any] = {
    "gpus": {"enabled": True},
    "defaults": {"enabled": True},
    "gpu": {
        "enable": True,
        "enabled": "yes",
        "image": {"tag": 1.0, "registry": "r/", "digest": "0123", "pullPolicy": "always"},
        "config": {"mig-stratgy": "mixed", "log-level": "loud", "http-address": ":1"},
        "components": {"event": True, "fpga-aliases": True},
        "configMaps": {"aliases": {}},
        "env": {"A": "b"},
        "tolerations": [{"kye": "a"}],
        "updateStrategy": {"rollingUpdate": {"maxSurge": "one"}},
        "resources": {"limit": {}},
        "affinity": {"nodeAffinity": {"required": {}}},
        "kubeletRoot": "var/lib",
        "namespace": "My_ns",
        "labels": {"app.kubernetes.io/name": "x"},
    },
    "simulated": {"config": {"number-devices": "many", "poll-interval": 5}},
    "rdma": {"config": "a: 1", "env": [{"name": "A", "value": True}]},
    "generic": {"config": {"devices": [{"name": "lamp", "groups": [{"pahts": []}]}]}},
    "node": {"config": {"log-levle": "debug", "gopher": {"log-level": "info"}}},
}
FAULTS = r"""
(root): Additional property gpus is not allowed
defaults: Additional property enabled is not allowed
generic.config.devices: Must validate at least one schema (anyOf)
generic.config.devices.0.groups.0: Additional property pahts is not allowed
generic.config.devices.0.groups.0: Must validate one and only one schema (oneOf)
generic.config.devices.0.groups.0: paths is required
gpu: Additional property enable is not allowed
gpu.affinity.nodeAffinity: Additional property required is not allowed
gpu.components: Additional property event is not allowed
gpu.components: Additional property fpga-aliases is not allowed
gpu.config.log-level: gpu.config.log-level must be one of the following: "debug", "info", "warning", "error", null
gpu.config: Additional property http-address is not allowed
gpu.config: Additional property mig-stratgy is not allowed
gpu.configMaps: Additional property aliases is not allowed
gpu.enabled: Invalid type. Expected: boolean, given: string
gpu.env: Invalid type. Expected: array, given: object
gpu.image.digest: Does not match pattern '^sha256:[0-9a-f]{64}$'
gpu.image.pullPolicy: gpu.image.pullPolicy must be one of the following: "Always", "IfNotPresent", "Never"
gpu.image.registry: Does not match pattern '[^/]$'
gpu.image.tag: Invalid type. Expected: string, given: integer
gpu.kubeletRoot: Does not match pattern '^/.*[^/]$'
gpu.labels: Must not validate the schema (not)
gpu.labels: Property name of "app.kubernetes.io/name" does not match
gpu.namespace: Does not match pattern '^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$'
gpu.resources: Additional property limit is not allowed
gpu.tolerations.0: Additional property kye is not allowed
gpu.updateStrategy.rollingUpdate.maxSurge: Does not match pattern '^[0-9]+%$'
node.config.gopher: Additional property log-level is not allowed
node.config.log-levle: Invalid type. Expected: [object,null], given: string
rdma.config: Invalid type. Expected: object, given: string
rdma.env.0.value: Invalid type. Expected: string, given: boolean
simulated.config.number-devices: Does not match pattern '^\s*[-+]?[0-9]+\s*$'
simulated.config.poll-interval: Invalid type. Expected: [string,null], given: integer
"""  # noqa: E501  a line each, as helm has them


def test_what_is_wrong_is_refused(chart_folder: Path) -> None:
    with pytest.raises(ValueError, match="device-plugins") as refused:
        template(chart_folder, REFUSED)
    said = re.findall(r"^- (.+)$", str(refused.value), re.MULTILINE)
    assert sorted(FAULTS.strip().splitlines()) == sorted(said)


NOT_TAKEN = {
    *("node-choice", "node-label", "node-labels-file"),  # they have no effect in a file
    "http-address",  # a variable overrides it
}


@pytest.mark.parametrize("plugin", sorted(PLUGINS))
def test_every_default_of_a_plugin_may_be_written_down(plugin: str, chart_folder: Path) -> None:
    schema = json.loads((chart_folder / "values.schema.json").read_text())
    config = schema["properties"][plugin]["properties"]["config"]
    hosted = PLUGINS[plugin]
    default = {hosted.renamed.get(key, key): one for key, one in dump(hosted.settings()).items()}
    assert NOT_TAKEN == default.keys() - config["properties"].keys()
    written = {key: one for key, one in default.items() if key not in NOT_TAKEN}
    assert [] == [one.message for one in Draft7Validator(config).iter_errors(written)]


TAKEN = [
    ("gpu", {"version": "v1", "flags": {"migStrategy": "single"}, "imex": {"required": True}}),
    ("gpu", {"mig-strategy": None, "device-list-strategy": "envvar,cdi-cri"}),
    ("gpu", {"imex-channel-ids": ["0"], "fail-on-init-error": "True"}),
    ("rdma", {"configList": [{"resourceName": "hca"}], "periodicUpdateInterval": 60}),
    ("generic", {"devices": None, "device": [{"name": "lamp", "groups": [{"paths": []}]}]}),
    ("node", {"log-level": "debug", "simulated": {"number-devices": 2}, "lamp": {"a": 1}}),
]


@pytest.mark.parametrize(("plugin", "config"), TAKEN)
def test_what_the_plugin_reads_is_taken(plugin: str, config: Any, chart_folder: Path) -> None:
    found = of_kind(enabled(chart_folder, plugin, config=config), "ConfigMap")
    written = yaml.safe_load(found["data"]["config.yaml"])
    assert {key: one for key, one in config.items() if one is not None}.items() <= written.items()


NOTES: list[tuple[dict[str, Any], set[str]]] = [
    ({}, {"helm upgrade release CHART --namespace hw --reuse-values --set generic.enabled=true"}),
    (
        {"gpu": {"enabled": True}, "gopher": {"enabled": True, "namespace": "mine"}},
        {
            "kubectl --namespace hw rollout status daemonset/gpu-device-plugin",
            "kubectl --namespace mine rollout status daemonset/gopher-device-plugin",
            "kubectl label namespace hw pod-security.kubernetes.io/enforce=privileged",
        },
    ),
]


@pytest.mark.parametrize(("values", "commands"), NOTES)
def test_whoever_installs_it_is_told_how_to_go_on(
    values: Any, commands: set[str], chart_folder: Path, tmp_path: Path
) -> None:
    made = shutil.copytree(chart_folder, tmp_path / "made")
    (made / "templates/plugins.yaml").write_text(  # helm prints notes only with a cluster
        '{kind: Notes, text: {{ tpl (.Files.Get "NOTES.txt") . | toJson }}}'
    )
    (made / "templates/NOTES.txt").rename(made / "NOTES.txt")
    (notes,) = template(made, values, "--namespace=hw")
    assert commands == {*re.findall(r"^  (.+)$", notes["text"], re.MULTILINE)}
    assert ("There are amd, fpga, generic, " in notes["text"]) == (not values)


def test_a_chart_can_be_a_part_of_another(
    chart_folder: Path, operator_chart: Path, tmp_path: Path
) -> None:
    """Its condition, and what is for all charts, are values of it too."""
    names = {"device-plugins": chart_folder, "device-plugins-operator": operator_chart}
    needed = [{"name": name, "version": VERSION, "condition": f"{name}.enabled"} for name in names]
    metadata = {"apiVersion": "v2", "name": "all", "version": "1.0.0", "dependencies": needed}
    (tmp_path / "Chart.yaml").write_text(yaml.safe_dump(metadata))
    for name, folder in names.items():
        shutil.copytree(folder, tmp_path / "charts" / name)
    values: dict[str, Any] = {"global": {"imageRegistry": "r"}, "device-plugins": {"enabled": True}}
    values["device-plugins-operator"] = {"enabled": False}
    assert [] == template(tmp_path, values)  # nothing enabled is no error
    values["device-plugins"]["gopher"] = {"enabled": True}
    rendered = template(tmp_path, values)
    assert f"gopher-device-plugin:{VERSION}" == field(
        of_kind(rendered, "DaemonSet"), f"{OWN}.image"
    )
    assert [] == [one for one in rendered if one["kind"] == "Deployment"]


@pytest.mark.parametrize(("folder", "flag"), [("chart", ""), ("operator/chart", " --operator")])
def test_the_source_of_a_chart_says_how_to_make_it(folder: str, flag: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"build/release.py chart NEW-FOLDER{flag}`")):
        template(ROOT / "deployments" / folder, {"gopher": {"enabled": True}} if not flag else {})


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
