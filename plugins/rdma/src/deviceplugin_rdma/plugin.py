"""The plugin: RDMA devices and SR-IOV functions of network cards."""

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from threading import Event
from time import monotonic
from typing import Any, Final

from typing_extensions import override

import deviceplugin as dp
from deviceplugin.kit import udev
from deviceplugin.kit.environment import KUBEVIRT, variable
from deviceplugin.kit.hardware import Tree
from deviceplugin.kit.health import SteadyHealth, Tolerance
from deviceplugin.kit.log import Problems
from deviceplugin.kit.state import State
from deviceplugin.kit.sysfs import Sysfs
from deviceplugin_rdma import advertised, links, nics
from deviceplugin_rdma.access import Access
from deviceplugin_rdma.advertised import AdvertisedDevice, Placement
from deviceplugin_rdma.entries import AUXILIARY, DEFAULT, Entry
from deviceplugin_rdma.links import Links
from deviceplugin_rdma.nics import Names, Nic
from deviceplugin_rdma.settings import RdmaSettings

log = logging.getLogger(__name__)

_SUBSYSTEMS: Final = (
    *("auxiliary", "infiniband", "infiniband_verbs", "module", "net", "pci", "uio", "vdpa"),
    *("vfio", "vfio-dev", "virtio"),
)
_VERSION: Final = 1


