"""Holding a device: no pod gets it, its plugin lets go of it, and a restart changes nothing."""

import fcntl
import json
import os
import re
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Event
from typing import Any

import grpc
import pytest
from typing_extensions import override

import deviceplugin as dp
from deviceplugin._app import hold_socket
from deviceplugin._app.hold_folder import FOLDER, instance
from deviceplugin._app.hold_socket import HoldSocket, ShortPath
from deviceplugin._attribution.hold_file import HoldFile
from deviceplugin._attribution.holds import MOST, HoldError, make
from deviceplugin._config.loading import load
from deviceplugin._config.settings import Settings
from deviceplugin.model import Version
from deviceplugin.model._device import Attribute
from deviceplugin_testing.fixture import Kubelet, Node
from deviceplugin_testing.simulator import Pod
from full_disk import full_disk
from holding import WHY, ask, reasons, running, states
from patience import PATIENCE, eventually
from scripted_plugin import RESOURCE, ScriptedPlugin

HELD = f"held: {WHY}"


class Lamps(ScriptedPlugin):
    """A plugin that says what it is asked for, and refuses while ``objection`` is set."""

    def __init__(self, *devices: dp.Device | str, resource: str = RESOURCE) -> None:
        super().__init__(*devices, resource=resource)
        self.asked: list[str] = []
        self.objection = ""
        self.hang: Event | None = None

    @override
    def let_go(self, devices: Sequence[dp.Device]) -> None:
        self._note("let go", devices)
        if self.hang:
            self.hang.wait()

    @override
    def take_back(self, devices: Sequence[dp.Device]) -> None:
        self._note("take back", devices)

    def _note(self, what: str, devices: Sequence[dp.Device]) -> None:
        self.asked.append(f"{what} {', '.join(one.id for one in devices)}")
        if self.objection:
            raise dp.DiscoveryError(self.objection)


def lamp(name: str, *hardware: str, share_of: str = "", **facts: Attribute) -> dp.Device:
    return dp.Device(name, hardware=hardware, share_of=share_of, attributes=facts)


def hold(node: Node, device: str, **more: object) -> None:
    ask(node, "hold", device, **more)
    eventually(lambda: states(node)[device] == "let go")


def test_a_held_device_is_let_go_and_given_to_no_pod_until_its_release(kubelet: Kubelet) -> None:
    plugin = Lamps("a", "b")
    with running(kubelet, plugin) as node:
        node.wait_for(RESOURCE, {"a", "b"})
        hold(node, "a")
        node.wait_for(RESOURCE, {"b"}, {"a"})
        assert {"a": HELD} == reasons(node)
        assert ["a"] == [one.id for one in plugin.held]
        with pytest.raises(grpc.RpcError, match=re.escape(HELD)):
            node.allocate("a")
        ask(node, "release", "a")
        node.wait_for(RESOURCE, {"a", "b"})
        assert ["let go a", "take back a"] == plugin.asked
        assert [] == list(plugin.held)


def test_a_hold_is_kept_over_a_restart_also_of_what_is_not_discovered(kubelet: Kubelet) -> None:
    first = lamp("a", "serial-1", model="x", driver=Version("1.2.3"), watts=5)
    with running(kubelet, Lamps(first, "b")) as node:
        node.wait_for(RESOURCE, {"a", "b"})
        hold(node, "a")
    again = Lamps("b")
    with running(kubelet, again) as node:
        node.wait_for(RESOURCE, {"b"}, {"a"})
        eventually(lambda: states(node) == {"a": "let go"})
        assert ["let go a"] == again.asked
        (known,) = again.held
        assert (first.attributes, ("serial-1",)) == (known.attributes, known.hardware)
        assert isinstance(known.attributes["driver"], Version)
        again.set("b", lamp("a", "serial-1"))
        ask(node, "release", "a")
        node.wait_for(RESOURCE, {"a", "b"})


def test_a_plugin_that_ends_leaves_nothing_behind_unless_something_is_held(
    kubelet: Kubelet,
) -> None:
    folder = kubelet.simulated.plugin_dir / FOLDER
    with running(kubelet, Lamps("a")) as node:
        assert folder.is_dir()
        ask(node, "hold", "a")
    assert ["holds.json", "holds.json.bak"] == sorted(
        one.name for one in folder.rglob("holds.json*")
    )
    with running(kubelet, Lamps("a")) as node:
        ask(node, "release", "a")
    assert not folder.exists()


