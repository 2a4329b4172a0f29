"""Never crash the kubelet: the simulated kubelet reports what would crash a real one."""

import time
from typing import Final

from deviceplugin_testing.conformance._check import LAST_LANE, CheckGroup, Failed, NotApplicable
from deviceplugin_testing.conformance._node import PluginNode
from deviceplugin_testing.conformance._trial import Trial
from deviceplugin_testing.conformance.checks._losses import restart
from deviceplugin_testing.simulator import Container, KubeletCrashed, Pod

GROUP: Final = CheckGroup("crash", "Never crash the kubelet", lane=LAST_LANE)

_PODS: Final = 4


@GROUP.check(
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
