"""``deviceplugin node-template``: the pods that fit what it prints are those that fit the node.

The autoscaler's side is written from reading cluster-autoscaler at 55c37cd5eb: extract*FromAsg of
aws_manager.go, and clusterapi_unstructured.go.
"""

import io
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.dra_objects import DRIVER, RESOURCE, Simulated
from cluster.scripted_api import Answer, Script, running
from deviceplugin import Device
from deviceplugin._attribution.ownership import UNHEALTHY, OfferState
from deviceplugin._dra.slices.attributes import Describer, device_classes
from deviceplugin._dra.slices.plan import plan
from deviceplugin._dra.slices.pools import PoolCatalogue, Site
from deviceplugin.kit import sharing
from deviceplugin_cli.node_template._cli import main
from fleets.objects import Run

Object = dict[str, Any]
TAG = "k8s.io/cluster-autoscaler/node-template/"
CAPACITY = "capacity.cluster-autoscaler.kubernetes.io/"
LABELS = {
    "example.com/model": "x",
    "example.com/serial": "17",
    "example.com/host": "n1",
    "kubernetes.io/hostname": "n1",
    "zone": "a",
}
TAINTS = [
    {"key": "dedicated", "value": "gopher", "effect": "NoSchedule"},
    {"key": "startup.deviceplugin.dev/gopher-device-plugin", "effect": "NoSchedule"},
    {"key": "node.kubernetes.io/memory-pressure", "effect": "NoSchedule"},
]
TOLERATIONS = [{"key": "dedicated", "operator": "Exists"}]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*words: str) -> tuple[int, str, str]:
        status = main(words)
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call


def of_tags(text: str) -> Object:
    """Return the node that the autoscaler makes of the tags of an Auto Scaling group."""
    node: Object = {"amounts": {}, "labels": {}, "taints": [], "slices": []}
    for tag in json.loads(text)["Tags"]:
        kind, _, key = tag["Key"].removeprefix(TAG).partition("/")
        if kind == "resources":
            node["amounts"][key] = tag["Value"]
        elif kind == "label":
            node["labels"][key] = tag["Value"]
        elif re.match("(.*):(?:NoSchedule|NoExecute|PreferNoSchedule)", tag["Value"]):
            value, _, effect = tag["Value"].partition(":")
            node["taints"].append({"key": key, "value": value, "effect": effect})
    return node


def of_annotations(text: str) -> Object:
    """Return the node that the autoscaler makes of the annotations of a MachineDeployment."""
    given = yaml.safe_load(text)["metadata"]["annotations"]
    known = {key.removeprefix(CAPACITY): value for key, value in given.items() if value is not None}
    taints = [
        re.fullmatch("([^=:]+)(?:=([^=:]*))?:([^:]+)", one) for one in _split(known, "taints")
    ]
    count = int(known["gpu-count"])
    amounts = {known["gpu-type"]: known["gpu-count"]} if "gpu-type" in known else {}
    # The real pool has no count of slices, which an API server would refuse.
    pool = {"name": "new", "generation": 0, "resourceSliceCount": 1}
    attributes = {"type": {"string": "gpu"}}
    devices = [{"name": f"gpu-{number}", "attributes": attributes} for number in range(count)]
    spec = {"driver": known.get("dra-driver"), "nodeName": "n1", "pool": pool, "devices": devices}
    return {
        "amounts": amounts,
        "labels": dict(one.split("=", 1) for one in _split(known, "labels")),
        "taints": [{"key": t[1], "value": t[2], "effect": t[3]} for t in taints if t],
        "slices": [spec] if spec["driver"] else [],
        "others": {key: known.get(key) for key in ("cpu", "memory", "ephemeral-disk", "maxPods")},
    }


def _split(known: Mapping[str, str], key: str) -> list[str]:
    return known[key].split(",") if key in known else []


def devices(protocol: str) -> list[Device]:
    if protocol == "shares":
        return [*sharing.shares(Device("a"), 2), *sharing.shares(Device("b"), 2)]
    return [Device(name) for name in "abcd"]


