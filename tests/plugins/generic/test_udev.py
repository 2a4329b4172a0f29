"""Kernel events: where they come, and what is said where they cannot."""

import fcntl
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import deviceplugin as dp
from deviceplugin_generic import GenericPlugin, GenericSettings
from deviceplugin_generic.configuration.loading import Devices
from deviceplugin_testing.fixture import Kubelet
from deviceplugin_testing.simulator import SimulatedKubelet
from generic.plugin import Make
from hardware.namespaces import unshared
from patience import PATIENCE

PLUGIN = Path(sys.executable).with_name("generic-device-plugin")
LOOP_ADD, LOOP_REMOVE = 0x4C80, 0x4C81


def change_loop(request: int, number: int) -> None:
    try:
        control = os.open("/dev/loop-control", os.O_RDWR)
    except OSError as error:
        pytest.skip(f"no loop devices can be made here: {error}")
    try:
        fcntl.ioctl(control, request, number)
    except OSError as error:
        pytest.skip(f"no loop device can be made here: {error}")
    finally:
        os.close(control)


def test_a_device_that_the_kernel_makes_and_removes_is_known_by_its_events(
    kubelet: Kubelet,
) -> None:
    number = 1000 + os.getpid() % 1000
    name = f"loop{number}"
    entry = f"{{name: loop, groups: [{{select: {{subsystem: block, name: '{name}'}}}}]}}"
    other = "{name: mem, groups: [{select: {subsystem: mem, name: 'null'}}]}"
    plugin = GenericPlugin(GenericSettings(device=Devices.parse([entry, other])))
    hour = dp.Settings().vanished_retention
    with kubelet.running(plugin, discovery_interval=hour, poll_interval=hour) as node:
        node.wait_for("devic.es/mem", {"mem-null"})
        change_loop(LOOP_ADD, number)
        try:
            node.wait_for("devic.es/loop", {f"loop-{name}"})
            (given,) = node.allocate(f"loop-{name}", resource="devic.es/loop").nodes
            assert f"/dev/{name}" == given.host_path
        finally:
            change_loop(LOOP_REMOVE, number)
        node.wait_for("devic.es/loop", (), {f"loop-{name}"})


def logged(process: "subprocess.Popen[str]", kubelet: SimulatedKubelet, dev: Path) -> list[str]:
    """Return the warnings of a plugin up to its exit, after it noticed a new node by inotify."""
    kubelet.wait(
        lambda: len(kubelet.devices("devic.es/port")) == 1, timeout=PATIENCE, what="a device"
    )
    (dev / "port2").symlink_to("/dev/null")
    kubelet.wait(
        lambda: len(kubelet.devices("devic.es/port")) == 2, timeout=PATIENCE, what="another"
    )
    process.terminate()
    _, err = process.communicate(timeout=PATIENCE)
    assert 0 == process.returncode
    lines = [json.loads(line) for line in err.splitlines()]
    return [
        line["error"] for line in lines if line["event"].startswith("kernel events unavailable")
    ]


@pytest.mark.parametrize(
    ("words", "without_libudev", "expected"),
    [
        ([], True, ["No library named udev"]),
        (["--net", "--user", "--map-root-user"], False, ["not sent to this user namespace"]),
        ([], False, []),
    ],
)
def test_a_plugin_without_kernel_events_says_so_once_and_goes_on(
    kubelet: Kubelet,
    tmp_path: Path,
    words: list[str],
    without_libudev: bool,
    expected: list[str],
) -> None:
    dev, hidden = tmp_path / "dev", tmp_path / "hidden"
    dev.mkdir()
    hidden.mkdir()
    (dev / "port1").symlink_to("/dev/null")
    if without_libudev:  # as in an image that has none
        (hidden / "sitecustomize.py").write_text(
            "import ctypes.util\nctypes.util.find_library = lambda name: None\n"
        )
    settings = kubelet.settings()
    command = [
        *(unshared(*words) if words else []),
        *(str(PLUGIN), f"--plugin-dir={settings.plugin_dir}", "--http-address=off"),
        *("--log-format=json", "--discovery-interval=1h", "--poll-interval=1h"),
        f"--pod-resources-socket={settings.pod_resources_socket}",
        f"--device={{name: port, groups: [{{paths: [{{path: {dev}/port*}}]}}]}}",
    ]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(hidden)}
    ) as process:
        assert expected == logged(process, kubelet.simulated, dev)


def test_listening_ends_where_there_is_nothing_to_hear(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyudev", None)
    stop = threading.Event()
    plugin = make("{name: ab, groups: [{paths: [{path: /dev/null}]}]}")
    thread = threading.Thread(target=lambda: list(plugin.changes(stop)))
    thread.start()
    stop.set()
    thread.join(PATIENCE)
    assert not thread.is_alive()
