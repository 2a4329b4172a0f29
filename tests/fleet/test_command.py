"""``deviceplugin fleet``: what it asks, and what it shows."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from cluster.scripted_api import Answer, Script
from deviceplugin.tools._node_devices import API
from deviceplugin_cli.fleet._cli import main
from deviceplugin_cli.fleet._fleet import FORMAT
from fleets.objects import (
    FORBIDDEN,
    NODES,
    NONE,
    OBJECTS,
    PODS,
    Run,
    container,
    having,
    node,
    plugin_object,
    pod,
)

GPU = "example.com/gpu"
NIC = "example.com/nic"


def rows(text: str) -> list[list[str]]:
    return [line.split(maxsplit=5) for line in text.partition("\n\n")[0].splitlines()]


def paths(script: Script) -> list[str]:
    return [asked.path for asked in script.asked]


def test_each_resource_of_each_node_has_a_row_and_each_resource_a_sum(
    script: Script, run: Run
) -> None:
    nodes = [node("n10", gpu=(8, 8)), node("n9", gpu=(7, 8), nic=(2, 2)), node("bare")]
    pods = [pod("n9", container(gpu=2), container(gpu=1)), pod("n10", container(nic=0))]
    script.otherwise = having(nodes, pods)
    expected = (
        "RESOURCE         NODE  HEALTHY  TOTAL  HELD  PROBLEM\n"
        "example.com/gpu  n9    7        8      3     1 unhealthy\n"
        "example.com/gpu  n10   8        8      0     -\n"
        "example.com/nic  n9    2        2      0     -\n"
        "\n"
        "example.com/gpu: 15 of 16 healthy on 2 nodes, 3 held, problems on 1\n"
        "example.com/nic: 2 of 2 healthy on 1 node, 0 held\n"
    )
    assert (0, expected, "") == run()
    dra = [f"{API}/{one}" for one in ("deviceclasses", "resourceslices", "resourceclaims")]
    assert {OBJECTS, NODES, PODS, *dra} == {*paths(script)}
    assert [1, 1, 1] == [paths(script).count(one) for one in dra]


def test_what_is_wrong_with_a_node_is_said(script: Script, run: Run) -> None:
    away = node("away", "Unknown", gpu=(4, 4))
    cordoned = node("cordoned", gpu=(4, 4))
    cordoned["spec"] = {"unschedulable": True}
    new = node("new", gpu=(4, 4))
    new["status"]["conditions"] = None
    pods = [pod("less", container(gpu=3)), pod("gone", container(gpu=2))]
    nodes = [away, cordoned, new, node("less", gpu=(0, 2)), node("gone", gpu=(0, 0))]
    nodes.append(node("past", gpu=(0, 0)))
    script.otherwise = having(nodes, pods)
    _, out, _ = run()
    assert {
        "away": "node is not ready: NodeStatusUnknown",
        "cordoned": "cordoned",
        "new": "node is not ready: its kubelet has not reported yet",
        "less": "none healthy; 1 more held than there are",
        "gone": "2 more held than there are",
    } == {row[1]: row[5] for row in rows(out)[1:]}
    _, out, _ = run("--problems")
    assert ["away", "gone", "less", "new"] == [row[1] for row in rows(out)[1:]]
    assert "example.com/gpu: 12 of 14 healthy on 5 nodes, 5 held, problems on 4" in out


def test_resources_can_be_chosen_by_name_and_pattern(script: Script, run: Run) -> None:
    script.otherwise = having([node("n", gpu=(1, 1), nic=(2, 2), fpga=(3, 3))])
    _, out, _ = run("--resource", GPU, "--resource", "*/n*")
    assert [GPU, NIC] == [row[0] for row in rows(out)[1:]]
    status, out, _ = run("--resource", "example.com/tpu")
    assert (0, "no devices\n\nmissing: resource example.com/tpu\n") == (status, out)


def test_nodes_can_be_chosen_and_one_that_is_missing_is_named(script: Script, run: Run) -> None:
    script.otherwise = having([node("a", gpu=(1, 1)), node("b", gpu=(1, 1))])
    _, out, _ = run("--node", "b", "--node", "c", "-l", "pool=x")
    assert ["b"] == [row[1] for row in rows(out)[1:]]
    assert "missing: node c with pool=x\n" in out
    queries = [asked.query for asked in script.asked if asked.path == NODES]
    assert [
        {"limit": "500", "labelSelector": "pool=x", "fieldSelector": "metadata.name=b"},
        {"limit": "500", "labelSelector": "pool=x", "fieldSelector": "metadata.name=c"},
    ] == queries
    _, out, _ = run("--node", "c")
    assert "missing: node c\n" in out


@pytest.mark.parametrize("words", [["--selector", "a=b=c"], ["--node", "a,b"]])
def test_what_the_api_server_does_not_understand_is_a_wrong_command_line(
    script: Script, run: Run, words: list[str]
) -> None:
    script.otherwise = having(Answer(400, "unable to parse requirement"))
    status, _, err = run(*words)
    assert (2, True) == (status, f"{' '.join(words)}: the API server answers 400: unable" in err)


def test_pods_of_few_nodes_are_asked_for_by_node_and_of_many_at_once(
    script: Script, run: Run
) -> None:
    living = "status.phase!=Succeeded,status.phase!=Failed"
    few = [node(f"n{number}", gpu=(1, 1)) for number in range(20)]
    script.otherwise = having([*few, node("bare")])
    run()
    asked = [one.query["fieldSelector"] for one in script.asked if one.path == PODS]
    assert [f"spec.nodeName=n{number},{living}" for number in range(20)] == asked
    script.otherwise = having([*few, node("one-more", gpu=(1, 1))], [pod("n3", container(gpu=1))])
    script.asked.clear()
    _, out, _ = run()
    asked = [one.query["fieldSelector"] for one in script.asked if one.path == PODS]
    assert [f"spec.nodeName!=,{living}"] == asked
    assert "21 of 21 healthy on 21 nodes, 1 held" in out


@pytest.mark.parametrize(
    ("containers", "first", "count"),
    [
        ([container(gpu=1), container(gpu=2)], [], 3),
        ([container(gpu=1)], [container(gpu=4), container(gpu=2)], 4),
        ([container(gpu=3)], [container(gpu=2)], 3),
        ([container(gpu=1)], [container(True, gpu=1), container(gpu=3)], 4),
        ([container(gpu=1)], [container(gpu=3), container(True, gpu=1)], 3),
        ([container(gpu=1)], [container(True, gpu=2), container(True, gpu=2)], 5),
        ([container(), {}], [{}], 0),
    ],
)
def test_a_pod_holds_what_the_scheduler_sets_aside_for_it(
    script: Script, run: Run, containers: Sequence[Any], first: Sequence[Any], count: int
) -> None:
    waiting: dict[str, Any] = {"spec": {"containers": [container(gpu=1)]}}
    script.otherwise = having([node("n", gpu=(8, 8))], [pod("n", *containers, first=first)])
    assert f"{count} held" in run()[1]
    script.otherwise = having([node("n", gpu=(8, 8))], [waiting])
    assert "0 held" in run()[1]


def test_without_the_right_to_list_pods_it_is_unknown_what_is_held(
    script: Script, run: Run
) -> None:
    script.otherwise = having([node("n", gpu=(1, 1))], FORBIDDEN)
    status, out, err = run()
    assert (0, "") == (status, err)
    assert [GPU, "n", "1", "1", "-", "-"] == rows(out)[1]
    assert (
        "unknown: how many devices are held: needs list pods in all namespaces: "
        'the API server answers 403: User "me" cannot list resource\n'
    ) in out
    assert f"{GPU}: 1 of 1 healthy on 1 node\n" in out
    script.asked.clear()
    _, out, _ = run("--no-pods")
    assert (True, True) == (PODS not in paths(script), "unknown" not in out)


def test_without_the_right_to_list_nodes_the_operator_is_believed(script: Script, run: Run) -> None:
    bad = {"node": "n3", "healthy": 7, "total": 8}
    gpus = {"name": GPU, "healthy": 15, "total": 16, "nodes": 2}
    nics = {"name": NIC, "healthy": 2, "total": 2, "nodes": 1}
    problems = [{**bad, "resource": GPU}, {**bad, "resource": NIC}]
    objects = [
        plugin_object("b", resources=[gpus, nics], problems=problems),
        plugin_object("a", resources=[gpus], problems=problems[:1]),
    ]
    script.otherwise = having(FORBIDDEN, objects=objects)
    status, out, _ = run("--resource", GPU)
    assert 0 == status
    assert [[GPU, "n3", "7", "8", "-", "1 unhealthy"]] == rows(out)[1:]
    assert f"{GPU}: 30 of 32 healthy on 4 nodes\n" in out
    assert NIC not in out
    assert "unknown: all but the sums and the worst nodes, which are the operator's: " in out
    status, _, err = run("--node", "n3")
    assert (1, True) == (status, "needs list nodes: the API server answers 403" in err)


INVALID = Answer(401, "Unauthorized")
LIST_NODES = 'needs list nodes: the API server answers 403: User "me" cannot list resource'


@pytest.mark.parametrize(
    ("nodes", "objects", "error"),
    [
        (FORBIDDEN, FORBIDDEN, LIST_NODES),
        (FORBIDDEN, NONE, LIST_NODES),
        (INVALID, INVALID, "the API server answers 401: Unauthorized"),
    ],
)
def test_without_any_right_it_is_said_which_is_needed(
    script: Script, run: Run, nodes: Answer, objects: Answer, error: str
) -> None:
    script.otherwise = having(nodes, nodes, objects)
    assert (1, "", f"deviceplugin fleet: {error}\n") == run()


def test_objects_of_the_operator_that_are_not_ready_are_listed(script: Script, run: Run) -> None:
    objects = [
        plugin_object("well"),
        plugin_object("sick", "RolloutFailed", "node-3:\n 8 -> 0\x1b[31m; rolled back"),
        plugin_object("unseen", observed=1),
        {"metadata": {"name": "new", "generation": 1}, "spec": {"plugin": "gpu"}},
        plugin_object("other", "NoDevices", "x", resources=[{"name": NIC}]),
    ]
    script.otherwise = having([node("n", gpu=(1, 1))], objects=objects)
    _, out, _ = run("--resource", GPU)
    unseen = "NotSeen: the operator has not seen the object as it is now: is it up?"
    assert [
        f"DevicePlugin new: not ready: {unseen}",
        "DevicePlugin sick: not ready: RolloutFailed: node-3: 8 -> 0?[31m; rolled back",
        f"DevicePlugin unseen: not ready: {unseen}",
    ] == out.split("\n\n")[2].splitlines()


def test_no_name_of_a_resource_commands_a_terminal(script: Script, run: Run) -> None:
    odd = node("n", gpu=(1, 1))
    odd["status"]["capacity"]["a.b/\x1b[2J"] = "1"
    script.otherwise = having([odd])
    _, out, _ = run()
    assert "\na.b/?[2J: 0 of 1 healthy" in out
    assert "\x1b" not in out


READY = "whether DevicePlugin objects are ready: "
HELD = "how many devices are held: "
TOO_OLD = "the API server answers 410: too old"


@pytest.mark.parametrize(
    ("pods", "objects", "held", "unknown"),
    [
        (
            *([], FORBIDDEN, "0"),
            f"{READY}needs list deviceplugins.deviceplugin.dev",
        ),
        (
            *(Answer(410, "too old"), Answer(406, "no such version"), "-"),
            f"{READY}the API server answers 406: no such version\nunknown: {HELD}{TOO_OLD}\n",
        ),
    ],
)
def test_what_cannot_be_read_beside_the_nodes_is_said_and_the_rest_is_shown(
    script: Script, run: Run, pods: Any, objects: Answer, held: str, unknown: str
) -> None:
    script.otherwise = having([node("n", gpu=(1, 1))], pods, objects)
    status, out, _ = run()
    assert (0, [GPU, "n", "1", "1", held, "-"]) == (status, rows(out)[1])
    assert f"unknown: {unknown}" in out


def test_json_has_everything_and_null_is_unknown(script: Script, run: Run) -> None:
    nodes = [node("n", gpu=(1000, 2000)), node("m", nic=(1, 1))]
    objects = [plugin_object("gpus", "NoNodes", "none")]
    script.otherwise = having(nodes, FORBIDDEN, objects)
    status, out, _ = run("--output=json", "--problems")
    document = json.loads(out)
    assert (0, FORMAT) == (status, document.pop("format"))
    assert document.pop("deviceplugin")
    (unknown,) = document.pop("unknown")
    assert unknown.startswith("how many devices are held")
    gpus = {"nodes": 1, "healthy": 1000, "total": 2000, "held": None, "problems": 1}
    nics = {"nodes": 1, "healthy": 1, "total": 1, "held": None, "problems": 0}
    row = {"resource": GPU, "node": "n", "healthy": 1000, "total": 2000, "held": None}
    found = {"name": "gpus", "plugin": "gpu", "ready": False, "reason": "NoNodes"}
    assert {
        "resources": [{"name": GPU, **gpus}, {"name": NIC, **nics}],
        "nodes": [{**row, "cordoned": False, "problem": "1000 unhealthy", "drivers": []}],
        "objects": [{**found, "message": "none"}],
        "missing": [],
    } == document
    script.otherwise = having()
    assert json.loads(run("--output=json")[1])["objects"] is None


@pytest.mark.parametrize(
    ("status", "found", "objects", "words"),
    [
        (0, node("n", gpu=(1, 1)), NONE, []),
        (0, node("n", gpu=(1, 1)), [plugin_object("x")], []),
        (3, node("n", gpu=(0, 1)), NONE, []),
        (3, node("n", gpu=(0, 1)), NONE, ["--summary"]),
        (3, node("n", "False", gpu=(1, 1)), NONE, []),
        (0, node("n", "False"), NONE, []),  # a node without devices is another's business
        (3, node("n", gpu=(1, 1)), [plugin_object("x", "NoNodes")], []),
        (3, node("n", gpu=(1, 1)), NONE, ["--resource=other.com/x"]),
        (3, node("n", gpu=(1, 1)), NONE, ["--node=n", "--node=m"]),
    ],
)
def test_a_script_can_learn_whether_anything_is_wrong(
    script: Script, run: Run, status: int, found: Any, objects: Any, words: list[str]
) -> None:
    script.otherwise = having([found], objects=objects)
    assert status == run("--check", *words)[0]
    assert 0 == run(*words)[0]


def test_an_api_server_that_is_not_there_is_not_waited_for(run: Run) -> None:
    status, out, err = run("--api=http://127.0.0.1:1")
    assert (1, "") == (status, out)
    assert "deviceplugin fleet: http://127.0.0.1:1: " in err
    assert "Connection refused" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--timeout", "0"], "--timeout: '0' is not a duration above zero"),
        (["--api", "localhost"], "'localhost' is not http:// or https://"),
        (["--kubeconfig", "/nonexistent"], "/nonexistent: No such file or directory"),
    ],
)
def test_a_wrong_command_line_is_told(
    capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert 2 == main(words)
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "body", [{}, {"metadata": {}, "items": [{}]}, {"metadata": {}, "items": 1}, {"metadata": 1}]
)
def test_what_is_no_list_of_nodes_is_refused(script: Script, run: Run, body: Any) -> None:
    script.otherwise = having(Answer.of(body))
    status, out, err = run()
    assert (1, "") == (status, out)
    assert f"{NODES}: the answer is not a list of nodes" in err
