"""Random faults on a cluster for as long as one likes, with what must hold all along."""

from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Final

import pytest

from homes.case import cases
from homes.chaos.run import Chaos
from homes.chaos.seen import OTHERS
from homes.cluster.home import Cluster
from homes.cluster.session import Session
from homes.cluster.switched import GOPHER as OF_BOTH
from homes.cluster.switched import Switched

OFTEN: Final = {"DP_POD_RESOURCES_INTERVAL": "5s"}
"""So that plugins know soon that a pod has ended."""
GOPHER: Final = replace(cases()["gopher"].plugin, environment=OFTEN)
SIMULATED: Final = replace(
    cases()["simulated"].plugin,
    resource=OTHERS,  # another simulated one may be on the node
    environment={"PLUGIN_NAME": "chaos", **OFTEN},
    config="devices: /etc/device-plugin/devices.yaml\n",
    beside={
        "devices.yaml": f"""
resources:
  {OTHERS}:
    count: 2
    id: sim-{{index}}
    envs: {{"SIMULATED_{{id}}": "{{index}}"}}
    nodes: [{{host: /dev/null, container: "/dev/chaos-{{id}}", permissions: rw}}]
    mounts: [{{host: /etc/passwd, container: "/chaos/{{id}}", read-only: true}}]
"""
    },
)


@pytest.mark.gopher
@pytest.mark.simulated
@pytest.mark.timeout(0)  # as long as one likes
@pytest.mark.parametrize("switches", [False, True], ids=["device-plugin", "both-protocols"])
def test_no_fault_gives_a_device_to_two_pods_and_none_is_lost(
    cluster: Cluster,
    session: Session,
    pytestconfig: pytest.Config,
    logs: Path,
    switches: bool,
) -> None:
    for option in ("chaos", "restart_kubelet"):
        cluster.need(option)
    options, say = session.options, session.progress.say
    beside, switched = Cluster(session), Switched(cluster) if switches else None
    seed = pytestconfig.getoption("--seed")
    if switched is not None:
        cluster.need_cdi()
        switched.need_device_class()
    try:
        cluster.install(GOPHER if switched is None else replace(OF_BOTH, environment=OFTEN))
        beside.install(SIMULATED)
        chaos = Chaos(cluster, beside, seed, options, say, switched)
        for problem in chaos.begin(60 * options.chaos):
            say(problem)
        chaos.settle()
        started = monotonic()
        chaos.run(60 * options.chaos)
        hours = (monotonic() - started) / 3600
        say(f"seed {seed}, {chaos.faults.total() / hours:.0f} faults an hour")
        say(chaos.summary())
        if switched is not None:
            switched.release()
        beside.uninstall()
        cluster.uninstall()
    except BaseException:
        beside.fail()
        if switched is not None:
            logs.mkdir(exist_ok=True)
            cluster.collect(logs)
            switched.release()  # pods do not end without the driver of their claims
        raise
    finally:
        beside.close()
