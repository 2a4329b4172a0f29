"""Random histories of a node that makes parts for claims. The seed decides.

API server, scheduler, slices, ownership and records are those of a node. The hardware, the kubelet
and the end of processes are played: a process ends before or after any write or hook.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

import deviceplugin as dp
from cluster.dra_objects import Object, Simulated
from deviceplugin._attribution.claim_holders import Claim
from deviceplugin._dra.slices.attributes import Describer
from deviceplugin._dra.slices.plan import plan
from deviceplugin._dra.slices.pools import PoolCatalogue, Site, offers
from deviceplugin.kit import files
from drivers.cakes import CAKES, PIECES, BakedNode, pieces_of
from drivers.driver_node import DRIVER, NODE

_MOST_PODS: Final = 6
_CAKES: Final = ("apple", "berry")
_KINDS: Final = ("half", "quarter", "quarter", "whole", "")
_REFUSED: Final = dp.AllocationError("busy")
_ERRORS: Final = (dp.DevicePluginError("lost"), KeyError("odd"))
_FAULTS: Final = {
    "make": (_REFUSED, *_ERRORS),
    "made": _ERRORS,
    "unmake": (_REFUSED, *_ERRORS),
    "unmade": _ERRORS,
}
"""How each hook may fail, before and after its work."""
_REST: Final = 60


class KilledError(BaseException):
    """Ends the process here; nothing that comes later has an effect on the disk or hardware."""


class PartHistory:
    """A history of a node with cakes, of which ``history`` has what happened so far."""

    def __init__(self, path: Path, seed: int, patch: pytest.MonkeyPatch) -> None:
        self.history: list[str] = []
        self.kills = 0
        self._random = random.Random(seed)
        self._left: int | None = None
        """Steps until the process is killed; negative once it has been."""
        self._faults: dict[str, Exception] = {}
        self._away = False
        self._pods: dict[str, list[str]] = {}
        """The claims of each pod that was created."""
        self._running: dict[str, dict[str, list[str]]] = {}
        """What the containers of each running pod have, by claim."""
        for name in ("write", "remove", "sync"):
            patch.setattr(files, name, partial(self._step, getattr(files, name)))
        self._make = Simulated()
        self._make.cluster.start()
        self._api = self._make.cluster
        self._api.add_node(NODE)
        self._make.device_class()
        self._site = Site(DRIVER, NODE)
        self._catalogue = PoolCatalogue(Describer(DRIVER), NODE, "no-schedule")
        self.node = BakedNode(path, *_CAKES)
        self.node.store = self  # type: ignore[assignment]
        self.node.cakes.faults = {name: partial(self._hook, name) for name in _FAULTS}
        self.node.restart()

    def close(self) -> None:
        self._api.stop()

    def play(self, steps: int) -> None:
        """Do so many random things; fail as soon as one is wrong."""
        often = [self._create] * 8 + [self._delete] * 5 + [self._meddle, self._break] * 3
        seldom = [self._restart, self._boot, self._forget, self._go_away]
        for _ in range(steps):
            self._random.choice([*often, *seldom])()
            self._sync(kills=True)

    def come_to_rest(self) -> None:
        """Repair all and end all pods; nothing may be left of them."""
        self._did("come to rest")
        self._away = False
        self._faults.clear()
        for pod in self._api.list("Pod"):
            self._api.delete("Pod", pod["metadata"]["name"])
        for _ in range(_REST):
            self._sync()
            if self.node.is_empty() and not self._api.list("ResourceClaim"):
                break
        assert self.node.is_empty()
        assert () == tuple(self._api.list("ResourceClaim"))
        self.node.kitchen.strange.clear()
        self._sync()
        slices = [one["spec"] for one in self._api.list("ResourceSlice")]
        devices = [
            one
            for spec in slices
            if spec["pool"]["name"] == CAKES
            for one in spec.get("devices", ())
        ]
        assert len(_CAKES) * (len(PIECES) + 1) == len(devices)
        assert [] == [one for one in devices if "taints" in one]

    def _did(self, what: str) -> None:
        self.history.append(what)

    # What happens

    def _create(self) -> None:
        if len(self._api.list("Pod")) >= _MOST_PODS:
            return
        name = f"p{len(self._pods)}"
        claims = {f"{name}-{n}": self._kinds() for n in range(self._random.choice((1, 1, 2)))}
        for claim, kinds in claims.items():
            self._make.claim_of(claim, [_request(f"r{n}", kind) for n, kind in enumerate(kinds)])
        self._make.pod(name, resourceClaims=[{"name": c, "resourceClaimName": c} for c in claims])
        self._pods[name] = [*claims]
        self._did(f"create {name} for {claims}")

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
        self._running.clear()
        self.node.boot()

    def _forget(self) -> None:
        """Lose what the kubelet knows of pods that end, as by a reset of the node."""
        for pod in self._api.pods_on(NODE):
            if "deletionTimestamp" in pod["metadata"]:
                self._did(f"forget {pod['metadata']['name']}")
                self._running.pop(pod["metadata"]["name"], None)
                self._api.delete("Pod", pod["metadata"]["name"], grace=0)

    def _meddle(self) -> None:
        """Have somebody else cut a part where there is room, or remove one that is theirs."""
        strange, cake = self.node.kitchen.strange, self._random.choice(_CAKES)
        name = f"{cake}/{self._random.choice([*PIECES])}"
        if strange.pop(name, None):
            self._did(f"others remove {name}")
        elif not {*pieces_of(name)} & {*self._taken(), *self._whole()}:
            self._did(f"others cut {name}")
            strange[name] = f"strange-{len(self.history)}"

    def _whole(self) -> list[tuple[str, int]]:
        """Return the pieces of whole cakes that claims have, in use or not."""
        held = {key[1] for one in self.node.records.all().values() for key in one.held}
        return [piece for one in held if "@" not in one for piece in pieces_of(one)]

    def _break(self) -> None:
        hook = self._random.choice([*_FAULTS])
        self._faults[hook] = error = self._random.choice(_FAULTS[hook])
        self._did(f"{hook} fails with {error!r}")

    def _go_away(self) -> None:
        self._away = not self._away
        self._did(f"the API server {'goes away' if self._away else 'comes back'}")

    # The API server, as the driver sees it

    def get(self, namespace: str, name: str, timeout: float = 0.0) -> Object:
        del namespace, timeout
        found = None if self._away else self._api.get("ResourceClaim", name)
        if found is None:
            raise dp.DevicePluginError("the API server is away, or answers 404")
        return found

    def _publish(self) -> None:
        self.node.discover()
        wanted = offers(self.node.ownership, self.node.resources, complete=True) or {}
        have = [*self._api.list("ResourceSlice")]
        for write in plan(have, self._catalogue.pools(wanted, groups=False), self._site):
            if write.body is None:
                self._api.delete("ResourceSlice", write.name)
            elif write.action == "create":
                self._api.create(write.body)
            else:
                self._api.change("ResourceSlice", write.name, partial(_update, write.body))

    # The kubelet

    def _sync(self, *, kills: bool = False) -> None:
        """Publish, schedule, and prepare and release claims; check what there is then."""
        if not self._away:
            self._publish()
            self._api.settle()
        for pod in self._api.pods_on(NODE):
            with self._killed(kills=kills):
                self._sync_pod(pod)
            self.check()
        there = {one["metadata"]["name"] for one in self._api.list("Pod")}
        for claim in [claim for name in self._pods.keys() - there for claim in self._pods[name]]:
            if self._api.get("ResourceClaim", claim):
                self._api.delete("ResourceClaim", claim)
        self._api.settle()
        for record in [*self.node.records.all().values()]:
            if self._api.get("ResourceClaim", record.claim.name) is None:
                with self._killed(kills=kills):
                    self.node.unprepare(record.claim)
        self.check()

    def _sync_pod(self, pod: Object) -> None:
        name = pod["metadata"]["name"]
        claims = [*map(self._claim, self._pods[name])]
        if "deletionTimestamp" in pod["metadata"]:
            self._running.pop(name, None)
            for claim in claims:
                self.node.unprepare(claim)
            self._api.delete("Pod", name, grace=0)
            self._did(f"{name} has ended")
        elif name not in self._running:
            seconds = 0.05 if self._away else 30.0
            given = {one.name: self.node.prepare(one, seconds) for one in claims}
            found = {claim: [one.id for one in devices] for claim, devices in given.items()}
            self._running[name] = found
            self._did(f"{name} has {found}")

    def _claim(self, name: str) -> Claim:
        return Claim("default", name, self._make.get("ResourceClaim", name)["metadata"]["uid"])

    # The end of processes, and faults

    @contextmanager
    def _killed(self, *, kills: bool) -> Iterator[None]:
        """Let a call fail, or kill its process after some steps, and start it again."""
        self._left = self._random.randint(0, 25) if kills and self._random.random() < 0.4 else None
        with suppress(dp.DevicePluginError, KilledError):
            yield
        dead, self._left = self._left is not None and self._left < 0, None
        if dead:
            self.kills += 1
            self._did("killed")
            self.node.restart()

    def _count(self) -> None:
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                raise KilledError

    def _step(self, do: Callable[..., Any], *args: Any, **options: Any) -> Any:
        self._count()
        done = do(*args, **options)
        self._count()
        return done

    def _hook(self, name: str) -> None:
        self._count()
        if error := self._faults.get(name):
            if self._random.random() < 0.5:
                del self._faults[name]
            raise error

    # What must be so

    def _taken(self) -> list[tuple[str, int]]:
        """Return the pieces that containers have, and those that are cut besides."""
        had = {one for claims in self._running.values() for ids in claims.values() for one in ids}
        kitchen = self.node.kitchen
        return [piece for one in {*had, *kitchen.cut, *kitchen.strange} for piece in pieces_of(one)]

    def check(self) -> None:
        """Fail if two claims have the same, or more than there is, or what is not there."""
        claims = [ids for each in self._running.values() for ids in each.values()]
        given = [one for ids in claims for one in ids]
        assert sorted({*given}) == sorted(given), "a device is with two claims"
        assert {one for one in given if "@" in one} <= self.node.kitchen.cut.keys()
        taken = self._taken()
        assert len({*taken}) == len(taken), "more is made than there is"


def _request(name: str, kind: str) -> Object:
    wanted: Object = {"deviceClassName": "gopher"}
    if kind:
        expression = f'device.attributes["{DRIVER}"].profile == "{kind}"'
        wanted["selectors"] = [{"cel": {"expression": expression}}]
    return {"name": name, "exactly": wanted}


def _update(body: Object, one: Object) -> None:
    one["spec"] = body["spec"]
    one["metadata"]["annotations"] = body["metadata"]["annotations"]
