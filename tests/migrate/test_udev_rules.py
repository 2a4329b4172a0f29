"""Rules of udev become selectors of the generic plugin, or are refused with the reason."""

from typing import Any

import pytest

import deviceplugin as dp
from deviceplugin_generic.migrate.udev_rules import selector


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ('KERNEL=="ttyUSB[0-9]*"', {"name": "ttyUSB[0-9]*", "subsystem": "tty"}),
        ('KERNEL=="renderD*" , ', {"name": "renderD*", "subsystem": "drm"}),
        ('SUBSYSTEM=="block", ENV{A}=="x", ENV{B}=="y"',
         {"subsystem": "block", "properties": {"A": "x", "B": "y"}}),
        ('SUBSYSTEM=="input", ATTRS{name}=="My.*Pad", ATTR{x}!="[!1]"',
         {"subsystem": "input", "attributes": {"name": "My*Pad"},
          "not": [{"attributes": {"x": "[^1]"}}]}),
        (r'SUBSYSTEM=="usb", ATTRS{version}=="2\.0", ATTRS{x}=="a.c", ATTR{idVendor}=="16C0"',
         {"subsystem": "usb", "attributes": {"version": "2.0", "x": "a?c"}, "vendor": "16C0"}),
        ('SUBSYSTEM=="usb", ATTR{serial}=="a", ATTRS{serial}=="a"',
         {"subsystem": "usb", "serial": "a"}),
    ],
)  # fmt: skip
def test_a_rule_becomes_a_selector(rule: str, expected: dict[str, Any]) -> None:
    assert expected == selector(rule, "p")


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ('KERNEL=="foo*"', 'needs SUBSYSTEM=="..."'),
        ("", "needs SUBSYSTEM"),
        ('SUBSYSTEM=="tty", TAG+="x"', "TAG has no counterpart"),
        ('SUBSYSTEM=="tty", ENV{A}="x"', "ENV= has no counterpart"),
        ('SUBSYSTEM!="tty"', "SUBSYSTEM!= has no counterpart"),
        ('SUBSYSTEM=="tty", KERNEL=="a|b"', "| has no counterpart: write a rule for each"),
        ('SUBSYSTEM=="tty", ATTRS{a}=="(x|y)+"', "'(x|y)+' is a regular expression"),
        ('SUBSYSTEM=="tty", KERNEL=="a", KERNEL=="b"', "compares name twice"),
        ('SUBSYSTEM=="usb", ENV{A}=="a", ENV{A}=="b"', "compares properties twice"),
        ("SUBSYSTEM==tty", "cannot be read from character 1 on"),
    ],
)
def test_a_rule_that_no_selector_is_like_is_refused(rule: str, reason: str) -> None:
    with pytest.raises(dp.ConfigError) as raised:
        selector(rule, "p")
    assert f"p: udevRules: {rule!r}: " in str(raised.value)
    assert reason in str(raised.value)
