"""Each peer's manifest becomes an overlay that renders, and that our own plugin accepts."""

import json
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest
import yaml

from manifests.deployment_policy import problems
from manifests.kustomize import Manifest, render, render_by_kustomize
from migration.peers import config_map, configuration, daemon_set, differences, mounting, pod

Migrate = Callable[..., str]
Rendered = Callable[[], list[Manifest]]
SQUAT = "squat/generic-device-plugin:0.2.1"
SMARTER = "ghcr.io/smarter-project/smarter-device-manager:v1.20.12"
NVIDIA = "nvcr.io/nvidia/k8s-device-plugin:v0.20.0"
AMD = "rocm/k8s-device-plugin:1.31.0.9"
SERIAL = "name: serial\ngroups:\n- paths: [{path: /dev/ttyUSB*}]\n"


def check(manifests: list[Manifest], plugin: str, wide: Collection[str] = ()) -> None:
    """Check manifests by our policy, which asks the plugin what it makes of its settings."""
    found = problems(manifests, f"{plugin}-device-plugin", wide)
    ours = ("pod: nodeSelector is ", "pod: affinity is ")  # kept, and that of a migration
    assert [] == [one for one in found if not one.startswith(ours)]


def test_squats_manifest_becomes_an_overlay_of_the_generic_plugin(
    migrate: Migrate, rendered: Rendered
) -> None:
    text = migrate(
        daemon_set(
            "squat/generic-device-plugin",
            "--device",
            SERIAL,
            "--device=name: fuse\ngroups: [{count: 10, paths: [{path: /dev/fuse}]}]",
            "--log-level=warn",
            env={"DOMAIN": "example.com", "LISTEN": ":8081"},
            tolerations=[{"operator": "Exists"}],
            priorityClassName="system-node-critical",
            container={
                "resources": {"limits": {"cpu": "50m", "memory": "20Mi"}},
                "ports": [{"containerPort": 8080, "name": "http"}],
                "securityContext": {"privileged": True},
                "livenessProbe": {"httpGet": {"path": "/health", "port": "http"}},
            },
        )
    )
    manifests = rendered()
    check(manifests, "generic", ["/dev"])
    found = configuration(manifests)
    assert ["serial", "fuse"] == [one["name"] for one in found["devices"]]
    assert ("example.com", "warning") == (found["domain"], found["log-level"])
    assert {"host-dev", "device-plugins"} <= {one["name"] for one in pod(manifests)["volumes"]}
    assert "taken for generic-device-plugin of squat" in " ".join(text.split("\n# "))
    said = {one.partition(": ")[0] for one in differences(text)}
    assert {
        "resources.limits.memory",
        "resources.limits.cpu",
        "securityContext.privileged",
        "ports",
        "livenessProbe",
        "namespace",
        "--log-level",
        "--listen",
        "resource names",
        "device ids",
        "metrics",
        "host path /dev",
    } <= said
    assert "tolerations" not in said
    (memory,) = (one for one in differences(text) if "limits.memory" in one)
    assert memory.endswith("with theirs ours would be killed before it registers")


def test_squats_file_is_read_from_its_config_map(migrate: Migrate, rendered: Rendered) -> None:
    tty = "name: tty\n  groups:\n  - paths:\n    - path: /dev/ttyS0\n"
    file = f"domain: a.example\nlisten: :80\ndevices:\n- {tty}"
    path = "/etc/generic-device-plugin"
    migrate(
        config_map("conf", **{"config.yaml": file}), daemon_set(SQUAT, **mounting("conf", path))
    )
    assert yaml.safe_load(file)["devices"] == configuration(rendered())["devices"]
    migrate(
        daemon_set(SQUAT, "--config=/c/d.toml", **mounting("conf", "/c")),
        config_map(
            "conf",
            **{"d.toml": '[[devices]]\nname = "tty"\ngroups = [{paths = [{path = "/dev/ttyS0"}]}]'},
        ),
    )
    assert [{"name": "tty", "groups": [{"paths": [{"path": "/dev/ttyS0"}]}]}] == configuration(
        rendered()
    )["devices"]


