"""How many files can still be opened."""

import re
from collections.abc import Iterator
from typing import Final

from deviceplugin.checks import Finding, Node, failure, ok, unknown, warning
from deviceplugin.tools.doctor._check import Check

_ENOUGH: Final = 1024
"""A plugin has some 10 sockets and files for each resource."""
_NEARLY: Final = 0.95


def _check(node: Node) -> Iterator[Finding]:
    yield _process(node)
    yield _machine(node)


def _process(node: Node) -> Finding:
    limits = re.search(r"^Max open files\s+(\S+)", node.peek("proc/self/limits"), re.MULTILINE)
    if limits is None:
        return unknown("limit of open files", "cannot be read here")
    if limits[1].isdecimal() and int(limits[1]) < _ENOUGH:
        return warning(
            "limit of open files",
            f"a process may have {limits[1]}",
            means="a plugin with several resources or clients fails with 'too many open files'.",
            do=f"raise it to {_ENOUGH} or more: LimitNOFILE= of the container runtime's service.",
        )
    return ok("limit of open files", f"a process may have {limits[1]}")


def _machine(node: Node) -> Finding:
    used, _, most = (node.peek("proc/sys/fs/file-nr").split() + [""] * 3)[:3]
    if not (used.isdecimal() and most.isdecimal()):
        return unknown("open files of the machine", "cannot be read here")
    found = f"{used} of {most}"
    if int(used) < _NEARLY * int(most):
        return ok("open files of the machine", found)
    return failure(
        "open files of the machine",
        found,
        means="no process can open files or sockets, so nothing new starts or registers.",
        do="find the process that has so many (ls /proc/*/fd | sort | uniq -c), or raise "
        "fs.file-max.",
    )


CHECK: Final = Check("open-files", "how many files can still be opened", _check)
