"""The machine: versions, inotify, open files, the disk, the clock, SELinux, the runtime."""

import os
import platform
import re
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from deviceplugin._platform.checkpoint import FILE_NAME
from deviceplugin.checks import (
    Finding,
    Node,
    RuntimeConfig,
    failure,
    ok,
    runtime_config,
    unknown,
    warning,
)

_PACKAGES: Final = ("deviceplugin", "grpcio", "protobuf", "prometheus-client", "inotify-simple")
_NEARLY_ALL_WATCHES: Final = 0.9
_ENOUGH: Final = 1024
"""A plugin has some 10 sockets and files for each resource."""
_NEARLY_ALL_FILES: Final = 0.95
_NO_SPACE: Final = 1 << 20
_LITTLE_SPACE: Final = 64 << 20
_FEW_INODES: Final = 64
_EARLIEST: Final = datetime(2024, 1, 1, tzinfo=UTC)
_INTERVAL: Final = 0.1
_APART: Final = 0.05
_SLACK: Final = 60.0
"""Most seconds that a file may be ahead of the clock."""
_SYNCHRONISE: Final = "check whether time is synchronised: timedatectl, chronyc tracking."
_FIT: Final = "container_device_plugin_t"
_FREE: Final = frozenset(
    {"spc_t", _FIT, "unconfined_t", "unconfined_service_t", "kubelet_t", "init_t", "kernel_t"}
)


def versions(node: Node) -> Iterator[Finding]:
    kernel = node.peek("proc/sys/kernel/osrelease") or "unknown"
    yield ok("versions", f"python {platform.python_version()}, kernel {kernel}")
    for package in _PACKAGES:
        try:
            yield ok(package, version(package))
        except PackageNotFoundError:
            means = "a plugin cannot start in this environment."
            do = "install the wheel of the plugin with its dependencies, or use its image."
            yield failure(package, "is not installed", means=means, do=do)


def inotify(node: Node) -> Iterator[Finding]:
    used = {"instances": 0, "watches": 0}
    for process in node.processes():
        if _owner(node, process) == os.geteuid():
            for watches in _instances(process):
                used["instances"] += 1
                used["watches"] += watches
    for what, number in used.items():
        key, text = f"fs.inotify.max_user_{what}", node.peek(f"proc/sys/fs/inotify/max_user_{what}")
        known = text.isdecimal()
        yield _judge(key, number, int(text)) if known else unknown(key, "cannot be read here")


def _judge(key: str, used: int, limit: int) -> Finding:
    found = f"{used} of {limit} are used by user {os.geteuid()}, as far as is visible from here"
    if used < _NEARLY_ALL_WATCHES * limit:
        return ok(key, found)
    make = failure if used >= limit else warning
    return make(
        key,
        found,
        means="plugins and the kubelet no longer get file events: they notice a restart of the "
        "kubelet and hot-plug some seconds later, and other software fails with 'too many open "
        "files'.",
        do=f"sysctl -w {key}={max(8 * limit, 8192)}, and add it to /etc/sysctl.d/.",
    )


def _owner(node: Node, process: Path) -> int | None:
    status = node.peek(process.relative_to(node.root) / "status")
    uid = re.search(r"^Uid:\s*(\d+)", status, re.MULTILINE)
    return int(uid[1]) if uid else None


def _instances(process: Path) -> Iterator[int]:
    """Yield the number of watches of each inotify instance of ``process``."""
    try:
        descriptors = list((process / "fd").iterdir())
    except OSError:  # it is another user's, or has ended
        return
    for descriptor in descriptors:
        try:
            if str(descriptor.readlink()) == "anon_inode:inotify":
                text = (process / "fdinfo" / descriptor.name).read_text(encoding="utf-8")
                yield text.count("inotify wd:")
        except OSError:
            continue


def open_files(node: Node) -> Iterator[Finding]:
    name, rest = "limit of open files", node.peek("proc/self/limits")
    limits = re.search(r"^Max open files\s+(\S+)", rest, re.MULTILINE)
    if limits is None:
        yield unknown(name, "cannot be read here")
    elif limits[1].isdecimal() and int(limits[1]) < _ENOUGH:
        yield warning(
            name,
            f"a process may have {limits[1]}",
            means="a plugin with several resources or clients fails with 'too many open files'.",
            do=f"raise it to {_ENOUGH} or more: LimitNOFILE= of the container runtime's service.",
        )
    else:
        yield ok(name, f"a process may have {limits[1]}")

    name = "open files of the machine"
    used, _, most = (node.peek("proc/sys/fs/file-nr").split() + [""] * 3)[:3]
    if not (used.isdecimal() and most.isdecimal()):
        yield unknown(name, "cannot be read here")
    elif int(used) < _NEARLY_ALL_FILES * int(most):
        yield ok(name, f"{used} of {most}")
    else:
        yield failure(
            name,
            f"{used} of {most}",
            means="no process can open files or sockets, so nothing new starts or registers.",
            do="find the process that has so many (ls /proc/*/fd | sort | uniq -c), or raise "
            "fs.file-max.",
        )


