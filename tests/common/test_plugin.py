from collections.abc import Iterable
from threading import Event

import pytest
from typing_extensions import override

from deviceplugin import Device, Plugin
from deviceplugin.plugin import Capabilities, overrides

HOOKS = [*Capabilities._fields, "start", "stop"]


class Plain(Plugin):
    @override
    def discover(self) -> Iterable[Device]:
        return ()


def test_a_plugin_must_say_which_devices_are_here() -> None:
    with pytest.raises(TypeError, match="discover"):
        Plugin()  # type: ignore[abstract]


def test_overriding_a_hook_here_or_in_a_parent_offers_it() -> None:
    assert [] == [hook for hook in HOOKS if overrides(Plain(), hook)]
    assert not any(Capabilities.of(Plain()))
    for hook in Capabilities.of(Plain())._asdict():
        kind = type("Capable", (Plain,), {hook: lambda *_: None})
        for plugin in (kind(), type("Derived", (kind,), {})()):
            assert [hook] == [name for name in HOOKS if overrides(plugin, name)]
            capabilities = Capabilities.of(plugin)._asdict()
            assert [hook] == [name for name, is_there in capabilities.items() if is_there]


def test_optional_hooks_are_there_only_where_they_are_written() -> None:
    plugin = Plain()
    with pytest.raises(NotImplementedError):
        plugin.prefer([], [], 1)
    with pytest.raises(NotImplementedError):
        plugin.pre_start([])
    with pytest.raises(NotImplementedError):
        plugin.changes(Event())
