"""What goes wrong with one plugin of an agent does not reach the others."""

import itertools
import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import deviceplugin as dp
from agents import faulty
from deviceplugin.tools.agent import _cli
from deviceplugin.tools.agent._cli import Maker
from deviceplugin.tools.agent._sections import Refused, settings_of
from deviceplugin_testing.fixture import Kubelet
from deviceplugin_testing.simulator import Container, Pod
from plugin_process import run, started

AGENT = str(Path(sys.executable).with_name("device-plugins"))
GOPHER = "example.com/gopher"
ALL = sorted({*faulty.KINDS} - {"stuck"})


@pytest.fixture
def package(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "package").mkdir()
    return {**faulty.install(tmp_path / "package"), "LATE": str(tmp_path / "driver")}


@pytest.mark.slow
def test_plugins_that_fail_in_any_way_keep_no_other_from_working(
    kubelet: Kubelet, package: dict[str, str], write: Callable[..., Path], tmp_path: Path
) -> None:
    node = kubelet.simulated
    others: dict[str, Any] = {name: {} for name in ALL}
    config = write(**others, simulated={"number-devices": 1})
    with started(node.plugin_dir, f"--config={config}", command=AGENT, **package) as agent:
        node.wait_for(GOPHER, {"alice"})
        (tmp_path / "gophers/bob").touch()  # it is still looked for
        node.wait_for(GOPHER, {"alice", "bob"})
        pod = Pod("p", [Container("c", {GOPHER: 1})])
        assert node.run(pod)
        write(**others, simulated={"number-devices": 2})  # others still get their settings
        node.wait_for("example.com/simple-device", {f"simple-device-{HOST}-{n}" for n in (0, 1)})
        node.restart()
        node.wait_for(GOPHER, {"alice", "bob"})
        assert 0 == agent.stop()


HOST = os.uname().nodename


def test_hooks_that_hang_hold_up_only_what_they_are_called_for(
    kubelet: Kubelet, package: dict[str, str], write: Callable[..., Path]
) -> None:
    node, command = kubelet.simulated, f"{AGENT} gopher wild"
    with started(node.plugin_dir, f"--config={write()}", command=command, **package):
        node.wait_for(GOPHER, {"alice"})
        hanging = threading.Thread(
            target=lambda: node.admit(Pod("h", [Container("c", {"faulty.example.com/wild": 1})]))
        )
        hanging.start()
        assert node.run(Pod("p", [Container("c", {GOPHER: 1})]))


def test_a_section_that_comes_or_goes_waits_for_a_restart(
    kubelet: Kubelet, package: dict[str, str], write: Callable[..., Path]
) -> None:
    node = kubelet.simulated
    config = write(simulated={"number-devices": 1})
    simple = {f"simple-device-{HOST}-0"}
    with started(node.plugin_dir, f"--config={config}", command=AGENT, **package) as agent:
        node.wait_for("example.com/simple-device", simple)
        config.write_text(json.dumps({"gopher": {"directory": "/etc"}, "fpga": {}}))
        told = agent.wait_for("restart required to apply settings")
        assert "fpga" == told["settings"]
        told = agent.wait_for("invalid section ignored")
        assert (
            "simulated",
            "its section is gone: the plugin continues until the process restarts",
        ) == (told["plugin"], told["error"])
        agent.wait_for("configuration reloaded")
        node.wait_for("example.com/simple-device", simple)


# Making plugins.


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def made_by(make: Callable[[Any], Any]) -> tuple[Maker, Clock, Any, list[str]]:
    """Return what makes a plugin, its clock, settings, and how often it has asked for a reload."""
    clock, asked = Clock(), list[str]()
    maker = Maker("lamp", make, clock=clock, patience=0.1)
    maker.ask_for_reload = lambda: asked.append("asked")
    return maker, clock, settings_of({"lamp": dp.Settings})(), asked


def test_a_constructor_that_fails_is_called_again_ever_more_rarely() -> None:
    attempts: list[float] = []

    def make(_settings: dp.Settings) -> Any:
        attempts.append(clock.now)
        if len(attempts) < 8:
            raise OSError("the driver is not loaded yet")
        return faulty.Raises(_settings)

    maker, clock, settings, asked = made_by(make)
    plugin = maker(settings)
    for _ in range(10_000):
        if not isinstance(plugin, _cli.Unusable):
            break
        with pytest.raises(dp.DiscoveryError, match="not loaded yet"):
            list(plugin.discover())
        if asked:
            asked.clear()
            plugin = maker(settings)
        clock.now += 1
    assert isinstance(plugin, faulty.Raises)
    waits = [later - before for before, later in itertools.pairwise(attempts)]
    assert 7 == len(waits)
    assert 14 <= waits[0] <= 31
    assert waits[-1] <= 301
    assert waits[0] < waits[-1]


def test_a_wrong_section_alone_asks_for_nothing() -> None:
    maker, clock, settings, asked = made_by(lambda _settings: 1 / 0)
    object.__setattr__(settings, "lamp", Refused("wrong"))
    plugin = maker(settings)
    clock.now += 10_000
    with pytest.raises(dp.DiscoveryError, match="wrong"):
        list(plugin.discover())
    assert [] == asked


def test_a_constructor_that_hangs_holds_nobody_up() -> None:
    maker, clock, settings, _ = made_by(faulty.Stuck)
    plugin = maker(settings)
    with pytest.raises(dp.DiscoveryError, match=r"make\(\) did not return within 0.1 s"):
        list(plugin.discover())
    for _ in range(5):
        clock.now += 1000
        plugin = maker(settings)
    with pytest.raises(dp.DiscoveryError, match="4 earlier calls hang"):
        list(plugin.discover())


def test_an_import_that_hangs_keeps_only_its_plugin_from_running(
    package: dict[str, str], write: Callable[..., Path]
) -> None:
    code = (
        "from deviceplugin.tools.agent import _cli; _cli._PATIENCE = 0.5; "
        f"_cli.main(['--config={write(frozen={})}', '--once'])"
    )
    done = run("-c", code, command=sys.executable, **package)
    assert 1 == done[0]
    assert "alice" in done[1]
    assert "frozen: discovery failed: import() did not return within 0.5 s" in done[2]
