"""Random pools whose devices consume counters, and pods with claims on them. The seed decides."""

import itertools
import random
from collections.abc import Sequence
from copy import deepcopy
from functools import partial
from typing import Any

from cluster.dra_api.asking import normal
from cluster.dra_objects import DRIVER, RESOURCE, Object, Objects
from patience import eventually

_POOL = f"n1/{RESOURCE}"
_FENCE = "fence.example.com"
_TAINT = {"key": "x", "value": "held", "effect": "NoSchedule"}
_soon = partial(eventually, what="the cluster", every=0.02)


class CounterWorld:
    """Does the same in several clusters of one node, n1, and compares what claims get.

    ``history`` has what was done, and what claims got.
    """

    def __init__(self, seed: int, *clusters: Objects) -> None:
        self.history: list[Any] = []
        self._random = random.Random(seed)
        self._clusters = clusters
        self._numbers = itertools.count(1)
        self._running: dict[str, list[str]] = {}
        self._slices: dict[str, Object] = {}
        label = {"resource.kubernetes.io/admin-access": "true"}
        for make in clusters:
            make.cluster.change(
                "Namespace", "default", lambda one: one["metadata"].update(labels=label)
            )
            make.device_class()
            make.device_class("any", selectors=[])
        self._add_pool(DRIVER, _POOL)
        if self._is(0.3):
            self._add_pool(DRIVER, "a")
        if self._is(0.2):
            self._add_pool("other.example.com", self._random.choice((_POOL, "b")))
        for name, spec in self._slices.items():
            for make in clusters:
                make.slice(metadata={"name": name}, **spec)
        self.history.append({**self._slices})
        self._wait_for_slices()

    def play(self, steps: int) -> None:
        """Do so many things; fail if a pod's claims get something else in one of the clusters."""
        for _ in range(steps):
            self._random.choices((self._create, self._end, self._change), (8, 2, 2))[0]()

    def _is(self, share: float) -> bool:
        return self._random.random() < share

    # Pools

    def _add_pool(self, driver: str, pool: str) -> None:
        roll = self._random.randint
        sets = {
            f"s{index}": {name: roll(1, 7) for name in ("m", "n")[: roll(1, 2)]}
            for index in range(roll(1, 3))
        }
        devices = [self._device(f"d{index}", sets) for index in range(roll(3, 9))]
        parts = roll(1, 3)
        contents: list[Object] = [{"devices": devices[part::parts]} for part in range(parts)]
        every = [{"name": name, "counters": _amounts(one)} for name, one in sets.items()]
        cut = roll(0, len(every)) if self._is(0.3) else len(every)
        more = every[:1] if self._is(0.04) else []  # the same twice
        contents += [{"sharedCounters": one} for one in (every[:cut], every[cut:], more) if one]
        if self._is(0.04):
            consumed = {"counterSet": "unknown", "counters": _amounts({"m": 1})}
            devices[0]["consumesCounters"] = [consumed]
        self._random.shuffle(contents)
        count = len(contents) + self._is(0.05)
        for content in contents:
            self._slices[f"slice{len(self._slices)}"] = {
                "driver": driver,
                "nodeName": "n2" if self._is(0.15) else "n1",
                "pool": {"name": pool, "generation": 1, "resourceSliceCount": count},
                "devices": None,
                **content,
            }

    def _device(self, name: str, sets: dict[str, dict[str, int]]) -> Object:
        made: Object = {"name": name, "attributes": {"kind": {"string": self._random.choice("xy")}}}
        chosen = self._random.sample([*sets], min(len(sets), self._random.choice((0, 1, 1, 1, 2))))
        consumed = [
            {name: self._random.randint(0, min(4, most)) for name, most in sets[one].items()}
            for one in chosen
        ]
        if chosen:
            made["consumesCounters"] = [
                {"counterSet": one, "counters": _amounts(amounts)}
                for one, amounts in zip(chosen, consumed, strict=True)
            ]
        if self._is(0.15):
            made["taints"] = [_TAINT]
        if self._is(0.15):
            made |= {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "4"}}}
        return made

    def _change(self) -> None:
        """Change something of a pool, in a new generation of all its slices."""
        pool = self._random.choice([*self._slices.values()])["pool"]["name"]
        mine = {name: one for name, one in self._slices.items() if one["pool"]["name"] == pool}
        chosen = self._random.choice([*mine.values()])
        if chosen["devices"] is None:
            one = self._random.choice(chosen["sharedCounters"])
            name = self._random.choice([*one["counters"]])
            one["counters"] |= _amounts({name: self._random.randint(0, 7)})
        else:
            place = self._random.randrange(len(chosen["devices"]))
            one = chosen["devices"][place]
            taints = {} if "taints" in one else {"taints": [_TAINT]}
            kept = {name: value for name, value in one.items() if name != "taints"}
            gone = {"name": f"new{next(self._numbers)}"}
            chosen["devices"][place] = one = gone if self._is(0.5) else kept | taints
        self.history.append(["change", pool, one])
        for name, spec in mine.items():
            spec["pool"]["generation"] += 1
            new = {field: value for field, value in spec.items() if value is not None}
            for make in self._clusters:
                make.cluster.change("ResourceSlice", name, partial(_replace, new))
        self._wait_for_slices()

    def _wait_for_slices(self) -> None:
        """Wait until the schedulers know all slices, as one that comes after them shows."""
        name = f"fence{next(self._numbers)}"
        pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
        for make in self._clusters:
            make.slice("a", metadata={"name": name}, driver=f"{name}.{_FENCE}", pool=pool)
            expression = f'device.driver == "{name}.{_FENCE}"'
            make.device_class(name, selectors=[{"cel": {"expression": expression}}])
            make.claim(name, deviceClassName=name)
            make.pod_with(name, name)
            make.settle()
            _soon(partial(make.node_of, name))
            _forget(make, name, [name])
            make.cluster.delete("ResourceSlice", name)

    # Pods

    def _create(self) -> None:
        name = f"p{next(self._numbers)}"
        claims = {f"{name}-{index}": self._claim() for index in range(1 + self._is(0.3))}
        found = []
        for make in self._clusters:
            for claim, (requests, constraints) in claims.items():
                make.claim_of(claim, requests, constraints=constraints)
            make.pod(
                name, resourceClaims=[{"name": one, "resourceClaimName": one} for one in claims]
            )
        for make in self._clusters:
            make.settle()
            _soon(lambda: make.node_of(name) or make.why_not(name))  # noqa: B023
            is_scheduled = bool(make.node_of(name))
            found.append(is_scheduled and [_results(make, claim) for claim in claims])
        self.history.append([name, claims, found[0]])
        assert found[:1] * len(found) == found
        self._running[name] = [*claims]
        if not found[0]:
            self._end(name)

    def _claim(self) -> tuple[list[Object], list[Object]]:
        requests: list[Object] = []
        for index in range(self._random.choice((1, 1, 2, 3))):
            if self._is(0.2):
                several = [{"name": f"s{one}", **self._wanted()} for one in range(2)]
                requests.append({"name": f"r{index}", "firstAvailable": several})
            else:
                admin = {"adminAccess": True} if self._is(0.08) else {}
                requests.append({"name": f"r{index}", "exactly": self._wanted() | admin})
        rule = self._random.choice(("matchAttribute", "matchAttribute", "distinctAttribute"))
        return requests, [{rule: f"{DRIVER}/kind"}] if self._is(0.25) else []

    def _wanted(self) -> Object:
        wanted: Object = {"deviceClassName": "any" if self._is(0.15) else "gopher"}
        if self._is(0.08):
            wanted["allocationMode"] = "All"
        else:
            wanted["count"] = self._random.choice((1, 1, 1, 2, 3))
        if self._is(0.5):
            kind = f'device.attributes["{DRIVER}"].kind == "{self._random.choice("xy")}"'
            expression = f'device.driver == "{DRIVER}" && {kind}'
            wanted["selectors"] = [{"cel": {"expression": expression}}]
        if self._is(0.15):
            wanted["tolerations"] = [{"key": "x", "operator": "Exists"}]
        if self._is(0.1):
            wanted["capacity"] = {"requests": {"memory": self._random.choice("12")}}
        return wanted

    def _end(self, name: str = "") -> None:
        if name := name or self._random.choice([*self._running, ""]):
            self.history.append(["end", name])
            claims = self._running.pop(name)
            for make in self._clusters:
                _forget(make, name, claims)


def _forget(make: Objects, name: str, claims: Sequence[str]) -> None:
    """Delete a pod, and its claims, and wait until they have gone."""
    make.cluster.delete("Pod", name, grace=0)
    for claim in claims:
        make.cluster.delete("ResourceClaim", claim)
    make.settle()
    _soon(lambda: all(make.cluster.get("ResourceClaim", one) is None for one in claims))


def _results(make: Objects, claim: str) -> list[Object]:
    several = map(normal, make.allocation(claim)["results"])
    return [{name: one[name] for name in sorted(one) if name != "shareID"} for one in several]


def _amounts(given: dict[str, int]) -> Object:
    return {name: {"value": str(amount)} for name, amount in given.items()}


def _replace(spec: Object, found: Object) -> None:
    found["spec"] = deepcopy(spec)
