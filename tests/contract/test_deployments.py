"""The manifests are safe, run the plugins that there are, and are what kustomize makes of them."""

import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

import kubernetes_validate
import pytest
import yaml

import versions
from deviceplugin.__main__ import main
from deviceplugin._dra.slices.attributes import device_classes
from deviceplugin_fpga.annotation import ACCOUNT
from deviceplugin_fpga.resource_names import Aliases, read_aliases
from kustomize import documents
from manifests.deployment_policy import problems
from manifests.expected import AGENT, COMPONENTS, PLUGINS, WIDE, expected, fitting, owner, wide
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
PRIVILEGED = {"amd-privileged", "generic-privileged", "gpu-mig", "gpu-privileged"}
"""Components that make a container privileged, which no other does."""
HOST_PID = {"gpu-usage"}
"""Components whose pod sees the processes of the host."""
SELINUX = {"bottlerocket": "container_t", "gpu-usage": "spc_t"}
"""The type of containers with a component for another policy, or whose pod needs more of it."""
WITHOUT_RUNTIME = ("gpu-cdi", "gpu-static-cdi", "gpu-privileged")
# Or it reads the definitions of a version, a megabyte, for each object.
kubernetes_validate.utils.schema_contents = cache(kubernetes_validate.utils.schema_contents)
EXAMPLES = sorted(path.parent for path in ROOT.glob("demo/examples/*/pod.yaml"))


def folder(plugin: str) -> Path:
    return ROOT / "deployments" / plugin


def environment(container: Manifest) -> dict[str, Any]:
    return {one["name"]: one.get("value") for one in container["env"]}


def mounts(container: Manifest) -> dict[str, str]:
    return {one["name"]: one["mountPath"] for one in container["volumeMounts"]}


def volumes(manifests: list[Manifest]) -> dict[str, Any]:
    return {one["name"]: one for one in pod_of(manifests)["volumes"]}


@cache
def settings(plugin: str) -> dict[str, Any]:
    program = str(Path(sys.executable).with_name(f"{plugin}-device-plugin"))
    words = [program, "--print-config"]
    done = subprocess.run(words, capture_output=True, check=True, env={})
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def resources(plugin: str) -> set[str]:
    """Return what a plugin advertises, by its setting, or as in its example."""
    if told := expected(plugin).resources:
        return set(told)
    known = settings(plugin)
    if "resource" in known:
        return {known["resource"]}
    # What is deployed offers nothing: the example's does.
    example = (ROOT / "demo/examples" / plugin / "config.yaml").read_text()
    devices = yaml.safe_load(example)["devices"]
    return {f"{known['domain']}/{entry['name']}" for entry in devices}


def schema_problems(manifests: list[Manifest]) -> list[str]:
    """Return what Kubernetes' own schemas say, for the oldest and the newest version."""
    known = [one for one in manifests if one["kind"] not in OPERATORS]
    return [problem for one in known for problem in _of_schema(json.dumps(one))]


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
    [
        (plugin, component)
        for plugin in PLUGINS
        for component in fitting(plugin)
        if plugin in {"fpga", "gopher", AGENT} or owner(component)
    ],
)
def test_a_plugin_with_a_component_is_as_it_should_be(
    plugin: str, component: str, tmp_path: Path
) -> None:
    manifests = render(overlay(tmp_path, plugin, component))
    found = problems(
        [*manifests],
        f"{plugin}-device-plugin",
        wide(plugin, component),
        privileged=component in PRIVILEGED,
        host_pid=component in HOST_PID,
        selinux=SELINUX.get(component, "container_device_plugin_t"),
    )
    assert [] == found
    assert [] == schema_problems(manifests)
    assert manifests != render(folder(plugin)) or component in expected(plugin).included


@pytest.mark.parametrize("plugin", PLUGINS)
def test_all_components_fit_together(plugin: str, tmp_path: Path) -> None:
    unfit = PRIVILEGED | HOST_PID | {"surge"}  # not with the watcher
    every = [one for one in fitting(plugin) if one not in unfit]
    manifests = render(overlay(tmp_path, plugin, *every))
    allowed, selinux = wide(plugin, *every), SELINUX["bottlerocket"]
    assert [] == problems(manifests, f"{plugin}-device-plugin", allowed, selinux=selinux)
    assert [] == schema_problems(manifests)


def test_the_gpu_components_for_nodes_without_nvidias_runtime_fit_together(
    tmp_path: Path,
) -> None:
    manifests = render(overlay(tmp_path, "gpu", *WITHOUT_RUNTIME))
    command = "gpu-device-plugin"
    assert [] == problems(manifests, command, WIDE["gpu-cdi"], privileged=True)
    assert [] == schema_problems(manifests)


