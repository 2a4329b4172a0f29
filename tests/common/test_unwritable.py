"""A plugin directory in which no socket can be made."""

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import mkdtemp

import pytest

from containers.unshare import POSSIBLE
from deviceplugin._attribution.ownership import Ownership
from deviceplugin._inventory.published import Resource
from deviceplugin._kubelet.offer import Offer
from deviceplugin._kubelet.server import ResourceServer
from deviceplugin._platform.hooks import Hooks
from deviceplugin._platform.unix_sockets import advised, check_exists
from deviceplugin._registration.by_kubelet_socket import KubeletSocket, is_directory
from deviceplugin._telemetry.metrics import Metrics
from idle_tracker import IdleTracker
from scripted_plugin import ScriptedPlugin

needs_root = pytest.mark.skipif(not POSSIBLE, reason="needs root and unshare")

# What is imported late is imported here: the other user may not read this one's Python.
SERVE = """
import importlib.metadata, logging, os, sys
from pathlib import Path
import deviceplugin as dp
from deviceplugin._telemetry import log
from deviceplugin.kit.log import Problems
from deviceplugin._platform.hooks import Hooks
from deviceplugin._inventory.published import Resource
from deviceplugin._attribution.ownership import Ownership
from deviceplugin._kubelet.offer import Offer
from deviceplugin._registration.by_kubelet_socket import KubeletSocket
from deviceplugin._app.host import Host
from deviceplugin._telemetry.metrics import Metrics
from idle_tracker import IdleTracker
from deviceplugin._kubelet.server import ResourceServer

directory, user = Path(sys.argv[1]), int(sys.argv[2])
os.setgroups([])
os.setgid(user)
os.setuid(user)
class Nothing(dp.Plugin):
    def discover(self):
        return []

once = Problems(logging.getLogger("tests"))
log.configure("info", "text")
metrics = Metrics()
for _ in range(3):
    try:
        ResourceServer(
            Offer(Resource("example.com/thing", Nothing()), Ownership()),
            KubeletSocket(directory, metrics),
            admission=IdleTracker(),
            hooks=Hooks(),
            metrics=metrics,
            news=lambda: None,
            refused=lambda _: None,
        )
    except OSError as error:
        print(error)
        once.say("serve", "cannot serve", error=str(error))
print(repr(Host([Nothing()], dp.Settings(plugin_dir=directory)).alive()))
"""


@pytest.fixture
def directory() -> Iterator[Path]:
    """Give one that everybody can reach, with a short path."""
    root = Path(mkdtemp(prefix="plugins-"))
    root.chmod(0o755)
    (root / "plugins").mkdir()
    yield root / "plugins"
    shutil.rmtree(root)


def serve(directory: Path, user: int = 0, before: Sequence[str] = ()) -> tuple[list[str], int]:
    """Return what trying to serve three times in ``directory`` says, and how often it is logged."""
    words = [*before, sys.executable, "-c", SERVE, str(directory), str(user)]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(words, check=False, capture_output=True, text=True, env=environ)
    assert 0 == done.returncode, done.stderr
    return done.stdout.splitlines(), done.stderr.count("cannot serve")


@needs_root
def test_a_user_who_may_not_write_to_the_plugin_directory_is_told_so_once(directory: Path) -> None:
    directory.chmod(0o750)
    said, logged = serve(directory, user=65534)
    text = (
        f"{directory}: cannot make a socket in it: Permission denied: "
        "run as a user who may write there, such as root"
    )
    assert ([text] * 3 + ["''"], 1) == (said, logged)


@pytest.mark.slow
@needs_root
def test_a_user_who_may_not_even_look_for_the_plugin_directory_is_told_so_once(
    directory: Path,
) -> None:
    directory.parent.chmod(0o700)
    said, logged = serve(directory, user=65534)
    text = f"{directory}: Permission denied: run as a user who may write there, such as root"
    assert ([text] * 3 + ["''"], 1) == (said, logged)


@pytest.mark.slow
@needs_root
def test_a_plugin_directory_that_is_mounted_read_only_is_told_once(directory: Path) -> None:
    mount = f'mount -t tmpfs -o ro none {directory} && exec "$@"'
    said, logged = serve(directory, before=["unshare", "--mount", "sh", "-c", mount, "sh"])
    text = f"{directory}: cannot make a socket in it: Read-only file system: mount it writable"
    assert ([text] * 3 + ["''"], 1) == (said, logged)


def test_what_names_no_error_of_the_system_is_told_as_it_is() -> None:
    assert "path too long" == advised(OSError("path too long"))
    assert "No space left on device" == advised(OSError(errno.ENOSPC, "No space left on device"))


def test_a_directory_that_cannot_be_looked_at_is_told_and_is_none() -> None:
    odd = Path("/") / ("x" * 300)
    assert not is_directory(odd)
    with pytest.raises(OSError, match=f"^{odd}: File name too long$"):
        check_exists(odd)


DELETE = """
import os, sys
from pathlib import Path
import deviceplugin as dp
from deviceplugin._app.host import Host

class Nothing(dp.Plugin):
    def discover(self):
        return []

folder = Path(sys.argv[1])
mount = Path(f"/proc/self/fd/{os.open(folder, os.O_RDONLY)}")  # leads to what it was, as a mount
host = Host([Nothing()], dp.Settings(plugin_dir=mount))
before = host.alive()
folder.rmdir()
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
    metrics = Metrics()
    with pytest.raises(OSError, match=f"^{folder}: cannot listen in it$"):
        ResourceServer(
            Offer(Resource("example.com/thing", ScriptedPlugin()), Ownership()),
            KubeletSocket(folder, metrics),
            admission=IdleTracker(),
            hooks=Hooks(),
            metrics=metrics,
            news=lambda: None,
            refused=lambda _: None,
        )
    assert [] == [*folder.iterdir()]
