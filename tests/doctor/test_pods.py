"""Why a pod waits, was rejected or lacks devices, from what an API server has of it."""

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import grpc
import pytest

from cluster.scripted_api import Answer, Asked, Script, running
from deviceplugin.apiserver import ApiServer
from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from deviceplugin.tools.doctor._cli import main
from deviceplugin.tools.doctor.pods import look
from deviceplugin.tools.doctor.pods._symptoms import SYMPTOMS, symptoms_in
from deviceplugin_testing.simulator import Pod, SimulatedKubelet, StubError, StubPlugin
from hardware.healthy_node import write

ROOT = Path(__file__).parents[2]
Json = dict[str, Any]
GPU = "nvidia.com/gpu"
CORE, DRA = "/api/v1", "/apis/resource.k8s.io/v1"
POD, EVENTS = f"{CORE}/namespaces/ns/pods/p", f"{CORE}/namespaces/ns/events"
CLAIM = f"{DRA}/namespaces/ns/resourceclaims/c"
NODES, PODS = f"{CORE}/nodes", f"{CORE}/pods"


class Cluster(Script):
    """Objects by path; a list has what its field selector wants of events, and else everything."""

    def __init__(self) -> None:
        super().__init__(otherwise=self.has)
        self.objects: Json = {POD: pod(), EVENTS: [], NODES: [], PODS: []}
        self.forbidden = set[str]()

    def has(self, asked: Asked) -> Answer:
        if asked.path in self.forbidden:
            return Answer(403, "no right")
        found = self.objects.get(asked.path)
        if found is None:
            return Answer(404, "not found")
        if not isinstance(found, list):
            return Answer.of(found)
        wanted = dict(parse_qsl(asked.query.get("fieldSelector", ""), separator=","))
        if reason := wanted.get("reason"):
            found = [one for one in found if one["reason"] == reason]
        return Answer.of({"items": found, "metadata": {"resourceVersion": "1"}})

    @property
    def pod(self) -> Json:
        found: Json = self.objects[POD]
        return found

    def found(self) -> list[tuple[str, str, str]]:
        findings = look(ApiServer(self.url), "ns", "p")
        return [(one.verdict.value, one.looked_at, one.found) for one in findings]


def pod(phase: str = "Pending", node: str = "", **status: Any) -> Json:
    limits = {"limits": {GPU: "2", "memory": "1Gi"}}
    spec: Json = {"containers": [{"name": "main", "resources": limits}]}
    spec |= {"nodeName": node} if node else {}
    metadata = {"name": "p", "namespace": "ns", "uid": "uid-1"}
    return {"metadata": metadata, "spec": spec, "status": {"phase": phase, **status}}


def node(name: str, total: int, healthy: int) -> Json:
    status = {"capacity": {GPU: str(total), "cpu": "8"}, "allocatable": {GPU: str(healthy)}}
    return {"metadata": {"name": name}, "status": status}


def event(reason: str, message: str, at: str = "2026-01-01T00:00:00Z", of: str = "p") -> Json:
    return {"type": "Warning", "reason": reason, "message": message, "lastTimestamp": at} | {
        "involvedObject": {"name": of}
    }


def unscheduled(message: str, reason: str = "Unschedulable") -> Json:
    one = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    return pod(conditions=[one])


def gated(message: str) -> Json:
    return unscheduled(message, "SchedulingGated")


def rejected(message: str) -> Json:
    said = f"Pod was rejected: Allocate failed due to {message}, which is unexpected"
    return pod("Failed", "node-1", reason="UnexpectedAdmissionError", message=said)


def disrupted(reason: str) -> Json:
    one = {"type": "DisruptionTarget", "status": "True", "reason": reason}
    return pod("Failed", "node-1", conditions=[one])


def waiting(message: str, reason: str = "CreateContainerError") -> Json:
    state = {"waiting": {"reason": reason, "message": message}}
    return pod("Pending", "node-1", containerStatuses=[{"name": "main", "state": state}])


