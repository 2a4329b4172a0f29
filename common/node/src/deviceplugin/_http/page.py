"""The inventory as an HTML page for people, complete in one response.

It is assembled from ``page.html``, ``page.css`` and ``page.js`` beside this file.

Without JavaScript, the browser reloads the page every 10 s. With it, the script replaces the
content every 5 s, and keeps the old content while the plugin does not answer. All values are
escaped, and the policy that it is served with allows no script but ``page.js``.
"""

import base64
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from html import escape
from pathlib import Path
from string import Template
from typing import Final

from deviceplugin._attribution.podresources import Hold
from deviceplugin._discovery.found import facts
from deviceplugin._http.devices_report import Report
from deviceplugin._inventory.divided import Divided, listed
from deviceplugin._telemetry.events import Event
from deviceplugin.model import Device

MAX_DEVICES: Final = 500
"""Most devices on the page, the unhealthy first; /devices has all."""
MAX_RESOURCES: Final = 100
"""Most resources on the page, those with problems first."""
_MAX_HOLDERS: Final = 4
"""Most holders of one device on the page."""
_MAX_HARDWARE: Final = 32
"""Most pieces of hardware of a resource of whose parts the page says what is left."""
_GIB: Final = 1 << 30
_MAX_TEXT: Final = 300
"""Most characters of a reason, or of attributes, on the page."""


_HTML, _STYLE, _SCRIPT = (
    Path(__file__).with_suffix(suffix).read_text(encoding="utf-8")
    for suffix in (".html", ".css", ".js")
)
_PAGE: Final = Template(_HTML)


_CLASSES: Final = {"healthy": "good", "degraded": "warn", "unhealthy": "bad"}
_SIGNS: Final = {"healthy": "●", "degraded": "◆", "unhealthy": "▲"}


@cache
def policy() -> str:
    """Return the content security policy of the page."""
    from hashlib import sha256  # it loads OpenSSL

    style, script = (
        f"'sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}'"
        for text in (_STYLE, _SCRIPT)
    )
    return (
        f"default-src 'none'; style-src {style}; script-src {script}; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def render(
    reports: Sequence[Report], events: Iterable[Event], *, name: str, problem: str, now: float
) -> bytes:
    """Return the page of ``reports``, by name, and of ``events``, the latest first.

    ``name`` is that of this machine or pod. ``problem`` says why devices cannot be allocated.
    ``now`` is in seconds since the epoch.
    """
    divided = {report.name: report.divided for report in reports}
    reports = [report.without_spare_parts() for report in reports]
    shown = sorted(reports, key=_is_fine)[:MAX_RESOURCES]
    sections = [_note(problem)]
    sections += [
        _resource(report, devices, now, divided[report.name])
        for report, devices in zip(shown, _choose(shown), strict=True)
    ]
    hidden = _hidden("section", len(reports) - len(shown), "resource")
    text = _PAGE.substitute(
        title=escape(f"{_summary(reports)} · {name}"),
        style=_STYLE,
        name=escape(name),
        clock=_clock(now),
        main="".join(sections) + hidden + _events(events, now),
        script=_SCRIPT,
    )
    return text.encode(errors="replace")


def _choose(reports: Sequence[Report]) -> list[list[Device]]:
    """Return the devices to show for each of ``reports``, the worst first."""
    left = MAX_DEVICES
    chosen: list[list[Device]] = [[] for _ in reports]
    for state in ("unhealthy", "degraded", "healthy"):
        for devices, report in zip(chosen, reports, strict=True):
            found = [d for d in report.devices.values() if d.health.state == state]
            devices.extend(found[:left])
            left -= len(found[:left])
    return chosen


def _is_fine(report: Report) -> bool:
    return not report.problem and all(device.health for device in report.devices.values())


def _summary(reports: Iterable[Report]) -> str:
    devices = [device for report in reports for device in report.devices.values()]
    unhealthy = sum(not device.health for device in devices)
    total = _count(len(devices), "device")
    return f"{unhealthy} of {len(devices)} unhealthy" if unhealthy else total


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _registration(report: Report) -> str:
    if report.registered and not report.problem:
        return '<span class="good">registered</span>'
    if report.by_dra and not report.problem:
        return '<span class="good">offered by DRA</span>'
    kind, why = ("bad", _cut(report.problem)) if report.problem else ("soft", "nothing to offer")
    return f'<span class="{kind}">not registered: {why}</span>'


def _resource(
    report: Report, shown: Sequence[Device], now: float, divided: Mapping[str, Divided]
) -> str:
    rows = "".join(_device(report, device, now) for device in shown)
    head = "<tr><th>Device<th>Health<th>Since<th>Held by<th>NUMA</tr>"
    return (
        f'<section><div class="head"><h2>{escape(report.name)}</h2>{_registration(report)}'
        f'<span class="soft">{escape(report.plugin)}</span></div>'
        f"<p>{_numbers(report, divided)}</p>{_parts(divided)}"
        f"{_table('devices', head, rows)}"
        f"{_hidden('p', len(report.devices) - len(shown), 'device')}</section>\n"
    )


