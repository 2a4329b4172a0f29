"""A cluster with one node, and the driver that runs on it."""

import json
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple
from uuid import uuid4

from deviceplugin._config.slices import consumption, counters
from deviceplugin._inventory.divided import Piece, has_room, take
from deviceplugin.apiserver import ApiServer
from deviceplugin_testing.conformance._check import Failed
from deviceplugin_testing.conformance._node import CheckedProcess
from deviceplugin_testing.conformance._process import Plugin
from deviceplugin_testing.conformance._subject import Limits, Place, Subject, free_port
from deviceplugin_testing.simulator import (
    KubeletConfig,
    Pod,
    SimulatedCluster,
    SimulatedNode,
    allocated_claim,
)

Slices = Sequence[Mapping[str, Any]]


class Offered(NamedTuple):
    """A device in the driver's slices."""

    pool: str
    device: str
    consumed: tuple[tuple[str, str], ...] | None = None
    """What a claim consumes that asks for nothing special; None of a device that is not shared."""

    @property
    def result(self) -> Mapping[str, Any]:
        """What the scheduler writes about it, but for the request and the driver."""
        found: dict[str, Any] = {"pool": self.pool, "device": self.device}
        if self.consumed is not None:
            found |= {"shareID": str(uuid4()), "consumedCapacity": dict(self.consumed)}
        return found


def newest(slices: Slices) -> dict[str, Slices]:
    pools: dict[str, list[Mapping[str, Any]]] = {}
    for one in slices:
        pools.setdefault(one["spec"]["pool"]["name"], []).append(one)
    return {name: _newest(found) for name, found in pools.items()}


def _newest(slices: Slices) -> Slices:
    generation = max(one["spec"]["pool"]["generation"] for one in slices)
    return [one for one in slices if one["spec"]["pool"]["generation"] == generation]


def offered(pools: Mapping[str, Slices]) -> Iterator[Offered]:
    """Yield the devices without taints of complete pools, in the order of the scheduler.

    Of devices that consume counters, they are as many as claims can have at the same time.
    """
    for name, slices in sorted(pools.items()):
        if len(slices) == slices[0]["spec"]["pool"]["resourceSliceCount"]:
            ordered = sorted(slices, key=lambda one: str(one["metadata"]["name"]))
            devices = [device for one in ordered for device in one["spec"].get("devices", ())]
            for device in _together([one for one in devices if not one.get("taints")], slices):
                yield Offered(name, device["name"], _consumed(device))


def _together(devices: Slices, slices: Slices) -> Slices:
    """Return those of ``devices`` that have room beside each other, the smallest if not all do."""
    left = {name: n for one in slices for name, n in counters(one["spec"]).items()}
    chosen, groups = set[str](), defaultdict[str, list[frozenset[str]]](list)
    pieces = [Piece(str(one["name"]), "", *consumption(one)) for one in devices]
    for one in sorted(pieces, key=lambda one: sum(one.consumes.values())):
        beside = groups[min(one.consumes, default=("",))[0]]  # of its set of counters
        if has_room(one, left, beside):
            take(one, left)
            beside.append(frozenset(one.groups))
            chosen.add(one.id)
    return [one for one in devices if one["name"] in chosen]


def _consumed(device: Mapping[str, Any]) -> tuple[tuple[str, str], ...] | None:
    if not device.get("allowMultipleAllocations"):
        return None
    return tuple(
        (name, one.get("requestPolicy", {}).get("default") or one["value"])
        for name, one in device.get("capacity", {}).items()
    )


NODE: Final = "node"
CLASS: Final = "conformance"
_QUICK: Final = 0.05
_SYNC: Final = 1.0
"""Seconds after which the kubelet tries again what failed; a real one takes 60."""

Claim = dict[str, Any]


