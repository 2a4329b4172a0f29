"""Whatever happens to a node that makes parts, none is with two claims, and none is left behind.

The seeds are fixed. ``PART_SEEDS=0:1000`` plays others, and ``PART_STEPS`` sets the length.
"""

import os
from pathlib import Path

import pytest

from drivers.part_history import PartHistory

FIRST, _, LAST = os.environ.get("PART_SEEDS", "0:20").partition(":")
STEPS = int(os.environ.get("PART_STEPS", "40"))


@pytest.mark.parametrize("seed", range(int(FIRST), int(LAST)))
def test_no_part_is_with_two_claims_and_none_is_left(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = PartHistory(tmp_path, seed, monkeypatch)
    try:
        history.play(STEPS)
        history.come_to_rest()
    except BaseException as error:
        error.add_note("\n".join([f"seed {seed}:", *history.history]))
        raise
    finally:
        history.close()
