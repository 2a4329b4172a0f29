"""The conformance suite, on device nodes that are real where they can be made."""

import os
import shlex
import stat
import sys
from pathlib import Path

import pytest

from conformant import check
from hardware.tree import Hardware

PLUGIN = str(Path(sys.executable).with_name("generic-device-plugin"))
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


@pytest.mark.slow
def test_the_generic_plugin_passes_what_no_other_has_with_nodes_that_come_and_go(
    nodes: Path,
) -> None:
    node = shlex.quote(str(nodes / "port5"))
    toggle = f"rm {node} 2>/dev/null || mknod {node} c 1 3 2>/dev/null || ln -s /dev/null {node}"
    passed = check([PLUGIN, f"--device={ENTRY.replace('ROOT', str(nodes))}"], toggle)
    names = ("unhealthy-refused", "device-nodes", "mounts", "envs", "cdi-names")
    assert {f"allocation.{name}" for name in names} <= passed
