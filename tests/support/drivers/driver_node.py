"""A node for a DRA driver: directories, resources with a plugin, and claims of an API server."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from typing_extensions import override

import deviceplugin as dp
from deviceplugin._attribution.ownership import Claim, Ownership
from deviceplugin._attribution.podresources import Hold, Holdings
from deviceplugin._dra.claims.claim_files import ClaimFiles, kind_of
from deviceplugin._dra.claims.devices import Locator
from deviceplugin._dra.claims.metadata import Describe
from deviceplugin._dra.claims.preparing import Preparing
from deviceplugin._dra.claims.record import RecordedDevice
from deviceplugin._dra.claims.records import Records
from deviceplugin._dra.naming import device_name, pool_name
from deviceplugin._dra.serving.health import HealthReport
from deviceplugin._dra.slices.attributes import Describer
from deviceplugin._inventory.published import Resource
from deviceplugin._telemetry.metrics import Metrics

DRIVER = "gopher.example.com"
NODE = "node-1"
RESOURCE = "example.com/gopher"
POOL = pool_name(NODE, RESOURCE)


def gopher(name: str, **fields: Any) -> dp.Device:
    """Return a device with a node and a variable of its own."""
    return dp.Device(name, nodes=[dp.DeviceNode(f"/dev/{name}")], envs={"BOTH": "yes"}, **fields)


class Gophers(dp.Plugin):
    """Records its hooks, and fails or waits in them if told to."""

    resource = RESOURCE

    def __init__(self) -> None:
        self.calls: list[tuple[str, Sequence[str]]] = []
        self.errors: dict[str, BaseException] = {}

    @override
    def discover(self) -> Sequence[dp.Device]:
        raise NotImplementedError

    def _called(self, hook: str, devices: Sequence[dp.Device]) -> None:
        self.calls.append((hook, [one.id for one in devices]))
        if hook in self.errors:
            raise self.errors[hook]

    @override
    def pre_start(self, devices: Sequence[dp.Device]) -> None:
        self._called("pre_start", devices)

    @override
    def allocate(self, devices: Sequence[dp.Device]) -> dp.Allocation:
        self._called("allocate", devices)
        found = super().allocate(devices)
        return found + dp.Allocation(envs={"GOPHER": ",".join(one.id for one in devices)})

    @override
    def released(self, devices: Sequence[dp.Device]) -> None:
        self._called("released", devices)


class ClaimStore:
    """The claims that an API server has."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.away = False
        self.failures: Iterator[dp.DevicePluginError] = iter(())
        """What the next reads fail with."""
        self.reads: list[float] = []
        """The seconds that each was given."""

    def get(self, namespace: str, name: str, timeout: float = 0.0) -> Mapping[str, Any]:
        self.reads.append(timeout)
        if error := next(self.failures, None):
            raise error
        if self.away:
            raise dp.DevicePluginError("the API server is away")
        try:
            return self.objects[namespace, name]
        except KeyError:
            raise dp.DevicePluginError("the API server answers 404") from None


def result(device: str, request: str = "one", pool: str = POOL, **more: Any) -> dict[str, Any]:
    """Return a result of an allocation, with the name of ``device`` in the slices."""
    found = {"request": request, "driver": DRIVER, "pool": pool, "device": device_name(device)}
    return {**found, **more}


