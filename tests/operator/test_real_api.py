"""What only real parts show: an API server, controllers, a scheduler, and 40 nodes.

The operator is a process with the rights of its deployment. What this shows is in
`operator/docs/running.md`.
"""

import os
import random
import signal
import statistics
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from deviceplugin.apiserver import ConflictError, InvalidError
from deviceplugin_operator.crd.specification import read
from deviceplugin_operator.rights import rendered
from operators.fleet_cluster import SPACE
from operators.operator_process import Operator
from operators.pods import RESOURCE, as_configured
from operators.real_fleet import (
    CONFIG_MAPS,
    NODES,
    OWNERS,
    PODS,
    ROOT,
    SETS,
    SLICES,
    RealFleet,
    exists,
    running,
    why_not,
)
from patience import eventually

pytestmark = [
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "-"),
    pytest.mark.timeout(600),  # roll-outs over 40 nodes, of which a kubelet reports each second
    pytest.mark.xdist_group("real-api-server"),
]
COUNT = 40
AWAY = float(os.environ.get("API_AWAY", "30"))
"""Seconds without an API server; the record is of 120."""
MANY = int(os.environ.get("MANY_NODES", "1000"))
"""Nodes of the test of memory; the record is of 5,000."""
UNLUCKY = {"number-devices": 4, "seed": 13}
CRD = ROOT / "deployments/operator/crd/deviceplugins.yaml"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealFleet]:
    with running(tmp_path_factory.mktemp("real"), COUNT) as fleet:
        yield fleet


@pytest.fixture
def fleet(cluster: RealFleet) -> Iterator[RealFleet]:
    """Return the cluster; objects that a test creates are gone after it."""
    cluster.behave = as_configured
    yield cluster
    for one in cluster.server.admin.list(OWNERS).items:
        cluster.server.admin.delete(f"{OWNERS}/{one['metadata']['name']}")
    # The kubelets note the end of a pod after it is gone.
    cluster.wait(lambda: not cluster.server.admin.list(PODS).items and not cluster._lives)
    cluster._seen.clear()
    cluster.replaced.clear()
    cluster.most_away = cluster.most_on_a_node = 0


@pytest.fixture
def operator(fleet: RealFleet) -> Iterator[Operator]:
    made = Operator(fleet)
    made.start()
    yield made
    made.end()
    assert {403} & {one["responseStatus"]["code"] for one in fleet.calls()} == set()


def say(text: str) -> None:
    """Print a line for the record, which `-rP` shows."""
    print(text)  # noqa: T201


def sim(fleet: RealFleet, settings: dict[str, Any] | None = None, **more: Any) -> None:
    """Have the simulated plugin with 4 devices."""
    given = {"number-devices": 4, **(settings or {})}
    fleet.apply("sim", plugin="simulated", simulated=given, **more)


def install(fleet: RealFleet, **more: Any) -> float:
    sim(fleet, **more)
    took = fleet.wait(lambda: fleet.is_ready("sim"))
    fleet.wait(lambda: fleet.status("sim")["devices"] == f"simple-device {4 * COUNT}/{4 * COUNT}")
    return took


def daemon_set(fleet: RealFleet, name: str = "dp-sim") -> dict[str, Any]:
    return fleet.server.admin.get(f"{SETS}/{name}")


