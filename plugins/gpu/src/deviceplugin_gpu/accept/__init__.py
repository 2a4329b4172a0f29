"""How ``accept`` tries NVIDIA GPUs: CUDA in a container, nvidia-smi beside it, a provoked XID."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from deviceplugin.checks import Acceptance
from deviceplugin_gpu.accept import xid
from deviceplugin_gpu.accept.results import judge
from deviceplugin_gpu.accept.runtime import cdi_devices
from deviceplugin_gpu.accept.smi import compare
from deviceplugin_gpu.configuration.setting_kinds import STRATEGIES
from deviceplugin_gpu.configuration.settings import GpuSettings

_DRIVER_ROOT: Final = "driver-root-ctr-path"


def _on_the_host(config: Mapping[str, Any]) -> list[str]:
    """Return the flag for the driver's root, which a pod has at a path of its own."""
    default = str(GpuSettings().driver_root_ctr_path)
    is_missing = config[_DRIVER_ROOT] == default and not Path(default).is_dir()
    return [f"--{_DRIVER_ROOT}={config['driver-root']}"] if is_missing else []


ACCEPTANCE: Final = Acceptance(
    module="deviceplugin_gpu",
    outside=_on_the_host,
    strategies={one: (f"--device-list-strategy={one}",) for one in STRATEGIES},
    probe=Path(__file__).with_name("cuda.py"),
    judge=judge,
    compare=compare,
    node=r".*/nvidia\d+",
    computing=r".*/nvidia-uvm",
    by_runtime=cdi_devices,
    # The driver's own daemons, of whose names the kernel keeps 15 bytes.
    bystanders=frozenset({"nvidia-persiste", "nv-fabricmanage"}),
    provoke=xid.provoke,
)
