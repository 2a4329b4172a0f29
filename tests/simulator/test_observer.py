"""What an observer hears of plugins, beside what the kubelet makes of it."""

from collections.abc import Callable, Sequence
from pathlib import Path

from typing_extensions import override

from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from deviceplugin_testing.simulator import Observer, Pod, RunOptions
from kubelets.equipped import Kubelet, R, refusal


class Ears(Observer):
    """Writes down all that it hears."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.answers: list[str] = []
        self.lists: list[tuple[str, list[str]]] = []
        self.starts: list[tuple[str, str, bool]] = []

    @override
    def registering(self, request: pb.RegisterRequest, path: str) -> Callable[[str], None]:
        self.calls.append((request.resource_name, path))
        return self.answers.append

    @override
    def listed(self, resource: str, devices: Sequence[pb.Device]) -> None:
        self.lists.append((resource, [device.ID for device in devices]))

    @override
    def started(self, pod: Pod, container: str, options: RunOptions | None) -> None:
        self.starts.append((pod.name, container, options is not None))


def test_an_observer_hears_registrations_lists_and_starts(root: Path) -> None:
    ears = Ears()
    with Kubelet(root, observer=ears) as kubelet:
        plugin = kubelet.plugin(devices=[pb.Device(ID=id_, health="Healthy") for id_ in "bab"])
        why = refusal(plugin, version="v0")
        kubelet.started("p", main={R: 1}, other={})
        kubelet.restart()
        kubelet.plugin(devices=[])
    assert [(R, str(plugin.socket))] * 3 == ears.calls
    assert ["", why, ""] == ears.answers
    assert [(R, ["b", "a", "b"]), (R, [])] == ears.lists  # as they came
    assert [("p", "main", True), ("p", "other", False)] == ears.starts