class DriverNode:
    """One node. ``restart`` makes the parts of a new process, and ``boot`` those of a new boot."""

    def __init__(self, path: Path, *devices: dp.Device, known: bool = True) -> None:
        self.path = path
        self.cdi_dir = path / "cdi"
        self.claims_dir = path / "claims"
        self.metadata_dir = path / "metadata"
        self.describe: Describe | None = None
        self.more: dict[str, Any] = {}
        """What else is given to what prepares claims."""
        self.plugin = Gophers()
        self.resource = Resource(RESOURCE, self.plugin)
        if devices:
            self.resource.publish(devices)
        self.resources = {RESOURCE: self.resource}
        self.store = ClaimStore()
        self.discovered = True
        self.boot_id = "boot-1"
        self.known = known
        self.unusable = ""
        """Why no claim can be prepared."""
        self.restart()

    def restart(self) -> None:
        """Begin again with what is on the disk, as a new process does."""
        self.metrics = Metrics()
        self.ownership = Ownership("dra", resources=lambda: self.resources)
        if self.known:
            self.hold()
        self.records = Records(self.claims_dir)
        self.files = ClaimFiles(self.cdi_dir, DRIVER, self.metadata_dir)
        found = self.records.load()
        held = {one.claim: one.held for one in found.values()}
        shares = {key for one in found.values() for key in one.shares}
        parts = {key: part for one in found.values() for key, part in one.parts.items()}
        self.ownership.restore(held, shares, parts=parts)
        self.files.restore(found.values())
        self.preparing = Preparing(
            DRIVER,
            self.boot_id,
            records=self.records,
            claim_files=self.files,
            ownership=self.ownership,
            claims=self.store,
            locator=Locator(NODE, lambda: self.resources, lambda: self.discovered),
            metrics=self.metrics,
            unusable=lambda: self.unusable,
            describe=self.describe,
            **self.more,
        )

    def describing(self) -> "DriverNode":
        """Begin again as a process that describes devices to the containers that get them."""
        self.describe = Describer(DRIVER, self.path).describe
        self.restart()
        return self

    def health(self) -> HealthReport:
        """Return what reports the health of the devices."""
        return HealthReport(
            NODE,
            resources=lambda: self.resources,
            ownership=self.ownership,
            records=self.records.all,
            discovered=lambda: self.discovered,
        )

    def boot(self) -> None:
        """Begin again as after a reboot of the machine."""
        for name in self.cdi_files():
            (self.cdi_dir / name).unlink()
        self.boot_id += "+"
        self.restart()

    def hold(self, *ids: str) -> None:
        """Have a pod hold ``ids`` through the device plugin, according to the kubelet."""
        holds = frozenset(Hold(RESOURCE, one, "default", "pod", "main") for one in ids)
        pods = frozenset({("default", "pod")})
        self.ownership.observe(Holdings(holds, pods), (0, 0, 0))

    def allocate(
        self, name: str, *results: Mapping[str, Any], uid: str = "", config: Sequence[Any] = ()
    ) -> Claim:
        """Allocate a claim as the scheduler does; a device stands for a result."""
        claim = Claim("default", name, uid or f"uid-{name}")
        devices = {"results": list(results), "config": list(config)}
        self.store.objects["default", name] = {
            "metadata": {"namespace": "default", "name": name, "uid": claim.uid},
            "status": {"allocation": {"devices": devices}},
        }
        return claim

    def prepare(self, claim: Claim, seconds: float = math.inf) -> Sequence[RecordedDevice]:
        (found,) = self.preparing.prepare([claim], lambda: min(seconds, 30.0)).values()
        if isinstance(found, dp.DevicePluginError):
            raise found
        return found

    def prepare_all(self, *claims: Claim) -> Mapping[str, Any]:
        """Prepare ``claims`` by one call; return the ids of each, or why it is not prepared."""
        answers = self.preparing.prepare(claims, lambda: 30.0)
        return {
            uid: str(one) if isinstance(one, dp.DevicePluginError) else [each.id for each in one]
            for uid, one in answers.items()
        }

    def unprepare(self, claim: Claim) -> None:
        self.preparing.release(claim, lambda: 30.0)

    def unprepare_all(self, *claims: Claim) -> Mapping[str, Any]:
        return self.preparing.unprepare(claims, lambda: 30.0)

    def refusal(self, claim: Claim) -> str:
        """Return why ``claim`` is not prepared."""
        try:
            self.prepare(claim)
        except dp.DevicePluginError as error:
            return str(error)
        raise AssertionError(f"{claim} was prepared")

    def cdi_files(self) -> list[str]:
        return sorted(path.name for path in self.cdi_dir.glob("*"))

    def metadata_files(self) -> list[str]:
        return sorted(path.name for path in self.metadata_dir.glob("*"))

    def recorded(self) -> list[str]:
        return sorted(path.name for path in self.claims_dir.glob("*"))


def cdi_name(claim: Claim, request: str = "one") -> str:
    """Return the CDI name of what ``claim`` gets for ``request``."""
    return f"{kind_of(DRIVER)}={claim.uid}-{request}"
