"""Repairing what is held: a reset when nobody has it, a check by discovery, and its release."""

import re
import shutil
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

import deviceplugin as dp
from deviceplugin._app import auto_repair, holding, repairs
from deviceplugin._app.hold_folder import FOLDER
from deviceplugin._app.hold_requests import Requests
from deviceplugin._attribution.holds import HoldError
from deviceplugin._config.loading import load
from deviceplugin._config.settings import Settings
from deviceplugin_testing.fixture import Kubelet, Node
from deviceplugin_testing.simulator import Pod
from holding import ask, reasons, running, states
from patience import eventually
from scripted_plugin import RESOURCE, ScriptedPlugin

NOT = "not repaired: "
AGAIN = "not repaired, tried again in 3600 s: "


class Lamp(ScriptedPlugin):
    """A plugin whose reset makes its devices healthy, or does what ``then`` says."""

    reset_timeout = 30.0

    def __init__(self, *devices: dp.Device | str) -> None:
        super().__init__(*devices)
        self.asked: list[str] = []
        self.then: Sequence[dp.Device] | Exception | threading.Event | None = None
        self.reaches: Sequence[str] = ()
        self.point: Callable[[str], object] = str
        """Is called at each step."""

    @override
    def let_go(self, devices: Sequence[dp.Device]) -> None:
        self._note("let go")

    @override
    def take_back(self, devices: Sequence[dp.Device]) -> None:
        self._note("take back")

    @override
    def reset_reaches(self, devices: Sequence[dp.Device]) -> Iterable[str]:
        return self.reaches

    @override
    def reset(self, devices: Sequence[dp.Device]) -> None:
        self._note("reset")
        match self.then:
            case Exception():
                raise self.then
            case threading.Event():
                self.then.wait()
            case None:
                self.set(*(replace(one, health=dp.Health()) for one in self.discover()))
            case _:
                self.set(*self.then)

    def _note(self, what: str) -> None:
        self.asked.append(what)
        self.point(what)


def broken(name: str, *hardware: str, cause: str = "burnt") -> dp.Device:
    return dp.Device(name, hardware=hardware, health=dp.Health.unhealthy("no light", cause))


def await_state(node: Node, device: str, state: str) -> None:
    eventually(lambda: states(node).get(device, "") == state, lambda: str(states(node)))


