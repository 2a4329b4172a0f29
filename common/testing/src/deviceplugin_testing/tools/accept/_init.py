"""Becomes a program of a container: run by its path, it needs nothing but Python's own library.

``_init.py PARENT COMMAND...`` becomes the command. ``_init.py PARENT`` reads a JSON object with the
keys of ``_container.py``, and becomes the first process of a container. Whatever becomes of the
process PARENT, nothing is left: the kernel kills the program with it, and all mounts are in a
namespace of their own. An error is the last line of standard error, and the exit status is 125.
"""

import ctypes
import json
import os
import resource
import select
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

Spec = dict[str, Any]

_LIBC = ctypes.CDLL(None, use_errno=True)
_REFUSED = 125
# linux/prctl.h, linux/mount.h, linux/sched.h
_PDEATHSIG, _CAPBSET_DROP, _NO_NEW_PRIVS = 1, 24, 38
_RDONLY, _NOSUID, _NODEV, _NOEXEC, _REMOUNT, _BIND, _REC, _PRIVATE = (
    *(1, 2, 4, 8, 32, 4096, 16384, 1 << 18),
)
_DETACH = 2
_NAMESPACES = 0x00020000 | 0x04000000 | 0x08000000 | 0x20000000 | 0x40000000
"""Of mounts, host names, IPC, processes and networks."""
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


def _tie(parent: int | None = None) -> None:
    """Let the kernel kill this process with its parent, which may have ended already."""
    _call("prctl", _PDEATHSIG, 9, 0, 0, 0)
    if parent is not None and os.getppid() != parent:
        os._exit(137)


def _enter() -> None:
    """Continue as the first process of new namespaces; the process outside only waits for it."""
    try:
        _call("unshare", _NAMESPACES)
    except OSError as error:
        why = "needs CAP_SYS_ADMIN and a kernel that lets root make namespaces"
        raise OSError(error.errno, f"{error.strerror}: {why}: run it on the host itself") from None
    alive, held = os.pipe()
    if child := os.fork():
        os.close(alive)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os._exit(status if status >= 0 else 128 - status)  # as shells have it for a signal
    os.close(held)
    _tie()
    if select.select([alive], [], [], 0)[0]:  # the end of the pipe: the process outside is dead
        os._exit(137)
    os.close(alive)


def _lay_out(spec: Spec) -> None:
    root = spec["root"]
    _mount(None, "/", None, _REC | _PRIVATE)
    _mount("tmpfs", root, "tmpfs", _NOSUID, "mode=755,size=64m")
    for name, target in spec["links"].items():
        Path(root, target).mkdir(parents=True, exist_ok=True)
        Path(root, name).symlink_to(target)
    for name in ("proc", "sys", "dev", "tmp", "run", "etc"):
        Path(root, name).mkdir(parents=True, exist_ok=True)
    _mount("proc", f"{root}/proc", "proc", _NOSUID | _NODEV | _NOEXEC)
    _mount("sysfs", f"{root}/sys", "sysfs", _RDONLY | _NOSUID | _NODEV | _NOEXEC)
    Path(root, "dev", "shm").mkdir(0o1777)
    nodes = [*spec["nodes"], *([f"/dev/{name}", f"/dev/{name}"] for name in _NODES)]
    numbers = [(path, Path(source).stat()) for source, path in nodes]
    for (source, _), (_, status) in zip(nodes, numbers, strict=True):
        if not stat.S_ISCHR(status.st_mode):
            raise OSError(f"{source}: is not a character device on the host")
    # A link on the way to a target must lead nowhere outside, so a process whose root it is mounts.
    sources = [os.open(os.path.realpath(source), os.O_PATH) for source, _, _ in spec["mounts"]]
    if child := os.fork():
        if os.waitpid(child, 0)[1]:
            os._exit(_REFUSED)
        for source in sources:
            os.close(source)
        return
    os.chroot(root)
    os.chdir("/")
    _in_child(lambda: _fill(spec["mounts"], sources, numbers))


def _fill(
    mounts: list[tuple[str, str, bool]],
    sources: list[int],
    nodes: list[tuple[str, os.stat_result]],
) -> None:
    own = Path("/").stat().st_dev
    for source, (_, target, read_only) in zip(sources, mounts, strict=True):
        is_folder = stat.S_ISDIR(os.fstat(source).st_mode)
        _make(target, own, is_folder=is_folder)
        _mount(f"/proc/self/fd/{source}", target, None, _BIND)
        if read_only:
            _mount(None, target, None, _REMOUNT | _BIND | _RDONLY | _NOSUID)
    for path, status in nodes:
        _parents(path, own)
        with suppress(FileExistsError):
            os.mknod(path, stat.S_IFCHR | 0o666, status.st_rdev)


def _make(target: str, own: int, *, is_folder: bool) -> None:
    _parents(target, own)
    if os.path.lexists(target):
        return
    if Path(target).parent.stat().st_dev != own:
        raise OSError(f"{target}: does not exist in what is mounted there")
    if is_folder:
        Path(target).mkdir()
    else:
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY))


def _parents(path: str, own: int) -> None:
    parent = Path(path).parent
    if not parent.is_dir():
        _make(str(parent), own, is_folder=True)


def _in_child(act: Callable[[], None]) -> NoReturn:
    """End this process with what ``act`` comes to."""
    try:
        act()
    except OSError as error:
        _complain(error)
        os._exit(_REFUSED)
    os._exit(0)


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


def _complain(error: OSError) -> None:
    sys.stderr.write(
        f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}\n"
    )
    sys.stderr.flush()


def main() -> NoReturn:
    """Become the program."""
    try:
        _tie(int(sys.argv[1]))
        if command := sys.argv[2:]:
            os.execv(command[0], command)  # noqa: S606 - our own plugin
        spec = json.load(sys.stdin)
        _enter()
        _lay_out(spec)
        _run_hooks(spec)
        _close_in(spec)
        os.execve(spec["argv"][0], spec["argv"], spec["env"])  # noqa: S606 - our own program
    except (OSError, subprocess.TimeoutExpired) as error:
        _complain(error if isinstance(error, OSError) else OSError(str(error)))
        os._exit(_REFUSED)


if __name__ == "__main__":
    main()