class DraNode(CheckedProcess):
    """One cluster and its node, with one process of the driver at a time."""

    noun = "driver"

    def __init__(
        self, subject: Subject, place: Place, limits: Limits, seed: int, over: threading.Event
    ) -> None:
        super().__init__(subject, place, limits, over)
        self._claims = 0
        self.driver = subject.resource
        self.cluster = SimulatedCluster(seed=seed)
        self.cluster.add_node(NODE)
        self.cluster.start()
        config = KubeletConfig(
            version=subject.kubelet_version,
            dra=True,
            watch_interval=_QUICK,
            sync_interval=_QUICK,
            sync_frequency=_SYNC,
        )
        api = ApiServer(self.cluster.url)
        self.node = SimulatedNode(place.root, api, NODE, interval=_QUICK, config=config, seed=seed)
        self.kubelet = self.node.kubelet
        self.placeholders = {**place.placeholders(), **self._places()}

    def _places(self) -> Mapping[str, str]:
        kubeconfig = self._place.scratch / "kubeconfig"
        clusters = [{"name": "c", "cluster": {"server": self.cluster.url}}]
        contexts = [{"name": "c", "context": {"cluster": "c", "user": "c"}}]
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": clusters,
            "contexts": contexts,
            "users": [{"name": "c", "user": {}}],
            "current-context": "c",
        }
        kubeconfig.write_text(json.dumps(document))
        return {
            "driver_dir": str(self._place.root / "plugins"),
            "cdi_dir": str(self.kubelet.cdi_dirs[0]),
            "kubeconfig": str(kubeconfig),
            "api_server": self.cluster.url,
            "node_name": NODE,
        }

    def start(self) -> None:
        for name in ("driver_dir", "cdi_dir", "registry_dir"):
            self._place.root.joinpath(self.placeholders[name]).mkdir(parents=True, exist_ok=True)
        self.node.start()
        # A driver runs in a pod. A kubelet that lists none is one that does not know its pods yet.
        self.kubelet.run(Pod.of("driver", main={}))

    def launch(self, *, beside: bool = False) -> Plugin:
        """Start the driver, or ``beside`` the one that runs another one with an HTTP port."""
        own = {"http_address": f"127.0.0.1:{free_port()}"} if beside else {}
        given = {**self.placeholders, **own}
        variables = ("driver_dir", "cdi_dir", "api_server")
        environment = {f"DP_{name.upper()}": given[name] for name in variables}
        environment |= {"KUBECONFIG": given["kubeconfig"], "NODE_NAME": NODE}
        self.plugin = Plugin(
            self._subject.command,
            placeholders=given,
            output=self._place.scratch / "output",
            environment=environment,
        )
        return self.plugin

    def close(self) -> None:
        self.kill()
        self.node.stop()
        self.cluster.stop()

    # Waiting

    def require(
        self,
        condition: Callable[[], object],
        problem: str,
        timeout: float = 0.0,
        why: Callable[[], str] = str,
    ) -> None:
        """Wait for ``condition``; raise ``Failed`` with ``problem`` and ``why()`` if in vain."""
        seconds = timeout or self.limits.within
        if not self.wait(condition, seconds):
            reason = why()
            raise Failed(f"{problem} within {seconds:g} s" + (reason and f": {reason}"))

    def wait_up(self) -> str:
        """Wait until the driver is connected and has slices; return the problem if it has none."""
        try:
            if not self.wait(lambda: self.connected, self.limits.start):
                return f"not registered and connected within {self.limits.start:g} s"
            self.driver = self.driver or min(self.kubelet.dra.connected)
            if not self.wait(lambda: self.devices, self.limits.within):
                return f"no complete pool of {self.driver} with a device in ResourceSlices"
        except Failed as end:
            return str(end)
        selector = {"cel": {"expression": f'device.driver == "{self.driver}"'}}
        metadata = {"name": CLASS}
        self.cluster.create(
            {"kind": "DeviceClass", "metadata": metadata, "spec": {"selectors": [selector]}}
        )
        return ""

    @property
    def connected(self) -> bool:
        """Whether the driver is registered, and the kubelet can call it."""
        found = self.kubelet.dra.connected
        return self.driver in found if self.driver else bool(found)

    @property
    def up(self) -> bool:
        """Whether kubelet and driver run, and the driver is connected and offers devices."""
        runs = self.plugin is not None and self.plugin.status is None
        return runs and self.kubelet.running and self.connected and bool(self.devices)

    def sockets(self) -> set[tuple[str, int]]:
        """Return name and age of all registration sockets: of two in one place the age differs."""
        found = set()
        for path in self.kubelet.registry_dir.rglob("*"):
            with suppress(FileNotFoundError):
                if path.is_socket():
                    found.add((path.name, path.stat().st_ctime_ns))
        return found

    # Slices and claims

    @property
    def slices(self) -> Slices:
        return [
            one
            for one in self.cluster.list("ResourceSlice")
            if (one["spec"]["driver"], one["spec"].get("nodeName")) == (self.driver, NODE)
        ]

    @property
    def devices(self) -> list[Offered]:
        """The devices of complete pools, in the order of the scheduler."""
        return list(offered(self.pools()))

    def pools(self) -> dict[str, Slices]:
        return newest(self.slices)

    def claim(self, *devices: Offered, allocated: bool = True, **options: Any) -> Claim:
        """Create a claim with ``devices``; ``options`` are those of ``allocated_claim``."""
        self._claims += 1
        name = f"claim-{self._claims}"
        results = [{"request": "r", "driver": self.driver, **one.result} for one in devices]
        made = allocated_claim(name, results, **options)
        made["spec"] = {"devices": {"requests": [_REQUEST]}}
        created = self.cluster.create(made)
        if not allocated:
            return created
        status = made["status"]
        return self.cluster.change("ResourceClaim", name, lambda draft: draft.update(status=status))

    def delete_claims(self) -> None:
        """Delete all claims of checks: for the scheduler, their devices are in use."""
        for claim in self.cluster.list("ResourceClaim"):
            self.cluster.delete("ResourceClaim", claim["metadata"]["name"])

    def prepare(self, *claims: Claim) -> list[Any]:
        """Return the answers of NodePrepareResources; raise ``Failed`` if one is missing."""
        return _answers(self.kubelet.dra.prepare(self.driver, *claims), claims)

    def unprepare(self, *claims: Claim) -> list[Any]:
        """Call NodeUnprepareResources; otherwise as ``prepare``."""
        return _answers(self.kubelet.dra.unprepare(self.driver, *claims), claims)


_REQUEST: Final = {"name": "r", "exactly": {"deviceClassName": CLASS}}


def _answers(answers: Mapping[str, Any], claims: Sequence[Claim]) -> list[Any]:
    missing = [one["metadata"]["name"] for one in claims if one["metadata"]["uid"] not in answers]
    if missing:
        raise Failed(f"the answer lacks {len(missing)} of {len(claims)} claims")
    return [answers[one["metadata"]["uid"]] for one in claims]
