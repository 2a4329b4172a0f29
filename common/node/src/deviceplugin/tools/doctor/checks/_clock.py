"""Whether the machine's clock is plausible."""

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from deviceplugin._platform.checkpoint import FILE_NAME
from deviceplugin.checks import Finding, Node, failure, ok, warning
from deviceplugin.tools.doctor._check import Check

_EARLIEST: Final = datetime(2024, 1, 1, tzinfo=UTC)
_INTERVAL: Final = 0.1
_APART: Final = 0.05
_SLACK: Final = 60.0
"""Most seconds that a file may be ahead of the clock."""
_DO: Final = "check whether time is synchronised: timedatectl, chronyc tracking."


def _check(node: Node) -> Iterator[Finding]:
    now = datetime.fromtimestamp(node.wall(), UTC)
    if now < _EARLIEST:
        yield failure(
            "clock",
            f"it is {now:%Y-%m-%d %H:%M} UTC",
            means="the clock was never set: certificates are not valid yet, so the node cannot "
            "join, and all times in logs and metrics are wrong.",
            do=_DO,
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
        yield warning(
            path,
            f"was written {ahead:.0f} s in the future",
            means="the clock was set back: ages in metrics and logs are wrong.",
            do=_DO,
        )


def _jumping(node: Node) -> Iterator[Finding]:
    begin = node.wall() - node.monotonic()
    threading.Event().wait(_INTERVAL)
    jump = node.wall() - node.monotonic() - begin
    if abs(jump) > _APART:
        yield warning(
            "clock",
            f"it jumped by {jump:+.2f} s within {_INTERVAL:g} s",
            means="a program is setting the clock now, or two programs set it differently.",
            do=_DO,
        )


CHECK: Final = Check("clock", "whether the clock is set and runs evenly", _check)
