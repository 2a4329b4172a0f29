"""Rolls out the revision of one profile: each call does the next step."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from deviceplugin_operator import names
from deviceplugin_operator.cluster import objects, progress_note
from deviceplugin_operator.cluster.access import Cluster
from deviceplugin_operator.crd.specification import Variant, Wanted
from deviceplugin_operator.fleet import Fleet
from deviceplugin_operator.observed import Object
from deviceplugin_operator.reconciling.judge import Judge, Timing
from deviceplugin_operator.reconciling.status import Outcome
from deviceplugin_operator.rollout import desired
from deviceplugin_operator.rollout.desired import Revision
from deviceplugin_operator.rollout.step import Progress, Step, Taken

log = logging.getLogger(__name__)

Notify = Callable[[Object, str, str, str], object]
"""Called with an object, ``Normal`` or ``Warning``, a reason and a message."""
_ENDED = ("Done", "RolledBack")


class Rolling:
    """The DaemonSets of objects, and how far they are."""

    def __init__(self, cluster: Cluster, fleet: Fleet, notify: Notify, timing: Timing) -> None:
        self._cluster = cluster
        self._fleet = fleet
        self._notify = notify
        self._now = timing.now
        self._judge = Judge(cluster, fleet, timing)
        self.away = 0.0
        """Seconds until now for which the API server was away: no kubelet could report."""

    def progress(self, owner: Object, profile: str) -> Progress:
        """Return what is known of a profile. If its DaemonSet is gone, what was good is next."""
        if found := self._cluster.daemon_set(owner["metadata"]["name"], profile):
            return progress_note.read(found).without(self.away, self._now())
        kept = progress_note.of_status(owner, profile)
        return replace(kept.towards(kept.good), restoring=True) if kept.good else kept

    def good_pod(self, owner: Object, profile: str, known: Progress) -> Mapping[str, Any] | None:
        """Return the pod template of the last good revision of a profile."""
        if kept := self._cluster.revision(owner, profile, known.good):
            return kept.pod
        found = self._cluster.daemon_set(owner["metadata"]["name"], profile)
        if found and known.good and known.good == known.target:
            template: Mapping[str, Any] = found["spec"]["template"]
            return template  # somebody has deleted its ConfigMap
        return None

    def unchanged(self, owner: Object, profile: str, *, keep: bool = True) -> Outcome:
        """Return the state of a profile that stays as it is; ``keep`` restores it if need be.

        With ``keep``, the time until it goes on does not count against taken nodes.
        """
        name, progress = owner["metadata"]["name"], self.progress(owner, profile)
        if keep:
            progress = progress.towards(progress.target)
        if keep and (kept := self._cluster.revision(owner, profile, progress.target)):
            progress = self._with_joined(owner, profile, kept, progress)
            self._keep(owner, profile, kept, progress)
            if found := self._cluster.daemon_set(name, profile):
                self._cluster.note(found, progress)
        elif keep and progress.target:
            lost = self._cluster.why_lost(owner, profile, progress.target)
            progress = replace(progress, lost=lost)
        counts = self._counts(name, profile)
        return Outcome(profile, progress.target, progress, "Done", "", counts)

    def _counts(self, name: str, profile: str) -> Mapping[str, int] | None:
        found = self._cluster.daemon_set(name, profile)
        return None if found is None else found.get("status") or {}

    def _keep(self, owner: Object, profile: str, made: Revision, progress: Progress) -> None:
        """Give a DaemonSet the revision ``made``, and say so if somebody had changed it."""
        if self._cluster.keep_daemon_set(owner, profile, made, progress):
            changed = names.daemon_set(owner["metadata"]["name"], profile)
            self._corrected(owner, profile, f"the DaemonSet {changed}")

    def _corrected(self, owner: Object, profile: str, what: str) -> None:
        name = owner["metadata"]["name"]
        log.warning("drift corrected", extra={"object": name, "profile": profile})
        message = f"{what} was changed by hand, and is restored"
        self._notify(owner, "Normal", "DriftCorrected", message)

    def _joined(self, owner: Object, profile: str, made: Revision) -> dict[str, Taken]:
        """Return what nodes had that ``made`` covers, and this DaemonSet did not so far."""
        found = self._cluster.daemon_set(owner["metadata"]["name"], profile)
        had = progress_note.baseline(owner)
        drivers = self._cluster.drivers(owner["metadata"]["name"])
        nodes = [one for one in self._fleet.nodes(drivers) if one.name in had]
        covered = desired.covered([found["spec"]["template"]], nodes) if found else []
        own = {one.name for one in covered}
        return {
            one.name: Taken(before=had[one.name], well=True, by_dra=bool(one.dra.healthy))
            for one in desired.covered([made.pod], nodes)
            if one.name not in own
        }

    def _with_joined(
        self, owner: Object, profile: str, made: Revision, progress: Progress
    ) -> Progress:
        taken = {**self._joined(owner, profile, made), **progress.taken}
        return replace(progress, taken=taken)

    def outcome(
        self,
        owner: Object,
        wanted: Wanted,
        variant: Variant,
        made: Revision,
        *,
        blocked: bool = False,
        held: str = "",
    ) -> Outcome:
        """Do the next step of a profile towards ``made``.

        If ``blocked``, another profile has to be finished before. If ``held`` says why ``made``
        must not be applied, what was good stays, or comes back.
        """
        profile, progress = variant.profile, self._known(owner, variant.profile, made, wanted)
        holds = bool(held) and progress.target != made.name
        if wanted.paused or (holds and not progress.good):
            found = self.unchanged(owner, profile, keep=False)
            state = "Done" if progress.target == made.name or holds else "Waiting"
            kept = replace(found.progress, lost=progress.lost)
            found = replace(found, wanted=made.name, state=state, progress=kept)
        elif blocked and self._can_wait(owner, profile, made, progress):
            counts = self._counts(wanted.name, profile)
            waits = "waiting for another profile"
            return Outcome(profile, made.name, progress, "Waiting", waits, counts)
        else:
            target, progress = self._target(owner, profile, made, progress, holds=holds)
            if target:
                if self._cluster.keep_config_map(owner, profile, target):
                    changed = names.config_map(wanted.name, profile, target.name)
                    self._corrected(owner, profile, f"the ConfigMap {changed}")
                self._keep(owner, profile, target, progress)
            step = self._step(owner, wanted, variant, made, progress)
            counts = self._counts(wanted.name, profile)
            found = Outcome(profile, made.name, step.progress, step.state, step.message, counts)
        return _held(found, held, wanted.generation) if holds else found

    def _known(self, owner: Object, profile: str, made: Revision, wanted: Wanted) -> Progress:
        """Return the progress, without what no longer holds."""
        progress = self.progress(owner, profile)
        if progress.refused and progress.generation != wanted.generation:
            progress = replace(progress, refused="", reason="", generation=0)
        if progress.good == "":
            return progress
        if progress.good == made.name or self._cluster.revision(owner, profile, progress.good):
            return replace(progress, lost="")
        lost = self._cluster.why_lost(owner, profile, progress.good)
        if self._has(owner, profile, progress.good):
            return replace(progress, lost=lost)
        if progress.refused == made.name:  # it stays where it is
            progress = progress.towards(made.name)
        return replace(progress, good="", restoring=False, lost=lost)

    def _has(self, owner: Object, profile: str, revision: str) -> bool:
        """Return whether the DaemonSet was given ``revision``."""
        found = self._cluster.daemon_set(owner["metadata"]["name"], profile)
        labels = found["spec"]["template"]["metadata"].get("labels") or {} if found else {}
        return bool(labels.get(names.REVISION) == revision)

    def _can_wait(self, owner: Object, profile: str, made: Revision, progress: Progress) -> bool:
        """Return whether a profile can wait for another: no node is without a pod meanwhile."""
        exists = self._cluster.daemon_set(owner["metadata"]["name"], profile) is not None
        return exists and progress.target != made.name and not self._joined(owner, profile, made)

    def _target(
        self, owner: Object, profile: str, made: Revision, progress: Progress, *, holds: bool
    ) -> tuple[Revision | None, Progress]:
        """Return the revision for the DaemonSet; None: it has the good one, which is not known."""
        name, target, before = owner["metadata"]["name"], made, progress.target
        if holds and before != progress.good:
            progress = progress.towards(progress.good)
        back = holds or progress.restoring or progress.refused == made.name
        kept = self._cluster.revision(owner, profile, progress.target) if back else None
        if kept and progress.target != made.name:
            target = kept
        elif back and progress.target != made.name and self._has(owner, profile, progress.target):
            return None, progress
        elif progress.target != made.name:
            progress = replace(progress.towards(made.name), refused="", reason="", generation=0)
        if target.name != before or self._cluster.daemon_set(name, profile) is None:
            progress = self._with_joined(owner, profile, target, progress)
        return target, progress

    def _step(
        self, owner: Object, wanted: Wanted, variant: Variant, made: Revision, progress: Progress
    ) -> Step:
        found = self._cluster.daemon_set(wanted.name, variant.profile)
        if found is None or not objects.is_observed(found):
            return Step(progress, message="waiting for the DaemonSet controller")
        whole = objects.is_whole(found) and not progress.restoring
        if progress.target == progress.good and not progress.taken and whole:
            return Step(progress, state="RolledBack" if progress.refused else "Done")
        if objects.has_nodes(found):
            step = self._judge.step(found, wanted, variant, progress)
        else:  # there are no pods to list, and nothing is known about the target
            step = Step(replace(progress, taken={}), state="Done")
        step = _restored(step, made)
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


def _held(found: Outcome, reason: str, generation: int) -> Outcome:
    """Return the outcome of a profile whose wanted revision is not applied."""
    progress = replace(found.progress, refused=found.wanted, reason=reason, generation=generation)
    state = "Held" if found.state in _ENDED else found.state
    return replace(found, progress=progress, state=state)


def _restored(step: Step, made: Revision) -> Step:
    """Have the wanted revision follow, once the last good one is back."""
    if not step.progress.restoring or step.state not in _ENDED:
        return step
    progress = replace(step.progress, restoring=False)
    ended = made.name in {progress.target, progress.refused}
    return replace(step, progress=progress, state=step.state if ended else "Progressing")


def _noted(progress: Progress, made: Revision, wanted: Wanted, variant: Variant) -> Progress:
    """Return ``progress`` with what later steps need to know."""
    if progress.refused and not progress.generation:
        progress = replace(progress, generation=wanted.generation)
    if progress.good == made.name:
        progress = replace(progress, resources=variant.resources)
    return progress