def real_node(make: Simulated, protocol: str) -> None:
    """Give the node what it has with a plugin in DRA mode, or else in device-plugin mode."""
    usual = {"cpu": "7910m", "memory": "32823456Ki", "pods": "58"}

    def edit(node: Object) -> None:
        node["metadata"]["labels"] = LABELS
        node["spec"]["taints"] = TAINTS[:1]
        hidden = "4" if protocol == "device-plugin" else "0"
        node["status"] = {
            "capacity": {**usual, "cpu": "8", RESOURCE: "4"},
            "allocatable": {**usual, RESOURCE: hidden},
        }

    make.cluster.change("Node", "n1", edit)
    if protocol != "device-plugin":
        states = {one.id: OfferState(one, True, "", "") for one in devices(protocol)}
        pools = PoolCatalogue(Describer(DRIVER), "n1", "no-schedule").pools({RESOURCE: states})
        for write in plan([], pools, Site(DRIVER, "n1")):
            make.cluster.create(write.body or {})
        (klass,) = device_classes(DRIVER, [RESOURCE])
        make.cluster.create(klass)


def new_node(make: Simulated, found: Mapping[str, Any]) -> None:
    def edit(node: Object) -> None:
        node["metadata"]["labels"] = found["labels"]
        node["spec"]["taints"] = found["taints"]
        node["status"] = {"capacity": found["amounts"], "allocatable": found["amounts"]}

    make.cluster.change("Node", "n1", edit)
    for spec in found["slices"]:
        metadata = {"generateName": "new-"}
        make.cluster.create({"kind": "ResourceSlice", "metadata": metadata, "spec": spec})


def pods(make: Simulated) -> None:
    one = {RESOURCE: "1"}
    make.pod("intolerant", one)
    make.pod("elsewhere", one, tolerations=TOLERATIONS, nodeSelector={"example.com/model": "y"})
    make.pod("many", {RESOURCE: "5"}, tolerations=TOLERATIONS)
    make.pod("other", {"example.com/lamp": "1"}, tolerations=TOLERATIONS)
    for number in range(5):
        selector = {"example.com/model": "x"} if number == 0 else {}
        make.pod(f"one-{number}", one, tolerations=TOLERATIONS, nodeSelector=selector)


def fit(make: Simulated) -> set[str]:
    make.settle()
    return {one["metadata"]["name"] for one in make.cluster.pods_on("n1")}


@pytest.fixture
def real() -> Iterator[Simulated]:
    with Simulated() as make:
        yield make


@pytest.fixture
def new() -> Iterator[Simulated]:
    with Simulated() as make:
        yield make


@pytest.mark.parametrize("protocol", ["device-plugin", "dra", "shares"])
@pytest.mark.parametrize("form", ["aws", "cluster-api"])
def test_the_pods_that_fit_the_template_fit_the_node(
    real: Simulated, new: Simulated, run: Run, protocol: str, form: str
) -> None:
    real_node(real, protocol)
    group = ["--group=gophers"] if form == "aws" else []
    status, out, _ = run(f"--for={form}", f"--api={real.cluster.url}", "--node=n1", *group)
    assert 0 == status
    new_node(new, (of_tags if form == "aws" else of_annotations)(out))
    for make in (real, new):
        pods(make)
    assert {f"one-{number}" for number in range(4)} == fit(real) == fit(new)


def test_claims_fit_a_template_of_their_driver_only_by_a_class_that_asks_for_no_more(
    real: Simulated, new: Simulated, run: Run
) -> None:
    real_node(real, "dra")
    words = ["--for=cluster-api", f"--api={real.cluster.url}", "--node=n1", f"--driver={DRIVER}"]
    status, out, err = run(*words)
    assert 0 == status
    assert "select by device.driver in classes and claims" in err
    assert f"{CAPACITY}gpu-type: null" in out
    new_node(new, of_annotations(out))
    (ours,) = device_classes(DRIVER, [RESOURCE])
    ours["metadata"]["name"] = "ours"
    for make in (real, new):
        make.device_class()  # by driver alone
        make.cluster.create(ours)
        for number in range(5):
            make.claim(f"c{number}")
            make.pod_with(f"c{number}", f"p{number}", tolerations=TOLERATIONS)
    assert {"p0", "p1", "p2", "p3"} == fit(real) == fit(new)
    for make in (real, new):
        for number in range(4):
            make.end(f"p{number}")
            make.cluster.delete("ResourceClaim", f"c{number}")
        make.claim("d", deviceClassName="ours")
        make.pod_with("d", "q", tolerations=TOLERATIONS)
    assert (True, False) == ("q" in fit(real), "q" in fit(new))