def test_devices_of_flags_replace_those_of_squats_file(
    migrate: Migrate, rendered: Rendered
) -> None:
    tty = "name: tty\n  groups: [{paths: [{path: /dev/tty}]}]\n"
    file = f"domain: a.example\nlog-level: none\ndevice:\n- {tty}"
    migrate(
        config_map("conf", **{"config.yaml": file}),
        daemon_set(
            SQUAT, "--device", SERIAL, "--config", "/c/config.yaml", **mounting("conf", "/c")
        ),
    )
    found = configuration(rendered())
    assert ("a.example", "error", ["serial"]) == (
        found["domain"],
        found["log-level"],
        [one["name"] for one in found["devices"]],
    )


@pytest.mark.parametrize(
    ("tag", "domain", "asks"),
    [("0.2.1", None, False), ("v0.1.4", "squat.ai", False), ("latest", None, True)],
)
def test_the_default_domain_of_squat_depends_on_the_release(
    migrate: Migrate, rendered: Rendered, tag: str, domain: str | None, *, asks: bool
) -> None:
    text = migrate(
        daemon_set(f"registry:5000/squat/generic-device-plugin:{tag}", "--device", SERIAL)
    )
    assert domain == configuration(rendered()).get("domain")
    assert asks is any("does not say how old it is" in one for one in differences(text))


def test_directories_of_mounts_are_mounted_for_the_plugin(
    migrate: Migrate, rendered: Rendered
) -> None:
    paths = "[{path: /srv/a/*, type: Mount}, {path: /srv/a/b/c, type: Mount}]"
    device = f"name: data\ngroups:\n- paths: {paths}\n"
    text = migrate(daemon_set(SQUAT, "--device", device))
    manifests = rendered()
    check(manifests, "generic")
    assert {"name": "host-srv-a", "mountPath": "/srv/a", "readOnly": True} in pod(manifests)[
        "containers"
    ][0]["volumeMounts"]
    assert "host path /srv/a: mounted read-only, so that its paths are found" in differences(text)
    text = migrate(daemon_set(SQUAT, "--device", device.replace("/srv/a/*", "/*/a")))
    assert any(one.startswith("host path /: not mounted") for one in differences(text))


@pytest.mark.parametrize("as_values", [True, False])
def test_smarters_rules_are_kept(migrate: Migrate, rendered: Rendered, *, as_values: bool) -> None:
    rules = [
        {"devicematch": "^snd$", "nummaxdevices": 20},
        {"devicematch": "nvidia-gpu", "nummaxdevices": 2},
    ]
    if as_values:
        values = {"image": {"repository": SMARTER.partition(":")[0], "tag": ""}, "config": rules}
        text = migrate(values)
    else:
        more = {**mounting("rules", "/root/config"), "hostNetwork": True}
        more["nodeSelector"] = {"smarter-device-manager": "enabled"}
        text = migrate(
            daemon_set(SMARTER, "-logtostderr=true", "-v=0", **more),
            config_map("rules", **{"conf.yaml": yaml.safe_dump(rules)}),
        )
        assert "hostNetwork: true; ours does not need it" in differences(text)
        assert "enabled" == pod(rendered())["nodeSelector"]["smarter-device-manager"]
    manifests = rendered()
    check(manifests, "generic", ["/dev"])
    assert rules[:1] == configuration(manifests)
    assert any("nvidia-gpu is not for this plugin" in one for one in differences(text))


def test_smarters_rules_come_from_a_file_that_is_not_in_the_manifest(
    migrate: Migrate, rendered: Rendered, tmp_path: Path
) -> None:
    rules = [{"devicematch": "^snd$", "nummaxdevices": 20}]
    (tmp_path / "conf.yaml").write_text(yaml.safe_dump(rules))
    more = mounting("rules", "/root/config")
    migrate(daemon_set(SMARTER, **more), flags=(f"--config={tmp_path / 'conf.yaml'}",))
    assert rules == configuration(rendered())


def simple(file: dict[str, object]) -> list[object]:
    more = mounting("conf", "/device_plugin_config.yaml")
    more["container"]["volumeMounts"][0]["subPath"] = "device_plugin_config.yaml"
    peer = daemon_set("device-plugin:latest", "--config=device_plugin_config.yaml", **more)
    return [peer, config_map("conf", **{"device_plugin_config.yaml": yaml.safe_dump(file)})]


