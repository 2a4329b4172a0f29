"""Becomes a program of a container: run by its path, it needs nothing but Python's own library.

``_init.py PARENT COMMAND...`` becomes the command, which the kernel kills with the process PARENT.
``_init.py`` is the first process in new namespaces, reads a JSON object with the keys of
``_container.py``, and becomes the program. An error is the last line of standard error, and the
exit status is 125.
"""

import ctypes
import json
import os
import resource
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

Spec = dict[str, Any]

_LIBC = ctypes.CDLL(None, use_errno=True)
_REFUSED = 125
# linux/prctl.h, linux/mount.h
_PDEATHSIG, _CAPBSET_DROP, _NO_NEW_PRIVS = 1, 24, 38
_RDONLY, _NOSUID, _NODEV, _NOEXEC, _REMOUNT, _BIND = 1, 2, 4, 8, 32, 4096
_DETACH = 2
_CAPABILITIES = frozenset({0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 29})
"""Those of containerd's default, without CAP_MKNOD: no control group limits device nodes here."""
_NODES = ("null", "zero", "full", "random", "urandom", "tty")
_HOOKS = ("prestart", "createRuntime", "createContainer")
_PATIENCE = 15.0


def _call(name: str, *arguments: object) -> None:
    encoded = [one.encode() if isinstance(one, str) else one for one in arguments]
    if _LIBC[name](*encoded):
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}", *arguments[1:2])


def _mount(
    source: str | None, target: str, kind: str | None, flags: int, options: str | None = None
) -> None:
    _call("mount", source, target, kind, ctypes.c_ulong(flags), options)


def _tie(parent: int) -> None:
    _call("prctl", _PDEATHSIG, 9, 0, 0, 0)
    if os.getppid() != parent:  # it has ended already
        os._exit(137)


def _lay_out(spec: Spec) -> None:
    root = spec["root"]
    _mount("tmpfs", root, "tmpfs", _NOSUID, "mode=755,size=64m")
    for name, target in spec["links"].items():
        Path(root, target).mkdir(parents=True, exist_ok=True)
        Path(root, name).symlink_to(target)
    for name in ("proc", "sys", "dev/shm", "tmp", "run", "etc"):
        Path(root, name).mkdir(parents=True, exist_ok=True)
    _mount("proc", f"{root}/proc", "proc", _NOSUID | _NODEV | _NOEXEC)
    _mount("sysfs", f"{root}/sys", "sysfs", _RDONLY | _NOSUID | _NODEV | _NOEXEC)
    nodes = [*spec["nodes"], *([f"/dev/{name}", f"/dev/{name}"] for name in _NODES)]
    numbers = [(path, _number(source)) for source, path in nodes]
    sources = [os.open(os.path.realpath(source), os.O_PATH) for source, _, _ in spec["mounts"]]
    host = os.open("/", os.O_PATH)
    os.chroot(root)  # a link on the way to a target leads nowhere outside
    os.chdir("/")
    _fill(spec["mounts"], sources, numbers)
    os.fchdir(host)
    os.chroot(".")
    for each in (*sources, host):
        os.close(each)


def _number(node: str) -> int:
    status = Path(node).stat()
    if not stat.S_ISCHR(status.st_mode):
        raise OSError(f"{node}: is not a character device on the host")
    return status.st_rdev


def _fill(
    mounts: list[tuple[str, str, bool]], sources: list[int], nodes: list[tuple[str, int]]
) -> None:
    own = Path("/").stat().st_dev
    for source, (_, target, read_only) in zip(sources, mounts, strict=True):
        is_folder = stat.S_ISDIR(os.fstat(source).st_mode)
        _make(target, own, stat.S_IFDIR if is_folder else stat.S_IFREG)
        _mount(f"/proc/self/fd/{source}", target, None, _BIND)
        if read_only:
            _mount(None, target, None, _REMOUNT | _BIND | _RDONLY | _NOSUID)
    for path, number in nodes:
        _make(path, own, stat.S_IFCHR, number)


def _make(target: str, own: int, kind: int, number: int = 0) -> None:
    """Make a file, folder or node of the image unless it exists, but nothing in what is mounted."""
    parent = Path(target).parent
    if not parent.is_dir():
        _make(str(parent), own, stat.S_IFDIR)
    if os.path.lexists(target):
        return
    if parent.stat().st_dev != own:
        raise OSError(f"{target}: does not exist in what is mounted there")
    if kind == stat.S_IFDIR:
        Path(target).mkdir()
    else:
        os.mknod(target, kind | 0o666, number)


def _run_hooks(spec: Spec) -> None:
    """Run the hooks of CDI devices as a runtime does before it changes the root."""
    bundle = Path(spec["root"]).parent
    config = {"ociVersion": "1.0.2", "root": {"path": spec["root"]}}
    (bundle / "config.json").write_text(json.dumps(config))
    state = {"ociVersion": "1.0.2", "id": "accept", "status": "created", "bundle": str(bundle)}
    given = json.dumps({**state, "pid": os.getpid()})
    for hook in spec["hooks"]:
        if hook["hookName"] not in _HOOKS:
            raise OSError(f"{hook['path']}: a hook {hook['hookName']} cannot be run here")
        words = [*(hook.get("args") or [hook["path"]])]
        env = dict(one.split("=", 1) for one in hook.get("env", ()))
        done = subprocess.run(  # noqa: S603 - the hooks of specifications, as a runtime runs them
            words,
            executable=hook["path"],
            env=env,
            input=given,
            text=True,
            capture_output=True,
            timeout=_PATIENCE,
            check=False,
        )
        if done.returncode:
            why = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise OSError(f"hook {' '.join(words[:2])}: status {done.returncode}: {why}")


def _close_in(spec: Spec) -> None:
    """Have ``root`` as the only root, and no more rights than a container."""
    os.chdir(spec["root"])
    _call("pivot_root", ".", ".")
    _call("umount2", ".", _DETACH)
    os.chdir("/")
    os.setgroups(spec["gids"])
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for number in set(range(64)) - _CAPABILITIES:
        _LIBC.prctl(_CAPBSET_DROP, number, 0, 0, 0)  # the kernel refuses those that it lacks
    _call("prctl", _NO_NEW_PRIVS, 1, 0, 0, 0)


def main() -> NoReturn:
    """Become the program."""
    try:
        if sys.argv[1:]:
            _tie(int(sys.argv[1]))
            os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606 - our own program
        spec = json.load(sys.stdin)
        _lay_out(spec)
        _run_hooks(spec)
        _close_in(spec)
        os.execve(spec["argv"][0], spec["argv"], spec["env"])  # noqa: S606 - our own program
    except OSError as error:
        why = f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}"
    except subprocess.TimeoutExpired as error:
        why = str(error)
    sys.stderr.write(f"{why}\n")
    sys.exit(_REFUSED)


if __name__ == "__main__":
    main()
