"""A plugin of somebody else that knows a peer, as if it were installed."""

from pathlib import Path

import pytest

_ENTRY = "[deviceplugin.migrate]\nlamp = lamp_migrate:migrate\n"
_CODE = """\
from deviceplugin.kit.migration import Migration

def migrate(workload):
    if workload.name != "lamp-plugin":
        return None
    if workload.values is not None:
        for key in list(workload.values):
            workload.key(key)
    return Migration(peer="lamps", {fields})
"""


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, fields: str) -> None:
    """Install it, in ``folder``: ``fields`` are those of its ``Migration``, as in Python."""
    info = folder / "lamp-1.0.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lamp\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(_ENTRY)
    (folder / "lamp_migrate.py").write_text(_CODE.replace("{fields}", fields))
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(__import__("sys").modules, "lamp_migrate", raising=False)
