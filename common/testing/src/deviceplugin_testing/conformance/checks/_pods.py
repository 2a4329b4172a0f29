"""Checks with pods: devices that change while pods hold them, and what crashes the kubelet."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from deviceplugin_testing.conformance._check import LAST_LANE, CheckGroup, Failed, NotApplicable
from deviceplugin_testing.conformance._kubelet import Listed
from deviceplugin_testing.conformance._node import PluginNode
from deviceplugin_testing.conformance._trial import Trial
from deviceplugin_testing.conformance.checks._losses import restart
from deviceplugin_testing.simulator import Container, KubeletCrashed, Pod

HOT_PLUG: Final = CheckGroup("hot-plug", "Hot-plug")


@dataclass(frozen=True, slots=True)
class DeviceChange:
    """One change of the devices, while a pod held all healthy ones."""

    before: Listed
    lists: Sequence[Listed]
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


@HOT_PLUG.check(
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


@HOT_PLUG.check(
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


CRASH: Final = CheckGroup("crash", "Never crash the kubelet", lane=LAST_LANE)

_PODS: Final = 4


@CRASH.check(
    "none",
    "Never makes the kubelet crash",
    why="A kubelet that crashes because of a list of devices crashes again after each start.",
)
def _none(trial: Trial) -> str:
    if not trial.hopeless:
        try:
            comes_back = trial.is_fine(restart)
            pods = _use(trial.fresh(), comes_back=comes_back)
        except KubeletCrashed as crash:
            raise Failed(str(crash)) from crash
        trial.discard()
    else:
        pods = 0
    if trial.crashes:
        raise Failed(trial.crashes[0])
    if trial.hopeless:
        raise NotApplicable(trial.hopeless)
    return f"no crash, also not with {pods} pods admitted, resized and admitted again"


def _use(node: PluginNode, *, comes_back: bool) -> int:
    """Allocate devices to pods with a topology policy, and make the kubelet look them up again.

    This includes a restart of the kubelet, unless the plugin is known not to come back after one.
    """
    kubelet, resource = node.kubelet, node.resource
    wants = {resource: 1}
    pods = [
        Pod(f"pod-{number}", [Container("main", wants)], [Container("init", wants)])
        for number in range(min(_PODS, len(node.healthy)))
    ]
    for pod in pods:
        with node.guarded():
            outcome = kubelet.admit(pod)
            if outcome:
                kubelet.resize(pod)
    if not comes_back:
        return len(pods)
    kubelet.stop()
    begin = time.monotonic()
    kubelet.start(readmit=False)
    if node.wait(lambda: node.back(begin), node.limits.within):
        with node.guarded():
            kubelet.readmit()
    return len(pods)