def creating(_message: str) -> Json:
    found = pod("Pending", "node-1")
    return found | {"spec": {**found["spec"], "hostUsers": False}}


def restarted(message: str) -> Json:
    ended = {"terminated": {"reason": "StartError", "message": message}}
    return pod("Running", "node-1", containerStatuses=[{"name": "main", "lastState": ended}])


def unprepared(message: str) -> Json:
    """A pod of which only an event says something."""
    return pod("Pending", "node-1") | {"said": f"Failed to prepare dynamic resources: {message}"}


def ailing(message: str) -> Json:
    devices = [{"resourceID": "a", "health": "Healthy"}, {"resourceID": "b", "message": message}]
    devices[1]["health"] = "Unhealthy"
    own = [{"name": GPU, "resources": devices}]
    statuses = [{"name": "main", "allocatedResourcesStatus": own}]
    ready = {"type": "Ready", "status": "True"}
    return pod("Running", "node-1", containerStatuses=statuses, conditions=[ready])


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with running(Cluster()) as cluster:
        yield cluster


SCENES: list[tuple[Callable[[str], Json], str, str]] = [
    (unscheduled, "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.", "as many free"),
    (unscheduled, "0/1 nodes are available: 1 Insufficient cpu.", "lack something else"),
    (unscheduled, "1 Insufficient memory, 1 Too many pods", "lack something else"),
    (unscheduled, "1 node(s) had untolerated taint {a: b}. preemption: 0/1", "keep pods away"),
    (unscheduled, "1 node(s) didn't match Pod's node affinity/selector.", "excludes these"),
    (gated, "Scheduling is blocked due to non-empty scheduling gates", "holds the pod back"),
    (unscheduled, "0/1 nodes are available: 1 cannot allocate all claims.", "no free device fits"),
    (unscheduled, "request gpu: device class x does not exist", "nobody has made the DeviceClass"),
    (unscheduled, 'resourceclaim.resource.k8s.io "c" not found', "the claim is not there"),
    (unscheduled, 'pod claim "c": ResourceClaim not created yet', "the claim is not there"),
    (unscheduled, "1 resourceclaim in use", "belongs to other pods too"),
    (unscheduled, "device binding timeout: claim=c", "must be attached"),
    (rejected, "Node didn't have enough resource: x/y, requested: 2", "too few devices"),
    (rejected, "no healthy devices present; cannot allocate unhealthy devices x/y", "is away"),
    (rejected, "cannot allocate unregistered device x/y", "is away"),
    (rejected, "previously allocated devices are no longer healthy; x", "the kubelet restarted"),
    (rejected, "requested number of devices unavailable for x/y", "than the scheduler counted"),
    (rejected, "rpc error: code = FailedPrecondition desc = GPU-1 is busy", "the plugin refused"),
    (rejected, "rpc error: code = Unavailable desc = connection error", "the plugin ended"),
    (rejected, "device plugin GetPreferredAllocation rpc failed with err: x", "answers wrongly"),
    (rejected, 'pod "u" container "c" changed request for resource "x/y"', "cannot be changed"),
    (rejected, "failed to write checkpoint file: no space left", "the disk of the node"),
    (rejected, "Resources cannot be allocated with Topology locality", "topology manager"),
    (disrupted, "DeletionByDeviceTaintManager", "got a taint"),
    (waiting, "unresolvable CDI devices a=b", "does not find the CDI"),
    (waiting, "error gathering device information while adding custom device", "any more"),
    (waiting, "error creating device nodes: mount src=/dev/x, no such file", "user namespace"),
    (waiting, "x: pinging container registry localhost: Get", "lacks it, or asks a registry first"),
    (waiting, 'short-name "gopher:1" did not resolve to an alias', "complete names of images"),
    (creating, "ContainerCreating with hostUsers: false", "user namespace"),
    (restarted, "nvidia-container-cli: initialization error: nvml error", "is not set up"),
    (waiting, "device plugin PreStartContainer rpc failed with err: x", "preparation of the"),
    (unprepared, "DRA driver gpu.example.com is not registered", "does not run on this node"),
    (unprepared, "NodePrepareResources failed: c: without room: 4 memory", "could not be made"),
    (unprepared, "NodePrepareResources failed for ResourceClaim c: x", "could not prepare"),
    (unprepared, "ResourceClaim c: not allocated", "without the scheduler"),
    (unprepared, "old ResourceClaim with same name c and different UID u", "deleted by force"),
    (ailing, "XID 79", "The pod keeps it"),
]


