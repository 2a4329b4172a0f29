"""The inventory as a page for people: one file of HTML, which needs nothing else.

Without JavaScript it is a plain page that the browser loads again every 10 s. With it, what is
shown is replaced every 5 s, and stays where it is while nobody answers. Whatever is put in is
escaped, and a content security policy keeps anything from running but the script below.
"""

import base64
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from html import escape
from typing import Final

from deviceplugin._attribution.podresources import Hold
from deviceplugin._http.report import Report
from deviceplugin._telemetry.events import Event
from deviceplugin.model import Device

MAX_DEVICES: Final = 500
"""Devices on the page, the unhealthy first; /devices has all."""
MAX_RESOURCES: Final = 100
"""Resources on the page, those with problems first."""
_MAX_HOLDERS: Final = 4
"""Holders of one device that are named."""
_MAX_TEXT: Final = 300
"""Characters of a reason or of attributes that are shown."""

_STYLE: Final = """
:root{color-scheme:light dark;--line:#d4d9e0;--soft:#5b6675;--card:#fff;--back:#f4f6f8;
--ink:#16202c;--good:#1a7f4b;--bad:#c0262d;--link:#0b62c4}
@media(prefers-color-scheme:dark){:root{--line:#303a47;--soft:#98a4b3;--card:#1a222c;--back:#11171e;
--ink:#e4e9ef;--good:#4cc38a;--bad:#ff7b78;--link:#6db3ff}}
*{box-sizing:border-box}
body{margin:0;background:var(--back);color:var(--ink);font:15px/1.45 system-ui,sans-serif}
header,main,footer{max-width:1180px;margin:0 auto;padding:0 20px}
header{padding-top:18px;display:flex;flex-wrap:wrap;gap:4px 18px;align-items:baseline}
h1{font-size:21px;margin:0;overflow-wrap:anywhere}
h2{font-size:17px;margin:0;overflow-wrap:anywhere}
a{color:var(--link)}
nav a{margin-right:12px}
section{background:var(--card);border:1px solid var(--line);border-radius:8px;margin:16px 0;
padding:14px 16px}
.head{display:flex;flex-wrap:wrap;gap:2px 14px;align-items:baseline}
.soft,footer{color:var(--soft)}
.good{color:var(--good)}.bad{color:var(--bad)}
.good,.bad{font-weight:600}
.note{border-left:4px solid var(--bad);white-space:pre-line}
p{margin:6px 0 0}
table{border-collapse:collapse;width:100%;margin-top:10px}
th,td{text-align:left;vertical-align:top;padding:7px 14px 7px 0;border-top:1px solid var(--line);
overflow-wrap:anywhere}
thead th{border-top:0;color:var(--soft);font-weight:500;font-size:13px;white-space:nowrap}
tbody th{font-weight:600;font-size:14px}
thead th:first-child{width:1%}
.devices thead th:first-child{width:33%}
.devices thead th:nth-child(2){width:28%}
.events thead th:nth-child(2){width:16%}
.events thead th:nth-child(4){width:30%}
.events thead th:nth-child(5){width:26%}
small{display:block;color:var(--soft);font-size:13px;font-weight:400}
time{white-space:nowrap}
footer{padding:4px 20px 28px;font-size:13px}
@media(max-width:640px){
header,main,footer{padding-left:12px;padding-right:12px}
thead{position:absolute;clip-path:inset(50%)}
table,tbody,tr,th,td{display:block}
tr{border-top:1px solid var(--line);padding:8px 0}
th,td{border:0;padding:1px 0}
td[data-name]{display:grid;grid-template-columns:84px 1fr}
td[data-name]::before{content:attr(data-name);color:var(--soft)}
td[data-name]>*{grid-column:2}
td:empty{display:none}
}
"""
_SCRIPT: Final = """
setInterval(async () => {
  if (document.hidden) return;
  const state = document.getElementById("state");
  try {
    const answer = await fetch(location.href, {cache: "no-store"});
    if (!answer.ok) throw new Error(answer.status);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of ["main", "#state"])
      document.querySelector(part).replaceWith(page.querySelector(part));
    document.title = page.title;
  } catch {
    if (!state.dataset.lost) {
      state.dataset.lost = "yes";
      state.className = "bad";
      state.textContent = "no answer; this is how it was: " + state.textContent;
    }
  }
}, 5000);
"""


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}'"


_POLICY: Final = (
    f"default-src 'none'; style-src {_digest(_STYLE)}; script-src {_digest(_SCRIPT)}; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'"
)


def render(
    reports: Sequence[Report], events: Iterable[Event], *, name: str, problem: str, now: float
) -> bytes:
    """Return the page.

    Args:
        reports: All resources, by name.
        events: What happened lately, the latest first.
        name: Of the machine or pod that this is.
        problem: Why devices cannot be allocated; empty if they can.
        now: Seconds since the epoch.
    """
    shown = sorted(reports, key=lambda report: not _troubled(report))[:MAX_RESOURCES]
    sections = [
        _resource(report, devices, now)
        for report, devices in zip(shown, _choose(shown), strict=True)
    ]
    title = escape(f"{_summary(reports)} · {name}")
    text = f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{escape(_POLICY)}">
