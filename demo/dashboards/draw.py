"""Draw the dashboard without Grafana, as one file of HTML.

    python demo/dashboards/draw.py http://127.0.0.1:9090 [SECONDS] > dashboard.html

Runs the queries of the dashboard's panels on a Prometheus, and draws the results in the places of
the panels. The numbers and lines are the same as Grafana's, the style is not.
"""

import json
import math
import sys
import time
from collections.abc import Mapping, Sequence
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode
from urllib.request import urlopen

DASHBOARD: Final = Path(__file__).with_name("device-plugins.json")
STEPS: Final = 120
MOST_ROWS: Final = 7
COLOURS: Final = ("#1a7f4b", "#0b62c4", "#c0262d", "#b06a00", "#6b3fa0", "#5b6675")
STYLE: Final = """
body{margin:8px;font:13px system-ui,sans-serif;color:#16202c;background:#f4f6f8}
main{display:grid;grid-template-columns:repeat(24,1fr);grid-auto-rows:18px;gap:6px}
section{background:#fff;border:1px solid #d4d9e0;border-radius:5px;padding:4px 8px;overflow:hidden}
h2{font-size:13px;margin:0 0 2px}
b{display:block;font-size:30px;text-align:center}
svg{width:100%;height:95px}
table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:1px 6px 1px 0}
i{font-size:11px;font-style:normal;margin-right:9px;display:inline-block}
"""
Series = Sequence[Mapping[str, Any]]


def ask(url: str, query: str, seconds: float) -> Series:
    """Return the series of ``query``: over the last ``seconds``, or now if that is 0."""
    for name in ("$node", "$resource"):
        query = query.replace(name, ".*")
    words: dict[str, object] = {"query": query.replace("$__rate_interval", "15s")}
    kind, now = "query", time.time()
    if seconds:
        kind = "query_range"
        words |= {"start": now - seconds, "end": now, "step": seconds / STEPS}
    with urlopen(f"{url}/api/v1/{kind}?{urlencode(words)}", timeout=10) as answer:  # noqa: S310
        found: Series = json.load(answer)["data"]["result"]
    return found


def page(url: str, seconds: float) -> str:
    """Return the dashboard with the results of the Prometheus at ``url``."""
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    sections = "".join(section(url, panel, seconds) for panel in panels)
    return f'<!DOCTYPE html><meta charset="utf-8"><style>{STYLE}</style><main>{sections}</main>\n'


def section(url: str, panel: Mapping[str, Any], seconds: float) -> str:
    """Return one panel."""
    place = panel["gridPos"]
    area = "/".join(str(place[key] + 1) for key in ("y", "x"))
    size = f"span {place['h']}/span {place['w']}"
    lines = panel["type"] == "timeseries"
    found = [
        (series, target.get("legendFormat") or "")
        for target in panel["targets"]
        for series in ask(url, target["expr"], seconds if lines else 0)
    ]
    draw = {"timeseries": chart, "stat": number, "table": table}[panel["type"]]
    unit = panel["fieldConfig"]["defaults"].get("unit", "")
    title = escape(panel["title"])
    return f'<section style="grid-area:{area}/{size}"><h2>{title}</h2>{draw(found, unit)}</section>'


Line = Sequence[tuple[float, float]]
Found = Sequence[tuple[Mapping[str, Any], str]]


def number(found: Found, unit: str) -> str:
    """Return one number in large type."""
    return f"<b>{text(float(found[0][0]['value'][1]), unit) if found else 'No data'}</b>"


def table(found: Found, unit: str) -> str:
    """Return a row for each series."""
    names = sorted({name for series, _ in found for name in series["metric"]})
    head = "".join(f"<th>{escape(name)}" for name in [*names, "value"])
    rows = "".join(
        "<tr>"
        + "".join(f"<td>{escape(series['metric'].get(name, ''))}" for name in names)
        + f"<td>{text(float(series['value'][1]), unit)}"
        for series, _ in found[:MOST_ROWS]
    )
    if len(found) > MOST_ROWS:
        rows += f"<tr><td>and {len(found) - MOST_ROWS} more"
    return f"<table><tr>{head}{rows}</table>"


def chart(found: Found, unit: str) -> str:
    """Return a line for each series, above the names."""
    points = [[(float(at), float(value)) for at, value in s["values"]] for s, _ in found]
    known = [point for line in points for point in line if not math.isnan(point[1])]
    if not known:
        return "No data"
    first, last = min(at for at, _ in known), max(at for at, _ in known)
    top = max(value for _, value in known) or 1
    paths = "".join(path(line, first, last, top, key) for key, line in enumerate(points))
    names = "".join(legend(series["metric"], form, key) for key, (series, form) in enumerate(found))
    scale = f'<text x="2" y="12" font-size="11">{text(top, unit)}</text>'
    box = '<svg viewBox="0 0 300 110" preserveAspectRatio="none">'
    return f"{box}{scale}{paths}</svg>{names}"


def path(line: Line, first: float, last: float, top: float, key: int) -> str:
    """Return ``line`` in a box of 300 by 110, with gaps where values are missing."""
    width = (last - first) or 1
    drawn = f'fill="none" stroke="{COLOURS[key % len(COLOURS)]}" stroke-width="1.5"'
    parts = []
    for unknown, group in groupby(line, key=lambda point: math.isnan(point[1])):
        places = (f"{300 * (at - first) / width:.1f},{108 - 90 * v / top:.1f}" for at, v in group)
        points = "" if unknown else " ".join(places)
        parts.append(f'<polyline {drawn} vector-effect="non-scaling-stroke" points="{points}"/>')
    return "".join(parts)


def legend(labels: Mapping[str, str], form: str, key: int) -> str:
    """Return the name of a series in its colour."""
    for name, value in labels.items():
        form = form.replace(f"{{{{{name}}}}}", value)
    return f'<i style="color:{COLOURS[key % len(COLOURS)]}">{escape(form)}</i>'


UNITS: Final = {"percentunit": (100.0, " %"), "reqps": (1.0, "/s")}
DURATIONS: Final = ((1, 1000.0, " ms"), (120, 1.0, " s"), (math.inf, 1 / 60, " min"))
"""How seconds are written, up to how many."""


def text(value: float, unit: str) -> str:
    """Return ``value`` as people read it."""
    factor, sign = UNITS.get(unit, (1.0, ""))
    if unit == "s":
        factor, sign = next((row[1:] for row in DURATIONS if value < row[0]), (1.0, " s"))
    return f"{value * factor:.3g}{sign}"


if __name__ == "__main__":
    place, *span = sys.argv[1:] or ["http://127.0.0.1:9090"]
    sys.stdout.write(page(place.rstrip("/"), float(span[0]) if span else 3 * 3600))
