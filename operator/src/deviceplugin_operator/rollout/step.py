"""The next step of a roll-out: a pure function of the nodes and of what was remembered.

A node is *taken* when its pod is deleted, so that the DaemonSet makes one of the target. It is
*done* when that pod is ready and the node has as many devices as before. First the canaries are
taken, then as many at once as may be without the plugin. A taken node that is not done within the
deadline ends it: back to what was good, or no further.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from deviceplugin_operator.crd.specification import Rollout

SETTLE: Final = 11.0
"""Seconds. If the node has not reported since its pod became ready, its devices are counted after
this time: a kubelet checks every 10 s whether their number has changed, and reports changes."""
State = Literal["Done", "Progressing", "RollingBack", "RolledBack", "Halted"]


@dataclass(frozen=True)
class Pod:
    """A pod of the DaemonSet."""

    name: str
    uid: str
    revision: str
    ready: bool
    leaving: bool = False
    said: str = ""
    """Why it does not run: the plugin's last message, or the kubelet's."""
    ready_since: str = ""
    """When it became ready, by its node's clock."""


@dataclass(frozen=True)
class Member:
    """A node that the DaemonSet covers."""

    name: str
    ready: bool
    devices: Mapping[str, int]
    """Healthy ones by resource, in either protocol."""
    pod: Pod | None = None
    reported: str = ""
    """When the kubelet reported the devices, by its node's clock."""
    by_dra: bool = False
    """Whether it has slices with devices."""
    is_dra: bool = False
    """Whether the DaemonSet has the protocol ``dra``."""
    listed: Mapping[str, int] = field(default_factory=dict)
    """What counts after a switch: also devices that are held by the protocol before."""
    left: Mapping[str, int] = field(default_factory=dict)
    """Devices that are still offered by the other protocol."""

    @property
    def is_fresh(self) -> bool:
        """Whether the devices were reported while the pod was ready already."""
        return self.pod is not None and "" < self.pod.ready_since < self.reported


@dataclass(frozen=True)
class Taken:
    """What is remembered about a node while its pod is replaced."""

    since: float = 0.0
    """Seconds since the epoch; 0 while the node is not ready, which is not the pod's fault."""
    before: Mapping[str, int] = field(default_factory=dict)
    """Its devices when it was taken."""
    well: bool = False
    """Whether its pod was ready then."""
    ready: float = 0.0
    """When its new pod was first seen ready."""
    by_dra: bool = False
    """Whether it offered them through DRA."""


@dataclass(frozen=True)
class Progress:
    """What is remembered between two steps."""

    target: str = ""
    """The revision that the DaemonSet has."""
    good: str = ""
    """The last revision that succeeded on every node."""
    refused: str = ""
    """The revision that failed; it is not tried again."""
    reason: str = ""
    """Why it failed."""
    generation: int = 0
    """The object's generation when it failed. A new generation is tried again."""
    resources: tuple[str, ...] = ()
    """The resources of ``good``: nodes must not lose these either."""
    restoring: bool = False
    """Whether the DaemonSet was deleted and ``good`` comes back first, before anything is tried."""
    lost: str = ""
    """Why there is no way back to the last good revision, although there was one."""
    taken: Mapping[str, Taken] = field(default_factory=dict)

    def towards(self, target: str) -> "Progress":
        """Return the same with another target. What nodes had before stays known."""
        taken = {name: replace(one, since=0.0, ready=0.0) for name, one in self.taken.items()}
        return replace(self, target=target, taken=taken)

    def without(self, seconds: float, now: float) -> "Progress":
        """Return the same, as if the last ``seconds`` before ``now`` had not passed."""

        def at(moment: float) -> float:
            return moment and max(moment, min(moment + seconds, now))

        taken = {
            name: replace(one, since=at(one.since), ready=at(one.ready))
            for name, one in self.taken.items()
        }
        return replace(self, taken=taken)


@dataclass(frozen=True)
class Step:
    """What is to be done now."""

    progress: Progress
    """To be saved before anything is deleted, for an operator that is killed in between."""
    delete: tuple[Pod, ...] = ()
    state: State = "Progressing"
    message: str = ""


@dataclass(frozen=True)
class _View:
    """The nodes, grouped by state."""

    done: tuple[Member, ...]
    waiting: Mapping[str, Taken]
    """Taken nodes that do not have the new pod or all devices yet."""
    old: tuple[Member, ...]
    """Nodes that have a pod of another revision."""
    away: Mapping[str, Taken]
    """Taken nodes that are not ready. The roll-out does not wait for them."""


def next_step(
    nodes: Iterable[Member],
    rollout: Rollout,
    progress: Progress,
    now: float,
    settle: float = SETTLE,
    most: int | None = None,
) -> Step:
    """Return the next step towards ``progress.target``, the revision of the DaemonSet.

    It takes at most ``most`` nodes, if that is given.
    """
    known = {one.name: one for one in nodes}
    view = _view(known.values(), rollout, progress, now, settle)
    settled = progress.target in {progress.good, ""}
    if not settled and (failed := _failed(view, known, rollout, now)):
        return _after_failure(view, rollout, progress, failed)
    excused = {name for name, one in view.waiting.items() if _overdue(one, rollout, now)}
    busy = len(view.waiting) - len(excused)
    if not view.old and not busy:
        return _finished(view, progress)
    if progress.target == progress.refused:
        return Step(replace(progress, taken=_all(view)), state="Halted")
    chosen = _chosen(view, rollout, busy, len(known), settled=settled)[:most]
    taken = _all(view) | {
        one.name: progress.taken.get(one.name)
        or Taken(now, one.devices, _serves(one), by_dra=one.by_dra)
        for one in chosen
    }
    pods = tuple(one.pod for one in chosen if one.pod)
    return Step(replace(progress, taken=taken), pods, "Progressing", _how_far(view, known))


