"""How ``accept`` tries NVIDIA GPUs: CUDA in a container, nvidia-smi beside it, a provoked XID."""

from pathlib import Path
from typing import Final

from deviceplugin.checks import Acceptance
from deviceplugin_gpu.accept import xid
from deviceplugin_gpu.accept.results import judge
from deviceplugin_gpu.accept.runtime import cdi_devices
from deviceplugin_gpu.accept.smi import compare
from deviceplugin_gpu.configuration.setting_kinds import STRATEGIES

ACCEPTANCE: Final = Acceptance(
    module="deviceplugin_gpu",
    strategies={one: (f"--device-list-strategy={one}",) for one in STRATEGIES},
    probe=Path(__file__).with_name("cuda.py"),
    judge=judge,
    compare=compare,
    node=r".*/nvidia\d+",
    computing=r".*/nvidia-uvm",
    by_runtime=cdi_devices,
    bystanders=frozenset({"nvidia-persistenced", "nvidia-persiste"}),  # the kernel keeps 15 bytes
    provoke=xid.provoke,
)
