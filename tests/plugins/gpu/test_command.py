"""The package as a command, and the objects that it makes."""

import subprocess
import sys

from deviceplugin_gpu.command_line import Command
from gpu.rig import GpuRig
from patience import PATIENCE


def test_a_plugin_that_is_made_anew_has_the_driver_of_the_one_before(rig: GpuRig) -> None:
    command = Command()
    before, after = (command.make(rig.settings()) for _ in range(2))
    assert before._driver is after._driver
    after._driver.close()


def test_the_package_can_be_run_as_a_module() -> None:
    command = [sys.executable, "-m", "deviceplugin_gpu", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE)
    assert done.stdout.startswith("deviceplugin_gpu 0.1.0")