INTEL_GPU = (
    *("-shared-dev-num=4", "-allow-ids=0x56c0,0x56c1", "-deny-ids", "0x49c5"),
    *("-allocation-policy=packed", "-bypath=none", "-enable-monitoring", "-monitoring-mode=split"),
    *("-health-management", "-wsl=false"),
)
INTEL_GPU_KEPT = {
    "device-ids": "card",
    "shares": 4,
    "share-policy": "packed",
    "include": ["0x56c0", "0x56c1"],
    "exclude": ["0x49c5"],
    "bypath": "none",
    "enable-monitoring": True,
    "monitoring-mode": "split",
}
HOOK = {"name": "hook", "image": "intel/intel-fpga-initcontainer"}
POOLS = [{"resourceName": "vfs", "selectors": {"pfNames": ["ens1#0-3"]}}]
SHARED = {
    "periodicUpdateInterval": 300,
    "configList": [{"resourceName": "hca", "rdmaHcaMax": 5, "selectors": {"vendors": ["15b3"]}}],
}
PREFIXES = {"annotationPrefix": "", "envPrefix": "DEV", "deviceFilePrefix": None}
SIMPLE = {"resourceName": "example.com/dev", "numberDevicesOnNode": 3, "pluginName": "simple"}
SRIOV = ("--log-dir=sriovdp", "--log-level=10", "--resource-prefix=example.com", "--use-cdi")


@pytest.mark.parametrize(
    ("documents", "plugin", "kept", "said", "unsaid"),
    [
        (
            [daemon_set("intel/intel-gpu-plugin:0.36.0", *INTEL_GPU)],
            *("intelgpu", INTEL_GPU_KEPT, {"--health-management", "device ids"}, "--wsl"),
        ),
        (
            [daemon_set("intel/intel-gpu-plugin")],
            *("intelgpu", {"device-ids": "card", "share-policy": "none"}, set(), "-"),
        ),
        (
            [
                daemon_set(
                    *("intel/intel-fpga-plugin:devel", "-mode=region", "-node-name=n1", "-v=3"),
                    initContainers=[HOOK],
                )
            ],
            *("fpga", {"mode": "region"}, {"init container hook"}, "-"),
        ),
        ([daemon_set("intel/intel-fpga-plugin")], "fpga", {"mode": "af"}, set(), "-"),
        (
            simple({**SIMPLE, "deviceIDPrefix": "dev", **PREFIXES}),
            "simulated",
            {
                "resource": "example.com/dev",
                "number-devices": 3,
                "plugin-name": "simple",
                "device-id-prefix": "dev",
                "env-prefix": "DEV",
                "value-form": "id",
            },
            *({"value-form"}, "-"),
        ),
        (
            [
                daemon_set(
                    *("ghcr.io/k8snetworkplumbingwg/sriov-network-device-plugin:v3.9.0", *SRIOV),
                    hostNetwork=True,
                    **mounting("c", "/etc/pcidp"),
                ),
                config_map("c", **{"config.json": json.dumps({"resourceList": POOLS})}),
            ],
            *("rdma", {"resource-prefix": "example.com", "resourceList": POOLS}),
            *({"health", "--use-cdi", "--log-level", "hostNetwork"}, "-"),
        ),
        (
            [
                daemon_set(
                    "ghcr.io/mellanox/k8s-rdma-shared-dev-plugin",
                    *("-config-file=/x/own.json", "-use-cdi=false"),
                    **mounting("c", "/x"),
                ),
                config_map("c", **{"own.json": yaml.safe_dump(SHARED)}),
            ],
            *("rdma", SHARED, {"device ids", "permissions of device nodes", "links"}, "-use-cdi"),
        ),
    ],
)
def test_flags_and_files_of_a_peer_become_settings(
    migrate: Migrate,
    rendered: Rendered,
    documents: list[object],
    plugin: str,
    kept: object,
    said: set[str],
    unsaid: str,
) -> None:
    text = migrate(*documents)
    manifests = rendered()
    check(manifests, plugin, {"intelgpu": ["/dev"], "rdma": ["/dev", "/sys"]}.get(plugin, ()))
    assert kept == configuration(manifests)
    found = {one.partition(": ")[0] for one in differences(text)}
    assert said <= found
    assert unsaid.lstrip("-") not in {one.lstrip("-") for one in found}


