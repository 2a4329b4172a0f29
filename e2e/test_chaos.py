"""Random faults on a cluster for as long as one likes, with what must hold all along."""

from dataclasses import replace
from time import monotonic

import pytest

from homes.case import cases
from homes.chaos.run import Chaos, Means
from homes.cluster.home import Cluster
from homes.cluster.session import Session

GOPHER = cases()["gopher"].plugin
OTHER = "example.com/chaos"
"""Of a plugin with a socket of its own: another simulated one may be on the node."""
SIMULATED = replace(
    cases()["simulated"].plugin,
    resource=OTHER,
    environment={"RESOURCE_NAME": OTHER, "PLUGIN_NAME": "chaos"},
)


@pytest.mark.gopher
@pytest.mark.simulated
@pytest.mark.timeout(0)  # as long as one likes
def test_no_fault_gives_a_device_to_two_pods(
    cluster: Cluster, session: Session, pytestconfig: pytest.Config
) -> None:
    for option in ("chaos", "restart_kubelet"):
        cluster.need(option)
    options, say = session.options, session.progress.say
    beside = Cluster(session)
    seed = pytestconfig.getoption("--seed")
    means = Means(options.restart_kubelet, options.before_tag, options.chaos_clock)
    try:
        cluster.install(GOPHER)
        beside.install(SIMULATED)
        chaos = Chaos(cluster, beside, (GOPHER.resource, OTHER), seed, means)
        for problem in chaos.begin(60 * options.chaos):
            say(problem)
        chaos.settle()
        started = monotonic()
        chaos.run(60 * options.chaos, say)
        hours = (monotonic() - started) / 3600
        say(f"seed {seed}, {chaos.faults.total() / hours:.0f} faults an hour")
        say(chaos.summary())
        beside.uninstall()
        cluster.uninstall()
    except BaseException:
        beside.fail()
        raise
    finally:
        beside.close()
