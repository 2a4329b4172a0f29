"""What the doctor finds by asking the sockets of all plugins, whoever wrote them."""

import os
import socket
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from deviceplugin._app.exit_status import FAILED
from deviceplugin.checks import Node
from deviceplugin.tools.doctor._check import run
from deviceplugin.tools.doctor._cli import main
from deviceplugin.tools.doctor.checks import KUBELET
from deviceplugin_testing.simulator import SimulatedKubelet, StubError, StubPlugin
from hardware.healthy_node import RESOURCE, write

GPU = "nvidia.com/gpu"
SQUAT = b64encode(b"squat.ai/serial").decode()
(CHECK,) = [one for one in KUBELET if one.name == "plugins"]
Serve = Callable[..., StubPlugin]


@pytest.fixture
def node(root: Path) -> Node:
    """A node with both directories and no plugin."""
    node = Node.at_root(root)
    node.plugin_dir.mkdir(parents=True)
    node.registry_dir.mkdir()
    return replace(node, timeout=5.0)


@pytest.fixture
def serve(node: Node) -> Iterator[Serve]:
    """Serve plugins on sockets of these names, without a kubelet."""
    with ExitStack() as stack:

        def start(
            name: str, resource: str = "example.com/x", *, watched: bool = False
        ) -> StubPlugin:
            directory = node.registry_dir if watched else node.plugin_dir
            plugin = StubPlugin(directory, resource, ["a"], name=name)
            plugin.start()
            stack.callback(plugin.stop)
            return plugin

        yield start


def found(node: Node) -> list[tuple[str, str, str]]:
    results = [one.finding for one in run(node, [CHECK])]
    return [(one.verdict.value, Path(one.looked_at).name, one.found) for one in results]


@pytest.mark.parametrize(
    ("names", "resource"),
    [
        (["nvidia.com_gpu-3db0d6.sock", "nvidia-gpu.sock"], "gpu"),
        (["example.com_dev-3db0d6.sock", "example.com_dev-af7f7d.sock"], "dev"),
        (["nvidia-gpu.sock", "nvidiaGPU-1700000000.sock"], "gpu"),
        (["nvidia.com_mig-1g.5gb-0a0b0c.sock", "nvidia-mig-1g.5gb.sock"], "mig-1g.5gb"),
        (["amd.com_gpu-0a0b0c.sock", "amd.com_gpu"], "gpu"),
        (["gpu.intel.com_xe-0a0b0c.sock", "gpu.intel.com-xe.sock"], "xe"),
        (["intel.com_sriov_net-0a0b0c.sock", "intel.com_sriov_net.sock"], "sriov_net"),
        ([f"gdp-{SQUAT}-1700000000.sock", "squat.ai_serial-0a0b0c.sock"], "serial"),
        (["smarter-devices_snd-0a0b0c.sock", "smarter-snd.sock"], "snd"),
        (["rdma_hca-0a0b0c.sock", "hca.sock"], "hca"),
    ],
)
def test_two_plugins_for_a_resource_are_rivals_whoever_wrote_them(
    node: Node, serve: Serve, names: list[str], resource: str
) -> None:
    for name in names:
        serve(name)
    expected = f"has 2 plugins on this node: {', '.join(sorted(names))}"
    failed, answering = found(node)
    assert ("failure", resource) == failed[:2]
    assert {*expected.replace(",", "").split()} == {*failed[2].replace(",", "").split()}
    assert ("ok", "plugins", "2 of 2 sockets answer") == answering


@pytest.mark.parametrize(
    "names",
    [
        ["nvidia-gpu.sock", "amd.com_gpu", "gpu.intel.com-xe.sock", "example.com_gpu-0a0b0c.sock"],
        ["nvidia-mig-1g.5gb.sock", "nvidia-mig-2g.10gb.sock"],
        ["gdp-%-1.sock", "gdp-/w==-1.sock".replace("/", ""), "x", "é_ü.sock", "a b.sock"],
    ],
)
def test_plugins_of_several_resources_are_no_rivals(
    node: Node, serve: Serve, names: list[str]
) -> None:
    for name in names:
        serve(name)
    assert [("ok", "plugins", f"{len(names)} of {len(names)} sockets answer")] == found(node)


def test_the_plugin_watcher_says_for_which_resource_a_socket_is(node: Node, serve: Serve) -> None:
    serve("any.sock", GPU, watched=True)
    serve("nvidia-gpu.sock", GPU)
    other = serve("csi.sock", GPU, watched=True)
    other.info.type = "CSIPlugin"
    failed, _ = found(node)
    assert ("failure", "gpu") == failed[:2]
    assert "has 2 plugins on this node: nvidia-gpu.sock, any.sock" == failed[2]


