"""Claims for devices that consume counters get what they get from the real scheduler.

The seeds are fixed. ``COUNTER_SEEDS=1000:1100`` plays others.
"""

import os

import pytest

from cluster import real_controllers
from cluster.counter_worlds import CounterWorld
from cluster.dra_objects import Objects, Simulated
from cluster.real_controllers import RealCluster

FIRST, _, LAST = os.environ.get("COUNTER_SEEDS", "0:4").partition(":")
MISSING = real_controllers.why_not()


@pytest.mark.slow
@pytest.mark.skipif(bool(MISSING), reason=MISSING or "-")
@pytest.mark.xdist_group("real-api-server")
@pytest.mark.parametrize("seed", range(int(FIRST), int(LAST)))
def test_claims_get_the_same_as_from_the_real_scheduler(
    real_cluster: RealCluster, seed: int
) -> None:
    real_cluster.clear()
    real_cluster.add_node("n1")
    with Simulated() as make:
        world = CounterWorld(seed, make, Objects(real_cluster))
        try:
            world.play(25)
        except BaseException as error:
            error.add_note("\n".join(map(str, [f"seed {seed}:", *world.history])))
            raise