<meta name="viewport" content="width=device-width,initial-scale=1">
<noscript><meta http-equiv="refresh" content="10"></noscript>
<link rel="icon" href="data:,">
<title>{title}</title>
<style>{_STYLE}</style>
</head>
<body>
<header><h1>{escape(name)}</h1><span class="soft" id="state">{_clock(now)}</span>
<nav><a href="devices">devices</a><a href="metrics">metrics</a><a href="readyz">readyz</a></nav>
</header>
<main>
{_note(problem)}{"".join(sections)}{_left_out(len(reports) - len(shown))}{_events(events, now)}
</main>
<footer>Times are told as of the moment above; point at one to see it in full.</footer>
<script>{_SCRIPT}</script>
</body>
</html>
"""
    return text.encode(errors="replace")


def _choose(reports: Sequence[Report]) -> list[list[Device]]:
    """Return the devices of each of ``reports`` that are shown: the unhealthy first."""
    left = MAX_DEVICES
    chosen: list[list[Device]] = [[] for _ in reports]
    for healthy in (False, True):
        for devices, report in zip(chosen, reports, strict=True):
            found = [d for d in report.devices.values() if bool(d.health) is healthy]
            devices.extend(found[:left])
            left -= len(found[:left])
    return chosen


def _troubled(report: Report) -> bool:
    return bool(report.problem) or not all(device.health for device in report.devices.values())


def _summary(reports: Iterable[Report]) -> str:
    devices = [device for report in reports for device in report.devices.values()]
    unhealthy = sum(not device.health for device in devices)
    return f"{unhealthy} of {len(devices)} unhealthy" if unhealthy else _count(len(devices))


def _count(number: int, noun: str = "device") -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _resource(report: Report, shown: Sequence[Device], now: float) -> str:
    state = (
        f'<span class="bad">not registered: {_cut(report.problem)}</span>'
        if report.problem
        else '<span class="good">registered</span>'
    )
    hidden = len(report.devices) - len(shown)
    more = (
        f'<p class="soft">{_count(hidden)} more, not shown: see <a href="devices">devices</a>.</p>'
        if hidden
        else ""
    )
    rows = "".join(_device(report, device, now) for device in shown)
    table = (
        '<table class="devices"><thead>'
        "<tr><th>Device<th>Health<th>Since<th>Held by<th>NUMA</tr></thead>"
        f"<tbody>{rows}</tbody></table>"
        if shown
        else ""
    )
    return (
        f'<section><div class="head"><h2>{escape(report.name)}</h2>{state}'
        f'<span class="soft">{escape(report.plugin)}</span></div>'
        f"<p>{_numbers(report)}</p>{table}{more}</section>\n"
    )


def _numbers(report: Report) -> str:
    healthy = [device.id for device in report.devices.values() if device.health]
    unhealthy = len(report.devices) - len(healthy)
    parts = [_count(len(report.devices)), f"{len(healthy):,} healthy"]
    if unhealthy:
        parts.append(f'<span class="bad">{unhealthy:,} unhealthy</span>')
    if report.holders is None:
        parts.append("not known who holds them")
    else:
        free = sum(device_id not in report.holders for device_id in healthy)
        parts += [f"{len(report.holders):,} held", f"{free:,} free"]
    return " · ".join(parts)


def _device(report: Report, device: Device, now: float) -> str:
    health = (
        '<span class="good">● healthy</span>'
        if device.health
        else f'<span class="bad">▲ unhealthy</span><small>{_cut(device.health.reason)}</small>'
    )
    facts = " · ".join(f"{key} {value}" for key, value in device.attributes.items())
    numa = ", ".join(map(str, device.topology.numa_nodes)) if device.topology else ""
    holders = None if report.holders is None else report.holders.get(device.id, ())
    return (
        f'<tr><th scope="row">{escape(device.id)}{f"<small>{_cut(facts)}</small>" if facts else ""}'
        f'</th><td>{health}</td><td data-name="since">{_ago(report.since[device.id], now)}</td>'
        f"<td{_named('held by', holders)}>{_people(holders)}</td>"
        f"<td{_named('NUMA', numa)}>{numa}</td></tr>\n"
    )


def _named(name: str, value: object) -> str:
    return f' data-name="{name}"' if value else ""


def _people(holders: Sequence[Hold] | None) -> str:
    if holders is None:
        return '<span class="soft">not known</span>'
    named = [
        f"<div>{escape(hold.namespace)}/{escape(hold.pod)}"
        f"<small>{escape(hold.container)}</small></div>"
        for hold in holders[:_MAX_HOLDERS]
    ]
    more = len(holders) - len(named)
    return "".join(named) + (f"<small>and {more} more</small>" if more else "")


def _events(events: Iterable[Event], now: float) -> str:
    rows = "".join(
        f"<tr><td>{_ago(event.at, now)}</td><td>{escape(event.event)}</td>"
        f"<td{_named('resource', event.resource)}>{escape(event.resource)}</td>"
        f"<td{_named('device', event.device)}>{_cut(event.device)}</td>"
        f"<td{_named('detail', event.detail)}>{_cut(event.detail)}</td></tr>\n"
        for event in events
    )
    head = "<tr><th>When<th>Event<th>Resource<th>Device<th>Detail</tr>"
    return (
        '<section><div class="head"><h2>Recent events</h2></div>'
        f'<table class="events"><thead>{head}</thead><tbody>{rows}</tbody></table></section>\n'
        if rows
        else ""
    )


def _note(problem: str) -> str:
    return f'<section class="note"><b>Not ready</b>\n{_cut(problem)}</section>\n' if problem else ""


def _left_out(number: int) -> str:
    if not number:
        return ""
    more = f'{_count(number, "resource")} more, not shown: see <a href="devices">devices</a>.'
    return f'<section class="soft">{more}</section>\n'


def _cut(text: str) -> str:
    return escape(text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…")


def _clock(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _ago(then: float, now: float) -> str:
    """Return how long ago ``then`` was, with the time itself for who points at it."""
    seconds = max(0, int(now - then))
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            text = f"{seconds // length} {unit} ago"
            break
    else:
        text = f"{seconds} s ago"
    moment = _clock(then)
    return f'<time datetime="{moment[:10]}T{moment[11:19]}Z" title="{moment}">{text}</time>'
