"""The health of devices, and which shares and resources get them."""

import os
import select
import signal
import sys
from dataclasses import replace
from itertools import count
from pathlib import Path
from threading import Thread

import pytest

import deviceplugin as dp
from deviceplugin_generic import GenericPlugin, GenericSettings
from deviceplugin_generic.configuration.entries import Check
from deviceplugin_generic.configuration.loading import Devices
from deviceplugin_generic.discovery.health import Checker
from deviceplugin_generic.discovery.matching import Match
from deviceplugin_generic.discovery.tree import Roots, Tree
from deviceplugin_testing.fixture import Kubelet
from discovered import found
from generic.plugin import Machine
from holding import QUICK, ask, reasons, running, states
from patience import PATIENCE, eventually

NULL = Match(nodes=(dp.DeviceNode("/dev/null"),), paths=("/dev/null",))


def reason(match: Match, check: Check) -> str:
    return Checker().health("a", match, check, {"serial": "S1"}).reason


@pytest.mark.parametrize(
    ("check", "expected"),
    [
        (Check(command=("true",)), ""),
        (Check(command=("sh", "-c", 'echo no "$1" >&2; exit 3', "sh", "{serial}")),
         "sh: exit status 3: no S1"),
        (Check(command=("false",)), "false: exit status 1"),
        (Check(command=("/none",)), "/none: No such file or directory"),
        (Check(command=("sleep", "60"), timeout=0.05), "sleep: no answer within 0.05 s"),
        (Check(open=True), ""),
    ],
    ids=range(6),
)  # fmt: skip
def test_a_check_decides_with_its_last_words(check: Check, expected: str) -> None:
    assert expected == reason(NULL, check)
    gone = Match(nodes=(dp.DeviceNode("/dev/none"),), in_sysfs=True)
    opened = "/dev/none: cannot be opened: No such file or directory"
    assert (opened if check.open else expected) == reason(gone, check)


def test_a_reason_without_end_is_cut() -> None:
    long = "x" * 10_000
    gone = Match(nodes=(dp.DeviceNode(f"/dev/{long}"),))
    for match, check in (
        (gone, Check()),
        (NULL, Check(command=(f"/{long}",))),
        (NULL, Check(properties={long: long})),
    ):
        assert 0 < len(reason(match, check)) < 1000


def test_a_property_of_udev_can_be_asked_for(machine: Machine) -> None:
    usb = machine.usb("1-2", "1a86:7523", 5)
    path = machine.behind_usb(usb, "1.0", "tty", "ttyUSB0", properties={"STATE": "ready"})
    tree = Tree(Roots(machine.dev, machine.sys, machine.udev))
    match = Match(device=tree.device(str(path.resolve())), in_sysfs=True)
    assert "" == reason(match, Check(properties={"STATE": "r*"}))
    assert "udev does not have STATE=off" == reason(match, Check(properties={"STATE": "off"}))
    assert "udev does not have A=b" == reason(NULL, Check(properties={"A": "b"}))


def test_it_takes_several_looks_to_change_a_verdict(tmp_path: Path) -> None:
    flag, now = tmp_path / "flag", [0.0]
    checker = Checker(lambda: now[0])
    check = Check(command=("test", "-e", str(flag)), interval=10, failures=2, successes=3)

    def looks(seconds: float, number: int) -> list[bool]:
        verdicts = []
        for _ in range(number):
            now[0] += seconds
            verdicts.append(bool(checker.health("a", NULL, check, {})))
        return verdicts

    flag.touch()
    assert [True] == looks(0, 1)
    flag.unlink()
    assert [True, True] == looks(4, 2), "not looked at before the interval has passed"
    assert [True, False, False] == looks(10, 3)
    flag.touch()
    assert [False, False, True] == looks(10, 3)
    flag.unlink()
    assert [True] == looks(10, 1)
    flag.touch()
    assert [True] == looks(10, 1)
    flag.unlink()
    assert [True, False] == looks(10, 2)


