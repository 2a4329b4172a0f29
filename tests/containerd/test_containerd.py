"""Containers that a real containerd makes of what the kubelet would ask for."""

import json
import os
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc
import pytest

import deviceplugin as dp
from containers import containerd as daemon
from containers import oci_image
from containers.containerd import BUSYBOX, Containerd
from containers.cri import read_log
from containers.pod_config import NOTHING, Node, PodConfig
from deviceplugin.checks._runtime_files import Reader, of_cri
from deviceplugin.checks._runtime_socket import ask_containerd
from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from deviceplugin_generic.discovery.access import access
from deviceplugin_generic.discovery.tree import has_node
from deviceplugin_testing.simulator import RunOptions
from homes.home import LOOK, seen
from manifests.kustomize import of_kind, render
from patience import eventually

DEPLOYMENTS = Path(__file__).parents[2] / "deployments"
WAIT = ["sh", "-c", "trap 'exit 3' TERM; echo begun; sleep 100 & wait"]


class Pods:
    """Pods with one container, by their manifests."""

    def __init__(self, containerd: Containerd, root: Path) -> None:
        self.runtime, self._cgroup, self._root = containerd.runtime, containerd.cgroup, root
        self.host: dict[str, Path] = {}
        self.configs: dict[str, dict[str, str]] = {}

    def run(
        self, pod: dict[str, Any], given: RunOptions = NOTHING, **environment: str
    ) -> tuple[str, PodConfig]:
        """Return the id of the container, which waits."""
        node = Node("node-1", self._cgroup, self._root / "pods", self.host)
        config = PodConfig(pod, "1234", node, self.configs)
        (own,) = pod["spec"]["containers"]
        sandbox = self.runtime.run_pod(config.sandbox)
        asked = config.container({**own, "image": BUSYBOX, "command": WAIT}, given, **environment)
        made = self.runtime.start(sandbox, config.sandbox, asked)
        eventually(lambda: "begun" in read_log(config.log(own["name"])))
        return made, config

    def say(self, container: str, command: str) -> str:
        return self.runtime.execute(container, "sh", "-c", command).output


@pytest.fixture
def pods(containerd: Containerd, tmp_path: Path) -> Iterator[Pods]:
    yield Pods(containerd, tmp_path)
    for pod in containerd.runtime.pods():
        containerd.runtime.remove_pod(pod)
    assert [] == containerd.shims()


def simple(**container: object) -> dict[str, Any]:
    own = {"name": "main", **container}
    return {"metadata": {"name": "simple"}, "spec": {"containers": [own]}}


def test_a_plugins_container_has_what_its_manifest_says_and_no_more(
    pods: Pods, tmp_path: Path
) -> None:
    manifests = render(DEPLOYMENTS / "gopher")
    pod = {**of_kind(manifests, "DaemonSet")["spec"]["template"], "metadata": {"name": "gopher"}}
    config_map = of_kind(manifests, "ConfigMap")
    pods.configs = {config_map["metadata"]["name"]: config_map["data"]}
    for volume in pod["spec"]["volumes"]:
        if "hostPath" in volume:
            path = tmp_path / volume["name"]
            path.mkdir()
            pods.host[volume["hostPath"]["path"]] = path
    container, _ = pods.run(pod, DP_HTTP_ADDRESS="off")
    status = pods.say(container, "cat /proc/1/status")
    rights = dict(
        re.findall(r"^(Uid|NoNewPrivs|Seccomp|CapEff|CapBnd):\s+(\w+)", status, re.MULTILINE)
    )
    none = "0000000000000000"
    expected = {"Uid": "0", "NoNewPrivs": "1", "Seccomp": "2", "CapEff": none, "CapBnd": none}
    assert expected == rights
    given = seen(pods.say(container, LOOK))
    assert "off" == given.envs["DP_HTTP_ADDRESS"]
    folders = ("/", "/etc/gophers", "/var/lib/kubelet/device-plugins", "/dev/termination-log")
    assert [True, True, False, False] == [given.mounts[folder] for folder in folders]
    assert "no" == pods.say(container, "touch /etc/gophers/x || echo no").strip()
    pods.say(container, "echo here > /var/lib/kubelet/device-plugins/x")
    assert "here\n" == (tmp_path / "device-plugins/x").read_text()


