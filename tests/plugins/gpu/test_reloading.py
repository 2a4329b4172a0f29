"""Noticing a changed configuration file."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from deviceplugin_gpu.command_line import Command
from deviceplugin_gpu.configuration.reloading import Reloading
from gpu.rig import GpuRig
from patience import PATIENCE


def test_each_change_is_noticed_once(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("a")
    calls: list[int] = []
    file = Reloading(path, lambda: calls.append(1))
    file.check()
    assert [] == calls
    path.write_text("another")
    file.check()
    file.check()
    assert [1] == calls


def test_a_file_that_is_away_for_now_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("a")
    calls: list[int] = []
    file = Reloading(path, lambda: calls.append(1))
    path.unlink()
    file.check()
    assert [] == calls
    path.write_text("back")
    file.check()
    assert [1] == calls


def test_a_change_while_the_plugin_is_made_is_not_missed(
    rig: GpuRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = rig.path / "config.yaml"
    path.write_text("a")
    signals: list[int] = []
    monkeypatch.setattr(os, "kill", lambda _process, number: signals.append(number))
    command = Command(path)
    path.write_text("changed after it was read")
    plugin = command.make(rig.settings())
    plugin.discover()
    command.make(rig.settings()).discover()
    plugin._driver.close()
    assert [signal.SIGHUP] == signals


def test_the_package_can_be_run_as_a_module() -> None:
    command = [sys.executable, "-m", "deviceplugin_gpu", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE)
    assert done.stdout.startswith("deviceplugin_gpu 0.1.0")
