"""What is held, and how far that is, for JSON."""

from collections.abc import Mapping, Sequence
from typing import Any

from deviceplugin._app.hold_progress import LET_GO, RELEASING, RESET, RESETTING
from deviceplugin._app.holding import Holding
from deviceplugin._attribution.holds import Hold


def listed(holding: Holding) -> Sequence[Mapping[str, Any]]:
    """Return what is held; nothing of what another process holds."""
    return [described(holding, one) for one in holding.holds.all if holding.locked is not None]


def described(holding: Holding, hold: Hold) -> Mapping[str, Any]:
    return {
        "device": hold.name,
        "reason": hold.reason,
        "since": hold.since,
        "state": _state(holding, hold),
        "devices": [{"resource": name, "id": one} for name, one in sorted(hold.keys)],
        "users": holding.ownership.users([one.key for one in holding.holds.members(hold)]),
    }


def _state(holding: Holding, hold: Hold) -> str:
    progress, outcome = holding.progress.get(hold.name), holding.outcomes.get(hold.name)
    if progress is None or progress.state == RELEASING:
        return progress.state if progress else "not held"
    if outcome:
        return outcome.text
    if hold.was_reset and progress.state == LET_GO:
        return RESETTING if hold.name in holding.kept else RESET  # only then it can be released
    return progress.state
