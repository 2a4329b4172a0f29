"""The conformance suite, on device nodes that are real where they can be made."""

import json
import os
import shlex
import stat
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from conformant import PATIENT
from deviceplugin_testing.conformance import CHECKS
from deviceplugin_testing.tools.conformance import _cli, main
from hardware.tree import Hardware

PLUGIN = str(Path(sys.executable).with_name("generic-device-plugin"))
SHORT = replace(PATIENT, quiet=1, settle=0.3, down=0.7, restarts=3, leak_restarts=5)
ENTRY = """
name: port
id: port
env: {"PORT_{index}": "{path}"}
annotations: {"example.com/{basename}": "{path}"}
mounts: [{path: /etc/hostname, readOnly: true}]
cdi: ["example.com/port={basename}"]
groups: [{paths: [{path: ROOT/port*, mountPath: /dev/}]}]
"""


def make_node(path: Path, minor: int, target: str) -> None:
    """Make a device node, or a link to one where that is not allowed, or not to be opened."""
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, minor))
        path.open("rb").close()
    except OSError:
        path.unlink(missing_ok=True)
        path.symlink_to(target)


@pytest.fixture
def nodes(hardware: Hardware) -> Path:
    """Return a directory with two device nodes, and a file that is not one and so is unhealthy."""
    for number, (minor, target) in enumerate(((3, "/dev/null"), (5, "/dev/zero"))):
        make_node(hardware.dev / f"port{number}", minor, target)
    (hardware.dev / "port9").touch()
    return hardware.dev


def test_the_generic_plugin_passes_every_check_with_nodes_that_come_and_go(
    nodes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_cli, "QUICK", SHORT)
    report, node = tmp_path / "report.json", shlex.quote(str(nodes / "port5"))
    toggle = f"rm {node} 2>/dev/null || mknod {node} c 1 3 2>/dev/null || ln -s /dev/null {node}"
    command = [PLUGIN, f"--device={ENTRY.replace('ROOT', str(nodes))}"]
    options = ["--quick", "--seed=1", f"--trigger-change={toggle}", f"--json={report}"]
    status = main([*options, "--", *command])
    checks = json.loads(report.read_text())["checks"]
    assert {} == {one["id"]: one["text"] for one in checks if one["verdict"] == "fail"}
    # It has nothing to do before containers start, and does not ask to be called.
    assert {"pre-start"} == {
        one["id"].partition(".")[0] for one in checks if one["verdict"] == "n/a"
    }
    assert ([check.id for check in CHECKS], 0) == ([one["id"] for one in checks], status)
