"""One of two kubelets that live through the same and must look the same."""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

import grpc

from deviceplugin._platform.checkpoint import FILE_NAME
from deviceplugin._platform.waiting import Waiter
from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from deviceplugin_testing.simulator import StubError, StubPlugin
from deviceplugin_testing.simulator._device_manager import records
from kubelets.real_kubelet import RealKubelet
from kubelets.simulated_kubelet import Simulated
from patience import PATIENCE

Kubelet = Simulated | RealKubelet
"""Both can do the same, and say the same; messages have no paths in them."""

_FAILING: Final = ("GetPreferredAllocation", "PreStartContainer")
WAYS: Final = ("well", "Allocate", "empty", "prefer", *_FAILING)
"""How a plugin may behave; a method's name is for its failure."""

_STOPPED: Final = re.compile(r"endpoint &\{.*\} has been stopped", re.DOTALL)


class Twin:
    """A kubelet and its plugins."""

    def __init__(self, name: str, kubelet: Kubelet, plugin_dir: Path) -> None:
        self.name = name
        self.kubelet = kubelet
        self._dir = plugin_dir
        self.plugins: dict[int, StubPlugin] = {}

    def plain(self, said: Any) -> Any:
        """Return what was said without what differs between any two kubelets."""
        if isinstance(said, str):
            return _STOPPED.sub("endpoint has been stopped", said.replace(str(self._dir), "DIR"))
        if isinstance(said, list | tuple):
            return [self.plain(each) for each in said]
        return said

    def settle(self, lists: Mapping[str, int] | None = None) -> None:
        """Wait until so many lists have come and the end of every stream has been dealt with."""
        if not Waiter().until(lambda: self._settled(lists or {}), PATIENCE, every=0.002):
            raise AssertionError(
                f"{self.name}: waited {PATIENCE:g} s for lists {lists} and streams "
                f"{self._streams()}; there are {self.kubelet.progress()}"
            )

    def _settled(self, lists: Mapping[str, int]) -> bool:
        come, open_, ending = self.kubelet.progress()
        enough = all(come.get(name, 0) >= count for name, count in lists.items())
        return enough and not ending and self._streams() == dict(open_)

    def _streams(self) -> dict[str, int]:
        found: Counter[str] = Counter()
        for plugin in self.plugins.values():
            found[plugin.resource] += plugin.streams
        return dict(+found)

    def _lists(self, resource: str) -> int:
        return self.kubelet.progress()[0].get(resource, 0)

    # Plugins

    def add(
        self,
        number: int,
        resource: str,
        devices: Sequence[pb.Device],
        options: pb.DevicePluginOptions | None = None,
    ) -> StubPlugin:
        """Start a plugin and return it; it is not registered yet."""
        name = f"{number}.sock"
        plugin = StubPlugin(self._dir, resource, devices, name=name, options=options)
        plugin.start()
        self.plugins[number] = plugin
        return plugin

    def register(self, number: int, **how: Any) -> str:
        """Have the plugin registered and return why not; nothing if it is."""
        plugin = self.plugins[number]
        lists = self._lists(plugin.resource)
        try:
            plugin.register(timeout=PATIENCE, **how)
        except grpc.RpcError as error:
            self.settle()
            return str(self.plain(cast("grpc.Call", error).details()))
        self.settle({plugin.resource: lists + 1})
        return ""

    def list_devices(self, number: int, devices: Sequence[pb.Device]) -> None:
        """Have the plugin send a list on each of its streams."""
        plugin = self.plugins[number]
        lists = self._lists(plugin.resource) + plugin.streams
        plugin.update(devices)
        self.settle({plugin.resource: lists})

    def end_streams(self, number: int) -> None:
        """Have the plugin return from ListAndWatch."""
        plugin = self.plugins[number]
        plugin.end_streams()
        plugin.wait(lambda: not plugin.streams, timeout=PATIENCE)
        self.settle()

    def change(self, number: int, way: str, ids: list[str]) -> None:
        """Have the plugin behave in one of ``WAYS`` from now on, and prefer ``ids`` if at all."""
        plugin = self.plugins[number]
        plugin.failing.clear()
        plugin.on_allocate = answering(plugin.resource)
        if way == "Allocate":
            plugin.failing[way] = StubError("busy", grpc.StatusCode.FAILED_PRECONDITION)
        elif way == "empty":
            plugin.on_allocate = lambda _ids: pb.AllocateResponse()
        elif way == "prefer":
            answer = pb.ContainerPreferredAllocationResponse(deviceIDs=ids)
            answers = pb.PreferredAllocationResponse(container_responses=[answer])
            plugin.on_prefer = lambda _request: answers
        elif way in _FAILING:
            plugin.failing[way] = StubError("no idea")

    def calls(self, number: int) -> Mapping[str, object]:
        """Return what the plugin was called with; what is a set is sorted."""
        plugin = self.plugins[number]
        preferred = [
            (sorted(r.available_deviceIDs), sorted(r.must_include_deviceIDs), r.allocation_size)
            for r in plugin.preferred
        ]
        return {
            "calls": plugin.calls,
            "allocated": plugin.allocated,
            "pre-started": plugin.pre_started,
            "preferred": preferred,
        }

    def remove(self, number: int) -> None:
        """Stop the plugin."""
        self.plugins[number].stop()
        self.settle()
        del self.plugins[number]

    def close(self) -> None:
        """Stop everything."""
        for plugin in self.plugins.values():
            plugin.stop()
        self.plugins.clear()
        self.kubelet.stop()

    # The checkpoint

    def checkpoint(self) -> Any:
        """Return what the checkpoint file says, sorted, or why it cannot be used."""
        path = self._dir / FILE_NAME
        try:
            records.read_checkpoint(self._dir)
        except records.CheckpointError as error:
            return str(error)
        data = json.loads(path.read_text(encoding="utf-8"))["Data"]
        entries = data["PodDeviceEntries"] or []
        for listed in (data["RegisteredDevices"], *(entry["DeviceIDs"] for entry in entries)):
            for ids in listed.values():
                ids.sort()
        entries.sort(key=lambda e: (e["PodUID"], e["ContainerName"], e["ResourceName"]))
        return data

    def damage(self, text: str | None) -> None:
        """Overwrite the checkpoint, or delete it."""
        path = self._dir / FILE_NAME
        if text is None:
            path.unlink(missing_ok=True)
        else:
            path.write_text(text, encoding="utf-8")


def answering(resource: str) -> Callable[[list[str]], pb.AllocateResponse]:
    """Return an ``on_allocate`` that sets a variable of the resource's own."""

    def answer(ids: list[str]) -> pb.AllocateResponse:
        container = pb.ContainerAllocateResponse(envs={resource: ",".join(ids)})
        return pb.AllocateResponse(container_responses=[container])

    return answer
