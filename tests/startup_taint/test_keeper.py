"""When the startup taint goes, when it stays, and that nothing else of the node is touched."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from cluster.scripted_api import Answer, Asked, Script, running
from deviceplugin.apiserver import ApiServer
from deviceplugin.tools.startup_taint._keeper import AGAIN, SHOWN, Keeper, Readiness, TaintedNode
from deviceplugin_testing.simulator._control_plane.api_server.objects import MERGE, merged

KEY = "startup.deviceplugin.dev/gpu-device-plugin"
OTHER_KEY = "startup.deviceplugin.dev/fpga-device-plugin"
R = "example.com/gpu"
OURS = {"key": KEY, "effect": "NoSchedule"}
OTHERS = [
    {"key": OTHER_KEY, "effect": "NoSchedule"},
    {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": "t", "new": 1},
]
READY = Readiness(resources={R: True}, boot="boot-1")
READY_AGAIN = READY._replace(boot="boot-2")
EMPTY = Readiness(resources={})
AWAY = Readiness("http://127.0.0.1:9494: Connection refused")


class Cluster:
    """One node, as the API server has it."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.node: dict[str, Any] = {
            "metadata": {"name": "n1", "resourceVersion": "1", "labels": {"a": "b"}},
            "spec": {"podCIDR": "10.0.0.0/24", "taints": [OTHERS[0], OURS, OTHERS[1]]},
            "status": {
                "nodeInfo": {"bootID": "boot-1"},
                "capacity": {R: "2", "cpu": "4"},
                "allocatable": {R: "2", "cpu": "4"},
            },
        }
        self.interfere = False
        self.refusal: Answer | None = None
        script.otherwise = self.answer

    def answer(self, asked: Asked) -> Answer:
        assert "/api/v1/nodes/n1" == asked.path
        if self.refusal is not None:
            return self.refusal
        if asked.method == "GET":
            found = Answer.of(self.node)
            if self.interfere:  # the kubelet writes its status
                self.touch()
            return found
        assert ("PATCH", MERGE) == (asked.method, asked.headers["Content-Type"])
        if asked.body["metadata"]["resourceVersion"] != self.node["metadata"]["resourceVersion"]:
            return Answer(409, "the object has been modified")
        self.node = merged(self.node, asked.body)
        self.touch()
        return Answer.of(self.node)

    def touch(self) -> None:
        version = int(self.node["metadata"]["resourceVersion"])
        self.node["metadata"]["resourceVersion"] = str(version + 1)

    def boot(self, boot: str) -> None:
        self.node["status"]["nodeInfo"]["bootID"] = boot

    @property
    def taints(self) -> Any:
        return self.node["spec"].get("taints")

    @property
    def writes(self) -> int:
        return [asked.method for asked in self.script.asked].count("PATCH")

    def keeper(self, *, after_reboot: bool = False, empty_after: float = 120) -> Keeper:
        """Return the one of a process that has just started."""
        node = TaintedNode(ApiServer(self.script.url), "n1", KEY)
        return Keeper(node, empty_after=empty_after, after_reboot=after_reboot)


@pytest.fixture
def cluster(caplog: pytest.LogCaptureFixture) -> Iterator[Cluster]:
    caplog.set_level(logging.INFO)
    with running(Script()) as script:
        yield Cluster(script)


