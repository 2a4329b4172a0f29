"""The settings of the GPU plugin."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import Field, dataclass, field, fields
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Literal

from typing_extensions import override

import deviceplugin as dp
from deviceplugin.kit.configuration import Place
from deviceplugin.kit.naming import Naming
from deviceplugin_gpu.configuration import config_file
from deviceplugin_gpu.configuration.node_choice import LABEL, models
from deviceplugin_gpu.configuration.setting_kinds import NAMING, SHARING, Sharing, Strategies
from deviceplugin_gpu.host import Roots

_PREFIX: Final = re.compile(
    r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/([A-Za-z0-9][-\w.]{0,9})?)?", re.ASCII
)
"""Limit for the prefix: a key has at most 63 characters after the slash, and we need 53."""


def _classic(*names: str, flag: str = "", **meaning: Any) -> dict[str, Any]:
    """Return field metadata that adds the reference's variables ``names`` and its ``flag``.

    ``empty`` is the value for an empty string, because charts set variables to nothing.
    """
    return {"env": names, "flag": (flag,) if flag else (), **meaning}


def flags_of(setting: Field[Any]) -> list[str]:
    """Return the flags of a setting: its own, and the reference's."""
    return [f"--{setting.name.replace('_', '-')}", *setting.metadata.get("flag", ())]