@pytest.fixture(autouse=True)
def _rests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the first rest last longer than any test; those that wait for it change that."""
    monkeypatch.setattr(repairs, "FIRST_REST", 3600.0)
    monkeypatch.setattr(holding, "_AGAIN", 0.05)


def test_a_device_is_reset_and_checked_before_it_is_released(kubelet: Kubelet) -> None:
    plugin = Lamp(broken("a"), "b")
    with running(kubelet, plugin) as node:
        node.wait_for(RESOURCE, {"b"}, {"a"})
        ask(node, "hold", "a", then="release")
        node.wait_for(RESOURCE, {"a", "b"})
        assert ["let go", "reset", "take back"] == plugin.asked
        assert ({}, []) == (states(node), list(plugin.held))


def test_a_reset_begins_once_the_node_has_a_thread_for_it(
    kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = threading.Event()

    class Rare(threading.Thread):
        @override
        def start(self) -> None:
            if not refused.is_set():
                refused.set()
                raise RuntimeError("can't start new thread")
            super().start()

    monkeypatch.setattr(repairs, "Thread", Rare)
    plugin = Lamp(broken("a"))
    with running(kubelet, plugin) as node:
        ask(node, "hold", "a", then="release")
        node.wait_for(RESOURCE, {"a"})
        assert refused.is_set()


def test_a_device_that_is_only_to_be_reset_stays_held(kubelet: Kubelet) -> None:
    plugin = Lamp(broken("a"))
    with running(kubelet, plugin) as node:
        ask(node, "hold", "a", then="reset")
        await_state(node, "a", "reset")
        assert ask(node, "hold", "a", then="reset")["was_held"]  # by a tool that was killed
        ask(node, "release", "a")
        node.wait_for(RESOURCE, {"a"})
        assert ["let go", "reset", "take back"] == plugin.asked


@pytest.mark.slow
def test_a_device_is_not_reset_while_a_pod_has_it(kubelet: Kubelet) -> None:
    plugin = Lamp("a")
    with running(kubelet, plugin, http_address="127.0.0.1:0") as node:
        node.wait_for(RESOURCE, {"a"})
        pod = Pod.of("user", main={RESOURCE: 1})
        node.kubelet.run(pod)
        ask(node, "hold", "a", then="release")
        await_state(node, "a", "waiting for its users")
        assert [] == plugin.asked
        node.kubelet.delete(pod)
        eventually(lambda: not states(node))
        assert ["let go", "reset", "take back"] == plugin.asked


@pytest.mark.parametrize(
    ("then", "why"),
    [
        (dp.DiscoveryError("it is stuck"), "it is stuck"),
        (RuntimeError("oops"), "RuntimeError: oops"),
    ],
)
def test_a_reset_that_fails_is_repeated_a_few_times_and_the_device_stays_held(
    kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch, then: Exception, why: str
) -> None:
    monkeypatch.setattr(repairs, "FIRST_REST", 0.001)
    plugin = Lamp(broken("a"))
    plugin.then = then
    with running(kubelet, plugin, repair_tries=3) as node:
        ask(node, "hold", "a", then="release")
        eventually(lambda: states(node)["a"].startswith(f"{NOT}{why}"), lambda: str(states(node)))
        assert ["let go", *3 * ["reset"]] == plugin.asked
    again = Lamp(broken("a"))
    with running(kubelet, again, repair_tries=3) as node:  # a restart gives it no more tries
        await_state(node, "a", f"{NOT}3 resets were begun")
        ask(node, "hold", "a", then="release")  # who asks for it once more does
        node.wait_for(RESOURCE, {"a"})
        assert ["let go", "reset", "take back"] == again.asked


def test_a_device_is_not_released_while_its_reset_hangs(kubelet: Kubelet) -> None:
    plugin = Lamp(broken("a"))
    plugin.then = event = threading.Event()
    plugin.reset_timeout = 0.05
    with running(kubelet, plugin) as node:
        ask(node, "hold", "a", then="release")
        await_state(node, "a", f"{AGAIN}reset() did not return within 0.05 s")
        with pytest.raises(HoldError, match="a stays held: a reset that concerns it runs"):
            ask(node, "release", "a")
        event.set()
        eventually(lambda: not node.host._holding.kept)
        ask(node, "release", "a")
        assert {} == states(node)


@pytest.mark.parametrize(
    ("found", "why"),
    [
        ([], "a was not found by the hardware that it had"),
        ([dp.Device("a", hardware=["serial-9"])], "a was not found by the hardware that it had"),
        ([dp.Device("z", hardware=["pci/1", "uuid-1"])], "a was not found by the hardware that"),
        ([dp.Device("a", hardware=["pci/1", "uuid-2"])], "a came back as other hardware"),
        ([broken("a", "pci/1", "uuid-1")], "a is unhealthy: no light"),
    ],
)
def test_what_is_not_the_same_and_healthy_after_a_reset_stays_held(
    kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch, found: list[dp.Device], why: str
) -> None:
    monkeypatch.setattr(repairs, "CHECK_TIMEOUT", 1.2)
    plugin = Lamp(broken("a", "pci/1", "uuid-1"))
    plugin.then = found
    with running(kubelet, plugin) as node:
        ask(node, "hold", "a", then="release")
        eventually(lambda: f"it is not ready: {why}" in states(node)["a"])
        ask(node, "release", "a")  # a person may know better
        assert {} == states(node)


def test_a_discovery_that_fails_releases_nothing(
    kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repairs, "CHECK_TIMEOUT", 0.6)
    plugin = Lamp("a")
    plugin.point = lambda what: plugin.fail(dp.DiscoveryError("gone")) if what == "reset" else None
    plugin.then = threading.Event()
    plugin.then.set()
    with running(kubelet, plugin) as node:
        ask(node, "hold", "a", then="release")
        eventually(lambda: "it is not ready: gone" in states(node)["a"])


def test_a_reset_waits_until_all_that_it_reaches_is_held_and_let_go(
    kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repairs, "FIRST_REST", 0.001)
    plugin = Lamp(broken("a", "pci/0"), dp.Device("b", hardware=["pci/1"]), "c")
    plugin.reaches = ["pci/0", "pci/1", "pci/2"]
    plugin.then = event = threading.Event()
    with running(kubelet, plugin) as node:
        node.wait_for(RESOURCE, {"b", "c"}, {"a"})
        ask(node, "hold", "a", then="reset")
        wanted = f"its reset reaches b of {RESOURCE}: hold that until it is let go"
        eventually(lambda: wanted in states(node)["a"])
        assert "reset" not in plugin.asked
        ask(node, "hold", "b")
        await_state(node, "a", "resetting")
        with pytest.raises(HoldError, match="b stays held: a reset that concerns it runs"):
            ask(node, "release", "b")
        for then in ("", "release"):
            with pytest.raises(HoldError, match="a stays held: a reset that concerns it runs"):
                ask(node, "hold", "a", then=then)
        ask(node, "hold", "a", then="reset")  # the same once more
        assert "resetting" == states(node)["a"]
        event.set()
        await_state(node, "a", "reset")
        ask(node, "release", "b")


def test_what_is_being_released_does_not_count_as_held(
    kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repairs, "FIRST_REST", 0.001)
    plugin, event = Lamp("a", dp.Device("b", hardware=["pci/1"])), threading.Event()
    plugin.reaches = ["pci/1"]
    plugin.point = lambda what: what == "take back" and event.wait()
    with running(kubelet, plugin) as node:
        ask(node, "hold", "b")
        await_state(node, "b", "let go")
        release = threading.Thread(target=ask, args=(node, "release", "b"))
        release.start()
        await_state(node, "b", "being released")
        ask(node, "hold", "a", then="reset")
        eventually(lambda: "hold that until it is let go" in states(node)["a"])
        event.set()
        release.join()
        assert {"a"} == states(node).keys()
        assert "reset" not in plugin.asked


def test_what_was_due_a_moment_ago_is_looked_at_again(kubelet: Kubelet) -> None:
    plugin = Lamp("a")
    user = Pod.of("user", main={RESOURCE: 1})

    def fail(_: str) -> None:
        raise dp.DiscoveryError("it is open")

    plugin.point = fail
    with running(kubelet, plugin) as node:
        node.wait_for(RESOURCE, {"a"})
        due = repairs.Repairs(node.host._holding, Requests(node.host._holding), 3)
        node.kubelet.run(user)
        ask(node, "hold", "a", then="reset")
        (hold,) = node.host._holding.holds.all
        eventually(lambda: due._obstacle(hold) == "used by pod default/user")
        node.kubelet.delete(user)
        await_state(node, "a", "not let go: it is open")
        due._repair(hold)  # it is not let go any more
        plugin.point = str
        node.host._holding.repair = bool
        ask(node, "release", "a")
        due._repair(hold)
        due._note("a", "why")
        assert ({}, {}) == (node.host._holding.outcomes, states(node))
        assert ({}, False) == (node.host._holding.kept, "reset" in plugin.asked)


def test_a_reset_that_is_given_up_before_it_begins_does_not_begin() -> None:
    plugin = Lamp("a")
    reset = repairs._Reset(plugin, lambda: None)
    assert not reset.give_up()
    reset([*plugin.discover()])
    assert [] == plugin.asked


def test_one_reset_of_all_that_is_held_of_a_card_repairs_all_of_it(
    kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repairs, "FIRST_REST", 0.001)
    plugin = Lamp(broken("a", "pci/0"), broken("b", "pci/1"))
    plugin.reaches = ["pci/0", "pci/1"]
    with running(kubelet, plugin) as node:
        node.wait_for(RESOURCE, set(), {"a", "b"})
        for one in "ab":
            ask(node, "hold", one, then="release")
        node.wait_for(RESOURCE, {"a", "b"})
        assert ({}, 1) == (states(node), plugin.asked.count("reset"))


def test_an_id_that_is_other_hardware_now_is_not_reset(
    kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repairs, "FIRST_REST", 0.001)
    plugin = Lamp(broken("a", "serial-1"))
    plugin.then = dp.DiscoveryError("it is stuck")
    with running(kubelet, plugin, repair_tries=99) as node:
        ask(node, "hold", "a", then="reset")
        eventually(lambda: "it is stuck" in states(node)["a"])
        plugin.set(dp.Device("a", hardware=["serial-2"]))
        eventually(lambda: "a is other hardware now" in states(node)["a"])
        assert {} == reasons(node)


def test_what_another_hold_has_too_is_not_reset(kubelet: Kubelet) -> None:
    plugin = Lamp(dp.Device("a", hardware=["pci/0", "half-1"], attributes={"card": "c"}))
    with running(kubelet, plugin) as node:
        ask(node, "hold", "a", then="reset")
        await_state(node, "a", "reset")
        plugin.set(*plugin.discover(), dp.Device("b", hardware=["pci/0", "half-2"]))
        eventually(lambda: "b" in reasons(node))
        ask(node, "hold", "half-2", then="reset")
        text = f"{AGAIN}its hardware is held as a too: release that"
        await_state(node, "half-2", text)


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ("", "release", "a is held already, 'one': wait for its end, or release it first"),
        ("release", "", "a is held already, 'one': wait for its end, or release it first"),
        ("reset", "reset", "a is held already, 'one': wait for its end, or release it first"),
        ("", "explode", "'explode' is not reset or release"),
    ],
)
def test_of_two_tools_the_second_does_not_disturb_the_first(
    kubelet: Kubelet, first: str, second: str, message: str
) -> None:
    plugin = Lamp("a")
    plugin.then = dp.DiscoveryError("later")
    with running(kubelet, plugin) as node:
        ask(node, "hold", "a", then=first, reason="one")
        with pytest.raises(HoldError, match=re.escape(message)):
            ask(node, "hold", "a", then=second, reason="two")
        assert ["one"] == [one["reason"] for one in ask(node, "list")["holds"]]


def test_a_plugin_that_cannot_reset_says_so(kubelet: Kubelet) -> None:
    with running(kubelet, ScriptedPlugin("a")) as node:
        node.wait_for(RESOURCE, {"a"})
        with pytest.raises(HoldError, match="ScriptedPlugin cannot reset its devices: hold it"):
            ask(node, "hold", "a", then="reset")
        assert {} == states(node)


def test_nothing_is_reset_that_cannot_be_counted(kubelet: Kubelet) -> None:
    plugin = Lamp("a")
    with running(kubelet, plugin) as node:
        node.wait_for(RESOURCE, {"a"})

        def break_file(what: str) -> None:
            if what == "let go":
                (file,) = (kubelet.simulated.plugin_dir / FOLDER).glob("*/holds.json")
                file.unlink()
                file.mkdir()

        plugin.point = break_file
        ask(node, "hold", "a", then="reset")
        eventually(lambda: "cannot be written, so nothing was changed" in states(node)["a"])
        assert ["let go"] == plugin.asked


@pytest.mark.parametrize(
    ("point", "expected"),
    [
        ("let go", ["let go", "reset", "take back"]),
        ("reset", ["let go", "reset", "take back"]),
        ("take back", ["let go", "take back"]),  # it was reset: that is not done twice
    ],
)
def test_a_repair_goes_on_after_a_crash_in_any_step(
    kubelet: Kubelet, tmp_path: Path, point: str, expected: list[str]
) -> None:
    folder = kubelet.simulated.plugin_dir / FOLDER
    plugin = Lamp(broken("a"))
    copied = threading.Event()

    def crash(what: str) -> None:
        if what == point and not copied.is_set():
            shutil.copytree(folder, tmp_path / "disk", ignore=shutil.ignore_patterns(".socket"))
            copied.set()

    plugin.point = crash
    with running(kubelet, plugin) as node:
        ask(node, "hold", "a", then="release")
        eventually(lambda: not states(node), lambda: str(states(node)))
        assert copied.is_set()
    eventually(lambda: not folder.exists())
    shutil.copytree(tmp_path / "disk", folder)  # the disk as a process left it that was killed
    again = Lamp(broken("a") if point != "take back" else "a")
    with running(kubelet, again) as node:
        node.wait_for(RESOURCE, {"a"})
        eventually(lambda: not states(node))
        assert expected == again.asked


def test_a_stop_during_the_check_fails_nothing(kubelet: Kubelet) -> None:
    plugin = Lamp(broken("a"))
    plugin.then = [broken("a")]  # it needs time
    with running(kubelet, plugin, repair_tries=1) as node:
        ask(node, "hold", "a", then="release")
        await_state(node, "a", "being released")
    again = Lamp("a")
    with running(kubelet, again, repair_tries=1) as node:
        eventually(lambda: not states(node), lambda: str(states(node)))
        assert ["let go", "take back"] == again.asked


def test_a_new_process_resets_nothing_while_the_old_one_does(kubelet: Kubelet) -> None:
    plugin = Lamp(broken("a"))
    plugin.then = event = threading.Event()
    with running(kubelet, plugin) as node:
        ask(node, "hold", "a", then="release")
        eventually(lambda: "reset" in plugin.asked)
    again = Lamp(broken("a"))
    with running(kubelet, again) as other:
        assert "another process has it" in other.host.inventory()["holds_problem"]
        event.set()
        other.wait_for(RESOURCE, {"a"})
        with pytest.raises(HoldError, match="nothing was changed"):
            node.host._holding.save([])
        assert ["let go", "reset", "take back"] == again.asked
        with pytest.raises(HoldError, match="a is not held any more"):
            other.host._holding.change("a")


def test_what_a_newer_release_would_do_is_not_done_and_its_device_stays_held(
    kubelet: Kubelet,
) -> None:
    with running(kubelet, Lamp("a")) as node:
        ask(node, "hold", "a")
        (file,) = (kubelet.simulated.plugin_dir / FOLDER).glob("*/holds.json")
    file.write_text(file.read_text().replace('"then": ""', '"then": "polish"'))
    plugin = Lamp("a")
    with running(kubelet, plugin) as node:
        await_state(node, "a", "let go")
        assert ["let go"] == plugin.asked


# By itself.


def test_an_unhealthy_device_that_nobody_uses_is_repaired_if_its_cause_is_named(
    kubelet: Kubelet,
) -> None:
    plugin = Lamp(broken("a"), broken("b", cause="cold"), broken("c", cause=""))
    with running(kubelet, plugin, auto_repair=("burnt",)) as node:
        eventually(lambda: plugin.asked == ["let go", "reset", "take back"])
        node.wait_for(RESOURCE, {"a", "b", "c"})  # this reset is one of all devices
        eventually(lambda: not states(node))


@pytest.mark.slow
@pytest.mark.parametrize(("rest", "times"), [(0.001, 2), (3600.0, 1)])
def test_a_device_that_fails_again_and_again_is_repaired_a_few_times_in_a_day(
    kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch, rest: float, times: int
) -> None:
    monkeypatch.setattr(repairs, "FIRST_REST", rest)
    plugin = Lamp(broken("a"))
    with running(kubelet, plugin, auto_repair=("any",), repair_tries=2) as node:
        for number in range(1, times + 1):
            eventually(lambda number=number: plugin.asked.count("take back") == number)  # type: ignore[misc]
            eventually(lambda: not states(node))
            plugin.set(broken("a"))
        plugin.set(broken("a"), "b")
        node.wait_for(RESOURCE, {"b"}, {"a"})
        node.host._holding.wish()
        assert ({}, times) == (states(node), plugin.asked.count("reset"))


def test_a_device_in_use_and_one_that_discovery_lost_are_left_alone(kubelet: Kubelet) -> None:
    plugin = Lamp("a", "b")
    with running(kubelet, plugin, auto_repair=("any",), http_address="127.0.0.1:0") as node:
        node.wait_for(RESOURCE, {"a", "b"})
        node.kubelet.run(Pod.of("user", main={RESOURCE: 1}))
        users = node.host._ownership.users
        used = eventually(lambda: next((one for one in "ab" if users([(RESOURCE, one)])), ""))
        plugin.set(broken(used))  # and the other one is gone
        eventually(lambda: reasons(node).keys() == {"a", "b"})
        node.host._holding.wish()
        assert ({}, []) == (states(node), plugin.asked)


def test_a_share_is_left_alone_while_a_pod_has_another_of_the_same_device(
    kubelet: Kubelet,
) -> None:
    shares = {one: dp.Device(one, share_of="g") for one in ("g::0", "g::1")}
    plugin = Lamp(*shares.values())
    with running(kubelet, plugin, auto_repair=("any",), http_address="127.0.0.1:0") as node:
        node.wait_for(RESOURCE, shares.keys())
        node.kubelet.run(Pod.of("user", main={RESOURCE: 1}))
        users = node.host._ownership.users
        used = eventually(lambda: next((one for one in shares if users([(RESOURCE, one)])), ""))
        (free,) = shares.keys() - {used}
        plugin.set(shares[used], replace(broken(free), share_of="g"))
        node.wait_for(RESOURCE, {used}, {free})
        node.host._holding.wish()
        assert {} == states(node)


@pytest.mark.parametrize(("most", "expected"), [(32, {"a"}), (1, {"a", "b"})])
def test_a_device_that_cannot_be_repaired_does_not_keep_others_from_it(
    kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch, most: int, expected: set[str]
) -> None:
    monkeypatch.setattr(auto_repair, "_MOST", most)
    plugin = Lamp(broken("a"))
    plugin.then = dp.DiscoveryError("mutex held: 1")
    with running(kubelet, plugin, auto_repair=("any",)) as node:
        await_state(node, "a", f"{AGAIN}mutex held: 1")
        plugin.then = [dp.Device("b")]
        sick = dp.Health.unhealthy("mutex held: 1", "held")
        plugin.set(dp.Device("b", health=sick))
        node.wait_for(RESOURCE, {"a", "b"} - expected, expected)
        node.host._holding.wish()
        assert {"a"} == states(node).keys()


def test_a_device_that_cannot_be_held_by_itself_is_named_once(
    kubelet: Kubelet, caplog: pytest.LogCaptureFixture
) -> None:
    with running(kubelet, ScriptedPlugin(broken("a")), auto_repair=("any",)) as node:
        eventually(lambda: any("cannot reset" in str(vars(one)) for one in caplog.records))
        assert {} == states(node)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"DP_AUTO_REPAIR": "xid 79"}, "has 'xid 79', which is not a cause such as xid-79, or any"),
        ({"DP_REPAIR_TRIES": "0"}, "is not a number of tries: use 1 or more"),
    ],
)
def test_what_is_wrong_with_the_settings_is_said(given: Mapping[str, Any], message: str) -> None:
    with pytest.raises(dp.ConfigError, match=re.escape(message)):
        load(Settings, flags={}, file=None, environ=given)
    causes = load(Settings, flags={}, file=None, environ={"DP_AUTO_REPAIR": "xid-79,any"})
    assert ("xid-79", "any") == causes.auto_repair
