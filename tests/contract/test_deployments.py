"""The manifests are safe, run the plugins that there are, and are what kustomize makes of them."""

import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

import kubernetes_validate
import pytest
import yaml

import release
from deviceplugin._dra.slices.attributes import device_classes
from deviceplugin_fpga.annotation import ACCOUNT
from deviceplugin_fpga.resource_names import Aliases, read_aliases
from manifests.deployment_policy import problems
from manifests.expected import COMPONENTS, PLUGINS, WIDE, expected, fitting, wide
from manifests.kustomize import (
    Manifest,
    container_of,
    in_order,
    kustomized,
    names,
    of_kind,
    overlay,
    pod_of,
    render,
    renderings,
)

ROOT = Path(__file__).parents[2]
OLDEST, NEWEST = "1.26", "1.37"
"""Versions of Kubernetes whose schemas the manifests must fit."""
OLDEST_OF = {
    "ValidatingAdmissionPolicy": "1.30",
    "ValidatingAdmissionPolicyBinding": "1.30",
    "DeviceClass": "1.34",
    "MutatingAdmissionPolicy": "1.36",
    "MutatingAdmissionPolicyBinding": "1.36",
}
"""The same for kinds that came later, which are in a component of their own."""
OPERATORS = {"PodMonitor", "PrometheusRule", "SecurityContextConstraints"}
"""Kinds that are not Kubernetes' own."""
PRIVILEGED = {"amd-privileged", "gpu-privileged"}
"""Components that make a container privileged, which no other does."""
SELINUX = {"bottlerocket": "container_t"}
"""The type of containers with a component for an SELinux policy of another kind."""
WITHOUT_RUNTIME = ("gpu-cdi", "gpu-static-cdi", "gpu-privileged")
EXAMPLES = sorted(path.parent for path in ROOT.glob("demo/examples/*/pod.yaml"))


def folder(plugin: str) -> Path:
    return ROOT / "deployments" / plugin


def settings(plugin: str) -> dict[str, Any]:
    program = str(Path(sys.executable).with_name(f"{plugin}-device-plugin"))
    words = [program, "--print-config"]
    done = subprocess.run(words, capture_output=True, check=True, env={})
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def resources(plugin: str) -> set[str]:
    """Return what a plugin advertises, by its setting or the ConfigMap that it comes with."""
    if told := expected(plugin).resources:
        return set(told)
    known = settings(plugin)
    if "resource" in known:
        return {known["resource"]}
    devices = yaml.safe_load(_config(render(folder(plugin)))["config.yaml"])["devices"]
    return {f"{known['domain']}/{entry['name']}" for entry in devices}


def schema_problems(manifests: list[Manifest]) -> list[str]:
    """Return what Kubernetes' own schemas say, for the oldest and the newest version."""
    return [problem for one in manifests for problem in _of_schema(json.dumps(one))]