@dataclass(frozen=True, kw_only=True)
class GpuSettings(dp.Settings):
    """The settings of the GPU plugin."""

    mig_strategy: Literal["none", "single", "mixed"] = field(
        default="none", metadata=_classic("MIG_STRATEGY")
    )
    """How MIG devices are advertised: not at all, GPUs are whole (none); each as a nvidia.com/gpu
    (single); each as a resource named by its profile (mixed)."""
    mig_on_demand: Literal["off", "on", "switch"] = "off"
    """Whether MIG devices are made for claims of dynamic resource allocation: of GPUs whose MIG
    mode is on (on), or also of others, whose mode is switched while they have any (switch)."""
    fail_on_init_error: bool = field(
        default=True, metadata=_classic("FAIL_ON_INIT_ERROR", empty=False)
    )
    """Whether to exit with status 1 if NVML cannot be initialized at the start. If false, it is
    retried until it succeeds, as it always is when the driver is lost later."""
    driver_root: Path = field(
        default=Path("/"),
        metadata=_classic("NVIDIA_DRIVER_ROOT", flag="--nvidia-driver-root", empty=Path("/")),
    )
    """Root of the driver on the host."""
    dev_root: Path | None = field(
        default=None, metadata=_classic("NVIDIA_DEV_ROOT", flag="--nvidia-dev-root")
    )
    """Root of /dev on the host. By default the driver's root, or / where the driver's root is
    mounted for this plugin and has no /dev/nvidiactl."""
    driver_root_ctr_path: Path = field(
        default=Path("/driver-root"),
        metadata=_classic(
            "DRIVER_ROOT_CTR_PATH",
            "CONTAINER_DRIVER_ROOT",
            flag="--container-driver-root",
            empty=Path("/"),
        ),
    )
    """Where the driver's root is mounted for this plugin. The plugin searches it for
    libnvidia-ml.so.1, and then the directories of the dynamic linker."""
    pass_device_specs: bool = field(
        default=False, metadata=_classic("PASS_DEVICE_SPECS", empty=False)
    )
    """Whether the kubelet gives containers their device nodes too, so that they keep their GPUs at
    systemctl daemon-reload. CDI strategies do not need it."""
    device_list_strategy: Strategies = field(
        default=Strategies(), metadata=_classic("DEVICE_LIST_STRATEGY")
    )
    """How the container runtime learns which devices a container gets: envvar, volume-mounts,
    cdi-annotations, cdi-cri, or several of them."""
    device_id_strategy: Literal["uuid", "index"] = field(
        default="uuid", metadata=_classic("DEVICE_ID_STRATEGY")
    )
    """Whether the runtime gets the UUID or the index of each device; an integrated GPU, as of a
    Jetson, always has its index. CDI names always have the
    UUID: a restarted container keeps its CDI names, and an index can be another GPU after a
    reboot."""
    shared_devices_allocation_policy: Literal["distributed", "packed"] = field(
        default="distributed", metadata=_classic("SHARED_DEVICES_ALLOCATION_POLICY")
    )
    """Whether replicas and MIG devices are taken from the GPUs with the fewest in use
    (distributed) or the most (packed)."""
    device_discovery_strategy: Literal["auto", "nvml", "tegra"] = field(
        default="auto", metadata=_classic("DEVICE_DISCOVERY_STRATEGY")
    )
    """How GPUs are discovered. auto uses NVML, except on a Tegra system without it. With CDI, an
    integrated GPU needs the specification of NVIDIA's toolkit."""
    gdrcopy_enabled: bool = field(default=False, metadata=_classic("GDRCOPY_ENABLED", empty=False))
    """Whether containers request GDRCopy from the runtime."""
    gds_enabled: bool = field(default=False, metadata=_classic("GDS_ENABLED", empty=False))
    """Whether containers request GPUDirect Storage from the runtime."""
    mofed_enabled: bool = field(default=False, metadata=_classic("MOFED_ENABLED", empty=False))
    """Whether containers request Mellanox OFED from the runtime."""
    cdi_annotation_prefix: str = field(
        default="cdi.k8s.io/", metadata=_classic("CDI_ANNOTATION_PREFIX", empty="")
    )
    """Prefix of the annotation keys that list CDI devices."""
    nvidia_cdi_hook_path: Path = field(
        default=Path("/usr/bin/nvidia-ctk"),
        metadata=_classic(
            "NVIDIA_CDI_HOOK_PATH",
            "NVIDIA_CTK_PATH",
            flag="--nvidia-ctk-path",
            empty=Path("/usr/bin/nvidia-ctk"),
        ),
    )
    """Program of NVIDIA's toolkit on the host that updates the linker's cache of containers, with a
    CDI strategy. If it is neither set nor found, no such hook is used."""
    cdi_feature_flags: tuple[str, ...] = field(default=(), metadata=_classic("CDI_FEATURE_FLAGS"))
    """Accepted for compatibility, with a warning: it has no effect."""
    cdi_disable_hooks: tuple[str, ...] = field(default=(), metadata=_classic("CDI_DISABLE_HOOKS"))
    """Hooks that the CDI specification must not have: update-ldcache, which is the only one, or
    all."""
    mps_root: Path | None = field(default=None, metadata=_classic("MPS_ROOT"))
    """Directory on the host with the pipes of MPS control daemons. Required for sharing by MPS."""
    imex_channel_ids: tuple[int, ...] = field(default=(), metadata=_classic("IMEX_CHANNEL_IDS"))
    """IMEX channels that containers get: none, or 0 if the node has its device node."""
    imex_required: bool = field(default=False, metadata=_classic("IMEX_REQUIRED", empty=False))
    """Whether no GPU is advertised while an IMEX channel is missing."""
    kubelet_socket: Path | None = field(default=None, metadata=_classic("KUBELET_SOCKET"))
    """Socket of the kubelet. Its directory becomes plugin-dir. Prefer plugin-dir."""
    disable_healthchecks: str = ""
    """XIDs that do not make a GPU unhealthy, in addition to those that an application causes:
    numbers separated by commas, or all. The variable is DP_DISABLE_HEALTHCHECKS."""
    enable_healthchecks: str = ""
    """XIDs that always make a GPU unhealthy: numbers separated by commas, or all."""
    recovery_time: timedelta = timedelta(minutes=5)
    """How long an unhealthy GPU must pass its checks without another error before it is healthy."""
    vgpu_license_required: bool = False
    """Whether a virtual GPU is unhealthy while it has no license. Otherwise it is degraded: pods
    get it, and its driver slows it down."""
    vgpu_license_warning: timedelta = timedelta(hours=1)
    """How long before its license expires a virtual GPU is degraded. Leases are renewed long before
    they expire."""
    state_file: Path | None = Path("/run/deviceplugin-gpu/health.json")
    """File that remembers unhealthy GPUs when the plugin restarts; none if empty. It is below /run,
    because a reboot resets GPUs."""
    include: tuple[str, ...] = ()
    """The only GPUs to advertise: indices, UUIDs, PCI addresses, or models such as *A100*; all GPUs
    if empty."""
    exclude: tuple[str, ...] = ()
    """GPUs that are not advertised, named as for include."""
    resources: Naming = field(default=Naming(), metadata={"kind": NAMING})
    """Resource names by model and by MIG profile, in the form of the file."""
    sharing: Sharing = field(default=Sharing(), metadata={"kind": SHARING})
    """How many containers share a GPU, in the form of the file."""
    distinct_gpus: bool = False
    """Whether a request for several replicas is refused unless each is on a different GPU."""
    labels_file: Path | None = None
    """File below the features.d of Node Feature Discovery, to which the node's labels are written;
    none by default."""
    container_logs: Path | None = None
    """Directory with the kubelet's links to logs of containers, /var/log/containers. If given, what
    containers use of GPUs is measured, for which the pod needs hostPID."""
    node_label: str = LABEL
    """Key of the label that names an entry of nodes, or a file of a directory. It can be a flag or
    a variable, and has no effect in a file."""

    def __post_init__(self) -> None:
        """Refuse what does not go together."""
        if problems := list(_problems(self)):
            raise dp.ConfigError("\n".join(problems))
        if self.kubelet_socket is not None:
            object.__setattr__(self, "plugin_dir", self.kubelet_socket.parent)

    @classmethod
    @override
    def node_facts(cls) -> Mapping[str, Sequence[str]]:
        return {"model": models(Roots().proc)}

    @classmethod
    @override
    def from_file(cls, root: Place) -> Mapping[str, object]:
        return config_file.read(root, _keys())

    @property
    def host_dev_root(self) -> Path:
        """Root of ``/dev`` on the host."""
        if self.dev_root is not None:
            return self.dev_root
        # A driver that is only unpacked somewhere has its nodes in the host's /dev. A container
        # would not start with nodes that do not exist.
        seen = self.driver_root_ctr_path
        with suppress(OSError):
            if seen.is_dir() and not (seen / "dev/nvidiactl").exists():
                return Path("/")
        return self.driver_root


