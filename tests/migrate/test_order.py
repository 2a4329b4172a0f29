"""The commands of a migration: who is stopped, what is removed, and what a kubelet makes of it."""

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from typing_extensions import override

import deviceplugin as dp
from deviceplugin.__main__ import main
from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from deviceplugin_testing.fixture import Kubelet
from deviceplugin_testing.simulator import (
    Behaviour,
    KubeletConfig,
    Observer,
    Pod,
    SimulatedKubelet,
    StubPlugin,
)
from migration.lamp import install
from migration.peers import daemon_set
from scripted_plugin import ScriptedPlugin

RESOURCE = "example.com/thing"
IDS = {"one", "two"}
LAMP = (
    'plugin="generic", configuration={"devices": []}, removed=["the labels of GFD: jobs need them"]'
)
Object = dict[str, Any]


@pytest.fixture
def commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Any:
    """Return what migrates a document and returns the lines of the order."""
    install(tmp_path, monkeypatch, LAMP)

    def lines(document: Object, *words: str, text: str = "") -> list[str]:
        path = tmp_path / "peer.yaml"
        path.write_text(text or yaml.safe_dump(document), encoding="utf-8")
        back = ["back"] if "back" in words else []
        flags = [one for one in words if one != "back"]
        assert 0 == main(["migrate", *back, str(path), "--partial", *flags])
        out = capsys.readouterr().out
        return [line[2:] for line in out.splitlines() if line.startswith("# ")]

    return lines


def peer(namespace: str = "hw", **metadata: Any) -> Object:
    found = daemon_set("lamp-plugin:1")
    found["metadata"] |= {"namespace": namespace, **metadata}
    return found


def owned(kind: str, api: str) -> Object:
    return peer(ownerReferences=[{"apiVersion": api, "kind": kind, "name": "main", "uid": "1"}])


def merged(target: str, patch: str) -> str:
    return f"    kubectl {target} --type merge --patch '{patch}'"


def scaled(namespace: str, deployment: str) -> str:
    return f"    kubectl --namespace {namespace} scale deployment {deployment} --replicas 0"


RELEASE = "--namespace n patch helmrelease r"
DELETED = "    kubectl --namespace hw delete daemonset peer"
IN_GIT = "in Git, or the Application if that has nothing else.)"
STOPS = [
    (peer(), [], [DELETED]),
    (
        peer(annotations={"meta.helm.sh/release-name": "r", "meta.helm.sh/release-namespace": "n"}),
        [],
        ["    helm uninstall r --namespace n"],
    ),
    (
        peer(labels={"helm.toolkit.fluxcd.io/name": "r", "helm.toolkit.fluxcd.io/namespace": "n"}),
        [merged(RELEASE, '{"spec":{"suspend":true}}')],
        [merged(RELEASE, '{"spec":{"suspend":false}}')],
    ),
    (
        peer(annotations={"argocd.argoproj.io/tracking-id": "app:apps/DaemonSet:hw/peer"}),
        [
            merged(
                "--namespace argocd patch application app",
                '{"spec":{"syncPolicy":{"automated":null}}}',
            )
        ],
        [f"(Then delete it where it came from: {IN_GIT}"],
    ),
    (
        owned("GpuDevicePlugin", "deviceplugin.intel.com/v1"),
        [scaled("inteldeviceplugins-system", "inteldeviceplugins-controller-manager")],
        ["    kubectl delete gpudeviceplugin main"],
    ),
    (
        owned("DeviceConfig", "amd.com/v1alpha1"),
        [scaled("kube-amd-gpu", "amd-gpu-operator-controller-manager")],
        [
            merged(
                "patch deviceconfig main", '{"spec":{"devicePlugin":{"enableDevicePlugin":false}}}'
            )
        ],
    ),
    (
        owned("SriovOperatorConfig", "sriovnetwork.openshift.io/v1"),
        [scaled("sriov-network-operator", "sriov-network-operator")],
        [DELETED],
    ),
]


@pytest.mark.parametrize(("document", "stops", "ends"), STOPS)
def test_who_would_take_the_patch_back_is_stopped_first(
    commands: Any, document: Object, stops: Sequence[str], ends: Sequence[str]
) -> None:
    lines = commands(document)
    (patch,) = (line for line in lines if " patch daemonset " in line)
    (last,) = (n for n, line in enumerate(lines) if line.startswith("6. "))
    assert "With it goes: the labels of GFD: jobs need them." in " ".join(lines[last : last + 2])
    for line in stops:
        assert lines.index(line) < lines.index(patch)
    for line in ends:
        assert last < lines.index(line)