def test_nvidias_static_manifest_becomes_an_overlay_of_the_gpu_plugin(
    migrate: Migrate, rendered: Rendered
) -> None:
    text = migrate(
        daemon_set(
            NVIDIA,
            "--mig-strategy=mixed",
            "--imex-channel-ids=0",
            "--kubelet-socket=/x/kubelet.sock",
            env={
                "PASS_DEVICE_SPECS": "true",
                "DP_DISABLE_HEALTHCHECKS": "62",
                "NVIDIA_DRIVER_ROOT": "",
            },
            tolerations=[{"key": "nvidia.com/gpu", "operator": "Exists"}],
            runtimeClassName="nvidia",
        )
    )
    manifests = rendered()
    check(manifests, "gpu")
    assert {
        "mig-strategy": "mixed",
        "imex-channel-ids": ["0"],
        "pass-device-specs": True,
        "fail-on-init-error": False,
        "disable-healthchecks": "62",
    } == configuration(manifests)
    assert "nvidia" == pod(manifests)["runtimeClassName"]
    said = differences(text)
    assert "tolerations: kept by a patch; without it ours tolerates all taints" in said
    assert [{"key": "nvidia.com/gpu", "operator": "Exists"}] == pod(manifests)["tolerations"]
    assert any(one.startswith("--kubelet-socket: ") for one in said)


def test_nvidias_helm_values_become_settings(migrate: Migrate, rendered: Rendered) -> None:
    text = migrate(
        {
            "migStrategy": "single",
            "failOnInitError": True,
            "compatWithCPUManager": None,
            "deviceListStrategy": ["envvar", "cdi-cri"],
            "gfd": {"enabled": True},
            "mps": {"root": "/srv/mps"},
            "resources": {"limits": {"memory": "100Mi"}},
            "nodeSelector": {"gpu": "yes"},
            "config": {
                "map": {
                    "default": "version: v1\nflags: {migStrategy: none}\n"
                    "sharing:\n  mps:\n    resources:\n"
                    "    - {name: nvidia.com/gpu, replicas: 4, rename: nvidia.com/part}\n"
                }
            },
        }
    )
    manifests = rendered()
    check(manifests, "gpu", ["/usr"])
    assert {
        "mig-strategy": "single",
        "fail-on-init-error": True,
        "sharing": {"mps": {"resources": [{"name": "nvidia.com/gpu", "replicas": 4}]}},
    } == configuration(manifests)
    (container,) = pod(manifests)["containers"]
    env = {one["name"]: one.get("value") for one in container["env"]}
    assert ("envvar,cdi-cri", "/srv/mps") == (env["DP_DEVICE_LIST_STRATEGY"], env["DP_MPS_ROOT"])
    mounts = {one["mountPath"]: one["name"] for one in container["volumeMounts"]}
    volumes = {one["name"]: one for one in pod(manifests)["volumes"]}
    assert "/srv/mps" == volumes[mounts["/mps"]]["hostPath"]["path"]
    assert {"gpu": "yes", "kubernetes.io/os": "linux"} == pod(manifests)["nodeSelector"]
    said = {one.partition(": ")[0] for one in differences(text)}
    assert {"affinity", "nodeSelector"} <= said
    assert any(
        "resources[0].rename: nvidia.com/part: their plugin" in one for one in differences(text)
    )
    assert (
        "resources.limits.memory: 100Mi; ours is 160Mi: theirs is too little for many devices"
        in (differences(text))
    )


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
    check(manifests, "gpu", ["/usr", "/run/nvidia", "/opt/driver"])
    assert volume in {one["name"] for one in pod(manifests)["volumes"]}


def test_kubectl_and_the_operator_render_an_overlay_alike(migrate: Migrate, tmp_path: Path) -> None:
    migrate(
        daemon_set(
            SQUAT,
            "--device",
            SERIAL,
            affinity={"nodeAffinity": {}},
            volumes=[{"name": "d", "hostPath": {"path": "/srv/kubelet/device-plugins"}}],
            container={
                "volumeMounts": [{"name": "d", "mountPath": "/var/lib/kubelet/device-plugins/"}]
            },
        )
    )
    real = render_by_kustomize(tmp_path)
    if real is None:
        pytest.skip("no kubectl here")
    assert _by_name(real) == _by_name(list(render(tmp_path)))
    volumes = {one["name"]: one for one in pod(real)["volumes"]}
    assert {"path": "/srv/kubelet/device-plugins", "type": "Directory"} == volumes[
        "device-plugins"
    ]["hostPath"]


