"""What the doctor says of entries that give containers more of the host than a device."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from deviceplugin.checks import Node, Verdict
from deviceplugin_generic.doctor import look

PATHS = {"groups": [{"paths": [{"path": "/proc/self"}]}]}


def given(root: Path, entry: Mapping[str, object]) -> str:
    """Return what the doctor says that an entry gives away; empty if nothing."""
    where = root / "etc/generic-device-plugin"
    where.mkdir(parents=True, exist_ok=True)
    (where / "config.yaml").write_text(json.dumps({"devices": [{"name": "ab", **entry}]}))
    found = [one for one in look(Node.at_root(root)) if "gives containers" in one.found]
    assert all(one.verdict is Verdict.WARNING and "root on the node" in one.means for one in found)
    return " ".join(one.found.removeprefix("gives containers ") for one in found)


@pytest.mark.parametrize(
    "path",
    [
        *("/", "//", "/etc", "/etc/", "/etc/ssh/sshd_config", "/var", "/var/lib"),
        *("/var/lib/kubelet/pki", "/dev", "/proc", "/run", "/var/run", "/var/run/docker.sock"),
        *("/run/containerd/containerd.sock", "/root/.ssh", "/home", "/usr/local"),
        *("/var/lib/{port}", "/run/{serial}", "/etc/sticks/{serial}", "/var/run/{serial}"),
    ],
)
def test_a_mount_by_which_a_pod_is_root_is_a_warning(tmp_path: Path, path: str) -> None:
    mount = {"path": path, "mountPath": "/data"}
    assert f"{path} (writable)" == given(tmp_path, {**PATHS, "mounts": [mount]})
    read_only = {**mount, "readOnly": True}
    assert f"{path} (read-only)" == given(tmp_path, {**PATHS, "mounts": [read_only]})


@pytest.mark.parametrize(
    "path",
    [
        *("/srv/sticks/{serial}", "/var/lib/zwave/{port}", "/run/udev", "/etcetera", "/dev/snd"),
        *("/var/running", "/home/pi/data", "/run/stick-{serial}", "/opt/vendor/lib", "/sys/class"),
        *("/var/lib/kubelets", "/mnt/etc"),
    ],
)
def test_a_mount_of_what_a_device_needs_is_none(tmp_path: Path, path: str) -> None:
    mount = {"path": path, "mountPath": "/data"}
    assert not given(tmp_path, {**PATHS, "mounts": [mount]})


@pytest.mark.parametrize(
    "path",
    [
        *("/dev/mem", "/dev/sda", "/dev/sd*", "/dev/*", "/dev/nvme0n1", "/dev/[s-v]d[ab]"),
        *("/dev/mapper/*", "/dev/disk/by-id/x", "/dev/../dev/port", "/dev/dm-3", "/dev/vda1"),
    ],
)
def test_a_node_of_memory_or_of_a_disk_is_a_warning(tmp_path: Path, path: str) -> None:
    assert path == given(tmp_path, {"groups": [{"paths": [{"path": path}]}]})


@pytest.mark.parametrize("path", ["/dev/ttyUSB*", "/dev/snd", "/dev/video0", "/dev/memory_x"])
def test_a_node_of_a_device_is_none(tmp_path: Path, path: str) -> None:
    assert not given(tmp_path, {"groups": [{"paths": [{"path": path}]}]})


def test_every_way_to_give_a_path_counts(tmp_path: Path) -> None:
    select = {"select": {"subsystem": "block", "name": "sda"}, "with": ["/dev/mem"]}
    mounted = {"paths": [{"path": "/etc/*", "type": "Mount", "readOnly": True}]}
    expected = "/etc/* (read-only), /dev/mem, devices of the subsystem block"
    assert expected == given(tmp_path, {"groups": [mounted, select]})


def test_rules_of_smarter_count_by_what_they_match(tmp_path: Path) -> None:
    for name in ("sda", "ttyUSB0"):
        (tmp_path / "dev").mkdir(exist_ok=True)
        (tmp_path / "dev" / name).touch()
    where = tmp_path / "etc/generic-device-plugin"
    where.mkdir(parents=True)
    file = where / "config.yaml"
    file.write_text("[{devicematch: '^tty', nummaxdevices: 1}]")
    assert [Verdict.OK] == [one.verdict for one in look(Node.at_root(tmp_path))]
    file.write_text("[{devicematch: '.*', nummaxdevices: 1}]")
    assert [Verdict.OK, Verdict.WARNING] == [one.verdict for one in look(Node.at_root(tmp_path))]


def test_a_command_is_named_and_who_runs_it(tmp_path: Path) -> None:
    where = tmp_path / "etc/generic-device-plugin"
    where.mkdir(parents=True)
    entry = {"name": "ab", **PATHS, "health": {"command": ["/bin/check", "x"]}}
    (where / "config.yaml").write_text(json.dumps({"devices": [entry]}))
    found = [one.found for one in look(Node.at_root(tmp_path))]
    assert "runs /bin/check in the plugin, as root" in found
