"""What DRA needs besides a DaemonSet: rights, an API, classes, and an order of steps."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from deviceplugin.apiserver import ApiServer, ForbiddenError
from deviceplugin_operator import names
from deviceplugin_operator.cluster import progress_note
from deviceplugin_operator.crd.specification import Wanted
from deviceplugin_operator.fleet import Fleet, NodeFacts
from deviceplugin_operator.observed import DAEMON_SETS, Object, Seen
from deviceplugin_operator.reconciling.conflicts import listed
from deviceplugin_operator.rollout import desired
from deviceplugin_operator.rollout.desired import Revision
from deviceplugin_operator.rollout.step import Progress

NO_DRA: Final = "NoDRA"
AGAIN: Final = 10.0
"""Seconds after which a missing right is looked for again."""
_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_APPLY: Final = (
    "kubectl get dpl {name} --output yaml | kubectl exec --stdin --namespace {namespace} "
    "deployment/deviceplugin-operator -- python3 -m deviceplugin_operator rights "
    "--classes {classes} - | kubectl apply -f -"
)
"""Its image has no commands but Python."""
Condition = tuple[bool, str, str]


class Dra:
    """See the module. Call it from one thread only."""

    def __init__(self, api: ApiServer, seen: Seen, fleet: Fleet, namespace: str) -> None:
        self._api = api
        self._seen = seen
        self._fleet = fleet
        self._namespace = namespace
        self._granted: dict[str, tuple[float, bool]] = {}
        """By account: when the API server was asked, and its answer."""

    def follow(self, valid: Iterable[Wanted]) -> None:
        """Count what the drivers offer that objects ask for, or that DaemonSets have."""
        drivers = {one.driver for one in valid if one.driver}
        self._fleet.follow(drivers | desired.drivers(self._seen.all(DAEMON_SETS)))

    def missing(self, wanted: Wanted) -> tuple[str, str]:
        """Return why no pod can use DRA here, as reason and message, or blanks."""
        unread = self._fleet.unread
        if isinstance(unread, ForbiddenError) and (wanted.driver or self._drivers(wanted)):
            return NO_DRA, f"{unread}: apply the rights of this release of the operator"
        if unread and wanted.driver:
            return NO_DRA, "the API server has no resource.k8s.io/v1: DRA needs Kubernetes 1.34"
        if not wanted.driver or self._is_granted(names.account(wanted.plugin, wanted.name)):
            return "", ""
        return "RightsMissing", (
            f"driver {wanted.driver} has no account with rights in {self._namespace}: read and "
            f"apply what this prints: {self._apply(wanted)}"
        )

    def _drivers(self, wanted: Wanted) -> set[str]:
        """Return the drivers that the pods of an object can be."""
        return desired.drivers(self._seen.of(DAEMON_SETS, wanted.name))

    def _apply(self, wanted: Wanted, nodes: Iterable[NodeFacts] = ()) -> str:
        """Return the command that applies what is needed, with the classes that are not there."""
        asked = self._asked(wanted, nodes)
        without = ",".join(one for one in asked if not self._fleet.classes.get(one)) or "none"
        return _APPLY.format(name=wanted.name, namespace=self._namespace, classes=without)

    def _asked(self, wanted: Wanted, nodes: Iterable[NodeFacts]) -> list[str]:
        """Return the resources that are offered through DRA, as far as their names are known."""
        asked = {
            name for one in wanted.variants if one.before or one.is_step for name in one.resources
        }
        seen = {name for node in nodes for name in node.offers(asked) if name in node.dra.total}
        return sorted(seen | {one for one in asked if "*" not in one})

    def _is_granted(self, account: str) -> bool:
        """Return whether the rights of ``account`` were applied: a mark for the operator is there.

        It may not read accounts and roles, but anybody may ask what it may do itself.
        """
        asked, granted = self._granted.get(account, (float("-inf"), False))
        if time.monotonic() - asked > AGAIN / 2:
            kind = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
            wanted = {"resourceAttributes": names.deploys(account)}
            made = self._api.create(_REVIEWS, {**kind, "spec": wanted})
            granted = bool(made["status"].get("allowed"))
            self._granted[account] = time.monotonic(), granted
        return granted

    def left_behind(self, wanted: Wanted, nodes: Iterable[NodeFacts]) -> str:
        """Return which nodes still have slices, of pods that would lose what claims need."""
        drivers = self._drivers(wanted)
        found = [one.name for one in nodes if one.dra.drivers & drivers]
        if wanted.driver or not found:
            return ""
        return (
            f"{listed(found)}: devices are offered through DRA, so claims can hold some: set "
            f"protocol: device-plugin, and remove it when no claim has a device any more"
        )

    def classes(self, wanted: Wanted, nodes: Iterable[NodeFacts]) -> Condition | None:
        """Return whether one DeviceClass names each resource that is offered through DRA."""
        if not any(one.before or one.is_step for one in wanted.variants) or self._fleet.unread:
            return None
        found = {
            one: sorted(self._fleet.classes.get(one, [])) for one in self._asked(wanted, nodes)
        }
        several = [
            f"{listed(each)} have extendedResourceName {name}: keep one"
            for name, each in found.items()
            if len(each) > 1
        ]
        if none := [name for name, each in found.items() if not each]:
            said = [f"no DeviceClass has extendedResourceName {name}" for name in none]
            message = f"{'; '.join([*said, *several])}: {self._apply(wanted, nodes)}"
            return False, "NoDeviceClass", message
        reason = "SeveralDeviceClasses" if several else "OneDeviceClass"
        return not several, reason, "; ".join(several)


def next_variants(
    owner: Object,
    wanted: Wanted,
    known: Mapping[str, Progress],
    good: Mapping[str, Mapping[str, Any] | None],
    made: Mapping[str, Revision],
) -> Wanted:
    """Return ``wanted`` with what comes before DRA, where the last good pods cannot use it.

    A pod without the mounts knows nothing of claims, so no roll-back may lead there once claims
    hold devices. All maps are by profile; ``good`` has the last good pod templates. Where no device
    was offered so far, there is no such step.
    """
    had = progress_note.baseline(owner)

    def is_early(profile: str) -> bool:
        if pod := good[profile]:
            return not desired.driver(pod)
        return bool(had) and known[profile].target != made[profile].name

    found = (one.before if one.before and is_early(one.profile) else one for one in wanted.variants)
    return replace(wanted, variants=tuple(found))
