"""Configuration files in TOML: the same entries as in YAML, and faults with their lines."""

import sys
from pathlib import Path

import pytest

import deviceplugin as dp
from deviceplugin_generic import GenericSettings

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
        ("count = 2", "cuont = 2", "11: devices[0].groups[0].cuont: unknown key: did you mean"),
        ('"1a86"', "1209", "18: devices[0].groups[1].usb[0].vendor: 1209 without quotes is"),
        ('"fuse"', '"X"', "22: devices[1].name: 'X' is not lower-case letters"),
        ("/dev/fuse", "dev", "23: devices[1].groups[0].paths[0].path: 'dev' is not absolute"),
        ("domain = ", "domain ", "2: not valid: Expected '=' after a key"),
        ("[[devices.groups.usb]]", "[devices.name]", "17: not valid: "),
    ],
)
def test_what_is_wrong_in_toml_is_told_with_its_line(
    tmp_path: Path, old: str, new: str, expected: str
) -> None:
    file = tmp_path / "c.toml"
    file.write_text(TOML.replace(old, new, 1))
    with pytest.raises(dp.ConfigError) as raised:
        GenericSettings.of_file(file)
    assert str(raised.value).startswith(f"{file}:{expected}")