def test_what_belongs_to_the_node_is_left_out_and_named(real: Simulated, run: Run) -> None:
    real_node(real, "device-plugin")
    taints = {"taints": TAINTS}
    real.cluster.change("Node", "n1", lambda node: node["spec"].update(taints))
    words = ["--for=cluster-api", f"--api={real.cluster.url}", "--node=n1"]
    _, out, err = run(*words)
    found = of_annotations(out)
    assert TAINTS[:1] == found["taints"]
    assert {"example.com/model": "x"} == found["labels"]
    cpu = {"cpu": "7910m", "memory": "32823456Ki", "ephemeral-disk": None, "maxPods": "58"}
    assert cpu == found["others"]
    startup = "startup.deviceplugin.dev/gopher-device-plugin"
    assert (
        f"left out: taint {startup}: it is removed when the devices are there; start "
        f"cluster-autoscaler with --startup-taint={startup}\n"
        "left out: taint node.kubernetes.io/memory-pressure: it says how the node is now\n"
        "left out: label example.com/host: it differs from node to node\n"
        "left out: label example.com/serial: it differs from node to node\n"
        "left out: 4 labels in all; --label PATTERN adds some\n"
    ) == err
    _, out, err = run(*words, "--label=zone", "--label=kubernetes.io/*")
    assert {"example.com/model": "x", "zone": "a"} == of_annotations(out)["labels"]
    assert "left out: label kubernetes.io/hostname: it differs from node to node\n" in err


def test_karpenter_knows_of_devices_by_an_overlay(real: Simulated, run: Run) -> None:
    real_node(real, "shares")
    words = ["--for=karpenter", f"--api={real.cluster.url}", "--node=n1", "--group=gophers"]
    status, out, _ = run(*words)
    overlay = yaml.safe_load(out)
    assert (0, {RESOURCE: "4"}) == (status, overlay["spec"]["capacity"])
    (requirement,) = overlay["spec"]["requirements"]
    assert ("karpenter.sh/nodepool", ["gophers"]) == (requirement["key"], requirement["values"])


def a_slice(index: int = 0, count: int = 1, generation: int = 1, **device: Any) -> Object:
    pool = {"name": "n1/p", "generation": generation, "resourceSliceCount": count}
    attributes = {"resource": {"string": RESOURCE}}
    one = {"name": f"d{index}", "attributes": attributes, **device}
    spec = {"driver": DRIVER, "nodeName": "n1", "pool": pool, "devices": [one]}
    return {"kind": "ResourceSlice", "metadata": {"name": f"s{index}"}, "spec": spec}


def a_node(name: str = "n1", **fields: Any) -> Object:
    status = {"capacity": {"cpu": "1", **fields}, "allocatable": {"cpu": "1"}}
    return {"kind": "Node", "metadata": {"name": name}, "status": status}


def shared(amount: str) -> Object:
    return a_slice(allowMultipleAllocations=True, capacity={"shares": {"value": amount}})


def labelled(key: str) -> Object:
    made = a_node(**{"a.b/c": "1"})
    return {**made, "metadata": {"name": "n1", "labels": {key: "x"}}}


def divided(*names: str) -> list[Object]:
    """Return the slices of a pool with devices that consume the same counters, and of a whole."""
    taken = [{"counterSet": "gpu-0", "counters": {"memory": {"value": "1"}}}]
    found = [a_slice(n, len(names) + 1, consumesCounters=taken) for n, _ in enumerate(names)]
    return [*found, a_slice(len(names), len(names) + 1)]


OWN, ONE = a_node(**{"a.b/c": "1"}), {"a.b/c": "1"}


def once(*names: str) -> Object:
    return {"resources": [{"name": name, "devices": [{"id": "a"}]} for name in names]}


