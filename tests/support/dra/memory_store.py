"""An API server's slices in memory, for tests that hold the clock: see `MemoryStore`."""

import copy
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Any

from typing_extensions import override

from deviceplugin._dra.slices.attributes import LISTS
from deviceplugin._dra.slices.store import SliceStore
from deviceplugin._platform.api_errors import (
    ApiServerError,
    ConflictError,
    InvalidError,
    NotFoundError,
)
from deviceplugin_testing.simulator._control_plane.rules.slices import check_slice

Object = dict[str, Any]
Changed = Callable[[Mapping[str, Object], str], None]


class _Watch:
    def __init__(self, store: "MemoryStore", changed: Changed) -> None:
        self._store = store
        self._changed = changed
        self._news = threading.Semaphore(0)
        self._over = threading.Event()

    def wake(self) -> None:
        self._news.release()

    def run(self) -> None:
        self._store.watches.append(self)
        while not self._over.is_set():
            if self._store.defect is not None:
                raise self._store.defect
            if not self._store.deaf:
                self._changed(*self._store.now())
            self._news.acquire()

    def stop(self) -> None:
        self._over.set()
        self.wake()


class MemoryStore(SliceStore):
    """Slices as an API server keeps them: versions, conflicts, refusals, its own spelling.

    The names of all requests are in ``asked``. Errors in ``errors`` answer the next requests.
    """

    def __init__(self) -> None:
        self.slices: dict[str, Object] = {}
        self.asked: list[str] = []
        self.errors: list[ApiServerError] = []
        self.lost: bool = False
        """Whether the errors come after the request has been done."""
        self.deaf = False
        """Whether watches hear of nothing."""
        self.defect: Exception | None = None
        self.watches: list[_Watch] = []
        self.failed: Callable[[ApiServerError], None] = lambda _error: None
        self.on_write: Callable[[], object] = lambda: None
        self.node_uid = "node-1"
        self.counts_shares = True
        """Whether it keeps what says that devices are shared."""
        self.keeps_lists = True
        """Whether it keeps attributes with several values."""
        self.keeps_counters = self.keeps_groups = True
        """Whether it keeps what parts take of counters, and their groups."""
        self._version = 10
        self._uids = count()
        self._lock = threading.RLock()

    def now(self) -> tuple[dict[str, Object], str]:
        with self._lock:
            return copy.deepcopy(self.slices), str(self._version)

    def tell(self) -> None:
        for watch in self.watches:
            watch.wake()

    # What others do.

    def edit(self, name: str, change: Callable[[Object], object]) -> None:
        """Change a slice as somebody else would."""
        with self._lock:
            one = copy.deepcopy(self.slices[name])
            change(one)
            self._put(one)

    def wipe(self, names: Iterable[str] | None = None) -> None:
        """Delete slices as somebody else would."""
        with self._lock:
            for name in list(self.slices) if names is None else names:
                del self.slices[name]
                self._version += 1
        self.tell()

    # What the publisher does.

    @override
    def owner(self) -> Mapping[str, Any] | None:
        return {"kind": "Node", "uid": self.node_uid} if self.node_uid else None

    @override
    def list(self) -> tuple[dict[str, Object], str]:
        with self._answer("list"):
            return self.now()

    @override
    def create(self, one: Object) -> Object:
        name = one["metadata"]["name"]
        with self._answer(f"create {name}"):
            if name in self.slices:
                raise ConflictError(f"{name} exists", status=409)
            made = copy.deepcopy(one)
            made["metadata"]["uid"] = f"uid-{next(self._uids)}"
            return self._put(made)

    @override
    def try_out(self, one: Object) -> Object:
        with self._answer("try out"):
            return _checked(self._kept(one))

    @override
    def replace(self, one: Object) -> Object:
        name = one["metadata"]["name"]
        with self._answer(f"replace {name}"):
            old = self.slices.get(name)
            if old is None:
                raise NotFoundError(f"no {name}", status=404)
            for field in ("uid", "resourceVersion"):
                if old["metadata"][field] != one["metadata"][field]:
                    raise ConflictError(f"{name} has changed", status=409)
            return self._put(one)

    @override
    def delete(self, name: str, uid: str) -> None:
        with self._answer(f"delete {name}"):
            if name not in self.slices:
                raise NotFoundError(f"no {name}", status=404)
            if self.slices[name]["metadata"]["uid"] != uid:
                raise ConflictError(f"{name} is another", status=409)
            del self.slices[name]
            self._version += 1
        self.tell()

    @override
    def watch(self, changed: Changed, failed: Callable[[ApiServerError], None]) -> _Watch:
        self.failed = failed
        return _Watch(self, changed)

    @contextmanager
    def _answer(self, what: str) -> Iterator[None]:
        with self._lock:
            self.asked.append(what)
            if what != "list":
                self.on_write()
            if self.errors and not self.lost:
                raise self.errors.pop(0)
            yield
            if self.errors and self.lost:
                raise self.errors.pop(0)

    def _kept(self, one: Object) -> Object:
        one = copy.deepcopy(one)
        devices = one["spec"].get("devices", ())
        _drop_counters(one["spec"], counters=self.keeps_counters, groups=self.keeps_groups)
        for device in () if self.counts_shares else devices:
            device.pop("allowMultipleAllocations", None)
            for amount in device.get("capacity", {}).values():
                amount.pop("requestPolicy", None)
        for device in () if self.keeps_lists else devices:
            for value in device["attributes"].values():
                for kind in LISTS & value.keys():
                    del value[kind]
        return one

    def _put(self, one: Object) -> Object:
        one = _checked(self._kept(one))
        old = self.slices.get(one["metadata"]["name"])
        for device in one["spec"].get("devices", ()):
            for amount in device.get("capacity", {}).values():
                amount["value"] = amount["value"].replace("1024Mi", "1Gi")
            for taint in device.get("taints", ()):
                taint.setdefault("timeAdded", f"at {self._version}")
        generation = old["metadata"]["generation"] if old else 0
        one["metadata"]["generation"] = generation + (not old or old["spec"] != one["spec"])
        self._version += 1
        one["metadata"]["resourceVersion"] = str(self._version)
        self.slices[one["metadata"]["name"]] = one
        self.tell()
        return copy.deepcopy(one)


def _checked(one: Object) -> Object:
    if wrong := [*check_slice(one)]:
        causes = [(error.field, error.message) for error in wrong]
        raise InvalidError("invalid", status=422, causes=causes)
    return one


def _drop_counters(spec: Object, *, counters: bool, groups: bool) -> None:
    for device in spec.get("devices", ()):
        for taken in device.get("consumesCounters", ()) if not groups else ():
            taken.pop("compatibilityGroups", None)
    for one in () if counters else (spec, *spec.get("devices", ())):
        one.pop("sharedCounters", None)
        one.pop("consumesCounters", None)
