"""Keeping the slices in the API server as the driver offers its devices."""

import logging
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from typing import Final

from deviceplugin._attribution.poll_schedule import Key
from deviceplugin._dra.slices.features import ClusterFeatures
from deviceplugin._dra.slices.plan import Write, device_names_in, plan
from deviceplugin._dra.slices.pools import Offers, Pool, PoolCatalogue, Site, SliceDevice
from deviceplugin._dra.slices.store import KnownSlices, Object, Slices, SliceStore, WatchThread
from deviceplugin._platform.api_errors import (
    ApiServerError,
    ConflictError,
    InvalidError,
    NotFoundError,
)
from deviceplugin._platform.backoff import Backoff
from deviceplugin._platform.clock import MONOTONIC, Clock
from deviceplugin._platform.waiting import Bucket, Waiter
from deviceplugin.kit.log import Problems

log = logging.getLogger(__name__)

COALESCED: Final = 0.05
"""Seconds in which changes become one write."""
CHECK_AFTER: Final = 5.0
"""Seconds after a registration when the slices are listed once more: a kubelet that starts deletes
them, in the background and for as long as it takes, and the watch may be dead."""
_FIRST_WAIT: Final = 1.0
_LAST_WAIT: Final = 60.0
_SPREAD: Final = 2.0
"""Seconds within which many nodes whose writes fail together write again."""
BURST: Final = 20
REFILL: Final = 5.0
"""Seconds until one more change is written after a burst of them: a device whose health flaps, or
another program that writes our slices, must not keep the API server busy."""
_DEVICE: Final = re.compile(r"spec\.devices\[(\d+)\]")
_ADVICE: Final = {
    401: "; is the token of the component dra mounted?",
    403: "; apply the ClusterRole, its binding and the policy of the component dra",
    404: "; the API server must serve resource.k8s.io/v1, as Kubernetes 1.34 and newer do",
}


