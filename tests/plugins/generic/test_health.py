"""The health of devices, and which shares and resources get them."""

from pathlib import Path

import pytest

import deviceplugin as dp
from deviceplugin_generic.configuration.entries import Check
from deviceplugin_generic.discovery.health import Checker
from deviceplugin_generic.discovery.matching import Match
from deviceplugin_generic.discovery.tree import Roots, Tree
from discovered import found
from generic.plugin import Make
from hardware.tree import Hardware

NULL = Match(nodes=(dp.DeviceNode("/dev/null"),), paths=("/dev/null",))


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def reason(match: Match, check: Check) -> str:
    return Checker().health("a", match, check, {"serial": "S1"}).reason


def test_a_command_decides_with_its_last_words() -> None:
    assert "" == reason(NULL, Check(command=("true",)))
    words = ("sh", "-c", 'echo no "$1" here >&2; exit 3', "sh", "{serial}")
    assert "sh: exit status 3: no S1 here" == reason(NULL, Check(command=words))
    assert "false: exit status 1" == reason(NULL, Check(command=("false",)))
    assert "/none: No such file or directory" == reason(NULL, Check(command=("/none",)))


def test_a_command_that_hangs_is_ended() -> None:
    check = Check(command=("sleep", "60"), timeout=0.05)
    assert "sleep: no answer within 0.05 s" == reason(NULL, check)


def test_a_device_that_cannot_be_opened_is_unhealthy() -> None:
    assert "" == reason(NULL, Check(open=True))
    gone = Match(nodes=(dp.DeviceNode("/dev/none"),), in_sysfs=True)
    expected = "/dev/none: cannot be opened: No such file or directory"
    assert expected == reason(gone, Check(open=True))


def test_a_reason_without_end_is_cut() -> None:
    long = "x" * 10_000
    gone = Match(nodes=(dp.DeviceNode(f"/dev/{long}"),))
    for match, check in (
        (gone, Check()),
        (NULL, Check(command=(f"/{long}",))),
        (NULL, Check(properties={long: long})),
    ):
        assert 0 < len(reason(match, check)) < 1000


def test_a_property_of_udev_can_be_asked_for(hardware: Hardware) -> None:
    usb = hardware.usb("1-2", "1a86:7523", 5)
    path = hardware.behind_usb(usb, "1.0", "tty", "ttyUSB0", properties={"STATE": "ready"})
    tree = Tree(Roots(hardware.dev, hardware.sys, hardware.udev))
    match = Match(device=tree.device(str(path.resolve())), in_sysfs=True)
    assert "" == reason(match, Check(properties={"STATE": "r*"}))
    assert "udev does not have STATE=off" == reason(match, Check(properties={"STATE": "off"}))
    assert "udev does not have A=b" == reason(NULL, Check(properties={"A": "b"}))


def test_it_takes_several_looks_to_change_a_verdict(tmp_path: Path) -> None:
    flag, clock = tmp_path / "flag", Clock()
    checker = Checker(clock)
    check = Check(command=("test", "-e", str(flag)), interval=10, failures=2, successes=3)

    def looks(seconds: float, number: int) -> list[bool]:
        verdicts = []
        for _ in range(number):
            clock.now += seconds
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
    checker = Checker(Clock())
    flag = tmp_path / "flag"
    check = Check(command=("test", "-e", str(flag)), failures=5, successes=5)
    assert not checker.health("a", NULL, check, {})
    flag.touch()
    assert not checker.health("a", NULL, check, {})
    checker.forget_all_but(())
    assert checker.health("a", NULL, check, {})


def test_health_is_told_with_its_reason(make: Make) -> None:
    plugin = make(
        "{name: ab, groups: [{paths: [{path: /dev/null}]}], health: {command: ['false']}}"
    )
    (device,) = plugin.discover()
    assert "unhealthy: false: exit status 1" == str(device.health)
    (device,) = plugin.discover()
    assert not device.health


# Sharing.


def shared(make: Make, hardware: Hardware, policy: str) -> dict[str, dp.Device]:
    for name in ("x1", "x2"):
        hardware.node(name)
    plugin = make(
        f"{{name: ab, policy: {policy}, id: port, "
        f"groups: [{{count: 3, paths: [{{path: {hardware.dev}/x*}}]}}]}}"
    )
    devices = found(plugin)

    def prefer(size: int, available: list[str], required: list[str]) -> list[str]:
        chosen = plugin.prefer(
            [devices[one] for one in available], [devices[one] for one in required], size
        )
        return [device.id for device in chosen]

    left = ["ab-x1::0", "ab-x1::1", "ab-x2::0", "ab-x2::1", "ab-x2::2"]
    expected = {"spread": "ab-x2::0", "pack": "ab-x1::0"}[policy]
    assert [expected] == prefer(1, left, [])
    assert {"ab-x1::0", "ab-x2::0"} == set(prefer(2, left, []))
    assert {"ab-x1::0", "ab-x2::1"} == set(prefer(2, left, ["ab-x2::1"]))
    assert len(left) == len(set(prefer(9, left, ["ab-x2::1"])))
    return devices


@pytest.mark.parametrize("policy", ["spread", "pack"])
def test_a_container_gets_shares_of_several_devices_and_then_by_the_policy(
    make: Make, hardware: Hardware, policy: str
) -> None:
    assert 6 == len(shared(make, hardware, policy))
