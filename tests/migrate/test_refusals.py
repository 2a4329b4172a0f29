"""What cannot be migrated is refused, with file, document, key and value."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from deviceplugin.__main__ import main
from migration.peers import config_map, daemon_set, mounting
from migration.releases import APP_TEMPLATE, helm_release

Refusal = Callable[..., str]
SQUAT = "squat/generic-device-plugin:0.2.1"
SMARTER = "smarter-device-manager"
NVIDIA = "nvcr.io/nvidia/k8s-device-plugin:v0.20.0"
SERIAL = "name: serial\ngroups:\n- paths: [{path: /dev/ttyUSB*}]\n"
IN_POD = "peer.yaml: document 1: DaemonSet kube-system/peer: containers[0]: "


def device_config(**plugin: object) -> dict[str, object]:
    """Return an object of AMD's operator."""
    spec = {"devicePlugin": plugin}
    return {"apiVersion": "amd.com/v1alpha1", "kind": "DeviceConfig", "spec": spec}


def sriov(file: str, *flags: str) -> list[object]:
    """Return the SR-IOV network device plugin, and its file."""
    peer = daemon_set("x/sriov-network-device-plugin", *flags, **mounting("c", "/etc/pcidp"))
    return [peer, config_map("c", **{"config.json": file})]


@pytest.fixture
def refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Refusal:
    """Return what migrates documents and returns the error."""

    def error(*documents: object, flags: tuple[str, ...] = ()) -> str:
        texts = [one if isinstance(one, str) else yaml.safe_dump(one) for one in documents]
        path = tmp_path / "peer.yaml"
        path.write_text("\n---\n".join(texts), encoding="utf-8")
        assert 2 == main(["migrate", str(path), *flags])
        out, err = capsys.readouterr()
        assert "" == out
        lines = [line.removeprefix("deviceplugin migrate: ") for line in err.splitlines()]
        return "\n".join(lines).replace(f"{tmp_path}/", "")

    return error


ELSEWHERE = "{name: tun, groups: [{paths: [{path: /host/tun}]}]}"


def mounted_at(path: object) -> dict[str, object]:
    return {"volumeMounts": [{"name": "v", "mountPath": path}]}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["serial"], "args: 'serial' is not a flag"),
        (["--devise", SERIAL], "args: '--devise': the peer has no flag --devise"),
        (["--device"], "args: '--device': has no value"),
        (
            ["--device", "name: a"],
            "args: --device: name: 'a' is not lower-case letters, digits and hyphens, 2 to 63",
        ),
        (
            ["--device", SERIAL.replace("paths:", "pats:")],
            "args: --device: line 3: groups[0].pats: unknown key: did you mean 'paths'?",
        ),
        ([], "has no devices: neither --device nor a file"),
        (["--config=/c/x.yaml"], "the file /c/x.yaml of --config is not in the manifest"),
        (["--device", SERIAL, "--domain=A_"], "args: --domain: 'A_' is not lower-case labels"),
        (
            ["--device", SERIAL, "--log-level=loud"],
            "args: --log-level: 'loud' is not one of their log levels",
        ),
    ],
)
def test_what_is_wrong_with_flags_of_squat_is_named(
    refused: Refusal, arguments: list[str], message: str
) -> None:
    assert message in refused(daemon_set(SQUAT, *arguments)).removeprefix(IN_POD)


