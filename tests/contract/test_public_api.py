"""What ``import deviceplugin`` promises, and what it costs."""

import subprocess
import sys
from types import ModuleType

import deviceplugin as dp


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
    assert public == set(dp.__all__)
    assert dp.__all__ == dir(dp)


def test_importing_the_package_brings_neither_grpc_nor_a_thread() -> None:
    code = (
        "import sys, threading, deviceplugin;"
        "print(sorted({'grpc', 'prometheus_client', 'google.protobuf', 'tenacity'}"
        " & set(sys.modules)), threading.active_count())"
    )
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert "[] 1" == output.strip()
