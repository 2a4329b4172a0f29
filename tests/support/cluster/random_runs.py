"""Random histories of a node: pods of both kinds, switches, restarts, losses. The seed decides."""

import random
import signal
from collections.abc import Callable, Mapping

from cluster.whole_node import Protocol, WholeNode

_MOST_PODS = 8
_LONG = 31.0
"""Seconds after which a kubelet deletes the slices of a driver that is gone."""
_VERY_LONG = 301.0
"""Seconds after which it forgets a plugin that is gone."""


class RandomRun:
    """A history of ``whole``, of which ``history`` has the actions so far."""

    def __init__(self, whole: WholeNode, seed: int) -> None:
        self.whole = whole
        self.history: list[str] = []
        self._random = random.Random(seed)
        self._pods: list[str] = []
        self._away = False
        self._actions: Mapping[Callable[[], None], int] = {
            self._create: 12,
            self._end: 8,
            self._delete: 4,
            self._switch: 4,
            self._rush: 5,
            self._restart_container: 4,
            self._restart_kubelet: 2,
            self._stop_or_start_kubelet: 3,
            self._restart_plugin: 2,
            self._kill_or_start_plugin: 3,
            self._lose_api_server: 3,
            self._lose_cdi_files: 2,
            self._lose_slices: 1,
            self._break_watches: 1,
            self._change_health: 4,
            self._let_pass: 3,
        }

    def play(self, steps: int) -> None:
        """Do so many random things; fail if a device is with two pods at any time."""
        for _ in range(steps):
            actions, weights = zip(*self._actions.items(), strict=True)
            (action,) = self._random.choices(actions, weights)
            action()
            self._step()

    def _step(self) -> None:
        self.whole.step()
        self.whole.pause(self._random.choice((0.0, 0.02, 0.1)))
        self.whole.step()

    def _did(self, what: str) -> None:
        self.history.append(what)

    # Pods

    def _create(self) -> None:
        if len(self.whole.cluster.list("Pod")) < _MOST_PODS:
            count, by_claim = self._random.choice((1, 1, 2)), self._random.random() < 0.5
            name = self.whole.pod(count, by_claim=by_claim)
            self._pods.append(name)
            self._did(f"create {name} for {count}{' by a claim' if by_claim else ''}")

    def _some_pod(self) -> str | None:
        running = sorted(self.whole.running())
        return self._random.choice(running) if running else None

    def _end(self) -> None:
        if name := self._some_pod():
            phase = self._random.choice(("Succeeded", "Failed"))
            self._did(f"{name} {phase}")
            self.whole.node.finish(name, phase)

    def _delete(self) -> None:
        pods = [one["metadata"]["name"] for one in self.whole.cluster.list("Pod")]
        if pods:
            name = self._random.choice(pods)
            self._did(f"delete {name}")
            self.whole.cluster.delete("Pod", name)

    def _restart_container(self) -> None:
        name = self._some_pod()
        if name and self.whole.kubelet.running:
            self._did(f"restart the container of {name}")
            self.whole.restart_container(name)

    # Losses

    def _switch(self) -> None:
        target: Protocol = "dra" if self.whole.protocol == "device-plugin" else "device-plugin"
        self._did(f"switch to {target}")
        self.whole.switch(target)

    def _rush(self) -> None:
        """Switch while pods of both kinds are on their way, bound or not, or soon after."""
        moments = [self._switch, self.whole.cluster.settle, *[self._create] * 4]
        self._random.shuffle(moments)
        for moment in moments:
            moment()
            self.whole.pause(self._random.choice((0.0, 0.0, 0.05)))

    def _restart_kubelet(self) -> None:
        if self.whole.kubelet.running:
            self._did("restart the kubelet")
            self.whole.kubelet.restart()

    def _stop_or_start_kubelet(self) -> None:
        if self.whole.kubelet.running:
            self._did("stop the kubelet")
            self.whole.kubelet.stop()
        else:
            self._did("start the kubelet")
            self.whole.kubelet.start()

    def _restart_plugin(self) -> None:
        self._did("restart the plugin")
        self.whole.end_plugin()
        self.whole.start_plugin()

    def _kill_or_start_plugin(self) -> None:
        if self.whole.process is not None:
            self._did("kill the plugin")
            self.whole.end_plugin(signal.SIGKILL)
        else:
            self._did("start the plugin")
            self.whole.start_plugin()

    def _lose_api_server(self) -> None:
        self._away = not self._away
        self._did(f"the API server {'goes away' if self._away else 'comes back'}")
        (self.whole.cluster.go_away if self._away else self.whole.cluster.come_back)()

    def _lose_cdi_files(self) -> None:
        self._did("lose CDI files")
        self.whole.lose_cdi_files()

    def _lose_slices(self) -> None:
        slices = self.whole.cluster.list("ResourceSlice")
        if slices:
            self._did("lose a slice")
            self.whole.cluster.delete("ResourceSlice", slices[0]["metadata"]["name"])

    def _break_watches(self) -> None:
        self._did("break watches")
        self.whole.cluster.forget_history()
        self.whole.cluster.cut_watches()

    def _change_health(self) -> None:
        name = self._random.choice(self.whole.devices)
        reason = self._random.choice(("", "it smokes"))
        self._did(f"{name} is {reason or 'well'}")
        self.whole.set_health(name, reason)

    def _let_pass(self) -> None:
        seconds = self._random.choice((_LONG, _LONG, _VERY_LONG))
        self._did(f"{seconds:g} s pass")
        self.whole.clock.advance(seconds)

    # The end

    def __str__(self) -> str:
        whole = self.whole
        there = {
            one["metadata"]["name"]: (
                one["status"]["phase"],
                "deletionTimestamp" in one["metadata"],
            )
            for one in whole.cluster.list("Pod")
        }
        here = [(one.pod.name, one.phase, one.ending, one.event) for one in whole.kubelet.pods]
        return f"{'; '.join(self.history)}\nAPI server: {there}\nkubelet: {here}"

    def come_to_rest(self) -> None:
        """Repair everything, end all pods, and check that one protocol offers all devices."""
        whole = self.whole
        self._did("come to rest")
        for name in whole.devices:
            whole.set_health(name)
        if self._away:
            self._lose_api_server()
        if not whole.kubelet.running:
            self._stop_or_start_kubelet()
        if whole.process is None:
            self._kill_or_start_plugin()
        for one in whole.cluster.list("Pod"):
            whole.cluster.delete("Pod", one["metadata"]["name"])
        whole.clock.advance(_LONG)
        whole.step_until(lambda: not whole.cluster.list("Pod"), "pods that go")
        for one in whole.cluster.list("ResourceClaim"):
            whole.cluster.delete("ResourceClaim", one["metadata"]["name"])
        whole.step_until(self._is_at_rest, "devices that one protocol offers")
        whole.step_until(lambda: whole.allocatable() == len(whole.offered_by_plugin()), "node")

    def _is_at_rest(self) -> bool:
        whole = self.whole
        by_plugin = whole.devices if whole.protocol == "device-plugin" else []
        by_dra = whole.devices if whole.protocol == "dra" else []
        return (by_plugin, by_dra) == (whole.offered_by_plugin(), whole.offered_by_dra())