def with_parts() -> Object:
    ids = {"gpu-0": "gpu-0", "gpu-0/1g@0": "gpu-0", "gpu-1/1g@0": "gpu-1"}
    devices = [{"id": one, "part": {"of": of}} for one, of in ids.items()]
    return {"resources": [{"name": RESOURCE, "devices": devices}]}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param([once(RESOURCE)], {RESOURCE: "1"}, id="what --once prints"),
        pytest.param([once(RESOURCE), once(RESOURCE)], {RESOURCE: "2"}, id="of two plugins"),
        pytest.param([a_slice()], {RESOURCE: "1"}, id="slices"),
        pytest.param(
            [a_slice(taints=[{"key": UNHEALTHY}])], {RESOURCE: "1"}, id="a new one is well"
        ),
        pytest.param([a_slice(0), a_slice(1, 1, 2)], {RESOURCE: "1"}, id="the latest generation"),
        pytest.param([a_slice(0, 2), a_slice(1, 2)], {RESOURCE: "2"}, id="a pool of two slices"),
        pytest.param(divided("whole", "half", "half"), {RESOURCE: "2"}, id="parts"),
        pytest.param([with_parts()], {RESOURCE: "2"}, id="parts of what --once prints"),
        pytest.param([shared("2k")], {RESOURCE: "2000"}, id="shares"),
        pytest.param([a_node(**{RESOURCE: "3"}), a_slice()], {RESOURCE: "3"}, id="amid a switch"),
        pytest.param([a_node(**{RESOURCE: "0"}), a_slice()], {RESOURCE: "1"}, id="hidden by DRA"),
        pytest.param([a_node(**{"a.b/c": "1"}), a_slice(attributes={})], {"a.b/c": "1"}, id="both"),
        pytest.param(
            [{"kind": "List", "items": [a_node(**{"a.b/c": "1"}), a_slice()]}],
            {"a.b/c": "1", RESOURCE: "1"},
            id="a list of kubectl",
        ),
        pytest.param(
            [OWN, a_slice(attributes={"resource": {"string": "a thing"}})], ONE, id="theirs"
        ),
        pytest.param(
            [OWN, a_slice(attributes={"resource": {"string": "x" * 300}})], ONE, id="longer"
        ),
        pytest.param([OWN, a_slice(attributes={"resource": {"int": 1}})], ONE, id="a number"),
        pytest.param([OWN, a_slice(allowMultipleAllocations=True)], ONE, id="shared otherwise"),
        pytest.param(
            [OWN, a_slice(allowMultipleAllocations=True, capacity={"memory": {"value": "1Gi"}})],
            ONE,
            id="shared by memory",
        ),
    ],
)
def test_a_description_is_counted_as_pods_ask(
    tmp_path: Path, run: Run, given: list[Object], expected: Mapping[str, str]
) -> None:
    path = tmp_path / "given.yaml"
    path.write_text("".join(f"---\n{json.dumps(one)}\n" for one in given))
    status, out, _ = run("--for=aws", "--group=g", f"--from={path}")
    assert (0, expected) == (status, of_tags(out)["amounts"])


