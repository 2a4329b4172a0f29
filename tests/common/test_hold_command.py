"""The commands ``deviceplugin hold`` and ``deviceplugin release``."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from typing_extensions import override

import deviceplugin as dp
from deviceplugin.__main__ import main
from deviceplugin._app.hold_folder import FOLDER
from deviceplugin._app.hold_socket import HoldSocket
from deviceplugin._attribution.holds import HoldError
from deviceplugin._platform.clock import Clock
from deviceplugin.tools.hold import _cli
from deviceplugin_testing.fixture import Kubelet
from patience import eventually
from scripted_plugin import RESOURCE, ScriptedPlugin

Run = Callable[..., tuple[int, str, str]]
OTHER = "example.com/other"


@pytest.fixture
def run(kubelet: Kubelet, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs a command: exit status, output without times, errors."""

    def call(command: str, *words: str) -> tuple[int, str, str]:
        places = [f"--plugin-dir={kubelet.simulated.plugin_dir}"]
        places += [f"--registry-dir={kubelet.simulated.registry_dir}"]
        status = main([command, *places, *words])
        found = capsys.readouterr()
        out = re.sub(r"[0-9]:[0-9:]+", "0:00:00", found.out)
        return status, re.sub(" {2,}", "  ", out), found.err

    return call


def test_a_device_is_held_and_released(kubelet: Kubelet, run: Run) -> None:
    header = "DEVICE  FOR  STATE  USED BY  REASON\n"
    with kubelet.running(ScriptedPlugin("a", "b")) as node:
        node.wait_for(RESOURCE, {"a", "b"})
        eventually(lambda: not node.host.ready())
        assert (0, "nothing is held\n", "") == run("hold")
        row = f"{header}a  0:00:00  not held  -  its fan\n"
        assert (0, row, "") == run("hold", "a", "--reason=its fan", "--dry-run", "--wait")
        status, out, _ = run("hold", "a", "--reason=its fan", "--wait")
        assert (0, "a is let go") == (status, out.splitlines()[-1])
        assert (0, f"{header}a  0:00:00  let go  -  its fan\n", "") == run("hold")
        (held,) = json.loads(run("hold", "--output=json")[1])["holds"]
        assert ("a", "let go") == (held["device"], held["state"])
        assert 0 == run("release", "a")[0]
        node.wait_for(RESOURCE, {"a", "b"})


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["hold", "--reason=x"], 2, "name the DEVICE that is to be held"),
        (["hold", "--repair"], 2, "name the DEVICE that is to be held"),
        (["hold", "a"], 2, "--reason is missing: say what the hold is for"),
        (["hold", "z", "--reason=x"], 1, "no device here is called 'z'"),
        (["release", "a"], 1, "'a' is not held: nothing is"),
        (["release"], 2, "the following arguments are required: DEVICE"),
    ],
)
def test_what_is_wrong_is_said(
    kubelet: Kubelet, run: Run, words: list[str], status: int, said: str
) -> None:
    with kubelet.running(ScriptedPlugin("a")) as node:
        node.wait_for(RESOURCE, {"a"})
        found = run(*words)
        assert (status, True) == (found[0], said in found[2]), found[2]


def test_of_two_plugins_the_one_that_has_the_device_is_asked(kubelet: Kubelet, run: Run) -> None:
    other = ScriptedPlugin("a", "c", resource=OTHER)
    with (
        kubelet.running(ScriptedPlugin("a", "b"), instance="one") as node,
        kubelet.running(other, instance="two") as second,
    ):
        node.wait_for(RESOURCE, {"a", "b"})
        second.wait_for(OTHER, {"a", "c"})
        status, _, said = run("hold", "a", "--reason=x")
        assert (2, "deviceplugin hold: one, two have 'a': give --resource\n") == (status, said)
        assert 0 == run("hold", "a", "--reason=x", f"--resource={OTHER}")[0]
        second.wait_for(OTHER, {"c"}, {"a"})
        node.wait_for(RESOURCE, {"a", "b"})
        assert 0 == run("hold", "b", "--reason=x")[0]
        assert 4 == len(run("hold")[1].splitlines()) + 1
        path = kubelet.simulated.plugin_dir / FOLDER / "one" / ".socket"
        path.unlink()
        path.touch()
        status, _, said = run("release", "a")
        assert (0, True) == (status, f"{path.parent} does not answer: " in said)


def test_without_a_plugin_it_says_where_one_was_looked_for(kubelet: Kubelet, run: Run) -> None:
    where = kubelet.simulated.plugin_dir / FOLDER
    expected = (
        f"deviceplugin hold: no plugin has a socket in {where}, as far as this user can see\n"
    )
    assert (1, "", expected) == run("hold")
    folder: Path = where / "one"
    folder.mkdir(parents=True)
    (folder / ".socket").touch()
    assert "Connection refused" in run("hold")[2]