def test_a_folder_that_its_process_removes_meanwhile_is_made_again(
    kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked = fcntl.flock

    def late(file: int, operation: int) -> None:
        monkeypatch.setattr(fcntl, "flock", locked)
        (lock,) = (kubelet.simulated.plugin_dir / FOLDER).glob("*/lock")
        lock.unlink()
        lock.touch()  # by another process
        locked(file, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    with running(kubelet, Lamps("a")) as node:
        eventually(lambda: node.host._holding.locked is not None, "the lock")
        assert ask(node, "hold", "a")


def test_the_hardware_is_held_and_not_an_id_that_comes_to_mean_another(kubelet: Kubelet) -> None:
    plugin = Lamps(lamp("a", "serial-1"), lamp("b", "serial-2"))
    with running(kubelet, plugin) as node:
        node.wait_for(RESOURCE, {"a", "b"})
        hold(node, "serial-1")
        plugin.set(lamp("a", "serial-2"), lamp("b", "serial-1"))
        node.wait_for(RESOURCE, {"a"}, {"b"})


def test_all_parts_of_the_same_hardware_are_held(kubelet: Kubelet, tmp_path: Path) -> None:
    for name in ("one", "two", "common"):
        (tmp_path / name).touch()

    def node_of(*names: str) -> list[dp.DeviceNode]:
        return [dp.DeviceNode(str(tmp_path / name)) for name in names]

    plugin = Lamps(
        *(lamp(f"s{n}", "pci/0000:3b:00.0", share_of="s") for n in range(2)),  # shares
        lamp("half", "pci/0000:3b:00.0", "half-1"),  # a partition
        lamp("other", "pci/0000:af:00.0"),
        *(dp.Device(f"t{n}", share_of="t") for n in range(2)),  # of nothing that has a name
        dp.Device("one", nodes=node_of("one", "common")),
        dp.Device("part", nodes=node_of("one")),
        dp.Device("two", nodes=node_of("two", "common")),
    )
    everything = {one.id for one in plugin.discover()}
    with running(kubelet, plugin) as node:
        for name, expected in (
            ("s", {"s0", "s1", "half"}),
            ("s1", {"s0", "s1", "half"}),
            ("0000:3b:00.0", {"s0", "s1", "half"}),
            ("t1", {"t0", "t1"}),
            (str(tmp_path / "one"), {"one", "part"}),
            ("two", {"two"}),
        ):
            hold(node, name)
            node.wait_for(RESOURCE, everything - expected, expected)
            ask(node, "release", name)
            node.wait_for(RESOURCE, everything)


def test_a_name_that_matches_several_devices_holds_none_unless_all_are_meant(
    kubelet: Kubelet,
) -> None:
    plugin = Lamps(*(lamp(f"m{n}", f"serial-{n}", parent="card") for n in range(12)))
    with running(kubelet, plugin) as node:
        eventually(lambda: node.kubelet.capacity(RESOURCE) == 12)
        with pytest.raises(HoldError, match=r"'card' matches 12 devices: m0 of .*, 4 more: name"):
            ask(node, "hold", "card")
        hold(node, "card", all=True)
        plugin.set(*plugin.discover(), lamp("m12", "serial-12", parent="card"), lamp("n", "x"))
        node.wait_for(RESOURCE, {"n"}, {f"m{n}" for n in range(13)})  # a new one is held as well
        eventually(lambda: any("m12" in one for one in plugin.asked))  # and let go
        with pytest.raises(HoldError, match="'m1' is a part of what is held as card: release that"):
            ask(node, "release", "m1")
        ask(node, "release", "card")


def test_a_name_is_looked_for_in_one_resource_if_that_is_given(kubelet: Kubelet) -> None:
    other = "example.com/other"
    plugins = Lamps("a"), Lamps("a", resource=other)  # of nothing that has a name
    with running(kubelet, *plugins) as node:
        with pytest.raises(
            HoldError, match=f"'a' matches 2 devices: a of {other}, a of {RESOURCE}"
        ):
            ask(node, "hold", "a")
        hold(node, "a", resource=other)
        node.wait_for(other, set(), {"a"})
        node.wait_for(RESOURCE, {"a"})
        assert ([], ["let go a"]) == tuple(one.asked for one in plugins)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"do": "hold", "device": "z"}, f"no device here is called 'z': there are a of {RESOURCE}"),
        ({"do": "hold", "device": ""}, "the device must have 1 to 256 printable characters"),
        (
            {"do": "hold", "device": "a", "reason": "x\ny"},
            "the reason must have 1 to",
        ),
        ({"do": "hold", "device": "a", "reason": ""}, "the reason must have 1 to"),
        ({"do": "release", "device": "a"}, "'a' is not held: nothing is"),
        ({"do": "explode"}, "'explode' is not list, hold or release"),
    ],
)
def test_what_cannot_be_done_is_said_and_changes_nothing(
    kubelet: Kubelet, request_: Mapping[str, object], message: str
) -> None:
    with running(kubelet, Lamps("a")) as node:
        with pytest.raises(HoldError, match=re.escape(message)):
            node.host.ask_hold({"reason": WHY, **request_})
        assert {} == states(node)