def test_a_switch_to_dra_and_back_waits_for_rights_and_survives_a_kill(
    fleet: RealFleet, operator: Operator
) -> None:
    admin, driver = fleet.server.admin, "simple-device.example.com"
    names = [f"node-{number:04}" for number in range(3)]
    for name in names:
        admin.merge(f"{NODES}/{name}", {"metadata": {"labels": {"dra": "yes"}}})

    def switch(protocol: str) -> None:
        settings = {"protocol": protocol} if protocol else {}
        sim(fleet, settings, nodeSelector={"dra": "yes"}, rollout={"maxUnavailable": 3})

    def slices() -> list[str]:
        return sorted(one["spec"]["nodeName"] for one in admin.list(SLICES).items)

    switch("")
    fleet.wait(lambda: fleet.is_ready("sim"))
    switch("dra")
    fleet.wait(lambda: fleet.condition("sim", "Degraded")[1] == "RightsMissing")
    assert [] == fleet.replaced
    for one in yaml.safe_load_all(rendered([read(admin.get(f"{OWNERS}/sim"))], SPACE)):
        if one["kind"] == "DeviceClass":
            admin.create("/apis/resource.k8s.io/v1/deviceclasses", one)
        else:
            fleet.server.create([one])
    fleet.wait(lambda: slices() == names[:1], 120)
    operator.end(signal.SIGKILL)
    operator.start()
    took = fleet.wait(lambda: fleet.is_ready("sim"), 120)
    say(f"three nodes have DRA {took:.1f} s after a kill in the middle")
    assert names == slices()
    assert sorted(names * 2) == sorted(fleet.replaced)
    assert "True" == fleet.condition("sim", "DeviceClasses")[0]
    assert "simple-device 12/12" == fleet.status("sim")["devices"]
    account = daemon_set(fleet)["spec"]["template"]["spec"]["serviceAccountName"]
    assert "simulated-device-plugin" == account
    assert driver in daemon_set(fleet)["spec"]["template"]["metadata"]["annotations"].values()
    switch("device-plugin")
    fleet.wait(lambda: fleet.is_ready("sim") and not slices(), 120)
    assert 1 == fleet.most_on_a_node


@pytest.mark.usefixtures("operator")
def test_a_bad_change_touches_one_node_of_forty_and_is_rolled_back_in_time(
    fleet: RealFleet,
) -> None:
    install(fleet)
    before = fleet.uids()
    sim(fleet, UNLUCKY, rollout={"deadline": "10s"})
    took = fleet.wait(lambda: "rolled back" in fleet.condition("sim", "Degraded")[2])
    say(f"rolled back after {took:.1f} s, deadline 10 s")
    assert took <= 20
    after = fleet.uids()
    assert ["node-0000"] == [node for node in before if before[node] != after.get(node)]
    fleet.wait(lambda: fleet.allocatable("node-0000", RESOURCE) == "4")
    assert ["node-0000"] * 2 == fleet.replaced
    assert "unlucky seed" in fleet.condition("sim", "Degraded")[2]


def test_an_operator_that_is_killed_at_twenty_random_moments_ends_the_same(
    fleet: RealFleet, operator: Operator
) -> None:
    install(fleet)
    seed = random.randrange(10**6)
    chance = random.Random(seed)
    sim(fleet, {"number-devices": 5})
    for _ in range(20):
        time.sleep(chance.uniform(0.1, 4))  # a random moment is what is tried
        operator.end(signal.SIGKILL)
        operator.start()
    fleet.wait(lambda: fleet.is_ready("sim"), 300)
    say(f"seed {seed}, {fleet.most_away} of {COUNT} away at most")
    assert COUNT == len(fleet.replaced) == len({*fleet.replaced})
    assert fleet.most_away <= 4
    assert 1 == fleet.most_on_a_node
    revisions = {
        one["metadata"]["labels"]["deviceplugin.dev/revision"] for one in fleet.pods().values()
    }
    (status,) = fleet.status("sim")["revisions"]
    assert {status["wanted"]} == {status["good"]} == revisions


def test_deletion_needs_no_operator(fleet: RealFleet, operator: Operator) -> None:
    sim(fleet, nodeSelector={"kubernetes.io/hostname": "node-0000"})
    fleet.wait(lambda: fleet.is_ready("sim"))
    operator.end()
    fleet.server.admin.delete(f"{OWNERS}/sim")
    ours = {"labelSelector": "deviceplugin.dev/owner"}
    kinds = (SETS, CONFIG_MAPS, PODS)
    took = fleet.wait(lambda: not any(fleet.server.admin.list(kind, ours).items for kind in kinds))
    say(f"all gone after {took:.1f} s")
    assert took <= 2