@cache
def _of_schema(text: str) -> list[str]:
    """Judge an object once: most are the same with each component."""
    manifest, found = json.loads(text), []
    for version in (OLDEST_OF.get(manifest["kind"], OLDEST), NEWEST):
        try:
            kubernetes_validate.validate(manifest, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            found.append(f"{manifest['kind']} in {version}: {error.message}")
    return found


@pytest.mark.parametrize("plugin", PLUGINS)
def test_a_deployment_is_as_every_deployment_should_be(plugin: str) -> None:
    manifests = render(folder(plugin))
    assert [] == problems(manifests, f"{plugin}-device-plugin", wide(plugin))
    assert [] == schema_problems(manifests)


@pytest.mark.parametrize(
    ("plugin", "component"),
    [(plugin, component) for plugin in PLUGINS for component in fitting(plugin)],
)
def test_a_plugin_with_a_component_is_as_it_should_be(
    plugin: str, component: str, tmp_path: Path
) -> None:
    manifests = render(overlay(tmp_path, plugin, component))
    allowed = wide(plugin, component)
    found = problems(
        [*manifests],
        f"{plugin}-device-plugin",
        allowed,
        privileged=component in PRIVILEGED,
        selinux=SELINUX.get(component, "container_device_plugin_t"),
    )
    assert [] == found
    known = [one for one in manifests if one["kind"] not in OPERATORS]
    assert [] == schema_problems(known)
    assert manifests != render(folder(plugin)) or component in expected(plugin).included


@pytest.mark.parametrize("plugin", ["fpga", "generic"])
def test_all_components_fit_together(plugin: str, tmp_path: Path) -> None:
    manifests = render(overlay(tmp_path, plugin, *fitting(plugin)))
    command, selinux = f"{plugin}-device-plugin", SELINUX["bottlerocket"]
    assert [] == problems(manifests, command, WIDE["host-dev"], selinux=selinux)


def test_the_gpu_components_for_nodes_without_nvidias_runtime_fit_together(
    tmp_path: Path,
) -> None:
    manifests = render(overlay(tmp_path, "gpu", *WITHOUT_RUNTIME))
    command = "gpu-device-plugin"
    assert [] == problems(manifests, command, WIDE["gpu-cdi"], privileged=True)
    assert [] == schema_problems(manifests)


@pytest.mark.parametrize(
    ("plugin", "components"),
    [
        *((plugin, ()) for plugin in PLUGINS),
        *((plugin, fitting(plugin)) for plugin in ("fpga", "generic", "gpu", "node")),
    ],
)
def test_kustomize_renders_the_same(plugin: str, components: Sequence[str], tmp_path: Path) -> None:
    place = overlay(tmp_path, plugin, *components) if components else folder(plugin)
    rendered = kustomized(place)
    assert in_order(rendered) == in_order(render(place))


@pytest.mark.parametrize("plugin", PLUGINS)
def test_a_plugin_needs_few_lines_besides_the_base(plugin: str) -> None:
    lines = [line for path in folder(plugin).iterdir() for line in path.read_text().splitlines()]
    assert len([line for line in lines if line.strip()]) <= 50


@pytest.mark.parametrize("plugin", PLUGINS)
def test_the_image_has_the_plugins_name_and_version(plugin: str) -> None:
    container = container_of(render(folder(plugin)))
    project = (ROOT / "plugins" / plugin / "pyproject.toml").read_text()
    version = re.search(r'^version = "(.+)"$', project, re.MULTILINE)
    assert version is not None
    assert f"{plugin}-device-plugin:{version[1]}" == container["image"]


@pytest.mark.parametrize("plugin", PLUGINS)
def test_what_can_be_set_in_the_file_is_set_nowhere_else(plugin: str) -> None:
    manifests = render(folder(plugin))
    container = container_of(manifests)
    given = {one["name"]: one["value"] for one in container["env"] if "value" in one}
    assert "args" not in container
    assert {"DP_HTTP_ADDRESS", "DP_CONFIG"} == given.keys() - expected(plugin).variables
    path = PurePosixPath(given["DP_CONFIG"])
    (mount,) = (one for one in container["volumeMounts"] if one["name"] == "config")
    assert (str(path.parent), True) == (mount["mountPath"], mount["readOnly"])
    assert [path.name] == [*_config(manifests)]


def test_the_base_is_for_no_plugin_by_itself() -> None:
    assert "device-plugin" == container_of(render(folder("base")))["image"]


def _config(manifests: list[Manifest], name: str = "config") -> dict[str, str]:
    """Return the files of a ConfigMap."""
    found: dict[str, str]
    (found,) = (
        one["data"] for one in manifests if one["kind"] == "ConfigMap" and name in names(one)
    )
    return found


def _single(manifests: list[Manifest]) -> Any:
    return of_kind(manifests, "Deployment")["spec"]


def test_nothing_of_one_plugin_is_removed_with_another(tmp_path: Path) -> None:
    components = ("dra", "events", "evict", "node-annotation", "node-labels", "startup-taint")
    for plugin in ("fpga", "gpu"):
        (tmp_path / plugin).mkdir()
        place, name = overlay(tmp_path / plugin, plugin, *components), f"{plugin}-device-plugin"
        own = {f"{name}:{one}" for one in components}
        for manifests in renderings(place):
            roles = [one for one in manifests if one["kind"] == "ClusterRole"]
            bindings = [one for one in manifests if one["kind"].endswith("RoleBinding")]
            assert own == {one["metadata"]["name"] for one in roles}
            assert {one: one for one in own} == {
                one["metadata"]["name"]: one["roleRef"]["name"] for one in bindings
            }
            accounts = {name, f"{name}-evict", f"{name}-startup-taint"}
            assert {(name, one) for one in accounts} == {
                (one["namespace"], one["name"]) for each in bindings for one in each["subjects"]
            }
            assert accounts == {
                one["metadata"]["name"] for one in manifests if one["kind"] == "ServiceAccount"
            }


@pytest.mark.parametrize(
    ("component", "account"),
    [("events", "gpu-device-plugin"), ("evict", "gpu-device-plugin-evict")],
)
def test_a_binding_follows_its_account_into_another_namespace(
    component: str, account: str, tmp_path: Path
) -> None:
    place = overlay(tmp_path, "gpu", component) / "kustomization.yaml"
    place.write_text(json.dumps({**json.loads(place.read_text()), "namespace": "other"}))
    for manifests in renderings(tmp_path):
        (subject,) = of_kind(manifests, "ClusterRoleBinding")["subjects"]
        expected = {"kind": "ServiceAccount", "name": account, "namespace": "other"}
        assert expected == subject


def test_evicting_has_to_be_asked_for(tmp_path: Path) -> None:
    (found,) = _single(render(overlay(tmp_path, "gpu", "evict")))["template"]["spec"]["containers"]
    labels = "app.kubernetes.io/component=device-plugin,app.kubernetes.io/name=gpu-device-plugin"
    assert [f"--selector={labels}", "--namespace=$(NAMESPACE)"] == found["args"]


@pytest.mark.parametrize("component", ["evict", "startup-taint"])
def test_a_pod_of_its_own_finds_the_pods_of_its_plugin_and_is_none(
    component: str, tmp_path: Path
) -> None:
    manifests = render(overlay(tmp_path, "gpu", component))
    (container,) = _single(manifests)["template"]["spec"]["containers"]
    (words,) = (one for one in container["args"] if one.startswith("--selector="))
    wanted = dict(one.split("=") for one in words.removeprefix("--selector=").split(","))
    daemon_set = of_kind(manifests, "DaemonSet")["spec"]
    assert daemon_set["selector"]["matchLabels"] == wanted
    own = _single(manifests)["template"]["metadata"]["labels"]
    assert _single(manifests)["selector"]["matchLabels"].items() <= own.items()
    assert not wanted.items() <= own.items()
    assert container_of(manifests)["image"] == container["image"]


@pytest.mark.parametrize("component", ["evict", "startup-taint"])
def test_a_pod_of_its_own_runs_a_command_that_there_is(component: str, tmp_path: Path) -> None:
    manifests = render(overlay(tmp_path, "gopher", component))
    (container,) = _single(manifests)["template"]["spec"]["containers"]
    given = [word.replace("$(NAMESPACE)", "gopher") for word in container["args"]]
    words = [sys.executable, *container["command"][1:], *given]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env={})
    assert "this is not a pod: KUBERNETES_SERVICE_HOST and _PORT are not set" in done.stderr


