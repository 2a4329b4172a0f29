"""The manifests are safe, run the plugins that there are, and are what kustomize makes of them."""

import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import kubernetes_validate
import pytest
import yaml

from deviceplugin._dra.slices.device_classes import device_classes
from deviceplugin_fpga.aliases import Aliases, read
from deviceplugin_fpga.annotation import ACCOUNT
from manifests.deployment_policy import problems
from manifests.expected import WIDE, expected, owner, wide
from manifests.kustomize import Manifest, in_order, names, overlay, render, render_by_kustomize

ROOT = Path(__file__).parents[2]
PLUGINS = sorted(path.parent.name for path in ROOT.glob("deployments/*/kustomization.yaml"))
PLUGINS.remove("base")
COMPONENTS = sorted(path.parent.name for path in ROOT.glob("deployments/components/*/*ion.yaml"))
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
    found = []
    for manifest in manifests:
        for version in (OLDEST_OF.get(manifest["kind"], OLDEST), NEWEST):
            try:
                kubernetes_validate.validate(manifest, version, strict=True)
            except kubernetes_validate.ValidationError as error:
                found.append(f"{manifest['kind']} in {version}: {error.message}")
    return found


@pytest.mark.parametrize("plugin", PLUGINS)
def test_a_deployment_is_as_every_deployment_should_be(plugin: str) -> None:
    manifests = render(folder(plugin))
    assert [] == problems([*manifests], f"{plugin}-device-plugin", wide(plugin))
    assert [] == schema_problems(manifests)


