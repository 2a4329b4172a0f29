"""What the RDMA plugin can be told."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final, Literal, TypeAlias

from typing_extensions import override

from deviceplugin.kit import configuration as cfg
from deviceplugin.kit.configuration import Place
from deviceplugin.kit.environment import variable
from deviceplugin.kit.sharing import Policy
from deviceplugin_rdma.entries import DEFAULT, Entry
from deviceplugin_rdma.entry_lists import ENTRIES, SHARED_ENTRIES

LinkHealth: TypeAlias = Literal["check", "ignore"]
SubFunctionIds: TypeAlias = Literal["number", "name"]

_ROUTES: Final = (Path("/host/proc/net"), Path("/proc/net"))
_LISTS: Final = {"resources": ENTRIES, "resourceList": ENTRIES, "configList": SHARED_ENTRIES}
_INTERVAL: Final = "periodicUpdateInterval"
_PEERS_KEYS: Final = {key.lower(): key for key in (*_LISTS, _INTERVAL)}
"""By the same in lower case: programs in Go do not mind it."""


@dataclass(frozen=True, kw_only=True)
class RdmaSettings(cfg.EntrySettings):
    """What the RDMA plugin can be told."""

    resources: tuple[Entry, ...] = field(default=DEFAULT, metadata={"kind": ENTRIES})
    """Resources and the functions that each has, as resourceList of the SR-IOV network device
    plugin. A file may have configList of the RDMA shared device plugin too. By default rdma/hca has
    100 shares of each physical function with RDMA; with an empty list nothing is offered."""
    resource_prefix: str = field(
        default="intel.com", metadata={"flag": ("--resource-prefix", "-resource-prefix")}
    )
    """Domain of resources of resourceList that have no resourcePrefix."""
    policy: Policy = "packed"
    """Which functions are given next: of the physical functions and with the shares of which most
    are used (packed), or fewest (spread)."""
    link_health: LinkHealth = "check"
    """Whether a function whose link is down is unhealthy (check) or not (ignore)."""
    link_patience: timedelta = timedelta(seconds=5)
    """Time that a link must be down before functions are unhealthy, and up before they are healthy
    again."""
    sub_function_ids: SubFunctionIds = "number"
    """What the ids of sub-functions are made of: address and sfnum, which a reboot does not change
    (number), or the kernel's name, such as mlx5_core.sf.4, which Multus passes on to network
    plugins (name)."""
    devinfo_dir: Path | None = Path("/var/run/k8s.cni.cncf.io/devinfo/dp")
    """Directory in which Multus finds what it passes on about devices; none where empty."""
    state_file: Path | None = Path("/run/deviceplugin-rdma/interfaces.json")
    """File that keeps over a restart of the plugin the names of interfaces that pods have now."""
    sysfs_dir: Path = Path("/sys")
    """Directory of sysfs. It must be the host's, which has the host's network interfaces."""
    dev_dir: Path = Path("/dev")
    """Directory of device nodes."""
    proc_net_dir: Path | None = None
    """Directory of the host's routes: the function with a default route is given to no pod. By
    default /host/proc/net, where our manifests mount it, and without that /proc/net."""

    @property
    @override
    def invalid_entries(self) -> Sequence[str]:
        return [one.problem for one in self.resources if one.problem]

    @classmethod
    @override
    def from_file(cls, root: Place) -> Mapping[str, object]:
        given: dict[str, object] = {}
        for key, place in super().from_file(root).items():
            name = _PEERS_KEYS.get(key.lower(), key)
            if name in given and isinstance(place, Place):
                place.fault(f"is the same key as {name}: keep one of them")
            given[name] = place
        interval = given.pop(_INTERVAL, None)
        if isinstance(interval, Place) and interval.kind != "nothing":  # needed no less often
            interval.take(cfg.integer(), 0)
        lists = {name: given.pop(name) for name in _LISTS if name in given}
        if lists:
            found = [
                place.take(_LISTS[name], ())
                for name, place in lists.items()
                if isinstance(place, Place)
            ]
            given["resources"] = tuple(entry for entries in found for entry in entries)
        return given

    @property
    def routes_dir(self) -> Path:
        """The directory of the host's routes."""
        return self.proc_net_dir or next((one for one in _ROUTES if one.is_dir()), _ROUTES[-1])

    def resource(self, entry: Entry) -> str:
        """Return the name of the resource of an entry."""
        return f"{entry.prefix or self.resource_prefix}/{entry.name}"

    def sharing_variables(self) -> list[list[str]]:
        """Return resources of whose variables a container gets those of one only."""
        found: dict[str, list[str]] = {}
        for name in (self.resource(one) for one in self.resources if not one.together):
            found.setdefault(variable(name), []).append(name)
        return [names for names in found.values() if len(names) > 1]
