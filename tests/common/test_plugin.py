from collections.abc import Iterable
from threading import Event

import pytest
from typing_extensions import override

from deviceplugin import Device, Plugin
from deviceplugin._inventory.allocating import has_own_allocate
from deviceplugin.plugin import overrides

HOOKS = ["allocate", "allocate_with", "changes", "make_part", "metrics", "pre_start", "prefer"]
HOOKS += ["released", "start", "stop", "usage"]


class Plain(Plugin):
    @override
    def discover(self) -> Iterable[Device]:
        return ()


def test_a_plugin_must_say_which_devices_are_here() -> None:
    with pytest.raises(TypeError, match="discover"):
        Plugin()  # type: ignore[abstract]


def test_overriding_a_hook_here_or_in_a_parent_offers_it() -> None:
    assert [] == [hook for hook in HOOKS if overrides(Plain(), hook)]
    for hook in HOOKS:
        kind = type("Capable", (Plain,), {hook: lambda *_: None})
        for plugin in (kind(), type("Derived", (kind,), {})()):
            assert [hook] == [name for name in HOOKS if overrides(plugin, name)]
            assert hook.startswith("allocate") == has_own_allocate(plugin)


def test_optional_hooks_are_there_only_where_they_are_written() -> None:
    plugin = Plain()
    with pytest.raises(NotImplementedError):
        plugin.prefer([], [], 1)
    with pytest.raises(NotImplementedError):
        plugin.pre_start([])
    with pytest.raises(NotImplementedError):
        plugin.changes(Event())