@dataclass(eq=False, repr=False)
class Publisher:
    """Writes the slices of the driver on a node, and writes them again when others change them."""

    store: SliceStore
    site: Site
    """The driver and its node; the owner is taken from ``store``."""
    _: KW_ONLY
    catalogue: PoolCatalogue
    offers: Callable[[], Offers | None]
    """Returns what is offered now; None as long as that is unknown, such as before the first
    complete discovery. Then nothing is written. Resources that are absent have no slices; to
    withdraw all, return an empty mapping."""
    published: Callable[[Collection[Key]], None] = lambda _keys: None
    """Called with all devices that are in slices now, after each change of them, when no write is
    under way and before ``offers`` is called again."""
    is_busy: Callable[[], bool] = bool
    """Returns whether pods wait for claims to be prepared."""
    count: Callable[[str, bool], None] = lambda _action, _succeeded: None
    """Called with the action of each write, and whether it succeeded."""
    clock: Clock = MONOTONIC

    def __post_init__(self) -> None:
        self._waiter = Waiter(self.clock)
        self._backoff = Backoff(_FIRST_WAIT, _LAST_WAIT, full_jitter=True, spread=_SPREAD)
        self._bucket = Bucket(BURST, REFILL, self.clock)
        self._known = KnownSlices()
        self._features = ClusterFeatures(self.store)
        self._problems = Problems(log)
        self._cuts = Problems(log)
        self._problem = ""
        self._watch_problem = ""
        self._conflict = False
        self._refused: dict[Key, tuple[SliceDevice, str]] = {}
        """Devices that the API server does not accept, as they were then, and why."""
        self._keys: dict[tuple[str, str], Sequence[Key]] = {}
        """The devices that may be in slices, by pool and name."""
        self._list_at = math.inf
        self._hurry = False
        self._settled = False

    def run(self) -> None:
        """Publish until stopped. The slices stay: a driver that is back soon goes on with them."""
        thread = WatchThread(self.store.watch(self._changed, self._watch_failed), self.stop)
        thread.start()
        try:
            while not self._waiter.is_over():
                self._waiter.until_poked(self._list_at - self.clock.now())
                self._waiter.pause_while(self.is_busy, COALESCED)
                if not self._waiter.is_over():
                    self._try()
        finally:
            thread.end()
        if thread.error is not None:
            raise thread.error

    def stop(self) -> None:
        self._waiter.end()

    def poke(self) -> None:
        """Look soon whether what is offered has changed."""
        self._waiter.poke()

    def registered(self) -> None:
        """Look again soon: the kubelet has registered the driver, and may delete all slices."""
        self._list_at = self.clock.now() + CHECK_AFTER
        self._hurry = True
        self._waiter.poke()

    @property
    def is_settled(self) -> bool:
        """Whether the API server has all slices as they should be, and nothing is to be written.

        False until they are checked after each registration, at which a kubelet may delete slices:
        those of before a reboot do not count.
        """
        return self._settled and self._list_at == math.inf and not self.problem()

    def problem(self) -> str:
        """Return why the slices are not as they should be, or an empty string."""
        return self._problem or self._watch_problem

    def refused(self) -> Mapping[Key, str]:
        """Return why the API server does not accept devices, by device. They are in no slice."""
        return {key: why for key, (_, why) in self._refused.items()}

    def _changed(self, slices: Slices, version: str) -> None:
        self._watch_problem = ""
        self._known.listed(slices, version)
        self._waiter.poke()

    def _watch_failed(self, error: ApiServerError) -> None:
        self._watch_problem = self._report(error)

    def _report(self, error: ApiServerError) -> str:
        text = f"{error}{_ADVICE.get(error.status, '')}"
        self._problems.say("slices", "slices not published", error=text)
        return text

    def _try(self) -> None:
        """Make the slices what they should be. After an error, wait, and retry."""
        self._hurry = False
        try:
            if self.clock.now() >= self._list_at:
                self._settled, self._list_at = False, math.inf
                self._known.listed(*self.store.list())
            self._sync()
        except ApiServerError as error:
            if not self._is_stale(error):
                self._problem = self._report(error)
                self._waiter.pause(error.after)
                self._waiter.until(lambda: self._hurry, self._backoff.next_wait())
            self._waiter.poke()

    def _is_stale(self, error: ApiServerError) -> bool:
        """Return whether what we know is just not the latest, as while a kubelet deletes slices.

        The slices are listed then. A second conflict in a row is a problem.
        """
        if not isinstance(error, ConflictError | NotFoundError):
            return False
        self._list_at = self.clock.now()
        is_first, self._conflict = not self._conflict, True
        return is_first

    def _sync(self) -> None:
        have, offers = self._known.current(), self.offers()
        if have is None or offers is None:
            self._settled = False
            return
        if self.site.owner is None:
            self.site = self.site._replace(owner=self.store.owner() or {})
        pools = self._accepted(self._features.pools(self.catalogue, offers, self.site))
        self._keys |= {(pool.name, one.name): one.keys for pool in pools for one in pool.entries}
        writes = plan(have, pools, self.site, self._known.is_intact)
        self._settled = not writes
        if writes and (wait := self._bucket.wait()):
            self._waiter.pause(wait)
            self._waiter.poke()  # it is planned again, for much can have changed meanwhile
            return
        if writes:
            self._bucket.take()
            self._write_all(writes)
            self._waiter.poke()
        else:
            self._problem, self._conflict = "", False
            self._backoff.reset()
            if not self._watch_problem:
                self._problems.over("slices")
        self._tell()

    def _accepted(self, pools: Sequence[Pool]) -> list[Pool]:
        """Return ``pools`` without devices that were refused, unless these have changed since."""
        now = {one.key: one for pool in pools for one in pool.entries}
        self._refused = {
            key: (one, why) for key, (one, why) in self._refused.items() if now.get(key) is one
        }
        self._cuts.say_all("device cut in slices", self.catalogue.problems())
        return [
            pool._replace(entries=[one for one in pool.entries if one.key not in self._refused])
            for pool in pools
        ]

    def _write_all(self, writes: Iterable[Write]) -> None:
        """Do all ``writes``, also those after one that the API server will never accept."""
        done: Counter[str] = Counter()
        last: InvalidError | None = None
        try:
            for write in writes:
                if self._waiter.is_over():
                    return
                try:
                    self._write(write)
                    done[write.action] += 1
                except InvalidError as error:
                    if write.body and self._features.refused(write.body, error):
                        return  # all is planned again without lists
                    if not self._refuse(error, write.entries):
                        last = error
        finally:
            if done:
                log.info(
                    "slices written",
                    extra={
                        "added": done["create"],
                        "changed": done["replace"],
                        "removed": done["delete"],
                    },
                )
        if last is not None:
            self._tell()
            raise last

    def _write(self, write: Write) -> None:
        succeeded = False
        try:
            if write.body is None:
                self._delete(write)
            elif write.action == "create":
                self._wrote(write.body, self.store.create(write.body))
            else:
                self._wrote(write.body, self.store.replace(write.body))
            succeeded = True
        finally:
            self.count(write.action, succeeded)

    def _wrote(self, body: Object, answer: Object) -> None:
        self._known.wrote(answer)
        self._features.answered(body, answer)

    def _delete(self, write: Write) -> None:
        with suppress(NotFoundError):  # somebody else has deleted it
            self.store.delete(write.name, write.uid)
        self._known.deleted(write.uid)

    def _refuse(self, error: InvalidError, entries: Sequence[SliceDevice]) -> bool:
        """Leave out the devices that ``error`` names, and return whether there are any."""
        found = [(_DEVICE.match(field), why) for field, why in error.causes]
        named = [(int(match[1]), match.string, why) for match, why in found if match]
        for index, field, why in named:
            if index < len(entries):
                entry = entries[index]
                reason = f"{field.partition('].')[2]}: {why}".removeprefix(": ")
                self._refused[entry.key] = entry, reason
                resource, device = entry.key
                self._problems.say(
                    f"refused {entry.key}",
                    "device refused in slices",
                    resource=resource,
                    device=device,
                    error=reason,
                )
        return any(index < len(entries) for index, _, _ in named)

    def _tell(self) -> None:
        """Call ``published`` with the devices in the slices."""
        present = {
            (one["spec"]["pool"]["name"], name)
            for one in self._known.current() or ()
            for name in device_names_in(one)
        }
        self._keys = {place: keys for place, keys in self._keys.items() if place in present}
        self.published(frozenset(key for keys in self._keys.values() for key in keys))
