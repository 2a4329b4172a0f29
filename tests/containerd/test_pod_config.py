"""What the kubelet asks a container runtime for, of a pod's manifest."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from containers import cri_runtime_pb2 as pb
from containers.pod_config import NOTHING, Node, PodConfig
from deviceplugin_testing.simulator import RunOptions
from manifests.expected import PLUGINS
from manifests.kustomize import of_kind, render

DEPLOYMENTS = Path(__file__).parents[2] / "deployments"
Ask = Callable[..., pb.ContainerConfig]


@pytest.fixture
def ask(tmp_path: Path) -> Ask:
    def make(
        container: dict[str, Any],
        given: RunOptions = NOTHING,
        volumes: tuple[dict[str, Any], ...] = (),
        **security: object,
    ) -> pb.ContainerConfig:
        spec = {"containers": [container], "volumes": volumes, "securityContext": security}
        host = {"/known": tmp_path / "known"}
        node = Node("node-1", "/tests", tmp_path / "pods", host)
        pod = {"metadata": {"name": "some"}, "spec": spec}
        config = PodConfig(pod, "1", node, {"files": {"config.yaml": "a: 1\n"}})
        return config.container({"name": "main", "image": "i", **container}, given)

    return make


def test_what_a_container_says_is_asked_for_and_wins_over_the_pod(ask: Ask) -> None:
    where = {"fieldRef": {"fieldPath": "spec.nodeName"}}
    own = {"runAsUser": 7, "capabilities": {"drop": ["ALL"]}, "allowPrivilegeEscalation": False}
    container = {
        "env": [{"name": "NODE", "valueFrom": where}],
        "args": ["--node=$(NODE)", "$(OTHER)"],
        "securityContext": own,
        "resources": {"requests": {"cpu": "10m"}, "limits": {"memory": "160Mi"}},
        "volumeMounts": [{"name": "c", "mountPath": "/etc/c", "readOnly": True}],
    }
    config_map = {"name": "c", "configMap": {"name": "files"}}
    asked = ask(container, volumes=(config_map,), runAsUser=5, runAsGroup=6)
    assert ["--node=node-1", "$(OTHER)"] == list(asked.args)
    rights, resources = asked.linux.security_context, asked.linux.resources
    assert (7, 6) == (rights.run_as_user.value, rights.run_as_group.value)
    assert ["ALL"] == list(rights.capabilities.drop_capabilities)
    assert (True, pb.SecurityProfile.Unconfined) == (
        rights.no_new_privs,
        rights.seccomp.profile_type,
    )
    assert (10, 160 * 2**20) == (resources.cpu_shares, resources.memory_limit_in_bytes)
    mount = asked.mounts[0]
    assert ("/etc/c", True) == (mount.container_path, mount.readonly)
    assert "a: 1\n" == Path(mount.host_path, "config.yaml").read_text()


def test_who_must_not_be_root_is_refused_as_root(ask: Ask) -> None:
    with pytest.raises(AssertionError, match="runAsNonRoot"):
        ask({}, runAsNonRoot=True, runAsUser=0)


@pytest.mark.parametrize(
    ("host", "message"),
    [
        ({"path": "/other", "type": "DirectoryOrCreate"}, "would be made on this machine"),
        ({"path": "/known", "type": "Directory"}, "no directory"),
    ],
)
def test_a_folder_of_the_node_is_neither_made_nor_missed(
    ask: Ask, host: dict[str, str], message: str
) -> None:
    mounts = [{"name": "h", "mountPath": "/h"}]
    with pytest.raises(AssertionError, match=message):
        ask({"volumeMounts": mounts}, volumes=({"name": "h", "hostPath": host},))


@pytest.mark.parametrize("plugin", PLUGINS)
def test_all_of_a_deployments_pod_is_known(plugin: str, tmp_path: Path) -> None:
    manifests = render(DEPLOYMENTS / plugin)
    maps = {one["metadata"]["name"]: one["data"] for one in manifests if one["kind"] == "ConfigMap"}
    template = of_kind(manifests, "DaemonSet")["spec"]["template"]
    template["metadata"]["name"] = plugin
    paths = [one["hostPath"]["path"] for one in template["spec"]["volumes"] if "hostPath" in one]
    node = Node("node-1", "/tests", tmp_path / "pods", dict.fromkeys(paths, tmp_path))
    (container,) = template["spec"]["containers"]
    asked = PodConfig(template, "1", node, maps).container(container)
    assert f"{plugin}-device-plugin:0.1.0" == asked.image.image
    rights = asked.linux.security_context
    assert rights.readonly_rootfs
    assert rights.seccomp.profile_type == pb.SecurityProfile.RuntimeDefault
    assert "container_device_plugin_t" == rights.selinux_options.type
    places = {mount.container_path for mount in asked.mounts}
    assert {one["mountPath"] for one in container["volumeMounts"]} < places