@pytest.mark.parametrize("plugin", ["gopher", "gpu"])
def test_a_plugin_has_a_taint_and_a_policy_that_have_its_name(plugin: str, tmp_path: Path) -> None:
    place = overlay(tmp_path, plugin, "startup-taint")
    name = f"{plugin}-device-plugin"
    for manifests in renderings(place):
        pod = _single(manifests)["template"]["spec"]
        key = f"startup.deviceplugin.dev/{name}"
        assert f"--taint={key}" in pod["containers"][0]["args"]
        policy = of_kind(manifests, "ValidatingAdmissionPolicy")
        binding = of_kind(manifests, "ValidatingAdmissionPolicyBinding")
        assert {f"{name}.startup-taint"} == {
            policy["metadata"]["name"],
            binding["metadata"]["name"],
            binding["spec"]["policyName"],
        }
        (condition,) = policy["spec"]["matchConditions"]
        account = "".join(re.findall(r"'([^']+)'", condition["expression"].rpartition("==")[2]))
        assert pod["serviceAccountName"] == account
        (variable,) = (one for one in policy["spec"]["variables"] if one["name"] == "key")
        assert "".join(re.findall(r"'([^']+)'", variable["expression"])) == key


@pytest.mark.parametrize("plugin", ["gopher", "gpu"])
def test_a_plugin_with_dra_has_a_directory_and_a_policy_of_its_own(
    plugin: str, tmp_path: Path
) -> None:
    place = overlay(tmp_path, plugin, "dra", "startup-taint", "events")
    name = f"{plugin}-device-plugin"
    for manifests in renderings(place):
        pod = pod_of(manifests)
        (plugin_,) = (one for one in pod["containers"] if one["name"] == "device-plugin")
        (variable,) = (one for one in plugin_["env"] if one["name"] == "DP_DRIVER_DIR")
        (mount,) = (one for one in plugin_["volumeMounts"] if one["name"] == "driver")
        (volume,) = (one for one in pod["volumes"] if one["name"] == "driver")
        expected_path = f"/var/lib/kubelet/plugins/{name}"
        paths = {variable["value"], mount["mountPath"], volume["hostPath"]["path"]}
        assert {expected_path} == paths
        policies = [one for one in manifests if one["kind"] == "ValidatingAdmissionPolicy"]
        bindings = [one for one in manifests if one["kind"] == "ValidatingAdmissionPolicyBinding"]
        names = {f"{name}.dra", f"{name}.events", f"{name}.startup-taint"}
        assert names == {one["metadata"]["name"] for one in policies}
        assert {one: one for one in names} == {
            one["metadata"]["name"]: one["spec"]["policyName"] for one in bindings
        }
        for policy in policies:
            (condition,) = policy["spec"]["matchConditions"]
            assert f" '{name}'" in condition["expression"].replace("[", " ")


