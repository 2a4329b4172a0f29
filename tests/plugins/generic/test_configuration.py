"""What the configuration may say, what is said of mistakes, and the schema for editors."""

import json
import re
import subprocess
import sys
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

import deviceplugin as dp
import deviceplugin_generic
from deviceplugin.kit.configuration import InvalidError, of_text
from deviceplugin_generic import GenericPlugin, GenericSettings, schema
from deviceplugin_generic.configuration import loading
from deviceplugin_generic.configuration.entries import (
    UNLIMITED,
    Check,
    Configuration,
    Entry,
    Group,
    PathSpec,
    Rule,
    Selector,
    UsbSpec,
)
from deviceplugin_generic.configuration.loading import Devices, Domains

SCHEMA_FILE = Path(deviceplugin_generic.__file__).with_name("schema.json")
SCHEMA = json.loads(SCHEMA_FILE.read_text())
COMMAND = str(Path(sys.executable).with_name("generic-device-plugin"))

NAMED = "devices: [{name: ab, groups: [%s]}]\n"
PATHED = NAMED % "{paths: [{path: /x, %s}]}"
ENTRY = "devices: [{name: ab, groups: [{paths: [{path: /x}]}], %s}]\n"
GOOD = [
    "",
    "domain: example.com\n",
    "devices: []\n",
    "device: [{name: kvm, groups: [{paths: [{path: /dev/kvm}]}]}]\n",
    '{"devices": [{"name": "kvm", "groups": [{"paths": [{"path": "/dev/kvm"}]}]}]}',
    "plugin-directory: /x\nlisten: :8080\nlog-level: warn\ndevices: []\n",
    "devices: [{name: ab, groups: [{count: 0, usb: [{vendor: 1a86, product: '7523'}]}]}]\n",
    "devices: [{name: ab, groups: [{usb: [{vendor: '0x1a86', product: '0X7'}]}]}]\n",
    "devices: [{name: ab, groups: [{paths: [{path: '/dev/[^a-c]*?', mountPath: /x/}]}]}]\n",
    "devices: [{name: ab, groups: [{paths: [{path: /x, type: Mount, readOnly: true}]}]}]\n",
    "devices: [{name: ab, groups: [{count: unlimited, paths: [{path: /x, limit: 3}]}]}]\n",
    "devices: [{name: ab, groups: [{select: {subsystem: tty, vendor: '0403'}}], id: port}]\n",
    ENTRY % "env: {'A_{index}': '{{{serial}}}'}",
    ENTRY % "env: {'A{position}': '{position}'}, annotations: {'x.io/{position}': '{position}'}",
    ENTRY % "mounts: [{path: '/x/{id}', mountPath: '/y/{position}'}]",
    PATHED % "mountPath: '/dev/{anything}{position}'",
    "devices: [{name: ab, groups: [{select: {subsystem: pci}, nodes: [vfio]}], policy: pack}]\n",
    "devices: [{name: ab, groups: [{paths: [{path: /x}]}], health: {open: yes, timeout: 1.5s}}]\n",
    "devices: [{name: ab, groups: [{paths: [{path: /x}]}], cdi: ['a.b/c={index}']}]\n",
    "domain: [devic.es, squat.ai]\n",
    "devices: [{name: ' ab ', groups: [{paths: [{path: ' /x ', mountPath: ' /y/ '}]}]}]\n",
    "devices: [{name: ab, groups: [{paths: [{path: /x, mountPath: ' '}]}]}]\n",
    "x-y: 1\n".replace("x-y: 1", "overlap: first"),
    "- {devicematch: '^ttyUSB', nummaxdevices: 1}\n",
    "- {devicematch: nvidia-gpu, nummaxdevices: 1}\n",
    "devices:\n- &a {name: ab, groups: [{paths: [{path: /x}]}]}\n- {<<: *a, name: cd}\n",
]
VALID = "devices: [{name: ab, groups: [{paths: [{path: /dev/null}]}]}]\n"
GROUP = "devices[0].groups[0]"
BAD = {
    "devices: [{nam: ab, groups: [{paths: [{path: /x}]}]}]\n": [
        "devices[0].nam: unknown key: did you mean 'name'?",
        "devices[0]: name is missing",
    ],
    "devices: [null]\n": ["devices[0]: null is not a mapping with keys"],
    "devices: [{name: ab}]\n": ["devices[0]: groups is missing"],
    "devices: [{name: ab, groups: []}]\n": ["devices[0].groups: is empty"],
    "devices: [{name: a_b, groups: [{paths: [{path: /x}]}]}]\n": [
        "devices[0].name: 'a_b' is not lower-case letters, digits and hyphens, 2 to 63"
    ],
    NAMED % "{}": [f"{GROUP}: needs one of paths, usb and select"],
    NAMED % "{paths: [{path: /x}]}, count: 9": [
        "devices[0].groups[1]: is a count alone: put it into the braces of the group before it"
    ],
    ENTRY % "count: 9": ["devices[0].count: belongs into a group, as in groups: [{count: 9, ...}]"],
    "Devices: []\n": ["Devices: unknown key: did you mean 'devices'?"],
    **{
        f"apiVersion: v1\nkind: {kind}\n{more}": [
            f"is a Kubernetes object, a {kind}: its file is {where}; deviceplugin migrate reads "
            "whole manifests of other plugins"
        ]
        for kind, more, where in (
            ("ConfigMap", "data: {c.yaml: x}\n", "data['c.yaml']"),
            ("HelmRelease", "data: 3\n", "in a ConfigMap of it, or in its arguments"),
        )
    },
    NAMED % "{paths: [{path: /x}], usb: [{vendor: a, product: b}]}": [
        f"{GROUP}: needs one of paths, usb and select, not paths and usb"
    ],
    NAMED % "{paths: [{path: dev/x}]}": [f"{GROUP}.paths[0].path: 'dev/x' is not absolute"],
    NAMED % "{paths: [{path: '/mnt/[x'}]}": [
        f"{GROUP}.paths[0].path: '/mnt/[x' is malformed: see its [ and \\"
    ],
    NAMED % "{paths: [{path: '/mnt/[]x]'}]}": [
        f"{GROUP}.paths[0].path: '/mnt/[]x]' is malformed: see its [ and \\"
    ],
    PATHED % "type: mount": [
        f"{GROUP}.paths[0].type: 'mount' is not one of Device, Mount: did you mean 'Mount'?"
    ],
    PATHED % "permissions: rwx": [
        f"{GROUP}.paths[0].permissions: 'rwx' is not of the letters m, r and w, each once"
    ],
    PATHED % "type: Mount, permissions: r": [
        f"{GROUP}.paths[0].permissions: is for the type Device only; a mount has readOnly"
    ],
    PATHED % "readOnly: true": [
        f"{GROUP}.paths[0].readOnly: is for the type Mount only; a device has permissions"
    ],
    PATHED % "limit: -1": [f"{GROUP}.paths[0].limit: -1 is not a whole number from 0 to 100000"],
    PATHED % "mountPath: x": [f"{GROUP}.paths[0].mountPath: 'x' is not absolute"],
    NAMED % "{count: many, paths: [{path: /x}]}": [
        f"{GROUP}.count: 'many' is not a whole number from 0 to 100000, or unlimited"
    ],
    NAMED % "{nodes: [tty], paths: [{path: /x}]}": [f"{GROUP}.nodes: is for usb and select only"],
    NAMED % "{usb: [{vendor: 1209, product: 0407}]}": [
        f"{GROUP}.usb[0].vendor: 1209 without quotes is a decimal number to some and hexadecimal "
        'to others: write "1209"',
        f"{GROUP}.usb[0].product: 0407 without quotes is a decimal number to some and hexadecimal "
        'to others: write "0407"',
    ],
    NAMED % "{usb: [{vendor: zzzz, product: '12345'}]}": [
        f"{GROUP}.usb[0].vendor: 'zzzz' is not a hexadecimal number of four digits",
        f"{GROUP}.usb[0].product: '12345' is not a hexadecimal number of four digits",
    ],
    NAMED % "{usb: [{vendor: 1a86}]}": [f"{GROUP}.usb[0]: product is missing"],
    ENTRY % "id: name": ["devices[0].id: 'name' is not one of path, serial, port"],
    ENTRY % "env: {A: '{seral}'}": [
        "devices[0].env.A: {seral} is not a property of a device: did you mean 'serial'?"
    ],
    ENTRY % "env: {A: '{postion}'}": [
        "devices[0].env.A: {postion} is not a property of a device: did you mean 'position'?"
    ],
    ENTRY % "mounts: [{path: '/x/{position}'}]": [
        "devices[0].mounts[0].path: {position} is unknown until a container gets the device: "
        "use {index}"
    ],
    ENTRY % "cdi: ['a.b/c={position}']": [
        "devices[0].cdi[0]: {position} is unknown until a container gets the device: use {index}"
    ],
    ENTRY % "env: {A: 'a}'}": [
        "devices[0].env.A: 'a}' has a brace without its other: write }} for itself"
    ],
    ENTRY % "cdi: [gpu0]": ["devices[0].cdi[0]: 'gpu0' is not of the form vendor.com/class=name"],
    ENTRY % "mounts: [{path: '/srv/x-{serial}/../y'}]": [
        "devices[0].mounts[0].path: '/srv/x-{serial}/../y' has '..': write the path without it"
    ],
    ENTRY % "mounts: [{path: /x, mountPath: '/..'}]": [
        "devices[0].mounts[0].mountPath: '/..' has '..': write the path without it"
    ],
    **{
        ENTRY % f"mounts: [{{path: '{path}'}}]": [
            f"devices[0].mounts[0].path: '{path}' needs a directory before {{serial}}, such as "
            "/srv/{serial}: a device could name any directory in /"
        ]
        for path in ("/{serial}", "/./x{serial}/y", "//.{serial}")
    },
    PATHED % "mountPath: /dev/../etc/": [
        f"{GROUP}.paths[0].mountPath: '/dev/../etc/' has '..': write the path without it"
    ],
    ENTRY % "health: {command: [/bin/sh, -c, 'check {serial}']}": [
        "devices[0].health.command[2]: 'check {serial}' has {serial} as a part of a word: make it "
        "a word of its own, or read the variable DEVICE_SERIAL, which the command has"
    ],
    ENTRY % "health: {command: [check, '--device={path}', '{port}{port}']}": [
        "devices[0].health.command[1]: '--device={path}' has {path} as a part of a word: make it "
        "a word of its own, or read the variable DEVICE_PATH, which the command has",
        "devices[0].health.command[2]: '{port}{port}' has {port} as a part of a word: make it a "
        "word of its own, or read the variable DEVICE_PORT, which the command has",
    ],
    ENTRY % "health: {command: [check, '{share}']}": [
        "devices[0].health.command[1]: {share} is unknown here: all shares of a device have one "
        "check"
    ],
    ENTRY % "health: {timeout: 5}": [
        "devices[0].health.timeout: 5 is not a duration, such as 500ms, 30s or 1m30s"
    ],
    ENTRY % "health: {command: []}": ["devices[0].health.command: is empty"],
    ENTRY % "health: {failures: 0}": [
        "devices[0].health.failures: 0 is not a whole number from 1 to 1000"
    ],
    "device: []\ndevices: []\n": [
        "devices: means the same as device, which is there too: keep one of them"
    ],
    "- {devicematch: x}\n": ["[0]: nummaxdevices is missing"],
    "- {deviceMatch: x, nummaxdevices: 1}\n": [
        "[0].deviceMatch: unknown key: did you mean 'devicematch'?",
        "[0]: devicematch is missing",
    ],
}
BEYOND_SCHEMA = {
    ENTRY % 'mounts: [{path: "/srv/\\0"}]': [
        r"devices[0].mounts[0].path: '/srv/\x00' has a zero byte"
    ],
    ENTRY % "mounts: [{path: '/srv/..{path}'}]": [
        "devices[0].mounts[0].path: '/srv/..{path}' has '..': write the path without it"
    ],
    NAMED % '{select: {subsystem: tty, attributes: {"a\\0": b}}}': [
        rf"{GROUP}.select.attributes.'a\x00': has a zero byte"
    ],
    ENTRY % "health: {command: ['{path}']}": [
        "devices[0].health.command[0]: {path} cannot be the program of a check"
    ],
    ENTRY % "health: {command: [bash, -ec, '{serial}']}": [
        "devices[0].health.command[2]: {serial} after -ec could be run as a program: read the "
        "variable DEVICE_SERIAL, which the command has"
    ],
    **{
        NAMED % f"{{paths: [{{{keys}}}]}}": [
            f"{GROUP}.paths[0].path: {path!r} is in {folder}, where runtimes look for no devices: "
            "what is there is not the kernel's"
        ]
        for keys, path, folder in (
            ("path: /dev/shm/x", "/dev/shm/x", "/dev/shm"),
            ("path: /dev/shm/*, type: Mount", "/dev/shm/*", "/dev/shm"),
            ("path: /dev/pts", "/dev/pts", "/dev/pts"),
            ("path: //dev/x/../a/fd/3", "//dev/x/../a/fd/3", "/dev/a/fd"),
        )
    },
    NAMED % "{usb: [{vendor: '1a86', product: '7523'}], with: [/dev/mqueue/x, /dev/a/../b]}": [
        f"{GROUP}.with[0]: '/dev/mqueue/x' is in /dev/mqueue, where runtimes look for no devices: "
        "what is there is not the kernel's",
        f"{GROUP}.with[1]: '/dev/a/../b' has '..': write the path without it",
    ],
    "devices: [{name: ab, groups: [{paths: [{path: /x}]}]}, {name: ab, groups: "
    "[{paths: [{path: /y}]}]}]\n": ["devices[1]: the name 'ab' is given twice"],
    "- {devicematch: '(', nummaxdevices: 1}\n": [
        "[0].devicematch: '(' is not a regular expression of Go: missing ), unterminated "
        "subpattern at position 0"
    ],
    '- {"\\r\\v": 1}\n': [
        "[0].'\\r\\x0b': unknown key: known are devicematch, nummaxdevices",
        "[0]: devicematch is missing",
        "[0]: nummaxdevices is missing",
    ],
    ENTRY % "env: {1: x, 'a=': y}": ["devices[0].env.a=: 'a=' cannot be a name"],
}


