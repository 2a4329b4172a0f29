"""The plugin on a kubelet: hot-plug, kernel events, reload, and files of smarter-device-manager."""

import json
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import deviceplugin as dp
from deviceplugin._platform import open_files
from deviceplugin_generic import GenericPlugin, GenericSettings
from deviceplugin_generic.configuration.loading import Devices, Domains
from deviceplugin_generic.discovery.cache import Cache
from deviceplugin_testing.conformance._subject import free_port
from deviceplugin_testing.fixture import Kubelet
from deviceplugin_testing.tools.bench import _subject as bench
from discovered import found
from generic.plugin import Machine, make_node
from hardware.kernel_events import emit
from http_server import ask
from patience import eventually

DEPLOYMENTS = Path(__file__).parents[3] / "deployments"

HOUR = dp.Settings().vanished_retention  # nothing but events can be quicker
QUIET = {"discovery_interval": HOUR, "poll_interval": HOUR}


def entry(name: str, path: Path | str) -> str:
    return f"{{name: {name}, id: serial, groups: [{{paths: [{{path: {path}}}]}}]}}"


# Hot-plug.


def test_nodes_that_come_and_go_are_known_at_once(kubelet: Kubelet, machine: Machine) -> None:
    folder = machine.dev / "snd"
    (folder / "below").mkdir(parents=True)
    plugin = machine.plugin(entry("tty", f"{machine.dev}/tty*"), entry("audio", folder))
    with kubelet.running(plugin, **QUIET) as node:
        path = machine.node("tty1")
        node.wait_for("squat.ai/tty", {"tty-tty1"})
        machine.node("tty2")
        node.wait_for("squat.ai/tty", {"tty-tty1", "tty-tty2"})
        path.unlink()
        node.wait_for("squat.ai/tty", {"tty-tty2"}, {"tty-tty1"})
        machine.node("tty1")
        node.wait_for("squat.ai/tty", {"tty-tty1", "tty-tty2"})
        for path in (folder / "timer", folder / "below/timer"):
            node.wait_for("squat.ai/audio", (), {"audio-snd"})
            make_node(path)
            node.wait_for("squat.ai/audio", {"audio-snd"})
            path.unlink()


def test_a_kernel_event_makes_a_usb_device_known(kubelet: Kubelet, machine: Machine) -> None:
    emit()
    plugin = machine.plugin(
        "{name: tty, groups: [{select: {subsystem: tty}}]}", entry("nl", "/dev/null")
    )
    with kubelet.running(plugin, **QUIET) as node:
        node.wait_for("squat.ai/nl", {"nl-null"})
        usb = machine.usb("1-2", "1a86:7523", 5, serial="S1")
        machine.behind_usb(usb, "1.0", "tty", "ttyUSB0")
        emit()
        node.wait_for("squat.ai/tty", {"tty-S1:1.0"})


# Reload.


def swap(folder: Path, text: str) -> Path:
    """Write a file as the kubelet writes a ConfigMap, and return its path."""
    versions = sorted(folder.glob("..v*"))
    version = folder / f"..v{time.monotonic_ns()}"
    version.mkdir(parents=True)
    (version / "config.yaml").write_text(text)
    (folder / "..data_tmp").symlink_to(version.name)
    (folder / "..data_tmp").rename(folder / "..data")
    file = folder / "config.yaml"
    if not versions:
        file.symlink_to("..data/config.yaml")
    for old in versions:
        shutil.rmtree(old)
    return file


NAME = "is not lower-case letters, digits and hyphens, 2 to 63"


