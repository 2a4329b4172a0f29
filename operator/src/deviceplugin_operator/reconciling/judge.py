"""The next step of a roll-out, by fresh facts about the nodes that it judges."""

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from deviceplugin_operator.cluster import progress_note
from deviceplugin_operator.cluster.access import Cluster
from deviceplugin_operator.crd.specification import Variant, Wanted
from deviceplugin_operator.fleet import Fleet
from deviceplugin_operator.observed import Object
from deviceplugin_operator.rollout import desired
from deviceplugin_operator.rollout.step import SETTLE, Member, Pod, Progress, Step, next_step


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


class Judge:
    """See the module. Call it from one thread only."""

    def __init__(self, cluster: Cluster, fleet: Fleet, timing: Timing) -> None:
        self._cluster = cluster
        self._fleet = fleet
        self._timing = timing

    def step(self, found: Object, wanted: Wanted, variant: Variant, progress: Progress) -> Step:
        """Return the next step, with fresh facts about the nodes that it judges.

        These are the ones that it takes or finds done. Before it fails, all there is is fresh.
        """
        pods = self._cluster.pods(wanted.name, variant.profile)
        # If a resource was renamed, nodes have lost the old one.
        resources = {*variant.resources, *progress.resources}
        fresh, strictly = set[str](), False
        while True:
            members = [*self._nodes(wanted, found, resources, pods)]
            step = self._next(members, wanted, progress)
            judged = step.progress.taken.keys() ^ progress.taken.keys()
            fails = step.progress.refused not in {"", progress.refused}
            if fails and not strictly:
                strictly, fresh = True, {one.name for one in members}
                self._fleet.refresh(strictly=True)
                pods = self._cluster.pods(wanted.name, variant.profile, strictly=True)
            elif not judged <= fresh:
                self._fleet.look_at(judged - fresh)
                fresh |= judged
            else:
                return step

    def _next(self, members: list[Member], wanted: Wanted, progress: Progress) -> Step:
        """Return the next step, which takes no more nodes than can be remembered."""
        most = len(members)
        while True:
            now, settle = self._timing.now(), self._timing.settle
            step = next_step(members, wanted.rollout, progress, now, settle, most)
            if not step.delete or progress_note.fits(step.progress):
                return step
            most = min(most, len(step.delete)) // 2

    def _nodes(
        self,
        wanted: Wanted,
        found: Object,
        resources: Collection[str],
        pods: Mapping[str, Pod],
    ) -> Iterator[Member]:
        template = found["spec"]["template"]
        is_dra = desired.is_dra(template)
        nodes = self._fleet.nodes(self._cluster.drivers(wanted.name))
        for facts in desired.covered([template], nodes):
            devices = facts.offers(resources)
            yield Member(
                facts.name,
                facts.ready,
                devices,
                pods.get(facts.name),
                facts.reported,
                by_dra=bool(facts.dra.healthy),
                is_dra=is_dra,
                listed=facts.listed(devices, is_dra=is_dra),
                left=facts.left(devices, is_dra=is_dra),
            )
