"""An XID of an application, provoked, and its way to the plugin's metrics and log."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from deviceplugin.checks import Container, Finding, failure, ok, unknown
from deviceplugin_gpu.accept.results import judge
from deviceplugin_gpu.health.xids import known

_METRIC: Final = re.compile(
    r'^deviceplugin_gpu_xids_total\{(?=[^}]*uuid="([^"]*)")(?=[^}]*xid="(\d+)")[^}]*\} (\S+)',
    re.MULTILINE,
)
_ATTEMPTS: Final = 2
"""The plugin may not listen for events yet at the first one."""
_DO: Final = "attach the report to an issue."


def provoke(container: Container) -> Iterator[Finding]:
    """Have a kernel write where no memory is, and follow the XID; the GPU must stay healthy."""
    before = _xids(container.metrics())
    for _ in range(_ATTEMPTS):
        said = container.run("fault").get("error")
        if not said:
            means = "nothing shows that errors are seen."
            yield failure("faulting kernel", "ended without an error", means=means, do=_DO)
            return
        yield ok("faulting kernel", str(said))
        if container.eventually(lambda: _xids(container.metrics()) != before):
            break
    new = _xids(container.metrics()).items() - before.items()
    numbers = sorted({number for (_, number), _ in new})
    if not numbers:
        do = "the kernel's log has it: dmesg | grep NVRM"
        yield unknown("XID", "no XID came, as on GPUs without events", do)
        return
    yield from (ok("XID in the metrics", str(known(number))) for number in numbers)
    yield from _logged(container, numbers)
    yield from _health(container, numbers)


def _logged(container: Container, numbers: list[int]) -> Iterator[Finding]:
    def logged() -> set[int]:
        events = map(_event, container.log().splitlines())
        return {one["xid"] for one in events if one.get("event") == "XID error"}

    container.eventually(lambda: {*numbers} <= logged())
    if missing := {*numbers} - logged():
        what = f"no event XID error of {sorted(missing)}"
        yield failure("XID in the log", what, means="nobody would read of it.", do=_DO)
    else:
        yield ok("XID in the log", "event XID error")


def _event(line: str) -> Mapping[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _health(container: Container, numbers: list[int]) -> Iterator[Finding]:
    device = container.device
    means = "an application could take the GPU from all others."
    if not container.is_healthy():
        yield failure("health", f"unhealthy after {numbers}", means=means, do=_DO)
    else:
        yield ok("health", "the GPU stays healthy")
    found = [*judge(device, container.run())]
    bad = [one for one in found if one.verdict != "ok"]
    yield from bad or [ok("next container", "the kernel computes the right numbers")]


def _xids(metrics: str) -> dict[tuple[str, int], float]:
    found = _METRIC.findall(metrics)
    return {(uuid, int(number)): float(value) for uuid, number, value in found}
