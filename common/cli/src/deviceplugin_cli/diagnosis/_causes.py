"""The findings of all nodes, merged: what is most likely the cause comes first."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from deviceplugin._inventory.validation import natural_key
from deviceplugin.checks import Verdict
from deviceplugin.kit.log import few
from deviceplugin.tools import _command_line
from deviceplugin.tools._command_line import Line
from deviceplugin.tools.doctor._cli import SHOWN
from deviceplugin_cli.diagnosis._answers import Answer
from deviceplugin_cli.diagnosis._cluster import Asked, Cluster, Located

FORMAT: Final = 1
"""Version of the JSON. It is raised when a field changes its meaning or disappears."""
_FIRST: Final = ("rights", "node", "daemonset", "operator", "pod", "asking")
"""What everything else depends on. The doctor's own checks follow, in its order."""
_LAST: Final = ("resource", "devices")
"""What is seen of a cause, and seldom is one."""
_VERDICTS: Final = tuple(Verdict)
_MOST_PLACES: Final = 5
"""Findings of one cause in the table."""
_MOST_NODES: Final = 5


@dataclass(slots=True)
class Cause:
    """Findings of one check that mean the same and ask for the same."""

    check: str
    verdict: Verdict
    means: str
    do: str
    found: list[Located] = field(default_factory=list)

    @property
    def nodes(self) -> list[str]:
        return sorted({one.node for one in self.found if one.node}, key=natural_key)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    asked: Asked
    causes: Sequence[Cause]
    nodes: int
    """How many nodes the pods are on."""
    pods: int
    answered: int
    fine: int
    """Findings that are ok."""

    @property
    def failed(self) -> bool:
        return any(cause.verdict is Verdict.FAILURE for cause in self.causes)

    def count(self, verdict: Verdict) -> int:
        return sum(cause.verdict is verdict for cause in self.causes)


def diagnose(asked: Asked, cluster: Cluster, answers: Sequence[Answer]) -> Diagnosis:
    """Return the causes, of what the cluster and its pods say."""
    chosen = [one for one in answers if _concerns(asked, one, answers)]
    named = {key for answer in chosen for one in answer.located if (key := _resource(one))}
    found = [one for one in cluster.located if _resource(one) not in named]
    found += [one for answer in chosen for one in answer.located]
    return Diagnosis(
        asked,
        _merged(found, _order(chosen)),
        len({one.pod.node for one in chosen if one.pod.node}),
        len(chosen),
        sum(not one.silence for one in chosen),
        sum(one.fine for one in chosen),
    )


def _resource(one: Located) -> tuple[str, str] | None:
    """Return the node and the resource whose devices are named, if the finding is about any."""
    return (one.node, one.finding.looked_at.split()[0]) if one.check == "devices" else None


def _concerns(asked: Asked, answer: Answer, answers: Iterable[Answer]) -> bool:
    """Return whether the pod has to do with the resource: another on its node may have it."""
    if not asked.resource or any(map(asked.wants, answer.resources)):
        return True
    others = (one for one in answers if one.pod.node == answer.pod.node)
    return not answer.resources or not any(
        asked.wants(name) for one in others for name in one.resources
    )


def _merged(found: Iterable[Located], order: Mapping[str, int]) -> list[Cause]:
    """Return the findings by cause: the worst first, and of these what others depend on."""
    causes: dict[tuple[str, ...], Cause] = {}
    for one in found:
        finding = one.finding
        key = one.check, finding.verdict, finding.means, finding.do
        if key not in causes:
            causes[key] = Cause(one.check, finding.verdict, finding.means, finding.do)
        causes[key].found.append(one)

    def rank(cause: Cause) -> tuple[int, ...]:
        place = order.get(cause.check, order["resource"] - 1)
        return _VERDICTS.index(cause.verdict), place, -len(cause.nodes)

    return sorted(causes.values(), key=rank)


def _order(answers: Iterable[Answer]) -> dict[str, int]:
    """Return the place of each check: each doctor has them in the order of what depends on what."""
    order: dict[str, int] = {}
    for answer in answers:
        for place, name in enumerate(dict.fromkeys(answer.checks)):
            order[name] = min(place, order.get(name, place))
    first = {name: place - len(_FIRST) for place, name in enumerate(_FIRST)}
    last = {name: len(order) + place for place, name in enumerate(_LAST, 1)}
    return {**order, **first, **last}


def text(diagnosis: Diagnosis, *, colour: bool) -> str:
    """Return the causes as a table for people."""
    widths = max(map(len, Verdict)), max((len(one.check) for one in diagnosis.causes), default=0)
    lines = [line for one in diagnosis.causes for line in _lines(one, widths, colour=colour)]
    return "\n".join([*lines, *([""] if lines else []), _summary(diagnosis), ""])


def _lines(cause: Cause, widths: tuple[int, int], *, colour: bool) -> Iterator[str]:
    tone = SHOWN[cause.verdict][0]
    texts = list(
        dict.fromkeys(f"{one.finding.looked_at}: {one.finding.found}" for one in cause.found)
    )
    first, *more = texts[:_MOST_PLACES]
    left = len(texts) - _MOST_PLACES
    notes = [("also", one) for one in more]
    notes += [("also", f"{left} more, which --output json lists")] if left > 0 else []
    notes += [("node", few(cause.nodes, _MOST_NODES)), ("means", cause.means), ("do", cause.do)]
    yield Line(cause.verdict, tone, cause.check, first, notes).show(widths, colour=colour)


def _summary(diagnosis: Diagnosis) -> str:
    counts = [
        f"{n} {verdict if n == 1 else SHOWN[verdict][1]}"
        for verdict in _VERDICTS[:-1]
        for n in [diagnosis.count(verdict)]
    ]
    pods = "1 pod" if diagnosis.pods == 1 else f"{diagnosis.pods} pods"
    nodes = "1 node" if diagnosis.nodes == 1 else f"{diagnosis.nodes} nodes"
    first = "; the most likely cause comes first" if len(diagnosis.causes) > 1 else ""
    return (
        f"{diagnosis.answered} of {pods} on {nodes} answered: {', '.join(counts)}, "
        f"{diagnosis.fine} ok{first}; nothing was changed"
    )


def document(diagnosis: Diagnosis) -> Mapping[str, Any]:
    """Return the JSON."""
    parts = {
        "node": diagnosis.asked.node,
        "resource": diagnosis.asked.resource,
        "failed": diagnosis.failed,
        "pods": diagnosis.pods,
        "answered": diagnosis.answered,
        "counts": {v.value: diagnosis.count(v) for v in _VERDICTS[:-1]} | {"ok": diagnosis.fine},
        "causes": [
            {
                "check": one.check,
                "verdict": one.verdict.value,
                "nodes": one.nodes,
                "means": one.means,
                "do": one.do,
                "findings": [
                    {
                        "node": each.node,
                        "pod": each.pod,
                        "looked_at": each.finding.looked_at,
                        "found": each.finding.found,
                    }
                    for each in one.found
                ],
            }
            for one in diagnosis.causes
        ],
    }
    return _command_line.document(FORMAT, parts)