def test_without_any_plugin_it_says_which_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("deviceplugin_cli.migrate._cli.GROUP", "none")
    path = tmp_path / "peer.yaml"
    path.write_text(yaml.dump(daemon_set("example.com/other:1")))
    assert 2 == main(["migrate", str(path)])
    said = "no plugin is installed beside this command: install the one that is to replace it\n"
    assert capsys.readouterr().err.endswith(said)


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        (["a: [1"], "peer.yaml:1: "),
        (["{{ .Values.x }}: 1"], "; a Helm template has to be rendered first"),
        (["- 1"], "peer.yaml: document 1: is not a mapping with keys"),
        ([""], "peer.yaml: is empty"),
        (["[" * 400], "peer.yaml"),
        (["a: 2026-99-99"], "peer.yaml: "),
        (
            [config_map("a")],
            "peer.yaml: has no DaemonSet and no Helm values; the installed plugins",
        ),
        ([{"kind": "DaemonSet"}], "spec.template.spec: is missing"),
        ([{"kind": "DaemonSet", "spec": {"template": {"spec": 3}}}], "spec: 3 is not a mapping"),
        (
            [{"kind": "DaemonSet", "spec": {"template": {"spec": {"containers": 3}}}}],
            "containers: 3 is not a list of mappings",
        ),
        (
            [daemon_set("example.com/other:1")],
            "image 'example.com/other': not a device plugin that",
        ),
        ([{"a": 1, "b": 2}], "Helm values with the keys a, b: not a device plugin that we know"),
        ([daemon_set("example.com/k8s-device-plugin")], "not a device plugin that we know"),
        ([daemon_set(SQUAT, env={"DP_CONFIG": "/x"})], "not a device plugin that we know"),
        (
            [daemon_set(SQUAT, container={"command": ["/bin/sh", "-c", "x; y"]})],
            "command: '/bin/sh' is not a plugin: what a shell starts cannot be read",
        ),
        ([daemon_set(SQUAT, container={"args": [1]})], "args: [1] is not a list of strings"),
        (
            [daemon_set(SQUAT, "--device", SERIAL, tolerations=5)],
            "document 1: spec.template.spec.tolerations: 5 is not a list of mappings",
        ),
        (
            [daemon_set(SQUAT, "--device", ELSEWHERE, container=mounted_at(5))],
            "volumeMounts[v].mountPath: 5 is not a string",
        ),
        (
            [
                daemon_set(
                    SQUAT,
                    *("--device", ELSEWHERE),
                    container=mounted_at("/host"),
                    volumes=[{"name": "v", "hostPath": "x"}],
                )
            ],
            "volumes[v].hostPath: 'x' is not a mapping",
        ),
        (
            [daemon_set(SQUAT, **mounting("c", "/c")), {**config_map("c"), "data": [1]}],
            "ConfigMap c: data: [1] is not a mapping of strings",
        ),
        (
            [daemon_set(SMARTER, **mounting("c", "/root/config"))],
            "/root/config/conf.yaml, which is mounted there, is not in the manifest",
        ),
        (
            [{"image": SMARTER, "config": []}],
            "has no devices, so those of the chart apply",
        ),
        ([{"image": SMARTER, "config": [{"devicematch": "("}]}], "conf.yaml: [0]"),
        (
            [{"image": SMARTER, "config": [{"devicematch": "nvidia-gpu", "nummaxdevices": 1}]}],
            "has no rules",
        ),
        (
            [daemon_set("intel-gpu-plugin", "-shared-dev-num=two")],
            "'two' is not a number of shares",
        ),
        (
            [daemon_set("intel-gpu-plugin", "-allocation-policy=x")],
            "'x' is not one of none, balanced",
        ),
        ([daemon_set("intel-gpu-plugin", "-enable-monitoring=x")], "'x' is not true or false"),
        ([daemon_set("intel-gpu-plugin", "-allow-ids=0x1")], "'0x1' is not a list of PCI ids in"),
        (
            [helm_release("app-template", {**APP_TEMPLATE, "persistence": 5})],
            "persistence: 5 is not a mapping",
        ),
        ([daemon_set("intel-gpu-plugin", nodeSelector=5)], "nodeSelector: 5 is not a mapping"),
        (
            [daemon_set("intel-gpu-plugin", nodeSelector={"gpu": True})],
            "nodeSelector.gpu: True is not a string: put it in quotes",
        ),
        ([daemon_set("rocm/k8s-device-plugin:labeller-1.3")], "containers[0]: the labeller: "),
        (
            [daemon_set("rocm/k8s-device-plugin", "-resource_naming_strategy=x")],
            "'x' is not one of single, mixed",
        ),
        ([{"dp": {"args": "-pulse=1"}}], "dp.args: not understood"),
        (
            [device_config(enableDevicePlugin="no")],
            "spec.devicePlugin.enableDevicePlugin: 'no' is not true or false",
        ),
        (
            [device_config(kubeletSocketPath="dp")],
            "kubeletSocketPath: 'dp' is not an absolute path",
        ),
        ([device_config(imageRegistrySecret={"name": 5})], "{'name': 5} is not a name of a secret"),
        (
            [daemon_set("nfvpe/sriov-device-plugin")],
            "its configuration /etc/pcidp/config.json is not in the manifest",
        ),
        (
            sriov('{"resourceList": [{"resourceName": "a.b"}]}'),
            "resourceList[0].resourceName: 'a.b' is not a name of letters, digits, - and _",
        ),
        (sriov('{"configList": []}'), "configList: unknown key"),
        (
            sriov('{"resourceList": [{"resourceName": "a"}]}', "--resource-prefix=a_b"),
            "'a_b/a' is not the name of a resource: the domain must be",
        ),
        ([daemon_set("intel-fpga-plugin", "-mode=$(NONE)$$")], "'$(NONE)$' is not one of"),
        ([daemon_set("intel-fpga-plugin", "-mode=x")], "'x' is not one of af, region, regiondevel"),
        ([daemon_set(NVIDIA, "--pass-device-specs=maybe")], "'maybe' is not true or false"),
        ([daemon_set(NVIDIA, "--mps-root=mps")], "--mps-root: 'mps' is not an absolute path"),
        ([daemon_set(NVIDIA, "--config-file=/c")], "the file /c of --config-file is not in"),
        ([{"gfd": 3}], "gfd: 3 is not a mapping"),
        (
            [{"gfd": {}, "config": {"name": "mine"}}],
            "config.name: the ConfigMap 'mine' is not in the values",
        ),
        ([{"gfd": {}, "config": {"map": "x"}}], "config.map: 'x' is not a mapping of files"),
        (
            [{"gfd": {}, "config": {"map": {"a": "flags: {x: 1}"}}}],
            "config.map.a: flags.x: unknown key",
        ),
        (
            [{"gfd": {}, "config": {"map": {"a": "version: v1", "b": ""}, "default": "c"}}],
            "config.default: 'c' is not one of a, b",
        ),
    ],
)
def test_what_cannot_be_migrated_is_refused(
    refused: Refusal, documents: list[object], message: str
) -> None:
    assert message in refused(*documents)


