"""Which pods are evicted, how many, and which never."""

import itertools
import logging
from dataclasses import replace
from typing import Any

import pytest

from cluster.scripted_api import Answer, Asked, Script, running
from deviceplugin.apiserver import ApiServer
from deviceplugin.tools.evict._evictor import Budget, Evictor
from deviceplugin.tools.evict._pods import Pods, Suspect

R = "example.com/gpu"
Pod = dict[str, Any]


def pod(name: str, uid: str = "u1", **changes: Any) -> Pod:
    item: Pod = {
        "metadata": {"name": name, "uid": uid, "ownerReferences": [{"controller": True}]},
        "spec": {
            "nodeName": "n1",
            "containers": [{"resources": {"limits": {R: "1"}}}, {"resources": {}}, {}],
        },
        "status": {"phase": "Running"},
    }
    for place, value in changes.items():
        item[place] |= value
    return item


def suspect(name: str, left: float = -1.0, namespace: str = "jobs") -> Suspect:
    return Suspect(namespace, name, R, "gpu0", "Xid 79", 600 - left, left)


class Cluster:
    """Pods, what becomes of them, and an evictor."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.pods: dict[str, Pod] = {}
        self.evicted: list[tuple[str, str]] = []
        self.events: list[dict[str, Any]] = []
        script.otherwise = self.answer

    def evictor(
        self,
        *,
        per_minute: int = 10,
        per_hour: int = 10,
        dry_run: bool = False,
        bare: bool = False,
        within: Budget | None = None,
    ) -> Evictor:
        pods = Pods(ApiServer(self.script.url), "n1", bare=bare)
        budget = Budget(per_minute, per_hour, within)
        return Evictor(pods, budget, ["kube-system"], dry_run=dry_run)

    def answer(self, asked: Asked) -> Answer:
        if asked.path.endswith("/events"):
            self.events.append(asked.body)
            return Answer(201)
        name = asked.path.split("/")[6]
        if name not in self.pods:
            return Answer(404, f'pods "{name}" not found')
        if asked.method == "GET":
            return Answer.of(self.pods[name])
        assert asked.path.endswith("/eviction")

        uid = asked.body["deleteOptions"]["preconditions"]["uid"]
        if uid != self.pods[name]["metadata"]["uid"]:
            return Answer(409, "the UID in the precondition does not match")
        self.evicted.append((name, uid))
        self.pods[name]["metadata"]["deletionTimestamp"] = "now"
        return Answer(201)

    @property
    def asked(self) -> int:
        return len(self.script.asked)


@pytest.fixture
def cluster() -> Any:
    with running(Script()) as script:
        yield Cluster(script)


def events(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def act(evictor: Evictor, *suspects: Suspect, begin: int = 0, end: int) -> None:
    """Let ``evictor`` act every 10 s."""
    for now in range(begin, end, 10):
        evictor.act(suspects, now)


def test_a_pod_is_evicted_when_its_time_is_up_and_told_why(cluster: Cluster) -> None:
    cluster.pods["a"] = pod("a")
    evictor = cluster.evictor()
    evictor.act([suspect("a", 600)], 0)
    assert 0 == cluster.asked
    evictor.act([suspect("a", 60)], 540)
    evictor.act([suspect("a", 30)], 570)
    assert (1, []) == (cluster.asked, cluster.evicted)
    evictor.act([suspect("a", 0)], 600)
    assert [("a", "u1")] == cluster.evicted
    (event,) = cluster.events
    assert "example.com/gpu: gpu0 has been unhealthy for 10 minutes: Xid 79" == event["message"]
    assert ("Pod", "jobs", "a", "u1") == tuple(
        event["involvedObject"][key] for key in ("kind", "namespace", "name", "uid")
    )


GONE, BEFORE, AFTER = "2026-11-27T20:00:05+00:00", "2026-11-27T20:00:04Z", "2026-11-27T20:00:06Z"


def started(*moments: str) -> dict[str, Any]:
    states: list[dict[str, Any]]
    states = [{"running": {"startedAt": one}} if one else {"waiting": {}} for one in moments]
    return {
        "containerStatuses": [{"name": f"c{n}", "state": one} for n, one in enumerate(states)],
        "initContainerStatuses": [{"name": "i0", "state": {"terminated": {}}}],
    }


@pytest.mark.parametrize(
    ("since", "moments", "evicted"),
    [
        (GONE, (BEFORE, BEFORE), True),
        (GONE, (AFTER, BEFORE), True),
        (GONE, (AFTER, ""), True),
        (GONE, (), True),
        (GONE, (AFTER, AFTER), False),
        (GONE, (AFTER, "soon"), False),  # it is not a pod
        ("", (AFTER, AFTER), True),  # not by a link, so that it cannot have got the new node
    ],
)
def test_a_container_that_has_got_the_new_node_by_a_restart_is_left_alone(
    cluster: Cluster, since: str, moments: tuple[str, ...], evicted: bool
) -> None:
    cluster.pods["a"] = pod("a", status=started(*moments))
    one = replace(suspect("a"), renewed_by_restart=since, containers=["c0", "c1"])
    act(cluster.evictor(), one, end=70)
    assert evicted == bool(cluster.evicted)


def test_a_pod_that_is_being_deleted_is_left_alone(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.pods["a"] = pod("a")
    act(cluster.evictor(), suspect("a"), suspect("a", 500), end=1200)  # it has two ill devices
    assert [("a", "u1")] == cluster.evicted
    assert ["pod evicted"] == events(caplog)
    assert cluster.asked < 25


def test_another_pod_of_the_same_name_has_its_own_minute(cluster: Cluster) -> None:
    cluster.pods["a"] = pod("a")
    evictor = cluster.evictor()
    evictor.act([suspect("a")], 0)
    cluster.pods["a"] = pod("a", "u2")
    evictor.act([suspect("a")], 60)
    assert [] == cluster.evicted
    evictor.act([suspect("a")], 110)
    assert [] == cluster.evicted
    evictor.act([suspect("a")], 120)
    assert [("a", "u2")] == cluster.evicted


def test_a_pod_that_is_replaced_in_the_last_moment_stays(cluster: Cluster) -> None:
    cluster.pods["a"] = pod("a")
    pods = Pods(ApiServer(cluster.script.url), "n1")
    uid, _ = pods.uid_of(suspect("a"))
    cluster.pods["a"] = pod("a", "u2")
    pods.evict(suspect("a"), uid)
    assert [] == cluster.evicted


CLAIM = {"resourceClaimName": "c"}


@pytest.mark.parametrize(
    ("item", "evicted"),
    [
        (pod("a", spec={"resourceClaims": [{"name": "d"} | CLAIM]}), True),
        (pod("a", status={"resourceClaimStatuses": [{"name": "d"} | CLAIM]}), True),
        (pod("a", status={"extendedResourceClaimStatus": CLAIM}), True),
        (pod("a", spec={"resourceClaims": [{"name": "d", "resourceClaimName": "e"}]}), False),
        (pod("a"), False),  # its limits say nothing of a claim
    ],
)
def test_a_pod_that_has_its_device_by_a_claim_is_evicted_if_it_still_names_it(
    cluster: Cluster, item: Pod, evicted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.pods["a"] = item
    act(cluster.evictor(), replace(suspect("a"), claims=frozenset({"c"})), end=300)
    assert [("a", "u1")] * evicted == cluster.evicted
    said = [getattr(record, "error", "") for record in caplog.records]
    assert ["does not ask for claim c"] * (not evicted) == said[evicted:]


@pytest.mark.parametrize(
    ("item", "text"),
    [
        (pod("a", spec={"nodeName": "n2"}), "is on node 'n2'"),
        (pod("a", spec={"containers": [{}]}), f"does not ask for {R}"),
        (pod("a", metadata={"ownerReferences": []}), "has no controller that would replace it"),
        (
            pod("a", metadata={"annotations": {"kubernetes.io/config.mirror": "x"}}),
            "is a static pod",
        ),
        (
            pod("a", metadata={"annotations": {"deviceplugin.dev/evict": "false"}}),
            "has the annotation deviceplugin.dev/evict: false",
        ),
    ],
)
def test_pods_that_stay_and_why_is_said_once(
    cluster: Cluster, item: Pod, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.pods["a"] = item
    act(cluster.evictor(), suspect("a"), end=3600)
    assert [] == cluster.evicted
    assert ["pod exempt from eviction"] == events(caplog)
    assert text == caplog.records[0].__dict__["error"]
    assert cluster.asked <= 7, "it is seldom asked for"


NO_POD = "/api/v1/namespaces/jobs/pods/a: the answer is not a pod"


@pytest.mark.parametrize(
    ("method", "answer", "text"),
    [
        ("GET", Answer.of({}), NO_POD),
        ("GET", Answer.of({"metadata": None}), NO_POD),
        ("GET", Answer.of({"metadata": {"uid": "u1"}}), NO_POD),
        ("GET", Answer.of(pod("a", spec={"containers": 1})), NO_POD),
        ("GET", Answer(403, "pods is forbidden"), "apply the ClusterRole"),
        ("POST", Answer(429, "it would violate the disruption budget"), "disruption budget"),
    ],
)
def test_what_fails_is_logged_once_and_tried_again_ever_more_rarely(
    cluster: Cluster, method: str, answer: Answer, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(asked: Asked) -> Answer:
        return answer if asked.method == method else cluster.answer(asked)

    cluster.pods["a"] = pod("a")
    cluster.script.otherwise = failing
    evictor = cluster.evictor()
    act(evictor, suspect("a"), end=600)
    assert ["pod eviction failed, retrying"] == events(caplog)
    assert text in vars(caplog.records[0])["error"]
    assert [asked.method for asked in cluster.script.asked].count(method) <= 11
    cluster.script.otherwise = cluster.answer
    act(evictor, suspect("a"), begin=600, end=900)
    assert [("a", "u1")] == cluster.evicted


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_needs_nobody(
    cluster: Cluster, phase: str, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.pods["a"] = pod("a", status={"phase": phase})
    act(cluster.evictor(), suspect("a"), suspect("gone"), end=130)
    assert ([], []) == (cluster.evicted, events(caplog))


def test_a_bare_pod_is_evicted_where_that_is_wanted(cluster: Cluster) -> None:
    cluster.pods["a"] = pod("a", metadata={"ownerReferences": None})
    act(cluster.evictor(bare=True), suspect("a"), suspect("b", namespace="kube-system"), end=70)
    assert [("a", "u1")] == cluster.evicted
    assert not [one for one in cluster.script.asked if "kube-system" in one.path], "it is kept"


def test_a_fault_of_the_whole_node_does_not_empty_it(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    names = [f"p{n}" for n in range(8)]
    cluster.pods |= {name: pod(name) for name in names}
    evictor = cluster.evictor(per_minute=2, per_hour=5)
    evicted = []
    for begin, end in itertools.pairwise((0, 70, 130, 190, 3600)):
        act(evictor, *map(suspect, names), begin=begin, end=end)
        evicted.append(len(cluster.evicted))
    assert [2, 4, 5, 5] == evicted
    assert 1 == events(caplog).count("eviction delayed by budget")


def test_a_fault_of_all_nodes_does_not_empty_them(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    everywhere = Budget(2, 3)
    names = [f"p{n}" for n in range(9)]
    cluster.pods |= {name: pod(name) for name in names}
    evictors = {name: cluster.evictor(within=everywhere) for name in names}
    for now in range(0, 3600, 10):
        for name, evictor in evictors.items():
            if "deletionTimestamp" not in cluster.pods[name]["metadata"]:
                evictor.act([suspect(name)], now)
    assert 3 == len(cluster.evicted)
    assert 7 == events(caplog).count("eviction delayed by budget")
    assert {"n1"} == {record.__dict__["node"] for record in caplog.records}


def test_an_eviction_that_is_refused_costs_others_nothing(cluster: Cluster) -> None:
    everywhere = Budget(1, 1)
    cluster.pods |= {name: pod(name) for name in "ab"}
    guarded, free = (cluster.evictor(within=everywhere) for _ in "ab")
    cluster.script.otherwise = lambda asked: (
        Answer(429, "no") if asked.method == "POST" else cluster.answer(asked)
    )
    act(guarded, suspect("a"), end=70)
    cluster.script.otherwise = cluster.answer
    act(free, suspect("b"), end=70)
    assert [("b", "u1")] == cluster.evicted


def test_the_last_eviction_that_all_nodes_may_is_done_once(cluster: Cluster) -> None:
    everywhere = Budget(1, 1)
    cluster.pods["a"] = pod("a")
    late = cluster.evictor(within=everywhere)
    late.act([suspect("a")], 0)

    def answer(asked: Asked) -> Answer:
        if asked.method == "GET":  # another node is quicker
            everywhere.take(60)
        return cluster.answer(asked)

    cluster.script.otherwise = answer
    late.act([suspect("a")], 60)
    assert [] == cluster.evicted


def test_a_device_that_recovers_in_time_keeps_its_pod(cluster: Cluster) -> None:
    cluster.pods["a"] = pod("a")
    evictor = cluster.evictor()
    evictor.act([suspect("a", 60)], 0)
    evictor.act([], 30)
    evictor.act([suspect("a", 0)], 60)
    assert [] == cluster.evicted, "it is asked for anew"


def test_an_event_that_cannot_be_created_changes_nothing(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.pods["a"] = pod("a")
    cluster.script.otherwise = lambda asked: (
        Answer(403, "no") if asked.path.endswith("/events") else cluster.answer(asked)
    )
    act(cluster.evictor(), suspect("a"), end=70)
    assert [("a", "u1")] == cluster.evicted
    assert ["pod evicted", "event creation failed"] == events(caplog)


def test_a_dry_run_says_what_it_would_do_once_and_keeps_to_the_budget(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.pods |= {name: pod(name) for name in "ab"}
    with caplog.at_level(logging.INFO):
        act(cluster.evictor(per_minute=1, dry_run=True), suspect("a"), suspect("b"), end=1800)
    assert ([], []) == (cluster.evicted, cluster.events)
    assert 2 == events(caplog).count("pod would be evicted")
    assert {"GET"} == {asked.method for asked in cluster.script.asked}


def test_a_budget_is_of_any_minute_and_any_hour() -> None:
    budget = Budget(2, 3)
    for now, allowed in [(0, True), (1, True), (2, False), (60, True), (61, False), (3600, True)]:
        assert allowed == budget.allows(now) == budget.take(now)


def test_nodes_share_a_budget_of_all_and_what_comes_to_nothing_is_given_back() -> None:
    everywhere = Budget(2, 3)
    one, two = Budget(1, 10, everywhere), Budget(10, 10, everywhere)
    assert [True, False, True, False] == [budget.take(0) for budget in (one, one, two, two)]
    assert not two.allows(1)
    two.give_back(0)
    assert (False, True) == (one.allows(1), two.allows(1))
    assert [True, False] == [two.take(1), two.take(2)]
