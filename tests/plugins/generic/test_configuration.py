"""What the configuration may say, what is said of mistakes, and the schema for editors."""

import json
import re
import sys
from collections.abc import Callable
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
from deviceplugin_generic.configuration.entries import Check, Configuration, Entry, PathSpec, Rule
from deviceplugin_generic.configuration.loading import Devices, Domains

SCHEMA_FILE = Path(deviceplugin_generic.__file__).with_name("schema.json")
SCHEMA = json.loads(SCHEMA_FILE.read_text())

NAMED = "devices: [{name: ab, groups: [%s]}]\n"
PATHED = NAMED % "{paths: [{path: /x, %s}]}"
ENTRY = "devices: [{name: ab, groups: [{paths: [{path: /x}]}], %s}]\n"
RULES = "- {devicematch: '^ttyUSB', nummaxdevices: 1}\n"
JETSON = "- {devicematch: nvidia-gpu, nummaxdevices: 1}\n"
KVM = "device: [{name: kvm, groups: [{paths: [{path: /dev/kvm}]}]}]\n"
GOOD = [
    *("", KVM, RULES, JETSON, "overlap: first\n", "domain: [devic.es, squat.ai]\n"),
    '{"devices": [{"name": "kvm", "groups": [{"paths": [{"path": "/dev/kvm"}]}]}]}',
    "plugin-directory: /x\nlisten: :8080\nlog-level: warn\ndevices: []\n",
    "devices:\n- &a {name: ab, groups: [{paths: [{path: /x}]}]}\n- {<<: *a, name: cd}\n",
    NAMED % "{count: 0, usb: [{vendor: '0x1a86', product: '0X7'}]}",
    NAMED % "{paths: [{path: '/dev/[^a-c]*?', mountPath: /x/}]}",
    NAMED % "{count: unlimited, paths: [{path: /x, limit: 3}]}",
    NAMED % "{select: {subsystem: tty, vendor: '0403'}}",
    NAMED % "{select: {subsystem: pci}, nodes: [vfio]}",
    *(
        NAMED % group
        for group in (
            "{select: {subsystem: drm, not: {name: 'card*'}}}",
            "{select: {subsystem: drm, not: [{name: 'card*'}, {vendor: '1a03', driver: ast}]}}",
            "{select: {subsystem: drm, attributes: {physfn: null, x: '1'}, properties: {A: null}}}",
            "{select: {subsystem: pci}, nodes: [drm, {subsystem: sound, not: {name: a}}]}",
            "{select: {subsystem: pci}, nodes: [drm], with: [/dev/kfd, /dev/infiniband/rdma_cm]}",
            "{usb: [{vendor: a, product: b}], with: [/dev/vhost-net]}",
        )
    ),
    PATHED % "type: Mount, readOnly: true",
    PATHED % "mountPath: '/dev/{anything}{position}'",
    ENTRY % "id: port, policy: pack, health: {open: yes, timeout: 1.5s}",
    ENTRY % "env: {'A_{index}': '{{{serial}}}'}, cdi: ['a.b/c={index}']",
    ENTRY % "env: {'A_{resource}': x}, joinedEnv: {B: '{others},{uuid},{usb}{position}'}",
    ENTRY % "env: {'A{position}': '{position}'}, annotations: {'x.io/{position}': '{position}'}",
    ENTRY % "mounts: [{path: '/x/{id}', mountPath: '/y/{position}'}]",
]
VALID = "devices: [{name: ab, groups: [{paths: [{path: /dev/null}]}]}]\n"
GROUP = "devices[0].groups[0]"
QUOTES = "without quotes is a decimal number to some and hexadecimal to others: write"
NOT_HEX = "is not a hexadecimal number of four digits"
UNKNOWN_YET = "{position} is unknown until a container gets the device: use {index}"
DOTS = "has '..': write the path without it"
WORD = "as a part of a word: make it a word of its own, or read the variable"
NOT_THE_KERNELS = "where runtimes look for no devices: what is there is not the kernel's"
BAD = {
    "devices: [{nam: ab, groups: [{paths: [{path: /x}]}]}]\n": [
        "devices[0].nam: unknown key: did you mean 'name'?",
        "devices[0]: name is missing",
    ],
    NAMED % "{paths: [{path: /x}]}, count: 9": [
        "devices[0].groups[1]: is a count alone: put it into the braces of the group before it"
    ],
    "Devices: []\n": ["Devices: unknown key: did you mean 'devices'?"],
    NAMED % "{usb: [{vendor: 1209, product: 0407}]}": [
        f'{GROUP}.usb[0].vendor: 1209 {QUOTES} "1209"',
        f'{GROUP}.usb[0].product: 0407 {QUOTES} "0407"',
    ],
    NAMED % "{usb: [{vendor: zzzz, product: '12345'}]}": [
        f"{GROUP}.usb[0].vendor: 'zzzz' {NOT_HEX}",
        f"{GROUP}.usb[0].product: '12345' {NOT_HEX}",
    ],
    ENTRY % "health: {command: [check, '--device={path}', '{port}{port}']}": [
        f"devices[0].health.command[1]: '--device={{path}}' has {{path}} {WORD} DEVICE_PATH, which "
        "the command has",
        f"devices[0].health.command[2]: '{{port}}{{port}}' has {{port}} {WORD} DEVICE_PORT, which "
        "the command has",
    ],
    "device: []\ndevices: []\n": [
        "devices: means the same as device, which is there too: keep one of them"
    ],
    "- {deviceMatch: x, nummaxdevices: 1}\n": [
        "[0].deviceMatch: unknown key: did you mean 'devicematch'?",
        "[0]: devicematch is missing",
    ],
}
OF_GROUPS = {
    "{paths: [{path: /x}], usb: [{vendor: a, product: b}]}": ": needs one of paths, usb and "
    "select, not paths and usb",
    "{paths: [{path: dev/x}]}": ".paths[0].path: 'dev/x' is not absolute",
    "{paths: [{path: '/mnt/[x'}]}": ".paths[0].path: '/mnt/[x' is malformed: see its [ and \\",
    "{count: many, paths: [{path: /x}]}": ".count: 'many' is not a whole number from 0 to 100000, "
    "or unlimited",
    "{nodes: [tty], paths: [{path: /x}]}": ".nodes: is for usb and select only",
    "{paths: [{path: /x}], with: [/dev/kfd]}": ".with: is for usb and select only",
    "{select: {subsystem: drm, not: {}}}": ".select.not: is empty",
    "{select: {subsystem: drm, not: card}}": ".select.not: 'card' is not a mapping with keys, or a "
    "list",
    "{select: {subsystem: drm, not: [{subsystem: tty}]}}": ".select.not[0].subsystem: unknown key: "
    "known are name, vendor, product, serial, driver, class, link, properties, attributes, can",
    "{select: {subsystem: pci}, nodes: [{name: x}]}": ".nodes[0]: subsystem is missing",
    "{select: {subsystem: input, can: keyboards}}": ".select.can: 'keyboards' is not one of "
    "capture, card, codec, display, h264, hevc, joystick, keyboard, keys, midi, mjpeg, nv12, "
    "output, playback, pointer, render, touch, vp8, vp9, yuyv: did you mean 'keyboard'?",
    "{select: {subsystem: pci}, with: [kfd]}": ".with[0]: 'kfd' is not the path of one device node "
    "below /dev",
    "{limit: 9, paths: [{path: /dev/kvm}]}": ".limit: belongs into a path; for shares of each "
    "device of the group write count: 9",
    "{select: {subsystem: pci}, with: ['/dev/dri/*']}": ".with[0]: '/dev/dri/*' is not the path of "
    "one device node below /dev",
}
OF_PATHS = {
    "permissions: rwx": "permissions: 'rwx' is not of the letters m, r and w, each once",
    "type: Mount, permissions: r": "permissions: is for the type Device only; a mount has readOnly",
    "type: Mount, can: keys": "can: is for the type Device only",
    "readOnly: true": "readOnly: is for the type Mount only; a device has permissions",
    "mountPath: x": "mountPath: 'x' is not absolute",
    "mountPath: /dev/../etc/": f"mountPath: '/dev/../etc/' {DOTS}",
}
OF_ENTRIES = {
    "count: 9": "count: belongs into a group, as in groups: [{count: 9, ...}]",
    "env: {A: '{seral}'}": "env.A: {seral} is not a property of a device: did you mean 'serial'?",
    "joinedEnv: {A: '{resource}'}": "joinedEnv.A: {resource} is for the names of environment "
    "variables only",
    "env: {A: 'a}'}": "env.A: 'a}' has a brace without its other: write }} for itself",
    "cdi: ['a.b/c={position}']": f"cdi[0]: {UNKNOWN_YET}",
    "cdi: [gpu0]": "cdi[0]: 'gpu0' is not of the form vendor.com/class=name",
    "mounts: [{path: '/x/{position}'}]": f"mounts[0].path: {UNKNOWN_YET}",
    "mounts: [{path: '/srv/x-{serial}/../y'}]": f"mounts[0].path: '/srv/x-{{serial}}/../y' {DOTS}",
    "mounts: [{path: /x, mountPath: '/..'}]": f"mounts[0].mountPath: '/..' {DOTS}",
    **{
        f"mounts: [{{path: '{path}'}}]": f"mounts[0].path: '{path}' needs a directory before "
        "{serial}, such as /srv/{serial}: a device could name any directory in /"
        for path in ("/{serial}", "/./x{serial}/y", "//.{serial}")
    },
    "health: {command: [check, '{share}']}": "health.command[1]: {share} is unknown here: all "
    "shares of a device have one check",
    "health: {failures: 0}": "health.failures: 0 is not a whole number from 1 to 1000",
}
BAD |= {NAMED % keys: [f"{GROUP}{told}"] for keys, told in OF_GROUPS.items()}
BAD |= {PATHED % keys: [f"{GROUP}.paths[0].{told}"] for keys, told in OF_PATHS.items()}
BAD |= {ENTRY % keys: [f"devices[0].{told}"] for keys, told in OF_ENTRIES.items()}
ABLE = {
    "{select: {subsystem: input, can: [keys, render]}}": ": can: 'render' is not an ability of "
    "input, which has joystick, keyboard, keys, pointer, touch",
    "{select: {subsystem: input, not: {can: card}}}": ": can: 'card' is not an ability of input, "
    "which has joystick, keyboard, keys, pointer, touch",
    "{select: {subsystem: usb, can: mjpeg}}": ": can: 'mjpeg' is not an ability of usb, which has "
    "none; drm, input, sound, video4linux have some, also in nodes",
}
BEYOND_SCHEMA = {
    **{NAMED % keys: [f"{GROUP}.select{told}"] for keys, told in ABLE.items()},
} | {
    ENTRY % keys: [f"devices[0].{told}"]
    for keys, told in {
        "mounts: [{path: /dev/null}]": "mounts[0].path: '/dev/null' is a device node, which a "
        "container cannot open as a mount: use paths, or with beside select",
        'mounts: [{path: "/srv/\\0"}]': r"mounts[0].path: '/srv/\x00' has a zero byte",
        "mounts: [{path: '/srv/..{path}'}]": f"mounts[0].path: '/srv/..{{path}}' {DOTS}",
        "health: {command: ['{path}']}": "health.command[0]: {path} cannot be the program of a "
        "check",
        "health: {command: [bash, -ec, '{serial}']}": "health.command[2]: {serial} after -ec could "
        "be run as a program: read the variable DEVICE_SERIAL, which the command has",
        "env: {1: x, 'a=': y}": "env.a=: 'a=' cannot be a name",
        "env: {A: x, B: y}, joinedEnv: {B: y}": "joinedEnv: B is in env too: leave it out of one",
        "annotations: {'{resource}': a}": (
            "annotations.{resource}: {resource} is for the names of environment variables only"
        ),
    }.items()
}
STEADY = "{select: {subsystem: usb}, nodes: [{subsystem: sound, %s}]}], id: path, cdi: ["
BEYOND_SCHEMA |= {
    **{
        NAMED % (STEADY % key): [
            "devices[0]: id: path would make ids that change with what nodes can: leave id out"
        ]
        for key in ("can: midi", "not: {can: midi}")
    },
    NAMED % '{select: {subsystem: tty, attributes: {"a\\0": b}}}': [
        rf"{GROUP}.select.attributes.'a\x00': has a zero byte"
    ],
    **{
        PATHED.replace("/x", path) % more: [
            f"{GROUP}.paths[0].path: {path!r} is in {folder}, {NOT_THE_KERNELS}"
        ]
        for path, more, folder in (
            ("/dev/shm/x", "", "/dev/shm"),
            ("/dev/shm/*", "type: Mount", "/dev/shm"),
            ("/dev/pts", "", "/dev/pts"),
            ("//dev/x/../a/fd/3", "", "/dev/a/fd"),
        )
    },
    NAMED % "{usb: [{vendor: '1a86', product: '7523'}], with: [/dev/mqueue/x, /dev/a/../b]}": [
        f"{GROUP}.with[0]: '/dev/mqueue/x' is in /dev/mqueue, {NOT_THE_KERNELS}",
        f"{GROUP}.with[1]: '/dev/a/../b' {DOTS}",
    ],
    NAMED % "{paths: [{path: /x}]}]}, {name: ab, groups: [{paths: [{path: /y}]}": [
        "devices[1]: the name 'ab' is given twice"
    ],
    "- {devicematch: '(', nummaxdevices: 1}\n": [
        "[0].devicematch: '(' is not a regular expression of Go: missing ), unterminated "
        "subpattern at position 0"
    ],
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


def checked(capsys: pytest.CaptureFixture[str], file: Path, text: str) -> tuple[int, list[str]]:
    """Return exit status and errors of ``check`` for a file with ``text``."""
    file.write_text(text)
    status = deviceplugin_generic.check([str(file)])
    said = capsys.readouterr()
    assert said.out == ("" if status else f"{file}: valid\n")
    start = f"generic-device-plugin: {file}"
    return status, [line.removeprefix(start) for line in said.err.splitlines()]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "c.yaml"


def test_all_faults_are_told_at_once_with_file_line_and_key(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "devices:\n- name: serial\n  groups:\n  - pats: []\n- name: X\n  groups: 3\n"
    assert (
        2,
        [
            ":4: devices[0].groups[0].pats: unknown key: did you mean 'paths'?",
            ":4: devices[0].groups[0]: needs one of paths, usb and select",
            ":5: devices[1].name: 'X' is not lower-case letters, digits and hyphens, 2 to 63",
            ":6: devices[1].groups: 3 is not a list",
        ],
    ) == checked(capsys, file, text)


def test_what_is_left_out_of_a_valid_file_is_told(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reason = ":2: [1]: nvidia-gpu is not for this plugin: deploy the gpu plugin; skipped"
    assert (0, [reason]) == checked(capsys, file, RULES + JETSON)


def test_a_node_that_programs_do_not_find_under_another_name_is_told(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    renamed = (
        "{paths: [{path: /dev/dri/card1, mountPath: /dev/dri/card0}]}",
        "{select: {subsystem: drm, name: render*}, mountPath: /dev/dri/renderD128}",
        "{paths: [{path: /dev/dri, mountPath: /gpu}]}",
        "{paths: [{path: /dev/dri/by-path/pci-0000:03:00.0-card, mountPath: /dev/dri/card0}]}",
        "{select: {subsystem: pci}, nodes: [drm], mountPath: /gpu/}",
        "{usb: [{vendor: '18d1', product: '9302'}], mountPath: /dev/coral}",
        "{select: {subsystem: infiniband_verbs}, mountPath: /dev/infiniband/uverbs0}",
        "{paths: [{path: /dev/vfio/7, mountPath: /dev/vfio/0}]}",
    )
    kept = (
        "{paths: [{path: /dev/dri/card*, mountPath: /dev/dri/}, {path: /dev/dri/card0}]}",
        "{paths: [{path: /dev/ttyS0, mountPath: /dev/modem}]}",
        "{paths: [{path: /dev/dri, mountPath: /dri, type: Mount}]}",
        "{usb: [{vendor: '18d1', product: '9302'}], nodes: [tty], mountPath: /dev/stick}",
        "{select: {subsystem: pci}, nodes: [vfio], mountPath: /dev/vfio/}",
    )
    status, (_, *lines) = checked(capsys, file, NAMED % ", ".join(renamed + kept))
    assert 0 == status
    assert [
        ": ab: /dev/dri/card1 is /dev/dri/card0 in the container",
        ": ab: /dev/dri/render* is /dev/dri/renderD128 in the container",
        ": ab: /dev/dri is /gpu in the container",
        ": ab: /dev/dri/by-path/pci-0000:03:00.0-card is /dev/dri/card0 in the container",
        ": ab: /dev/dri/* is /gpu/ in the container",
        ": ab: /dev/bus/usb/*/* is /dev/coral in the container",
        ": ab: /dev/infiniband/* is /dev/infiniband/uverbs0 in the container",
        ": ab: /dev/vfio/7 is /dev/vfio/0 in the container",
    ] == [one.partition(" in the container: ")[0] + " in the container" for one in lines]


def test_a_check_says_which_abilities_take_a_plugin_that_may_open_cameras(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    groups = (
        "{select: {subsystem: video4linux, can: h264, not: {can: capture}}}",
        "{paths: [{path: /dev/video*, can: mjpeg}, {path: '/dev/dri/*', can: render}]}",
        "{select: {subsystem: sound, can: playback}}",
    )
    status, (_, line) = checked(capsys, file, NAMED % ", ".join(groups))
    told = ": ab: can: capture, h264, mjpeg is asked of each video node, which takes a plugin that"
    assert (0, True) == (status, line.startswith(told))


USB = "usb: [{vendor: 1a6e, product: 089a}]"


@pytest.mark.parametrize(
    ("identity", "group", "named"),
    [
        ("", USB, "a device"),
        ("id: path, ", "select: {subsystem: tty}", "a device"),
        ("", "paths: [{path: /dev/fuse, optional: true}, {path: '/dev/ttyACM*'}]", "/dev/ttyACM*"),
        ("", "paths: [{path: '/dev/bus/usb/001/*'}]", "/dev/bus/usb/001/*"),
        ("id: serial, ", USB, ""),
        ("id: port, ", "paths: [{path: '/dev/ttyACM*'}]", ""),
        ("", f"{USB}, nodes: [tty]", ""),
        ("", "select: {subsystem: tty}", ""),
        ("id: path, ", "select: {subsystem: drm}", ""),
        ("", "paths: [{path: /dev/serial/by-id/*}]", ""),
        ("", "paths: [{path: /dev/bus/usb/001, type: Mount}]", ""),
    ],
)
def test_an_id_that_changes_when_a_device_is_plugged_in_again_is_valid_and_told(
    file: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    identity: str,
    group: str,
    named: str,
) -> None:
    text = f"devices: [{{name: ab, {identity}groups: [{{{group}}}]}}]\n"
    status, lines = checked(capsys, file, text)
    what = f"ab: an id by path changes when {named} is plugged in again"
    assert (0, bool(named)) == (status, what in "".join(lines))
    GenericPlugin(GenericSettings.of_file(file))
    told = [record.getMessage() for record in caplog.records]
    assert ["configuration questionable"] * bool(named) == told


def test_quotes_that_no_shell_has_taken_away_are_told() -> None:
    with pytest.raises(dp.ConfigError, match=r"^is in quotes of its own: remove them, as a shell"):
        Devices.parse([f"'{{{'name: ab'}}}'"])


@pytest.mark.parametrize("words", [[], ["a", "b"], ["--x"]])
def test_the_check_is_of_one_file(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == deviceplugin_generic.check(words)
    assert "usage: generic-device-plugin check CONFIG\n" == capsys.readouterr().err


NOTHING = "has no key devices: add it; devices: [] means none"
REFUSED = {
    "": f"{{}}: {NOTHING}",
    "# only\n# comments\n": f"{{}}: {NOTHING}",
    "\ndomain: x.io\n": f"{{}}:2: {NOTHING}",
    VALID + "listen: 8080\n": "{}:2: listen: 8080 is not of the form host:port or :port, or off",
    VALID + "domian: x.io\n": "{}:2: domian: unknown key: did you mean 'domain'?",
    VALID + "domain: X\n": "{}:2: domain: 'X' is not lower-case labels with dots between",
    VALID + "overlap: all\n": "{}:2: overlap: 'all' is not one of allow, first, refuse",
}


@pytest.mark.parametrize(("text", "problem"), REFUSED.items())
def test_the_check_the_start_and_a_reload_refuse_the_same(
    file: Path,
    text: str,
    problem: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "argv", ["generic-device-plugin"])
    expected = problem.format(file)
    assert (2, [expected.removeprefix(str(file))]) == checked(capsys, file, text)
    with pytest.raises(SystemExit, match="2"):
        deviceplugin_generic.main([f"--config={file}", "--once"])
    assert f"generic-device-plugin: {expected}\n" == capsys.readouterr().err
    with pytest.raises(dp.ConfigError) as raised:
        GenericPlugin(GenericSettings.of_file(file))
    assert expected == str(raised.value)


EMPTY = [
    "domain: x.io\ndevices: []\n",
    "device: []\n",
    "[]",
    JETSON,
]


@pytest.mark.parametrize("text", EMPTY)
def test_an_empty_list_offers_nothing(
    file: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    file.write_text(text)
    plugin = GenericPlugin(GenericSettings.of_file(file))
    assert [] == list(plugin.discover())
    told = "entry skipped" if text == JETSON else "list of devices is empty"
    (record,) = caplog.records
    assert told == record.message
    assert text == JETSON or "explain" in record.__dict__["advice"]
    assert 0 == deviceplugin_generic.check([str(file)])


Printed = Callable[..., dict[str, Any]]


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Printed:
    """Return what runs the command with ``--print-config`` and returns the settings."""

    def run(*words: str, **environ: str) -> dict[str, Any]:
        with monkeypatch.context() as context:
            for name, value in environ.items():
                context.setenv(name, value)
            with pytest.raises(SystemExit) as ended:
                deviceplugin_generic.main([*words, "--print-config"])
        assert 0 == ended.value.code
        settings: dict[str, Any] = json.loads(capsys.readouterr().out)
        return settings

    return run


def test_an_empty_list_of_a_flag_or_a_variable_overrides_the_file(
    file: Path, printed: Printed
) -> None:
    file.write_text(VALID)
    config = f"--config={file}"
    assert ["null"] == printed(config, "--device=null")["device"]
    assert ["[]"] == printed(config, DP_DEVICE="[]")["device"]
    with pytest.raises(dp.ConfigError, match=r"^is empty: write \[\] for no devices, or leave it"):
        Devices.parse("")


def test_flags_replace_the_devices_of_the_file_and_nothing_else(
    file: Path, printed: Printed
) -> None:
    file.write_text("domain: x.io\nlisten: :1\nplugin-directory: /d\nlog-level: all\n" + KVM)
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


def test_the_default_file_is_read_where_no_other_is_named(
    file: Path, monkeypatch: pytest.MonkeyPatch, printed: Printed
) -> None:
    monkeypatch.setattr(deviceplugin_generic, "DEFAULT_CONFIG", file)
    file.write_text(f"domain: x.io\n{KVM}")
    found = printed()
    assert (["kvm"], "x.io") == (found["device"], found["domain"])
    other = file.with_name("other.yaml")
    other.write_text("domain: y.io\n")
    assert "y.io" == printed("--config", str(other))["domain"]


@pytest.mark.parametrize(
    ("words", "level"),
    [
        (["--plugin-directory", "/d", "--listen=:8080", "--log-level", "all"], "debug"),
        (["--plugin-directory=/d", "--listen", ":8080", "--log-level=warn"], "warning"),
        (["--plugin-directory=/d", "--listen=:8080", "--log-level", "none"], "error"),
        (["--plugin-directory=/d", "--listen=:8080", "--log-level=error"], "error"),
    ],
)
def test_flags_of_generic_device_plugin_are_known(
    printed: Printed, words: list[str], level: str
) -> None:
    found = printed(*words, "--domain", "squat.ai")
    keys = ("plugin-dir", "http-address", "log-level", "domain")
    assert ["/d", ":8080", level, "squat.ai"] == [found[key] for key in keys]
    assert "devic.es" == printed()["domain"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        *(
            (domain, f"{domain!r} is not lower-case labels with dots between")
            for domain in ("", "A.b", "a/b")
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


def test_all_of_a_check_and_of_a_path_is_understood() -> None:
    health = "{open: true, command: [a], interval: 1m, failures: 2, successes: 3, timeout: 5s}"
    keys = "mountPath: /b, permissions: r, limit: 2, optional: true"
    (entry,) = entries((PATHED % keys).replace("groups:", f"health: {health}, groups:"))
    assert entry.health == Check(
        open=True, command=("a",), interval=60, failures=2, successes=3, timeout=5
    )
    assert entry.groups[0].paths == (
        PathSpec("/x", mount_path="/b", permissions="r", limit=2, optional=True),
    )


def test_blanks_around_names_and_paths_do_not_count() -> None:
    path = "{path: ' /x ', mountPath: ' /y/ '}, {path: \"/z\\n\", mountPath: ' '}"
    (entry,) = entries(f"devices: [{{name: ' ab ', groups: [{{paths: [{path}]}}]}}]")
    assert "ab" == entry.name
    assert (PathSpec("/x", mount_path="/y/"), PathSpec("/z")) == entry.groups[0].paths


@pytest.mark.parametrize(
    "text",
    [
        NAMED % f"{{paths: [{{path: {'x' * 10_000}}}]}}",
        f"devices: [{{{'x' * 10_000}: 1, name: ab, groups: [{{paths: [{{path: /x}}]}}]}}]\n",
        VALID + f"domain: {'X' * 10_000}\n",
        f"- {{devicematch: '{'(' * 10_000}', nummaxdevices: 1}}\n",
    ],
    ids=["path", "key", "domain", "expression"],
)
def test_a_value_without_end_is_not_shown_whole(file: Path, text: str) -> None:
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
    found, _ = read(RULES)
    assert "smarter-devices" == found["domain"]
    expected = Configuration(rules=(Rule("^ttyUSB", 1),))
    assert expected == found["device"].configuration
    assert ["^ttyUSB"] == found["device"].write()