def test_a_second_hold_changes_the_reason_and_keeps_the_time(kubelet: Kubelet) -> None:
    with running(kubelet, Lamps(lamp("a", "serial-1"))) as node:
        hold(node, "a")
        (before,) = ask(node, "list")["holds"]
        assert ask(node, "hold", "serial-1", reason="another")["was_held"]
        (now,) = ask(node, "list")["holds"]
        assert {**before, "reason": "another"} == now
        eventually(lambda: reasons(node) == {"a": "held: another"})


def test_what_is_wrong_with_a_held_device_is_said_before_that_it_is_held(kubelet: Kubelet) -> None:
    plugin = Lamps("b")
    with running(kubelet, plugin) as node:
        hold(node, "b")
        plugin.set(dp.Device("b", health=dp.Health.unhealthy("no bulb")))
        eventually(lambda: reasons(node) == {"b": f"no bulb; {HELD}"})


@pytest.mark.slow
def test_a_dry_run_shows_who_has_the_device_and_changes_nothing(kubelet: Kubelet) -> None:
    plugin = Lamps("a")
    with running(kubelet, plugin, http_address="127.0.0.1:0") as node:
        node.wait_for(RESOURCE, {"a"})
        pod = Pod.of("user", main={RESOURCE: 1})
        node.kubelet.run(pod)
        expected = ["pod default/user"]
        eventually(lambda: ask(node, "hold", "a", dry_run=True)["holds"][0]["users"] == expected)
        assert ({}, []) == (states(node), plugin.asked)
        ask(node, "hold", "a")
        eventually(lambda: states(node) == {"a": "waiting for its users"})
        assert ask(node, "release", "a", dry_run=True)
        assert [] == plugin.asked
        node.kubelet.delete(pod)
        eventually(lambda: states(node) == {"a": "let go"})


def test_it_is_not_let_go_while_it_is_unknown_what_pods_have(kubelet: Kubelet) -> None:
    nowhere = kubelet.simulated.plugin_dir / "nowhere/kubelet.sock"
    plugin = Lamps("a")
    with running(kubelet, plugin, pod_resources_socket=nowhere) as node:
        node.wait_for(RESOURCE, {"a"})
        ask(node, "hold", "a")
        node.wait_for(RESOURCE, set(), {"a"})
        eventually(lambda: states(node) == {"a": "waiting: not known what pods have"})
        assert [] == plugin.asked


def test_a_plugin_that_cannot_let_go_is_asked_again(kubelet: Kubelet) -> None:
    plugin = Lamps("a")
    plugin.objection = "somebody looks at it"
    with running(kubelet, plugin) as node:
        ask(node, "hold", "a")
        eventually(lambda: states(node) == {"a": "not let go: somebody looks at it"})
        assert ask(node, "hold", "a")["was_held"]  # which does not make it any faster
        plugin.objection = ""
        eventually(lambda: states(node) == {"a": "let go"})
        plugin.objection = "it is hot"
        with pytest.raises(HoldError, match="a stays held: it is not ready: it is hot"):
            ask(node, "release", "a")
        plugin.objection = ""
        eventually(lambda: states(node) == {"a": "let go"})
        assert ["a"] == [one.id for one in plugin.held]


def test_a_device_that_is_released_while_it_is_let_go_of_is_not_let_go(kubelet: Kubelet) -> None:
    plugin = Lamps("a")
    plugin.hang = threading.Event()
    with running(kubelet, plugin) as node:
        ask(node, "hold", "a")
        eventually(lambda: plugin.asked == ["let go a"])
        ask(node, "release", "a")
        plugin.hang.set()
        node.wait_for(RESOURCE, {"a"})
        assert ({}, []) == (states(node), list(plugin.held))


