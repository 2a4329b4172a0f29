"""What an observer hears of plugins, beside what the kubelet makes of it."""

from collections.abc import Callable, Sequence
from pathlib import Path

import grpc
import pytest
from typing_extensions import override

from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from deviceplugin_testing.simulator import Observer, StubPlugin
from kubelets.equipped import Kubelet, R


class Ears(Observer):
    """Writes down all that it hears."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.answers: list[str] = []
        self.lists: list[tuple[str, list[str]]] = []

    @override
    def registering(self, request: pb.RegisterRequest, path: str) -> Callable[[str], None]:
        self.calls.append((request.resource_name, path))
        return self.answers.append

    @override
    def listed(self, resource: str, devices: Sequence[pb.Device]) -> None:
        self.lists.append((resource, [device.ID for device in devices]))


def test_each_registration_is_heard_with_its_answer(root: Path) -> None:
    ears = Ears()
    with Kubelet(root, observer=ears) as kubelet:
        plugin = StubPlugin(kubelet.plugin_dir, R, ["a"])
        with plugin, pytest.raises(grpc.RpcError):
            plugin.register(version="v0")
        assert [(R, str(plugin.socket))] * 2 == ears.calls
        assert "" == ears.answers[0]
        assert 'requested API version "v0" is not supported' in ears.answers[1]


def test_lists_are_heard_as_they_came_over_all_starts(root: Path) -> None:
    ears = Ears()
    with Kubelet(root, observer=ears) as kubelet:
        for ids in (["b", "a", "b"], []):
            with StubPlugin(kubelet.plugin_dir, R, [pb.Device(ID=id_) for id_ in ids]):
                kubelet.wait(lambda: ears.lists[-1:] == [(R, ids)])  # noqa: B023
            kubelet.restart()
    assert [(R, ["b", "a", "b"]), (R, [])] == ears.lists
