"""Random faults on a cluster for as long as one likes, with what must hold all along."""

from dataclasses import replace
from time import monotonic

import pytest

from homes.case import cases
from homes.chaos import Chaos
from homes.cluster_home import Cluster
from homes.cluster_session import Session

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
    beside = Cluster(session)
    seed = pytestconfig.getoption("--seed")
    try:
        cluster.install(GOPHER)
        beside.install(SIMULATED)
        resources = (GOPHER.resource, SIMULATED.resource)
        chaos = Chaos(cluster, beside, resources, seed, session.options.restart_kubelet)
        chaos.begin()
        chaos.settle()
        started = monotonic()
        chaos.run(60 * session.options.chaos, session.progress.say)
        hours = (monotonic() - started) / 3600
        session.progress.say(f"seed {seed}, {chaos.faults.total() / hours:.0f} faults an hour")
        beside.uninstall()
        cluster.uninstall()
    except BaseException:
        beside.fail()
        raise
    finally:
        beside.close()
