"""Random histories of two kubelets, which are compared after every event."""

from collections.abc import Callable
from typing import Any

from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from deviceplugin_testing.simulator import KubeletCrashed, Pod, StubError
from kubelets.chance import RESOURCES, Chance, shown, shown_devices
from kubelets.comparison import CRASHED, Comparison
from kubelets.twin import WAYS, Twin, answering


class _OverError(Exception):
    """Both kubelets would crash for ever."""


class History:
    """What happens to two kubelets, and to plugins and pods that each of them has."""

    def __init__(self, chance: Chance, twins: tuple[Twin, Twin]) -> None:
        self._chance = chance
        self._twins = twins
        self._plugins: dict[int, str] = {}
        """Number to resource."""
        self._pods: dict[str, Pod] = {}
        """Those that have not ended, by uid."""
        self._running: list[tuple[str, str]] = []
        """Pod's uid and container."""
        self._ended: set[str] = set()
        """Uids of pods that have ended during something else."""
        self._count = 0
        self._comparison = Comparison(twins)
        self._events: dict[Callable[[], None], int] = {
            self._register: 6,
            self._fail_to_register: 2,
            self._list: 5,
            self._end_streams: 2,
            self._stop_plugin: 2,
            self._change_mind: 3,
            self._admit: 12,
            self._end: 5,
            self._resize: 2,
            self._run: 5,
            self._exit: 2,
            self._collect: 2,
            self._tick: 4,
            self._expire: 2,
            self._health: 2,
            self._restart: 2,
        }

    @property
    def told(self) -> list[str]:
        """What has happened so far."""
        return self._comparison.told

    def live(self, length: int) -> None:
        """Let ``length`` events happen; ``DifferenceError`` at the first difference."""
        for twin in self._twins:
            twin.kubelet.start([], [])
        for event in self._chance.choices(
            list(self._events), list(self._events.values()), k=length
        ):
            try:
                self._go_through(event)
            except _OverError:
                return

    def _go_through(self, event: Callable[[], None]) -> None:
        try:
            event()
        except KubeletCrashed:
            self._restart()
        self._comparison.of_states(self._plugins)

    def _both(self, what: str, act: Callable[[Twin], Any]) -> Any:
        """Do the same on both sides and return the answer, with pods forgotten that it ended.

        ``KubeletCrashed`` if both have died of it.
        """
        said = self._comparison.both(what, act)
        for uid in self._ended & self._pods.keys():
            self._forget(self._pods[uid])
        if said == CRASHED:
            raise KubeletCrashed(what)
        return said

    # Plugins

    def _new_plugin(self) -> int:
        self._count += 1
        number, resource = self._count, self._chance.choice(RESOURCES)
        devices, options = self._chance.devices(resource), self._chance.options()
        for twin in self._twins:
            twin.add(number, resource, devices, options).on_allocate = answering(resource)
        self._plugins[number] = resource
        self.told.append(f"plugin {number} of {resource}: {shown_devices(devices)}")
        self.told.append(f"    {str(options).strip()}")
        return number

    def _any_plugin(self) -> int | None:
        return self._chance.choice(list(self._plugins)) if self._plugins else None

    def _register(self) -> None:
        before = list(self._plugins)
        number = self._new_plugin()
        if self._chance.happens(0.7):
            for other in before:
                if self._plugins[other] == self._plugins[number]:
                    self._remove(other)
        self._both(f"register {number}", lambda twin: twin.register(number))

    def _fail_to_register(self) -> None:
        number = self._new_plugin()
        how: dict[str, Any] = self._chance.choice(
            [{}, {}, {}, {"version": "v2"}, {"endpoint": "%zz"}]
        )
        for twin in self._twins:
            twin.plugins[number].failing["GetDevicePluginOptions"] = StubError("not today")
        self._both(f"fail to register {number} {how}", lambda twin: twin.register(number, **how))

    def _list(self) -> None:
        number = self._any_plugin()
        if number is not None:
            devices = self._chance.devices(self._plugins[number])
            what = f"plugin {number} lists {shown_devices(devices)}"
            self._both(what, lambda twin: twin.list_devices(number, devices))

    def _end_streams(self) -> None:
        number = self._any_plugin()
        if number is not None:
            self._both(f"plugin {number} ends streams", lambda twin: twin.end_streams(number))

    def _stop_plugin(self) -> None:
        number = self._any_plugin()
        if number is not None:
            self._remove(number)

    def _remove(self, number: int) -> None:
        del self._plugins[number]
        self._both(f"plugin {number} stops", lambda twin: twin.remove(number))

    def _change_mind(self) -> None:
        number = self._any_plugin()
        if number is None:
            return
        way = self._chance.choice(WAYS)
        ids = self._chance.ids(self._plugins[number], 2)
        what = f"plugin {number} changes: {way} {ids}"
        self._both(what, lambda twin: twin.change(number, way, ids))

    # Pods

    def _any_pod(self) -> Pod | None:
        return self._chance.choice(list(self._pods.values())) if self._pods else None

    def _admit(self) -> None:
        self._count += 1
        pod = self._chance.pod(f"p{self._count}")
        self._pods[pod.uid] = pod
        meanwhile = self._meanwhile(pod)
        what = f"admit {shown(pod)}{meanwhile}"
        reason, _ = self._both(what, lambda twin: twin.kubelet.admit(pod))
        if reason:
            self._forget(pod)

    def _forget(self, pod: Pod) -> None:
        del self._pods[pod.uid]
        self._running = [each for each in self._running if each[0] != pod.uid]

    def _meanwhile(self, admitted: Pod) -> str:
        """Let something happen during the next Allocate of a plugin's, on both sides."""
        number = self._any_plugin()
        if number is None or self._chance.happens(0.8):
            return ""
        way = self._chance.choice(["collects", "lists", "ends"])
        devices = self._chance.devices(self._plugins[number])
        others = [pod for pod in self._pods.values() if pod != admitted]
        ending = self._chance.choice(others) if others and way == "ends" else None
        for twin in self._twins:
            plugin = twin.plugins[number]
            plugin.on_allocate = self._during(
                twin, number, devices if way == "lists" else None, ending
            )
        return f"; meanwhile {number} {way} {ending.name if ending else ''}"

    def _during(
        self, twin: Twin, number: int, devices: list[pb.Device] | None, ending: Pod | None
    ) -> Callable[[list[str]], pb.AllocateResponse]:
        plugin = twin.plugins[number]
        answer = answering(plugin.resource)

        def allocate(ids: list[str]) -> pb.AllocateResponse:
            plugin.on_allocate = answer
            if ending and ending.uid in self._pods:
                self._ended.add(ending.uid)
                twin.kubelet.end(ending)
            if devices is None:
                twin.kubelet.collect()
            else:
                twin.list_devices(number, devices)
            return answer(ids)

        return allocate

    def _end(self) -> None:
        if pod := self._any_pod():
            self._forget(pod)
            self._both(f"end {pod.name}", lambda twin: twin.kubelet.end(pod))

    def _resize(self) -> None:
        if pod := self._any_pod():
            other = self._chance.resized(pod)
            self._both(f"resize {shown(other)}", lambda twin: twin.kubelet.resize(other))

    def _run(self) -> None:
        if pod := self._any_pod():
            name = self._chance.choice(pod.all_containers).name
            self._both(f"run {name} of {pod.name}", lambda twin: twin.kubelet.run(pod, name))
            if (pod.uid, name) not in self._running:
                self._running.append((pod.uid, name))

    def _exit(self) -> None:
        if self._running:
            gone = self._chance.choice(self._running)
            self._running.remove(gone)
            self.told.append(f"exit {gone}")

    def _health(self) -> None:
        if pod := self._any_pod():
            self._both(f"health of {pod.name}", lambda twin: twin.kubelet.health(pod))

    # The kubelet

    def _collect(self) -> None:
        self._both("collect", lambda twin: twin.kubelet.collect())

    def _tick(self) -> None:
        self._both("tick", lambda twin: twin.kubelet.tick())

    def _expire(self) -> None:
        self._both("expire", lambda twin: twin.kubelet.expire())

    def _restart(self) -> None:
        pods = list(self._pods.values())
        self._plugins.clear()
        for twin in self._twins:
            twin.close()
        if self._chance.happens(0.15):
            text = self._chance.choice([None, "{}"])
            self._both(f"overwrite the checkpoint with {text}", lambda twin: twin.damage(text))
        running = list(self._running)
        what = f"restart while {running} run"
        self._both(what, lambda twin: twin.kubelet.start(pods, running))
        for _ in range(self._chance.choice([0, 1, 2])):
            self._register()
        try:
            outcomes = self._both("readmit", lambda twin: twin.kubelet.readmit(pods))
        except KubeletCrashed:
            raise _OverError from None
        for pod, (reason, _) in zip(pods, outcomes, strict=True):
            if reason:
                self._forget(pod)
