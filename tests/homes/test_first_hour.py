"""The pages for the first hour: each is carried out, command by command, and timed."""

from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.following import Followed, follow
from cluster.kinds import CONFIG_MAP, EVENT, KINDS, POD
from cluster.small_cluster import PLUGINS, SHELL, SmallCluster, running, why_not
from patience import eventually

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "demo/examples"
pytestmark = [
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "-"),
    pytest.mark.slow,  # a kubectl for each step, and plugins
]
Timed = Callable[[str, Followed], None]


@pytest.fixture
def timed(record_property: Callable[[str, object], None]) -> Timed:
    """Have the end of the run say how long the commands of a page took."""

    def record(page: str, done: Followed) -> None:
        record_property("page", f"{page}: {len(done.commands)} commands, {done.seconds:.1f} s")

    return record


def test_dra_on_one_node(timed: Timed) -> None:
    with running({**PLUGINS, **SHELL}) as cluster:
        instead = [("sudo ", ""), ("/etc/", f"{cluster.node.root}/etc/")]
        page = (EXAMPLES / "dra/README.md").read_text()
        timed("DRA on one node", follow(page, cluster.reader(), instead=instead))