def test_restored_hooks_that_hang_do_not_delay_the_first_list(kubelet: Kubelet) -> None:
    names = [f"d{n}" for n in range(6)]
    with running(kubelet, Lamps(*names, "free")) as node:
        for name in names:
            hold(node, name)
    plugin = Lamps(*names, "free")
    plugin.hang = threading.Event()
    try:
        with running(kubelet, plugin) as node:
            node.wait_for(RESOURCE, {"free"}, names)
            eventually(lambda: plugin.asked != [])
            assert "let go" not in states(node).values()
    finally:
        plugin.hang.set()


def test_a_reload_gives_the_new_plugin_what_it_must_not_open(kubelet: Kubelet) -> None:
    with running(kubelet, Lamps("a", "b")) as node:
        hold(node, "a")
        new = Lamps("a", "b")
        node.host.replace([new])
        assert ["a"] == [one.id for one in new.held]
        node.wait_for(RESOURCE, {"b"}, {"a"})


def folder_of(kubelet: Kubelet) -> Path:
    (path,) = (kubelet.simulated.plugin_dir / FOLDER).iterdir()
    return path


def file_of(kubelet: Kubelet) -> Path:
    return folder_of(kubelet) / "holds.json"


def test_a_hold_that_cannot_be_saved_is_not_made_nor_ended(kubelet: Kubelet) -> None:
    with running(kubelet, Lamps("a", "b")) as node:
        hold(node, "a")
        path = file_of(kubelet)
        path.unlink()
        (path / "in the way").mkdir(parents=True)
        with pytest.raises(HoldError, match=r"holds.json cannot be written"):
            ask(node, "hold", "b")
        with pytest.raises(HoldError, match=r"a stays held: .*cannot be written"):
            ask(node, "release", "a")
        assert {"a"} == states(node).keys()


def test_on_a_full_disk_the_file_of_holds_stays_as_it_was(tmp_path: Path) -> None:
    file = HoldFile(tmp_path / "holds.json")
    one = make("a", WHY, {(RESOURCE, "a"): ("Lamps", lamp("a"))}, 0.0)
    file.save([one])
    with full_disk(), pytest.raises(HoldError, match=r"holds.json cannot be written"):
        file.save([])
    assert ["a"] == [each.name for each in HoldFile(file.path).load()[0]]


@pytest.mark.parametrize("damage", [b"", b"nonsense", b'{"version": 1, "holds": [{}]}', b"\xff"])
def test_what_the_copy_names_is_held_if_the_file_is_damaged(
    kubelet: Kubelet, damage: bytes
) -> None:
    with running(kubelet, Lamps("a", "b")) as node:
        hold(node, "a")
    path = file_of(kubelet)
    path.write_bytes(damage)
    with running(kubelet, Lamps("a", "b")) as node:
        node.wait_for(RESOURCE, {"b"}, {"a"})
        expected = f"{path} was damaged: its copy is used"
        assert expected == node.host.inventory()["holds_problem"]
    assert damage == path.with_name("holds.json.unreadable").read_bytes()


def test_it_is_said_aloud_if_the_copy_is_damaged_too(
    kubelet: Kubelet, caplog: pytest.LogCaptureFixture
) -> None:
    with running(kubelet, Lamps("a")) as node:
        hold(node, "a")
    path = file_of(kubelet)
    document = json.loads(path.read_text())
    document["holds"][0]["devices"][0]["ids"] = ["\0"]
    for one in (path, path.with_name("holds.json.bak")):
        one.write_text(json.dumps(document))
    with running(kubelet, Lamps("a")) as node:
        node.wait_for(RESOURCE, {"a"})
        assert "what was held is not known" in node.host.inventory()["holds_problem"]
    assert "holds damaged" in caplog.messages


def test_of_two_processes_with_one_name_the_second_has_no_holds_until_the_first_ends(
    kubelet: Kubelet,
) -> None:
    other = Lamps("a", resource="example.com/other")
    with running(kubelet, Lamps("a")) as node:
        hold(node, "a")
        with running(kubelet, other) as second:
            second.wait_for("example.com/other", {"a"})
            with pytest.raises(HoldError, match="another process has it: give each its own inst"):
                ask(second, "list")
            with running(kubelet, Lamps("b", resource="example.com/b"), instance="b") as third:
                assert {} == states(third)
    with running(kubelet, Lamps("a")) as node:
        assert {"a"} == states(node).keys()


