"""Preparing and unpreparing the claims of pods."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from deviceplugin.proto.dra import dra_v1_pb2 as pb
from deviceplugin_testing.simulator._dra.claims import ClaimCache, ClaimDevice, ClaimState
from deviceplugin_testing.simulator._dra.drivers import Drivers
from deviceplugin_testing.simulator._dra.plugins import DriverPlugin
from deviceplugin_testing.simulator._errors import CallError
from deviceplugin_testing.simulator._host.claim_source import ClusterError
from deviceplugin_testing.simulator._host.host import Host
from deviceplugin_testing.simulator._pods.pod import Pod, PodClaim


class PrepareError(Exception):
    """Claims of a pod could not be prepared, or unprepared. The message is the kubelet's."""


class Preparer:
    """Asks drivers to prepare and unprepare claims, and keeps their answers."""

    def __init__(self, host: Host, cache: ClaimCache, drivers: Drivers) -> None:
        self._host = host
        self._cache = cache
        self._drivers = drivers

    # Preparing

    def prepare(self, pod: Pod) -> None:
        """Prepare all claims of ``pod`` that are not prepared yet; raise ``PrepareError``."""
        try:
            self._prepare(pod)
        except (CallError, ClusterError, ValueError) as error:
            raise PrepareError(f"prepare dynamic resources: {error}") from None

    def _prepare(self, pod: Pod) -> None:
        # All are checked first, so that a pod that fails leaves nothing to unprepare.
        if not (found := [self._validate(pod, use) for use in _claims(pod)]):
            return
        with self._host.changed:
            to_prepare = [state for one in found if (state := self._take_up(pod, one)) is not None]
            self._cache.save()
            batches = self._batches(to_prepare)
        for driver in self._host.shuffled(set(batches)):
            plugin = self._drivers.get(driver)
            self._ask(plugin, batches[driver])
        with self._host.changed:
            for state in to_prepare:
                state.prepared = True
            self._cache.save()
            self._host.notify()

    def _validate(self, pod: Pod, use: PodClaim) -> ClaimState:
        try:
            found = self._host.cluster.claim(pod.namespace, str(use.claim))
        except ClusterError as error:
            raise ClusterError(f"fetch ResourceClaim {use.claim}: {error}") from None
        _check_owner(pod, use, found)
        metadata = found["metadata"]
        reserved = (found.get("status") or {}).get("reservedFor") or ()
        if pod.uid not in {each.get("uid") for each in reserved}:
            raise ValueError(
                f"pod {pod.name} ({pod.uid}) is not allowed to use ResourceClaim "
                f"{use.claim} ({metadata['uid']})"
            )
        try:
            state = ClaimState.of(found)
        except ValueError as error:
            raise ValueError(f"ResourceClaim {use.claim}: {error}") from None
        for driver in state.drivers:
            self._drivers.get(driver)
        return state

    def _take_up(self, pod: Pod, found: ClaimState) -> ClaimState | None:
        """Add the claim to the cache, used by ``pod``; return it unless it is prepared."""
        state = self._cache.get(found.namespace, found.name)
        if state is None:
            state = found
            self._cache.add(state)
        elif state.uid != found.uid:
            raise ValueError(
                f"old ResourceClaim with same name {found.name} and different UID {state.uid} "
                "still exists (previous pod force-deleted?!)"
            )
        elif state.unpreparing and not self._host.behaviour.prepare_joins_unprepare:
            raise ValueError(f"ResourceClaim {found.name} is being unprepared")
        state.pods.add(pod.uid)
        return None if state.prepared else state

    def _batches(self, states: Iterable[ClaimState]) -> dict[str, list[ClaimState]]:
        batches: dict[str, list[ClaimState]] = {}
        for state in states:
            for driver in state.drivers:
                batches.setdefault(driver, []).append(state)
        return batches

    def _ask(self, plugin: DriverPlugin, states: Sequence[ClaimState]) -> None:
        for state, answer in self._call(plugin, "NodePrepareResources", states):
            with self._host.changed:
                if self._cache.get(state.namespace, state.name) is None:
                    raise ValueError(
                        "internal error: unable to get claim info for ResourceClaim "
                        f"{state.name} in namespace {state.namespace}"
                    )
                state.drivers.setdefault(plugin.driver, []).extend(map(_device, answer.devices))

    def _call(
        self, plugin: DriverPlugin, method: str, states: Sequence[ClaimState]
    ) -> Iterable[tuple[ClaimState, Any]]:
        """Yield the answer for each claim; raise ``CallError`` for the first that has failed."""
        by_uid = {state.uid: state for state in states}
        messages = [
            pb.Claim(namespace=state.namespace, uid=state.uid, name=state.name) for state in states
        ]
        try:
            answers: Mapping[str, Any] = plugin.call(method, messages)
        except CallError as error:
            raise CallError(f"{method}: {error}") from None
        finally:
            with self._host.changed:
                self._host.metrics.dra_calls[plugin.driver, method] += 1
        for uid in self._host.shuffled(set(answers)):
            state = by_uid.get(uid)
            if state is None:
                raise CallError(f"{method} returned result for unknown claim UID {uid}")
            if problem := answers[uid].error:
                raise CallError(f"{method} failed for ResourceClaim {state.name}: {problem}")
            yield state, answers[uid]
        if skipped := len(states) - len(answers):
            raise CallError(f"{method} skipped {skipped} ResourceClaims")

    # Unpreparing

    def unprepare(self, pod: Pod) -> None:
        """Unprepare the claims of ``pod`` that no other pod uses; raise ``PrepareError``."""
        try:
            names = [str(use.claim) for use in _claims(pod)]
        except ValueError as error:
            raise PrepareError(f"unprepare dynamic resources: {error}") from None
        self._unprepare(pod.uid, pod.namespace, names)

    def _unprepare(self, uid: str, namespace: str, names: Iterable[str]) -> None:
        with self._host.changed:
            states = self._releasable(uid, namespace, names)
            batches = self._batches(states)
        try:
            for driver in self._host.shuffled(set(batches)):
                plugin = self._drivers.get(driver)
                list(self._call(plugin, "NodeUnprepareResources", batches[driver]))
        except CallError as error:
            for state in states:
                state.unpreparing = False
            raise PrepareError(f"unprepare dynamic resources: {error}") from None
        with self._host.changed:
            for state in states:
                self._cache.remove(namespace, state.name)
            self._cache.save()
            self._host.notify()

    def _releasable(self, uid: str, namespace: str, names: Iterable[str]) -> list[ClaimState]:
        """Return the claims that nobody else uses; of the others, the pod is no user any more."""
        found = []
        for name in names:
            state = self._cache.get(namespace, name)
            if state is None:
                continue
            if self._has_other_users(state, uid):
                state.pods.discard(uid)
            else:
                state.unpreparing = True
                found.append(state)
        return found

    def _has_other_users(self, state: ClaimState, uid: str) -> bool:
        if self._host.behaviour.unprepare_ignores_users:
            return len(state.pods) > 1
        return bool(state.pods - {uid})

    def reconcile(self, active: Iterable[str]) -> None:
        """Unprepare the claims of pods that are not ``active``. What fails is tried next time."""
        known = frozenset(active)
        gone: dict[tuple[str, str], list[str]] = {}
        with self._host.changed:
            for state in self._cache:
                for uid in state.pods - known:
                    gone.setdefault((uid, state.namespace), []).append(state.name)
        for (uid, namespace), names in gone.items():
            try:
                self._unprepare(uid, namespace, names)
            except PrepareError as error:
                self._host.dra_problems.append(str(error))


def _claims(pod: Pod) -> list[PodClaim]:
    """Return the claims of ``pod`` that have an object, with the one for its limits."""
    if any(claim.claim is None for claim in pod.claims):
        raise ValueError(f'pod "{pod.namespace}/{pod.name}": ResourceClaim not created yet')
    special = [PodClaim("", pod.extended.claim)] if pod.extended else []
    return [claim for claim in (*pod.claims, *special) if claim.claim]


def _check_owner(pod: Pod, use: PodClaim, found: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` if the claim should have been created for ``pod``, and was not."""
    owners = found["metadata"].get("ownerReferences") or ()
    owned = any(one.get("controller") and one.get("uid") == pod.uid for one in owners)
    if use.from_template and not owned:
        raise ValueError(
            f"ResourceClaim {pod.namespace}/{use.claim} was not created for Pod "
            f"{pod.namespace}/{pod.name} (Pod is not owner)"
        )


def _device(message: Any) -> ClaimDevice:
    share = message.share_id if "share_id" in message.DESCRIPTOR.fields_by_name else ""
    return ClaimDevice(
        message.pool_name,
        message.device_name,
        tuple(message.request_names),
        tuple(message.cdi_device_ids),
        share or None,
    )