def test_a_wait_ends_at_its_timeout_and_the_device_stays_held(
    kubelet: Kubelet, capsys: pytest.CaptureFixture[str]
) -> None:
    plugin = ScriptedPlugin("a")
    with kubelet.running(plugin) as node:
        node.wait_for(RESOURCE, {"a"})
        node.allocate("a")
        words = ["a", "--reason=x", "--wait", "--timeout=1ms"]
        words += [f"--plugin-dir={kubelet.simulated.plugin_dir}"]
        assert 1 == _cli.hold(words)
        assert "not let go within 0.001 s; it stays held" in capsys.readouterr().err
        assert [True] == [one["device"] == "a" for one in node.host.inventory()["holds"]]


def test_a_wait_ends_if_somebody_else_releases_the_device(
    kubelet: Kubelet, capsys: pytest.CaptureFixture[str]
) -> None:
    class Pauses(Clock):
        """A clock by which the device is released in the third pause."""

        passed = 0.0

        @override
        def now(self) -> float:
            return self.passed

        @override
        def wait(self, event: Event, until: float) -> None:
            self.passed = until
            if until == 3:
                node.host.ask_hold({"do": "release", "device": "a"})
            else:
                eventually(lambda: node.host.inventory()["holds"][1]["state"].endswith("users"))

    with kubelet.running(ScriptedPlugin("a", "z")) as node:
        node.wait_for(RESOURCE, {"a", "z"})
        node.host.ask_hold({"do": "hold", "device": "z", "reason": "x"})
        node.allocate("a")
        words = ["a", "--reason=x", "--wait", f"--plugin-dir={kubelet.simulated.plugin_dir}"]
        assert 1 == _cli.hold(words, Pauses())
        assert "a is not held any more" in capsys.readouterr().err


def test_a_release_that_the_plugin_refuses_fails(kubelet: Kubelet, run: Run) -> None:
    class Hot(ScriptedPlugin):
        @override
        def take_back(self, devices: Sequence[dp.Device]) -> None:
            raise dp.DiscoveryError("it is hot")

    with kubelet.running(Hot("a")) as node:
        node.wait_for(RESOURCE, {"a"})
        assert 0 == run("hold", "a", "--reason=x")[0]
        said = "deviceplugin release: a stays held: it is not ready: it is hot\n"
        assert (1, "", said) == run("release", "a")


class Mended(ScriptedPlugin):
    """A plugin whose reset makes everything healthy, or fails for ever."""

    objection = ""

    @override
    def reset(self, devices: Sequence[dp.Device]) -> None:
        if self.objection:
            raise dp.DiscoveryError(self.objection)
        self.set("a")


@pytest.mark.parametrize(
    ("option", "objection", "expected"),
    [
        ("--reset", "", (0, "a is reset", "reset")),
        ("--repair", "", (0, "a is released", None)),
        ("--repair", "it is stuck", (1, None, "not repaired: it is stuck")),
    ],
)
def test_a_device_is_reset_by_a_command(
    kubelet: Kubelet, run: Run, option: str, objection: str, expected: tuple[int, str, str]
) -> None:
    plugin = Mended(dp.Device("a", health=dp.Health.unhealthy("no light")))
    plugin.objection = objection
    with kubelet.running(plugin, repair_tries=1) as node:
        node.wait_for(RESOURCE, set(), {"a"})
        eventually(lambda: not node.host.ready())
        status, out, said = run("hold", "a", "--reason=ticket 12", option, "--wait")
        last = out.splitlines()[-1]
        state = next((one["state"] for one in node.host.inventory()["holds"]), None)
        assert expected == (status, None if status else last, state)
        assert (not objection) or f"deviceplugin hold: not repaired: {objection}" in said


def test_a_wait_outlasts_a_plugin_that_starts_again(kubelet: Kubelet, run: Run) -> None:
    folder: Path = kubelet.simulated.plugin_dir / FOLDER / "one"
    folder.mkdir(parents=True)
    asked: list[object] = []

    def answer(request: Mapping[str, Any]) -> Mapping[str, Any]:
        asked.append(request["do"])
        if request["do"] == "list" and asked.count("list") == 1:
            raise HoldError("it is starting")
        return {"holds": []}

    served = HoldSocket(answer)
    served.open(folder)
    status, out, said = run("hold", "a", "--reason=x", "--repair", "--wait")
    assert (0, "a is released") == (status, out.splitlines()[-1])
    assert "deviceplugin hold: it is starting\n" == said
    served.close()