@contextmanager
def running(
    kubelet: Kubelet, file: Path, http: str = "off", program: str = "generic-device-plugin"
) -> Iterator[subprocess.Popen[str]]:
    """Run the command with a configuration file."""
    simulated = kubelet.simulated
    process = subprocess.Popen(
        [
            Path(sys.executable).with_name(program),
            f"--config={file}",
            f"--http-address={http}",
            f"--plugin-dir={simulated.plugin_dir}",
            f"--pod-resources-socket={simulated.pod_resources_socket}",
            *("--discovery-interval=1h", "--log-format=json"),
        ],
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.terminate()


def test_a_changed_file_changes_its_entries_and_disturbs_no_others(
    kubelet: Kubelet, tmp_path: Path
) -> None:
    one, two, three = (entry(name, "/dev/null") for name in ("n1", "n2", "n3"))
    folder, simulated = tmp_path / "map", kubelet.simulated
    with running(kubelet, swap(folder, f"domain: squat.ai\ndevices: [{one}, {two}]")) as process:
        simulated.wait_for("squat.ai/n1", {"n1-null"})
        simulated.wait_for("squat.ai/n2", {"n2-null"})
        swap(folder, f"domain: squat.ai\ndevices: [{one}, {three}]")
        simulated.wait_for("squat.ai/n3", {"n3-null"})
        simulated.wait_for("squat.ai/n2", (), {"n2-null"})
        # Another name of the domain breaks no pod.
        swap(folder, f"domain: [devic.es, squat.ai]\ndevices: [{one}]")
        for domain in ("squat.ai", "devic.es"):
            simulated.wait_for(f"{domain}/n1", {"n1-null"})
        assert 1 == simulated.registration_count("squat.ai/n1")
        # An empty list offers nothing.
        swap(folder, "devices: []\n")
        simulated.wait_for("devic.es/n1", (), {"n1-null"})
        process.terminate()
        assert process.stderr
        told = [record["event"] for record in map(json.loads, process.stderr)]
        assert (1, 3) == tuple(
            map(told.count, ("list of devices is empty", "configuration reloaded"))
        )


def answer(port: int, path: str) -> str:
    """Return what is answered with the status 200; empty if that is not so."""
    try:
        status, body, *_ = ask(port, path)
    except OSError:
        return ""
    return body if status == 200 else ""


@pytest.mark.parametrize(
    ("folder", "program", "text"),
    [
        ("generic", "generic-device-plugin", "devices: [{}]"),
        ("node", "device-plugins", "generic: {{devices: [{}]}}"),
    ],
)
def test_what_is_deployed_offers_nothing_is_ready_and_says_once_what_to_do(
    kubelet: Kubelet, tmp_path: Path, folder: str, program: str, text: str
) -> None:
    shipped = (DEPLOYMENTS / folder / "config.yaml").read_text()
    simulated, port = kubelet.simulated, free_port()
    file = swap(tmp_path / "map", shipped)
    with running(kubelet, file, f"127.0.0.1:{port}", program) as process:
        eventually(lambda: answer(port, "/readyz"))
        assert [] == json.loads(answer(port, "/devices"))["resources"]
        swap(tmp_path / "map", text.format(entry("n1", "/dev/null")))
        simulated.wait_for("devic.es/n1", {"n1-null"})
        process.terminate()
        assert process.stderr
        records = [json.loads(line) for line in process.stderr]
        (empty,) = (one for one in records if one["event"] == "list of devices is empty")
        assert "generic-device-plugin explain" in empty["advice"]


def test_an_invalid_file_is_told_once_and_not_taken(kubelet: Kubelet, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(f"devices: [{entry('n1', '/dev/null')}]")
    with running(kubelet, file) as process:
        kubelet.simulated.wait_for("devic.es/n1", {"n1-null"})
        file.write_text(f"\ndevices: [{entry('n2', '/dev/null')}, {{name: X}}]")
        assert process.stderr
        told = next(record for record in map(json.loads, process.stderr) if "error" in record)
        assert ("error", "invalid configuration ignored") == (told["level"], told["event"])
        assert [
            f"{file}:2: devices[1]: groups is missing",
            f"{file}:2: devices[1].name: 'X' {NAME}",
        ] == told["error"].splitlines()
        file.unlink()
        file.write_text(f"domain: other.io\ndevices: [{entry('n3', '/dev/null')}]")
        kubelet.simulated.wait_for("other.io/n3", {"n3-null"})
        kubelet.simulated.wait_for("devic.es/n1", (), {"n1-null"})
        process.terminate()
        assert ["configuration reloaded"] == [
            record["event"]
            for record in map(json.loads, process.stderr)
            if "configuration" in record["event"]
        ]


def test_what_is_known_of_devices_outlives_another_configuration(machine: Machine) -> None:
    for port in (1, 2):
        usb = machine.usb(f"1-{port}", "1a86:7523", port, serial="S1")
        machine.behind_usb(usb, "1.0", "tty", f"ttyUSB{port}")
    devices = Devices.parse("{name: stick, groups: [{select: {subsystem: tty}}]}")
    cache = Cache()
    one, other = (
        GenericPlugin(GenericSettings(device=devices), machine.roots, cache=cache) for _ in range(2)
    )
    before = set(found(one))
    shutil.rmtree(machine.sys / "class/tty/ttyUSB2", ignore_errors=True)
    assert before >= set(found(other))


@pytest.mark.parametrize("overlap", ["first", "refuse"])
def test_the_names_of_one_resource_do_not_overlap(machine: Machine, overlap: str) -> None:
    names = Domains(("a.b", "c.d"))
    plugin = machine.plugin(entry("ab", "/dev/null"), domain=names, overlap=overlap)
    assert [("a.b/ab", ""), ("c.d/ab", "")] == [
        (device.resource, device.health.reason) for device in plugin.discover()
    ]


def test_what_udev_writes_is_watched_where_it_is_asked_for(machine: Machine) -> None:
    plugin = machine.plugin(
        "{name: ab, groups: [{select: {subsystem: tty, link: /dev/serial/by-id/*}}]}"
    )
    assert [machine.udev] == plugin.watch_paths


# smarter-device-manager.


def test_a_file_of_smarter_device_manager_gives_its_resources(
    machine: Machine, tmp_path: Path
) -> None:
    for name in ("snd/pcmC0D0p", "snd/timer", "ttyUSB0", "video.1"):
        machine.node(name)
    (machine.dev / "plain").touch()
    plugin = machine.plugin_of(
        tmp_path / "c.yaml",
        "- {devicematch: '^snd$', nummaxdevices: 2}\n"
        "- {devicematch: '^(ttyUSB|video|plain|snd)[^/]*$', nummaxdevices: 1}\n"
        "- {devicematch: '^ttyUSB0$', nummaxdevices: 9}\n",
    )
    devices = found(plugin)
    assert {
        "snd-0": "smarter-devices/snd",
        "snd-1": "smarter-devices/snd",
        "ttyUSB0-0": "smarter-devices/ttyUSB0",
        "video.1-0": "smarter-devices/video_1",
    } == {one: device.resource for one, device in devices.items()}
    assert ["/dev/snd/pcmC0D0p", "/dev/snd/timer"] == [
        node.container_path for node in devices["snd-0"].nodes
    ]
    assert {"rw"} == {node.permissions for node in devices["snd-0"].nodes}
    assert [machine.dev] == plugin.watch_paths


# Many entries.


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_a_thousand_entries_are_resources_with_the_open_files_that_containerd_allows() -> None:
    """Its soft limit is 1,024, and each resource has two: the plugin raises it to the hard one."""
    open_files.raise_limit()  # the kubelet is in this process
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 8_192:
        pytest.skip("the hard limit of open files is too low")
    paths = [f"{{devices_dir}}/dev{number}" for number in range(1_000)]
    entries = [entry(f"dev{number}", path) for number, path in enumerate(paths)]
    limited = ["sh", "-c", 'ulimit -Sn 1024 && exec "$0" "$@"']
    program = str(Path(sys.executable).with_name("generic-device-plugin"))
    subject = bench.BenchSubject(
        title="many",
        command=[*limited, program, *(f"--device={one}" for one in entries)],
        files=1_000,
        entries="link",
        resources=1_000,
    )
    names = {f"devic.es/dev{number}" for number in range(1_000)}
    with bench.running(subject) as run:
        run.wait_listed()
        assert 2_000 <= run.holdings().descriptors
        run.kubelet.restart()
        run.wait_registered()
        assert names == run.kubelet.registered