@pytest.mark.parametrize(("make", "text", "means"), SCENES, ids=[text for _, text, _ in SCENES])
def test_what_the_pod_shows_is_explained(
    cluster: Cluster, make: Callable[[str], Json], text: str, means: str
) -> None:
    scene = make(text)
    if said := scene.pop("said", ""):
        cluster.objects[EVENTS] = [event("FailedPrepareDynamicResources", said)]
    cluster.objects |= {POD: scene, NODES: [node("node-1", 4, 4)]}
    findings = [*look(ApiServer(cluster.url), "ns", "p")]
    assert means in findings[0].means, findings
    assert text in findings[0].found
    assert findings[0].do
    assert f"{scene['status']['phase']} " in findings[-1].found


def refusing(plugin: StubPlugin) -> None:
    plugin.failing["Allocate"] = StubError("busy", grpc.StatusCode.FAILED_PRECONDITION)


def ending(plugin: StubPlugin) -> None:
    plugin.failing["Allocate"] = StubError("gone", grpc.StatusCode.UNAVAILABLE)


def preferring_badly(plugin: StubPlugin) -> None:
    plugin.failing["GetPreferredAllocation"] = StubError("no")


@pytest.mark.parametrize(
    ("do", "healthy", "means"),
    [
        (lambda plugin: plugin.update({"a": "Unhealthy"}), 0, "is away"),
        (lambda plugin: plugin.stop(), 0, "is away"),
        (lambda plugin: plugin.update(["a"]), 1, "than the scheduler counted"),
        (refusing, 3, "the plugin refused"),
        (ending, 3, "the plugin ended"),
        (preferring_badly, 3, "answers wrongly"),
    ],
)
def test_what_a_kubelet_says_of_a_pod_that_it_rejects_is_explained(
    root: Path, do: Callable[[StubPlugin], None], healthy: int, means: str
) -> None:
    options = pb.DevicePluginOptions(get_preferred_allocation_available=True)
    with (
        SimulatedKubelet(root) as kubelet,
        StubPlugin(kubelet.plugin_dir, GPU, ["a", "b", "c"], options=options) as plugin,
    ):
        kubelet.wait_for(GPU, {"a", "b", "c"})
        do(plugin)
        kubelet.wait(lambda: len(kubelet.healthy(GPU)) == healthy)
        outcome = kubelet.run(Pod.of("p", main={GPU: 2}))
    texts = [f"{outcome.reason}: {outcome.message}", f"{outcome.reason}: {outcome.event}"]
    assert [[means in one.means for one in symptoms_in(text)] for text in texts] == [[True]] * 2


def test_every_symptom_has_a_scene_or_a_test_of_its_own() -> None:
    elsewhere = {"exceeded quota", "Terminating for"}
    shown = {one.means for one in SYMPTOMS for _, _, means in SCENES if means in one.means}
    left = [one.pattern for one in SYMPTOMS if one.means not in shown]
    assert all(any(one.startswith(known) for known in elsewhere) for one in left), left


def test_all_that_the_scheduler_says_is_explained_and_each_thing_once(cluster: Cluster) -> None:
    message = (
        "0/3 nodes are available: 1 Insufficient nvidia.com/gpu, 2 node(s) had untolerated taint"
    )
    cluster.objects |= {
        POD: unscheduled(message),
        EVENTS: [event("FailedScheduling", message)] * 2,
        NODES: [node("node-1", 4, 4)],
    }
    assert ["failure", "failure", "ok", "ok"] == [verdict for verdict, _, _ in cluster.found()]


