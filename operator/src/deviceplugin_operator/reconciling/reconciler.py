"""Reconciles one object: each call does the next step towards what it asks for."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import deviceplugin as dp
from deviceplugin_operator import names
from deviceplugin_operator.cluster import progress_note
from deviceplugin_operator.cluster.access import Cluster
from deviceplugin_operator.crd import specification
from deviceplugin_operator.crd.specification import Variant, Wanted
from deviceplugin_operator.observed.fleet import Fleet
from deviceplugin_operator.observed.seen import DAEMON_SETS, OWNERS, Object, Seen
from deviceplugin_operator.reconciling import conflicts, daemon_set_status
from deviceplugin_operator.reconciling.status import BUSY, Outcome
from deviceplugin_operator.reconciling.status import Seen as Reported
from deviceplugin_operator.reconciling.status import status as made_status
from deviceplugin_operator.rollout import desired, placement
from deviceplugin_operator.rollout.desired import Revision
from deviceplugin_operator.rollout.step import SETTLE, Node, Pod, Progress, Step, next_step

log = logging.getLogger(__name__)

Notify = Callable[[Object, str, str, str], object]
"""Called with an object, ``Normal`` or ``Warning``, a reason and a message."""


@dataclass(frozen=True)
class Timing:
    """Intervals, in seconds."""

    soon: float = 2.0
    """Seconds until the next step of a roll-out, if nothing happens before."""
    settle: float = SETTLE
    window: float = 60.0
    """Seconds after the last step in which nodes may still report other devices."""
    nodes: float = 5.0
    """Seconds between looks at all nodes in that time."""
    now: Callable[[], float] = time.time


class Reconciler:
    """Reconciles objects. Call it from one thread only."""

    def __init__(
        self,
        cluster: Cluster,
        seen: Seen,
        fleet: Fleet,
        notify: Notify,
        *,
        prefix: str = "",
        timing: Timing | None = None,
    ) -> None:
        self._cluster = cluster
        self._seen = seen
        self._fleet = fleet
        self._notify = notify
        self._prefix = prefix
        self._timing = timing or Timing()
        self._settling: dict[str, float] = {}
        """By object: until when its nodes may still report other devices."""
        self._known: dict[str, tuple[int, Wanted | dp.ConfigError]] = {}
        """By UID: the generation of each object, and what it asks for or why it is invalid."""

    def reconcile(self, name: str) -> float | None:
        """Do the next step for the object ``name``; return the seconds until the next one, if any.

        Raises:
            ApiServerError: A request failed: try again.
        """
        owner = self._seen.get(OWNERS, name)
        if owner is None or "deletionTimestamp" in owner["metadata"]:
            return None  # what was made for it goes with it
        wanted = self._read(owner)
        if isinstance(wanted, dp.ConfigError):
            self._refuse(owner, "InvalidSettings", str(wanted))
            return None
        others = [(one, self._valid(one)) for one in self._seen.owners()]
        if conflict := conflicts.conflict(owner, wanted, others, self._fleet):
            self._refuse(owner, "Conflict", conflict)
            return None
        settling = self._timing.now() < self._settling.get(name, 0.0)
        if settling:
            self._fleet.refresh(older_than=self._timing.nodes)
        outcomes = [*self._outcomes(owner, wanted)]
        if not wanted.paused:
            self._cluster.remove_others(name, {one.profile for one in wanted.variants})
        patterns = list(dict.fromkeys(one for v in wanted.variants for one in v.resources))
        nodes = self._fleet.matching(placement.selector(wanted))
        self._report(owner, Reported(outcomes, nodes, patterns, paused=wanted.paused))
        busy = any(one.state in BUSY for one in outcomes)
        if busy and not wanted.paused:
            self._settling[name] = self._timing.now() + self._timing.window
            return min([self._timing.soon, *self._settled_in(outcomes)])
        return self._timing.nodes if settling else None

    def _read(self, owner: Object) -> Wanted | dp.ConfigError:
        """Return what an object asks for, or why it is invalid."""
        uid, generation = owner["metadata"]["uid"], owner["metadata"]["generation"]
        known = self._known.get(uid)
        if known is None or known[0] != generation:
            try:
                known = (generation, specification.read(owner))
            except dp.ConfigError as error:
                known = (generation, error)
            self._known[uid] = known
            self._forget()
        return known[1]

    def _forget(self) -> None:
        there = {one["metadata"]["uid"] for one in self._seen.owners()}
        for uid in self._known.keys() - there:
            del self._known[uid]

    def _valid(self, owner: Object) -> Wanted | None:
        found = self._read(owner)
        return None if isinstance(found, dp.ConfigError) else found

    def _settled_in(self, outcomes: Sequence[Outcome]) -> Iterator[float]:
        """Yield the seconds until the devices of each waiting node can be counted."""
        for one in outcomes:
            for taken in one.progress.taken.values():
                left = taken.ready + self._timing.settle - self._timing.now()
                if taken.ready and left > 0:
                    yield left

    def _refuse(self, owner: Object, reason: str, message: str) -> None:
        """Report why the object is not accepted. What was created for it earlier stays."""
        sets = self._seen.of(DAEMON_SETS, owner["metadata"]["name"])
        outcomes = [self._unchanged(owner, one) for one in sets]
        nodes = {
            node.name: node
            for one in sets
            for node in self._fleet.matching(placement.of_daemon_set(one))
        }
        patterns = {name for one in outcomes for name in one.progress.resources}
        found = Reported(outcomes, [*nodes.values()], sorted(patterns), refused=(reason, message))
        self._report(owner, found)

    def _unchanged(self, owner: Object, daemon_set: Object) -> Outcome:
        """Keep a DaemonSet as it was when its object was valid."""
        profile = daemon_set["metadata"]["labels"].get(names.PROFILE_LABEL, "")
        progress, spec = progress_note.read(daemon_set), owner["spec"]
        kept = self._cluster.revision(owner["metadata"]["name"], profile, progress.target)
        if kept and not (isinstance(spec, dict) and spec.get("paused")):
            self._keep(owner, profile, kept, progress)
        counts = daemon_set.get("status") or {}
        return Outcome(profile, progress.target, progress, "Done", "", counts)

    def _keep(self, owner: Object, profile: str, made: Revision, progress: Progress) -> None:
        """Give a DaemonSet the revision ``made``, and say so if somebody had changed it."""
        if self._cluster.keep_daemon_set(owner, profile, made, progress):
            name = owner["metadata"]["name"]
            log.warning("drift corrected", extra={"object": name, "profile": profile})
            changed = names.daemon_set(name, profile)
            message = f"the DaemonSet {changed} was changed by hand, and is restored"
            self._notify(owner, "Normal", "DriftCorrected", message)

    def _report(self, owner: Object, reported: Reported) -> None:
        now = datetime.fromtimestamp(self._timing.now(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        made, name = made_status(owner, reported, now), owner["metadata"]["name"]
        before = {one["type"]: one for one in (owner.get("status") or {}).get("conditions") or ()}
        self._cluster.set_status(owner, made)
        for one in made["conditions"]:
            old = before.get(one["type"], {})
            bad = one["status"] == ("False" if one["type"] == "Accepted" else "True")
            changed = (one["reason"], one["message"]) != (old.get("reason"), old.get("message"))
            if (
                bad
                and changed
                and one["reason"] in {"InvalidSettings", "Conflict", "RolloutFailed"}
            ):
                self._notify(owner, "Warning", one["reason"], one["message"])
                if one["type"] == "Accepted":
                    said = {"reason": one["reason"], "problem": one["message"]}
                    log.warning("object refused", extra={"object": name, **said})

    def _outcomes(self, owner: Object, wanted: Wanted) -> Iterator[Outcome]:
        """Yield the state of each profile. Only one profile is rolled out at a time."""
        blocked = wanted.paused
        for variant in wanted.variants:
            found = self._outcome(owner, wanted, variant, blocked=blocked)
            blocked = blocked or found.state in {*BUSY, "Halted", "RolledBack"}
            yield found

    def _outcome(
        self, owner: Object, wanted: Wanted, variant: Variant, *, blocked: bool
    ) -> Outcome:
        made = desired.revision(wanted, variant, self._prefix)
        found = self._cluster.daemon_set(wanted.name, variant.profile)
        progress = progress_note.read(found) if found else Progress()
        counts: Mapping[str, int] = (found or {}).get("status") or {}
        if wanted.paused or (blocked and found and progress.target != made.name):
            waits = "waiting for another profile"
            state = "Waiting" if progress.target != made.name else "Done"
            return Outcome(variant.profile, made.name, progress, state, waits, counts)
        if progress.refused and progress.generation != wanted.generation:
            progress = replace(progress, refused="", reason="", generation=0)
        target, progress = self._target(wanted.name, variant.profile, made, progress)
        self._cluster.keep_config_map(owner, variant.profile, target)
        self._keep(owner, variant.profile, target, progress)
        step = self._step(owner, wanted, variant, made, progress)
        found = self._cluster.daemon_set(wanted.name, variant.profile) or {}
        return Outcome(
            variant.profile,
            made.name,
            step.progress,
            step.state,
            step.message,
            found.get("status") or {},
        )

    def _target(
        self, owner: str, profile: str, made: Revision, progress: Progress
    ) -> tuple[Revision, Progress]:
        """Return the revision that the DaemonSet should have: the wanted or the last good one."""
        if progress.refused == made.name and progress.target != made.name:
            good = self._cluster.revision(owner, profile, progress.target)
            if good is not None:
                return good, progress
        if progress.target != made.name:
            progress = replace(progress.towards(made.name), refused="", reason="", generation=0)
        return made, progress

    def _step(
        self, owner: Object, wanted: Wanted, variant: Variant, made: Revision, progress: Progress
    ) -> Step:
        found = self._cluster.daemon_set(wanted.name, variant.profile)
        if found is None or not daemon_set_status.is_observed(found):
            return Step(progress, message="waiting for the DaemonSet controller")
        whole = daemon_set_status.is_whole(found)
        if progress.target == progress.good and not progress.taken and whole:
            return Step(progress, state="RolledBack" if progress.refused else "Done")
        if daemon_set_status.has_nodes(found):
            step = self._look(wanted, variant, progress)
        else:  # there are no pods to list, and nothing is known about the target
            step = Step(replace(progress, taken={}), state="Done")
        step = replace(step, progress=_noted(step.progress, made, wanted, variant))
        self._cluster.note(found, step.progress)
        for pod in step.delete:
            log.info(
                "pod replaced",
                extra={"object": wanted.name, "pod": pod.name, "revision": step.progress.target},
            )
            self._cluster.delete_pod(pod)
        if step.message and step.state in {"RollingBack", "Halted"}:
            log.warning("roll-out failed", extra={"object": wanted.name, "reason": step.message})
        if step.state == "Done":
            self._cluster.prune(owner, variant.profile, {step.progress.target, step.progress.good})
        return step

    def _look(self, wanted: Wanted, variant: Variant, progress: Progress) -> Step:
        """Return the next step, with fresh facts about the nodes that it concerns."""
        pods = self._cluster.pods(wanted.name, variant.profile)
        fresh: set[str] = set()
        concerned = set(progress.taken)
        while True:
            self._fleet.look_at(concerned - fresh)
            fresh |= concerned
            nodes = [*self._nodes(wanted, variant, progress, pods)]
            step = next_step(
                nodes, wanted.rollout, progress, self._timing.now(), self._timing.settle
            )
            concerned = set(step.progress.taken)
            if concerned <= fresh:
                return step

    def _nodes(
        self, wanted: Wanted, variant: Variant, before: Progress, pods: Mapping[str, Pod]
    ) -> Iterator[Node]:
        # If a resource was renamed, nodes have lost the old one.
        resources = {*variant.resources, *before.resources}
        for facts in placement.nodes(wanted, variant, self._fleet):
            devices = facts.offers(resources)
            yield Node(facts.name, facts.ready, devices, pods.get(facts.name), facts.reported)


def _noted(progress: Progress, made: Revision, wanted: Wanted, variant: Variant) -> Progress:
    """Return ``progress`` with what later steps need to know."""
    if progress.refused and not progress.generation:
        progress = replace(progress, generation=wanted.generation)
    if progress.good == made.name:
        progress = replace(progress, resources=variant.resources)
    return progress