def events(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_the_taint_goes_when_plugin_and_node_have_the_devices_and_nothing_else_does(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    before = {**cluster.node["metadata"]}
    assert AGAIN == cluster.keeper().act(READY, 0)
    assert OTHERS == cluster.taints
    assert "10.0.0.0/24" == cluster.node["spec"]["podCIDR"]
    assert {**before, "resourceVersion": "2"} == cluster.node["metadata"]
    assert ["startup taint removed"] == events(caplog)
    assert (KEY, R) == (
        caplog.records[0].__dict__["taint"],
        caplog.records[0].__dict__["resources"],
    )


def test_the_taint_goes_whatever_its_effect_and_the_list_with_the_last(cluster: Cluster) -> None:
    effects = ("NoSchedule", "NoExecute", "PreferNoSchedule")
    keeper = cluster.keeper()
    for now in (0, AGAIN):  # a node can be registered anew
        cluster.node["spec"]["taints"] = [OURS | {"effect": one, "value": "x"} for one in effects]
        keeper.act(READY, now)
        assert "taints" not in cluster.node["spec"]


def test_plugins_of_one_node_have_a_taint_each(cluster: Cluster) -> None:
    other = Keeper(TaintedNode(ApiServer(cluster.script.url), "n1", OTHER_KEY), empty_after=0)
    cluster.keeper().act(READY, 0)
    assert [OTHERS[0], OTHERS[1]] == cluster.taints
    other.act(EMPTY, 0)
    assert [OTHERS[1]] == cluster.taints


def test_the_taint_stays_while_the_plugin_is_not_ready_and_that_is_said_once(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    keeper = cluster.keeper()
    for now in range(0, 3600, 2):
        assert 0.0 == keeper.act(AWAY, now)
    assert OURS in cluster.taints
    assert ["startup taint kept"] == events(caplog)
    assert AWAY.problem == caplog.records[0].__dict__["error"]
    assert len(cluster.script.asked) < 130, "it is asked for once a minute or two"
    keeper.act(READY, 3600)
    assert OURS not in cluster.taints, "at once"


@pytest.mark.parametrize(
    ("capacity", "allocatable", "resources", "shown"),
    [
        ({}, {}, {R: True}, False),
        ({R: "2"}, {R: "0"}, {R: True}, False),
        ({R: "2"}, {R: "1"}, {R: True}, True),
        ({R: "10k"}, {R: "10k"}, {R: True}, True),
        ({R: "2"}, {R: "0"}, {R: False}, True),
        ({R: "0"}, {R: "0"}, {R: False}, False),
        ({R: "2"}, {R: "2"}, {R: True, "example.com/mig": True}, False),
        ({}, {}, {R: None}, True),  # and no boot is known of either
    ],
)
def test_the_node_must_show_every_resource(
    cluster: Cluster,
    capacity: dict[str, str],
    allocatable: dict[str, str],
    resources: dict[str, bool | None],
    *,
    shown: bool,
) -> None:
    cluster.node["status"] = {"capacity": capacity, "allocatable": allocatable}
    cluster.keeper().act(Readiness(resources=resources), 0)
    assert shown == (OURS not in cluster.taints)


def test_a_node_that_is_late_to_show_its_devices_is_looked_at_every_few_seconds(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.node["status"]["allocatable"][R] = "0"
    keeper = cluster.keeper()
    for now in range(11):
        keeper.act(READY, now)
    assert 1 + 10 // SHOWN == len(cluster.script.asked)
    assert f"the node does not show {R} yet" == caplog.records[0].__dict__["error"]
    cluster.node["status"]["allocatable"][R] = "2"
    assert AGAIN == keeper.act(READY, 12)
    assert OTHERS == cluster.taints


@pytest.mark.parametrize("between", [AWAY, Readiness(resources={"example.com/late": True})])
def test_a_plugin_without_devices_all_the_time_does_not_keep_the_taint(
    cluster: Cluster, between: Readiness, caplog: pytest.LogCaptureFixture
) -> None:
    keeper = cluster.keeper(empty_after=120)
    for now in range(0, 118, 2):
        keeper.act(EMPTY, now)
    keeper.act(between, 118)
    for now in range(120, 238, 2):
        keeper.act(EMPTY, now)
    assert OURS in cluster.taints
    for now in range(238, 302, 2):
        keeper.act(EMPTY, now)
    assert OURS not in cluster.taints
    assert "startup taint removed" == events(caplog)[-1]
    assert "none on this node" == caplog.records[-1].__dict__["resources"]


def test_a_change_by_another_in_between_is_neither_undone_nor_logged(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.interfere = True
    keeper = cluster.keeper()
    for now in range(0, 10, 2):
        assert 0.0 == keeper.act(READY, now)
    assert (5, [OTHERS[0], OURS, OTHERS[1]]) == (cluster.writes, cluster.taints)
    cluster.interfere = False
    cluster.node["spec"]["taints"] = [OURS, {"key": "new", "effect": "NoSchedule"}]
    keeper.act(READY, 10)
    assert [{"key": "new", "effect": "NoSchedule"}] == cluster.taints
    assert ["startup taint removed"] == events(caplog)


NO_NODE = "/api/v1/nodes/n1: the answer is not a node"


@pytest.mark.parametrize(
    ("refusal", "text"),
    [
        (Answer(503, "etcd is away"), "etcd is away"),
        (Answer(403, 'nodes "n1" is forbidden'), "; apply the ClusterRole and its binding"),
        (Answer.of({}), NO_NODE),
        (Answer.of({"metadata": None}), NO_NODE),
        (Answer.of({"metadata": {"resourceVersion": "1"}, "spec": {"taints": [1]}}), NO_NODE),
        (
            Answer.of(
                {"metadata": {"resourceVersion": "1"}, "spec": {}, "status": {"capacity": "x"}}
            ),
            NO_NODE,
        ),
    ],
)
def test_an_api_server_that_refuses_or_answers_nonsense_is_tried_again_and_logged_once(
    cluster: Cluster, refusal: Answer, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.refusal = refusal
    keeper = cluster.keeper()
    for now in range(0, 600, 2):
        assert 0.0 == keeper.act(READY, now)
    assert ["startup taint update failed, retrying"] == events(caplog)
    assert text in caplog.records[0].__dict__["error"]
    assert len(cluster.script.asked) <= 25
    assert 0 == cluster.writes
    cluster.refusal = None
    keeper.act(READY, 700)
    assert OURS not in cluster.taints


def test_what_an_api_server_asks_for_is_waited_for(cluster: Cluster) -> None:
    cluster.script.answers.append(Answer(429, "slow down", {"Retry-After": "60"}))
    keeper = cluster.keeper()
    for now in range(0, 60, 2):
        keeper.act(READY if now % 4 else AWAY, now)
    assert 1 == len(cluster.script.asked)
    keeper.act(READY, 60)
    assert OURS not in cluster.taints


# After a reboot


def test_a_node_that_rebooted_gets_the_taint_once_until_its_devices_are_back(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    keeper = cluster.keeper(after_reboot=True)
    keeper.act(READY, 0)
    assert {KEY: "boot-1"} == cluster.node["metadata"]["annotations"]
    cluster.boot("boot-2")
    keeper.act(AWAY, 300)
    assert [*OTHERS, OURS] == cluster.taints
    keeper.act(READY_AGAIN, 305)
    assert OTHERS == cluster.taints
    expected = ["startup taint removed", "startup taint set after a reboot"]
    assert [*expected, "startup taint removed"] == events(caplog)


def test_a_node_is_tainted_once_in_a_boot_whoever_removes_it(cluster: Cluster) -> None:
    cluster.keeper(after_reboot=True).act(READY, 0)
    cluster.boot("boot-2")
    keeper = cluster.keeper(after_reboot=True)
    keeper.act(AWAY, 0)
    cluster.node["spec"]["taints"] = OTHERS  # an administrator has had enough
    for now in range(300, 3000, 300):
        keeper.act(AWAY, now)
    cluster.keeper(after_reboot=True).act(AWAY, 3000)
    assert OTHERS == cluster.taints


@pytest.mark.parametrize("boot", ["boot-1", ""])
@pytest.mark.parametrize("after_reboot", [False, True])
def test_neither_a_later_failure_nor_a_restart_brings_the_taint_back_without_a_reboot(
    cluster: Cluster, boot: str, after_reboot: bool
) -> None:
    keeper = cluster.keeper(after_reboot=after_reboot)
    keeper.act(READY, 0)
    cluster.boot(boot)  # which a node need not say
    for now in range(300, 3600, 300):
        keeper.act(AWAY, now)
    cluster.keeper(after_reboot=after_reboot).act(AWAY, 3600)
    assert (1, OTHERS) == (cluster.writes, cluster.taints)


def test_a_node_that_runs_when_this_is_installed_is_not_tainted(cluster: Cluster) -> None:
    cluster.node["spec"]["taints"] = OTHERS
    cluster.boot("boot-7")
    cluster.keeper(after_reboot=True).act(AWAY, 0)
    assert OTHERS == cluster.taints
    assert {KEY: "boot-7"} == cluster.node["metadata"]["annotations"]


def test_a_reboot_that_the_node_shows_later_than_its_plugin_goes_is_noticed(
    cluster: Cluster,
) -> None:
    keeper = cluster.keeper(after_reboot=True)
    assert AGAIN == keeper.act(READY, 0)
    for now in range(300, 400, 2):
        assert 0.0 == keeper.act(AWAY, now), "it is looked at again"
    assert OTHERS == cluster.taints
    cluster.boot("boot-2")
    for now in range(400, 462, 2):
        keeper.act(AWAY, now)
    assert [*OTHERS, OURS] == cluster.taints
    assert len(cluster.script.asked) < 20


def test_a_node_that_still_shows_what_was_before_the_reboot_is_waited_for(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.keeper(after_reboot=True).act(READY, 0)
    caplog.clear()
    keeper = cluster.keeper(after_reboot=True)
    keeper.act(AWAY, 0)
    assert OTHERS == cluster.taints, "nothing is done on the status of another boot"
    keeper.act(READY_AGAIN, 3)
    assert {KEY: "boot-1"} == cluster.node["metadata"]["annotations"]
    cluster.boot("boot-2")
    assert AGAIN == keeper.act(READY_AGAIN, 7)
    assert {KEY: "boot-2"} == cluster.node["metadata"]["annotations"]
    assert (OTHERS, []) == (cluster.taints, events(caplog))


@pytest.mark.parametrize("after_reboot", [False, True])
def test_a_taint_stays_while_the_node_shows_what_was_before_the_reboot(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, *, after_reboot: bool
) -> None:
    keeper = cluster.keeper(after_reboot=after_reboot)
    keeper.act(READY_AGAIN, 0)
    assert OURS in cluster.taints
    assert "the node's status is of another boot" == caplog.records[0].__dict__["error"]
    cluster.boot("boot-2")
    keeper.act(READY_AGAIN, SHOWN)
    assert OTHERS == cluster.taints