def test_the_patch_restarts_no_pod_and_selects_the_nodes_that_are_labelled_before(
    commands: Any,
) -> None:
    lines = commands(peer())
    (number,) = (n for n, line in enumerate(lines) if " patch daemonset " in line)
    patch = json.loads(lines[number].partition("--patch ")[2].strip("'"))
    assert {"type": "OnDelete", "rollingUpdate": None} == patch["spec"]["updateStrategy"]
    ((label, value),) = patch["spec"]["template"]["spec"]["nodeSelector"].items()
    assert f"{label}={value}" in lines[number - 1]
    assert lines[number - 1].endswith("&&")
    assert f"    kubectl label node $NODE --overwrite {label}-" in lines


def test_the_gpu_operators_plugin_leaves_by_its_label(commands: Any) -> None:
    lines = commands(owned("ClusterPolicy", "nvidia.com/v1"))
    assert not [line for line in lines if " patch daemonset " in line]
    away = "kubectl label nodes --all --overwrite nvidia.com/gpu.deploy.device-plugin=false"
    assert f"    {away}" in lines
    switch = '\'{"spec":{"devicePlugin":{"enabled":false}}}\''
    assert f"    kubectl patch clusterpolicy main --type merge --patch {switch}" in lines
    back = commands(owned("ClusterPolicy", "nvidia.com/v1"), "back")
    stay = "kubectl label node $NODE --overwrite nvidia.com/gpu.deploy.device-plugin=true"
    assert f"    {stay}" in back
    assert not [line for line in back if " patch daemonset " in line]


def test_values_do_not_say_what_the_daemon_set_is_called(commands: Any) -> None:
    values = "image: {repository: lamp-plugin}\n"
    lines = commands({}, text=values)
    assert "    PEER=its-daemonset PEER_NAMESPACE=its-namespace" in lines
    assert "    helm uninstall RELEASE" in lines
    assert [line for line in lines if "--namespace $PEER_NAMESPACE patch daemonset $PEER" in line]
    back = commands({}, "back", text=values)
    assert "    PEER=its-daemonset PEER_NAMESPACE=its-namespace" in back
    assert [line for line in back if "as it was installed" in line]


def test_the_image_is_pulled_with_the_secrets_that_there_are(commands: Any) -> None:
    document = peer()
    document["spec"]["template"]["spec"]["imagePullSecrets"] = [{"name": "login"}]
    (line,) = (one for one in commands(document, "--image=a.example/b:1") if " run " in one)
    assert line.startswith("    kubectl --namespace hw run device-plugin-image ")
    assert "--image a.example/b:1 " in line
    assert '"imagePullSecrets":[{"name":"login"}]' in line


def test_names_of_an_input_do_not_become_commands(commands: Any) -> None:
    odd = "x'; rm y; '"
    document = owned(odd, "amd.com/v1")
    document["metadata"] |= {"name": odd, "namespace": odd}
    document["metadata"]["ownerReferences"][0]["name"] = odd
    document["spec"]["template"]["spec"]["imagePullSecrets"] = [{"name": odd}]
    lines = [line for line in commands(document) if line.startswith("    ")]
    words = [shlex.split(line.replace("'$NODE'", "n"), comments=True) for line in lines]
    assert not [one for one in words if "rm" in one]


@pytest.mark.parametrize(
    ("form", "line"),
    [
        ("kustomize", "    kubectl delete -k ."),
        ("operator", "    kubectl delete deviceplugin generic"),
        ("helm-values", "    helm uninstall generic-device-plugin"),
        (
            "helmrelease",
            "    kubectl --namespace flux-system delete helmrelease generic-device-plugin",
        ),
        ("application", "    kubectl --namespace argocd delete application generic-device-plugin"),
    ],
)
def test_on_the_way_back_ours_leaves_each_node_before_the_other_comes(
    commands: Any, form: str, line: str
) -> None:
    lines = commands(peer(), "back", f"--output={form}")
    away, back = (
        next(
            n
            for n, one in enumerate(lines)
            if f"migrate.deviceplugin.dev/generic-{who}" in one and "label node $NODE" in one
        )
        for who in ("ours", "peer")
    )
    assert lines.index("    kubectl cordon $NODE") < away < back < lines.index(line)


