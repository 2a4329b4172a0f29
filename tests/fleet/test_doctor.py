"""``kubectl deviceplugin doctor``: what is found from outside, and what the pods say."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from cluster.scripted_api import Answer, Script
from deviceplugin_cli.diagnosis import _doctor_cli
from fleets.objects import FORBIDDEN, node, plugin_object
from fleets.plugin_pods import (
    RUNNING,
    Api,
    Says,
    daemon_set,
    devices,
    doctor,
    finding,
    kubectl,
    plugin_pod,
    warning_event,
)
from patience import eventually

GPU = "example.com/gpu"
DOCTOR, PAGE = "*' doctor '*", "*/devices"
FINE = {"*doctor*": doctor(), PAGE: devices(g0="")}
Waiting = dict[str, Any]
Diagnose = Callable[..., tuple[int, str]]


@pytest.fixture
def diagnose(script: Script, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Diagnose:
    """Return a function that runs the command: exit status, and output or errors."""

    def call(
        api: Api, answers: Mapping[str, Says | str] = FINE, words: tuple[str, ...] = ()
    ) -> tuple[int, str]:
        script.otherwise = api
        asked = [f"--api={script.url}", f"--kubectl={kubectl(tmp_path, answers)}", *words]
        status = _doctor_cli.main(asked)
        captured = capsys.readouterr()
        return status, captured.out + captured.err

    return call


def waits(reason: str, message: str = "", **last: Any) -> Waiting:
    state = {"waiting": {"reason": reason, "message": message}}
    return {"name": "device-plugin", "state": state, "lastState": last}


DIED = {"exitCode": 2, "reason": "Error", "message": "one\nconfig.yaml:4: no such key\n"}
AGAIN = {"name": "device-plugin", "state": {"running": {}}, "restartCount": 7}
OOM = {"lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}
ENDED = {"name": "device-plugin", "state": {"terminated": DIED}}
UNSCHEDULED = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes fit"}


def test_a_fine_cluster_has_one_line(diagnose: Diagnose) -> None:
    expected = "1 of 1 pod on 1 node answered: 0 failures, 0 warnings, 0 unknown, 1 ok; "
    assert (0, f"{expected}nothing was changed\n") == diagnose(Api(pods=[plugin_pod("p")]))


@pytest.mark.parametrize(
    ("pod", "said"),
    [
        pytest.param(
            plugin_pod("p", container=waits("ImagePullBackOff", "no such image")),
            ["failure  pod  gpu/p: ImagePullBackOff: no such image", "do:    push the image"],
            id="its image is not there",
        ),
        pytest.param(
            plugin_pod("p", container=waits("CrashLoopBackOff", "back-off", terminated=DIED)),
            [
                "CrashLoopBackOff: back-off; ended with status 2 (Error): config.yaml:4: no such",
                "kubectl --namespace gpu logs p --container device-plugin --previous\n",
            ],
            id="it ends again and again",
        ),
        pytest.param(
            plugin_pod("p", containerStatuses=[RUNNING, {**ENDED, "name": "events"}]),
            [
                "warning  pod  gpu/p: container events: Error: ended with status 2",
                "means: what it does beside the plugin is not done",
                "\n1 of 1 pod on 1 node answered",
            ],
            id="a container beside it has ended",
        ),
        pytest.param(
            plugin_pod("p", container=waits("Odd", "password=hunter2")),
            ["failure  pod  gpu/p: Odd: password=***"],
            id="its message has a secret",
        ),
        pytest.param(
            plugin_pod("p", container=ENDED),
            ["Error: ended with status 2 (Error): config.yaml:4: no such key"],
            id="it has ended",
        ),
        pytest.param(
            plugin_pod("p", container=waits("ContainerCreating")),
            [
                "failure  pod  gpu/p: FailedMount: not a directory",
                "kubectl --namespace gpu describe",
            ],
            id="only an Event has the reason",
        ),
        pytest.param(
            plugin_pod("p", "", waits("PodInitializing"), conditions=[UNSCHEDULED]),
            ["failure  pod  gpu/p: Unschedulable: 0/3 nodes fit"],
            id="there is no node for it",
        ),
        pytest.param(
            plugin_pod("p", phase="Failed", reason="Evicted", message="disk pressure"),
            ["gpu/p: Evicted: disk pressure"],
            id="it was evicted",
        ),
        pytest.param(
            plugin_pod("p", container=waits("PodInitializing"), phase="Pending", conditions=[]),
            ["gpu/p: FailedMount: not a directory"],
            id="it waits for nothing that is known",
        ),
        pytest.param(
            plugin_pod("p", container={**AGAIN, **OOM}),
            [
                "warning  pod  gpu/p: device-plugin restarted 7 times; it ended with status 137",
                "do:    raise the memory limit",
            ],
            id="it was killed for memory",
        ),
        pytest.param(
            plugin_pod("p", conditions=[{"type": "Ready", "status": "False"}]),
            ["warning  pod  gpu/p: runs, and is not ready"],
            id="it is not ready",
        ),
    ],
)
def test_why_a_pod_does_not_run_is_said(
    diagnose: Diagnose, pod: dict[str, Any], said: list[str]
) -> None:
    mount = warning_event("not a directory", "FailedMount")
    events = [mount, warning_event("Started", kind="Normal")]
    _, out = diagnose(Api(pods=[pod], events=events))
    assert [] == [words for words in said if words not in out], out


def test_a_pod_that_is_deleted_is_a_warning(diagnose: Diagnose) -> None:
    pod = plugin_pod("p")
    pod["metadata"]["deletionTimestamp"] = "2026-01-01"
    assert "warning  pod  gpu/p: is deleted since 2026-01-01" in diagnose(Api(pods=[pod]))[1]


@pytest.mark.parametrize(
    ("ran", "said"),
    [
        (
            Says(error="Error from server (Forbidden): pods is forbidden: no exec", status=1),
            [
                "commands may not be run in its pod: ",
                "allow get and create pods/exec in namespace gpu",
            ],
        ),
        (
            Says(error='exec: "python3": executable file not found in $PATH', status=1),
            ["its image has no Python"],
        ),
        (
            Says(error="/usr/bin/python3: No module named deviceplugin", status=1),
            ["its image has no doctor", "take a newer image"],
        ),
        (
            Says(error="deviceplugin: unknown command 'doctor'", status=2),
            ["its image is older than the doctor: ", "take a newer image"],
        ),
        (
            Says(error="Unable to connect\x1b[31m", status=1),
            ["'Unable to connect\\x1b[31m'", "run the doctor on the node"],
        ),
        (Says("no JSON"), ["the doctor ends with status 0, and without an answer"]),
        (Says('{"findings": [{"verdict": "odd"}]}'), ["without an answer"]),
        (Says(seconds=30), ["no answer within 0.5 s: raise --timeout"]),
        (Says("x" * (8 * 1024**2 + 1)), ["it prints more than 8 MiB"]),
    ],
    ids=lambda one: "" if isinstance(one, list) else None,
)
def test_a_pod_that_does_not_answer_is_unknown_with_the_reason(
    diagnose: Diagnose, ran: Says, said: list[str]
) -> None:
    status, out = diagnose(Api(pods=[plugin_pod("p")]), {"*doctor*": ran}, ("--timeout", "500ms"))
    assert (0, True) == (status, "unknown  asking  gpu/p: " in out), out
    assert [] == [words for words in said if words not in out], out


def test_an_older_image_is_asked_as_it_understands(diagnose: Diagnose, tmp_path: Path) -> None:
    wrong = Says(error="error: unrecognized arguments: --output json", status=2)
    answers = {"*doctor*--output*": wrong, **FINE}
    assert diagnose(Api(pods=[plugin_pod("p")]), answers)[1].startswith("1 of 1 pod on 1 node")
    inside = "--namespace gpu exec p --container device-plugin -- python3 -m deviceplugin doctor"
    asked = (tmp_path / "asked").read_text().splitlines()
    assert [f"{inside} --output json", f"{inside} --json"] == [*asked[:2]]


def test_a_node_that_should_have_devices_is_asked_for_them(
    diagnose: Diagnose, tmp_path: Path
) -> None:
    api, words = Api(pods=[plugin_pod("p")]), ("--node=n1", GPU)
    diagnose(api, FINE, words)
    assert " doctor --plugin gpu --output json" in (tmp_path / "asked").read_text()
    unknown_there = {"*--plugin*": Says(error="invalid choice: 'gpu'", status=2), **FINE}
    assert "1 of 1 pod on 1 node answered" in diagnose(api, unknown_there, words)[1]


def test_without_kubectl_it_is_said_what_to_do(
    script: Script, capsys: pytest.CaptureFixture[str]
) -> None:
    script.otherwise = Api(pods=[plugin_pod("p")])
    assert 0 == _doctor_cli.main([f"--api={script.url}", "--kubectl=/nowhere/kubectl get"])
    said = "gpu/p: /nowhere/kubectl: No such file or directory: install kubectl, or name it by"
    assert said in capsys.readouterr().out


def test_the_cause_comes_before_what_follows_from_it_and_warnings_come_last(
    diagnose: Diagnose,
) -> None:
    answers = {
        "*exec?a?*doctor*": doctor(
            finding("warning", "clock", "is not set"), finding("failure", "mode", "no directory")
        ),
        "*exec?b?*doctor*": doctor(
            finding("failure", "mode", "none either"), finding("failure", "cdi", "invalid")
        ),
        "*exec?a?*/devices": devices(problem="waiting for the kubelet"),
        "*exec?b?*/devices": devices(g0="XID 79", g1="XID 79", g2=""),
    }
    pods = [plugin_pod("a"), plugin_pod("b", "n2"), plugin_pod("c", "n3", waits("ErrImagePull"))]
    away = node("n4", "Unknown")
    nodes = [node("n1", gpu=(0, 8)), node("n2", gpu=(6, 8)), away]
    status, out = diagnose(Api(nodes, pods, [daemon_set(4, 4)]), answers)
    assert 1 == status
    rows = [line.split(maxsplit=2) for line in out.splitlines() if line[:1] not in {" ", "", "2"}]
    assert [
        ["failure", "node", "n4: node is not ready: NodeStatusUnknown"],
        ["failure", "pod", "gpu/c: ErrImagePull"],
        ["failure", "mode", "/x: no directory"],
        ["failure", "cdi", "/x: invalid"],
        ["failure", "registration", "example.com/gpu: waiting for the kubelet"],
        ["failure", "devices", "example.com/gpu: none healthy of 8"],
        ["warning", "clock", "/x: is not set"],
        ["warning", "devices", "example.com/gpu g0: XID 79 (since 2026-01-01)"],
    ] == rows
    assert "also:  /x: none either\n" in out
    assert "node:  n1, n2\n" in out
    assert "6 failures, 2 warnings, 0 unknown, 2 ok; the most likely cause comes first" in out


def test_many_nodes_with_one_cause_are_one_line(diagnose: Diagnose) -> None:
    pods = [plugin_pod(f"p{number}", f"n{number}") for number in range(12)]
    answers = {
        f"*'exec p{number} '*doctor*": doctor(finding("failure", "mode", f"place {number}"))
        for number in range(12)
    }
    nodes = [node(f"n{number}", gpu=(1, 1)) for number in range(12)]
    _, out = diagnose(Api(nodes, pods), {**answers, PAGE: devices(g0="")})
    assert 1 == out.count("failure  mode")
    assert "also:  7 more, which --output json lists\n" in out
    assert "node:  n0, n1, n2, n3, n4 and 7 more\n" in out


def test_json_has_every_finding_with_its_node_and_pod(diagnose: Diagnose) -> None:
    answers = {"*doctor*": doctor(finding("failure", "mode", "none")), PAGE: devices(g0="")}
    pods = [plugin_pod("a"), plugin_pod("b", "n2")]
    nodes = [node("n1", gpu=(1, 1)), node("n2", gpu=(1, 1))]
    status, out = diagnose(Api(nodes, pods), answers, ("--output", "json"))
    found = json.loads(out)
    assert (1, True, 2, 2) == (status, found["failed"], found["pods"], found["answered"])
    assert {"failure": 1, "warning": 0, "unknown": 0, "ok": 2} == found["counts"]
    (cause,) = found["causes"]
    assert ("mode", "failure", ["n1", "n2"]) == tuple(
        cause[k] for k in ("check", "verdict", "nodes")
    )
    assert [("n1", "gpu/a"), ("n2", "gpu/b")] == [(f["node"], f["pod"]) for f in cause["findings"]]


def test_a_resource_is_asked_where_it_is_and_of_the_plugin_that_has_it(diagnose: Diagnose) -> None:
    pods = [plugin_pod("gpu"), plugin_pod("nic"), plugin_pod("far", "n2")]
    nodes = [node("n1", gpu=(1, 1), nic=(1, 1)), node("n2", nic=(0, 0))]
    answers = {
        "*exec?nic?*doctor*": doctor(finding("failure", "rdma", "no link")),
        "*exec?nic?*/devices": devices("example.com/nic"),
        **FINE,
    }
    assert diagnose(Api(nodes, pods), answers, (GPU,))[1].startswith("1 of 1 pod on 1 node")
    _, out = diagnose(Api(nodes, pods), answers, ("example.com/nic",))
    assert "failure  rdma     /x: no link" in out
    assert "failure  devices  example.com/nic: 0 devices now" in out
    _, out = diagnose(Api(nodes, pods), answers, ("example.com/gqu",))
    assert "example.com/gqu: no node has ever had it since its kubelet started" in out
    assert "did you mean 'example.com/gpu'? If the name is right, see the pods." in out


def test_a_plugin_whose_devices_cannot_be_read_is_still_examined(diagnose: Diagnose) -> None:
    answers = {"*doctor*": doctor(finding("failure", "mode", "none")), PAGE: Says("[]", "refused")}
    _, out = diagnose(Api(pods=[plugin_pod("p")]), answers)
    assert "failure  mode     /x: none" in out
    assert "unknown  devices  gpu/p: /devices: refused" in out


@pytest.mark.parametrize(
    ("api", "said"),
    [
        (Api(daemon_sets=[daemon_set(2, 0)]), "gpu/gpu-device-plugin: has 0 pods, and wants 2; Fa"),
        (Api(daemon_sets=[daemon_set(0, 0)]), "gpu/gpu-device-plugin: fits no node"),
        (Api(daemon_sets=FORBIDDEN), "unknown  rights  daemonsets: the API server answers 403"),
        (Api(), "component=device-plugin: no such pod in the cluster"),
        (Api(FORBIDDEN, [plugin_pod("p")]), "unknown  rights  nodes: needs list nodes"),
        (Api(objects=FORBIDDEN), "unknown  rights  the cluster: whether DevicePlugin objects"),
        (
            Api([node("n1", gpu=(1, 2))], slices=FORBIDDEN),
            "unknown  devices  example.com/gpu: 1 unhealthy of 2, unless DRA has them",
        ),
        (
            Api(objects=[plugin_object("gpu", "RollingOut", "1 of 2")]),
            "failure  operator  DevicePlugin gpu: RollingOut: 1 of 2",
        ),
    ],
)
def test_what_is_wrong_beside_the_pods_is_said(diagnose: Diagnose, api: Api, said: str) -> None:
    api.events = [warning_event("quota", "FailedCreate")]
    out = diagnose(api)[1]
    assert said in out, out


def test_a_pod_on_a_node_that_is_not_ready_is_not_asked(diagnose: Diagnose, tmp_path: Path) -> None:
    _, out = diagnose(Api([node("n1", "Unknown")], [plugin_pod("p")]))
    assert "failure  node  n1: node is not ready: NodeStatusUnknown" in out
    assert "\n0 of 1 pod on 1 node answered: 1 failure, 0 warnings, 0 unknown, 0 ok" in out
    assert not (tmp_path / "asked").exists()


def test_events_that_may_not_be_read_are_done_without(diagnose: Diagnose) -> None:
    pod = plugin_pod("p", container=waits("ContainerCreating"))
    assert "gpu/p: ContainerCreating\n" in diagnose(Api(pods=[pod], events=FORBIDDEN))[1]


@pytest.mark.parametrize(
    ("api", "words", "status", "said"),
    [
        (Api(), ("--node=nn1",), 2, "cluster-doctor: no node 'nn1': did you mean 'n1'?"),
        (Api(), ("n1",), 2, "cluster-doctor: n1 is a node: give --node n1"),
        (Api(), ("--namespace=a/b",), 2, "--namespace 'a/b': is not the name of a namespace"),
        (Api(), ("--kubectl=",), 2, "--kubectl: names no command"),
        (Api(), ("--kubectl='a",), 2, '--kubectl "\'a": No closing quotation'),
        (Api(), ("--timeout=2m",), 2, "--timeout"),
        (Api(pods=Answer(400, "unable to parse")), ("-l", "=="), 2, "--selector ==: the API"),
        (Api(pods=FORBIDDEN), (), 1, "needs list pods: the API server answers 403"),
        (Api(pods=FORBIDDEN), (), 1, "; --namespace NAME needs it only there"),
        (Api(Answer(401, "who?")), ("--output=xml",), 2, "invalid choice: 'xml'"),
    ],
)
def test_what_cannot_be_asked_is_one_line(
    diagnose: Diagnose, api: Api, words: tuple[str, ...], status: int, said: str
) -> None:
    found, out = diagnose(api, FINE, words)
    assert (status, True) == (found, said in out), out


def test_pods_of_another_label_and_namespace_can_be_asked(
    diagnose: Diagnose, script: Script
) -> None:
    words = ("--namespace=gpu", "--selector=app=mine", "--node=n1")
    assert 0 == diagnose(Api(pods=[plugin_pod("p")]), FINE, words)[0]
    asked = {one.path: one.query for one in script.asked}
    expected = {"labelSelector": "app=mine", "fieldSelector": "spec.nodeName=n1", "limit": "500"}
    assert expected == asked["/api/v1/namespaces/gpu/pods"]


def test_ctrl_c_ends_it_at_once_and_what_it_has_started(script: Script, tmp_path: Path) -> None:
    script.otherwise = Api(pods=[plugin_pod("p")])
    command = kubectl(tmp_path, {"*": Says(seconds=77)})
    words = [f"--api={script.url}", f"--kubectl={command}"]
    code = "import sys; from deviceplugin.__main__ import main; sys.exit(main())"
    with subprocess.Popen([sys.executable, "-c", code, "cluster-doctor", *words]) as process:
        eventually((tmp_path / "asked").exists)
        began = time.monotonic()
        os.kill(process.pid, signal.SIGINT)
        assert 130 == process.wait(60)
    assert time.monotonic() - began < 30


PAGE_OF_DOCTOR = Path(__file__).parents[2] / "common/docs/doctor.md"


def test_the_page_shows_what_is_printed(diagnose: Diagnose) -> None:
    died = {"exitCode": 2, "reason": "Error", "message": "config.yaml:4: sharng: unknown key"}
    pods = [
        plugin_pod("gpu-b4qzn", "worker-1"),
        plugin_pod("gpu-m2w9d", "worker-2"),
        plugin_pod("gpu-x7k2p", "worker-3", waits("CrashLoopBackOff", terminated=died)),
    ]
    nodes = [node("worker-1", gpu=(8, 8)), node("worker-2", gpu=(7, 8)), node("worker-3")]
    answers = {
        "*m2w9d*/devices": devices(**{"GPU-5f2c": "lost: XID 79", "GPU-90aa": ""}),
        **FINE,
    }
    status, out = diagnose(Api(nodes, pods), answers, (GPU,))
    assert 1 == status
    shown = f"```console\n$ kubectl deviceplugin doctor {GPU}\n{out}```\n"
    assert shown in PAGE_OF_DOCTOR.read_text(encoding="utf-8"), shown
