"""The operator without what brings it events: the work, and what looks by itself now and then."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from deviceplugin.apiserver import ApiServer, ApiServerError, ConflictError
from deviceplugin_operator import names
from deviceplugin_operator.cluster import Cluster
from deviceplugin_operator.fleet import Fleet
from deviceplugin_operator.notices import Notices
from deviceplugin_operator.reconciler import Reconciler, Timing
from deviceplugin_operator.seen import (
    CONFIG_MAPS,
    DAEMON_SETS,
    KINDS,
    OWNERS,
    Object,
    Seen,
    owner_of,
)
from deviceplugin_operator.work_queue import Queue

log = logging.getLogger(__name__)

NODES_EVERY: Final = 30.0
LISTS_EVERY: Final = 300.0
"""Seconds between looks at everything, in case an event was lost."""
DEAF: Final = 900.0
"""Seconds without a complete look at everything after which this process is of no use."""


class Controller:
    """Keeps the cluster as the objects say, in two threads of its own."""

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
        self.fleet = Fleet(api)
        self.queue = Queue(time.monotonic)
        self._reconciler = Reconciler(
            Cluster(api, self.seen, namespace),
            self.seen,
            self.fleet,
            Notices(api).notify,
            prefix=prefix,
            timing=timing,
        )
        self._stop = threading.Event()
        self._whole = time.monotonic()
        self._failing: dict[str, str] = {}
        self._threads = [
            threading.Thread(target=self._look, name="look", daemon=True),
            threading.Thread(target=self._work, name="work", daemon=True),
        ]

    def start(self) -> None:
        """Begin; nothing is changed before everything has been looked at once."""
        self._threads[0].start()

    def stop(self) -> None:
        """End, once the step under way is done."""
        self._stop.set()
        self.queue.close()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(30)

    def event(self, kind: str, event: str | None, found: Object) -> None:
        """Take in what a watch says of an object."""
        news = self.seen.drop(kind, found) if event == "DELETED" else self.seen.put(kind, found)
        if news:
            self._wake(kind, found)

    def _wake(self, kind: str, found: Object) -> None:
        name = owner_of(kind, found)
        if name:
            self.queue.add(name)
        if kind == OWNERS:  # whom it was in conflict with
            for other in self.seen.owners():
                if other["spec"].get("plugin") == found["spec"].get("plugin"):
                    self.queue.add(other["metadata"]["name"])

    def problem(self) -> str:
        """Return why a restart may help, or an empty string."""
        silent = time.monotonic() - self._whole
        if silent > DEAF:
            return f"nothing could be listed for {silent:.0f} s"
        dead = [one.name for one in self._threads if one.ident and not one.is_alive()]
        if dead and not self._stop.is_set():
            return f"the thread {dead[0]} has ended"
        return ""

    # Looking

    def _look(self) -> None:
        due = {"lists": 0.0, "nodes": 0.0}
        while not self._stop.is_set():
            for what, look in (("lists", self._look_at_objects), ("nodes", self._look_at_nodes)):
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
        """Look, and return whether it went well; a lasting failure is logged once."""
        try:
            look()
        except ApiServerError as error:
            if self._failing.get(what) != str(error):
                log.warning("API server unavailable", extra={"what": what, "reason": str(error)})
            self._failing[what] = str(error)
            return False
        if self._failing.pop(what, ""):
            log.info("API server answers again", extra={"what": what})
        return True

    def _look_at_objects(self) -> None:
        """List everything: what is not known yet was missed by a watch."""
        for kind in KINDS:
            for found in self.seen.take_all(kind, self._api.list(*self._list(kind))):
                self._wake(kind, found)
        self._whole = time.monotonic()

    def _list(self, kind: str) -> tuple[str, dict[str, str]]:
        if kind == OWNERS:
            return f"/apis/{names.GROUP}/{names.VERSION}/{names.PLURAL}", {}
        group = "/apis/apps/v1" if kind == DAEMON_SETS else "/api/v1"
        place = f"{group}/namespaces/{self._namespace}/{kind}"
        return place, {"labelSelector": names.OWNER} if kind in {DAEMON_SETS, CONFIG_MAPS} else {}

    def _look_at_nodes(self) -> None:
        self.fleet.refresh()
        for owner in self.seen.owners():
            self.queue.add(owner["metadata"]["name"])

    # Working

    def _work(self) -> None:
        while (name := self.queue.take()) is not None:
            try:
                after = self._reconciler.reconcile(name)
            except ConflictError:  # somebody else was quicker
                self.queue.add(name)
            except ApiServerError as error:
                if self._failing.get(name) != str(error):
                    log.warning("step failed", extra={"object": name, "reason": str(error)})
                self._failing[name] = str(error)
                self.queue.again(name)
            else:
                self._failing.pop(name, None)
                self.queue.done(name)
                if after is not None:
                    self.queue.add(name, after)