def test_a_container_gets_what_a_plugin_answered(pods: Pods, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("from the host\n")
    options = RunOptions(
        {"GIVEN": "by the plugin", "BOTH": "by the plugin"},
        [pb.Mount(container_path="/here", host_path=str(tmp_path / "file"), read_only=True)],
        [pb.DeviceSpec(container_path="/dev/mine", host_path="/dev/tty0", permissions="r")],
        {"example.com/note": "x"},
        (),
    )
    env = [{"name": "BOTH", "value": "by the pod"}]
    container, _ = pods.run(simple(env=env), options)
    given = seen(pods.say(container, LOOK), dict(pods.runtime.status(container).annotations))
    assert ("by the plugin", "by the pod") == (given.envs["GIVEN"], given.envs["BOTH"])
    assert given.mounts["/here"]
    assert "from the host\n" == pods.say(container, "cat /here")
    assert "/dev/mine" in given.nodes
    assert (
        "r" == pods.say(container, "(: < /dev/mine) && echo r; (: >> /dev/mine) && echo w").strip()
    )
    assert {"example.com/note": "x"} == given.annotations


def test_a_container_gets_what_a_cdi_specification_has(
    pods: Pods, containerd: Containerd, tmp_path: Path
) -> None:
    if missing := daemon.why_no_cdi():
        pytest.skip(missing)
    hook = tmp_path / "hook"
    hook.write_text(f"#!/bin/sh\ncat > {tmp_path}/state\n")
    hook.chmod(0o755)
    edits = {
        "env": ["GIVEN=by CDI"],
        "deviceNodes": [{"path": "/dev/mine", "hostPath": "/dev/tty0"}],
        "hooks": [{"hookName": "createRuntime", "path": str(hook)}],
    }
    device = {"name": "one", "containerEdits": edits}
    specification = {"cdiVersion": "0.5.0", "kind": "example.com/test", "devices": [device]}
    path = containerd.cdi / "example.json"
    path.write_text(json.dumps(specification))
    container, _ = pods.run(simple(), RunOptions({}, (), (), {}, ("example.com/test=one",)))
    path.unlink()
    given = seen(pods.say(container, LOOK))
    assert "by CDI" == given.envs["GIVEN"]
    assert "/dev/mine" in given.nodes
    assert container == json.loads((tmp_path / "state").read_text())["id"]


@pytest.mark.parametrize(
    ("grace", "status"),
    [pytest.param(10, 3, id="it ends by itself"), pytest.param(0, 137, id="it is killed")],
)
def test_a_container_has_as_long_to_end_as_it_is_given(pods: Pods, grace: int, status: int) -> None:
    container, _ = pods.run(simple())
    pods.runtime.stop(container, grace)
    assert status == pods.runtime.status(container).exit_code
    assert pods.runtime.has_ended(container)


def test_a_device_that_is_not_there_starts_no_container(pods: Pods) -> None:
    device = pb.DeviceSpec(container_path="/dev/x", host_path="/dev/not-there", permissions="rw")
    options = RunOptions({}, (), [device], {}, ())
    with pytest.raises(grpc.RpcError, match="/dev/not-there"):
        pods.run(simple(), options)


def test_a_directory_as_a_device_gives_the_nodes_in_it_that_the_generic_plugin_counts(
    pods: Pods, tmp_path: Path
) -> None:
    for name in ("real", "sub/real", "pts/real", "links/none"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
    for name in ("real", "sub/real", "pts/real", "console"):
        os.mknod(tmp_path / name, 0o020600, os.makedev(1, 3))
    (tmp_path / "plain").touch()
    (tmp_path / "links/link").symlink_to("../real")
    device = pb.DeviceSpec(container_path="/dev/inside", host_path=str(tmp_path), permissions="mrw")
    container, _ = pods.run(simple(), RunOptions({}, (), [device], {}, ()))
    given = pods.say(container, "cd /dev/inside; find . -type c; find . -type l").split()
    assert ["./real", "./sub/real"] == sorted(given)
    counted = [one for one in ("", "sub", "links", "pts") if has_node(str(tmp_path / one))]
    assert ["", "sub", "pts"] == counted


@pytest.mark.slow  # a second containerd
def test_a_pod_that_is_not_root_opens_what_its_groups_or_the_runtime_let_it(
    pods: Pods, tmp_path: Path
) -> None:
    nodes = {"of-29": (0o660, 29), "nameless": (0o660, 54321), "other": (0o660, 54322)}
    nodes |= {"closed": (0o600, 0), "open": (0o666, 0), "in/closed": (0o600, 0)}
    (tmp_path / "in").mkdir()
    for name, (mode, group) in nodes.items():
        os.mknod(tmp_path / name, 0o020000, os.makedev(1, 3))
        (tmp_path / name).chmod(mode)
        os.chown(tmp_path / name, 0, group)
    given = [
        pb.DeviceSpec(container_path=f"/dev/x/{name}", host_path=str(tmp_path / name))
        for name in [*(one for one in nodes if "/" not in one), "in"]
    ]
    for one in given:
        one.permissions = "rw"
    options = RunOptions({}, (), given, {}, ())
    pod = simple(
        securityContext={"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True}
    )
    own = {"runAsUser": 1000, "runAsGroup": 1000, "supplementalGroups": [29, 54321]}
    pod["spec"]["securityContext"] = own
    opened = "cd /dev/x; for one in * in/*; do (: <> $one) 2> /dev/null && echo $one; done"

    def opens(where: Pods) -> list[str]:
        container, _ = where.run(pod, options)
        return sorted(where.say(container, opened).split())

    found = access(dp.DeviceNode(one.host_path) for one in given)
    refused = {*found.closed, *found.groups[54322]}
    assert {"closed", "other", "in/closed"} == {one.removeprefix(f"{tmp_path}/") for one in refused}
    assert sorted({*nodes} - {"closed", "other", "in/closed"}) == opens(pods)
    with (
        TemporaryDirectory(prefix="containerd-") as folder,
        Containerd(Path(folder), gives_devices=True) as giving,
    ):
        assert ask_containerd(giving.root / "containerd.sock", 20).section.gives_devices
        assert sorted(nodes) == opens(Pods(giving, Path(folder)))


def test_an_image_that_is_not_named_in_full_is_no_image_for_pods(
    containerd: Containerd, tmp_path: Path
) -> None:
    archive, program = tmp_path / "image.tar", oci_image.busybox()
    assert program is not None
    oci_image.write_busybox(archive, "plugin:1", program, "sh")
    with pytest.raises(AssertionError, match="no pod can name the image plugin:1"):
        containerd.load(archive, "plugin:1", 0.5)
    oci_image.write_busybox(archive, "docker.io/library/plugin:1", program, "sh")
    containerd.load(archive, "plugin:1")


@pytest.mark.parametrize("killed", [False, True])
def test_nothing_is_left_of_a_containerd_whose_containers_run(killed: bool) -> None:
    if missing := daemon.why_not():
        pytest.skip(missing)
    with TemporaryDirectory(prefix="containerd-") as folder:
        root = Path(folder)
        with Containerd(root) as running:
            Pods(running, root).run(simple())
            assert running.shims()
            assert running.mounts()
            if killed:
                running.kill()
        assert ([], []) == (running.shims(), running.mounts())
        assert [] == [*Path("/sys/fs/cgroup").glob(f"**{running.cgroup}")]


def test_the_doctor_hears_what_containerd_runs_with(containerd: Containerd) -> None:
    found = ask_containerd(containerd.root / "containerd.sock", 20)
    written = Reader(Path("/")).containerd(f"{containerd.root}/config.toml", is_2=found.is_2)
    assert "runc" == found.section.default
    assert (written.programs, written.systemd) == (found.section.programs, found.section.systemd)


def test_files_are_merged_as_containerd_merges_them(containerd: Containerd, tmp_path: Path) -> None:
    cri = '[plugins."io.containerd.grpc.v1.cri".containerd'
    nvidia = f'{cri}.runtimes.nvidia.options]\nBinaryName = "/bin/n"\n'
    for name, text in {
        "config.toml": f'imports = ["{tmp_path}/*.d/[^b]*.toml"]\n{nvidia}SystemdCgroup = true\n',
        "x.d/a.toml": f'imports = ["../config.toml"]\n{cri}]\ndefault_runtime_name = "nvidia"\n',
        "x.d/b.toml": f'{cri}]\ndefault_runtime_name = "b"\n',
        "x.d/.c.toml": nvidia.replace("/n", "/c"),
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"version = 2\n{text}")
    main = f"{tmp_path}/config.toml"
    words = ["containerd", "--config", main, "config", "dump"]
    dumped = tomllib.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    is_2 = ask_containerd(containerd.root / "containerd.sock", 20).is_2
    plugin = "io.containerd.cri.v1.runtime" if is_2 else "io.containerd.grpc.v1.cri"
    expected = of_cri(dumped["plugins"][plugin], cdi=None)
    found = Reader(Path("/")).containerd(main, is_2=is_2)
    assert expected.programs.get("nvidia") == found.programs.get("nvidia")
    assert expected.systemd.get("nvidia") == found.systemd.get("nvidia")
    assert expected.default == (found.default or "runc")