def read(text: str) -> tuple[dict[str, Any], list[str]]:
    """Return the settings in a text, and what is wrong with it, by the key."""
    try:
        root = of_text(text, "c.yaml")
    except dp.ConfigError as error:
        return {}, _keys(str(error).splitlines())
    found: dict[str, Any] = {}
    with suppress(InvalidError):
        found = dict(loading.read(root))
    return found, _keys(root.faults.lines)


def _keys(lines: list[str]) -> list[str]:
    return [re.sub("^c.yaml: (line [0-9]+: )?", "", line) for line in lines]


def faults(text: str) -> list[str]:
    return read(text)[1]


def entries(text: str) -> tuple[Entry, ...]:
    found = read(text)[0]["device"]
    assert isinstance(found, Devices)
    return found.configuration.entries


@pytest.mark.parametrize("text", GOOD)
def test_what_is_well_is_taken(text: str) -> None:
    assert [] == faults(text)


@pytest.mark.parametrize(("text", "expected"), [*BAD.items(), *BEYOND_SCHEMA.items()])
def test_what_is_wrong_is_told_with_its_key(text: str, expected: list[str]) -> None:
    assert expected == faults(text)


@pytest.mark.parametrize("text", [*GOOD, *BAD])
def test_the_schema_and_the_parser_agree(text: str) -> None:
    assert (text in GOOD) == Draft202012Validator(SCHEMA).is_valid(yaml.safe_load(text))


