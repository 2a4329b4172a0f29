"""The operator without kopf: it takes in events, lists everything now and then, and reconciles."""

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from deviceplugin.apiserver import ApiServer, ApiServerError, ConflictError, NotFoundError
from deviceplugin.kit.backoff import Backoff
from deviceplugin_operator import names
from deviceplugin_operator.cluster.access import Cluster
from deviceplugin_operator.cluster.objects import notify
from deviceplugin_operator.fleet import Fleet
from deviceplugin_operator.observed import (
    CONFIG_MAPS,
    DAEMON_SETS,
    KINDS,
    OWNERS,
    Hearing,
    Object,
    Seen,
    owner_of,
)
from deviceplugin_operator.reconciling.dra import Dra
from deviceplugin_operator.reconciling.judge import Timing
from deviceplugin_operator.reconciling.reconciler import Reconciler

log = logging.getLogger(__name__)

NODES_EVERY: Final = 30.0
LISTS_EVERY: Final = 300.0
"""Seconds between complete lists, in case an event was lost."""
DEBOUNCE: Final = 0.05
"""Seconds in which several events of an object become one reconcile."""
NODE_DEBOUNCE: Final = 1.0
"""Seconds in which changes of up to a thousand nodes do: in a roll-out there are many."""
FIRST_WAIT: Final = 1.0
LAST_WAIT: Final = 60.0
DEAF: Final = 900.0
"""Seconds without a complete list after which the liveness probe fails."""