class RdmaPlugin(dp.Plugin):
    """RDMA devices, shared or whole, and functions of network cards."""

    def __init__(
        self,
        settings: RdmaSettings | None = None,
        sysfs: Sysfs | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._settings = settings or RdmaSettings()
        self._sysfs = sysfs or Sysfs(self._settings.sysfs_dir)
        self._links = Links(self._sysfs)
        lasting = self._settings.link_patience.total_seconds()
        tolerance = Tolerance(patience=lasting, recovery=lasting)
        self._steady = SteadyHealth[tuple[str, bool]](tolerance, clock)
        self._state = State(self._settings.state_file, _VERSION)
        self._names = self._state.load(_read_names, dict[str, Names]())
        self._nics: Mapping[str, Nic] = {}
        self._busy: set[str] = set()
        self._offered: Mapping[str, AdvertisedDevice] = {}
        self._placement = Placement((), self._settings.policy)
        self._started: set[str] = set()
        self._problems = Problems(log)
        self._unwritten = Problems(log)
        if not self._settings.resources:
            log.warning("list of resources is empty")
        self.invalid_entries = self._settings.invalid_entries
        for shared in self._settings.sharing_variables():
            log.warning("resources share variables", extra={"resources": ", ".join(shared)})
        dev = self._settings.dev_dir
        self.watch_paths = [dev / "infiniband", dev / "vfio"]

    @override
    def discover(self) -> Iterable[dp.Device]:
        settings = self._settings
        tree = Tree(self._sysfs, dev=settings.dev_dir)
        found = nics.look(tree, self._names)
        self._nics = {nic.address: nic for nic in found}
        self._remember(found)
        chosen = [*advertised.chosen(settings.resources, found, self._needed())]
        counting = {nic.address if entry.is_shared else nic.root for entry, nic, _ in chosen}
        self._links.look(self._nics, counting | {nic.root for _, nic, _ in chosen})
        offers = advertised.offers(chosen, settings.resource, settings.dev_dir, self._judge)
        self._steady.keep({(one.nic.address, one.entry.is_shared) for one in offers})
        offered = advertised.devices(offers, by_name=settings.sub_function_ids == "name")
        self._placement = Placement(offered, settings.policy)
        self._offered = {one.device.id: one for one in offered}
        offers = [one for one in offers if not one.entry.problem]
        used = {id(one.entry) for one in offers}
        idle = [one for one in settings.resources if found and id(one) not in used]
        self.shortfalls = [
            f"{settings.resource(entry)} has no device: no function that is free is as its "
            "selectors want it"
            for entry in idle
            if entry not in DEFAULT and not entry.problem
        ]
        self.shortfalls += advertised.unused(offers)
        if any(entry.kind == AUXILIARY for entry in settings.resources):
            self.shortfalls += nics.unusable(tree)
        self._publish()
        return [one.device for one in offered]

    @override
    def start(self, resource: str) -> None:
        self._started.add(resource)
        self._publish()

    @override
    def allocate(self, devices: Sequence[dp.Device]) -> dp.Allocation:
        found = [self._offered[one.id] for one in devices if one.id in self._offered]
        return super().allocate(devices) + dp.Allocation(envs=_variables(found))

    @override
    def prefer(
        self, available: Sequence[dp.Device], required: Sequence[dp.Device], size: int
    ) -> Iterable[dp.Device]:
        return self._placement.prefer(available, required, size)

    @override
    def changes(self, stop: Event) -> Iterator[None]:
        return udev.changes(stop, subsystems=_SUBSYSTEMS, also=self._is_due)

    def _is_due(self) -> bool:
        """Return whether something has changed of which the kernel sends no event."""
        return self._links.has_changed() or self._steady.is_due()

    def _judge(self, nic: Nic, entry: Entry, access: Access) -> dp.Health:
        down, worn = "", tuple[str, ...]()
        if self._settings.link_health == "check":
            root = self._nics.get(nic.root)
            down = self._links.problem(nic, root, is_shared=entry.is_shared)
            worn = tuple(self._links.wear(nic, root))
        key = (nic.address, entry.is_shared)
        return self._steady.weigh(key, certain=access.missing, doubtful=[down], wear=worn)

    def _remember(self, found: Iterable[Nic]) -> None:
        """Keep the names that sysfs does not show while a pod has what they are of."""
        self._names = {nic.address: nic.names for nic in found if nic.interfaces or nic.rdma}
        self._state.save({"functions": {key: asdict(one) for key, one in self._names.items()}})

    def _needed(self) -> set[str]:
        """Return the interfaces that the node itself needs, as far as they are known."""
        try:
            self._busy = links.default_routes(self._settings.routes_dir, self._sysfs)
        except (OSError, IndexError, ValueError) as error:
            self._problems.say("routes", "default route unknown", error=str(error))
        else:
            self._problems.over("routes")
        return self._busy

    def _publish(self) -> None:
        """Write device information of the resources that are offered to a kubelet."""
        folder = self._settings.devinfo_dir
        if folder is None:
            return
        by_resource: dict[str, list[AdvertisedDevice]] = {name: [] for name in self._started}
        for one in self._offered.values():
            if one.device.resource in by_resource and not one.entry.is_shared:
                by_resource[str(one.device.resource)].append(one)
        self._unwritten.say_all(
            "device information not written",
            [
                problem
                for name, offered in by_resource.items()
                for problem in advertised.publish(folder, name, offered)
            ],
        )


def _variables(found: Sequence[AdvertisedDevice]) -> dict[str, str]:
    """Return what a container is told, in the variables of the SR-IOV network device plugin.

    KubeVirt takes one address for each device, and those of the others of a group from a variable
    for another resource.
    """
    offers = {one.nic.name: one for each in found for one in each.offers}
    if not found or found[0].entry.together:
        return {}
    resource = variable(found[0].device.resource)
    info: dict[str, Any] = {name: one.access.info for name, one in offers.items()}
    units = [each.offers[0].access.unit for each in found]
    devices = [unit.device.name for unit in units if unit]
    others = [one for unit in units if unit for one in unit.others]
    machines = {resource: ",".join(devices), f"{resource}-GROUP": ",".join(others)}
    return {
        f"PCIDEVICE_{resource}": ",".join(offers),
        f"PCIDEVICE_{resource}_INFO": json.dumps(info),
        **{f"{KUBEVIRT}{key}": value for key, value in machines.items() if value},
    }


def _read_names(document: Mapping[str, Any]) -> dict[str, Names]:
    return {
        str(address): Names(
            tuple(map(str, one["interfaces"])),
            str(one["link_type"]),
            tuple(map(str, one.get("rdma", ()))),
        )
        for address, one in document["functions"].items()
    }