def test_the_plugin_finds_the_token_where_the_component_puts_it(tmp_path: Path) -> None:
    pod = pod_of(render(overlay(tmp_path, "fpga", "node-annotation")))
    (mount,) = (one for one in pod["containers"][0]["volumeMounts"] if one["name"] == "api-access")
    (volume,) = (one for one in pod["volumes"] if one["name"] == "api-access")
    token, trust = volume["projected"]["sources"]
    assert str(ACCOUNT) == mount["mountPath"]
    assert "token" == token["serviceAccountToken"]["path"]
    assert ["ca.crt"] == [item["path"] for item in trust["configMap"]["items"]]


def test_the_plugin_finds_the_aliases_where_the_component_puts_them(tmp_path: Path) -> None:
    manifests = render(overlay(tmp_path, "fpga", "fpga-aliases"))
    (config,) = (one for one in manifests if one["metadata"]["name"] == "aliases")
    pod = pod_of(manifests)
    (mount,) = (one for one in pod["containers"][0]["volumeMounts"] if one["name"] == "aliases")
    (volume,) = (one for one in pod["volumes"] if one["name"] == "aliases")
    environment = {one["name"]: one.get("value") for one in pod["containers"][0]["env"]}
    assert config["metadata"]["name"] == volume["configMap"]["name"]
    ((name, text),) = config["data"].items()
    assert f"{mount['mountPath']}/{name}" == environment["DP_ALIASES"]
    (tmp_path / name).write_text(text)
    assert Aliases() == read_aliases(tmp_path / name)


def test_the_plugin_finds_its_configuration_where_the_component_puts_it(tmp_path: Path) -> None:
    manifests = render(overlay(tmp_path, "gpu", "gpu-node-config"))
    (config,) = (one for one in manifests if one["metadata"]["name"] == "node-config")
    pod = pod_of(manifests)
    volumes = {one["name"]: one for one in pod["volumes"]}
    mounts = {one["name"]: one["mountPath"] for one in pod["containers"][0]["volumeMounts"]}
    environment = {one["name"]: one.get("value") for one in pod["containers"][0]["env"]}
    (item,) = volumes["podinfo"]["downwardAPI"]["items"]
    assert config["metadata"]["name"] == volumes["node-config"]["configMap"]["name"]
    assert mounts["node-config"] == environment["DP_CONFIG"]
    assert f"{mounts['podinfo']}/{item['path']}" == environment["DP_NODE_LABELS_FILE"]
    ((name, text),) = config["data"].items()
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / name).write_text(text)
    command = [str(Path(sys.executable).with_name("gpu-device-plugin")), "--print-config"]
    done = subprocess.run(
        command, env={"DP_CONFIG": str(tmp_path / "config")}, capture_output=True, check=True
    )
    assert f"{name}, the only one" == json.loads(done.stdout)["node-choice"]