def test_the_schema_knows_every_setting() -> None:
    known = SCHEMA["anyOf"][0]["properties"]
    assert {one.name.replace("_", "-") for one in fields(GenericSettings)} <= set(known)


def test_the_schema_that_is_published_is_the_one_of_the_code() -> None:
    assert schema.text() == SCHEMA_FILE.read_text(), "stale: run make generate"


def checked(*words: object) -> tuple[int, str, list[str]]:
    """Return exit status, output and errors of ``check``."""
    done = subprocess.run(
        [COMMAND, "check", *map(str, words)], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr.splitlines()


def test_all_faults_are_told_at_once_with_file_line_and_key(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("devices:\n- name: serial\n  groups:\n  - pats: []\n- name: X\n  groups: 3\n")
    told = [
        ":4: devices[0].groups[0].pats: unknown key: did you mean 'paths'?",
        ":4: devices[0].groups[0]: needs one of paths, usb and select",
        ":5: devices[1].name: 'X' is not lower-case letters, digits and hyphens, 2 to 63",
        ":6: devices[1].groups: 3 is not a list",
    ]
    assert (2, "", [f"generic-device-plugin: {file}{one}" for one in told]) == checked(file)


def test_what_is_left_out_of_a_valid_file_is_told(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(GOOD[-3] + GOOD[-2])
    reason = f"{file}:2: [1]: nvidia-gpu is not for this plugin: deploy the gpu plugin; skipped"
    assert (0, f"{file}: valid\n", [f"generic-device-plugin: {reason}"]) == checked(file)


def test_a_drm_node_with_another_name_is_valid_and_told(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    renamed = (
        "{paths: [{path: /dev/dri/card1, mountPath: /dev/dri/card0}]}",
        "{select: {subsystem: drm, name: render*}, mountPath: /dev/dri/renderD128}",
    )
    kept = (
        "{paths: [{path: /dev/dri/card*, mountPath: /dev/dri/}, {path: /dev/dri/card0}]}",
        "{paths: [{path: /dev/ttyUSB0, mountPath: /dev/modem}]}",
        "{paths: [{path: /dev/dri, mountPath: /dri, type: Mount}]}",
    )
    file.write_text(NAMED % ", ".join(renamed + kept))
    status, out, lines = checked(file)
    assert (0, f"{file}: valid\n") == (status, out)
    start = f"generic-device-plugin: {file}: ab: "
    assert [
        f"{start}/dev/dri/card1 is /dev/dri/card0 in the container",
        f"{start}/dev/dri/render* is /dev/dri/renderD128 in the container",
    ] == [one.partition(": libdrm looks")[0] for one in lines]


def test_quotes_that_no_shell_has_taken_away_are_told() -> None:
    with pytest.raises(dp.ConfigError, match=r"^is in quotes of its own: remove them, as a shell"):
        Devices.parse([f"'{{{'name: ab'}}}'"])


@pytest.mark.parametrize("words", [[], ["a", "b"], ["--x"]])
def test_the_check_is_of_one_file(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == deviceplugin_generic.check(words)
    assert "usage: generic-device-plugin check CONFIG\n" == capsys.readouterr().err


NOTHING = "no devices: name them with --device, or in a file with --config"
REFUSED = {
    "": f"{{}}: {NOTHING}",
    "# nothing but a comment\n": f"{{}}: {NOTHING}",
    "\ndomain: x.io\n": f"{{}}:2: {NOTHING}",
    VALID + "listen: 8080\n": "{}:2: listen: 8080 is not of the form host:port or :port, or off",
    VALID + "domian: x.io\n": "{}:2: domian: unknown key: did you mean 'domain'?",
    VALID + "domain: X\n": "{}:2: domain: 'X' is not lower-case labels with dots between",
    VALID
    + "log-level: loud\n": "{}:2: log-level: 'loud' is not one of debug, info, warning, error",
    VALID + "plugin-directory: x\n": "{}:2: plugin-directory: 'x' is not an absolute path",
    VALID + "overlap: all\n": "{}:2: overlap: 'all' is not one of allow, first, refuse",
    VALID + "poll-interval: 5\n": "{}:2: poll-interval: 5 is not a duration above zero, such as "
    "30s, 1m30s or 24h",
}


@pytest.mark.parametrize(("text", "problem"), REFUSED.items())
def test_the_check_the_start_and_a_reload_refuse_the_same(
    tmp_path: Path,
    text: str,
    problem: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "argv", ["generic-device-plugin"])
    file = tmp_path / "c.yaml"
    file.write_text(text)
    expected = problem.format(file)
    assert 2 == deviceplugin_generic.check([str(file)])
    with pytest.raises(SystemExit, match="2"):
        deviceplugin_generic.main([f"--config={file}", "--once"])
    assert [f"generic-device-plugin: {expected}"] * 2 == capsys.readouterr().err.splitlines()
    with pytest.raises(dp.ConfigError) as raised:
        GenericPlugin(GenericSettings.of_file(file))
    assert expected == str(raised.value)


EMPTY = [
    "domain: x.io\ndevices: []\n",
    "domain: x.io\ndevices:\n",
    "device: []\n",
    "{devices: null, overlap: null, domain: null}",
    "[]",
    "- {devicematch: nvidia-gpu, nummaxdevices: 1}\n",
]


@pytest.mark.parametrize("text", EMPTY)
def test_an_empty_list_offers_nothing(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(text)
    plugin = GenericPlugin(GenericSettings.of_file(file))
    assert [] == list(plugin.discover())
    is_told = {"nvidia" in text: "entry skipped", "nvidia" not in text: "list of devices is empty"}
    assert [is_told[True]] == [one.message for one in caplog.records]
    assert 0 == deviceplugin_generic.check([str(file)])


def test_an_empty_list_of_a_flag_or_a_variable_overrides_the_file(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(VALID)
    config = f"--config={file}"
    assert ["null"] == printed(config, "--device=null")["device"]
    assert ["[]"] == printed(config, DP_DEVICE="[]")["device"]
    command = [COMMAND, config, "--once"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={"DP_DEVICE": ""}
    )
    expected = "DP_DEVICE: is empty: write [] for no devices, or leave it out"
    assert (2, f"generic-device-plugin: environment variable {expected}\n") == (
        done.returncode,
        done.stderr,
    )


def printed(*words: str, **environ: str) -> dict[str, Any]:
    command = [COMMAND, *words, "--print-config"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environ)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_flags_replace_the_devices_of_the_file_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("domain: x.io\nlisten: :1\nplugin-directory: /d\nlog-level: all\n" + GOOD[3])
    config = f"--config={file}"
    found = printed(config)
    assert (["kvm"], "x.io", ":1") == (found["device"], found["domain"], found["http-address"])
    assert ("/d", "debug") == (found["plugin-dir"], found["log-level"])
    one, two = (f"{{name: {name}, groups: [{{paths: [{{path: /x}}]}}]}}" for name in ("aa", "bb"))
    words = (f"--device={one}", "--device", two, "--domain=x.io", "--domain=y.io")
    found = printed(config, *words)
    assert ([one, two], ["x.io", "y.io"]) == (found["device"], found["domain"])
    found = printed(config, DP_DEVICE=f"[{one}, {two}]", DP_DOMAIN="x.io,y.io")
    assert ([f"[{one}, {two}]"], ["x.io", "y.io"]) == (found["device"], found["domain"])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        *(
            (domain, f"{domain!r} is not lower-case labels with dots between")
            for domain in ("", "A.b", "a..b", "-a", "a/b")
        ),
        (["a.b", "X"], "'X' is not lower-case labels with dots between"),
        (["a.b", "a.b"], "'a.b' is given twice"),
        *(
            (one, f"{one!r}: kubernetes.io/ and requests. are reserved by Kubernetes")
            for one in ("kubernetes.io", "x.kubernetes.io", "requests.x")
        ),
        ([], "a domain, or a list of domains, belongs here"),
        ([1], "a domain, or a list of domains, belongs here"),
    ],
)
def test_domains_are_checked(value: object, expected: str) -> None:
    assert ("a.b", "c.d", "e.f") == Domains.parse(["a.b, c.d", "e.f"]).names
    with pytest.raises(dp.ConfigError) as raised:
        Domains.parse(value)
    assert expected == str(raised.value)


def test_everything_is_understood() -> None:
    text = """
        devices:
        - name: all
          id: port
          policy: pack
          health: {open: true, command: [a], interval: 1m, failures: 2, properties: {A: b*}}
          groups:
          - count: unlimited
            paths: [{path: /a, mountPath: /b, permissions: r, limit: 2, optional: true}]
          - usb: [{vendor: 1a86, product: "7523", serial: s}]
          - usb: [{vendor: 1a86, product: "7523"}]
            nodes: [tty]
            mountPath: /dev/zigbee
          - select: {subsystem: tty, class: "03", vendor: "0403"}
            perMatch: false
            permissions: r
        """
    (entry,) = entries(text)
    health = Check(open=True, command=("a",), interval=60, failures=2, properties={"A": "b*"})
    assert ("port", "pack", health) == (entry.identity, entry.policy, entry.health)
    usb = UsbSpec(0x1A86, 0x7523)
    assert (
        Group(
            count=UNLIMITED,
            paths=(PathSpec("/a", mount_path="/b", permissions="r", limit=2, optional=True),),
            per_match=False,
        ),
        Group(usb=(UsbSpec(0x1A86, 0x7523, "s"),), per_match=False),
        Group(usb=(usb,), nodes=("tty",), mount_path="/dev/zigbee"),
        Group(
            select=Selector("tty", pci_class="03", vendor=0x403), per_match=False, permissions="r"
        ),
    ) == entry.groups


def test_blanks_around_names_and_paths_do_not_count() -> None:
    path = "{path: ' /x ', mountPath: ' /y/ '}, {path: \"/z\\n\", mountPath: ' '}"
    (entry,) = entries(f"devices: [{{name: ' ab ', groups: [{{paths: [{path}]}}]}}]")
    assert "ab" == entry.name
    assert (PathSpec("/x", mount_path="/y/"), PathSpec("/z")) == entry.groups[0].paths


@pytest.mark.parametrize(
    "text",
    [
        NAMED % f"{{count: {'9' * 10_000}, paths: [{{path: /x}}]}}",
        NAMED % f"{{paths: [{{path: {'x' * 10_000}}}]}}",
        f"devices: [{{{'x' * 10_000}: 1, name: ab, groups: [{{paths: [{{path: /x}}]}}]}}]\n",
        VALID + f"domain: {'X' * 10_000}\n",
        f"- {{devicematch: '{'(' * 10_000}', nummaxdevices: 1}}\n",
    ],
    ids=lambda text: text[:40],
)
def test_a_value_without_end_is_not_shown_whole(tmp_path: Path, text: str) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(text)
    with pytest.raises(dp.ConfigError) as raised:
        GenericSettings.of_file(file)
    (line,) = str(raised.value).splitlines()
    assert len(line) < 1000
    assert line.startswith(f"{file}:")


def test_a_flag_without_end_is_not_shown_whole() -> None:
    for parse in (Domains.parse, Devices.parse):
        with pytest.raises(dp.ConfigError) as raised:
            parse(["name: " + "X" * 10_000])
        assert len(str(raised.value)) < 1000


def test_a_file_of_smarter_device_manager_is_understood() -> None:
    found, _ = read(GOOD[-3])
    assert "smarter-devices" == found["domain"]
    expected = Configuration(rules=(Rule("^ttyUSB", 1),))
    assert expected == found["device"].configuration
    assert ["^ttyUSB"] == found["device"].write()


@pytest.mark.parametrize(
    "text",
    [
        *("? [a]\n: b\n", "devices: [{<<: 5}]", "devices: " + "[" * 500, "\0"),
        *("log-level: 2001-99-99", "domain: !!python/none x"),
        "devices: [{name: ab, groups: [{count: " + "9" * 5000 + "}]}]",
    ],
    ids=range(7),
)
def test_an_odd_text_is_at_most_a_configuration_error(text: str) -> None:
    assert all(faults(text))
    with suppress(dp.ConfigError):
        Devices.parse([text])
