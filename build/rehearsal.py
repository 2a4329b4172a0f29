"""Rehearse a release: make two versions of it, publish them on this machine, and install them.

    rehearsal.py make [--registry HOST:PORT] [OPTIONS of images.py]
    rehearsal.py try [--registry HOST:PORT] [--port PORT] [OPTIONS of pytest]

``make`` writes the release of this version to dist/rehearsal/now, and another one of the same
files, but for its version, to dist/rehearsal/next. It builds what images of them are missing, for
this machine's architecture.

``try`` starts a registry (Debian's docker-registry) on HOST:PORT, by which the nodes of the cluster
of KUBECONFIG must reach it (default: 127.0.0.1:5000, for a node on this machine; container runtimes
expect no TLS there), pushes both releases to it, serves them by HTTP on PORT (8000), and runs
e2e/test_release.py, which installs one, upgrades it to the other and uninstalls it. It needs skopeo
and helm too. In the end registry and server are stopped, and what was pushed is removed.
"""

import argparse
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from time import monotonic, sleep
from typing import Final
from urllib.error import URLError
from urllib.request import urlopen

import yaml

import images
import push
import versions

ROOT: Final = Path(__file__).parents[1]
TARGET: Final = ROOT / "dist" / "rehearsal"
PROJECT: Final = "rehearsal"
"""The folder of the images in the registry."""
HOME: Final = "https://git.example.com/hw/device-plugins"
ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
REGISTRIES: Final = ("docker-registry", "registry")
PATIENCE: Final = 30.0
"""Seconds until a registry answers."""


def following(version: str) -> str:
    """Return the version that comes after another one."""
    *first, last = version.split(".")
    return ".".join([*first, str(int(last) + 1)])


def copy(target: Path) -> None:
    """Copy this checkout, without what git ignores, and give it the following version."""
    shutil.rmtree(target, ignore_errors=True)
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name, follow_symlinks=False)
    run(target, "release.py", "version", following(versions.current()))


def run(tree: Path, script: str, *words: str) -> None:
    """Run a script of a checkout with this Python."""
    subprocess.run([sys.executable, tree / "build" / script, *words], cwd=tree, check=True)


def make(registry: str, more: Sequence[str]) -> None:
    """Make both releases. ``more`` are options of images.py."""
    source = TARGET / "source"
    copy(source)
    for tree, version, name in (
        (ROOT, versions.current(), "now"),
        (source, following(versions.current()), "next"),
    ):
        make_images(tree, version, more)
        run(tree, "release.py", "dist", f"--registry={registry}/{PROJECT}", f"--home={HOME}")
        shutil.rmtree(TARGET / name, ignore_errors=True)
        shutil.copytree(tree / "dist" / "release", TARGET / name)


def make_images(tree: Path, version: str, more: Sequence[str]) -> None:
    """Build the images that a checkout does not have yet, and attach what is known of them."""
    architecture = ARCHITECTURES[platform.machine()]
    built = tree / "dist" / "images" / architecture
    names = [*images.plugins(), images.OPERATOR]
    titles = {name: images.image(name).title for name in names}
    missing = [name for name in names if not (built / f"{titles[name]}-{version}.tar").is_file()]
    if missing:
        run(tree, "images.py", *missing, f"--platform=linux/{architecture}", *more)
    run(tree, "images.py", f"--join={architecture}")


@contextmanager
def running_registry(address: str) -> Iterator[None]:
    """Run an empty registry, and remove it with all that was pushed."""
    program = next(filter(shutil.which, REGISTRIES), None)
    if program is None:
        raise SystemExit("rehearsal.py: no docker-registry: apt-get install docker-registry")
    host, _, port = address.rpartition(":")
    try:
        socket.create_server((host, int(port))).close()
    except OSError as error:
        raise SystemExit(f"rehearsal.py: {address}: {error.strerror}") from None
    TARGET.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        settings = {
            "version": 0.1,
            "log": {"level": "error", "accesslog": {"disabled": True}},
            "storage": {"filesystem": {"rootdirectory": folder}},
            "http": {"addr": address},
        }
        path = Path(folder, "config.yml")
        path.write_text(yaml.safe_dump(settings), encoding="utf-8")
        # Its log has an error for each part that it is asked for and does not have yet.
        with (TARGET / "registry.log").open("w") as log:
            process = subprocess.Popen([program, "serve", path], stdout=log, stderr=log)
        try:
            wait_for(f"http://{address}/v2/", process)
            yield
        finally:
            process.terminate()
            process.wait(PATIENCE)


def wait_for(address: str, process: "subprocess.Popen[bytes]") -> None:
    """Wait until a process that was started serves an address."""
    limit = monotonic() + PATIENCE
    while monotonic() < limit and process.poll() is None:
        try:
            urlopen(address, timeout=PATIENCE).close()  # noqa: S310
        except URLError:
            sleep(0.1)
        else:
            return
    raise SystemExit(f"rehearsal.py: nothing serves {address}; status {process.poll()}")


class Quiet(SimpleHTTPRequestHandler):
    """Serves files, and logs nothing."""

    def log_message(self, *args: object) -> None:
        """Do nothing."""


@contextmanager
def served(folder: Path, host: str, port: int) -> Iterator[str]:
    """Serve a folder, and yield its address."""
    with ThreadingHTTPServer((host, port), partial(Quiet, directory=str(folder))) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://{host}:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def rehearse(registry: str, port: int, more: Sequence[str]) -> int:
    """Publish both releases, and return the status of the suite, with ``more`` options."""
    host = registry.rpartition(":")[0]
    with running_registry(registry), served(TARGET, host, port) as address:
        for name in ("now", "next"):
            push.push(TARGET / name, f"{registry}/{PROJECT}", plain=True)
        releases = [f"--release={address}/now", f"--next-release={address}/next"]
        suite = [sys.executable, "-m", "pytest", "-n", "0", "e2e/test_release.py", "--cluster"]
        environment = {**os.environ, "NO_PROXY": host, "no_proxy": host}
        words = [*suite, *releases, *more]
        return subprocess.run(words, cwd=ROOT, env=environment, check=False).returncode


def main(argv: Sequence[str]) -> int:
    """See the module."""
    parser = argparse.ArgumentParser("rehearsal.py", usage=__doc__, allow_abbrev=False)
    parser.add_argument("what", choices=["make", "try"])
    parser.add_argument("--registry", default="127.0.0.1:5000")
    parser.add_argument("--port", type=int, default=8000)
    options, more = parser.parse_known_args(argv)
    if options.what == "make":
        make(options.registry, more)
        return 0
    return rehearse(options.registry, options.port, more)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
