"""Processes of a node, as its ``/proc`` has them, and the kubelet's links to logs of containers."""

from pathlib import Path

MACHINE = "pid:[4026531836]"
NESTED = "pid:[4026532000]"


def number(value: int) -> str:
    """Return an id of a container."""
    return f"{value:064x}"


def uid(value: int) -> str:
    """Return the UID of a pod."""
    return f"{value:08x}-0000-4000-8000-{value:012x}"


def scope(pod: int, container: int, root: str = "/kubepods.slice") -> str:
    """Return the control group of a container, with systemd and containerd."""
    slices = f"kubepods-besteffort.slice/kubepods-besteffort-pod{uid(pod).replace('-', '_')}.slice"
    return f"{root}/{slices}/cri-containerd-{number(container)}.scope"


class NodeProcesses:
    """Writes what is below ``proc`` and ``logs``."""

    def __init__(self, proc: Path, logs: Path) -> None:
        self.proc, self.logs = proc, logs
        logs.mkdir(parents=True, exist_ok=True)
        self.see("/", first="/../../../../init.scope")

    def see(self, *own: str, first: str = "/init.scope", namespace: str = MACHINE) -> None:
        """Have a plugin whose control groups are ``own``, in this PID namespace."""
        self.group("self", *own)
        self.group("1", first)
        link = self.proc / "self/ns/pid"
        link.parent.mkdir(exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(namespace)

    def group(self, name: str, *paths: str) -> Path:
        file = self.proc / name / "cgroup"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(f"{each}:c{each}:{path}\n" for each, path in enumerate(paths)))
        return file

    def add(self, pid: int, *paths: str, started: float = 1.0) -> Path:
        """Have a process that started so many seconds after the boot; return its status file."""
        self.group(str(pid), *paths)
        return self.start(pid, started)

    def start(self, pid: int, started: float) -> Path:
        file = self.proc / f"{pid}/stat"
        ticks = round(100 * started)
        file.write_text(f"{pid} (a) S 1 (b) S {' '.join(['0'] * 18)} {ticks} 0 0\n")
        return file

    def link(self, names: str, pod: int, container: int) -> Path:
        """Have the log of a container, whose names are ``namespace/pod/container``."""
        namespace, name, own = names.split("/")
        link = self.logs / f"{f'{name}_{namespace}_{own}-{number(container)}'[:251]}.log"
        link.symlink_to(f"/var/log/pods/{namespace}_{name}_{uid(pod)}/{own}/0.log")
        return link
