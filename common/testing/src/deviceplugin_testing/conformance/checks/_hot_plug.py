"""Hot-plug: devices that the user's command adds or removes."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from deviceplugin_testing.conformance._check import CheckGroup, Failed, NotApplicable
from deviceplugin_testing.conformance._kubelet import Listed
from deviceplugin_testing.conformance._trial import Trial
from deviceplugin_testing.simulator import Pod

GROUP: Final = CheckGroup("hot-plug", "Hot-plug")


@dataclass(frozen=True, slots=True)
class DeviceChange:
    """One change of the devices, while a pod held all healthy ones."""

    before: Listed
    lists: Sequence[Listed]
    """The lists sent after the command was started."""
    took: float
    """Seconds from the start of the command to the first list."""
    held: frozenset[str]


def change(trial: Trial) -> DeviceChange:
    """Let a pod hold all healthy devices, and run the user's command."""
    if not trial.subject.trigger:
        raise NotApplicable("no --trigger-change")
    node = trial.fresh()
    held: frozenset[str] = frozenset()
    if node.healthy:
        pod = Pod.of("hot-plug", main={node.resource: len(node.healthy)})
        with node.guarded():
            outcome = node.kubelet.admit(pod)
        held = outcome.devices.get("main", {}).get(node.resource, frozenset())
    before, count, begin = node.lists[-1], len(node.lists), time.monotonic()
    trial.trigger(node)
    node.wait(lambda: len(node.lists) > count, trial.limits.within)
    node.observe(trial.limits.settle)
    lists = node.lists[count:]
    return DeviceChange(before, lists, lists[0].at - begin if lists else 0.0, held)


@GROUP.check(
    "noticed",
    "Sends a new list when its devices change",
    why="Pods cannot get a device that is not listed, and can still get one that is gone.",
)
def _noticed(trial: Trial) -> str:
    seen = trial.once(change)
    if not seen.lists:
        raise Failed(f"no new list within {trial.limits.within:g} s after the command")
    before = {device.ID: device.health for device in seen.before.devices}
    after = {device.ID: device.health for device in seen.lists[-1].devices}
    if before == after:
        raise Failed("sent a new list with the same devices and healths")
    differ = {id_ for id_ in before | after if before.get(id_) != after.get(id_)}
    return f"{len(differ)} devices changed, listed {seen.took:.2f} s after the command's start"


@GROUP.check(
    "keeps-ids",
    "Keeps the ids of devices that a pod holds, unhealthy if they are gone",
    why="A kubelet crashes when it looks up an allocated device that is no longer listed.",
)
def _keeps_ids(trial: Trial) -> str:
    seen = trial.once(change)
    if not seen.held or not seen.lists:
        raise NotApplicable("no pod held a device" if not seen.held else "no new list")
    for each in seen.lists:
        dropped = seen.held - set(each.ids)
        if dropped:
            raise Failed(f"dropped {', '.join(sorted(dropped))}, which a pod holds")
    last = {device.ID: device.health for device in seen.lists[-1].devices}
    lost = sum(last[id_] != "Healthy" for id_ in seen.held)
    return f"a pod held {len(seen.held)} devices: all are still listed, {lost} as unhealthy"