def _parts(divided: Mapping[str, Divided]) -> str:
    """Return what is left of each piece of hardware, and what could be made of it."""
    lines = [
        f"{_cut(name)}: {_cut(listed(one.profiles))}"
        for name, one in list(divided.items())[:_MAX_HARDWARE]
    ]
    more = _hidden("p", len(divided) - len(lines), "divided device")
    return f'<p class="soft">{"<br>".join(lines)}</p>{more}' if lines else ""


def _numbers(report: Report, divided: Mapping[str, Divided]) -> str:
    healthy = [device.id for device in report.devices.values() if device.health]
    unhealthy = len(report.devices) - len(healthy)
    parts = [_count(len(report.devices), "device"), f"{len(healthy):,} healthy"]
    if unhealthy:
        parts.append(f'<span class="bad">{unhealthy:,} unhealthy</span>')
    if degraded := sum(one.health.state == "degraded" for one in report.devices.values()):
        parts.append(f'<span class="warn">{degraded:,} degraded</span>')
    if report.by_dra:
        parts.append(f"{len(report.by_dra):,} offered by DRA")
    if report.holders is None:
        parts.append("holders unknown")
    else:
        taken = {*report.holders, *(name for one in divided.values() for name in one.blocked)}
        free = sum(device_id not in taken for device_id in healthy)
        parts += [f"{len(report.holders):,} held", f"{free:,} free"]
    return " · ".join(parts)


def _device(report: Report, device: Device, now: float) -> str:
    state = device.health.state
    why = f"<small>{_cut(device.health.reason)}</small>" if device.health.reason else ""
    health = f'<span class="{_CLASSES[state]}">{_SIGNS[state]} {state}</span>{why}'
    known = " · ".join(f"{key} {value}" for key, value in facts(device))
    numa = ", ".join(map(str, device.topology.numa_nodes)) if device.topology else ""
    holders = None if report.holders is None else report.holders.get(device.id, ())
    return (
        f'<tr><th scope="row">{escape(device.id)}{f"<small>{_cut(known)}</small>" if known else ""}'
        f'</th><td>{health}</td><td data-name="since">{_ago(report.since[device.id], now)}</td>'
        f"<td{_named('held by', holders)}>{_people(report, holders)}</td>"
        f"<td{_named('NUMA', numa)}>{numa}</td></tr>\n"
    )


def _named(name: str, value: object) -> str:
    return f' data-name="{name}"' if value else ""


def _people(report: Report, holders: Sequence[Hold] | None) -> str:
    if holders is None:
        return '<span class="soft">unknown</span>'
    named = [_person(hold, report.used(hold)) for hold in holders[:_MAX_HOLDERS]]
    more = len(holders) - len(named)
    return "".join(named) + (f"<small>and {more} more</small>" if more else "")


def _person(hold: Hold, used: Mapping[str, float]) -> str:
    claim = f"claim {hold.claim}" if hold.claim else ""
    name, more = hold.pod, " · ".join(filter(None, (hold.container, claim)))
    if not name:  # the pod of the claim is about to start, or has just ended
        name, more = hold.claim, "claim"
    amounts = "".join(f"<small>{escape(_amount(*each))}</small>" for each in used.items())
    named = f"{escape(hold.namespace)}/{escape(name)}<small>{escape(more)}</small>"
    return f"<div>{named}{amounts}</div>"


def _amount(name: str, value: float) -> str:
    """Return a number as people read it, by the unit at the end of its name."""
    words, _, unit = name.replace("_", " ").rpartition(" ")
    if unit == "bytes":
        return f"{words} {value / _GIB:.2f} GiB"
    return f"{words} {value:.0%}" if unit == "ratio" else f"{words} {unit} {value:g}"


def _events(events: Iterable[Event], now: float) -> str:
    rows = "".join(
        f"<tr><td>{_ago(event.at, now)}</td><td>{escape(event.event)}</td>"
        f"<td{_named('resource', event.resource)}>{escape(event.resource)}</td>"
        f"<td{_named('device', event.device)}>{_cut(event.device)}</td>"
        f"<td{_named('detail', event.detail)}>{_cut(event.detail)}</td></tr>\n"
        for event in events
    )
    if not rows:
        return ""
    table = _table("events", "<tr><th>When<th>Event<th>Resource<th>Device<th>Detail</tr>", rows)
    return f'<section><div class="head"><h2>Recent events</h2></div>{table}</section>\n'


def _table(kind: str, head: str, rows: str) -> str:
    table = f'<table class="{kind}"><thead>{head}</thead><tbody>{rows}</tbody></table>'
    return table if rows else ""


def _note(problem: str) -> str:
    return f'<section class="note"><b>Not ready</b>\n{_cut(problem)}</section>\n' if problem else ""


def _hidden(tag: str, number: int, noun: str) -> str:
    more = f'{_count(number, noun)} more, not shown: see <a href="devices">devices</a>.'
    return f'<{tag} class="soft">{more}</{tag}>' if number else ""


def _cut(text: str) -> str:
    return escape(text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…")


def _clock(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _ago(then: float, now: float) -> str:
    """Return how long ago ``then`` was, with the time itself as a tooltip."""
    seconds = max(0, int(now - then))
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            text = f"{seconds // length} {unit} ago"
            break
    else:
        text = f"{seconds} s ago"
    moment = _clock(then)
    return f'<time datetime="{moment[:10]}T{moment[11:19]}Z" title="{moment}">{text}</time>'