def _by_name(manifests: list[Manifest]) -> list[object]:
    """Sort lists: kustomize puts what a patch names in front."""

    def in_order(part: Any) -> Any:
        if isinstance(part, dict):
            return {key: in_order(value) for key, value in sorted(part.items())}
        return sorted(map(in_order, part), key=repr) if isinstance(part, list) else part

    return list(in_order(manifests))


@pytest.mark.parametrize("strategy", ["single", "mixed"])
def test_amds_manifest_becomes_an_overlay_of_the_amd_plugin(
    migrate: Migrate, rendered: Rendered, strategy: str
) -> None:
    privileged = {"securityContext": {"privileged": True}}
    text = migrate(
        daemon_set(
            AMD,
            "-logtostderr=true",
            "-v=5",
            "-pulse=2",
            f"-resource_naming_strategy={strategy}",
            container={"command": ["./k8s-device-plugin"], **privileged},
        )
    )
    manifests = rendered()
    if strategy == "single":
        check(manifests, "amd", ["/dev"])
    assert {"resource-naming-strategy": strategy} == configuration(manifests)
    (container,) = pod(manifests)["containers"]
    assert (strategy == "mixed") == bool(container["securityContext"].get("privileged"))
    said = {one.partition(": ")[0] for one in differences(text)}
    assert {"device ids", "health", "--pulse", "--v", "privileged"} <= said
    assert (strategy == "single") == ("securityContext.privileged" in said)


def test_amds_chart_becomes_an_overlay_with_labels(migrate: Migrate, rendered: Rendered) -> None:
    text = migrate({"labeller": {"enabled": True}, "node_selector": {"a": "b"}})
    manifests = rendered()
    (container,) = pod(manifests)["containers"]
    assert "DP_LABELS_FILE" in {one["name"] for one in container["env"]}
    assert {"labeller.enabled", "node_selector"} <= {
        one.partition(": ")[0] for one in differences(text)
    }
    assert "components" not in migrate({"dp": {"image": {"tag": "1.31"}}, "nfd": {}})


@pytest.mark.parametrize(
    ("image", "mounted", "text", "key"),
    [
        (SQUAT, "/etc/generic-device-plugin", "devices: []\nlisten:\n", "devices"),
        (SQUAT, "/etc/generic-device-plugin", "devices:\n", "devices"),
        ("sriov-network-device-plugin", "/etc/pcidp", '{"resourceList": null}', "resourceList"),
        ("sriov-network-device-plugin", "/etc/pcidp", '{"resourceList": []}', "resourceList"),
    ],
)
def test_an_empty_list_of_a_peer_stays_one(
    migrate: Migrate, rendered: Rendered, image: str, mounted: str, text: str, key: str
) -> None:
    name = "config.yaml" if image == SQUAT else "config.json"
    migrate(daemon_set(image, **mounting("c", mounted)), config_map("c", **{name: text}))
    assert not configuration(rendered())[key]


def test_an_empty_file_of_smarters_stays_one(migrate: Migrate, rendered: Rendered) -> None:
    file = config_map("c", **{"conf.yaml": "[]"})
    migrate(daemon_set(SMARTER, **mounting("c", "/root/config")), file)
    assert [] == configuration(rendered())


def test_what_is_kept_of_a_pod_is_in_ours(migrate: Migrate, rendered: Rendered) -> None:
    migrate((Path(__file__).parent / "cases/squat-update-strategy.yaml").read_text())
    (ours,) = (one["spec"] for one in rendered() if one["kind"] == "DaemonSet")
    assert {"type": "OnDelete"} == {k: v for k, v in ours["updateStrategy"].items() if v}
    assert 30 == ours["minReadySeconds"]
    assert "network" == ours["template"]["metadata"]["labels"]["team"]
    assert "team" not in ours["selector"]["matchLabels"]
    found = ours["template"]["spec"]
    assert ("None", [{"name": "mirror"}]) == (found["dnsPolicy"], found["imagePullSecrets"])
    assert "Always" == found["containers"][0]["imagePullPolicy"]
