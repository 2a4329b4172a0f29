"""An overlay renders to what every deployment should be, and our own plugin accepts it."""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest
import yaml

from manifests.deployment_policy import problems
from manifests.kustomize import Manifest, render, render_by_kustomize
from migration.peers import config_map, configuration, daemon_set, mounting, pod

Migrate = Callable[..., str]
Rendered = Callable[[], list[Manifest]]
CASES = Path(__file__).parent / "cases"
SQUAT = "squat/generic-device-plugin:0.2.1"
SMARTER = "ghcr.io/smarter-project/smarter-device-manager:v1.20.12"
SRIOV = "sriov-network-device-plugin"
MOUNTS = {
    "generic": ["/dev"],
    "intelgpu": ["/dev"],
    "amd": ["/dev"],
    "gpu": ["/usr", "/run/nvidia", "/opt/driver"],
    "rdma": ["/dev", "/sys"],
}
"""What is mounted, read-only, by components."""


def check(manifests: list[Manifest], plugin: str, wide: Collection[str] = ()) -> None:
    """Check manifests by our policy, which asks the plugin what it makes of its settings."""
    found = problems(manifests, f"{plugin}-device-plugin", wide or MOUNTS.get(plugin, ()))
    ours = ("pod: nodeSelector is ", "pod: affinity is ")  # kept, and that of a migration
    assert [] == [one for one in found if not one.startswith(ours)]


@pytest.mark.parametrize(
    ("name", "plugin"),
    [
        ("squat-daemonset", "generic"),
        ("smarter-values-text", "generic"),
        ("simple-daemonset", "simulated"),
        ("nvidia-static-flags", "gpu"),
        ("nvidia-values-with-sharing", "gpu"),
        ("amd-daemonsets", "amd"),
        ("intelgpu-flags", "intelgpu"),
        ("fpga-daemonset-af", "fpga"),
        ("sriov-flags", "rdma"),
        ("rdma-shared-flags", "rdma"),
    ],
)
def test_the_overlay_of_a_case_is_as_every_deployment_should_be(
    migrate: Migrate, rendered: Rendered, name: str, plugin: str
) -> None:
    migrate((CASES / f"{name}.yaml").read_text())
    check(rendered(), plugin)


def test_directories_of_mounts_are_mounted_for_the_plugin(
    migrate: Migrate, rendered: Rendered
) -> None:
    migrate((CASES / "squat-mounts.yaml").read_text())
    manifests = rendered()
    check(manifests, "generic")
    (container,) = pod(manifests)["containers"]
    mounts = [one for one in container["volumeMounts"] if one["mountPath"].startswith("/srv")]
    assert [{"name": "host-srv-a", "mountPath": "/srv/a", "readOnly": True}] == mounts


def test_smarters_rules_come_from_a_file_that_is_not_in_the_manifest(
    migrate: Migrate, rendered: Rendered, tmp_path: Path
) -> None:
    rules = [{"devicematch": "^snd$", "nummaxdevices": 20}]
    (tmp_path / "conf.yaml").write_text(yaml.safe_dump(rules))
    more = mounting("rules", "/root/config")
    migrate(daemon_set(SMARTER, **more), flags=(f"--config={tmp_path / 'conf.yaml'}",))
    assert rules == configuration(rendered())


def test_the_plugin_has_the_variables_and_the_directory_of_nvidias_values(
    migrate: Migrate, rendered: Rendered
) -> None:
    migrate((CASES / "nvidia-values-with-sharing.yaml").read_text())
    found = pod(rendered())
    container = next(one for one in found["containers"] if one["name"] == "device-plugin")
    env = {one["name"]: one.get("value") for one in container["env"]}
    assert ("envvar,cdi-cri", "/run/nvidia/mps") == (
        env["DP_DEVICE_LIST_STRATEGY"],
        env["DP_MPS_ROOT"],
    )
    mounts = {one["mountPath"]: one["name"] for one in container["volumeMounts"]}
    volumes = {one["name"]: one for one in found["volumes"]}
    assert "/run/nvidia/mps" == volumes[mounts["/mps"]]["hostPath"]["path"]
    assert {"gpu": "yes", "kubernetes.io/os": "linux"} == found["nodeSelector"]


