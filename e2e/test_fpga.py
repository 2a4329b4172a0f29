"""The FPGA plugin from installation to removal."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from deviceplugin_testing.simulator import Pod
from fpga.cards import bundle
from fpga.trees import AFU, DFL, INTERFACE, OTHER_AFU, FpgaTree
from homes.simulated_node import BIN, Node

OLD = "fpga.intel.com/af-ce4.d84.zkiWk5jwXzOUbVYHCL4QithCTcSko8QT-J5DNoP5BAs"
NEW = "fpga.intel.com/af-ce4.f7d.zkiWk5jwXzOUbVYHCL4QivffQFy9es9yIvFEsLk6zRg"
REGION = f"fpga.intel.com/region-{INTERFACE}"
pytestmark = pytest.mark.fpga


@pytest.fixture
def tree(node: Node) -> FpgaTree:
    return FpgaTree(node.root / "host", DFL)


@pytest.fixture
def ports(tree: FpgaTree) -> list[Path]:
    return tree.simple(AFU, OTHER_AFU)


def start(node: Node, tree: FpgaTree, mode: str) -> subprocess.Popen[str]:
    return node.start(
        "fpga-device-plugin",
        f"--mode={mode}",
        f"--sysfs-dir={tree.sys}",
        f"--cdi-dir={node.root}/cdi",
        f"--hook={node.root}/opt/hook",
        "--discovery-interval=100ms",  # trees of files send no kernel events
    )


def test_a_pod_gets_the_port_with_the_function_it_asks_for(
    node: Node, tree: FpgaTree, ports: list[Path]
) -> None:
    start(node, tree, "af")
    node.kubelet.wait_for(OLD, {ports[0].name})
    node.kubelet.wait_for(NEW, {ports[1].name})
    pod = Pod.of("crypto", main={NEW: 1})
    node.kubelet.tick()
    assert node.kubelet.run(pod)
    options = node.kubelet.run_options(pod, "main")
    assert options is not None
    assert ["/dev/dfl-port.1"] == [device.container_path for device in options.devices]


def test_a_card_that_is_programmed_anew_is_another_resource_at_once(
    node: Node, tree: FpgaTree, ports: list[Path]
) -> None:
    start(node, tree, "af")
    node.kubelet.wait_for(OLD, {"dfl-port.0"})
    node.kubelet.wait_for(NEW, {"dfl-port.1"})
    (ports[0] / "afu_id").write_text(OTHER_AFU)
    node.kubelet.wait_for(NEW, {"dfl-port.0", "dfl-port.1"})
    node.kubelet.wait_for(OLD, set(), {"dfl-port.0"})


def test_a_pod_with_a_region_is_started_by_the_hook_that_its_specification_names(
    node: Node, tree: FpgaTree, ports: list[Path]
) -> None:
    hook = node.root / "opt/hook"
    subprocess.run([BIN / "fpga-device-plugin", "install-hook", hook], check=True)
    start(node, tree, "region")
    node.kubelet.wait_for(REGION, {"dfl-fme.0"})
    pod = Pod.of("crypto", main={REGION: 1})
    node.kubelet.tick()
    assert node.kubelet.run(pod)
    options = node.kubelet.run_options(pod, "main")
    assert options is not None
    assert {"com.intel.fpga.mode": "fpga.intel.com/region"} == dict(options.annotations)
    assert ["intel.cdi.k8s.io/fpga=dfl-fme.0"] == list(options.cdi_devices)
    # What a container runtime does with that.
    text = (node.root / "cdi/intel.cdi.k8s.io-fpga-dfl-fme.0.yaml").read_text()
    (device,) = json.loads(text)["devices"]
    ((name, path),) = [one.values() for one in device["containerEdits"]["hooks"]]
    assert ("createRuntime", str(hook)) == (name, path)
    wishes = {
        "FPGA_REGION_1": INTERFACE,
        "FPGA_AFU_1": OTHER_AFU,
        "FPGA_REGION_2": INTERFACE,
        "FPGA_AFU_2": AFU,
    }
    given = {device.container_path.rpartition("/")[2] for device in options.devices}
    state = bundle(node.root / "bundle", [port for port in ports if port.name in given], **wishes)
    flags = [f"--sysfs={tree.sys}", f"--lock={node.root}/lock"]
    done = subprocess.run(
        [sys.executable, "-I", path, *flags], input=state, capture_output=True, check=False
    )
    assert (0, b"") == (done.returncode, done.stderr)


def test_devices_are_back_after_a_restart_of_the_kubelet(
    node: Node, tree: FpgaTree, ports: list[Path]
) -> None:
    start(node, tree, "regiondevel")
    node.kubelet.wait_for(REGION, {"dfl-fme.0"})
    node.kubelet.restart()
    node.kubelet.wait_for(REGION, {"dfl-fme.0"})
    assert 2 == len(ports)


@pytest.mark.usefixtures("ports")
def test_an_uninstalled_plugin_leaves_no_socket_behind(node: Node, tree: FpgaTree) -> None:
    process = start(node, tree, "region")
    node.kubelet.wait_for(REGION, {"dfl-fme.0"})
    node.uninstall(process)
    assert [] == list(node.kubelet.plugin_dir.glob("*fpga*"))