def test_what_was_held_is_held_where_nothing_can_be_changed(kubelet: Kubelet) -> None:
    with running(kubelet, Lamps("a", "b")) as node:
        hold(node, "a")
    lock = folder_of(kubelet) / "lock"
    lock.unlink()
    lock.mkdir()
    with running(kubelet, Lamps("a", "b", "c")) as node:
        node.wait_for(RESOURCE, {"b", "c"}, {"a"})
        with pytest.raises(HoldError, match=r"devices cannot be held here: .*Is a directory"):
            ask(node, "hold", "b")


def test_a_folder_that_cannot_be_made_keeps_nobody_from_serving(kubelet: Kubelet) -> None:
    (kubelet.simulated.plugin_dir / FOLDER).write_text("in the way")
    with running(kubelet, Lamps("a")) as node:
        node.wait_for(RESOURCE, {"a"})
        with pytest.raises(HoldError, match=r"devices cannot be held here: .*File exists"):
            ask(node, "hold", "a")


@pytest.mark.slow
def test_there_is_a_limit_on_the_number_of_holds(kubelet: Kubelet) -> None:
    names = [f"d{n}" for n in range(MOST + 1)]
    with running(kubelet, ScriptedPlugin(*names)) as node:
        eventually(lambda: node.kubelet.capacity(RESOURCE) == len(names))
        for name in names[:-1]:
            ask(node, "hold", name)
        with pytest.raises(HoldError, match="64 devices are held: release one first"):
            ask(node, "hold", names[-1])


@pytest.mark.parametrize(
    ("given", "hostname", "expected"),
    [
        ("", "gpu-device-plugin-x7k2p", "gpu-device-plugin"),
        ("", "node-7.example.com", "Lamps"),
        ("", "node-aeiou", "Lamps"),  # no random end has vowels
        ("mine", "gpu-device-plugin-x7k2p", "mine"),
    ],
)
def test_an_instance_has_the_name_of_its_daemonset(
    given: str, hostname: str, expected: str
) -> None:
    assert expected == instance(given, hostname, "Lamps")


def test_the_name_of_an_instance_is_the_name_of_a_folder() -> None:
    with pytest.raises(dp.ConfigError, match=r"instance.*is not 1 to 63 letters"):
        load(Settings, flags={"instance": "../x"}, environ={})
    assert "gpu-plugin-a" == load(Settings, flags={"instance": "gpu-plugin-a"}, environ={}).instance


def test_a_client_that_says_nonsense_or_nothing_harms_nobody(tmp_path: Path) -> None:
    served = HoldSocket(dict)
    folder = tmp_path / ("long" * 30)  # the address of a socket has 107 bytes at most
    folder.mkdir()
    served.open(folder)
    served.open(folder)
    for text in (b"", b"\n", b"nonsense\n", b"[1]\n", b"\xff\n", b"[" * 9999 + b"\n", b"x" * 99999):
        with socket.socket(socket.AF_UNIX) as client, ShortPath(folder) as short:
            client.connect(f"{short}/.socket")
            client.sendall(text)
            if text.endswith(b"\n"):
                assert b"the request cannot be read" in client.recv(999)
    assert {"a": 1} == hold_socket.ask(folder, {"a": 1}, PATIENCE)
    served.close()
    with pytest.raises(FileNotFoundError):
        hold_socket.ask(tmp_path, {}, PATIENCE)


def test_a_request_that_finds_a_fault_of_ours_keeps_nobody_from_asking(tmp_path: Path) -> None:
    served = HoldSocket(lambda request: {"found": 1 / request["by"]})
    served.open(tmp_path)
    for _ in range(2):
        assert "ZeroDivisionError" in hold_socket.ask(tmp_path, {"by": 0}, PATIENCE)["error"]
    assert {"found": 1.0} == hold_socket.ask(tmp_path, {"by": 1}, PATIENCE)
    served.close()


def test_a_socket_that_cannot_be_made_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    served = HoldSocket(dict)
    (tmp_path / ".socket").mkdir()
    for _ in range(2):
        served.open(tmp_path)
    served.close()
    assert ["hold socket unavailable"] == caplog.messages


