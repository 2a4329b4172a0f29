"""What a device says of itself, such as a serial number, in paths, commands and CDI names."""

import posixpath
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import deviceplugin as dp
from deviceplugin._inventory.validation import device_problem
from deviceplugin_generic.configuration import templates
from deviceplugin_generic.configuration.entries import Check
from deviceplugin_generic.discovery.health import Checker
from deviceplugin_generic.discovery.matching import Match
from deviceplugin_testing.fixture import Kubelet
from discovered import found
from generic.plugin import Machine
from served.both_protocols import by_both

README = (Path(__file__).parents[3] / "plugins/generic/README.md").read_text(encoding="utf-8")
STICK = "1209:0001"
OTHER = "1209:0002"
OURS = {"id", "index", "name", "position", "share"}
KERNELS = {
    *("address", "basename", "driver", "group", "others", "path", "port", "product", "usb"),
    *("uuid", "vendor"),
}
HOSTILE = st.one_of(
    st.text(max_size=300),
    st.lists(st.sampled_from(["/", ".", "..", "etc", "\0", "{serial}", "%2F", "-", "\n"])).map(
        "".join
    ),
)


def entry(name: str, numbers: str, more: str) -> str:
    vendor, product = numbers.split(":")
    usb = f"{{vendor: '{vendor}', product: '{product}'}}"
    return f"{{name: {name}, id: serial, groups: [{{perMatch: true, usb: [{usb}]}}], {more}}}"


def mounted(path: str) -> str:
    return f"mounts: [{{path: {path!r}, mountPath: /data, readOnly: false}}]"


def test_each_field_is_the_kernels_or_ours_or_the_devices_own() -> None:
    assert templates.INSIDE.keys() == OURS | KERNELS | {"serial"}
    assert {"serial"} == templates.OWN


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("/srv{path}", "/srv/dev/bus/usb/001/002"),
        ("/srv//./{id}/", "/srv/hid-C1:1.0/hidraw1"),
        ("/srv/{basename}.{port}", "/srv/002.1-2.3"),
        ("/srv/{{{address}}}", "/srv/{0000:00:14.0}"),
        ("/srv/..{serial}", "/srv/..A 1"),
        ("/{path}", "/dev/bus/usb/001/002"),
        ("/", "/"),
    ],
)
def test_names_of_the_kernel_may_have_slashes(template: str, expected: str) -> None:
    known = {
        "path": "/dev/bus/usb/001/002",
        "basename": "002",
        "id": "hid-C1:1.0/hidraw1",
        "port": "1-2.3",
        "address": "0000:00:14.0",
        "serial": "A 1",
    }
    assert expected == templates.path(template, known)


ODD = "has control characters or unreadable bytes"


@pytest.mark.parametrize(
    ("template", "value", "reason"),
    [
        ("/srv/{serial}", "", "serial is empty"),
        ("/srv/.{serial}", ".", "serial '.' is not the name of a file"),
        ("/srv/{serial}", "a/b", "serial 'a/b' is not the name of a file"),
        ("/srv/{serial}", "a\x1b", rf"serial 'a\x1b' {ODD}"),
        ("/srv/{basename}", "a\udcff", rf"basename 'a\udcff' {ODD}"),
        ("/srv/{serial}", "é" * 128, f"serial {'é' * 40!r} has 256 bytes, of at most 255"),
        ("/srv/xy{serial}", "a" * 254, f"'/srv/xy{'a' * 33}' is not a path of a file"),
        ("/srv/{path}", "/dev/../x", "path '/dev/../x' is not the name of a file"),
        ("/srv/..{path}", "/dev/x", "'/srv/../dev/x' is not a path of a file"),
    ],
)
def test_what_would_lead_elsewhere_is_refused_with_its_template_and_value(
    template: str, value: str, reason: str
) -> None:
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - compared below
        templates.path(template, dict.fromkeys(("serial", "basename", "port", "path"), value))
    assert f"{template}: {reason}" == str(raised.value)


@given(st.sampled_from(["/srv/a/{serial}", "/srv/a/x{serial}/y", "/srv/a/{serial}{port}"]), HOSTILE)
@example("/srv/a/{serial}{port}", ".")
def test_no_path_leaves_the_directory_before_the_first_field(template: str, serial: str) -> None:
    values = {"serial": serial, "port": serial}
    try:
        path = templates.path(template, values)
    except ValueError:
        return
    assert path == posixpath.normpath(path)
    assert path.startswith("/srv/a/")
    assert template.count("/") == path.count("/")
    path.encode()


# Whole plugins.


@settings(
    max_examples=20,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
)
@given(HOSTILE)
@example("../../../../../")
@example("..")
@example("")
@example("a\0b")
@example("\udcff")
def test_a_hostile_serial_number_costs_its_own_device_only(machine: Machine, serial: str) -> None:
    stick = machine.sys / "devices/pci0000:00/0000:00:14.0/usb1/1-1"
    if not stick.exists():
        machine.usb("1-1", STICK, 2, serial="x")
        machine.usb("1-2", OTHER, 3, serial="GOOD")
    (stick / "serial").write_bytes(serial.encode(errors="surrogateescape"))
    machine.event()
    command = "health: {command: ['true', --, '{serial}']}"
    path = mounted("/srv/sticks/{serial}")
    plugin = machine.plugin(
        entry("aa", STICK, f"{path}, {command}"),
        entry("bb", OTHER, path),
        entry("cc", STICK, f"cdi: ['x.io/stick=s{{serial}}'], {path}"),
    )
    devices = list(plugin.discover())
    assert [""] * 3 == [device_problem(one) for one in devices]
    (good,) = (one for one in devices if one.resource == "squat.ai/bb")
    assert ["/srv/sticks/GOOD"] == [mount.host_path for mount in good.mounts]
    assert good.health
    for device in devices:
        paths = [posixpath.normpath(mount.host_path) for mount in device.mounts]
        assert ["/srv/sticks"] * len(paths) == [posixpath.dirname(path) for path in paths]
        assert bool(device.health) <= bool(paths)


