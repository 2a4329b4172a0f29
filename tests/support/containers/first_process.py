"""Becomes the first process of a container. See containers/unshare.py."""

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 24, 38
_DEVICES = ("null", "zero", "full", "random", "urandom")


def mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True)


def bind(source: str, target: Path, *, read_only: bool) -> None:
    mount("--bind", source, str(target))
    if read_only:
        mount("-o", "remount,bind,ro", str(target))


def prepare(root: Path, mounts: list[tuple[str, str, bool]]) -> None:
    mount("-t", "tmpfs", "none", str(root / "dev"))
    for name in _DEVICES:
        (root / "dev" / name).touch()
        bind(f"/dev/{name}", root / "dev" / name, read_only=False)
    mount("-t", "proc", "proc", str(root / "proc"))
    bind("/sys", root / "sys", read_only=True)
    for source, place, read_only in mounts:
        target = root / place.lstrip("/")
        target.mkdir(parents=True, exist_ok=True)
        bind(source, target, read_only=read_only)


def drop_privileges(user: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    last = int(Path("/proc/sys/kernel/cap_last_cap").read_text())
    os.setgroups([])
    os.setgid(user)
    for capability in range(last + 1):
        if libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "cannot drop a capability")
    os.setuid(user)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def main(spec: dict[str, Any]) -> None:
    root = Path(spec["root"])
    mount("--make-rprivate", "/")
    mount("--bind", str(root), str(root))
    prepare(root, spec["mounts"])
    mount("-o", "remount,bind,ro", str(root))
    os.chroot(root)
    os.chdir("/")
    drop_privileges(spec["user"])
    program, *rest = spec["command"]
    for folder in spec["environment"]["PATH"].split(":"):
        path = f"{folder}/{program}"
        if Path(path).exists():
            os.execve(path, [path, *rest], spec["environment"])
    raise SystemExit(f"{program}: not found")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