@pytest.mark.parametrize(
    ("plugin", "component"),
    [
        (plugin, component)
        for plugin in PLUGINS
        for component in COMPONENTS
        if owner(component) in (None, plugin)
    ],
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
    components = [one for one in COMPONENTS if owner(one) in (None, plugin)]
    place = overlay(tmp_path, plugin, *components)
    manifests = render(place)
    command, selinux = f"{plugin}-device-plugin", SELINUX["bottlerocket"]
    assert [] == problems([*manifests], command, WIDE["host-dev"], selinux=selinux)
    rendered = render_by_kustomize(place)
    assert rendered is None or in_order(rendered) == in_order(manifests)


def test_the_gpu_components_for_nodes_without_nvidias_runtime_fit_together(
    tmp_path: Path,
) -> None:
    place = overlay(tmp_path, "gpu", "gpu-cdi", "gpu-static-cdi", "gpu-privileged")
    manifests = render(place)
    command = "gpu-device-plugin"
    assert [] == problems([*manifests], command, WIDE["gpu-cdi"], privileged=True)
    assert [] == schema_problems(manifests)
    rendered = render_by_kustomize(place)
    assert rendered is None or in_order(rendered) == in_order(manifests)


@pytest.mark.parametrize("component", COMPONENTS)
def test_kustomize_renders_a_component_the_same(component: str, tmp_path: Path) -> None:
    place = overlay(tmp_path, "generic", component)
    rendered = render_by_kustomize(place)
    if rendered is None:
        pytest.skip("no kustomize")
    assert in_order(rendered) == in_order(render(place))


@pytest.mark.parametrize("plugin", PLUGINS)
def test_kustomize_renders_the_same(plugin: str) -> None:
    rendered = render_by_kustomize(folder(plugin))
    if rendered is None:
        pytest.skip("no kustomize")
    assert in_order(rendered) == in_order(render(folder(plugin)))


@pytest.mark.parametrize("plugin", PLUGINS)
def test_a_plugin_needs_few_lines_besides_the_base(plugin: str) -> None:
    lines = [line for path in folder(plugin).iterdir() for line in path.read_text().splitlines()]
    assert len([line for line in lines if line.strip()]) <= 50


@pytest.mark.parametrize("plugin", PLUGINS)
def test_the_image_has_the_plugins_name_and_version(plugin: str) -> None:
    (daemonset,) = (m for m in render(folder(plugin)) if m["kind"] == "DaemonSet")
    (container,) = daemonset["spec"]["template"]["spec"]["containers"]
    project = (ROOT / "plugins" / plugin / "pyproject.toml").read_text()
    version = re.search(r'^version = "(.+)"$', project, re.MULTILINE)
    assert version is not None
    assert f"{plugin}-device-plugin:{version[1]}" == container["image"]


@pytest.mark.parametrize("plugin", PLUGINS)
def test_what_can_be_set_in_the_file_is_set_nowhere_else(plugin: str) -> None:
    manifests = render(folder(plugin))
    container = _container(manifests)
    given = {one["name"]: one["value"] for one in container["env"] if "value" in one}
    assert "args" not in container
    assert {"DP_HTTP_ADDRESS", "DP_CONFIG"} == given.keys() - expected(plugin).variables
    path = PurePosixPath(given["DP_CONFIG"])
    (mount,) = (one for one in container["volumeMounts"] if one["name"] == "config")
    assert (str(path.parent), True) == (mount["mountPath"], mount["readOnly"])
    assert [path.name] == [*_config(manifests)]


def test_the_base_is_for_no_plugin_by_itself() -> None:
    (daemonset,) = (m for m in render(folder("base")) if m["kind"] == "DaemonSet")
    assert "device-plugin" == daemonset["spec"]["template"]["spec"]["containers"][0]["image"]


def _container(manifests: list[Manifest]) -> Any:
    return _pod(manifests)["containers"][0]


def _pod(manifests: list[Manifest]) -> Any:
    (daemonset,) = (m for m in manifests if m["kind"] == "DaemonSet")
    return daemonset["spec"]["template"]["spec"]


def _config(manifests: list[Manifest], name: str = "config") -> dict[str, str]:
    """Return the files of a ConfigMap."""
    found: dict[str, str]
    (found,) = (
        one["data"] for one in manifests if one["kind"] == "ConfigMap" and name in names(one)
    )
    return found


BREAK: dict[str, Callable[[list[Manifest]], object]] = {
    "gopher-device-plugin says: unknown argument '--directry=/x': did you mean --directory? "
    "(see --help)": (lambda m: _container(m).update(args=["--directry=/x"])),
    "gopher-device-plugin says: config.yaml:1: directory: 'x' is not an absolute path": (
        lambda m: _config(m).update({"config.yaml": "directory: x"})
    ),
    "DP_LOGLEVEL is no setting": lambda m: _container(m)["env"].append(
        {"name": "DP_LOGLEVEL", "value": "debug"}
    ),
    "directory: /etc/other is not mounted": lambda m: _config(m).update(
        {"config.yaml": "directory: /etc/other"}
    ),
    "container: securityContext.capabilities is {'drop': ['ALL'], 'add': ['SYS_ADMIN']}, "
    "not {'drop': ['ALL']}": lambda m: _container(m)["securityContext"]["capabilities"].update(
        add=["SYS_ADMIN"]
    ),
    "container: securityContext.privileged is True, not False": lambda m: _container(m)[
        "securityContext"
    ].update(privileged=True),
    "container: no resources.limits.memory": lambda m: _container(m)["resources"].pop("limits"),
    "volumes and mounts differ: ['gophers']": lambda m: _pod(m)["volumes"].pop(),
    "volume gophers: /etc is too wide": lambda m: _pod(m)["volumes"][-1]["hostPath"].update(
        path="/etc"
    ),
    "volume gophers: no type": lambda m: _pod(m)["volumes"][-1]["hostPath"].pop("type"),
    "mount gophers: can be written to": lambda m: _container(m)["volumeMounts"][-1].pop("readOnly"),
    "pod: hostNetwork is True, not None": lambda m: _pod(m).update(hostNetwork=True),
    "http-address 127.0.0.1:9494 cannot be probed on port {'http': 9494}": lambda m: _container(m)[
        "env"
    ].pop(0),
    "no ServiceAccount": lambda m: m.__delitem__(1),
    "no NetworkPolicy": lambda m: m.__delitem__(3),
    "network: Egress is open": lambda m: m[3]["spec"]["policyTypes"].pop(),
    "network: ingress from anywhere, or to more than the ports there are": lambda m: m[3][
        "spec"
    ].update(ingress=[{"ports": [{"port": "http"}]}]),
    "ResourceQuota: not in namespace gopher-device-plugin": lambda m: m[2]["metadata"].update(
        namespace="default"
    ),
    "DaemonSet: updateStrategy.rollingUpdate.maxSurge is 1, not 0": lambda m: m[4]["spec"][
        "updateStrategy"
    ]["rollingUpdate"].update(maxSurge=1),
    "pod: nodeSelector is {'feature.node.kubernetes.io/gopher': 'true'}, "
    "not {'kubernetes.io/os': 'linux'}": lambda m: _pod(m).update(
        nodeSelector={"feature.node.kubernetes.io/gopher": "true"}
    ),
    "pod: securityContext.seccompProfile is {'type': 'Unconfined'}, "
    "not {'type': 'RuntimeDefault'}": lambda m: _pod(m)["securityContext"].update(
        seccompProfile={"type": "Unconfined"}
    ),
    "container: securityContext.seccompProfile is {'type': 'Unconfined'}, not None": lambda m: (
        _container(m)["securityContext"].update(seccompProfile={"type": "Unconfined"})
    ),
    "init container install: securityContext.privileged is True, not False": lambda m: _pod(
        m
    ).update(initContainers=[_installer(_container(m))]),
    "container: /dev/termination-log cannot be made in mount gophers": lambda m: (
        _container(m)["volumeMounts"].append(
            {"name": "gophers", "mountPath": "/dev", "readOnly": True}
        ),
    ),
}


def _installer(container: Any) -> dict[str, Any]:
    context = {**container["securityContext"], "privileged": True}
    return {"name": "install", "image": container["image"], "securityContext": context}


@pytest.mark.parametrize("problem", BREAK)
def test_a_manifest_that_is_broken_on_purpose_is_caught(problem: str) -> None:
    manifests = render(folder("gopher"))
    BREAK[problem](manifests)
    assert [problem] == problems([*manifests], "gopher-device-plugin")


def _of_kind(manifests: list[Manifest], kind: str) -> Any:
    return next(one for one in manifests if one["kind"] == kind)


def _beside(manifests: list[Manifest]) -> Any:
    (found,) = (one for one in _pod(manifests)["containers"] if one["name"] == "events")
    return found


BREAK_EVENTS: dict[str, Callable[[list[Manifest]], object]] = {
    "container: has a token": lambda m: _container(m)["volumeMounts"].extend(
        _beside(m)["volumeMounts"]
    ),
    "ClusterRole: gopher-device-plugin may [{'apiGroups': [''], 'resources': ['events'], "
    "'verbs': ['create', 'list']}]": lambda m: _of_kind(m, "ClusterRole")["rules"][0][
        "verbs"
    ].append("list"),
    "ClusterRoleBinding: is for {'kind': 'Group', 'name': 'system:authenticated'}": lambda m: (
        _of_kind(m, "ClusterRoleBinding").update(
            subjects=[{"kind": "Group", "name": "system:authenticated"}]
        )
    ),
    "container events: securityContext.runAsUser is 0, not 65532": lambda m: _beside(m)[
        "securityContext"
    ].update(runAsUser=0),
    "container events: no resources.limits.memory": lambda m: _beside(m)["resources"].pop("limits"),
    "network: egress is let out": lambda m: [
        rule.pop("ports")
        for one in m
        if one["kind"] == "NetworkPolicy"
        for rule in one["spec"].get("egress", ())
    ],
    "container events: may create events without a policy": lambda m: m.remove(
        _of_kind(m, "ValidatingAdmissionPolicy")
    ),
}


@pytest.mark.parametrize("problem", BREAK_EVENTS)
def test_a_sidecar_that_is_broken_on_purpose_is_caught(problem: str, tmp_path: Path) -> None:
    manifests = render(overlay(tmp_path, "gopher", "events"))
    BREAK_EVENTS[problem](manifests)
    assert [problem] == problems([*manifests], "gopher-device-plugin")


def _single(manifests: list[Manifest]) -> Any:
    return _of_kind(manifests, "Deployment")["spec"]


def _give_away(manifests: list[Manifest]) -> None:
    """Let the plugin's account have all that the pod of its own has."""
    for one in manifests:
        if one["kind"].endswith("RoleBinding"):
            one["subjects"][0]["name"] = "gopher-device-plugin"


_PODS = "[{'apiGroups': [''], 'resources': ['pods'], 'verbs': ['list', 'watch']}]"
_NODES = "[{'apiGroups': [''], 'resources': ['nodes'], 'verbs': ['get', 'patch']}]"
BREAK_DEPLOYMENTS: dict[tuple[str, ...], Callable[[list[Manifest]], object]] = {
    (
        f"Role: gopher-device-plugin may {_PODS}",
        f"ClusterRole: gopher-device-plugin may {_NODES}",
    ): _give_away,
    ("container startup-taint: may get, patch nodes without a policy",): lambda m: m.remove(
        _of_kind(m, "ValidatingAdmissionPolicy")
    ),
    ("gopher-device-plugin-startup-taint: replicas is 2, not 1",): lambda m: _single(m).update(
        replicas=2
    ),
    ("gopher-device-plugin-startup-taint: hostNetwork is True, not None",): lambda m: _single(m)[
        "template"
    ]["spec"].update(hostNetwork=True),
    ("network: egress is let out",): lambda m: [
        rule.pop("to")
        for one in m
        if one["kind"] == "NetworkPolicy"
        for rule in one["spec"].get("egress", ())
        if "to" in rule
    ],
    ("network: Egress is open",): lambda m: [
        one["spec"].update(policyTypes=["Ingress"])
        for one in m
        if one["kind"] == "NetworkPolicy" and "egress" in one["spec"]
    ],
}


@pytest.mark.parametrize("told", BREAK_DEPLOYMENTS)
def test_a_pod_of_its_own_that_is_broken_on_purpose_is_caught(
    told: tuple[str, ...], tmp_path: Path
) -> None:
    manifests = render(overlay(tmp_path, "gopher", "startup-taint"))
    BREAK_DEPLOYMENTS[told](manifests)
    assert [*told] == problems([*manifests], "gopher-device-plugin")


def test_nothing_of_one_plugin_is_removed_with_another(tmp_path: Path) -> None:
    components = ("dra", "events", "evict", "node-annotation", "startup-taint")
    for plugin in ("fpga", "gpu"):
        (tmp_path / plugin).mkdir()
        place, name = overlay(tmp_path / plugin, plugin, *components), f"{plugin}-device-plugin"
        own = {f"{name}:{one}" for one in components}
        for manifests in (render(place), render_by_kustomize(place) or render(place)):
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
    rendered = render_by_kustomize(tmp_path)
    for manifests in (render(tmp_path), rendered or render(tmp_path)):
        (subject,) = _of_kind(manifests, "ClusterRoleBinding")["subjects"]
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
    daemon_set = _of_kind(manifests, "DaemonSet")["spec"]
    assert daemon_set["selector"]["matchLabels"] == wanted
    own = _single(manifests)["template"]["metadata"]["labels"]
    assert _single(manifests)["selector"]["matchLabels"].items() <= own.items()
    assert not wanted.items() <= own.items()
    assert _container(manifests)["image"] == container["image"]


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
    name, rendered = f"{plugin}-device-plugin", render_by_kustomize(place)
    for manifests in (render(place), rendered or render(place)):
        pod = _single(manifests)["template"]["spec"]
        key = f"startup.deviceplugin.dev/{name}"
        assert f"--taint={key}" in pod["containers"][0]["args"]
        policy = _of_kind(manifests, "ValidatingAdmissionPolicy")
        binding = _of_kind(manifests, "ValidatingAdmissionPolicyBinding")
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
    name, rendered = f"{plugin}-device-plugin", render_by_kustomize(place)
    for manifests in (render(place), rendered or render(place)):
        pod = _pod(manifests)
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


BREAK_DRA: dict[str, Callable[[list[Manifest]], object]] = {
    "container: has a token": lambda m: _container(m)["env"].pop(),
    "volume driver: /var/lib/kubelet/plugins is too wide": lambda m: _volume(m, "driver")[
        "hostPath"
    ].update(path="/var/lib/kubelet/plugins"),
    "volume driver: no type": lambda m: _volume(m, "driver")["hostPath"].pop("type"),
}


def _volume(manifests: list[Manifest], name: str) -> Any:
    (found,) = (one for one in _pod(manifests)["volumes"] if one["name"] == name)
    return found


@pytest.mark.parametrize("problem", BREAK_DRA)
def test_dra_that_is_broken_on_purpose_is_caught(problem: str, tmp_path: Path) -> None:
    manifests = render(overlay(tmp_path, "gopher", "dra"))
    BREAK_DRA[problem](manifests)
    assert problem in problems([*manifests], "gopher-device-plugin")


BREAK_NODE_ANNOTATION: dict[str, Callable[[list[Manifest]], object]] = {
    "container: has a token": lambda m: (
        _container(m)["env"].pop(),
        _container(m)["env"].pop(),
        m.pop(m.index(_of_kind(m, "ClusterRoleBinding"))),
    ),
    "ClusterRole: fpga-device-plugin may [{'apiGroups': [''], 'resources': ['nodes'], "
    "'verbs': ['get', 'list']}]": lambda m: _of_kind(m, "ClusterRole")["rules"][0]["verbs"].append(
        "list"
    ),
    "fpga-device-plugin says: node-annotation: needs node-name, in a pod spec.nodeName": lambda m: (
        _container(m)["env"].pop()
    ),
}


@pytest.mark.parametrize("problem", BREAK_NODE_ANNOTATION)
def test_a_token_that_is_not_needed_or_may_more_is_caught(problem: str, tmp_path: Path) -> None:
    manifests = render(overlay(tmp_path, "fpga", "node-annotation"))
    BREAK_NODE_ANNOTATION[problem](manifests)
    assert [problem] == problems([*manifests], "fpga-device-plugin")


def test_the_plugin_finds_the_token_where_the_component_puts_it(tmp_path: Path) -> None:
    pod = _pod(render(overlay(tmp_path, "fpga", "node-annotation")))
    (mount,) = (one for one in pod["containers"][0]["volumeMounts"] if one["name"] == "api-access")
    (volume,) = (one for one in pod["volumes"] if one["name"] == "api-access")
    token, trust = volume["projected"]["sources"]
    assert str(ACCOUNT) == mount["mountPath"]
    assert "token" == token["serviceAccountToken"]["path"]
    assert ["ca.crt"] == [item["path"] for item in trust["configMap"]["items"]]


def test_the_plugin_finds_the_aliases_where_the_component_puts_them(tmp_path: Path) -> None:
    manifests = render(overlay(tmp_path, "fpga", "fpga-aliases"))
    (config,) = (one for one in manifests if one["metadata"]["name"] == "aliases")
    pod = _pod(manifests)
    (mount,) = (one for one in pod["containers"][0]["volumeMounts"] if one["name"] == "aliases")
    (volume,) = (one for one in pod["volumes"] if one["name"] == "aliases")
    environment = {one["name"]: one.get("value") for one in pod["containers"][0]["env"]}
    assert config["metadata"]["name"] == volume["configMap"]["name"]
    ((name, text),) = config["data"].items()
    assert f"{mount['mountPath']}/{name}" == environment["DP_ALIASES"]
    (tmp_path / name).write_text(text)
    assert Aliases() == read(tmp_path / name)


def test_the_plugin_finds_its_configuration_where_the_component_puts_it(tmp_path: Path) -> None:
    manifests = render(overlay(tmp_path, "gpu", "gpu-node-config"))
    (config,) = (one for one in manifests if one["metadata"]["name"] == "node-config")
    pod = _pod(manifests)
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


def test_the_page_about_mps_is_a_deployment_that_fits_together(tmp_path: Path) -> None:
    page = (ROOT / "plugins/gpu/docs/mps.md").read_text()
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
    assert [] == [*problems([*manifests], "gpu-device-plugin"), *schema_problems(manifests)]
    volumes = {
        one["name"]: one.get("hostPath", {}).get("path")
        for pod in (_pod(manifests), theirs["spec"]["template"]["spec"])
        for one in pod["volumes"]
    }
    environment = {one["name"]: one.get("value") for one in _container(manifests)["env"]}
    assert environment["DP_MPS_ROOT"] == volumes["mps-root"]
    assert f"{volumes['mps-root']}/shm" == volumes["mps-shm"]
    assert "sharing" in yaml.safe_load(_config(manifests, "node-config")["config.yaml"])
    assert "node-config" in {
        one.get("configMap", {}).get("name")
        for one in theirs["spec"]["template"]["spec"]["volumes"]
    }


def test_the_sidecar_runs_a_command_that_there_is(tmp_path: Path) -> None:
    container = _beside(render(overlay(tmp_path, "gopher", "events")))
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
    rendered = render_by_kustomize(tmp_path)
    if rendered is None:
        pytest.skip("no kustomize")
    names = [one["metadata"]["name"] for one in rendered if one["kind"] == "NetworkPolicy"]
    assert ["device-plugin-monitoring", "gopher-device-plugin"] == names
    assert set() == OPERATORS & {one["kind"] for one in rendered}


@pytest.mark.parametrize(
    ("problem", "change"),
    [
        (
            "Additional properties are not allowed ('tolerationz' was unexpected)",
            lambda m: _pod(m).update(tolerationz=[]),
        ),
        ("'9494' is not of type 'integer'", lambda m: _port(m).update(containerPort="9494")),
        ("'name' is a required property", lambda m: _container(m).pop("name")),
    ],
)
def test_a_manifest_that_kubernetes_would_refuse_is_caught(
    problem: str, change: Callable[[list[Manifest]], object]
) -> None:
    manifests = render(folder("gopher"))
    change(manifests)
    found = {message.partition(": ")[2] for message in schema_problems(manifests)}
    assert {problem} == found


def _port(manifests: list[Manifest]) -> Any:
    return _container(manifests)["ports"][0]


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