SERIALS = {
    "0001A": "",
    "../../etc": "serial '../../etc' is not the name of a file",
    "..": "serial '..' is not the name of a file",
    "a\nb": r"serial 'a\nb' has control characters or unreadable bytes",
    "": "serial is empty",
}


def test_neither_kubelet_nor_claim_gets_a_mount_that_a_serial_number_leads_elsewhere(
    kubelet: Kubelet, machine: Machine
) -> None:
    for number, serial in enumerate(SERIALS, 1):
        machine.usb(f"1-{number}", STICK, number + 1, serial=serial)

    def plugin() -> dp.Plugin:
        return machine.plugin(entry("aa", STICK, mounted("/srv/sticks/{serial}")))

    devices = found(plugin())
    reasons = {str(one.attributes.get("serial", "")): one.health.reason for one in devices.values()}
    assert {one: reason.partition("}: ")[2] for one, reason in reasons.items()} == SERIALS
    assert f"\n{reasons['../../etc']}\n" in README
    with kubelet.running(plugin()) as node:
        node.wait_for("squat.ai/aa", {"aa-0001A"}, {*devices} - {"aa-0001A"})
        given_ = node.allocate("aa-0001A", resource="squat.ai/aa")
        assert ["/srv/sticks/0001A"] == [one.host_path for one in given_.mounts]
    with TemporaryDirectory(prefix="dp") as root:  # the path of a socket has 107 bytes at most
        expected, found_ = by_both(Path(root), plugin)
    assert expected == found_
    assert [{("/srv/sticks/0001A", "/data", False)}] == [one["mounts"] for one in found_.values()]


@pytest.mark.parametrize(
    ("more", "serial", "is_fine"),
    [
        ("cdi: ['x.io/a={serial}']", "a,x.io/a=all", False),
        ("annotations: {cdi.k8s.io/x: 'x.io/a={serial}'}", "a,x.io/a=all", False),
        ("cdi: ['x.io/a={serial}']", "A-1", True),
        ("annotations: {cdi.k8s.io/x: 'x.io/a={serial}', other: '{serial},'}", "A-1", True),
        ("annotations: {other: '{serial}'}", "a,b", True),
    ],
)
def test_a_serial_number_adds_no_cdi_device(
    machine: Machine, more: str, serial: str, is_fine: bool
) -> None:
    machine.usb("1-1", STICK, 2, serial=serial)
    (device,) = machine.plugin(entry("aa", STICK, more)).discover()
    reason = "x.io/a={serial}: 'x.io/a=a,x.io/a=all' is not a name of a CDI device"
    assert ("" if is_fine else reason) == device.health.reason
    assert "" == device_problem(device)


# Commands.


NULL = Match(nodes=(dp.DeviceNode("/dev/null"),), paths=("/dev/null",))
SAY = 'printf "%s " "$DEVICE_SERIAL" "$DEVICE_PATH" "$DEVICE_DRIVER" "$@" >&2; exit 1'


def verdict(serial: str, *words: str) -> str:
    known = {"serial": serial, "path": "/dev/null"}
    return Checker().health("a", NULL, Check(command=words), known).reason


@pytest.mark.parametrize("serial", ["x; touch F #", "$(id >F)", "`touch F`", "'\"\\", "a b\nc"])
def test_a_command_has_properties_as_words_and_as_variables(
    serial: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DEVICE_DRIVER", "of the plugin")
    said = " ".join(f"{serial} /dev/null {serial}".split())
    assert f"sh: exit status 1: {said}" == verdict(serial, "sh", "-c", SAY, "sh", "{serial}")
    assert [] == list(tmp_path.iterdir())


def test_the_command_in_the_readme_runs_no_serial_number(machine: Machine, tmp_path: Path) -> None:
    section = README.partition("## What a device says of itself")[2]
    text = section.partition("```yaml\n- ")[2].partition("```")[0].replace("\n  ", "\n")
    known = tmp_path / "known"
    known.write_text("0001A\n$(id)\n")
    for number, serial in enumerate(("0001A", "$(id)", f"; touch {tmp_path}/ran", "-v"), 1):
        stick = machine.usb(f"1-{number}", "10c4:ea60", number + 1, serial=serial)
        machine.behind_usb(stick, "1.0", "tty", f"ttyUSB{number}")
    plugin = machine.plugin(text.replace("/etc/sticks/known", str(known)))
    assert ["", "", "/bin/sh: exit status 1", "/bin/sh: exit status 1"] == [
        one.health.reason for one in plugin.discover()
    ]
    assert [known] == [path for path in tmp_path.iterdir() if path.is_file()]


def test_a_serial_number_is_no_option_of_a_command() -> None:
    reason = (
        "true: {serial}: serial '--help' could be an option: have the command read DEVICE_SERIAL, "
        "or write -- before it"
    )
    assert reason == verdict("--help", "true", "{serial}")
    assert "" == verdict("--help", "true", "--", "{serial}")
    assert "" == verdict("--help", "true")
    assert r"true: serial 'a\x00b' has a zero byte" == verdict("a\0b", "true")