def _view(
    nodes: Iterable[Member], rollout: Rollout, progress: Progress, now: float, settle: float
) -> _View:
    done: list[Member] = []
    old: list[Member] = []
    waiting: dict[str, Taken] = {}
    away: dict[str, Taken] = {}
    for node in nodes:
        note = progress.taken.get(node.name)
        if not node.ready:
            away |= {node.name: replace(note, since=0.0, ready=0.0)} if note else {}
        elif node.pod and not node.pod.leaving and node.pod.revision != progress.target:
            old.append(node)
        else:
            followed = _followed(node, note, now)
            if _is_done(node, followed, rollout, now - settle):
                done.append(node)
            else:
                waiting[node.name] = followed
    return _View(tuple(done), waiting, tuple(old), away)


def _followed(node: Member, note: Taken | None, now: float) -> Taken:
    """Return what is known about a node that has no pod of another revision."""
    ready = _serves(node)
    if note is None:  # a new node, or somebody else has deleted its pod
        return Taken(now, ready=now if ready else 0.0)
    return replace(note, since=note.since or now, ready=(note.ready or now) if ready else 0.0)


def _serves(node: Member) -> bool:
    return node.pod is not None and node.pod.ready and not node.pod.leaving


def _is_done(node: Member, note: Taken, rollout: Rollout, settled_by: float) -> bool:
    if not _serves(node):
        return False
    if rollout.allow_fewer_devices or not any(note.before.values()):
        return True
    settled = node.is_fresh or note.ready <= settled_by
    return settled and not node.left and not _lost(node, note)


def _lost(node: Member, note: Taken) -> list[str]:
    """Return the resources of which the node has fewer devices than before."""
    now = node.devices if note.by_dra == node.is_dra else {**node.devices, **node.listed}
    return [
        f"{name} {count} -> {now.get(name, 0)}"
        for name, count in sorted(note.before.items())
        if now.get(name, 0) < count
    ]


def _overdue(note: Taken, rollout: Rollout, now: float) -> bool:
    return now - note.since > rollout.deadline


def _failed(view: _View, nodes: Mapping[str, Member], rollout: Rollout, now: float) -> str:
    """Return why the target has failed. A node that was not well before counts only alone."""
    for name, note in sorted(view.waiting.items()):
        if _overdue(note, rollout, now) and (note.well or not view.done):
            return _why(nodes[name], note, rollout)
    return ""


def _why(node: Member, note: Taken, rollout: Rollout) -> str:
    after = f"after {rollout.deadline:g} s"
    if lost := _lost(node, note) if _serves(node) else []:
        return f"{node.name}: {', '.join(lost)} {after}"
    if _serves(node) and node.left:
        left = ", ".join(f"{name} {count}" for name, count in sorted(node.left.items()))
        return f"{node.name}: still offered by the protocol before: {left} {after}"
    said = f": {node.pod.said}" if node.pod and node.pod.said else ""
    what = "its pod is not ready" if node.pod else "it has no pod (its DaemonSet's Events say why)"
    return f"{node.name}: {what} {after}{said}"


def _after_failure(view: _View, rollout: Rollout, progress: Progress, failed: str) -> Step:
    refused = replace(progress, refused=progress.target, reason=failed, taken=_all(view))
    if rollout.on_failure == "RollBack" and progress.good:
        return Step(refused.towards(progress.good), state="RollingBack", message=failed)
    return Step(refused, state="Halted", message=failed)


def _finished(view: _View, progress: Progress) -> Step:
    """Return the last step. The status names nodes that are still not well."""
    kept = dict(view.away)
    if not view.done:  # no node is ready, so nothing is known about the target
        return Step(replace(progress, taken=kept), state="Done")
    state: State = "RolledBack" if progress.refused not in {"", progress.target} else "Done"
    if progress.refused == progress.target:  # it was late, and has succeeded after all
        progress = replace(progress, refused="", reason="")
    return Step(replace(progress, good=progress.target, lost="", taken=kept), state=state)


def _all(view: _View) -> dict[str, Taken]:
    return {**view.waiting, **view.away}


def _chosen(view: _View, rollout: Rollout, busy: int, nodes: int, *, settled: bool) -> list[Member]:
    """Return the nodes to take now. A roll-back has no canaries."""
    unwell = sorted((one for one in view.old if not _serves(one)), key=_order)
    well = sorted((one for one in view.old if _serves(one)), key=_order)
    if settled:
        free = max(0, rollout.at_once(nodes) - busy)
        return [*unwell, *well[:free]]
    if len(view.done) < rollout.canary:
        return [*well, *unwell][: max(0, rollout.canary - len(view.done) - busy)]
    return [*unwell, *well][: max(0, rollout.at_once(nodes) - busy)]


def _order(node: Member) -> tuple[bool, str]:
    """Return what sorts nodes: a canary without devices would show nothing."""
    return not any(node.devices.values()), node.name


def _how_far(view: _View, nodes: Mapping[str, Member]) -> str:
    away = sorted(name for name, one in nodes.items() if not one.ready)
    more = f"; not ready, skipped: {', '.join(_few(away))}" if away else ""
    return f"{len(view.done)} of {len(nodes)} nodes done{more}"


def _few(names: list[str], most: int = 5) -> Iterator[str]:
    yield from names[:most]
    if len(names) > most:
        yield f"{len(names) - most} more"
