"""A containerd of its own in a temporary folder, as a node has it, and everything of it removed."""

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from typing import Self

import grpc

from containers import oci_image
from containers.cri import Runtime, read_log
from containers.pod_config import Node, PodConfig
from patience import eventually

BUSYBOX = "docker.io/library/busybox:1.37"
"""What examples name; here it is the busybox of this machine."""
_PAUSE = "deviceplugin.test/pause:1"
_NAMESPACE = "k8s.io"  # where the kubelet's images and containers are
_CONFIG = """
version = 2
root = "{root}/root"
state = "{root}/state"
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs",
]
[grpc]
address = "{root}/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
path = "{root}/opt"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{pause}"
stream_server_address = "127.0.0.1"
stream_server_port = "0"
# A test may run where it must not lower this.
restrict_oom_score_adj = true
# Nothing of this machine: hooks of CDI specifications act on it.
enable_cdi = true
cdi_spec_dirs = ["{root}/cdi"]
device_ownership_from_security_context = {gives_devices}
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{root}/cni/bin"
conf_dir = "{root}/cni/conf"
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "{snapshotter}"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
Root = "{root}/runc"
BinaryName = "{program}"
"""
_CGROUPS = Path("/sys/fs/cgroup")
_CDI = (1, 7)
"""The first version that has it; an older one starts containers without what it names."""


@cache
def why_not() -> str:
    """Return why there can be no containerd here; empty if there can. Tried once in a process."""
    return _lack() or _failure()


def _lack() -> str:
    if os.geteuid() != 0:
        return "containerd needs root"
    for program in ("containerd", "runc", "ctr"):
        if shutil.which(program) is None:
            return f"no {program}: apt-get install containerd runc"
    if oci_image.busybox() is None:
        return "no busybox without libraries: apt-get install busybox-static"
    return ""


@cache
def why_no_cdi() -> str:
    """Return why containers get nothing of CDI specifications here; empty if they do."""
    words = ["containerd", "--version"]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    found = re.search(r" v?(\d+)\.(\d+)\.\S*", said)
    assert found is not None, said
    is_old = (int(found[1]), int(found[2])) < _CDI
    return f"containerd{found[0]} has no CDI: 1.7 or newer has" if is_old else ""


def _failure() -> str:
    with TemporaryDirectory(prefix="containerd-") as root:
        try:
            with Containerd(Path(root)) as running:
                running.run_shell("true")
        except (AssertionError, grpc.RpcError) as error:
            said = error.details() if isinstance(error, grpc.Call) else str(error)
            return f"containerd runs no container here: {said}"
    return ""


class Containerd:
    """The daemon, while it is entered. Containers that are left at the end are killed.

    ``program`` is what it calls in runc's place. ``gives_devices`` is whether nodes of devices
    belong to the user of a pod.
    """

    def __init__(
        self, root: Path, program: Path | str = "runc", *, gives_devices: bool = False
    ) -> None:
        self.root = root
        self._program, self._gives_devices = program, gives_devices
        self.log = root / "containerd.log"
        self.cdi = root / "cdi"
        """The only directory with CDI specifications."""
        self.cgroup = f"/deviceplugin-{token_hex(4)}"
        """The parent of the control groups of all pods."""
        self.runtime: Runtime
        self._snapshotter = "native" if _file_system(root) == "overlay" else "overlayfs"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.cdi.mkdir()
        config = self.root / "config.toml"
        config.write_text(
            _CONFIG.format(
                root=self.root,
                pause=_PAUSE,
                snapshotter=self._snapshotter,
                program=self._program,
                gives_devices=str(self._gives_devices).lower(),
            )
        )
        self.runtime = Runtime(self.root / "containerd.sock")
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                ["containerd", "--config", str(config)], stdout=log, stderr=log
            )
        try:
            eventually(self._is_ready)
            self._import_own()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log.read_text()
        return self.runtime.is_ready()

    def _import_own(self) -> None:
        program = oci_image.busybox()
        assert program is not None
        archive = self.root / "image.tar"
        for name, command in {_PAUSE: ("sleep", "infinity"), BUSYBOX: ("sh",)}.items():
            oci_image.write_busybox(archive, name, program, *command)
            self.load(archive, name)
        archive.unlink()

    def run_shell(self, command: str) -> None:
        """Run a command in a container of a pod, and remove both."""
        shell = {"name": "main", "image": BUSYBOX, "command": ["sh", "-c", command]}
        manifest = {"metadata": {"name": "trial"}, "spec": {"containers": [shell]}}
        config = PodConfig(manifest, "trial", Node("node-1", self.cgroup, self.root / "pods"))
        pod = self.runtime.run_pod(config.sandbox)
        made = self.runtime.start(pod, config.sandbox, config.container(shell))
        eventually(lambda: self.runtime.has_ended(made))
        assert 0 == self.runtime.status(made).exit_code, read_log(config.log("main"))
        self.runtime.remove_pod(pod)

    def load(self, archive: Path, name: str, timeout: float = 10) -> None:
        """Import an OCI archive, and wait until pods can name its image ``name``."""
        if not self.runtime.has_image(name):
            said = self._ctr("import", "--snapshotter", self._snapshotter, str(archive))
            try:
                eventually(lambda: self.runtime.has_image(name), timeout=timeout)
            except AssertionError as error:
                raise AssertionError(f"no pod can name the image {name}: {said}") from error

    def _ctr(self, *words: str) -> str:
        address = f"--address={self.root}/containerd.sock"
        done = subprocess.run(
            ["ctr", address, f"--namespace={_NAMESPACE}", "images", *words],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def kill(self) -> None:
        """End the daemon without a warning. Its containers go on."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(10)

    def close(self) -> None:
        """Stop it, and remove whatever is left of it on this machine but for its folder.

        The empty folder ``/run/containerd/s``, where all containerds have sockets, stays.
        """
        with suppress(Exception):  # the rest is removed in any case
            for pod in self.runtime.pods():
                self.runtime.remove_pod(pod)
        self.runtime.close()
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(10)
        groups = [*self._groups()]
        for process in (*self.shims(), *_processes(groups)):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        for place in reversed(self.mounts()):
            subprocess.run(["umount", "--lazy", place], check=False)
        eventually(lambda: not _processes(groups))
        for group in groups:
            group.rmdir()

    def shims(self) -> list[int]:
        """Return the processes that stand between this containerd and its containers."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                words = path.read_bytes()
                if b"containerd-shim" in words and str(self.root).encode() in words:
                    found.append(int(path.parent.name))
        return found

    def mounts(self) -> list[str]:
        """Return what is mounted below its folder, the first one first."""
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
        places = (line.split()[4] for line in lines)
        return [place for place in places if place.startswith(f"{self.root}/")]

    def _groups(self) -> Iterator[Path]:
        """Yield control groups of pods that are left, the innermost first."""
        for top in (_CGROUPS, *_CGROUPS.iterdir()):
            group = top / self.cgroup.strip("/")
            if group.is_dir():
                yield from sorted((one for one in group.rglob("*") if one.is_dir()), reverse=True)
                yield group


def _processes(groups: Iterable[Path]) -> list[int]:
    found = [(group / "cgroup.procs").read_text().split() for group in groups]
    return [int(process) for processes in found for process in processes]


def _file_system(folder: Path) -> str:
    words = ["stat", "--file-system", "--format=%T", str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return done.stdout.strip().removesuffix("fs")


if __name__ == "__main__":
    raise SystemExit(why_not() or None)