def test_a_device_that_was_away_is_looked_at_anew(tmp_path: Path) -> None:
    checker = Checker(lambda: 0.0)
    flag = tmp_path / "flag"
    check = Check(command=("test", "-e", str(flag)), failures=5, successes=5)
    assert not checker.health("a", NULL, check, {})
    flag.touch()
    assert not checker.health("a", NULL, check, {})
    checker.forget_all_but(())
    assert checker.health("a", NULL, check, {})


CANNOT_END = """
import ctypes, os, sys, time
with open(sys.argv[1], "a") as file:
    file.write("x")
parent = os.getpid()
if not os.fork():  # the kernel keeps what is traced until its tracer has looked
    os.setsid()
    PTRACE_SEIZE = 0x4206
    if ctypes.CDLL(None).ptrace(PTRACE_SEIZE, parent, 0, 0):
        os._exit(1)
    with open(sys.argv[2], "w") as file:
        print(os.getpid(), end=".", file=file)
time.sleep(600)
"""


@pytest.mark.slow
def test_a_command_that_does_not_end_is_left_and_not_begun_again(tmp_path: Path) -> None:
    """As in the kernel, when hardware does not answer: SIGKILL does not end it."""
    begun, tracer = tmp_path / "begun", tmp_path / "tracer"
    check = Check(command=(sys.executable, "-c", CANNOT_END, str(begun), str(tracer)))
    checker, told, timeout = Checker(count(step=100).__next__), [""], 0.5
    while "does not end" not in told[-1] and timeout < PATIENCE / 4:
        timeout *= 2
        told.append(checker.health("a", NULL, replace(check, timeout=timeout), {}).reason)
    if "does not end" not in told[-1] and not tracer.exists():
        pytest.skip("no process can be traced here")
    eventually(lambda: tracer.exists() and tracer.read_text().endswith("."))
    assert f"{sys.executable}: does not end, although it was killed" == told[-1]
    before = begun.read_text()
    assert told[-1] == checker.health("a", NULL, check, {}).reason
    assert before == begun.read_text()
    os.kill(int(tracer.read_text()[:-1]), signal.SIGKILL)
    eventually(lambda: checker.health("a", NULL, Check(command=("true",)), {}))


