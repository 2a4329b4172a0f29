"""What the FPGA plugin writes, and the hook that it names."""

import json
import subprocess
import sys

import pytest

from deviceplugin_testing.simulator import Pod
from fpga.cards import bundle
from fpga.trees import AFU, DFL, INTERFACE, OTHER_AFU, FpgaTree
from homes.simulated_node import BIN, Node

REGION = f"fpga.intel.com/region-{INTERFACE}"
pytestmark = pytest.mark.fpga


def test_a_pod_with_a_region_is_started_by_the_hook_that_its_specification_names(
    node: Node,
) -> None:
    tree, hook = FpgaTree(node.root / "host", DFL), node.root / "opt/hook"
    ports = tree.simple(AFU, OTHER_AFU)
    subprocess.run([BIN / "fpga-device-plugin", "install-hook", hook], check=True)
    words = ("--mode=region", f"--sysfs-dir={tree.sys}", f"--cdi-dir={node.root}/cdi")
    node.start("fpga-device-plugin", *words, f"--hook={hook}")
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