@pytest.mark.parametrize(
    ("settings", "volume"),
    [
        ({"nvidiaDriverRoot": "/run/nvidia/driver"}, "driver-root"),
        ({"nvidiaDriverRoot": "/opt/driver"}, "host-driver-root"),
        ({"deviceListStrategy": "cdi-annotations"}, "driver-usr"),
    ],
)
def test_the_plugin_sees_the_driver_as_nvidias_does(
    migrate: Migrate, rendered: Rendered, settings: dict[str, Any], volume: str
) -> None:
    migrate(settings)
    manifests = rendered()
    check(manifests, "gpu")
    assert volume in {one["name"] for one in pod(manifests)["volumes"]}


def test_kubectl_and_the_operator_render_an_overlay_alike(migrate: Migrate, tmp_path: Path) -> None:
    place = {"name": "d", "hostPath": {"path": "/srv/kubelet/device-plugins"}}
    mount = {"name": "d", "mountPath": "/var/lib/kubelet/device-plugins/"}
    device = "--device={name: serial, groups: [{paths: [{path: /dev/ttyUSB*}]}]}"
    more: dict[str, Any] = {
        "affinity": {"nodeAffinity": {}},
        "container": {"volumeMounts": [mount]},
    }
    migrate(daemon_set(SQUAT, device, volumes=[place], **more))
    real = render_by_kustomize(tmp_path)
    if real is None:
        pytest.skip("no kubectl here")
    assert _by_name(real) == _by_name(list(render(tmp_path)))
    volumes = {one["name"]: one for one in pod(real)["volumes"]}
    expected = {"path": "/srv/kubelet/device-plugins", "type": "Directory"}
    assert expected == volumes["device-plugins"]["hostPath"]


def _by_name(manifests: list[Manifest]) -> list[object]:
    """Sort lists: kustomize puts what a patch names in front."""

    def in_order(part: Any) -> Any:
        if isinstance(part, dict):
            return {key: in_order(value) for key, value in sorted(part.items())}
        return sorted(map(in_order, part), key=repr) if isinstance(part, list) else part

    return list(in_order(manifests))


@pytest.mark.parametrize(
    ("image", "mounted", "name", "text", "kept"),
    [
        (SQUAT, "/etc/generic-device-plugin", "config.yaml", "devices:\n", {"devices": []}),
        (SRIOV, "/etc/pcidp", "config.json", '{"resourceList": null}', {"resourceList": []}),
        (SMARTER, "/root/config", "conf.yaml", "[]", []),
    ],
)
def test_an_empty_list_of_a_peer_stays_one(
    migrate: Migrate, rendered: Rendered, image: str, mounted: str, name: str, text: str, kept: Any
) -> None:
    migrate(daemon_set(image, **mounting("c", mounted)), config_map("c", **{name: text}))
    assert kept == configuration(rendered())


def test_what_is_kept_of_a_pod_is_in_ours(migrate: Migrate, rendered: Rendered) -> None:
    migrate((CASES / "squat-update-strategy.yaml").read_text())
    (ours,) = (one["spec"] for one in rendered() if one["kind"] == "DaemonSet")
    assert {"type": "OnDelete"} == {k: v for k, v in ours["updateStrategy"].items() if v}
    assert 30 == ours["minReadySeconds"]
    assert "network" == ours["template"]["metadata"]["labels"]["team"]
    assert "team" not in ours["selector"]["matchLabels"]
    found = ours["template"]["spec"]
    assert ("None", [{"name": "mirror"}]) == (found["dnsPolicy"], found["imagePullSecrets"])
    assert "Always" == found["containers"][0]["imagePullPolicy"]