def test_what_a_command_has_begun_ends_with_it(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with os.fdopen(os.open(fifo, os.O_RDONLY | os.O_NONBLOCK), "rb") as reader:
        command = ("sh", "-c", 'sleep 600 >"$1" & wait', "sh", str(fifo))
        assert "no answer" in reason(NULL, Check(command=command, timeout=1))
        poller = select.poll()
        poller.register(reader, select.POLLIN)
        assert [(reader.fileno(), select.POLLHUP)] == poller.poll(PATIENCE * 1000)


def test_a_command_that_says_too_much_is_read_until_it_ends() -> None:
    command = ("sh", "-c", "yes oops | head -c 9000000 >&2; exit 3")
    found = reason(NULL, Check(command=command, timeout=PATIENCE))
    assert found.startswith("sh: exit status 3: oops oops")
    assert len(found) < 300


def test_health_is_told_with_its_reason(machine: Machine) -> None:
    plugin = machine.plugin(
        "{name: ab, groups: [{paths: [{path: /dev/null}]}], health: {command: ['false']}}"
    )
    (device,) = plugin.discover()
    assert "unhealthy: false: exit status 1" == str(device.health)
    (device,) = plugin.discover()
    assert not device.health


# Sharing.


@pytest.mark.parametrize(("policy", "next_"), [("spread", "ab-x2::0"), ("pack", "ab-x1::0")])
def test_a_container_gets_shares_of_several_devices_and_then_by_the_policy(
    machine: Machine, policy: str, next_: str
) -> None:
    for name in ("x1", "x2"):
        machine.node(name)
    group = f"{{count: 3, paths: [{{path: {machine.dev}/x*}}]}}"
    plugin = machine.plugin(f"{{name: ab, policy: {policy}, id: port, groups: [{group}]}}")
    devices = found(plugin)
    assert 6 == len(devices)

    def prefer(size: int, *required: str) -> set[str]:
        left = [devices[one] for one in devices if one != "ab-x1::2"]
        needed = [devices[one] for one in required]
        return {device.id for device in plugin.prefer(left, needed, size)}

    assert {next_} == prefer(1)
    assert {"ab-x1::0", "ab-x2::0"} == prefer(2)
    assert {"ab-x1::0", "ab-x2::1"} == prefer(2, "ab-x2::1")
    assert 5 == len(prefer(9, "ab-x2::1"))


@pytest.mark.slow
def test_a_reset_whose_command_does_not_end_is_not_over(tmp_path: Path) -> None:
    tracer, checker = tmp_path / "tracer", Checker()
    command = (sys.executable, "-c", CANNOT_END, str(tmp_path / "begun"), str(tracer))
    check, said = Check(reset=command, reset_timeout=5.0), list[str]()

    def reset() -> None:
        try:
            checker.reset("a", check, {})
        except dp.DiscoveryError as error:
            said.append(str(error))

    running = Thread(target=reset, daemon=True)
    running.start()
    eventually(lambda: checker._resets._stuck or not running.is_alive())
    if not tracer.exists():
        pytest.skip("no process can be traced here")
    assert (True, []) == (running.is_alive(), said)
    os.kill(int(tracer.read_text()[:-1]), signal.SIGKILL)
    running.join()
    assert [f"{sys.executable}: no answer within 5 s"] == said


def test_a_device_is_not_checked_while_it_is_reset(tmp_path: Path) -> None:
    pipe, log = tmp_path / "pipe", tmp_path / "log"
    os.mkfifo(pipe)
    reset = ("sh", "-c", 'read end < "$0"; rm "$1"', str(pipe), str(log))
    check = Check(command=("sh", "-c", 'echo >> "$0"', str(log)), reset=reset, interval=0)
    checker = Checker()
    assert checker.health("a", NULL, check, {})
    running = Thread(target=checker.reset, args=("a", check, {}))
    running.start()
    said = eventually(lambda: checker.health("a", NULL, check, {}).reason)
    before = log.read_text()
    assert "it is being reset" == said == checker.health("a", NULL, check, {}).reason
    assert before == log.read_text()
    pipe.write_text("\n")
    running.join()
    assert (False, True) == (log.exists(), bool(checker.health("a", NULL, check, {})))


def test_a_device_is_reset_by_the_command_of_its_entry(kubelet: Kubelet, tmp_path: Path) -> None:
    broken, script = tmp_path / "broken", 'test ! -e "$0"'
    broken.touch()
    entry = f"""
name: lamp
groups: [{{count: 2, paths: [{{path: /dev/null}}]}}]
health:
  interval: 1ms
  command: [sh, -c, '{script}', '{broken}']
  reset: [sh, -c, 'rm "$0" && echo "$DEVICE_PATH" > "$1"', '{broken}', '{tmp_path}/log']
"""
    other = "{name: other, groups: [{paths: [{path: /dev/zero}]}]}"
    settings = GenericSettings(device=Devices.parse([entry, other]))
    with running(kubelet, GenericPlugin(settings), discovery_interval=QUICK) as node:
        eventually(lambda: len(reasons(node)) == 2, lambda: str(node.host.inventory()))
        ask(node, "hold", next(iter(reasons(node))), then="release")
        eventually(lambda: not (states(node) or reasons(node)), lambda: str(states(node)))
        assert "/dev/null\n" == (tmp_path / "log").read_text()
        (unit,) = (id_ for name, id_ in node.host._holding.there() if name == "devic.es/other")
        with pytest.raises(dp.DiscoveryError, match="its entry has no health"):
            ask(node, "hold", unit, then="release")
