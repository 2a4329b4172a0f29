"""What a node pays for DRA: memory of the same plugin in either protocol."""

from collections.abc import Callable
from pathlib import Path

import pytest

from deviceplugin.apiserver import ApiServer
from deviceplugin_testing.fixture._node import PLUGIN_POD
from deviceplugin_testing.simulator import KubeletConfig, SimulatedCluster, SimulatedNode
from patience import eventually
from plugin_process import started

RESOURCE = "example.com/gopher"
NAMES = {"gary", "gina"}
_KIB = 1024


def resident(pid: int) -> int:
    """Return how many KiB of a process are in memory."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = (one for one in lines if one.startswith("VmRSS:"))
    return int(line.split()[1])


def settled(read: Callable[[], int]) -> int:
    """Return what ``read`` returns once that has not grown for ten looks."""
    found = [read()]

    def is_still() -> bool:
        found.append(read())
        return len(found) > 10 and found[-1] <= min(found[-10:])

    eventually(is_still, "memory that does not grow", every=0.1)
    return found[-1]


def memory(root: Path, protocol: str) -> int:
    """Return the KiB of the gopher plugin once it offers its devices and a pod has one."""
    for name in ("gophers", "plugins", "cdi"):
        (root / name).mkdir()
    for name in NAMES:
        (root / "gophers" / name).touch()
    config = KubeletConfig(cdi_dirs=(root / "cdi",), watch_interval=0.05, sync_interval=0.05)
    with SimulatedCluster() as cluster:
        cluster.add_node("n1")
        api = ApiServer(cluster.url)
        driver = {"cel": {"expression": 'device.driver == "gopher.example.com"'}}
        spec = {"selectors": [driver], "extendedResourceName": RESOURCE}
        cluster.create({"kind": "DeviceClass", "metadata": {"name": "gopher"}, "spec": spec})
        with SimulatedNode(root, api, "n1", status_interval=0.2, config=config) as node:
            node.kubelet.run(PLUGIN_POD)
            with started(
                node.kubelet.plugin_dir,
                DP_PROTOCOL=protocol,
                DP_DIRECTORY=str(root / "gophers"),
                DP_REGISTRY_DIR=str(node.kubelet.registry_dir),
                DP_POD_RESOURCES_SOCKET=str(node.kubelet.pod_resources_socket),
                DP_CDI_DIR=str(root / "cdi"),
                DP_DRIVER_DIR=str(root / "plugins"),
                DP_NODE_NAME="n1",
                DP_API_SERVER=cluster.url,
            ) as plugin:
                run_a_pod(cluster)
                return settled(lambda: resident(plugin.process.pid))


def run_a_pod(cluster: SimulatedCluster) -> None:
    resources = {"limits": {RESOURCE: "1"}}
    container = {"name": "main", "image": "none", "resources": resources}
    cluster.create({"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [container]}})

    def runs() -> bool:
        found = cluster.get("Pod", "p")
        return found is not None and found["status"].get("phase") == "Running"

    eventually(runs, "the pod")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_dra_costs_a_plugin_at_most_12_mib(root: Path) -> None:
    (root / "a").mkdir()
    (root / "b").mkdir()
    plugin, dra = memory(root / "a", "device-plugin"), memory(root / "b", "dra")
    print(f"device plugin {plugin / _KIB:.1f} MiB, DRA {dra / _KIB:.1f} MiB")  # noqa: T201
    assert dra <= plugin + 12 * _KIB  # of which TLS is 5, that no plugin without it loads
