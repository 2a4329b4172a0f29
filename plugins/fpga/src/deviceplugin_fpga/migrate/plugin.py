"""What ``deviceplugin migrate`` knows of Intel's FPGA plugin."""

from typing import Final

from deviceplugin.kit.migration import Migration, Workload, flags
from deviceplugin_fpga.settings import MODES

_NAME: Final = "intel-fpga-plugin"
_FLAGS: Final = ("mode", "kubeconfig", "master", "v", "node-name")


def migrate(workload: Workload) -> Migration | None:
    """Return what becomes of Intel's FPGA plugin; None for anything else."""
    if workload.values is not None or workload.name != _NAME:
        return None
    mode = "af"
    result = Migration(
        peer="the FPGA plugin of intel-device-plugins-for-kubernetes",
        plugin="fpga",
        configuration={},
        differences=[
            "resource names and device ids: the same",
            (
                "annotation fpga.intel.com/device-plugin-mode of a node: not read, because ours "
                "has no token; if a node has it, add the component node-annotation"
            ),
            (
                "admission webhook: none here; pods that ask for its aliases need the component "
                "fpga-aliases, others can stay"
            ),
            "container hook: ours is installed by our own init container at the same path",
            "host paths /dev and /sys/class: not mounted; sysfs is in every container",
        ],
    )
    for name, given in flags(workload, _FLAGS):
        if name == "mode":
            if given.value not in MODES:
                raise given.wrong(f"one of {', '.join(MODES)}")
            mode = given.value
        elif name == "v":
            result.differs("--v", f"{given.value}; use the component verbose instead")
        else:
            result.differs(f"--{name}", "not needed: ours does not ask the API server")
    result.configuration = {"mode": mode}
    return result