def _edited(fleet: RealFleet, edit: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Edit the DaemonSet, as kubectl does: again, if its controller was quicker."""

    def is_done() -> dict[str, Any] | None:
        found = daemon_set(fleet)
        edit(found)
        try:
            fleet.server.admin.replace(f"{SETS}/dp-sim", found)
        except ConflictError:
            return None
        return found

    done = eventually(is_done)
    assert done
    return done


@pytest.mark.usefixtures("operator")
def test_hand_edits_are_undone_within_two_seconds_and_restart_nothing(fleet: RealFleet) -> None:
    install(fleet)
    before, good = fleet.uids(), daemon_set(fleet)["spec"]

    def edit(found: dict[str, Any]) -> None:
        template = found["spec"]["template"]
        (own,) = template["spec"]["containers"]
        own |= {"image": "other", "env": [*own["env"], {"name": "DP_LOG_LEVEL", "value": "debug"}]}
        own["securityContext"] = {"privileged": True, "allowPrivilegeEscalation": True}
        template["spec"]["containers"].append({"name": "evil", "image": "evil"})
        template["spec"]["tolerations"] = [{"key": "a", "operator": "Exists"}]
        template["metadata"]["labels"]["other"] = "a"

    found = _edited(fleet, edit)
    assert daemon_set(fleet)["metadata"]["generation"] > found["metadata"]["generation"]
    took = fleet.wait(lambda: daemon_set(fleet)["spec"] == good)
    say(f"undone after {took:.2f} s")
    assert took <= 2
    assert before == fleet.uids()
    assert [] == fleet.replaced


@pytest.mark.usefixtures("operator")
def test_two_objects_for_one_node_never_run_two_pods_there(fleet: RealFleet) -> None:
    """What the objects do not know yet, the scheduler does: both match, by a new label."""
    install(fleet)
    before = fleet.uids()
    fleet.apply("younger", plugin="simulated", nodeSelector={"zone": "b"})
    fleet.wait(lambda: fleet.condition("younger", "Accepted")[0] == "True")
    fleet.server.admin.merge(f"{NODES}/node-0001", {"metadata": {"labels": {"zone": "b"}}})
    fleet.wait(lambda: fleet.condition("younger", "Accepted")[1] == "Conflict", 60)
    assert 1 == fleet.most_on_a_node
    assert before == fleet.uids()
    fleet.server.admin.merge(f"{NODES}/node-0001", {"metadata": {"labels": {"zone": None}}})


@pytest.mark.timeout(600 + AWAY)
# Connections of the played kubelets end with the server, some of them unread.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_api_server_that_was_away_is_caught_up_with_by_the_same_process(
    fleet: RealFleet, operator: Operator
) -> None:
    install(fleet)
    before = fleet.uids()
    assert operator.process
    fleet.server.stop()
    time.sleep(AWAY)  # how long it is away is what is tried
    assert None is operator.process.poll()
    fleet.server.start()
    fleet.wait(lambda: exists(fleet.server.admin, OWNERS))  # its own paths come first
    fleet.forget_calls()  # a server that starts does not know its roles at once
    assert before == fleet.uids()
    assert [] == fleet.replaced
    generation = daemon_set(fleet)["metadata"]["generation"]
    sim(fleet, {"number-devices": 5})
    ours = fleet.wait(lambda: daemon_set(fleet)["metadata"]["generation"] > generation)
    # Then the controller manager has to come back, which waits up to a minute between attempts.
    took = ours + fleet.wait(lambda: len(fleet.replaced) > 0, 120)
    say(f"away {AWAY:g} s: DaemonSet changed after {ours:.1f} s, a pod replaced after {took:.1f} s")
    assert "Request attempt" not in (fleet.server.root / "operator.log").read_text()
    assert ours <= 45
    assert None is operator.process.poll()
    fleet.wait(lambda: fleet.is_ready("sim"), 300)
    fleet.forget_calls()


def test_fifty_objects_cost_little_and_are_reacted_to_at_once(
    fleet: RealFleet, operator: Operator
) -> None:
    for number in range(50):
        fleet.apply(f"o{number}", plugin="simulated", nodeSelector={"no": f"node-{number}"})
    fleet.wait(lambda: all(fleet.condition(f"o{n}")[1] == "NoNodes" for n in range(50)), 120)
    times = []
    for number in range(9):
        name = f"o{number}"
        before = daemon_set(fleet, f"dp-{name}")["metadata"]["generation"]
        given = {"number-devices": 7}
        fleet.apply(name, plugin="simulated", simulated=given, nodeSelector={"no": name})
        times.append(
            fleet.wait(
                lambda name=name, before=before: (  # type: ignore[misc]
                    daemon_set(fleet, f"dp-{name}")["metadata"]["generation"] > before
                )
            )
        )
    fleet.wait(lambda: all(fleet.condition(f"o{n}")[1] == "NoNodes" for n in range(50)), 120)
    time.sleep(70)  # until all is settled
    calls, cpu = len(fleet.calls()), operator.cpu()
    time.sleep(60)
    made = fleet.calls()[calls:]
    nodes = [one for one in made if one["requestURI"].startswith("/api/v1/nodes")]
    used = (operator.cpu() - cpu) / 60
    say(
        f"reaction {statistics.median(times) * 1000:.0f} ms, {operator.memory():.1f} MiB, "
        f"idle {used:.2%} CPU, {len(made) - len(nodes)} calls/min and {len(nodes)} for nodes"
    )
    assert statistics.median(times) <= 0.2
    assert operator.memory() <= 64
    assert used <= 0.002
    assert len(made) - len(nodes) <= 10
    assert len(nodes) <= 3


def test_thousands_of_nodes_fit_into_the_memory_of_the_deployment(
    tmp_path: Path,
) -> None:
    with running(tmp_path, 0) as fleet:
        fleet.add_nodes(MANY, size=8000)
        operator = Operator(fleet)
        operator.start()
        fleet.apply("sim", plugin="simulated", nodeSelector={"no": "node"})
        fleet.wait(lambda: fleet.condition("sim")[1] == "NoNodes", 120)
        time.sleep(65)  # two more lists of all nodes
        highest = operator.memory("VmHWM")
        operator.end()
        say(f"{MANY} nodes: at most {highest:.1f} MiB")
    file = ROOT / "deployments/operator/operator/deployment.yaml"
    (deployment,) = (
        one for one in yaml.safe_load_all(file.read_text()) if one["kind"] == "Deployment"
    )
    limits = deployment["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert highest <= 96 <= int(limits["memory"].removesuffix("Mi"))


def test_the_kind_can_be_deleted_and_come_back(tmp_path: Path) -> None:
    with running(tmp_path, 2) as fleet:
        admin, operator = fleet.server.admin, Operator(fleet)
        operator.start()
        fleet.apply("sim", plugin="simulated")
        fleet.wait(lambda: fleet.is_ready("sim"))
        kind = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        path = f"{kind}/deviceplugins.deviceplugin.dev"
        admin.delete(path)
        fleet.wait(lambda: not admin.list(PODS).items)
        fleet.wait(lambda: not exists(admin, path))
        time.sleep(20)  # what it does meanwhile is what is tried
        log = (tmp_path / "operator.log").read_text()
        say(log)
        assert operator.process
        assert 2 == operator.process.poll()
        said = "deviceplugin-operator: the API server does not know the kind DevicePlugin: "
        assert log.splitlines()[-1].startswith(said)
        assert "Traceback" not in log
        admin.create(kind, yaml.safe_load(CRD.read_text()))
        fleet.wait(lambda: exists(admin, OWNERS))
        operator.start()  # as its Deployment does
        fleet.apply("sim", plugin="simulated")
        fleet.wait(lambda: fleet.is_ready("sim"), 120)
        operator.end()


POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic"
"""How the paths of policies and of their bindings begin."""


@contextmanager
def guarded(fleet: RealFleet, allowed: str) -> Generator[None]:
    """Have a policy that lets only some DaemonSets be written, by an expression."""
    admin, name = fleet.server.admin, {"name": "guard"}
    rules = {
        "apiGroups": ["apps"],
        "apiVersions": ["v1"],
        "resources": ["daemonsets"],
        "operations": ["CREATE", "UPDATE"],
    }
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rules]},
        "validations": [{"expression": allowed, "message": "not allowed here"}],
    }
    binding = {"policyName": "guard", "validationActions": ["Deny"]}
    admin.create(f"{POLICIES}ies", {"metadata": name, "spec": spec})
    admin.create(f"{POLICIES}ybindings", {"metadata": name, "spec": binding})
    bad = {"name": "bad", "image": "bad:0.0.9"}
    labels = {"matchLabels": {"a": "b"}}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [bad]}}
    probe = {"metadata": {"name": "p"}, "spec": {"selector": labels, "template": template}}

    def is_active() -> bool:
        try:
            admin.create(SETS, probe, dry_run=True)
        except InvalidError as error:
            say(str(error))
            return True
        return False

    try:
        fleet.wait(is_active)
        yield
    finally:
        admin.delete(f"{POLICIES}ybindings/guard")
        admin.delete(f"{POLICIES}ies/guard")


def test_a_change_that_a_policy_refuses_touches_nothing_and_is_in_the_status(
    fleet: RealFleet, operator: Operator
) -> None:
    """Nor is a DaemonSet with another selector made anew where the new one would be refused."""
    install(fleet)
    before, uid = fleet.uids(), daemon_set(fleet)["metadata"]["uid"]
    images = "object.spec.template.spec.containers"
    with guarded(fleet, f"!{images}.exists(c, c.image.endsWith(':0.0.9'))"):
        sim(fleet, image="simulated-device-plugin:0.0.9")
        took = fleet.wait(lambda: fleet.condition("sim", "Degraded")[1] == "RequestFailed")
        said = fleet.condition("sim", "Degraded")[2]
        say(f"in the status after {took:.2f} s: {said}")
        assert "ValidatingAdmissionPolicy 'guard'" in said
        assert (before, uid) == (fleet.uids(), daemon_set(fleet)["metadata"]["uid"])
    sim(fleet)
    fleet.wait(lambda: fleet.is_ready("sim"))
    assert before == fleet.uids()
    operator.end()
    found = daemon_set(fleet)
    fleet.server.admin.delete(f"{SETS}/dp-sim")
    found["spec"]["selector"]["matchLabels"]["deviceplugin.dev/plugin"] = "simulated"
    kept = {key: found["metadata"][key] for key in ("name", "labels", "ownerReferences")}
    made = fleet.server.admin.create(SETS, {"metadata": kept, "spec": found["spec"]})
    other = made["metadata"]["uid"]
    fleet.wait(lambda: len(fleet.pods()) == COUNT)
    with guarded(fleet, "false"):
        operator.start()
        fleet.wait(lambda: fleet.condition("sim", "Degraded")[1] == "RequestFailed")
        assert other == daemon_set(fleet)["metadata"]["uid"]
    fleet.wait(lambda: {other} != uids_of_sets(fleet) != set(), 120)
    fleet.wait(lambda: fleet.is_ready("sim"), 120)


def uids_of_sets(fleet: RealFleet) -> set[str]:
    return {one["metadata"]["uid"] for one in fleet.server.admin.list(SETS).items}