def disk(node: Node) -> Iterator[Finding]:
    path = node.plugin_dir
    if not path.is_dir():
        return
    room = node.statvfs(path)
    free = room.f_bavail * room.f_frsize
    found = f"{free >> 20} MiB are free"
    means = (
        "the kubelet cannot write its checkpoint, without which it allocates no device, and a "
        "plugin cannot create its socket."
    )
    do = "free space: df -h, crictl rmi --prune."
    if room.f_files and room.f_favail < _FEW_INODES:
        found = f"{room.f_favail} inodes are free, although {free >> 20} MiB are"
        yield failure(path, found, means=means, do="remove small files (df -i), or make a new fs.")
    elif free < _LITTLE_SPACE:
        full = free < _NO_SPACE
        judge = failure if full else warning
        yield judge(path, found, means=means if full else f"soon {means}", do=do)
    else:
        yield ok(path, found)


def clock(node: Node) -> Iterator[Finding]:
    now = datetime.fromtimestamp(node.wall(), UTC)
    if now < _EARLIEST:
        yield failure(
            "clock",
            f"it is {now:%Y-%m-%d %H:%M} UTC",
            means="the clock was never set: certificates are not valid yet, so the node cannot "
            "join, and all times in logs and metrics are wrong.",
            do=_SYNCHRONISE,
        )
        return
    found = [*_ahead(node), *_jumping(node)]
    yield from found or [ok("clock", f"it is {now:%Y-%m-%d}, and the clock runs evenly")]


def _ahead(node: Node) -> Iterator[Finding]:
    path = node.plugin_dir / FILE_NAME
    try:
        ahead = path.stat().st_mtime - node.wall()
    except OSError:
        return
    if ahead > _SLACK:
        found = f"was written {ahead:.0f} s in the future"
        means = "the clock was set back: ages in metrics and logs are wrong."
        yield warning(path, found, means=means, do=_SYNCHRONISE)


def _jumping(node: Node) -> Iterator[Finding]:
    begin = node.wall() - node.monotonic()
    threading.Event().wait(_INTERVAL)
    jump = node.wall() - node.monotonic() - begin
    if abs(jump) > _APART:
        found = f"it jumped by {jump:+.2f} s within {_INTERVAL:g} s"
        means = "a program is setting the clock now, or two programs set it differently."
        yield warning("clock", found, means=means, do=_SYNCHRONISE)


def selinux(node: Node) -> Iterator[Finding]:
    enforce = node.peek("sys/fs/selinux/enforce")
    if enforce != "1":
        yield ok("SELinux", "is permissive" if enforce else "is off, or not visible here")
        return
    context = node.peek("proc/self/attr/current").rstrip("\0")
    kind = (context.split(":") + [""] * 3)[2]
    if kind in _FREE:
        yield ok("SELinux", f"is enforcing, and {kind} may connect to the kubelet")
        return
    means = "it is unknown whether this type may connect to the kubelet's socket: if it may not,"
    if kind == "container_t":
        means = "container_t may not connect to the kubelet's socket:"
    yield warning(
        "SELinux",
        f"is enforcing, and this process has the type {kind or 'unknown'}",
        means=f"{means} registration fails with 'permission denied'.",
        do=f"set securityContext.seLinuxOptions.type to {_FIT}; ausearch -m avc shows denials.",
    )


def runtime(node: Node) -> Iterator[Finding]:
    config = runtime_config(node)
    if not config.is_crio:
        yield _not_crio(config)
        return
    yield from config.findings()
    if len(config.search) == 1:
        yield ok(config.source, f"looks for images without a registry in {config.search[0]}")
    else:
        several = f"names {len(config.search)} unqualified-search-registries"
        yield warning(
            config.source,
            f"/etc/containers/registries.conf {several if config.search else 'does not have any'}",
            means="pods whose image has no registry, such as NAME:TAG, fail: ImageInspectError.",
            do="name it in full: localhost/NAME:TAG, as platforms.md says.",
        )
    missing = "starts containers without a device node that is missing on the host"
    yield ok(config.source, f"{missing}: plugins look at it before they give it")


def _not_crio(config: RuntimeConfig) -> Finding:
    alone = "CRI-O, which alone needs images by their full names"
    if config.is_crio is None:
        do = "start it, and be root; or run the doctor where the kubelet's command line is visible."
        return unknown(config.source, f"there are files of containerd, and of {alone}", do)
    what = "is not" if config.is_known else "is not visible here, nor whether it is"
    return ok(config.source, f"{what} {alone}")