@pytest.mark.parametrize("plugin", PLUGINS)
def test_kustomize_renders_the_same(plugin: str, tmp_path: Path) -> None:
    components = fitting(plugin) if plugin in {"fpga", "generic", "gpu", AGENT} else ()
    place = overlay(tmp_path, plugin, *components) if components else folder(plugin)
    rendered = kustomized(place)
    assert in_order(rendered) == in_order(render(place))


@pytest.mark.parametrize("plugin", PLUGINS)
def test_a_plugin_has_its_name_and_version_and_few_lines_besides_the_base(plugin: str) -> None:
    lines = [line for path in folder(plugin).iterdir() for line in path.read_text().splitlines()]
    assert len([line for line in lines if line.strip()]) <= 50
    name, version = f"{plugin}-device-plugin", versions.current()
    manifests = render(folder(plugin))
    assert f"{name}:{version}" == container_of(manifests)["image"]
    labels = PART | {"app.kubernetes.io/name": name, "app.kubernetes.io/version": version}
    assert [] == [one["kind"] for one in manifests if not labels.items() <= labels_of(one)]


@pytest.mark.parametrize("plugin", PLUGINS)
def test_what_can_be_set_in_the_file_is_set_nowhere_else(plugin: str) -> None:
    manifests = render(folder(plugin))
    container = container_of(manifests)
    given = {name: value for name, value in environment(container).items() if value is not None}
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
    maps = [one for one in of_kinds(manifests, "ConfigMap") if name in names(one)]
    found: dict[str, str]
    (found,) = (one["data"] for one in maps)
    return found


def of_kinds(manifests: list[Manifest], *endings: str) -> list[Manifest]:
    return [one for one in manifests if one["kind"].endswith(endings)]


def called(manifests: list[Manifest]) -> set[str]:
    return {one["metadata"]["name"] for one in manifests}


def _single(manifests: list[Manifest]) -> Any:
    return of_kind(manifests, "Deployment")["spec"]