def test_that_parts_are_not_said_is_said(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "given.yaml"
    path.write_text(json.dumps({"kind": "List", "items": divided("a", "b", "c")}))
    words = ["--for=cluster-api", f"--driver={DRIVER}", f"--from={path}"]
    status, out, err = run(*words)
    assert (0, 2) == (status, len(of_annotations(out)["slices"][0]["devices"]))
    assert "left out: parts that can be made of devices, because no form has words for them" in err


@pytest.mark.parametrize("reach", [{"allNodes": True}, {"nodeSelector": {}}, {"nodeName": ""}])
def test_slices_of_no_node_in_particular_are_left_out_and_named(
    tmp_path: Path, run: Run, reach: Object
) -> None:
    network = a_slice()
    del network["spec"]["nodeName"]
    network["spec"] |= reach
    path = tmp_path / "given.json"
    path.write_text(json.dumps({"kind": "List", "items": [network, OWN]}))
    status, out, err = run("--for=aws", "--group=g", f"--from={path}")
    assert (0, ONE) == (status, of_tags(out)["amounts"])
    place = f"{path}: document 1: items[0]"
    assert f"left out: {place} of {DRIVER}: it is not of one node\n" == err


LONG = f"{'a.' * 40}b/{'c' * 60}"
TAINT = [{"key": "a", "value": "a,b", "effect": "NoSchedule"}]
TWO = [a_node(**{"a.b/c": "1", "a.b/d": "1"})]


@pytest.mark.parametrize(
    ("given", "words", "message"),
    [
        pytest.param(
            [{"kind": "Pod"}], [], "document 1: cannot be used: ValueError: the kind is Pod"
        ),
        pytest.param([{}], [], "document 1: cannot be used: KeyError: 'resources'"),
        pytest.param([{"kind": "Node"}], [], "document 1: cannot be used: KeyError"),
        pytest.param([{**a_node(), "spec": {"taints": TAINT}}], [], "'a,b' is not the value of a"),
        pytest.param([once("a b")], [], "'a b' is not the name of a resource: it needs a domain"),
        pytest.param([a_slice(0, 2)], [], "pool 'n1/p' has 1 of its 2 slices: try again"),
        pytest.param(
            [shared("1500m")], [], "document 1: cannot be used: ValueError: is not a size"
        ),
        pytest.param([a_node(), {"kind": "List", "items": []}], [], "there are no devices"),
        pytest.param([labelled("a,b=c")], [], "'a,b=c' is not the key of a label or taint"),
        pytest.param([once(RESOURCE)], ["--for=karpenter", "--group=G\nx"], "name of a NodePool"),
        pytest.param([once(RESOURCE)], ["--for=karpenter", f"--group={'g' * 64}"], "of a NodePool"),
        pytest.param([a_node("n1"), a_node("n2")], [], "document 2: two nodes, n1 and n2"),
        pytest.param([a_node()], [], "there are no devices"),
        pytest.param(
            [once(RESOURCE)], ["--resource=a.b/c"], f"no resource a.b/c; there are: {RESOURCE}"
        ),
        pytest.param([once(LONG)], [], "cannot be in a tag of AWS, which has at most 128 letters"),
        pytest.param([once(*(f"a.b/{n}" for n in range(51)))], [], "51 tags are more than the 50"),
        pytest.param([once(RESOURCE)], ["--driver=d"], "--driver: aws has no words for claims"),
        pytest.param([once(RESOURCE)], ["--group="], "--group: name the group for aws"),
        pytest.param([once(RESOURCE)], ["--node=n1"], "give --node or --from"),
        pytest.param(TWO, ["--for=cluster-api", "--group="], "there are a.b/c, a.b/d: choose one"),
        pytest.param([once(RESOURCE)], ["--for=cluster-api"], "--group: is not for cluster-api"),
        pytest.param(
            [a_slice()],
            ["--for=cluster-api", "--group=", f"--driver={DRIVER}", f"--resource={RESOURCE}"],
            "give --driver or --resource",
        ),
    ],
)
def test_what_is_wrong_is_named(
    monkeypatch: pytest.MonkeyPatch, run: Run, given: list[Object], words: list[str], message: str
) -> None:
    text = "".join(f"---\n{json.dumps(one)}\n" for one in given).encode()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
    status, out, err = run("--for=aws", "--group=g", "--from=-", *words)
    assert (1 if message == "there are no devices" else 2, "") == (status, out)
    assert message in err
    assert 1 == err.count("\n")


def test_nodes_with_taints_and_labels_that_the_form_cannot_say(real: Simulated, run: Run) -> None:
    real_node(real, "device-plugin")
    words = [f"--api={real.cluster.url}", "--node=n1"]
    labels = {f"example.com/l{number}": "v" * 63 for number in range(3500)}
    real.cluster.change("Node", "n1", lambda node: node["metadata"].update(labels=labels))
    status, _, err = run("--for=cluster-api", *words)
    assert (2, True) == (status, "longer than 256 KiB: give less to --label" in err)
    taints = [{"key": "a", "effect": effect} for effect in ("NoSchedule", "NoExecute")]
    real.cluster.change("Node", "n1", lambda node: node["spec"].update(taints=taints))
    status, _, err = run("--for=aws", "--group=g", *words)
    assert (2, True) == (status, "taint a: has two effects" in err)
    status, _, err = run("--for=aws", "--group=g", words[0], "--node=../n1")
    assert (2, True) == (status, "--node '../n1': is not the name of a node" in err)
    status, _, err = run("--for=aws", "--group=g", words[0], "--node=n2")
    assert (1, True) == (status, '"n2" not found' in err)


def test_a_description_and_a_cluster_that_lack_something(run: Run, tmp_path: Path) -> None:
    with running(Script()) as old:  # older than DRA
        old.answers.append(Answer.of(a_node(**{RESOURCE: "1"})))
        status, out, _ = run("--for=aws", "--group=g", f"--api={old.url}", "--node=n1")
    assert (0, {RESOURCE: "1"}) == (status, of_tags(out)["amounts"])
    path = tmp_path / "given.json"
    path.write_text(json.dumps(once(RESOURCE)))
    status, _, err = run("--for=cluster-api", f"--from={path}")
    assert (0, True) == (
        status,
        err.startswith("left out: cpu and memory: the description has none"),
    )
