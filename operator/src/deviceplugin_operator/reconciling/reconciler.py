"""Reconciles one object: each call does the next step towards what it asks for."""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final, NamedTuple

import deviceplugin as dp
from deviceplugin.apiserver import ApiServerError, ForbiddenError, InvalidError
from deviceplugin_operator.cluster import progress_note
from deviceplugin_operator.cluster.access import Cluster
from deviceplugin_operator.crd import specification
from deviceplugin_operator.crd.specification import Wanted
from deviceplugin_operator.fleet import Fleet, NodeFacts
from deviceplugin_operator.observed import CONFIG_MAPS, DAEMON_SETS, OWNERS, Object, Seen
from deviceplugin_operator.reconciling import conflicts, devices
from deviceplugin_operator.reconciling.dra import AGAIN, NO_DRA, Dra, next_variants
from deviceplugin_operator.reconciling.judge import Timing
from deviceplugin_operator.reconciling.rolling import Notify, Rolling
from deviceplugin_operator.reconciling.status import BUSY, Outcome, Reported, is_news
from deviceplugin_operator.reconciling.status import status as made_status
from deviceplugin_operator.rollout import desired
from deviceplugin_operator.rollout.desired import Revision

log = logging.getLogger(__name__)

_PATIENCE: Final = 3
"""Failures in a row after which the status names one that the API server may recover from."""


class _Known(NamedTuple):
    """What an object asks for, or why it is invalid."""

    asked: tuple[int, object]
    """Its generation and its spec: where a backup is restored, generations come again."""
    wanted: Wanted | dp.ConfigError
    since: float