def test_nothing_of_one_plugin_is_removed_with_another(tmp_path: Path) -> None:
    components = ("dra", "events", "evict", "node-annotation", "node-labels", "startup-taint")
    for plugin in ("fpga", "gpu"):
        (tmp_path / plugin).mkdir()
        manifests = render(overlay(tmp_path / plugin, plugin, *components))
        name = f"{plugin}-device-plugin"
        own = {f"{name}:{one}" for one in components}
        assert own == called(of_kinds(manifests, "ClusterRole"))
        bindings = of_kinds(manifests, "RoleBinding")
        roles = {one["metadata"]["name"]: one["roleRef"]["name"] for one in bindings}
        assert {one: one for one in own} == roles
        accounts = {name, f"{name}-evict", f"{name}-startup-taint"}
        assert accounts == called(of_kinds(manifests, "ServiceAccount"))
        assert {(name, one) for one in accounts} == {
            (one["namespace"], one["name"]) for each in bindings for one in each["subjects"]
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


def test_components_are_in_the_namespace_of_the_plugin_without_one_of_their_own(
    tmp_path: Path,
) -> None:
    components = ("dra", "events", "evict", "node-annotation", "node-labels", "startup-taint")
    place = overlay(tmp_path, "gpu", *components) / "kustomization.yaml"
    given = json.loads(place.read_text())
    del given["namespace"]
    place.write_text(json.dumps(given))
    for manifests in renderings(tmp_path):
        ours = ("NetworkPolicy", "Deployment", "Role", "RoleBinding")
        placed = [one for one in manifests if one["kind"] in ours]
        subjects = [s for one in of_kinds(manifests, "RoleBinding") for s in one["subjects"]]
        found = {one.get("namespace") for one in [*subjects, *(one["metadata"] for one in placed)]}
        assert {"gpu-device-plugin"} == found


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


@pytest.mark.parametrize(
    ("component", "more", "expected"),
    [
        ("evict", [], "this is not a pod: KUBERNETES_SERVICE_HOST and _PORT are not set"),
        ("startup-taint", [], "this is not a pod: KUBERNETES_SERVICE_HOST and _PORT are not set"),
        ("events", ["--once", "--dry-run", "--plugin=/dev/null"], "/dev/null: is not a list of"),
        ("node-labels", ["--api=x"], "'x' is not http:// or https://"),
    ],
)
def test_what_is_beside_a_plugin_runs_a_command_that_there_is(
    component: str,
    more: list[str],
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    manifests = render(overlay(tmp_path, "gopher", component))
    pods = [one["spec"]["template"]["spec"] for one in of_kinds(manifests, "Deployment")]
    containers = [one for pod in (*pods, pod_of(manifests)) for one in pod["containers"]]
    (container,) = (one for one in containers if one["name"] == component)
    assert f"gopher-device-plugin:{versions.current()}" == container["image"]
    module, *words = container["command"][2:]
    words += [one.replace("$(NAMESPACE)", "gopher") for one in container["args"]]
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert ("deviceplugin", True) == (module, main([*words, *more]) > 0)
    assert expected in capsys.readouterr().err


def test_a_plugin_has_a_taint_and_a_policy_that_have_its_name(tmp_path: Path) -> None:
    manifests = render(overlay(tmp_path, "gpu", "startup-taint"))
    name, key = "gpu-device-plugin", "startup.deviceplugin.dev/gpu-device-plugin"
    pod = _single(manifests)["template"]["spec"]
    assert f"--taint={key}" in pod["containers"][0]["args"]
    policy = of_kind(manifests, "ValidatingAdmissionPolicy")
    binding = of_kind(manifests, "ValidatingAdmissionPolicyBinding")
    assert {f"{name}.startup-taint"} == {*called([policy, binding]), binding["spec"]["policyName"]}
    (condition,) = policy["spec"]["matchConditions"]
    account = "".join(re.findall(r"'([^']+)'", condition["expression"].rpartition("==")[2]))
    assert pod["serviceAccountName"] == account
    (variable,) = (one for one in policy["spec"]["variables"] if one["name"] == "key")
    assert "".join(re.findall(r"'([^']+)'", variable["expression"])) == key


def test_a_plugin_with_dra_has_a_directory_and_a_policy_of_its_own(tmp_path: Path) -> None:
    components, name = ("dra", "startup-taint", "events"), "gpu-device-plugin"
    manifests = render(overlay(tmp_path, "gpu", *components))
    own = container_of(manifests)
    assert {f"/var/lib/kubelet/plugins/{name}"} == {
        environment(own)["DP_DRIVER_DIR"],
        mounts(own)["driver"],
        volumes(manifests)["driver"]["hostPath"]["path"],
    }
    policies = of_kinds(manifests, "ValidatingAdmissionPolicy")
    assert {f"{name}.{one}" for one in (*components, "claim-status")} == called(policies)
    for policy in policies:
        (condition,) = policy["spec"]["matchConditions"]
        assert f" '{name}'" in condition["expression"].replace("[", " ")
    bindings = of_kinds(manifests, "ValidatingAdmissionPolicyBinding")
    assert [one["metadata"]["name"] for one in bindings] == [
        one["spec"]["policyName"] for one in bindings
    ]


def test_the_plugin_finds_the_token_where_the_component_puts_it(tmp_path: Path) -> None:
    manifests = render(overlay(tmp_path, "fpga", "node-annotation"))
    assert str(ACCOUNT) == mounts(container_of(manifests))["api-access"]
    token, trust = volumes(manifests)["api-access"]["projected"]["sources"]
    assert "token" == token["serviceAccountToken"]["path"]
    assert ["ca.crt"] == [item["path"] for item in trust["configMap"]["items"]]


def test_the_plugin_finds_the_aliases_where_the_component_puts_them(tmp_path: Path) -> None:
    manifests = render(overlay(tmp_path, "fpga", "fpga-aliases"))
    own = container_of(manifests)
    ((name, text),) = _config(manifests, "aliases").items()
    assert "aliases" == volumes(manifests)["aliases"]["configMap"]["name"]
    assert f"{mounts(own)['aliases']}/{name}" == environment(own)["DP_ALIASES"]
    (tmp_path / name).write_text(text)
    assert Aliases() == read_aliases(tmp_path / name)


def test_the_plugin_finds_its_configuration_where_the_component_puts_it(tmp_path: Path) -> None:
    manifests = render(overlay(tmp_path, "gpu", "gpu-node-config"))
    own, known = container_of(manifests), volumes(manifests)
    (item,) = known["podinfo"]["downwardAPI"]["items"]
    assert "node-config" == known["node-config"]["configMap"]["name"]
    assert mounts(own)["node-config"] == environment(own)["DP_CONFIG"]
    assert f"{mounts(own)['podinfo']}/{item['path']}" == environment(own)["DP_NODE_LABELS_FILE"]
    ((name, text),) = _config(manifests, "node-config").items()
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / name).write_text(text)
    command = [str(Path(sys.executable).with_name("gpu-device-plugin")), "--print-config"]
    done = subprocess.run(
        command, env={"DP_CONFIG": str(tmp_path / "config")}, capture_output=True, check=True
    )
    assert f"{name}, the only one" == json.loads(done.stdout)["node-choice"]


def test_a_node_has_its_own_configuration_or_the_deployments(tmp_path: Path) -> None:
    manifests = render(overlay(tmp_path, "rdma", "config-per-node"))
    sources = volumes(manifests)["config-per-node"]["projected"]["sources"]
    items = [{"key": "config.yaml", "path": "default"}]
    assert [{"name": "rdma-config", "items": items}, {"name": "config-per-node"}] == [
        one["configMap"] for one in sources
    ]


def test_the_labels_of_the_node_are_written_where_the_plugin_looks(tmp_path: Path) -> None:
    manifests = render(overlay(tmp_path, "gpu", "gpu-node-config", "node-labels"))
    own, beside = container_of(manifests), container_of(manifests, "node-labels")
    file = Path(environment(own)["DP_NODE_LABELS_FILE"])
    assert f"--file={file}" in beside["args"]
    both = (mounts(own), mounts(beside))
    assert [str(file.parent)] * 2 == [one["node-labels"] for one in both]
    assert [False, True] == ["api-access" in one for one in both]


def test_what_the_page_about_mps_applies_fits_together() -> None:
    manifests = render(ROOT / "demo/examples/gpu/mps")
    assert [] == [*problems(manifests, "gpu-device-plugin"), *schema_problems(manifests)]
    found = volumes(manifests)
    root, shm = (found[one]["hostPath"]["path"] for one in ("mps-root", "mps-shm"))
    own, beside = container_of(manifests), container_of(manifests, "mps")
    assert (root, f"{root}/shm") == (environment(own)["DP_MPS_ROOT"], shm)
    assert "/mps" == mounts(own)["mps-root"] == mounts(beside)["mps-root"]
    assert ("/dev/shm", own["image"]) == (mounts(beside)["mps-shm"], beside["image"])
    assert ["-m", "deviceplugin_gpu.mps"] == beside["command"][1:]
    assert "sharing" in yaml.safe_load(_config(manifests, "node-config")["config.yaml"])


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


def test_a_manifest_that_kubernetes_would_refuse_is_caught() -> None:
    manifests = render(folder("gopher"))
    pod_of(manifests).update(tolerationz=[])
    problem = "Additional properties are not allowed ('tolerationz' was unexpected)"
    assert [f"DaemonSet in {one}: {problem}" for one in (OLDEST, NEWEST)] == schema_problems(
        manifests
    )


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_has_five_parts_and_asks_for_the_resource_of_its_plugin(example: Path) -> None:
    pod = yaml.safe_load((example / "pod.yaml").read_text())
    (container,) = pod["spec"]["containers"]
    assert set(container["resources"]["limits"]) <= resources(example.name)
    text = (example / "README.md").read_text()
    parts = re.findall(r"^## (.+)$", text, re.MULTILINE)
    # A page for the first hour has steps, and leads on.
    steps = [part for part in parts if part[0].isdecimal()]
    between, after = (steps, ["Go on"]) if steps else (["Run", "What you will see"], [])
    assert ["Needs", *between, "Clean up", *after] == parts
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
    (resource, *_), known = sorted(resources(plugin)), resources(plugin)
    domain, _, last = resource.partition("/")
    driver = environment(container_of(rendered)).get("DP_DRIVER_NAME") or f"{last}.{domain}"
    account = of_kind(rendered, "ServiceAccount")["metadata"]
    assert driver == account["annotations"]["deviceplugin.dev/driver"], "the policy of dra asks it"
    found = of_kinds(rendered, "DeviceClass")
    assert device_classes(driver, known) == sorted(found, key=lambda one: one["metadata"]["name"])


# Labels

PART = {"app.kubernetes.io/part-of": "device-plugins"}


def labels_of(manifest: Manifest) -> Any:
    return manifest["metadata"]["labels"].items()


def test_pods_are_not_replaced_for_a_label() -> None:
    daemon_set = of_kind(render(folder("gopher")), "DaemonSet")
    both = (daemon_set["spec"]["template"]["metadata"], daemon_set["spec"]["selector"])
    assert "part-of" not in str(both)
    assert "version" not in str(both)


def test_objects_of_components_and_the_operator_say_what_they_are_a_part_of() -> None:
    files = [*ROOT.glob("deployments/components/*/*.yaml")]
    texts = [path.read_text() for path in files if "kustom" not in path.name]
    found = [one for text in texts for one in documents(text)]
    crd, operator = (kustomized(ROOT / "deployments/operator" / one) for one in ("crd", "operator"))
    found += [*crd, *operator]
    assert [] == [one for one in found if not PART.items() <= labels_of(one)]
    version = {"app.kubernetes.io/version": versions.current()}
    assert [] == [one for one in operator if not version.items() <= labels_of(one)]
