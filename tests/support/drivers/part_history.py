"""Random histories of a node that makes parts for claims. The seed decides.

API server, scheduler, slices, ownership and records are those of a node. The hardware, the kubelet
and the end of processes are played: a process ends before or after any write or hook.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from typing_extensions import override

import deviceplugin as dp
from cluster.dra_objects import Object, Simulated
from deviceplugin._attribution.claim_holders import Claim
from deviceplugin._discovery.found import discover
from deviceplugin._dra.slices.attributes import Describer
from deviceplugin._dra.slices.plan import plan
from deviceplugin._dra.slices.pools import PoolCatalogue, Site, offers
from deviceplugin._inventory.published import Resource
from deviceplugin.kit import files
from drivers.cakes import PIECES, RESOURCE, Cakes, Kitchen
from drivers.driver_node import DRIVER, NODE, DriverNode

_MOST_PODS: Final = 6
_CAKES: Final = ("apple", "berry")
_KINDS: Final = ("half", "quarter", "quarter", "whole", "")
_HOOKS: Final = ("make", "made", "unmake", "unmade")
_ERRORS: Final = (dp.AllocationError("busy"), dp.DevicePluginError("lost"), KeyError("odd"))
_REST: Final = 60


class KilledError(BaseException):
    """Ends the process here; nothing that comes later has an effect."""


class Profiled(Cakes):
    """Cakes whose parts say what they are."""

    @override
    def device(self, name: str, part: dp.Part) -> dp.Device:
        kind = name.partition("/")[2].partition("@")[0] or "whole"
        return replace(super().device(name, part), attributes={"profile": dp.Attribute(kind)})


class CakeNode(DriverNode):
    """A node with a driver of cakes, whose claims are those of ``cluster``."""

    def __init__(self, path: Path, kitchen: Kitchen, store: Any) -> None:
        self.kitchen = kitchen
        super().__init__(path)
        self.store = store
        self.restart()

    @override
    def restart(self) -> None:
        self.cakes = Profiled(self.kitchen)
        self.resource = Resource(RESOURCE, self.cakes)
        self.resources = {RESOURCE: self.resource}
        super().restart()
        self.discover()

    def discover(self) -> None:
        groups, problems = discover(self.cakes)
        assert not problems
        self.resource.publish(groups[RESOURCE].values())


class PartHistory:
    """A history of a node with cakes, of which ``history`` has what happened so far."""

    def __init__(self, path: Path, seed: int, patch: pytest.MonkeyPatch) -> None:
        self.history: list[str] = []
        self._random = random.Random(seed)
        self._left: int | None = None
        """Steps until the process is killed."""
        self._cluster = Simulated()
        self._cluster.__enter__()
        self._api = self._cluster.cluster
        self._api.add_node(NODE)
        self._cluster.device_class()
        self._away = False
        self._made = 0
        self._running: dict[str, dict[str, frozenset[tuple[str, int]]]] = {}
        """The pieces that the containers of each running pod have, by claim."""
        for name in ("write", "remove", "sync"):
            patch.setattr(files, name, self._step(getattr(files, name)))
        self.kitchen = Kitchen(*_CAKES)
        self.node = CakeNode(path, self.kitchen, self)
        self._site = Site(DRIVER, NODE)
        self._catalogue = PoolCatalogue(Describer(DRIVER), NODE, "no-schedule")

    def close(self) -> None:
        self._cluster.__exit__()

    def play(self, steps: int) -> None:
        """Do so many random things; fail as soon as one is wrong."""
        actions = {
            self._create: 8,
            self._delete: 5,
            self._restart: 1,
            self._boot: 1,
            self._forget: 1,
            self._meddle: 3,
            self._break: 4,
            self._go_away: 1,
        }
        for _ in range(steps):
            self._random.choices([*actions], [*actions.values()])[0]()
            self._sync(kills=True)

    def come_to_rest(self) -> None:
        """Repair all and end all pods; nothing may be left of them, and all of what others made."""
        self._did("come to rest")
        self._away = False
        self.node.cakes.faults.clear()
        for pod in self._api.list("Pod"):
            self._api.delete("Pod", pod["metadata"]["name"])
        for _ in range(_REST):
            self._sync()
            if not (self._api.list("Pod") or self.node.recorded()):
                break
        for claim in self._api.list("ResourceClaim"):
            self._api.delete("ResourceClaim", claim["metadata"]["name"])
        self.kitchen.strange.clear()
        self._sync()
        left = (self.node.recorded(), self.node.cdi_files(), self.kitchen.cut, self.node.cakes.made)
        assert ([], [], {}, {}) == left
        free = {device["name"] for one in self._slices() for device in one.get("devices", ())}
        assert len(_CAKES) * (len(PIECES) + 1) == len(free)

    def _did(self, what: str) -> None:
        self.history.append(what)

    # What happens

    def _create(self) -> None:
        if len(self._api.list("Pod")) >= _MOST_PODS:
            return
        self._made += 1
        name = f"p{self._made}"
        claims = {
            f"{name}-{index}": self._kinds() for index in range(self._random.choice((1, 1, 2)))
        }
        for claim, kinds in claims.items():
            requests = [_request(f"r{index}", kind) for index, kind in enumerate(kinds)]
            self._cluster.claim_of(claim, requests)
        self._cluster.pod(
            name, resourceClaims=[{"name": c, "resourceClaimName": c} for c in claims]
        )
        self._did(f"create {claims}")

    def _kinds(self) -> list[str]:
        return self._random.choices(_KINDS, k=self._random.choice((1, 1, 2, 3)))

    def _delete(self) -> None:
        if pods := self._api.list("Pod"):
            name = self._random.choice(pods)["metadata"]["name"]
            self._did(f"delete {name}")
            self._api.delete("Pod", name)

    def _restart(self) -> None:
        self._did("restart")
        self.node.restart()

    def _boot(self) -> None:
        self._did("boot")
        self.kitchen.boot()
        self._running.clear()
        self.node.boot()

    def _forget(self) -> None:
        """Lose what the kubelet knows of the pods that are gone, as by a reset of the node."""
        for pod in [*self._api.list("Pod")]:
            if "deletionTimestamp" in pod["metadata"]:
                self._did(f"forget {pod['metadata']['name']}")
                self._remove(pod)

    def _meddle(self) -> None:
        """Have somebody else cut a part where there is room, or remove one that is theirs."""
        cake, piece = self._random.choice(_CAKES), self._random.choice([*PIECES])
        name = f"{cake}/{piece}"
        if self.kitchen.strange.pop(name, None):
            self._did(f"others remove {name}")
        elif not {(cake, n) for n in PIECES[piece]} & self._taken():
            self._did(f"others cut {name}")
            self.kitchen.strange[name] = f"strange-{len(self.history)}"

    def _taken(self) -> set[tuple[str, int]]:
        """Return the pieces that are cut or held as part of a whole."""
        held = {one for pod in self._running.values() for pieces in pod.values() for one in pieces}
        return held | {(cake, n) for cake in _CAKES for n in self.kitchen.quarters(cake)}

    def _break(self) -> None:
        hook, error = self._random.choice(_HOOKS), self._random.choice(_ERRORS)
        self._did(f"{hook} fails with {error!r}")
        self.node.cakes.faults[hook] = lambda: self._fail(hook, error)

    def _fail(self, hook: str, error: Exception) -> None:
        if self._random.random() < 0.5:
            del self.node.cakes.faults[hook]
        raise error

    def _go_away(self) -> None:
        self._away = not self._away
        self._did(f"the API server {'goes away' if self._away else 'comes back'}")

    # The API server, for the driver

    def get(self, namespace: str, name: str, timeout: float = 0.0) -> Object:
        del namespace, timeout
        found = None if self._away else self._api.get("ResourceClaim", name)
        if found is None:
            raise dp.DevicePluginError("the API server is away, or answers 404")
        return found

    def _slices(self) -> list[Object]:
        return [one["spec"] for one in self._api.list("ResourceSlice")]

    def _publish(self) -> None:
        self.node.discover()
        wanted = offers(self.node.ownership, self.node.resources, complete=True)
        have = [*self._api.list("ResourceSlice")]
        for write in plan(have, self._catalogue.pools(wanted or {}, groups=False), self._site):
            if write.body is None:
                self._api.delete("ResourceSlice", write.name)
            elif write.action == "create":
                self._api.create(write.body)
            else:
                spec = write.body["spec"]
                self._api.change("ResourceSlice", write.name, lambda one: one.update(spec=spec))  # noqa: B023

    # The kubelet

    def _sync(self, *, kills: bool = False) -> None:
        """Publish, schedule, and prepare and release claims; check what there is then."""
        if not self._away:
            self._publish()
            self._api.settle()
        for pod in self._api.pods_on(NODE):
            with self._killed(kills):
                if "deletionTimestamp" in pod["metadata"]:
                    self._end(pod)
                elif pod["metadata"]["name"] not in self._running:
                    self._start(pod)
            self.check()
        known = {one["metadata"]["name"] for one in self._api.list("ResourceClaim")}
        for record in [*self.node.records.all().values()]:
            if record.claim.name not in known:
                with self._killed(kills), suppress(dp.DevicePluginError):
                    self.node.unprepare(record.claim)
        self.check()

    def _start(self, pod: Object) -> None:
        claims = _claims_of(pod, self._api.get)
        if claims is None:
            return
        with suppress(dp.DevicePluginError):
            given = {one.name: self.node.prepare(one) for one in claims}
            ids = {name: [device.id for device in each] for name, each in given.items()}
            self._running[pod["metadata"]["name"]] = {
                name: frozenset(piece for one in each for piece in _pieces(one))
                for name, each in ids.items()
            }
            self._did(f"{pod['metadata']['name']} has {ids}")

    def _end(self, pod: Object) -> None:
        self._running.pop(pod["metadata"]["name"], None)
        with suppress(dp.DevicePluginError):
            for claim in _claims_of(pod, self._api.get) or ():
                self.node.unprepare(claim)
            self._did(f"{pod['metadata']['name']} has ended")
            self._remove(pod)

    def _remove(self, pod: Object) -> None:
        name = pod["metadata"]["name"]
        self._running.pop(name, None)
        self._api.delete("Pod", name, grace=0)
        for one in pod["spec"]["resourceClaims"]:
            self._api.delete("ResourceClaim", one["resourceClaimName"])
        self._api.settle()

    # The end of processes

    @contextmanager
    def _killed(self, kills: bool) -> Iterator[None]:
        """Kill the process in the context after some steps, perhaps, and start it again."""
        self._left = self._random.randint(0, 25) if kills and self._random.random() < 0.4 else None
        for hook in _HOOKS:
            self.node.cakes.faults.setdefault(hook, self._count)
        try:
            yield
        except KilledError:
            self._did("killed")
            self._left = None
            self.node.restart()
        finally:
            self._left = None

    def _count(self) -> None:
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                raise KilledError

    def _step(self, do: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **options: Any) -> Any:
            self._count()
            done = do(*args, **options)
            self._count()
            return done

        return run

    # What must be so

    def check(self) -> None:
        """Fail if two have the same, or one has what is not there."""
        taken: list[tuple[str, int]] = []
        for pod, claims in self._running.items():
            for claim, pieces in claims.items():
                taken += pieces
                held = self.node.records.get(f"uid-{claim}")
                del held, pod
        strange = [piece for one in self.kitchen.strange for piece in _pieces(one)]
        assert len(taken + strange) == len({*taken, *strange})
        for cake in _CAKES:
            self.kitchen.quarters(cake)


def _pieces(name: str) -> list[tuple[str, int]]:
    cake, _, piece = name.partition("/")
    return [(cake, n) for n in PIECES.get(piece, range(4))]


def _request(name: str, kind: str) -> Object:
    wanted: Object = {"deviceClassName": "gopher"}
    if kind:
        expression = f'device.attributes["{DRIVER}"].profile == "{kind}"'
        wanted["selectors"] = [{"cel": {"expression": expression}}]
    return {"name": name, "exactly": wanted}


def _claims_of(pod: Object, get: Callable[[str, str], Object | None]) -> list[Claim] | None:
    """Return the claims of ``pod`` that are allocated; None if one is not."""
    found = [
        get("ResourceClaim", one["resourceClaimName"]) for one in pod["spec"]["resourceClaims"]
    ]
    return [
        Claim("default", one["metadata"]["name"], one["metadata"]["uid"]) for one in found if one
    ]
