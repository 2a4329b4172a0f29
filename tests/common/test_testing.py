"""What a test is told whose plugin does not do what it waits for."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from subprocess import PIPE
from time import monotonic
from typing import NoReturn

import pytest
from typing_extensions import override

import deviceplugin as dp
from deviceplugin_testing import fixture
from deviceplugin_testing.fixture import Kubelet, Node
from held_clock import HeldClock
from patience import PATIENCE, eventually
from scripted_plugin import RESOURCE, ScriptedPlugin


def wait_for_none(node: Node) -> str:
    """Return what is said to who waits for a device that never comes."""
    with pytest.raises(TimeoutError) as raised:
        node.wait_for(RESOURCE, {"never"}, timeout=0.01)
    return str(raised.value)


def test_a_test_is_told_that_discovery_fails_and_why_and_nothing_once_all_is_well(
    kubelet: Kubelet,
) -> None:
    plugin = ScriptedPlugin()
    plugin.fail(OSError("no such bus"))
    with kubelet.running(plugin) as node:
        eventually(node.host.troubles, "the failure")
        text = wait_for_none(node)
        assert text.startswith(f"waited 0.01 s for {RESOURCE} to have healthy ['never']")
        assert (
            "; ScriptedPlugin: discovery failed: OSError: no such bus (scripted_plugin.py:" in text
        )
        plugin.set("a")
        node.wait_for(RESOURCE, {"a"})
        eventually(lambda: not node.host.troubles(), "all to be well")
        assert 1 == wait_for_none(node).count(";")


def test_a_test_that_allocates_without_a_registration_is_told_why_there_is_none(
    kubelet: Kubelet,
) -> None:
    clock = kubelet.simulated._host.changed.clock = HeldClock()
    plugin = ScriptedPlugin()
    plugin.fail(OSError("no such bus"))
    with kubelet.running(plugin) as node, ThreadPoolExecutor(1) as pool:
        eventually(node.host.troubles, "the failure")
        for ask in (node.allocate, node.pre_start, node.hang_up):
            asked = pool.submit(ask)
            clock.skip_wait()
            clock.advance(30)
            told = str(asked.exception(PATIENCE))
            assert told.startswith("waited 30 s for a plugin to be registered; ")
            assert "; ScriptedPlugin: discovery failed: OSError: no such bus" in told


def test_a_test_is_told_which_devices_are_skipped(kubelet: Kubelet) -> None:
    odd = [dp.Device(f"d{number}", nodes=[dp.DeviceNode("dev")]) for number in range(12)]
    with kubelet.running(ScriptedPlugin("a", *odd)) as node:
        node.wait_for(RESOURCE, {"a"})
        told = wait_for_none(node).split("; ")[2:]
    path = "device node path 'dev' is not absolute"
    expected = [f"ScriptedPlugin: skipped: device d{number}: {path}" for number in range(10)]
    assert [*expected, "ScriptedPlugin: skipped: 2 more"] == told


def test_a_test_is_told_that_a_list_is_refused(
    kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deviceplugin._inventory.published.MAX_LIST_BYTES", 30)
    with kubelet.running(ScriptedPlugin("a", "b", "c")) as node:
        eventually(node.host.troubles, "the refusal")
        assert f"; {RESOURCE}: the list of 3 devices for {RESOURCE} has" in wait_for_none(node)


def test_a_test_is_told_why_a_resource_is_not_registered(kubelet: Kubelet) -> None:
    class Unready(ScriptedPlugin):
        @override
        def start(self, resource: str) -> None:
            raise dp.DevicePluginError("no firmware")

    with kubelet.running(Unready("a")) as node:
        eventually(lambda: "firmware" in str(node.host.troubles()), "the failure")
        assert f"; {RESOURCE}: start() failed: no firmware" in wait_for_none(node)


def test_what_was_wrong_with_a_resource_that_has_gone_is_told_no_longer(kubelet: Kubelet) -> None:
    passing = "example.com/passing"
    plugin = ScriptedPlugin("a", dp.Device("b", resource=passing))
    grace = timedelta(milliseconds=400)
    with kubelet.running(plugin, vanished_grace=grace) as node:
        node.wait_for(passing, {"b"})
        plugin.set("a")
        node.wait_for(passing, set(), {"b"})
        plugin.fail(OSError("no such bus"))
        eventually(lambda: "no such bus" in str(node.host.troubles()), "the failure")
        # Until the next look that succeeds is the one that finds the grace over.
        over = monotonic() + grace.total_seconds()
        eventually(lambda: monotonic() > over, "the grace to be over")
        plugin.set("a")
        eventually(lambda: not node.host.troubles(), "all to be well")


def test_a_test_that_fails_because_the_plugin_has_ended_is_told_so(
    kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_self: object) -> NoReturn:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("deviceplugin._platform.file_watcher.FileWatcher.run", fail)
    with pytest.raises(TimeoutError) as raised, kubelet.running(ScriptedPlugin()) as node:
        node.wait_for(RESOURCE, {"never"}, timeout=0.01)
    assert ["the plugins had ended: ZeroDivisionError('a bug')"] == raised.value.__notes__


def test_an_error_in_the_framework_fails_a_test_and_does_not_end_pytest(tmp_path: Path) -> None:
    broken, tests = tmp_path / "broken", tmp_path / "tests"
    (broken / "deviceplugin").mkdir(parents=True)
    (broken / "deviceplugin/__init__.py").write_text("no_such_name\n")
    tests.mkdir()
    (tests / "test_it.py").write_text("def test_a(kubelet): ...\ndef test_b(): ...\n")
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rA", str(tests)]
    environment = {**os.environ, "PYTHONPATH": str(broken), "PYTEST_ADDOPTS": ""}
    done = subprocess.run(words, cwd=tests, env=environment, stdout=PIPE, text=True, check=False)
    assert "NameError: name 'no_such_name' is not defined" in done.stdout
    assert "PASSED test_it.py::test_b" in done.stdout
    assert "1 passed, 1 error" in done.stdout


def test_names_of_the_fixture_are_imported_when_they_are_asked_for() -> None:
    code = "import deviceplugin_testing.fixture as f, sys; print('deviceplugin' in sys.modules)"
    words = [sys.executable, "-c", f"{code}; print(f.Kubelet.__name__)"]
    assert "False\nKubelet\n" == subprocess.run(words, check=True, stdout=PIPE, text=True).stdout
    with pytest.raises(AttributeError, match="no attribute 'kublet'"):
        fixture.kublet  # noqa: B018
