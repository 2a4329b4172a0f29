"""What ``import deviceplugin`` promises, and what it costs."""

import subprocess
import sys
from types import ModuleType

import pytest

import deviceplugin as dp
from deviceplugin.model._part import Counters, Part


def test_there_are_at_most_nineteen_public_names_and_each_is_documented() -> None:
    assert len(dp.__all__) <= 19
    assert [] == [name for name in dp.__all__ if not getattr(dp, name).__doc__]


def test_public_names_are_sorted_and_nothing_else_is_public() -> None:
    public = {
        name
        for name, value in vars(dp).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert sorted(dp.__all__) == dp.__all__
    assert public == set(dp.__all__) - {"Counters", "Part"}, "these are loaded late"
    assert dp.__all__ == dir(dp)


def test_names_that_are_loaded_late_are_as_any_other() -> None:
    for module in (dp, dp.model):
        assert (Part, Counters) == (module.Part, module.Counters)
        with pytest.raises(AttributeError, match=f"module '{module.__name__}' has no .* 'Parts'"):
            _ = module.Parts


def test_importing_the_package_brings_neither_grpc_nor_a_thread() -> None:
    code = (
        "import sys, threading, deviceplugin;"
        "late = {'grpc', 'prometheus_client', 'google.protobuf', 'tenacity'};"
        "late.add('deviceplugin.model._part');"
        "print(sorted(late & set(sys.modules)), threading.active_count())"
    )
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert "[] 1" == output.strip()
