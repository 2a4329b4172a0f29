"""The versions of Python, the kernel and the packages."""

import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from deviceplugin.checks import Finding, Node, failure, ok
from deviceplugin.tools.doctor._check import Check

_PACKAGES: Final = ("deviceplugin", "grpcio", "protobuf", "prometheus-client", "inotify-simple")


def _check(node: Node) -> Iterator[Finding]:
    kernel = node.peek("proc/sys/kernel/osrelease") or "unknown"
    yield ok("versions", f"python {platform.python_version()}, kernel {kernel}")
    for package in _PACKAGES:
        try:
            yield ok(package, version(package))
        except PackageNotFoundError:
            yield failure(
                package,
                "is not installed",
                means="a plugin cannot start in this environment.",
                do="install the wheel of the plugin with its dependencies, or use its image.",
            )


CHECK: Final = Check("versions", "versions of Python, the kernel and the packages", _check)