@pytest.mark.parametrize(
    ("nodes", "verdict", "text"),
    [
        ([], "failure", "none of 0 nodes has it"),
        ([node("n", 1, 1)], "failure", "the pod asks for 2, and no node has more than 1"),
        ([node("n", 4, 1)], "failure", "the pod asks for 2, and no node has more than 1 healthy"),
        ([node("n", 4, 4), node("m", 2, 2)], "failure", "for 2; free: n 1 of 4, m 0 of 2"),
        ([node("n", 8, 6)], "ok", "for 2; free: n 3 of 6. What keeps the pod from n is something"),
        ([node(f"n{i}", 3, 3) for i in range(7)], "ok", ", n4 3 of 3 and 2 more nodes"),
    ],
)
def test_a_pod_without_a_node_is_compared_with_the_nodes(
    cluster: Cluster, nodes: list[Json], verdict: str, text: str
) -> None:
    three = {"containers": [{"resources": {"limits": {GPU: "3"}}}], "nodeName": "n"}
    two = {"containers": [{"resources": {"limits": {GPU: "2"}}}], "nodeName": "m"}
    cluster.objects |= {NODES: nodes, PODS: [{"spec": three}, {"spec": two}]}
    (found,) = [one for one in cluster.found() if one[1] == GPU]
    assert verdict == found[0]
    assert text in found[2]


def test_a_name_that_no_node_has_is_answered_by_the_nearest(cluster: Cluster) -> None:
    cluster.pod["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpus": "1"}
    cluster.objects[NODES] = [node("n", 1, 1)]
    findings = [*look(ApiServer(cluster.url), "ns", "p")]
    assert ["did you mean nvidia.com/gpu?"] == [
        one.do for one in findings if one.verdict == "failure"
    ]


@pytest.mark.parametrize("resource", ["example.com/gpu", "deviceclass.resource.kubernetes.io/gpu"])
def test_a_resource_that_is_given_through_dra_needs_no_node(
    cluster: Cluster, resource: str
) -> None:
    cluster.pod["spec"]["containers"][0]["resources"]["limits"] = {resource: "1"}
    spec = {"extendedResourceName": "example.com/gpu"}
    others = [{"metadata": {"name": "x"}, "spec": {}}, {"metadata": {"name": "gpu"}, "spec": spec}]
    cluster.objects |= {NODES: [node("n", 1, 1)], f"{DRA}/deviceclasses": others}
    assert ("ok", resource, "is given through DRA, by the DeviceClass gpu") in cluster.found()


def test_what_the_scheduler_said_before_the_pod_had_a_node_is_over(cluster: Cluster) -> None:
    cluster.objects |= {
        POD: waiting("", "ContainerCreating"),
        EVENTS: [event("FailedScheduling", "1 Insufficient nvidia.com/gpu")],
    }
    assert ["unknown", "ok"] == [verdict for verdict, _, _ in cluster.found()]


def test_a_scheduler_that_nobody_may_run_is_named(cluster: Cluster) -> None:
    cluster.pod["spec"]["schedulerName"] = "volcano"
    text = "waits, and neither volcano nor a kubelet has said why yet"
    assert ("unknown", "ns/p", text) == cluster.found()[0]


def test_a_pod_that_says_nothing_yet_or_something_else_is_not_explained(cluster: Cluster) -> None:
    cluster.objects |= {POD: waiting("", "ContainerCreating")}
    verdict, _, text = cluster.found()[0]
    assert ("unknown", True) == (verdict, text.startswith("waits, and neither"))
    cluster.objects |= {POD: waiting("no such image", "ImagePullBackOff")}
    assert ("failure", "container main", "ImagePullBackOff: no such image") == cluster.found()[0]
    cluster.pod["status"]["phase"] = "Running"
    assert ("failure", "container main", "ImagePullBackOff: no such image") == cluster.found()[0]
    cluster.objects |= {POD: pod("Failed", "node-1")}
    assert "has failed, and the kubelet did not reject it" == cluster.found()[0][2]