class Controller:
    """Keeps the cluster as the objects ask, in two threads."""

    def __init__(
        self,
        api: ApiServer,
        namespace: str,
        *,
        prefix: str = "",
        timing: Timing | None = None,
        nodes_every: float = NODES_EVERY,
        lists_every: float = LISTS_EVERY,
    ) -> None:
        self._api = api
        self._namespace = namespace
        self._every = {"nodes": nodes_every, "lists": lists_every}
        self.seen = Seen()
        self.fleet = Fleet(api, self._nodes_changed)
        self.queue = Queue(time.monotonic)
        self._cluster = Cluster(api, self.seen, namespace)
        self._reconciler = Reconciler(
            self._cluster,
            self.seen,
            self.fleet,
            partial(notify, api),
            Dra(api, self.seen, self.fleet, namespace),
            prefix=prefix,
            timing=timing,
        )
        self._stop = threading.Event()
        self._whole = time.monotonic()
        self._hearing = Hearing(time.monotonic)
        self._failing: dict[str, str] = {}
        self._raced: set[str] = set()
        """Objects whose last attempt met a conflict; two in a row are a failure."""
        self._threads = [
            threading.Thread(target=self._look, name="look", daemon=True),
            threading.Thread(target=self._work, name="work", daemon=True),
        ]

    def knows_kind(self) -> bool:
        """Return whether the API server knows the kind, or does not answer."""
        try:
            self._api.get(self._list(OWNERS)[0], {"limit": "1"})
        except NotFoundError:
            return False
        except ApiServerError:
            return True
        return True

    def start(self) -> None:
        """Start. Nothing is changed before everything has been listed once."""
        self._threads[0].start()

    def stop(self) -> None:
        """Stop after the current step."""
        self._stop.set()
        self.queue.close()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(30)
        self.fleet.stop()
        self._cluster.stop()

    def event(self, kind: str, event: str | None, found: Object) -> None:
        """Take in an event of a watch."""
        self._hearing.heard(kind, found)
        news = self.seen.drop(kind, found) if event == "DELETED" else self.seen.put(kind, found)
        if news:
            self._wake(kind, found)

    def _wake(self, kind: str, found: Object) -> None:
        name = owner_of(kind, found)
        if name:
            self.queue.add(name)
        if kind == OWNERS:  # others may have been in conflict with it
            self._wake_all()

    def _wake_all(self, after: float = DEBOUNCE) -> None:
        for owner in self.seen.owners():
            self.queue.add(owner["metadata"]["name"], after)

    def _nodes_changed(self) -> None:
        wait = NODE_DEBOUNCE * (1 + self.fleet.size // 1000)
        self._wake_all(min(wait, self._every["nodes"]))

    def problem(self) -> str:
        """Return why the process should be restarted, or an empty string."""
        silent = time.monotonic() - self._whole
        if silent > DEAF:
            return f"no complete list from the API server for {silent:.0f} s"
        if kind := self._hearing.deaf(self.seen):
            return f"the watch of {kind} misses changes that a list shows"
        dead = [one.name for one in self._threads if one.ident and not one.is_alive()]
        if dead and not self._stop.is_set():
            return f"the thread {dead[0]} has stopped"
        return ""

    # Looking

    def _look(self) -> None:
        due = {"lists": 0.0, "nodes": 0.0}
        while not self._stop.is_set():
            for what, look in (("lists", self._look_at_objects), ("nodes", self.fleet.refresh)):
                if time.monotonic() >= due[what]:
                    wait = self._every[what] if self._tried(what, look) else 5.0
                    due[what] = time.monotonic() + wait
            if (
                not self._threads[1].ident
                and all(one > 0 for one in due.values())
                and not self._failing
            ):
                self._threads[1].start()
            self._stop.wait(max(0.05, min(due.values()) - time.monotonic()))

    def _tried(self, what: str, look: Callable[[], None]) -> bool:
        """Look, and return whether that succeeded. A lasting failure is logged once."""
        try:
            look()
        except ApiServerError as error:
            if self._failing.get(what) != str(error):
                log.warning("API server unavailable", extra={"what": what, "reason": str(error)})
            self._failing[what] = str(error)
            return False
        if self._failing.pop(what, ""):
            log.info("API server available again", extra={"what": what})
        return True

    def _look_at_objects(self) -> None:
        """List all objects. What is new was missed by a watch."""
        for kind in KINDS:
            before = self.seen.known(kind)
            for found in self.seen.take_all(kind, self._api.list(*self._list(kind)), before):
                if self.seen.get(kind, found["metadata"]["name"]) is found:
                    self._hearing.listed(kind, found)
                self._wake(kind, found)
        self._wake_all()
        self._whole = time.monotonic()

    def _list(self, kind: str) -> tuple[str, dict[str, str]]:
        if kind == OWNERS:
            return f"/apis/{names.GROUP}/{names.VERSION}/{names.PLURAL}", {}
        group = "/apis/apps/v1" if kind == DAEMON_SETS else "/api/v1"
        place = f"{group}/namespaces/{self._namespace}/{kind}"
        return place, {"labelSelector": names.OWNER} if kind in {DAEMON_SETS, CONFIG_MAPS} else {}

    # Working

    def _work(self) -> None:
        while (name := self.queue.take()) is not None:
            try:
                after = self._reconciler.reconcile(name)
            except ApiServerError as error:
                if isinstance(error, ConflictError) and name not in self._raced:
                    self._raced.add(name)  # somebody else was quicker
                    self.queue.add(name)
                    continue
                if self._failing.get(name) != str(error):
                    log.warning("reconcile failed", extra={"object": name, "reason": str(error)})
                self._failing[name] = str(error)
                self.queue.again(name)
            else:
                self._failing.pop(name, None)
                self._raced.discard(name)
                self.queue.done(name)
                if after is not None:
                    self.queue.add(name, after)


class Queue:
    """A queue of object names with delays, for one reader. A name is in it at most once."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._due: dict[str, float] = {}
        self._waits: dict[str, Backoff] = {}
        self._closed = False

    def add(self, name: str, after: float = DEBOUNCE) -> None:
        """Make ``name`` due in ``after`` seconds, unless it is due earlier."""
        due = self._clock() + after
        with self._changed:
            self._due[name] = min(due, self._due.get(name, due))
            self._changed.notify_all()

    def again(self, name: str) -> None:
        """Make ``name`` due again after a failure, with a growing delay."""
        backoff = self._waits.setdefault(name, Backoff(FIRST_WAIT, LAST_WAIT))
        self.add(name, backoff.next_wait())

    def done(self, name: str) -> None:
        """Forget the failures of ``name``."""
        self._waits.pop(name, None)

    def close(self) -> None:
        """Make ``take`` return None."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def take(self) -> str | None:
        """Wait for a name that is due, and return it; None once the queue is closed."""
        with self._changed:
            while not self._closed:
                name = min(self._due, key=self._due.__getitem__, default=None)
                left = None if name is None else self._due[name] - self._clock()
                if name is not None and left is not None and left <= 0:
                    del self._due[name]
                    return name
                self._changed.wait(left)
            return None
