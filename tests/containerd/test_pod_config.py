"""What the kubelet asks a container runtime for, of a pod's manifest."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from containers import cri_runtime_pb2 as pb
from containers.pod_config import NOTHING, Node, PodConfig
from deviceplugin_testing.simulator import RunOptions
from manifests.kustomize import render

DEPLOYMENTS = Path(__file__).parents[2] / "deployments"
PLUGINS = sorted({path.parent.name for path in DEPLOYMENTS.glob("*/kustomization.yaml")} - {"base"})
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


def test_arguments_know_the_variables_and_leave_the_rest(ask: Ask) -> None:
    where = {"fieldRef": {"fieldPath": "spec.nodeName"}}
    asked = ask(
        {"env": [{"name": "NODE", "valueFrom": where}], "args": ["--node=$(NODE)", "$(OTHER)"]}
    )
    assert ["--node=node-1", "$(OTHER)"] == list(asked.args)


def test_what_a_container_says_of_its_rights_wins_over_the_pod(ask: Ask) -> None:
    own = {"runAsUser": 7, "capabilities": {"drop": ["ALL"]}, "allowPrivilegeEscalation": False}
    asked = ask({"securityContext": own}, runAsUser=5, runAsGroup=6)
    rights = asked.linux.security_context
    assert (7, 6) == (rights.run_as_user.value, rights.run_as_group.value)
    assert ["ALL"] == list(rights.capabilities.drop_capabilities)
    assert rights.no_new_privs
    assert rights.seccomp.profile_type == pb.SecurityProfile.Unconfined


def test_who_must_not_be_root_is_refused_as_root(ask: Ask) -> None:
    with pytest.raises(AssertionError, match="runAsNonRoot"):
        ask({}, runAsNonRoot=True, runAsUser=0)


def test_limits_are_in_the_units_of_the_runtime(ask: Ask) -> None:
    asked = ask({"resources": {"requests": {"cpu": "10m"}, "limits": {"memory": "160Mi"}}})
    assert (10, 160 * 2**20) == (
        asked.linux.resources.cpu_shares,
        asked.linux.resources.memory_limit_in_bytes,
    )


def test_a_config_map_is_a_folder(ask: Ask) -> None:
    asked = ask(
        {"volumeMounts": [{"name": "c", "mountPath": "/etc/c", "readOnly": True}]},
        volumes=({"name": "c", "configMap": {"name": "files"}},),
    )
    mount = asked.mounts[0]
    assert ("/etc/c", True) == (mount.container_path, mount.readonly)
    assert "a: 1\n" == Path(mount.host_path, "config.yaml").read_text()


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
    (daemon_set,) = (one for one in manifests if one["kind"] == "DaemonSet")
    maps = {one["metadata"]["name"]: one["data"] for one in manifests if one["kind"] == "ConfigMap"}
    template = daemon_set["spec"]["template"]
    template["metadata"]["name"] = plugin
    host = {}
    for volume in template["spec"]["volumes"]:
        if "hostPath" in volume:
            folder = tmp_path / volume["name"]
            folder.mkdir()
            host[volume["hostPath"]["path"]] = folder
    config = PodConfig(template, "1", Node("node-1", "/tests", tmp_path / "pods", host), maps)
    (container,) = template["spec"]["containers"]
    asked = config.container(container)
    assert f"{plugin}-device-plugin:0.1.0" == asked.image.image
    rights = asked.linux.security_context
    assert rights.readonly_rootfs
    assert rights.seccomp.profile_type == pb.SecurityProfile.RuntimeDefault
    assert "container_device_plugin_t" == rights.selinux_options.type
    places = {mount.container_path for mount in asked.mounts}
    assert {one["mountPath"] for one in container["volumeMounts"]} < places