@pytest.mark.parametrize(
    ("image", "said"),
    [
        ("quay.io/kubevirt/device-plugin-kvm", "domain: devices.kubevirt.io"),
        ("quay.io/kubevirt/device-plugin-network-bridge", "an old plugin of KubeVirt"),
        ("registry/kubevirt/virt-handler:v1.5.0", "KubeVirt itself, whose device plugins stay"),
        ("ghcr.io/project-akri/akri/agent-full:v0.13.8", "kubectl get configurations.akri.sh"),
        ("everpeace/k8s-hostpath-device-plugin:0.1", "type: Mount"),
        ("everpeace/k8s-host-device-plugin", "a path for each device"),
        ("soolaugust/fuse-device-plugin:v1.0", "domain: github.com"),
        ("ghcr.io/nextflow-io/k8s-fuse-plugin:v1.0", "domain: nextflow.io"),
        ("x/usbip-device-plugin", "devices of other machines"),
        ("kkohtaka/edgetpu-device-plugin", "product: '9302'"),
        ("ghcr.io/collabora/k8s-socketcan:1", "virtual CAN interfaces stay with it"),
    ],
)
def test_other_plugins_are_named_with_what_takes_their_place(
    refused: Refusal, image: str, said: str
) -> None:
    error = refused(daemon_set(image))
    assert said in error
    assert "not a device plugin that we know" not in error


def test_several_peers_are_chosen_by_name(
    refused: Refusal, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other: dict[str, Any] = daemon_set("intel-fpga-plugin")
    other["metadata"]["name"] = "fpga"
    both = {
        "apiVersion": "v1",
        "kind": "List",
        "items": [daemon_set(SQUAT, "--device", SERIAL), other],
    }
    error = refused(both)
    several = "there are several: choose one with --name, or all with --directory: peer.yaml: "
    assert several in error
    assert "no DaemonSet is called x" in refused(both, flags=("--name=x",))
    assert 0 == main(["migrate", str(tmp_path / "peer.yaml"), "--name", "fpga"])
    assert "taken for the FPGA plugin" in " ".join(capsys.readouterr().out.split("\n# "))


def test_files_that_cannot_be_read_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "odd").write_bytes(b"a: \xff")
    assert 2 == main(["migrate", str(tmp_path / "absent")])
    assert 2 == main(["migrate", str(tmp_path / "odd")])
    assert 2 == main(["migrate", "-", "--config=-"])
    monkeypatch.setattr("deviceplugin_cli.migrate._documents._MOST_BYTES", 2)
    assert 2 == main(["migrate", str(tmp_path / "odd")])
    assert [
        "absent: No such file or directory",
        "odd:1: invalid start byte of UTF-8",
        "standard input cannot be both the manifest and --config",
        "odd: is longer than 2 bytes",
    ] == [
        line.removeprefix("deviceplugin migrate: ").removeprefix(f"{tmp_path}/")
        for line in capsys.readouterr().err.splitlines()
    ]


def test_what_a_manifest_says_cannot_leave_its_comment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = daemon_set("intel-fpga-plugin", serviceAccountName="a\nresources: [evil]\u2028x")
    (tmp_path / "peer.yaml").write_text(yaml.safe_dump(document))
    assert 0 == main(["migrate", str(tmp_path / "peer.yaml")])
    text = capsys.readouterr().out
    assert ["device-plugins/deployments/fpga"] == yaml.safe_load(text)["resources"]