def test_a_plugin_that_hangs_is_named_with_its_process_and_its_pod(node: Node) -> None:
    uid = "0c6b3f8e-1111-2222-3333-444455556666"
    with closing(socket.socket(socket.AF_UNIX)) as deaf:
        deaf.bind(str(node.plugin_dir / "nvidia-gpu.sock"))
        deaf.listen()
        node = replace(node, timeout=0.2)
        silence = "somebody listens, and does not answer GetDevicePluginOptions within 0.2 s"
        assert ("failure", "nvidia-gpu.sock", silence) == found(node)[0]

        (node.at("proc/self")).rename(node.at("proc/me"))
        node.at("proc/self").symlink_to(str(os.getpid()))
        assert f"{silence} (unknown, process {os.getpid()})" == found(node)[0][2]
        proc = node.at(f"proc/{os.getpid()}")
        write(proc / "comm", "nvidia-device-p\n")
        write(proc / "status", "Name:\tx\nState:\tT (stopped)\n")
        slice_ = f"kubepods-pod{uid.replace('-', '_')}.slice"
        write(proc / "cgroup", f"0::/kubepods.slice/{slice_}/cri-containerd-1.scope\n")
        who = f"nvidia-device-p, process {os.getpid()}, pod {uid}, stopped"
        assert f"{silence} ({who})" == found(node)[0][2]
        node.at(f"var/log/pods/kube-system_nvidia-x2k9_{uid}").mkdir(parents=True)
        assert "pod kube-system/nvidia-x2k9, stopped" in found(node)[0][2]
        (finding, _) = [one.finding for one in run(node, [CHECK])]
        assert finding.do.endswith(f"; a stopped process goes on by kill -CONT {os.getpid()}.")


def test_what_hangs_in_the_registry_is_not_registered(node: Node, serve: Serve) -> None:
    serve("csi.sock", watched=True).hold("GetInfo")
    (failed, _) = [one.finding for one in run(replace(node, timeout=0.2), [CHECK])]
    assert failed.found.endswith("does not answer GetInfo within 0.2 s")
    assert failed.means.startswith("the kubelet does not register it")


def test_one_process_is_no_rival_of_itself(node: Node, serve: Serve) -> None:
    node.at("proc/self").rename(node.at("proc/me"))
    node.at("proc/self").symlink_to(str(os.getpid()))
    for name in ("nvidia-gpu.sock", "nvidia.com_gpu-3db0d6.sock"):
        serve(name)
    assert ["ok"] == [verdict for verdict, _, _ in found(node)]


def test_a_plugin_that_the_kubelet_would_refuse_is_a_failure(node: Node, serve: Serve) -> None:
    serve("a.sock").failing["GetDevicePluginOptions"] = StubError("no\nway")
    expected = ("failure", "a.sock", "GetDevicePluginOptions fails: INTERNAL no way")
    assert [expected, ("ok", "plugins", "0 of 1 sockets answer")] == found(node)


def test_what_is_no_plugin_or_was_left_behind_is_no_fault(node: Node, serve: Serve) -> None:
    serve("a.sock").failing["GetDevicePluginOptions"] = StubError(
        "unknown service", grpc.StatusCode.UNIMPLEMENTED
    )
    with closing(socket.socket(socket.AF_UNIX)) as left:
        left.bind(str(node.plugin_dir / "left.sock"))
    assert [
        ("ok", "a.sock", "is not a plugin's"),
        ("ok", "plugins", "0 of 2 sockets answer"),
    ] == found(node)


def test_sockets_that_are_not_asked_are_counted(
    node: Node, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deviceplugin.tools.doctor.checks._plugin_sockets._MOST", 1)
    serve("a1.sock"), serve("a2.sock")
    assert ("unknown", "device-plugins", "1 of 2 sockets were not asked") == found(node)[0]


def test_asking_leaves_the_kubelet_and_the_plugin_alone(kubelet: SimulatedKubelet) -> None:
    with StubPlugin(kubelet.plugin_dir, RESOURCE, ["a"]) as plugin:
        kubelet.wait_for(RESOURCE, {"a"})
        before = list(plugin.calls)
        root = str(kubelet.plugin_dir).removesuffix("/var/lib/kubelet/device-plugins")
        assert 0 == main([f"--root={root}", "--only=plugins"])
        assert [*before, "GetDevicePluginOptions"] == plugin.calls
        assert 1 == plugin.streams
        plugin.hold("GetDevicePluginOptions")
        assert FAILED == main([f"--root={root}", "--only=plugins", "--timeout=200ms"])
        plugin.release()
        assert {"a"} == kubelet.healthy(RESOURCE)
