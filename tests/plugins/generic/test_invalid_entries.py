"""One wrong entry among others: what is offered, what stays reserved, and who says so."""

import json
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

import deviceplugin as dp
import deviceplugin_generic
from deviceplugin._config.loading import load
from deviceplugin.checks import Node, Verdict
from deviceplugin.kit.configuration import of_text
from deviceplugin.tools.agent._cli import main as device_plugins
from deviceplugin.tools.doctor.checks import _plugin
from deviceplugin.tools.events._notice import read_facts
from deviceplugin_generic import GenericPlugin, GenericSettings, doctor
from deviceplugin_generic.configuration import entry_lists
from deviceplugin_testing.conformance._subject import free_port
from deviceplugin_testing.fixture import Kubelet
from deviceplugin_testing.simulator import Pod
from discovered import found
from generic.plugin import Machine
from hardware.namespaces import unshared
from patience import PATIENCE
from plugin_process import Process, run, started

BOTH = {"ttyUSB0", "ttyUSB1"}
LATE = "{name: late, groups: [{paths: [{path: DEV/ttyUSB*}]}]}"


@pytest.fixture
def serial(machine: Machine) -> Machine:
    """Two adapters: 1a86:7523 is ttyUSB0, and 0403:6001 is ttyUSB1."""
    for number, kind in enumerate(("1a86:7523", "0403:6001")):
        adapter = machine.usb(f"1-{number + 1}", kind, number + 5, serial=f"S{number}")
        machine.behind_usb(adapter, "1.0", "tty", f"ttyUSB{number}")
    return machine


def lenient(file: Path, text: str, **flags: str) -> GenericSettings:
    """Return the settings of a process with a file that has ``text``."""
    file.write_text(text)
    given = {"on-invalid-entry": "skip", "domain": "x.io", **flags}
    return load(GenericSettings, flags=given, file=file, environ={}, lenient=True)


@pytest.mark.parametrize(
    ("wrong", "left"),
    [
        ("{name: aa, groups: [{paths: [{path: DEV/ttyUSB0, limti: 2}]}]}", {"ttyUSB1"}),
        ("{name: aa, groups: [{paths: [DEV/ttyUSB0]}]}", {"ttyUSB1"}),
        ("{name: aa, groups: [{Paths: [{Path: DEV/ttyUSB0}]}]}", {"ttyUSB1"}),
        ("{name: aa, paths: [{path: DEV/ttyUSB0}]}", {"ttyUSB1"}),
        ("{name: aa, groups: {paths: {path: DEV/ttyUSB0}}}", {"ttyUSB1"}),
        ("{name: NO_NAME, groups: [{paths: [{path: DEV/ttyUSB0}]}]}", {"ttyUSB1"}),
        ("{groups: [{paths: [{path: DEV/ttyUSB0}]}]}", {"ttyUSB1"}),
        ("{name: {a: b}, groups: [{paths: [{path: DEV/ttyUSB0}]}]}", {"ttyUSB1"}),
        ("{name: late, groups: [{paths: [{path: DEV/ttyUSB0}]}], policy: x}", {"ttyUSB1"}),
        ("{name: aa, groups: [{usb: [{vendor: 1a86, product: 7523}]}]}", {"ttyUSB1"}),
        ("{name: aa, groups: [{usb: [{vendor: 1a86, prodct: '7523'}]}]}", {"ttyUSB1"}),
        ("{name: aa, cuont: 1, groups: [{usb: [{vendor: 1a86, product: '7523'}]}]}", {"ttyUSB1"}),
        ("{name: aa, groups: [{select: {subsystem: tty, vendor: 1a86, x: 1}}]}", {"ttyUSB1"}),
        ("{name: aa, cdi: x, groups: [{select: {subsystem: tty, name: ttyUSB0}}]}", {"ttyUSB1"}),
        ("{name: aa, groups: [{select: {subsystem: tty, name: '['}}]}", set[str]()),
        ("{name: aa, groups: [{usb: [{vendor: 1027, product: 24577}]}]}", {"ttyUSB0"}),
        ("{name: aa, groups: [{usb: [{vendor: 0403, product: 6001}]}]}", {"ttyUSB0"}),
        ("{name: aa, groups: [{select: {subsystem: tty, vendor: 1a86, can: touch}}]}", {"ttyUSB1"}),
        ("{name: aa, groups: [{select: {subsystem: tty, vendor: 1a86, can: x}}]}", {"ttyUSB1"}),
        ("{name: aa, groups: [{paths: [{path: DEV/ttyUSB0, can: x, type: Y}]}]}", {"ttyUSB1"}),
        ("{name: aa, groups: [{usb: [{product: []}], select: {vendor: 1a86}}]}", BOTH),
        ("{name: aa, groups: [{paths: [{path: ttyUSB0}], select: 7}]}", BOTH),
        ("just a string", BOTH),
        ("null", BOTH),
    ],
)
def test_what_a_wrong_entry_may_match_is_reserved(
    serial: Machine, tmp_path: Path, wrong: str, left: set[str]
) -> None:
    text = f"devices:\n- {wrong}\n- {LATE}\n".replace("DEV", str(serial.dev))
    for overlap, healthy in (("first", left), ("refuse", left), ("allow", BOTH)):
        plugin = GenericPlugin(lenient(tmp_path / "c.yaml", text, overlap=overlap), serial.roots)
        devices = found(plugin).values()
        assert {"x.io/late"} >= {device.resource for device in devices}
        assert healthy == {Path(one.nodes[0].host_path).name for one in devices if one.health}
        (problem,) = plugin.invalid_entries
        assert f"{tmp_path}/c.yaml:2: devices[0]" in problem


