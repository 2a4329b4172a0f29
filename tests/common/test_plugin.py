from collections.abc import Iterable, Sequence
from threading import Event

import pytest
from typing_extensions import override

from deviceplugin import Allocation, Device, DeviceNode, Plugin
from deviceplugin.plugin import Capabilities, overrides

HOOKS = ["allocate", "prefer", "pre_start", "changes", "start", "stop"]


class Plain(Plugin):
    @override
    def discover(self) -> Iterable[Device]:
        return ()


class Preparing(Plain):
    @override
    def pre_start(self, devices: Sequence[Device]) -> None:
        pass


class Derived(Preparing):
    pass


def test_a_plugin_must_say_which_devices_are_here() -> None:
    with pytest.raises(TypeError, match="discover"):
        Plugin()  # type: ignore[abstract]


@pytest.mark.parametrize("plugin", [Preparing(), Derived()])
def test_overriding_a_hook_here_or_in_a_parent_offers_it(plugin: Plugin) -> None:
    assert ["pre_start"] == [hook for hook in HOOKS if overrides(plugin, hook)]
    capabilities = Capabilities.of(plugin)._asdict()
    assert ["pre_start"] == [hook for hook, is_there in capabilities.items() if is_there]


def test_each_capability_is_that_of_the_hook_of_its_name() -> None:
    assert [] == [hook for hook in HOOKS if overrides(Plain(), hook)]
    assert not any(Capabilities.of(Plain()))
    for hook in Capabilities.of(Plain())._asdict():
        kind = type("Capable", (Plain,), {hook: lambda *_: None})
        capabilities = Capabilities.of(kind())._asdict()
        assert [hook] == [name for name, is_there in capabilities.items() if is_there]


def test_by_default_a_container_gets_the_recipes_of_its_devices() -> None:
    shared = DeviceNode("/dev/shared")
    one = Device("1", nodes=[DeviceNode("/dev/1"), shared])
    two = Device("2", nodes=[DeviceNode("/dev/2"), shared])
    nodes = (DeviceNode("/dev/1"), shared, DeviceNode("/dev/2"))
    assert Allocation(nodes=nodes) == Plain().allocate([one, two])
    assert Allocation() == Plain().allocate([])


def test_optional_hooks_are_there_only_where_they_are_written() -> None:
    plugin = Plain()
    with pytest.raises(NotImplementedError):
        plugin.prefer([], [], 1)
    with pytest.raises(NotImplementedError):
        plugin.pre_start([])
    with pytest.raises(NotImplementedError):
        plugin.changes(Event())