def test_old_events_of_a_pod_that_runs_do_not_count(cluster: Cluster) -> None:
    ready = {"type": "Ready", "status": "True"}
    cluster.objects |= {
        POD: pod("Running", "node-1", conditions=[ready]),
        EVENTS: [event("FailedScheduling", "1 Insufficient nvidia.com/gpu")],
    }
    assert [("ok", "ns/p", f"Running on node-1; asks for {GPU}: 2")] == cluster.found()


def test_the_latest_event_is_shown(cluster: Cluster) -> None:
    text = "NodePrepareResources failed for ResourceClaim c: {}"
    cluster.objects |= {
        POD: pod("Pending", "node-1"),
        EVENTS: [
            event("FailedPrepareDynamicResources", text.format("old"), "2026-01-01T00:00:00Z"),
            event("FailedPrepareDynamicResources", text.format("new"), "2026-01-02T00:00:00Z"),
            {**event("Scheduled", "NodePrepareResources"), "type": "Normal"},
        ],
    }
    assert cluster.found()[0][2].endswith("c: new")


def test_a_pod_that_should_be_gone_is_named(cluster: Cluster) -> None:
    ready = {"type": "Ready", "status": "True"}
    cluster.objects[POD] = pod("Running", "node-1", conditions=[ready])
    cluster.pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert cluster.found()[0][2].startswith("Terminating for ")
    cluster.pod["metadata"]["deletionTimestamp"] = "2999-01-01T00:00:00Z"
    assert ["ok"] == [verdict for verdict, _, _ in cluster.found()]


def test_a_pod_that_could_not_be_made_is_explained_by_its_controller(cluster: Cluster) -> None:
    del cluster.objects[POD]
    quota = "exceeded quota: q, requested: requests.nvidia.com/gpu=1, used: 8, limited: 8"
    cluster.objects[EVENTS] = [
        event("FailedCreate", quota, of="p-7d9"),
        event("FailedCreate", quota, of="x"),
    ]
    assert [("ns/p", "there is no such pod"), ("ns/p-7d9", f"FailedCreate: {quota}")] == [
        one[1:] for one in cluster.found()
    ]


def test_a_pod_that_asks_for_nothing_is_a_warning(cluster: Cluster) -> None:
    cluster.objects[POD] = pod("Running", "node-1") | {
        "spec": {"containers": [{}], "nodeName": "n"}
    }
    (verdict, _, text), _ = cluster.found()
    assert ("warning", True) == (verdict, text.startswith("asks for no device"))


def claimed(cluster: Cluster, claim: Json | None, **one: str) -> list[tuple[str, str, str]]:
    """Return what is found about the claim of the pod; without ``one`` it has a name."""
    spec = {"containers": [{"resources": {"claims": [{"name": "gpu"}]}}]}
    cluster.objects[POD] = pod() | {
        "spec": spec | {"resourceClaims": [{"name": "gpu", **(one or {"resourceClaimName": "c"})}]}
    }
    cluster.objects[CLAIM] = claim
    return [each for each in cluster.found() if "claim" in each[1]]


def of_class(name: str) -> Json:
    requests = [
        {"name": "a", "exactly": {"deviceClassName": name}},
        {"name": "b", "firstAvailable": [{"deviceClassName": name}]},
    ]
    return {"spec": {"devices": {"requests": requests}}}


def allocated(*uids: str, **status: Any) -> Json:
    results = [{"driver": "gpu.example.com", "device": "gpu-0"}]
    reserved = [{"name": f"pod-{uid}", "uid": uid} for uid in uids]
    return {
        "status": {
            "allocation": {"devices": {"results": results}},
            "reservedFor": reserved,
            **status,
        }
    }