@pytest.mark.parametrize(
    "nodes", ["nodes: [vf/io]", "nods: [vfio]", "nodes: [vfio], x: 1", "nodes: {subsystem: x/}"]
)
def test_an_iommu_group_of_a_wrong_entry_is_given_to_no_other(
    machine: Machine, tmp_path: Path, nodes: str
) -> None:
    for address, kind in (("0000:01:00.0", "10de:1eb8"), ("0000:01:00.1", "8086:22bd")):
        machine.pci(address, kind, "030000", group="1", driver="vfio-pci")
    machine.vfio("1")
    select = "{name: %s, groups: [{select: {subsystem: pci, vendor: '%s'}, %s}]}"
    wrong, right = select % ("aa", "10de", nodes), select % ("bb", "8086", "nodes: [vfio]")
    for text, lets in ((f"[{wrong}, {right}]", ()), (f"[{right}, {wrong}]", ("allow", "first"))):
        for overlap in ("allow", "first", "refuse"):
            settings = lenient(tmp_path / "c.yaml", f"devices: {text}", overlap=overlap)
            found = [one for one in GenericPlugin(settings, machine.roots).discover() if one.health]
            assert (overlap in lets) == bool(found)


@pytest.mark.parametrize("nodes", ["[{subsystem: drm, nme: x}]", "[{subsystem: drm}, {}]"])
def test_nodes_of_a_wrong_entry_are_reserved(machine: Machine, tmp_path: Path, nodes: str) -> None:
    machine.pci("0000:01:00.0", "10de:1eb8", "030000", group="1", driver="nvidia")
    machine.device("pci0000:00/0000:01:00.0/drm/card0", "drm", node="dri/card0")
    wrong = f"{{name: aa, groups: [{{select: {{subsystem: pci}}, nodes: {nodes}}}]}}"
    right = "{name: bb, groups: [{select: {subsystem: drm}}]}"
    for text, count in ((f"[{wrong}, {right}]", 0), (f"[{right}, {wrong}]", 1)):
        file = tmp_path / "c.yaml"
        settings = lenient(file, f"devices: {text}", overlap="first")
        assert count == len([*GenericPlugin(settings, machine.roots).discover()])


def test_an_entry_before_a_wrong_one_keeps_its_devices(machine: Machine, tmp_path: Path) -> None:
    one, other = (
        f"{{name: {name}, groups: [{{paths: [{{path: /dev/null}}]}}]}}" for name in ("aa", "aa")
    )
    settings = lenient(tmp_path / "c.yaml", f"devices: [{one}, {other}]", overlap="first")
    plugin = GenericPlugin(settings, machine.roots)
    assert ["x.io/aa"] == [device.resource for device in plugin.discover()]
    (problem,) = plugin.invalid_entries
    assert problem.endswith("devices[1]: the name 'aa' is given twice")


def test_a_wrong_rule_of_smarter_device_manager_reserves_what_it_matches(
    machine: Machine, tmp_path: Path
) -> None:
    for name in ("video0", "video1"):
        (machine.dev / name).symlink_to("/dev/null")
    rules = [
        {"devicematch": "^video0$", "nummaxdevices": -1},
        {"devicematch": "(", "nummaxdevices": 1},
        {"nummaxdevices": 1},
        {"devicematch": "^video", "nummaxdevices": 1},
    ]
    plugin = GenericPlugin(lenient(tmp_path / "c.yaml", json.dumps(rules)), machine.roots)
    assert ["x.io/video1"] == [device.resource for device in plugin.discover()]
    assert 3 == len(plugin.invalid_entries)


@pytest.mark.parametrize(
    "text",
    [
        "devices: [",
        f"[{', '.join(['7'] * 5001)}]",
        "devices: 7",
        "overlap: x\ndevices: [{name: X}]",
        "devises: []",
        "[" * 1000,
    ],
)
def test_what_is_wrong_besides_entries_fails_in_any_case(tmp_path: Path, text: str) -> None:
    with pytest.raises(dp.ConfigError):
        lenient(tmp_path / "c.yaml", text)


