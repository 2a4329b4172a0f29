"""Configuration files in TOML: the same entries as in YAML, and faults with their lines."""

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import deviceplugin as dp
from deviceplugin.kit.configuration import InvalidError, of_text
from deviceplugin_generic import GenericSettings
from deviceplugin_generic.configuration import loading

COMMAND = str(Path(sys.executable).with_name("generic-device-plugin"))
TOML = '''
domain = "x.io"           # [ is not a bracket here
log-level = "warn"

[[devices]]
name = "serial"
health.open = true
health.command = ["sh", "-c", """
[ -e $DEVICE_PATH ] # not a comment, and no ] statement""", 'a"{{[']
  [[devices.groups]]
  count = 2
  paths = [
    {path = "/dev/ttyUSB*"},
    {path = "/etc/x", type = "Mount", readOnly = true},
  ]
  [[devices.groups]]
  [[devices.groups.usb]]
  vendor = "1a86"
  product = "7523"

[[devices]]
name = "fuse"
groups = [{paths = [{path = "/dev/fuse"}]}]
'''
YAML = """
domain: x.io
log-level: warn
devices:
- name: serial
  health:
    open: true
    command: [sh, -c, "[ -e $DEVICE_PATH ] # not a comment, and no ] statement", 'a"{{[']
  groups:
  - count: 2
    paths: [{path: /dev/ttyUSB*}, {path: /etc/x, type: Mount, readOnly: true}]
  - usb: [{vendor: 1a86, product: "7523"}]
- {name: fuse, groups: [{paths: [{path: /dev/fuse}]}]}
"""


def test_toml_says_the_same_as_yaml(tmp_path: Path) -> None:
    for name, text in (("c.yaml", YAML), ("c.toml", TOML)):
        (tmp_path / name).write_text(text)
    expected = GenericSettings.of_file(tmp_path / "c.yaml")
    found = GenericSettings.of_file(tmp_path / "c.toml")
    assert expected == found
    assert (("x.io",), "warning") == (found.domain.names, found.log_level)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("count = 2", "cuont = 2", ["11: devices[0].groups[0].cuont: unknown key: did you mean"]),
        ('{path = "/etc', '{pth = "/etc', ["12: devices[0].groups[0].paths[1].pth: unknown key"]),
        ('"1a86"', "1209", ["18: devices[0].groups[1].usb[0].vendor: 1209 without quotes is"]),
        ('product = "7523"', "", ["17: devices[0].groups[1].usb[0]: product is missing"]),
        ('"fuse"', '"X"', ["22: devices[1].name: 'X' is not lower-case letters"]),
        ("health.open = true", "health.opne = 1", ["7: devices[0].health.opne: unknown key"]),
        ("/dev/fuse", "dev", ["23: devices[1].groups[0].paths[0].path: 'dev' is not absolute"]),
        ('"warn"', '"loud"', ["3: log-level: 'loud' is not one of debug"]),
        ("domain = ", "domain ", ["2: not valid: Expected '=' after a key"]),
        ("[[devices.groups.usb]]", "[devices.name]", ["17: not valid: "]),
    ],
)
def test_what_is_wrong_in_toml_is_told_with_its_line(
    tmp_path: Path, old: str, new: str, expected: list[str]
) -> None:
    file = tmp_path / "c.toml"
    file.write_text(TOML.replace(old, new, 1))
    done = subprocess.run([COMMAND, "check", file], capture_output=True, text=True, check=False)
    assert 2 == done.returncode
    starts = [f"generic-device-plugin: {file}:{text}" for text in expected]
    lines = done.stderr.splitlines()
    assert [True] * len(starts) == [
        line.startswith(start) for line, start in zip(lines, starts, strict=False)
    ], lines


def test_a_file_in_toml_is_taken(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text(TOML)
    done = subprocess.run([COMMAND, "check", file], capture_output=True, text=True, check=False)
    assert (0, f"{file}: valid\n", "") == (done.returncode, done.stdout, done.stderr)


PIECES = st.sampled_from(
    [
        *("[[devices]]\n", "[devices]\n", "[[devices.groups]]\n", "[x.'a.b']\n", "\n", "# [\n"),
        *('name = "ab"\n', "a.b = 1\n", "groups = [\n{paths = [\n]}]\n", "x = 2001-01-01\n"),
        *("y = '''\n[''''\n", 'z = """\\"""]"""\n', "n = nan\n", "v = {a = [[]], b = {}}\n"),
    ]
)


@settings(deadline=None)
@given(st.lists(PIECES | st.text(max_size=5)).map("".join))
@example("a" + ".a" * 5000 + " = 1")
@example("devices = " + "[" * 5000)
@example("devices = [{groups = " + "9" * 5000 + "}]")
def test_no_toml_makes_anything_but_settings_or_a_configuration_error(text: str) -> None:
    assert all(line.startswith("c.toml:") for line in faults(text))


def faults(text: str) -> list[str]:
    try:
        root = of_text(text, "c.toml", ".toml")
        with suppress(InvalidError):
            loading.read(root)
    except dp.ConfigError as error:
        return str(error).splitlines()
    return root.faults.lines