@pytest.mark.parametrize(
    ("claim", "expected"),
    [
        (None, [("failure", "does not exist in ns")]),
        (
            of_class("none"),
            [("failure", "there is no DeviceClass none"), ("unknown", "is not allocated")],
        ),
        (of_class("gpu"), [("unknown", "is not allocated")]),
        ({}, [("unknown", "is not allocated")]),
        (allocated("uid-1"), [("ok", "has gpu-0 of gpu.example.com")]),
        (
            allocated("a", "b", "c", "d"),
            [("warning", "is reserved for pod-a, pod-b, pod-c and 1 more, and not for this pod")],
        ),
        (
            allocated(
                "uid-1",
                devices=[
                    {
                        "driver": "d",
                        "device": "x",
                        "conditions": [{"type": "Ready", "status": "False", "reason": "Hot"}],
                    }
                ],
            ),
            [("ok", "has gpu-0 of gpu.example.com"), ("warning", "x of d is not ready: Hot")],
        ),
    ],
)
def test_the_claim_of_a_pod_is_examined(
    cluster: Cluster, claim: Json | None, expected: list[tuple[str, str]]
) -> None:
    cluster.objects[f"{DRA}/deviceclasses/gpu"] = {}
    assert expected == [(verdict, text) for verdict, _, text in claimed(cluster, claim)]


def test_a_claim_of_a_template_is_followed(cluster: Cluster) -> None:
    template = {"resourceClaimTemplateName": "t"}
    path = f"{DRA}/namespaces/ns/resourceclaimtemplates/t"
    assert ("failure", "claim gpu", "there is no ResourceClaimTemplate t in ns") == claimed(
        cluster, None, **template
    )[0]
    cluster.objects[path] = {}
    assert "has not been made yet from its template t" == claimed(cluster, None, **template)[0][2]
    cluster.forbidden = {path}
    assert "unknown" == claimed(cluster, None, **template)[0][0]
    statuses = [{"name": "gpu", "resourceClaimName": "c"}]
    cluster.objects[CLAIM] = allocated("uid-1")
    cluster.pod["status"]["resourceClaimStatuses"] = statuses
    cluster.pod["status"]["extendedResourceClaimStatus"] = {"resourceClaimName": "c"}
    found = [one for one in cluster.found() if one[1] == "resourceclaim c"]
    assert [("ok", "has gpu-0 of gpu.example.com")] * 2 == [(one[0], one[2]) for one in found]


def test_a_claim_that_no_container_uses_is_a_warning(cluster: Cluster) -> None:
    claimed(cluster, allocated("uid-1"))
    cluster.pod["spec"]["containers"] = [{"name": "main"}]
    assert ("warning", "claim gpu", "no container has it in resources.claims") in cluster.found()


def test_what_may_not_be_read_is_unknown_and_the_rest_is_examined(cluster: Cluster) -> None:
    claimed(cluster, of_class("gpu"))
    cluster.pod["spec"]["containers"][0]["resources"]["limits"] = {GPU: "1"}
    paths = {EVENTS, NODES, CLAIM, f"{DRA}/deviceclasses/gpu"}
    for path in paths:
        cluster.forbidden = {path}
        found = cluster.found()
        (hidden,) = [one for one in found if "cannot be read" in one[2]]
        assert "unknown" == hidden[0]
        assert found[-1][2].startswith("Pending without a node; asks for ")
    cluster.forbidden, cluster.objects[NODES] = {PODS}, [node("n", 2, 2)]
    assert any(one[2].startswith("cannot be counted: ") for one in cluster.found())


def test_the_command_says_it_all_and_exits_with_1(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.objects |= {POD: unscheduled("0/1 nodes are available: 1 Insufficient nvidia.com/gpu.")}
    words = ["--pod=ns/p", f"--api-server={cluster.url}"]
    assert 1 == main(words)
    assert capsys.readouterr().out.endswith(
        "2 failures, 0 warnings, 0 unknown, 1 ok; nothing was changed\n"
    )
    assert 1 == main([*words, "--output=json"])
    document = json.loads(capsys.readouterr().out)
    assert ["format", "deviceplugin", "pod", "failed", "counts", "findings"] == list(document)
    assert {"GET"} == {one.method for one in cluster.asked}


@pytest.mark.parametrize("body", [[], {}, {"metadata": 1, "spec": []}, {"spec": None}, 7, "x"])
def test_an_answer_that_is_no_pod_is_one_line(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], body: object
) -> None:
    cluster.otherwise = lambda _: Answer.of(body)
    assert 1 == main(["--pod=ns/p", f"--api-server={cluster.url}"])
    assert 1 == len(capsys.readouterr().err.splitlines())