def _keys() -> list[str]:
    return [one.name.replace("_", "-") for one in fields(GpuSettings)]


def _problems(settings: GpuSettings) -> Iterator[str]:
    if settings.sharing.mps and settings.mps_root is None:
        yield "mps-root is needed for sharing with mps: name the directory of the MPS pipes"
    if settings.imex_channel_ids not in {(), (0,)}:
        yield f"imex-channel-ids: {list(settings.imex_channel_ids)} is neither [] nor [0]"
    prefix = settings.cdi_annotation_prefix
    if not _PREFIX.fullmatch(prefix):
        yield f"cdi-annotation-prefix: {prefix!r} is not a domain and a slash, such as cdi.k8s.io/"
    socket = settings.kubelet_socket
    if socket is not None and socket.name != "kubelet.sock":
        yield f"kubelet-socket: {str(socket)!r} is not a path that ends in /kubelet.sock"


_GENERATED: Final = (
    "only nvidia-ctk cdi generate has such flags: pass it this, and the specification that it "
    "writes is used"
)
_CDI: Final = "add cdi-cri to device-list-strategy: only CDI specifications have hooks"
_DEFAULT: Final = GpuSettings()


def without_effect(settings: GpuSettings) -> Iterator[tuple[str, str]]:
    """Yield the keys of settings without effect, each with what to do instead."""
    strategies = settings.device_list_strategy
    if settings.cdi_feature_flags:
        yield "cdi-feature-flags", _GENERATED
    if not strategies.cdi and settings.nvidia_cdi_hook_path != _DEFAULT.nvidia_cdi_hook_path:
        yield "nvidia-cdi-hook-path", _CDI
    if not strategies.cdi and settings.cdi_disable_hooks:
        yield "cdi-disable-hooks", _CDI
    if settings.cdi_annotation_prefix != _DEFAULT.cdi_annotation_prefix and (
        "cdi-annotations" not in strategies
    ):
        yield "cdi-annotation-prefix", "add cdi-annotations to device-list-strategy"
    if settings.pass_device_specs and not strategies.plain:
        yield (
            "pass-device-specs",
            "the CDI specification has the device nodes, if CDI is the only strategy",
        )
    if settings.imex_required and not settings.imex_channel_ids:
        yield "imex-required", "name the channels in imex-channel-ids"
