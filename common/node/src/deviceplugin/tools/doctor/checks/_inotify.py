"""How many inotify instances and watches are left. Without them, events go unnoticed."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from deviceplugin.checks import Finding, Node, failure, ok, unknown, warning
from deviceplugin.tools.doctor._check import Check

_KEY: Final = "fs.inotify.max_user_{}"
_NEARLY: Final = 0.9
_LINK: Final = "anon_inode:inotify"


def _check(node: Node) -> Iterator[Finding]:
    used = {"instances": 0, "watches": 0}
    for process in node.processes():
        if _owner(node, process) == os.geteuid():
            for watches in _instances(process):
                used["instances"] += 1
                used["watches"] += watches
    for what, number in used.items():
        key = _KEY.format(what)
        text = node.peek(f"proc/sys/fs/inotify/max_user_{what}")
        if not text.isdecimal():
            yield unknown(key, "cannot be read here")
        else:
            yield _judge(key, number, int(text))


def _judge(key: str, used: int, limit: int) -> Finding:
    found = f"{used} of {limit} are used by user {os.geteuid()}, as far as is visible from here"
    if used < _NEARLY * limit:
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
            if str(descriptor.readlink()) == _LINK:
                text = (process / "fdinfo" / descriptor.name).read_text(encoding="utf-8")
                yield text.count("inotify wd:")
        except OSError:
            continue


CHECK: Final = Check("inotify", "how many inotify instances and watches are left", _check)