class Reconciler:
    """Reconciles objects. Call it from one thread only."""

    def __init__(
        self,
        cluster: Cluster,
        seen: Seen,
        fleet: Fleet,
        notify: Notify,
        dra: Dra,
        *,
        prefix: str = "",
        timing: Timing | None = None,
    ) -> None:
        self._cluster = cluster
        self._seen = seen
        self._fleet = fleet
        self._notify = notify
        self._dra = dra
        self._prefix = prefix
        self._timing = timing or Timing()
        self._rolling = Rolling(cluster, fleet, notify, self._timing)
        self._settling: dict[str, float] = {}
        """By object: until when its nodes may still report other devices."""
        self._failures: dict[str, list[float]] = {}
        """By object: when the first few attempts in a row have failed."""
        self._known: dict[str, _Known] = {}
        """By UID of the object."""

    def reconcile(self, name: str) -> float | None:
        """Do the next step for the object ``name``; return the seconds until the next one, if any.

        If a request fails and that is not likely to pass soon, the object's status says so.
        """
        owner = self._seen.get(OWNERS, name)
        if owner is None or "deletionTimestamp" in owner["metadata"]:
            self._failures.pop(name, None)
            return None  # what was made for it goes with it
        failed = self._failures.get(name, [])
        self._rolling.away = self._timing.now() - failed[0] if failed else 0.0
        try:
            after = self._next(owner)
        except ApiServerError as error:
            self._failures[name] = failed = [*failed, self._timing.now()][:_PATIENCE]
            refused = isinstance(error, InvalidError | ForbiddenError)
            if refused or len(failed) >= _PATIENCE:
                with suppress(ApiServerError):
                    self._stuck(self._cluster.fresh(owner), error, keep=refused)
            raise
        self._failures.pop(name, None)
        return after

    def _next(self, owner: Object) -> float | None:
        name, wanted = owner["metadata"]["name"], self._read(owner)
        if isinstance(wanted, dp.ConfigError):
            self._refuse(owner, "InvalidSettings", str(wanted))
            return None
        others = [(one, self._valid(one)) for one in self._seen.owners()]
        self._dra.follow(one for _, one in others if one)
        # Who gives labels to nodes and then changes the object means the nodes with these labels.
        since = self._known[owner["metadata"]["uid"]].since
        self._fleet.refresh(older_than=time.monotonic() - since)
        if conflict := conflicts.conflict(owner, wanted, others, self._fleet, self._covered):
            self._refuse(owner, "Conflict", conflict)
            return None
        wanted = self._staged(owner, wanted)
        missing = self._dra.missing(wanted)
        made = self._made(wanted)
        owner = self._cluster.know(owner, made)
        settling = self._timing.now() < self._settling.get(name, 0.0)
        if settling:
            self._fleet.refresh(older_than=self._timing.nodes)
        if missing[0] == NO_DRA:  # what pods have and lose by a step is not known
            outcomes = [*self._kept(owner, made, keep=not wanted.paused)]
        else:
            outcomes = [*self._outcomes(owner, wanted, made, missing[1])]
        found = self._reported(owner, wanted, outcomes)
        self._report(owner, replace(found, missing=missing))
        busy = any(one.state in BUSY for one in outcomes)
        if busy and not wanted.paused:
            self._settling[name] = self._timing.now() + self._timing.window
            return min([self._timing.soon, *devices.settled_in(outcomes, self._timing)])
        return self._timing.nodes if settling else AGAIN if missing[0] else None

    def _read(self, owner: Object) -> Wanted | dp.ConfigError:
        """Return what an object asks for, or why it is invalid."""
        uid, asked = owner["metadata"]["uid"], (owner["metadata"]["generation"], owner.get("spec"))
        known = self._known.get(uid)
        if known is None or known.asked != asked:
            try:
                found: Wanted | dp.ConfigError = specification.read(owner)
            except dp.ConfigError as error:
                found = error
            known = _Known(asked, found, time.monotonic())
            there = {one["metadata"]["uid"] for one in self._seen.owners()}
            kept = {key: one for key, one in self._known.items() if key in there}
            self._known = {**kept, uid: known}
        return known.wanted

    def _valid(self, owner: Object) -> Wanted | None:
        found = self._read(owner)
        return None if isinstance(found, dp.ConfigError) else found

    # Profiles

    def _profiles(self, owner: Object) -> set[str]:
        """Return the profiles of which something is there, or was there before it was deleted."""
        revisions = progress_note.revisions(owner)
        before = {profile for profile, one in revisions.items() if one.get("good")}
        return before | self._cluster.profiles(owner)

    def _made(self, wanted: Wanted) -> dict[str, Revision]:
        """Return the wanted revision of each profile."""
        return {one.profile: desired.revision(wanted, one, self._prefix) for one in wanted.variants}

    def _staged(self, owner: Object, wanted: Wanted) -> Wanted:
        """Return ``wanted`` with what has to come before DRA, until that is good."""
        known = {one.profile: self._rolling.progress(owner, one.profile) for one in wanted.variants}
        good = {key: self._rolling.good_pod(owner, key, one) for key, one in known.items()}
        return next_variants(owner, wanted, known, good, self._made(wanted))

    def _outcomes(
        self, owner: Object, wanted: Wanted, made: Mapping[str, Revision], missing: str
    ) -> Iterator[Outcome]:
        """Yield the state of each profile. Only one profile is rolled out at a time."""
        blocked, found = False, list[Outcome]()
        left = self._dra.left_behind(wanted, self._covered(wanted.name))
        held = missing or left or self._held(owner, wanted, made)
        for variant in wanted.variants:
            one = self._rolling.outcome(
                owner, wanted, variant, made[variant.profile], blocked=blocked, held=held
            )
            if variant.is_step and one.state == "Done" and not wanted.paused:
                one = replace(one, state="Progressing", message="the pods are ready for DRA")
            blocked = blocked or one.state in {*BUSY, "Halted", "RolledBack", "Held"}
            found.append(one)
            yield one
        yield from self._removed(owner, wanted, found)

    def _held(self, owner: Object, wanted: Wanted, made: Mapping[str, Revision]) -> str:
        """Return why the wanted revisions must not be applied: nodes would lose the plugin.

        Where a pod may be is not rolled out by node: the DaemonSet controller deletes at once all
        pods that are where they may not be.
        """
        before = {one: self._rolling.progress(owner, one) for one in self._profiles(owner)}
        if wanted.rollout.allow_fewer_devices or all(
            profile in made and one.target == made[profile].name for profile, one in before.items()
        ):
            return ""
        pods = [self._rolling.good_pod(owner, key, one) for key, one in before.items()]
        nodes = desired.covered(filter(None, pods), self._fleet.nodes())
        kept = {one.name for one in desired.covered([one.pod for one in made.values()], nodes)}
        if not (lost := [one.name for one in nodes if one.name not in kept]):
            return ""
        return (
            f"{conflicts.listed(lost)}: would be without the plugin: correct spec.nodeSelector, or "
            "set rollout.allowFewerDevices"
        )

    def _removed(
        self, owner: Object, wanted: Wanted, outcomes: Sequence[Outcome]
    ) -> Iterator[Outcome]:
        """Yield the state of profiles that the object has no longer.

        Their DaemonSets end when that of the general settings covers their nodes, and their last
        good revisions when that has succeeded: until then, they can come back.
        """
        name = owner["metadata"]["name"]
        gone = self._profiles(owner) - {one.profile for one in wanted.variants}
        if wanted.paused or outcomes[0].progress.target != outcomes[0].wanted:
            for profile in sorted(gone):
                yield self._rolling.unchanged(owner, profile, keep=not wanted.paused)
            return
        self._cluster.remove(DAEMON_SETS, name, gone)
        if all(one.state == "Done" for one in outcomes):
            self._cluster.remove(CONFIG_MAPS, name, gone)
            return
        for profile in sorted(gone):
            kept = progress_note.of_status(owner, profile)
            yield Outcome(profile, kept.target, kept, "Done", "", {})

    def _refuse(self, owner: Object, reason: str, message: str) -> None:
        """Report why the object is not accepted. What was created for it earlier stays."""
        owner, spec = self._cluster.know(owner, {}), owner["spec"]
        paused = isinstance(spec, dict) and bool(spec.get("paused"))
        profiles = sorted(self._profiles(owner))
        outcomes = [self._rolling.unchanged(owner, one, keep=not paused) for one in profiles]
        found = self._reported(owner, None, outcomes)
        self._report(owner, replace(found, refused=(reason, message)))

    def _stuck(self, owner: Object, error: ApiServerError, *, keep: bool) -> None:
        """Report that a request has failed. What was created for the object earlier stays."""
        wanted = self._valid(owner)
        wanted = self._staged(owner, wanted) if wanted else None
        made = self._made(wanted) if wanted else {}
        outcomes = [*self._kept(owner, made, keep=keep and not (wanted and wanted.paused))]
        self._report(owner, replace(self._reported(owner, wanted, outcomes), failure=str(error)))

    def _kept(
        self, owner: Object, made: Mapping[str, Revision], *, keep: bool
    ) -> Iterator[Outcome]:
        """Yield the state of each profile while nothing goes forward or back."""
        for profile in sorted(self._profiles(owner) | made.keys()):
            one = self._rolling.unchanged(owner, profile, keep=False)
            if keep:
                with suppress(ApiServerError):
                    one = self._rolling.unchanged(owner, profile)
            name = made[profile].name if profile in made else one.wanted
            yield replace(one, wanted=name, state="Stuck")

    # The status

    def _reported(
        self, owner: Object, wanted: Wanted | None, outcomes: Sequence[Outcome]
    ) -> Reported:
        """Return what the status is computed from."""
        name = owner["metadata"]["name"]
        sets, own = self._seen.of(DAEMON_SETS, name), self._covered(name)
        nodes = self._fleet.nodes(desired.drivers(sets))
        patterns = sorted({name for one in outcomes for name in one.progress.resources})
        if wanted:
            patterns = [*dict.fromkeys(name for one in wanted.variants for name in one.resources)]
        return Reported(
            outcomes,
            own,
            patterns,
            devices.baseline(progress_note.baseline(owner), outcomes, sets, nodes),
            unknown=devices.unknown_profiles(wanted, own) if wanted else "",
            paused=bool(wanted and wanted.paused),
            classes=self._dra.classes(wanted, own) if wanted else None,
        )

    def _covered(self, name: str) -> list[NodeFacts]:
        """Return the nodes on which an object has the plugin now."""
        sets = self._seen.of(DAEMON_SETS, name)
        nodes = self._fleet.nodes(desired.drivers(sets))
        return desired.covered([one["spec"]["template"] for one in sets], nodes)

    def _report(self, owner: Object, reported: Reported) -> None:
        now = datetime.fromtimestamp(self._timing.now(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        made, name = made_status(owner, reported, now), owner["metadata"]["name"]
        before = {one["type"]: one for one in (owner.get("status") or {}).get("conditions") or ()}
        self._cluster.set_status(owner, made)
        for one in made["conditions"]:
            if not is_news(one, before.get(one["type"], {})):
                continue
            self._notify(owner, "Warning", one["reason"], one["message"])
            if one["type"] == "Accepted":
                said = {"reason": one["reason"], "problem": one["message"]}
                log.warning("object refused", extra={"object": name, **said})
            elif one["reason"] == "NoWayBack":
                log.warning("no way back", extra={"object": name, "reason": one["message"]})
            elif any(found.state == "Held" for found in reported.outcomes):
                log.warning("roll-out failed", extra={"object": name, "reason": one["message"]})
        if left := devices.left(progress_note.baseline(owner), reported, self._fleet.nodes()):
            self._notify(owner, "Warning", "NodesLeft", left)
