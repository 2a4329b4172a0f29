"""A plugin directory in which no socket can be made."""

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp

import pytest

from containers.unshare import POSSIBLE
from deviceplugin._attribution.ownership import Ownership
from deviceplugin._inventory.published import Resource
from deviceplugin._kubelet.offer import Offer
from deviceplugin._kubelet.server import ResourceServer
from deviceplugin._platform.hooks import Hooks
from deviceplugin._platform.unix_sockets import advised, check_exists, try_socket
from deviceplugin._registration.by_kubelet_socket import KubeletSocket, is_directory
from deviceplugin._telemetry.metrics import Metrics
from idle_tracker import IdleTracker
from scripted_plugin import ScriptedPlugin

# What is imported late is imported here: the other user may not read this one's Python.
SERVE = """
import difflib, importlib.metadata, os, sys
from pathlib import Path
import deviceplugin as dp
from deviceplugin._app.host import Host
from test_unwritable import ScriptedPlugin, serve

directory, user = Path(sys.argv[1]), int(sys.argv[2])
os.setgroups([])
os.setgid(user)
os.setuid(user)
try:
    serve(directory)
except OSError as error:
    print(error)
print(repr(Host([ScriptedPlugin()], dp.Settings(plugin_dir=directory, http_address="off")).alive()))
"""


@pytest.fixture
def directory() -> Iterator[Path]:
    """Give one that everybody can reach, with a short path."""
    root = Path(mkdtemp(prefix="plugins-"))
    root.chmod(0o755)
    (root / "plugins").mkdir()
    yield root / "plugins"
    shutil.rmtree(root)


def serve(directory: Path) -> ResourceServer:
    metrics = Metrics()
    return ResourceServer(
        Offer(Resource("example.com/thing", ScriptedPlugin()), Ownership()),
        KubeletSocket(directory, metrics),
        admission=IdleTracker(),
        hooks=Hooks(),
        metrics=metrics,
        news=lambda: None,
        refused=lambda _: None,
    )


@pytest.mark.skipif(not POSSIBLE, reason="needs root and unshare")
def test_a_user_who_may_not_write_to_the_plugin_directory_is_told_so(directory: Path) -> None:
    directory.chmod(0o750)
    words = [sys.executable, "-c", SERVE, str(directory), "65534"]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True, env=environ)
    text = (
        f"{directory}: cannot make a socket in it: Permission denied: "
        "run as a user who may write there, such as root"
    )
    assert [text, "''"] == done.stdout.splitlines()


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError("path too long"), "path too long"),
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
        (OSError(errno.EROFS, "Read-only file system"), "Read-only file system: mount it writable"),
        (
            OSError(errno.EACCES, "Permission denied"),
            "Permission denied: run as a user who may write there, such as root",
        ),
    ],
)
def test_an_error_of_a_directory_is_told_with_advice(error: OSError, text: str) -> None:
    assert text == advised(error)


def test_a_directory_that_cannot_be_looked_at_is_told_and_is_none(directory: Path) -> None:
    odd = Path("/") / ("x" * 300)
    assert not is_directory(odd)
    with pytest.raises(OSError, match=f"^{odd}: File name too long$"):
        check_exists(odd)
    text = f"^{directory}: cannot make a socket in it: AF_UNIX path too long$"
    with pytest.raises(OSError, match=text):
        try_socket(directory / ("x" * 107))


DELETE = """
import os, shutil, sys
from pathlib import Path
import deviceplugin as dp
from deviceplugin._app.host import Host

class Nothing(dp.Plugin):
    def discover(self):
        return []

folder = Path(sys.argv[1])
mount = Path(f"/proc/self/fd/{os.open(folder, os.O_RDONLY)}")  # leads to what it was, as a mount
host = Host([Nothing()], dp.Settings(plugin_dir=mount, http_address="off"))
before = host.alive()
shutil.rmtree(folder)
print([before, host.alive().replace(str(mount), "it")])
"""


def test_a_directory_that_is_deleted_under_its_mount_is_told(directory: Path) -> None:
    words = [sys.executable, "-c", DELETE, str(directory)]
    said = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    directory.mkdir()
    assert "['', 'it has been deleted under its mount']\n" == said


def test_a_directory_in_which_only_grpc_cannot_listen_is_told(directory: Path) -> None:
    folder = directory / "a%41"  # an address in which gRPC reads %41 as A
    folder.mkdir()
    with pytest.raises(OSError, match=f"^{folder}: cannot listen in it$"):
        serve(folder)
    assert [] == [*folder.iterdir()]
