"""Whatever happens to a node, no device is with two pods, and in the end all are offered once.

The seeds are fixed. ``WHOLE_SEEDS=1000:1300`` plays others, and ``WHOLE_STEPS`` sets the length.
"""

import os
from pathlib import Path

import pytest

from cluster.random_runs import RandomRun
from cluster.whole_node import WholeNode

FIRST, _, LAST = os.environ.get("WHOLE_SEEDS", "100:104").partition(":")
STEPS = int(os.environ.get("WHOLE_STEPS", "50"))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(int(FIRST), int(LAST)))
def test_no_device_is_with_two_pods_and_none_is_lost(root: Path, seed: int) -> None:
    with WholeNode(root, ["a", "b", "c", "d"], seed=seed) as whole:
        run = RandomRun(whole, seed)
        try:
            run.play(STEPS)
            run.come_to_rest()
        except BaseException as error:
            error.add_note(f"seed {seed}: {run}")
            error.add_note(whole.log[-4000:])
            raise