def test_on_the_way_back_the_keeper_goes_on_last(commands: Any) -> None:
    lines = commands(owned("GpuDevicePlugin", "deviceplugin.intel.com/v1"), "back")
    scales = [n for n, line in enumerate(lines) if " scale deployment " in line]
    (deleted,) = (n for n, line in enumerate(lines) if "delete -k" in line)
    assert scales[0] < deleted < scales[1]


class Lists(Observer):
    """Records how many devices each list has."""

    def __init__(self) -> None:
        self.counts: list[int] = []

    @override
    def listed(self, resource: str, devices: Sequence[pb.Device]) -> None:
        self.counts.append(len(devices))


@pytest.mark.parametrize("drops", [True, False], ids=["1.36", "fixed"])
def test_a_node_has_its_devices_when_ours_takes_over_and_the_other_leaves(
    kubelet: Kubelet, drops: bool
) -> None:
    lists, user = Lists(), Pod.of("user", main={RESOURCE: 1})
    defects = Behaviour.v1_36() if drops else Behaviour.fixed()
    kubelet.simulated.stop()
    node = SimulatedKubelet(kubelet.simulated.root, behaviour=defects, observer=lists)
    kubelet.simulated = node
    allocatable = []

    def report() -> None:
        node.tick()
        allocatable.append(node.node.allocatable[RESOURCE])

    with kubelet, StubPlugin(node.plugin_dir, RESOURCE, IDS, name="other.sock") as other:
        node.wait_for(RESOURCE, IDS)
        assert node.run(user)
        held = node.held(user)
        report()
        with kubelet.running(ScriptedPlugin(*map(dp.Device, sorted(IDS)))):
            node.wait(lambda: node.registration_count(RESOURCE) == 2, what="ours to register")
            node.wait(lambda: len(lists.counts) == 2, what="our list")
            report()
            assert node.socket_of(RESOURCE) != other.socket
            other.stop()
            if drops:  # for some milliseconds
                node.wait(lambda: node.registration_count(RESOURCE) == 3, what="ours to notice")
                node.wait_for(RESOURCE, IDS)
            report()
            assert node.run(Pod.of("next", main={RESOURCE: 1}))
            assert held == node.held(user)
            assert node.pod(user).running
    assert [2, 2, 2] == allocatable
    assert {2} == {*lists.counts}


def test_one_that_the_plugin_watcher_has_found_takes_the_resource_along_twice(
    kubelet: Kubelet,
) -> None:
    kubelet.simulated.stop()
    config = KubeletConfig(watch_interval=None)
    node = kubelet.simulated = SimulatedKubelet(kubelet.simulated.root, config=config)
    other = StubPlugin(node.registry_dir, RESOURCE, IDS, name="other.sock")
    with kubelet:
        other.start()
        node.watch()
        node.wait_for(RESOURCE, IDS)
        with kubelet.running(ScriptedPlugin(*map(dp.Device, sorted(IDS)))):
            node.wait(lambda: node.registration_count(RESOURCE) == 1, what="ours to register")
            node.wait(lambda: node.socket_of(RESOURCE) != other.socket, what="our list")
            other.stop()
            node.wait(lambda: node.registration_count(RESOURCE) == 2, what="ours to notice")
            node.wait_for(RESOURCE, IDS)
            node.watch()  # its socket has gone
            node.wait(lambda: node.registration_count(RESOURCE) == 3, what="ours to notice again")
            node.wait_for(RESOURCE, IDS)


def test_on_the_way_back_the_other_plugin_starts_when_ours_has_left(kubelet: Kubelet) -> None:
    node, user = kubelet.simulated, Pod.of("user", main={RESOURCE: 1})
    with StubPlugin(node.plugin_dir, RESOURCE, IDS, name="other.sock") as other:
        node.wait_for(RESOURCE, IDS)
        with kubelet.running(ScriptedPlugin(*map(dp.Device, sorted(IDS)))):
            node.wait(lambda: node.registration_count(RESOURCE) == 2, what="ours to register")
            node.wait(lambda: node.socket_of(RESOURCE) != other.socket, what="our list")
            assert node.run(user)
            held = node.held(user)
        # This is why: the other is there all the time, and has nothing to give.
        node.wait_for(RESOURCE, (), IDS)
    with StubPlugin(node.plugin_dir, RESOURCE, IDS, name="other.sock"):
        node.wait_for(RESOURCE, IDS)
        assert held == node.held(user)
