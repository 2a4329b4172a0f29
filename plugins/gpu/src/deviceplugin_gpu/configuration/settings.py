"""What the GPU plugin can be told."""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Literal

from typing_extensions import override

import deviceplugin as dp
from deviceplugin_gpu.configuration import config_file
from deviceplugin_gpu.configuration.device_list_strategy import Strategies
from deviceplugin_gpu.configuration.resource_names import Naming
from deviceplugin_gpu.configuration.sharing import Sharing

_PREFIX: Final = re.compile(
    r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/([A-Za-z0-9][-\w.]{0,9})?", re.ASCII
)
"""Of annotations: a key has 63 characters at most after the slash, and 53 of them are ours."""


def _classic(*names: str, flag: str = "") -> dict[str, Any]:
    """Return what has the variables ``names``, and ``flag``, set a field: the reference's names."""
    return {"env": names, "flag": (flag,) if flag else ()}


@dataclass(frozen=True, kw_only=True)
class GpuSettings(dp.Settings):
    """What the GPU plugin can be told."""

    mig_strategy: Literal["none", "single", "mixed"] = field(
        default="none", metadata=_classic("MIG_STRATEGY")
    )
    """What becomes of MIG devices: nothing, whole GPUs are offered (none); each is a nvidia.com/gpu
    (single); each is a resource named by its profile (mixed)."""
    fail_on_init_error: bool = field(default=True, metadata=_classic("FAIL_ON_INIT_ERROR"))
    """Whether to exit with status 1 if NVML cannot be initialized at the start. If not, it is tried
    again until it can; as it is whenever the driver is lost later."""
    driver_root: Path = field(
        default=Path("/"), metadata=_classic("NVIDIA_DRIVER_ROOT", flag="--nvidia-driver-root")
    )
    """Root of the driver on the host."""
    dev_root: Path | None = field(
        default=None, metadata=_classic("NVIDIA_DEV_ROOT", flag="--nvidia-dev-root")
    )
    """Root of /dev on the host; the driver's root where not given."""
    driver_root_ctr_path: Path = field(
        default=Path("/driver-root"),
        metadata=_classic(
            "DRIVER_ROOT_CTR_PATH", "CONTAINER_DRIVER_ROOT", flag="--container-driver-root"
        ),
    )
    """Where the driver's root is mounted for this plugin. libnvidia-ml.so.1 is looked for below it,
    then where the dynamic linker looks."""
    pass_device_specs: bool = field(default=False, metadata=_classic("PASS_DEVICE_SPECS"))
    """Whether containers get their device nodes from the kubelet too."""
    device_list_strategy: Strategies = field(
        default=Strategies(), metadata=_classic("DEVICE_LIST_STRATEGY")
    )
    """How the container runtime is told which devices a container gets: envvar, volume-mounts,
    cdi-annotations, cdi-cri, or several of them."""
    device_id_strategy: Literal["uuid", "index"] = field(
        default="uuid", metadata=_classic("DEVICE_ID_STRATEGY")
    )
    """What it is told of each device."""
    shared_devices_allocation_policy: Literal["distributed", "packed"] = field(
        default="distributed", metadata=_classic("SHARED_DEVICES_ALLOCATION_POLICY")
    )
    """Whether replicas and MIG devices are taken from the GPUs with the fewest used ones, or with
    the most."""
    device_discovery_strategy: Literal["auto", "nvml", "tegra"] = field(
        default="auto", metadata=_classic("DEVICE_DISCOVERY_STRATEGY")
    )
    """How GPUs are found. auto asks NVML, except on a Tegra system without it."""
    gdrcopy_enabled: bool = field(default=False, metadata=_classic("GDRCOPY_ENABLED"))
    """Whether containers ask the runtime for GDRCopy."""
    gds_enabled: bool = field(default=False, metadata=_classic("GDS_ENABLED"))
    """Whether containers ask the runtime for GPUDirect Storage."""
    mofed_enabled: bool = field(default=False, metadata=_classic("MOFED_ENABLED"))
    """Whether containers ask the runtime for Mellanox OFED."""
    cdi_annotation_prefix: str = field(
        default="cdi.k8s.io/", metadata=_classic("CDI_ANNOTATION_PREFIX")
    )
    """What the keys of annotations with CDI devices begin with."""
    cdi_dir: Path = Path("/var/run/cdi")
    """Directory for the CDI specification that is written where a CDI strategy is chosen."""
    nvidia_cdi_hook_path: Path = field(
        default=Path("/usr/bin/nvidia-ctk"),
        metadata=_classic("NVIDIA_CDI_HOOK_PATH", "NVIDIA_CTK_PATH", flag="--nvidia-ctk-path"),
    )
    """Taken for compatibility, with a warning: the CDI specification that is written here names no
    hooks."""
    cdi_feature_flags: tuple[str, ...] = field(default=(), metadata=_classic("CDI_FEATURE_FLAGS"))
    """Taken for compatibility, with a warning: it has no effect."""
    cdi_disable_hooks: tuple[str, ...] = field(default=(), metadata=_classic("CDI_DISABLE_HOOKS"))
    """Taken for compatibility, with a warning: there are no hooks."""
    mps_root: Path | None = field(default=None, metadata=_classic("MPS_ROOT"))
    """Directory of the host with the pipes of MPS control daemons; needed for sharing with MPS."""
    imex_channel_ids: tuple[int, ...] = field(default=(), metadata=_classic("IMEX_CHANNEL_IDS"))
    """IMEX channels that containers get: none, or 0."""
    imex_required: bool = field(default=False, metadata=_classic("IMEX_REQUIRED"))
    """Whether the CDI specification must have the IMEX channels."""
    kubelet_socket: Path | None = field(default=None, metadata=_classic("KUBELET_SOCKET"))
    """Socket of the kubelet. Its directory is plugin-dir, which is the setting to use."""
    disable_healthchecks: str = ""
    """XIDs that are no reason to call a GPU unhealthy, beside those that are the application's
    fault: numbers with commas between, or all. The variable is DP_DISABLE_HEALTHCHECKS."""
    enable_healthchecks: str = ""
    """XIDs that are a reason whatever else is said: numbers with commas between, or all."""
    recovery_time: timedelta = timedelta(minutes=5)
    """Time without a further error after which an unhealthy GPU that passes its checks is healthy
    again."""
    state_file: Path | None = Path("/run/deviceplugin-gpu/health.json")
    """File in which unhealthy GPUs are remembered over restarts of the plugin; none if empty. Below
    /run, because a reboot resets GPUs."""
    include: tuple[str, ...] = ()
    """The only GPUs to offer: indices, UUIDs, PCI addresses, or models such as *A100*; all GPUs if
    empty."""
    exclude: tuple[str, ...] = ()
    """GPUs not to offer, named in the same way."""
    resources: Naming = field(default=Naming())
    """Names of resources by model and by MIG profile, as in the file."""
    sharing: Sharing = field(default=Sharing())
    """How many containers share a GPU, as in the file."""
    distinct_gpus: bool = False
    """Whether a request for several replicas is refused unless each is of another GPU."""
    labels_file: Path | None = None
    """File for Node Feature Discovery, below its features.d, that gets the node's labels; none if
    not given."""

    def __post_init__(self) -> None:
        """Refuse what does not go together.

        Raises:
            ConfigError: All of it, a line each.
        """
        if problems := list(_problems(self)):
            raise dp.ConfigError("\n".join(problems))
        if self.kubelet_socket is not None:
            object.__setattr__(self, "plugin_dir", self.kubelet_socket.parent)

    @staticmethod
    @override
    def read_file(path: Path) -> Mapping[str, Any]:
        return config_file.read(path, [one.name.replace("_", "-") for one in fields(GpuSettings)])

    @property
    def host_dev_root(self) -> Path:
        """Root of ``/dev`` on the host."""
        return self.dev_root or self.driver_root


def _problems(settings: GpuSettings) -> Iterator[str]:
    if settings.sharing.mps and settings.mig_strategy == "mixed":
        yield "sharing: mps does not go together with mig-strategy mixed"
    if settings.sharing.mps and settings.mps_root is None:
        yield "mps-root is needed for sharing with mps: name the directory of the MPS pipes"
    if settings.imex_channel_ids not in {(), (0,)}:
        yield f"imex-channel-ids: {list(settings.imex_channel_ids)} are not [] or [0]"
    if settings.device_list_strategy.cdi and settings.device_discovery_strategy == "tegra":
        yield "device-list-strategy: CDI needs NVML, and device-discovery-strategy is tegra"
    prefix = settings.cdi_annotation_prefix
    if not _PREFIX.fullmatch(prefix):
        yield f"cdi-annotation-prefix: {prefix!r} is not a domain and a slash, such as cdi.k8s.io/"
    socket = settings.kubelet_socket
    if socket is not None and socket.name != "kubelet.sock":
        yield f"kubelet-socket: {os.fspath(socket)!r} is not a path that ends in /kubelet.sock"