@pytest.mark.slow
def test_a_pod_that_starts_before_its_predecessor_ends_gives_out_nothing_held(
    kubelet: Kubelet,
) -> None:
    held = lamp("a", "serial-1")
    with running(kubelet, Lamps(held, "b")) as node:
        hold(node, "a")
        with running(kubelet, Lamps(held, "b", "c")) as second:
            # By its own view: the kubelet has the list of whichever registered last.
            eventually(lambda: reasons(second) == {"a": HELD})
            ask(node, "hold", "b")
            eventually(lambda: reasons(second) == {"a": HELD, "b": HELD})
            ask(node, "release", "b")
            eventually(lambda: reasons(second) == {"a": HELD})
            with pytest.raises(grpc.RpcError, match=re.escape(HELD)):
                node.allocate("a")


def test_a_value_of_an_attribute_without_all_holds_what_has_it_now(kubelet: Kubelet) -> None:
    plugin = Lamps(lamp("a", "serial-1", place=1), lamp("b", "serial-2", place=2))
    with running(kubelet, plugin) as node:
        hold(node, "1")
        node.wait_for(RESOURCE, {"b"}, {"a"})
        plugin.set(lamp("a", "serial-1", place=2), lamp("b", "serial-2", place=1), "c")
        node.wait_for(RESOURCE, {"b", "c"}, {"a"})


def test_a_second_hold_with_all_is_one_of_later_devices_too(kubelet: Kubelet) -> None:
    plugin = Lamps(lamp("a", "serial-1", parent="card"))
    with running(kubelet, plugin) as node:
        hold(node, "card")
        assert ask(node, "hold", "card", all=True)["was_held"]
        plugin.set(*plugin.discover(), lamp("b", "serial-2", parent="card"), "c")
        node.wait_for(RESOURCE, {"c"}, {"a", "b"})


def test_a_device_is_let_go_again_where_it_is_now(kubelet: Kubelet) -> None:
    plugin = Lamps(lamp("a", "serial-1", pci="3b"), lamp("b", "serial-2", pci="af"))
    with running(kubelet, plugin) as node:
        hold(node, "a")
        plugin.set(lamp("a", "serial-1", pci="af"), lamp("b", "serial-2", pci="3b"))
        eventually(lambda: ["let go a", "let go a"] == plugin.asked)
        plugin.set(lamp("b", "serial-2", pci="3b"))  # it does not look at the other any more
        eventually(lambda: ["af"] == [one.attributes["pci"] for one in plugin.held])
        node.wait_for(RESOURCE, {"b"}, {"a"})


@pytest.mark.parametrize(
    "change",
    [
        lambda holds: holds * 2,
        lambda holds: [{**holds[0], "name": f"a{n}"} for n in range(10_000)],
        lambda holds: [{**holds[0], "since": float("inf")}],
        lambda holds: [{**holds[0], "since": float("nan")}],
        lambda holds: [{**holds[0], "reason": "a\nb"}],
        lambda holds: [{**holds[0], "name": "\x1b[31m"}],
        lambda holds: [{**holds[0], "devices": []}],
        lambda holds: [{**holds[0], "devices": [{**holds[0]["devices"][0], "hardware": "x"}]}],
        lambda _holds: {},
    ],
)
def test_what_no_hold_can_be_counts_as_damaged(
    tmp_path: Path, change: Callable[[list[dict[str, Any]]], object]
) -> None:
    file = HoldFile(tmp_path / "holds.json")
    file.save([make("a", WHY, {(RESOURCE, "a"): ("Lamps", lamp("a"))}, 0.0)])
    document = json.loads(file.path.read_text())
    document["holds"] = change(document["holds"])
    file.path.write_text(json.dumps(document))
    found, problem = HoldFile(file.path).load()
    assert (["a"], f"{file.path} was damaged: its copy is used") == (
        [one.name for one in found],
        problem,
    )


@pytest.mark.parametrize("kind", ["folder", "link to itself", "pipe", "socket"])
@pytest.mark.parametrize("name", ["holds.json", "holds.json.bak", "lock", ".socket"])
def test_whatever_is_in_the_way_keeps_no_plugin_from_serving(
    kubelet: Kubelet, name: str, kind: str
) -> None:
    with running(kubelet, Lamps("a")):
        path = folder_of(kubelet) / name
    path.parent.mkdir(parents=True)
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as other, ShortPath(path.parent) as short:
            other.bind(f"{short}/{name}")
    else:
        path.symlink_to(name)
    with running(kubelet, Lamps("a")) as node:
        node.wait_for(RESOURCE, {"a"})
