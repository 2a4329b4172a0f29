"""What nodes have, and had in the last good state."""

from collections.abc import Iterable, Sequence

from deviceplugin_operator import names
from deviceplugin_operator.cluster import objects
from deviceplugin_operator.cluster.progress_note import Baseline
from deviceplugin_operator.crd.specification import Wanted
from deviceplugin_operator.fleet import NodeFacts
from deviceplugin_operator.observed import Object
from deviceplugin_operator.reconciling.conflicts import listed
from deviceplugin_operator.reconciling.judge import Timing
from deviceplugin_operator.reconciling.status import Outcome, Reported
from deviceplugin_operator.rollout import desired

_AT_REST = frozenset({"Done", "RolledBack", "Held"})


def baseline(
    before: Baseline,
    outcomes: Sequence[Outcome],
    sets: Iterable[Object],
    nodes: Sequence[NodeFacts],
) -> Baseline:
    """Return the devices of each node in the last good state: ``before``, with what is new.

    Nothing of a roll-out that is under way is taken in. A node that shows no devices keeps what it
    had, unless each pod of its DaemonSet is ready: it is more likely that it has no plugin.
    """
    at_rest = {one.profile: one for one in outcomes if _is_at_rest(one)}
    found = {} if len(at_rest) == len(outcomes) else dict(before)
    for daemon_set in sets:
        outcome = at_rest.get(daemon_set["metadata"]["labels"].get(names.PROFILE_LABEL, ""))
        whole = objects.is_whole(daemon_set)
        for node in desired.covered([daemon_set["spec"]["template"]], nodes):
            live = node.offers(outcome.progress.resources) if outcome and node.ready else {}
            known = outcome is not None and node.name not in outcome.progress.taken
            is_new = known and node.ready and (whole or any(live.values()))
            found[node.name] = live if is_new else before.get(node.name, {})
    return {name: one for name, one in found.items() if any(one.values())}


def _is_at_rest(one: Outcome) -> bool:
    progress = one.progress
    if one.state not in _AT_REST or progress.restoring or one.counts is None:
        return False
    return progress.target == progress.good or not one.desired


def settled_in(outcomes: Iterable[Outcome], timing: Timing) -> list[float]:
    """Return the seconds until the devices of each waiting node can be counted."""
    since = timing.now() - timing.settle
    ready = [taken.ready for one in outcomes for taken in one.progress.taken.values()]
    return [one - since for one in ready if one > since]


def left(before: Baseline, seen: Reported, nodes: Iterable[NodeFacts]) -> str:
    """Return which nodes had devices and are not covered any more, or an empty string."""
    own = {one.name for one in seen.nodes} | seen.baseline.keys()
    gone = [
        f"{one.name} ({', '.join(f'{name} {count}' for name, count in before[one.name].items())})"
        for one in nodes
        if one.name in before and one.name not in own
    ]
    return f"nodes without the plugin that had devices: {listed(gone)}" if gone else ""


def unknown_profiles(wanted: Wanted, nodes: Iterable[NodeFacts]) -> str:
    """Return of which nodes the label names no profile, or an empty string."""
    label, known = wanted.profile_label, {"", *wanted.profiles}
    odd = [
        f"{one.name} ({one.labels[label]})"
        for one in nodes
        if one.labels.get(label, "") not in known
    ]
    return f"the label {label} names no profile: general settings for {listed(odd)}" if odd else ""