def test_a_node_has_its_own_configuration_or_the_deployments(tmp_path: Path) -> None:
    place = overlay(tmp_path, "rdma", "config-per-node")
    manifests = render(place)
    (volume,) = (one for one in pod_of(manifests)["volumes"] if one["name"] == "config-per-node")
    sources = [one["configMap"] for one in volume["projected"]["sources"]]
    items = [{"key": "config.yaml", "path": "default"}]
    assert [{"name": "rdma-config", "items": items}, {"name": "config-per-node"}] == sources


def test_the_labels_of_the_node_are_written_where_the_plugin_looks(tmp_path: Path) -> None:
    manifests = render(overlay(tmp_path, "gpu", "gpu-node-config", "node-labels"))
    own = container_of(manifests)
    beside = container_of(manifests, "node-labels")
    file = Path({one["name"]: one.get("value") for one in own["env"]}["DP_NODE_LABELS_FILE"])
    mounts = [
        {one["name"]: one["mountPath"] for one in container["volumeMounts"]}["node-labels"]
        for container in (own, beside)
    ]
    assert [str(file.parent)] * 2 == mounts
    assert f"--file={file}" in beside["args"]
    assert "gpu-device-plugin:0.1.0" == beside["image"]
    assert "api-access" not in {one["name"] for one in own["volumeMounts"]}
    words = [word for word in beside["args"] if not word.startswith("--file")]
    command = [sys.executable, *beside["command"][1:], *words, f"--file={tmp_path}/x", "--api=x"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "'x' is not http:// or https://" in done.stderr


def test_the_page_about_mps_is_a_deployment_that_fits_together(tmp_path: Path) -> None:
    page = (ROOT / "plugins/gpu/docs/sharing.md").read_text()
    blocks = re.findall(r"^   ```yaml\n(.*?)^   ```$", page, re.MULTILINE | re.DOTALL)
    ours, theirs = (yaml.safe_load(textwrap.dedent(block)) for block in blocks)
    assert [] == schema_problems([theirs])
    for key in ("resources", "components"):
        ours[key] = [
            os.path.relpath(ROOT / path.removeprefix("device-plugins/"), tmp_path)
            for path in ours[key]
        ]
    (tmp_path / "kustomization.yaml").write_text(json.dumps(ours))
    manifests = render(tmp_path)
    assert [] == [*problems(manifests, "gpu-device-plugin"), *schema_problems(manifests)]
    volumes = {
        one["name"]: one.get("hostPath", {}).get("path")
        for pod in (pod_of(manifests), theirs["spec"]["template"]["spec"])
        for one in pod["volumes"]
    }
    environment = {one["name"]: one.get("value") for one in container_of(manifests)["env"]}
    assert environment["DP_MPS_ROOT"] == volumes["mps-root"]
    assert f"{volumes['mps-root']}/shm" == volumes["mps-shm"]
    assert "sharing" in yaml.safe_load(_config(manifests, "node-config")["config.yaml"])
    assert "node-config" in {
        one.get("configMap", {}).get("name")
        for one in theirs["spec"]["template"]["spec"]["volumes"]
    }


def test_the_sidecar_runs_a_command_that_there_is(tmp_path: Path) -> None:
    container = container_of(render(overlay(tmp_path, "gopher", "events")), "events")
    assert "gopher-device-plugin:0.1.0" == container["image"]
    words = [sys.executable, *container["command"][1:], *container["args"]]
    plugin = ["--once", "--dry-run", "--plugin=/dev/null"]
    done = subprocess.run([*words, *plugin], capture_output=True, text=True, check=False)
    assert "deviceplugin events: /dev/null: is not a list of a plugin's devices\n" == done.stderr


def test_monitoring_without_the_operator_is_as_its_page_says(tmp_path: Path) -> None:
    page = (ROOT / "demo/dashboards/README.md").read_text()
    patches = re.search(r"^```yaml\n(patches:\n.+?)^```$", page, re.MULTILINE | re.DOTALL)
    assert patches is not None
    place = overlay(tmp_path, "gopher", "monitoring") / "kustomization.yaml"
    place.write_text(json.dumps({**json.loads(place.read_text()), **yaml.safe_load(patches[1])}))
    rendered = kustomized(tmp_path)
    names = [one["metadata"]["name"] for one in rendered if one["kind"] == "NetworkPolicy"]
    assert ["device-plugin-monitoring", "gopher-device-plugin"] == names
    assert set() == OPERATORS & {one["kind"] for one in rendered}


@pytest.mark.parametrize(
    ("problem", "change"),
    [
        (
            "Additional properties are not allowed ('tolerationz' was unexpected)",
            lambda m: pod_of(m).update(tolerationz=[]),
        ),
        (
            "'9494' is not of type 'integer'",
            lambda m: container_of(m)["ports"][0].update(containerPort="9494"),
        ),
        ("'name' is a required property", lambda m: container_of(m).pop("name")),
    ],
)
def test_a_manifest_that_kubernetes_would_refuse_is_caught(
    problem: str, change: Callable[[list[Manifest]], object]
) -> None:
    manifests = render(folder("gopher"))
    change(manifests)
    found = {message.partition(": ")[2] for message in schema_problems(manifests)}
    assert {problem} == found


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_asks_for_the_resource_of_its_plugin(example: Path) -> None:
    pod = yaml.safe_load((example / "pod.yaml").read_text())
    (container,) = pod["spec"]["containers"]
    assert set(container["resources"]["limits"]) <= resources(example.name)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_has_five_parts(example: Path) -> None:
    text = (example / "README.md").read_text()
    assert ["Needs", "Run", "What you will see", "Clean up"] == re.findall(
        r"^## (.+)$", text, re.MULTILINE
    )
    assert "```\n" in text.partition("## Needs")[0], "the picture"
    for path in re.findall(r"-[fk] (\S+)", text):
        assert (ROOT / path).exists()


CLASSES = [one for one in COMPONENTS if one.endswith("-device-class")]


@pytest.mark.parametrize("component", CLASSES)
def test_classes_are_those_of_the_resources_and_of_the_driver(
    component: str, tmp_path: Path
) -> None:
    plugin = component.removesuffix("-device-class")
    rendered = render(overlay(tmp_path, plugin, component))
    (daemon_set,) = (one for one in rendered if one["kind"] == "DaemonSet")
    containers = daemon_set["spec"]["template"]["spec"]["containers"]
    (env,) = (one.get("env", []) for one in containers if one["name"] == "device-plugin")
    named = {one["name"]: one.get("value") for one in env}
    (resource, *_), known = sorted(resources(plugin)), resources(plugin)
    domain, _, last = resource.partition("/")
    driver = named.get("DP_DRIVER_NAME") or f"{last}.{domain}"
    (account,) = (one["metadata"] for one in rendered if one["kind"] == "ServiceAccount")
    assert driver == account["annotations"]["deviceplugin.dev/driver"], "the policy of dra asks it"
    found = [one for one in rendered if one["kind"] == "DeviceClass"]
    assert device_classes(driver, known) == sorted(found, key=lambda one: one["metadata"]["name"])


# Labels

PART = {"app.kubernetes.io/part-of": "device-plugins"}
VERSION = {"app.kubernetes.io/version": release.version()}
FILES = sorted(
    path for path in ROOT.glob("deployments/components/*/*.yaml") if "kustom" not in path.name
)


@pytest.mark.parametrize("plugin", PLUGINS)
def test_objects_of_a_plugin_have_its_version(plugin: str) -> None:
    name = {"app.kubernetes.io/name": f"{plugin}-device-plugin"}
    for one in render(folder(plugin)):
        assert (PART | VERSION | name).items() <= one["metadata"]["labels"].items(), one["kind"]


def test_pods_are_not_replaced_for_a_label() -> None:
    daemon_set = of_kind(render(folder("gopher")), "DaemonSet")
    both = (daemon_set["spec"]["template"]["metadata"], daemon_set["spec"]["selector"])
    assert "part-of" not in str(both)
    assert "version" not in str(both)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_objects_of_a_component_say_what_they_are_a_part_of(path: Path) -> None:
    for one in yaml.safe_load_all(path.read_text()):
        assert PART.items() <= one["metadata"]["labels"].items(), one["kind"]


@pytest.mark.parametrize("folder", ["crd", "operator"])
def test_objects_of_the_operator_say_what_they_are_a_part_of(folder: str) -> None:
    rendered = kustomized(ROOT / "deployments/operator" / folder)
    wanted = PART | VERSION if folder == "operator" else PART
    for one in rendered:
        assert wanted.items() <= one["metadata"]["labels"].items(), one["kind"]
