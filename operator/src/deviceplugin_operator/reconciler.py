"""Brings the cluster closer to what an object asks for, a step at a time."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import deviceplugin as dp
from deviceplugin_operator import (
    conflicts,
    desired,
    names,
    progress_note,
    rollout,
    specification,
)
from deviceplugin_operator.cluster import Cluster
from deviceplugin_operator.desired import Revision
from deviceplugin_operator.fleet import Fleet, NodeFacts
from deviceplugin_operator.rollout import Node, Pod, Progress, Step
from deviceplugin_operator.seen import DAEMON_SETS, OWNERS, Object, Seen
from deviceplugin_operator.specification import Variant, Wanted
from deviceplugin_operator.status import BUSY, Outcome
from deviceplugin_operator.status import Seen as Reported
from deviceplugin_operator.status import status as made_status

log = logging.getLogger(__name__)

Notify = Callable[[Object, str, str, str], object]
"""Called with an object, ``Normal`` or ``Warning``, a reason and a message."""


@dataclass(frozen=True)
class Timing:
    """How long what takes."""

    soon: float = 2.0
    """Seconds until the next step of a roll-out, if nothing happens before."""
    settle: float = rollout.SETTLE
    window: float = 60.0
    """Seconds after the last step in which nodes may still report other devices."""
    nodes: float = 5.0
    """Seconds between looks at all nodes in that time."""
    now: Callable[[], float] = time.time


class Reconciler:
    """Does what objects ask for. One thread at a time."""

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
        """Until when nodes of an object may report other devices: after its last step."""

    def reconcile(self, name: str) -> float | None:
        """Do the next step for the object ``name``; return after how long there is another.

        Raises:
            ApiServerError: The API server does not do it now: try again.
        """
        owner = self._seen.get(OWNERS, name)
        if owner is None or "deletionTimestamp" in owner["metadata"]:
            return None  # what was made for it goes with it
        try:
            wanted = specification.read(owner)
        except dp.ConfigError as error:
            self._refuse(owner, "InvalidSettings", str(error))
            return None
        if conflict := conflicts.conflict(owner, self._seen.owners(), self._fleet):
            self._refuse(owner, "Conflict", conflict)
            return None
        settling = self._timing.now() < self._settling.get(name, 0.0)
        if settling:
            self._fleet.refresh(older_than=self._timing.nodes)
        outcomes = [*self._outcomes(owner, wanted)]
        if not wanted.paused:
            self._cluster.remove_others(name, {one.profile for one in wanted.variants})
        patterns = list(dict.fromkeys(one for v in wanted.variants for one in v.resources))
        nodes = self._fleet.matching(wanted.node_selector)
        self._report(owner, Reported(outcomes, nodes, patterns, paused=wanted.paused))
        busy = any(one.state in BUSY for one in outcomes)
        if busy and not wanted.paused:
            self._settling[name] = self._timing.now() + self._timing.window
            return self._timing.soon
        return self._timing.nodes if settling else None

    def _refuse(self, owner: Object, reason: str, message: str) -> None:
        """Say why the object is not accepted. What was made for it before stays as it is."""
        sets = self._seen.of(DAEMON_SETS, owner["metadata"]["name"])
        outcomes = [self._unchanged(one) for one in sets]
        self._report(owner, Reported(outcomes, (), (), refused=(reason, message)))

    def _unchanged(self, daemon_set: Object) -> Outcome:
        profile = daemon_set["metadata"]["labels"].get(names.PROFILE_LABEL, "")
        progress = progress_note.read(daemon_set)
        return Outcome(
            profile, progress.target, progress, "Done", "", daemon_set.get("status") or {}
        )

    def _report(self, owner: Object, reported: Reported) -> None:
        now = datetime.fromtimestamp(self._timing.now(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        made = made_status(owner, reported, now)
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

    def _outcomes(self, owner: Object, wanted: Wanted) -> Iterator[Outcome]:
        """Yield how far each profile is; one after the other, so that only one is under way."""
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
            waits = "waits for another profile"
            state = "Waiting" if progress.target != made.name else "Done"
            return Outcome(variant.profile, made.name, progress, state, waits, counts)
        if progress.refused and progress.generation != wanted.generation:
            progress = replace(progress, refused="", reason="", generation=0)
        target, progress = self._target(wanted.name, variant.profile, made, progress)
        self._cluster.keep_config_map(owner, variant.profile, target)
        if self._cluster.keep_daemon_set(owner, variant.profile, target, progress):
            log.warning(
                "drift corrected", extra={"object": wanted.name, "profile": variant.profile}
            )
            name = found["metadata"]["name"] if found else ""
            self._notify(owner, "Normal", "DriftCorrected", f"DaemonSet {name} was changed by hand")
        step = self._step(owner, wanted, variant, progress)
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
        """Return what the DaemonSet is to be now: what is wanted, or what was good before."""
        if progress.refused == made.name and progress.target != made.name:
            good = self._cluster.revision(owner, profile, progress.target)
            if good is not None:
                return good, progress
        if progress.target != made.name:
            progress = replace(progress.towards(made.name), refused="", reason="", generation=0)
        return made, progress

    def _step(self, owner: Object, wanted: Wanted, variant: Variant, progress: Progress) -> Step:
        found = self._cluster.daemon_set(wanted.name, variant.profile)
        if found is None or not _is_observed(found):
            return Step(progress, message="the DaemonSet is new")
        if progress.target == progress.good and not progress.taken and _is_whole(found):
            return Step(progress, state="RolledBack" if progress.refused else "Done")
        step = self._look(wanted, variant, progress)
        if step.progress.refused and not step.progress.generation:
            noted = replace(step.progress, generation=wanted.generation)
            step = replace(step, progress=noted)
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
        """Return the next step, with what nodes that it concerns have at this moment."""
        pods = self._cluster.pods(wanted.name, variant.profile)
        fresh: set[str] = set()
        concerned = set(progress.taken)
        while True:
            self._fleet.look_at(concerned - fresh)
            fresh |= concerned
            nodes = [*self._nodes(wanted, variant, pods)]
            step = rollout.step(
                nodes, wanted.rollout, progress, self._timing.now(), self._timing.settle
            )
            concerned = set(step.progress.taken)
            if concerned <= fresh:
                return step

    def _nodes(self, wanted: Wanted, variant: Variant, pods: Mapping[str, Pod]) -> Iterator[Node]:
        for facts in self._matching(wanted, variant):
            devices = facts.offers(variant.resources)
            yield Node(facts.name, facts.ready, devices, pods.get(facts.name))

    def _matching(self, wanted: Wanted, variant: Variant) -> Sequence[NodeFacts]:
        selector = {
            **wanted.template.daemon_set["spec"]["template"]["spec"].get("nodeSelector", {}),
            **wanted.node_selector,
        }
        if not wanted.profiles:
            return self._fleet.matching(selector)
        among = [variant.profile] if variant.profile else wanted.profiles
        return self._fleet.matching(
            selector, wanted.profile_label, among, inside=bool(variant.profile)
        )


def _is_observed(daemon_set: Object) -> bool:
    """Return whether pods that are made from now on are of the template as it is."""
    observed = (daemon_set.get("status") or {}).get("observedGeneration", 0)
    return bool(observed >= daemon_set["metadata"]["generation"])


def _is_whole(daemon_set: Object) -> bool:
    counts = daemon_set.get("status") or {}
    wanted = counts.get("desiredNumberScheduled", 0)
    return bool(wanted == counts.get("updatedNumberScheduled", 0) == counts.get("numberReady", 0))