@pytest.mark.slow
def test_a_thousand_wrong_entries_are_some_lines(
    machine: Machine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "c.yaml"
    wrong = "- {name: X, groups: [], a: 1, b: 2}\n" * 1000
    good = entry("ok", "/dev/null")
    text = f"on-invalid-entry: skip\ndevices:\n{wrong}- {good}\n"
    plugin = GenericPlugin(lenient(file, text), machine.roots)
    assert ["x.io/ok"] == [device.resource for device in plugin.discover()]
    assert 1000 == len(plugin.invalid_entries)
    assert max(map(len, plugin.invalid_entries)) < 1000
    assert 2 == deviceplugin_generic.check([str(file)])
    said = capsys.readouterr().err.splitlines()
    assert (101, f"{file}: 3900 more") == (len(said), said[-1].partition(": ")[2])


def test_flags_are_entries_too_and_their_numbers_are_hexadecimal() -> None:
    good = "{name: coral, groups: [{usb: [{vendor: 1a6e, product: 9302}]}]}"
    octal = "[{name: arduino, groups: [{usb: [{vendor: 0403, product: '6001'}]}]}]"
    flags: dict[str, str | list[str]]
    flags = {"device": [good, octal], "on-invalid-entry": "skip"}
    settings = load(GenericSettings, flags=flags, environ={}, lenient=True)
    coral, wrong = settings.device.configuration.entries
    assert 0x9302 == coral.groups[0].usb[0].product
    told = "0403 without quotes is a decimal number to some and hexadecimal to others: write"
    assert told in wrong.problem
    with pytest.raises(dp.ConfigError, match=f"^--device: .*{told}"):
        load(GenericSettings, flags={"device": [good, octal]}, environ={}, lenient=True)
    with pytest.raises(dp.ConfigError, match=told):
        load(GenericSettings, flags=flags, environ={})
    flags["device"] = [f"'{good}'"]
    with pytest.raises(dp.ConfigError, match="is in quotes of its own"):
        load(GenericSettings, flags=flags, environ={}, lenient=True)


def test_a_key_that_is_given_twice_makes_its_entry_wrong() -> None:
    root = of_text("[{name: aa, name: ab, groups: [{usb: []}]}, {name: bb}]")
    one, other = entry_lists.entries(root.items())
    assert "[0].name: given twice" in one.problem
    assert "given twice" not in other.problem


# In a process.


def entry(name: str, path: str, more: str = "") -> str:
    return f"{{name: {name}, id: serial, groups: [{{paths: [{{path: {path}}}]}}]{more}}}"


@pytest.mark.slow
def test_a_wrong_entry_is_skipped_at_the_start_and_on_reload_and_said_everywhere(
    kubelet: Kubelet, tmp_path: Path
) -> None:
    simulated, file, port = kubelet.simulated, tmp_path / "c.yaml", free_port()
    kept, held = entry("kept", "/dev/null"), entry("held", "/dev/zero")
    file.write_text(
        f"domain: x.io\ndevices: [{kept}, {held}, {entry('bad', '/dev/full', ', x: 1')}]"
    )
    words = [
        f"--config={file}",
        f"--pod-resources-socket={simulated.pod_resources_socket}",
        f"--http-address=127.0.0.1:{port}",
    ]
    skipping = [*words, "--on-invalid-entry=skip", "--vanished-grace=1ms"]
    command = str(Path(sys.executable).with_name("generic-device-plugin"))
    status, _, told = run(*words, command=command)
    assert (2, 1) == (status, len(told))
    with started(simulated.plugin_dir, *skipping, command=command) as process:
        said = process.wait_for("invalid entry skipped")
        wrong = f"'bad': {file}:2: devices[2].x: unknown key"
        assert ("error", wrong) == (said["level"], said["problem"][: len(wrong)])
        wrong = said["problem"]
        simulated.wait_for("x.io/kept", {"kept-null"})
        simulated.wait_for("x.io/held", {"held-zero"})
        assert simulated.admit(Pod.of("p", main={"x.io/held": 1}))
        page = f"http://127.0.0.1:{port}"
        assert ["ok", f"GenericPlugin: invalid entry skipped: {wrong}"] == answer(page, "/readyz")
        assert 'deviceplugin_invalid_entries{plugin="GenericPlugin"} 1.0' in answer(
            page, "/metrics"
        )
        (fact,) = [one for one in read_facts(page, PATIENCE) if one.about == "entries"]
        assert (False, wrong) == (fact.good, fact.reason)

        # Its pod keeps the device of an entry that turns wrong.
        file.write_text(f"domain: x.io\ndevices: [{kept}, {held.replace('paths', 'pahts')}]")
        simulated.wait_for("x.io/held", (), {"held-zero"})
        simulated.wait_for("x.io/kept", {"kept-null"})
        assert 1 == simulated.registration_count("x.io/held")
        # A file that cannot be read changes nothing.
        file.write_text("devices: [")
        process.wait_for("invalid configuration ignored")
        file.write_text(f"domain: x.io\ndevices: [{kept}, {held}]")
        simulated.wait_for("x.io/held", {"held-zero"})
        assert ["ok"] == answer(page, "/readyz")
        assert [True] == [one.good for one in read_facts(page, PATIENCE) if one.about == "entries"]


def answer(page: str, path: str) -> list[str]:
    with urllib.request.urlopen(f"{page}{path}", timeout=PATIENCE) as found:
        return str(found.read().decode()).splitlines()


def test_a_section_of_several_plugins_can_have_a_wrong_entry(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "c.yaml"
    entries = f"[{entry('good', '/dev/null')}, {{name: X}}]"
    file.write_text(f"generic: {{on-invalid-entry: skip, devices: {entries}}}")
    wrong = f"'X': {file}:1: generic.devices[1]: groups is missing"
    for words, status in ((["--once"], 0), (["--print-config"], 2)):
        with pytest.raises(SystemExit) as ended:
            device_plugins(["generic", f"--config={file}", *words])
        said = capsys.readouterr()
        assert (status, True) == (ended.value.code, wrong in said.err)
        assert ("devic.es/good" in said.out) == (not status)
    node = Node(root=Path("/"), settings=dp.Settings(), config=file)
    (failed,) = [one for one in _plugin.sections(node) if one.verdict is Verdict.FAILURE]
    assert failed.found.startswith(wrong.replace(f"{file}:", "line "))


def test_the_doctor_names_entries_that_are_skipped(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    text = f"devices: [{entry('good', '/dev/null')}, {{name: X}}]"
    for mode, failures in (("skip", 1), ("fail", 1)):
        file.write_text(f"on-invalid-entry: {mode}\n{text}")
        node = Node(root=Path("/"), settings=dp.Settings(), config=file)
        findings = [*doctor.look(node)]
        wrong = [one for one in findings if one.verdict is Verdict.FAILURE]
        assert failures == len(wrong)
        restarts = "restarts for ever, unless it has --on-invalid-entry skip."
        assert (restarts in wrong[0].means) == (mode == "fail")
        assert (mode == "skip") == any("good" in one.looked_at for one in findings)
    file.write_text(f"overlap: x\n{text}")
    node = Node(root=Path("/"), settings=dp.Settings(), config=file)
    assert ["restarts for ever."] == [one.means[-18:] for one in doctor.look(node)]


SUBPATH = """
mkdir -p volume/..2026_11_27_20_00_00.123 pod
cp c.yaml volume/..2026_11_27_20_00_00.123; touch pod/c.yaml
mount --bind volume/..2026_11_27_20_00_00.123/c.yaml pod/c.yaml
exec "$@"
"""


@pytest.mark.slow
def test_a_file_that_is_mounted_by_subpath_is_said_once_by_the_plugin_and_its_commands(
    kubelet: Kubelet, tmp_path: Path
) -> None:
    (tmp_path / "c.yaml").write_text(f"devices: [{entry('good', '/dev/null')}]")
    mounted = ["env", f"--chdir={tmp_path}", *unshared("--mount"), "sh", "-ec", SUBPATH, "-"]
    command = [*mounted, str(Path(sys.executable).with_name("generic-device-plugin"))]
    file, port = f"{tmp_path}/pod/c.yaml", free_port()
    told = f"{file} is mounted by subPath, so that no new version of it is seen: "
    for words in (["check", file], [f"--config={file}", "--print-config"]):
        done = subprocess.run([*command, *words], capture_output=True, text=True, check=True)
        (line,) = done.stderr.splitlines()
        assert line.startswith(f"generic-device-plugin: {told}")
    words = ["--log-format=json", f"--plugin-dir={kubelet.simulated.plugin_dir}"]
    words += [f"--config={file}", f"--http-address=127.0.0.1:{port}"]
    with subprocess.Popen([*command, *words], stderr=subprocess.PIPE, text=True) as running:
        process = Process(running)
        said = process.wait_for("changes of file not seen")
        assert told == said["problem"][: len(told)]
        kubelet.simulated.wait_for("devic.es/good", {"good-null"})
        assert ["ok", said["problem"]] == answer(f"http://127.0.0.1:{port}", "/readyz")
        for _ in range(2):
            running.send_signal(signal.SIGHUP)
            assert not [
                one
                for one in process.read_until("configuration reloaded")
                if "file" in one["event"]
            ]
        assert 0 == process.stop()