@pytest.mark.parametrize("name", ["p", "/p", "ns/", "ns/p/q", "NS/p", "ns/p?x=1", "../p", "ns/é"])
def test_a_wrong_name_is_refused_before_anybody_is_asked(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 2 == main([f"--pod={name}"])
    assert f"--pod {name!r}: is not NAMESPACE/POD" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--only=mode", "--plugin=gpu", "--config=/x"])
def test_an_option_for_a_node_is_refused(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == main(["--pod=ns/p", flag])
    expected = f"{flag.partition('=')[0]}: is for a node; --pod examines none"
    assert expected in capsys.readouterr().err


def test_the_cluster_is_that_of_kubectl_where_its_package_is_installed(
    cluster: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    write(tmp_path / "home/.kube/config", json.dumps(kubeconfig(cluster.url)))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    place = "deviceplugin_cli.kubeconfig:find_api_server"
    text = (ROOT / "common/cli/pyproject.toml").read_text(encoding="utf-8")
    assert f'[project.entry-points."deviceplugin.clusters"]\nkubeconfig = "{place}"' in text
    write(tmp_path / "cli-1.dist-info/METADATA", "Name: cli\nVersion: 1\n")
    entry = f"[deviceplugin.clusters]\nkubeconfig = {place}\n"
    write(tmp_path / "cli-1.dist-info/entry_points.txt", entry)
    monkeypatch.syspath_prepend(tmp_path)
    cluster.objects[POD] = pod("Running", "node-1")
    assert 0 == main(["--pod=ns/p"])
    assert "Running on node-1" in capsys.readouterr().out


def kubeconfig(url: str) -> Mapping[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "x",
        "clusters": [{"name": "x", "cluster": {"server": url}}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "users": [{"name": "x", "user": {}}],
    }


PAGE = (ROOT / "common/docs/pods.md").read_text(encoding="utf-8")
ROWS = [line.split(" | ")[0].strip("| ") for line in PAGE.splitlines() if line.startswith("| ")][1:]


@pytest.mark.parametrize("row", ROWS)
def test_what_the_page_quotes_is_what_the_command_recognises(row: str) -> None:
    quoted = re.findall("`([^`]+)`", row)
    assert quoted
    assert [] == [one for one in quoted if not [*symptoms_in(one)]]


def test_the_page_has_all_that_the_command_recognises() -> None:
    quoted = re.findall("`([^`]+)`", "\n".join(ROWS))
    shown = {symptom for one in quoted for symptom in symptoms_in(one)}
    assert [] == [one.pattern for one in SYMPTOMS if one not in shown]


def test_the_page_shows_what_the_command_prints(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    path = f"{CORE}/namespaces/default/pods/train-0"
    scene = unscheduled("0/2 nodes are available: 2 Insufficient nvidia.com/gpu.")
    scene["metadata"] |= {"name": "train-0", "namespace": "default"}
    held = [
        {"spec": {"nodeName": name, "containers": [{"resources": {"limits": {GPU: count}}}]}}
        for name, count in {"node-1": "8", "node-2": "7"}.items()
    ]
    cluster.objects |= {
        path: scene,
        f"{CORE}/namespaces/default/events": [],
        NODES: [node("node-1", 8, 8), node("node-2", 8, 8)],
        PODS: held,
    }
    assert 1 == main(["--pod=default/train-0", f"--api-server={cluster.url}"])
    command = "$ deviceplugin doctor --pod default/train-0"
    assert f"```console\n{command}\n{capsys.readouterr().out}```" in PAGE
