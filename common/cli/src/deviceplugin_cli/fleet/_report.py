"""A fleet as a table for people and as JSON for programs."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from deviceplugin._app.text_table import aligned
from deviceplugin.tools import _reports
from deviceplugin_cli.fleet._fleet import Fleet, Row, Sum

FORMAT: Final = 1
"""Version of the JSON. It is raised when a field changes its meaning or disappears."""

_HEADER: Final = ("RESOURCE", "NODE", "HEALTHY", "TOTAL", "HELD", "PROBLEM")
_NONE: Final = "-"
_LONGEST: Final = 300
"""Characters of a message in the table."""


def table(fleet: Fleet, rows: Iterable[Row]) -> str:
    """Return ``rows``, the sums of all of ``fleet``, and what is wrong or unknown beside these."""
    cells = [_cells(row) for row in rows]
    parts = [aligned([_HEADER, *cells])] if cells else []
    parts.append([_sum(name, one) for name, one in fleet.sums.items()] or ["no devices"])
    parts.append(
        [
            f"DevicePlugin {one.name}: not ready: {_shown(f'{one.reason}: {one.message}')}"
            for one in fleet.objects or ()
            if not one.ready
        ]
        + [f"missing: {text}" for text in fleet.missing]
        + [f"unknown: {_shown(text)}" for text in fleet.unknown]
    )
    return "\n\n".join("\n".join(lines) for lines in parts if lines) + "\n"


def _cells(row: Row) -> tuple[str, ...]:
    notes = [row.problem, "cordoned" if row.cordoned else ""]
    held = _NONE if row.held is None else str(row.held)
    problem = _shown("; ".join(filter(None, notes))) or _NONE
    return row.resource, row.node, str(row.healthy), str(row.total), held, problem


def _sum(name: str, one: Sum) -> str:
    nodes = "1 node" if one.nodes == 1 else f"{one.nodes} nodes"
    held = "" if one.held is None else f", {one.held} held"
    problems = f", problems on {one.problems}" if one.problems else ""
    return f"{name}: {one.healthy} of {one.total} healthy on {nodes}{held}{problems}"


def _shown(text: str) -> str:
    """Return ``text`` in one line that a terminal can show."""
    line = " ".join(text.split())[:_LONGEST]
    return "".join(one if one.isprintable() else "?" for one in line).rstrip(": ")


def document(fleet: Fleet, rows: Iterable[Row]) -> Mapping[str, Any]:
    """Return everything, for JSON. ``null`` means unknown."""
    return _reports.document(
        FORMAT,
        {
            "resources": [
                {
                    "name": name,
                    "nodes": one.nodes,
                    "healthy": one.healthy,
                    "total": one.total,
                    "held": one.held,
                    "problems": one.problems,
                }
                for name, one in fleet.sums.items()
            ],
            "nodes": [
                {
                    "resource": row.resource,
                    "node": row.node,
                    "healthy": row.healthy,
                    "total": row.total,
                    "held": row.held,
                    "cordoned": row.cordoned,
                    "problem": row.problem,
                }
                for row in rows
            ],
            "objects": None
            if fleet.objects is None
            else [
                {
                    "name": one.name,
                    "plugin": one.plugin,
                    "ready": one.ready,
                    "reason": one.reason,
                    "message": one.message,
                }
                for one in fleet.objects
            ],
            "missing": fleet.missing,
            "unknown": fleet.unknown,
        },
    )


def to_json(fleet: Fleet, rows: Iterable[Row]) -> str:
    """Return everything as JSON."""
    return _reports.to_json(document(fleet, rows))
