"""An XID of an application, provoked, and its way to the plugin's metrics and log."""

import re
from collections.abc import Iterator
from typing import Final

from deviceplugin.checks import Container, Finding, Verdict, failure, ok, unknown
from deviceplugin_gpu.accept.results import ISSUE, judge
from deviceplugin_gpu.health.xids import known

_METRIC: Final = re.compile(
    r'^deviceplugin_gpu_xids_total\{(?=[^}]*uuid="([^"]*)")(?=[^}]*xid="(\d+)")[^}]*\} (\S+)',
    re.MULTILINE,
)
_ATTEMPTS: Final = 2
"""The plugin may not listen for events yet at the first one."""


def provoke(container: Container) -> Iterator[Finding]:
    """Have a kernel write where no memory is, and follow the XID; the GPU must stay healthy."""
    before = _xids(container)
    for _ in range(_ATTEMPTS):
        said = container.run("fault").get("error")
        if not said:
            means = "nothing shows that errors are seen."
            yield failure("faulting kernel", "ended without an error", means=means, do=ISSUE)
            return
        yield ok("faulting kernel", str(said))
        if container.eventually(lambda: _xids(container) != before):
            break
    numbers = sorted({int(number) for _, number, _ in _xids(container) - before})
    if not numbers:
        do = "the kernel's log has it: dmesg | grep NVRM"
        yield unknown("XID", "no XID came, as on GPUs without events", do)
    for number in numbers:
        yield ok("XID in the metrics", str(known(number)))
        yield _logged(container, number)
    yield from _health(container)


def _logged(container: Container, number: int) -> Finding:
    event = re.compile(rf'"XID error".*"xid": ?{number}\b')
    if container.eventually(lambda: event.search(container.log()) is not None):
        return ok("XID in the log", "event XID error")
    what = f"no event XID error of {number}"
    return failure("XID in the log", what, means="nobody would read of it.", do=ISSUE)


def _health(container: Container) -> Iterator[Finding]:
    means = "an application could take the GPU from all others."
    if container.is_healthy():
        yield ok("health", "the GPU stays healthy")
    else:
        yield failure("health", "the GPU is unhealthy", means=means, do=ISSUE)
    result = container.run()
    if why := result.get("error"):
        yield failure("next container", str(why), means=means, do=ISSUE)
        return
    bad = [one for one in judge(container.device, result) if one.verdict != Verdict.OK]
    yield from bad or [ok("next container", "the kernel computes the right numbers")]


def _xids(container: Container) -> set[tuple[str, str, str]]:
    return {*_METRIC.findall(container.metrics())}
