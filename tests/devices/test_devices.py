"""``deviceplugin devices`` against the simulated kubelet and real plugins."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import deviceplugin as dp
from cluster.scripted_api import Answer, Script, running
from deviceplugin._dra.naming import device_name, pool_name
from deviceplugin.proto.podresources import podresources_pb2 as pb
from deviceplugin.tools._devices_page import NoAnswerError, decode
from deviceplugin.tools.devices import _inventory
from deviceplugin.tools.devices._cli import main
from deviceplugin.tools.devices._inventory import FORMAT, Holder, Inventory, NodeDevice
from deviceplugin_testing.fixture import Kubelet
from deviceplugin_testing.simulator import Container, Pod
from patience import eventually
from scripted_plugin import ScriptedPlugin

R = "example.com/camera"
KEYS = [
    "resource", "id", "state", "allocatable", "healthy", "by_dra", "reason", "since",
    "numa_nodes", "attributes", "capacity", "holders",
]  # fmt: skip


def rows(text: str) -> list[list[str]]:
    return [line.split(maxsplit=5) for line in text.partition("\n\n")[0].splitlines()]


def test_devices_and_holders_are_listed_in_natural_order(
    kubelet: Kubelet, capsys: pytest.CaptureFixture[str]
) -> None:
    ten = [
        dp.Device(
            f"dev{number}",
            health=dp.Health.unhealthy("too hot") if number == 3 else dp.Health(),
            topology=dp.Topology([0, 1] if number == 10 else [0]),
        )
        for number in range(11)
    ]
    plugin = ScriptedPlugin(*ten, resource=R)
    with kubelet.running(plugin, http_address="127.0.0.1:0") as node:
        node.wait_for(R, {f"dev{n}" for n in range(11) if n != 3}, {"dev3"})
        sidecar = Container("side", {R: 1}, restarts_always=True)
        assert node.kubelet.run(Pod("p", [Container("main", {R: 2})], [sidecar], namespace="ns"))
        words = [f"--pod-resources-socket={kubelet.simulated.pod_resources_socket}"]
        assert 0 == main(words)
        out = capsys.readouterr().out
        head, *devices = rows(out)
        assert ["RESOURCE", "DEVICE", "STATE", "NUMA", "HELD", "BY", "REASON"] == " ".join(
            head
        ).split()
        assert [f"dev{n}" for n in range(11) if n != 3] == [row[1] for row in devices]
        held = [row for row in devices if row[2:4] == ["in", "use"]]
        assert 3 == len(held)
        assert f"{R}: 7 free, 3 in use" in out
        assert "unknown: devices that no pod has and that are unhealthy" in out

        words.append(f"--plugin=http://127.0.0.1:{node.host.http_port}")
        assert 0 == main(words)
        out = capsys.readouterr().out
        (ill,) = [row for row in rows(out) if row[1] == "dev3"]
        assert [R, "dev3", "unhealthy", "0", "-"] == ill[:5]
        assert ill[5].startswith("too hot (since 2")
        assert "0,1" in out
        assert "unknown: devices that no pod has" not in out

        assert 0 == main([*words, "--output=json"])
        document = json.loads(capsys.readouterr().out)
    assert ["format", "deviceplugin", "devices", "unknown"] == list(document)
    assert FORMAT == document["format"]
    assert all(list(device) == KEYS for device in document["devices"])
    holders = [holder for device in document["devices"] for holder in device["holders"]]
    expected = [("ns", "p", "main"), ("ns", "p", "main"), ("ns", "p", "side")]
    assert expected == sorted((h["namespace"], h["pod"], h["container"]) for h in holders)
    assert {"dev3": False} == {
        device["id"]: device["healthy"] for device in document["devices"] if device["reason"]
    }


def entry(*ids: str, nodes: tuple[int, ...] = ()) -> pb.ContainerDevices:
    topology = pb.TopologyInfo(nodes=[pb.NUMANode(ID=node) for node in nodes])
    return pb.ContainerDevices(resource_name=R, device_ids=ids, topology=topology)


def listed(*pods: tuple[str, list[pb.ContainerDevices]]) -> pb.ListPodResourcesResponse:
    return pb.ListPodResourcesResponse(
        pod_resources=[
            pb.PodResources(
                name=name,
                namespace="ns",
                containers=[pb.ContainerResources(name="main", devices=devices)],
            )
            for name, devices in pods
        ]
    )


def test_of_very_many_devices_a_terminal_shows_the_first_before_the_last_is_formatted() -> None:
    inventory = Inventory()
    inventory.add_allocatable(pb.AllocatableResourcesResponse(devices=[entry("a", "b", "c", "d")]))
    lines = _inventory.table(inventory, 3)
    assert ["RESOURCE", "DEVICE", "STATE", "NUMA", "HELD", "BY", "REASON"] == next(lines).split()
    held = Holder("a-namespace", "a-pod", "c")
    for device in inventory:
        device.holders |= {held} if device.id in {"c", "d"} else set()
    shown = list(lines)
    columns = [line.find("-") for line in shown[:4]]
    assert columns[0] == columns[1]
    assert all("a-namespace/a-pod/c" in line for line in shown[2:4])
    assert f"{R}: 2 free, 2 in use\n" in shown
    assert ["no devices\n"] == list(_inventory.table(Inventory(), 3))


def test_entries_of_one_device_are_one_row() -> None:
    inventory = Inventory()
    twice = [
        entry("a", nodes=(0,)),
        entry("a", nodes=(1,)),
        entry("a", nodes=(1,)),
        entry("b", "c"),
    ]
    inventory.add_allocatable(pb.AllocatableResourcesResponse(devices=twice))
    inventory.add_pods(listed(("p", twice[:3])))
    inventory.close()
    a, b, c = inventory
    held = {Holder("ns", "p", "main")}
    assert NodeDevice(R, "a", allocatable=True, numa_nodes={0, 1}, holders=held) == a
    assert (NodeDevice(R, "b", True), NodeDevice(R, "c", True)) == (b, c)


def test_what_two_pods_have_and_the_kubelet_would_not_give_is_not_allocatable() -> None:
    inventory = Inventory()
    inventory.add_pods(listed(("p", [entry("a")]), ("q", [entry("a")])))
    (device,) = inventory
    assert "in use" == device.state
    assert "ns/p/main, ns/q/main" in "".join(_inventory.table(inventory, 99))
    inventory.close()
    assert "not allocatable" == device.state


def test_a_device_of_a_claim_is_in_the_line_of_its_plugin_if_that_is_known() -> None:
    inventory = Inventory()
    entries = [{"id": "0000:3b:00.0", "healthy": True}, {"id": "b", "healthy": True}]
    waiting = {"namespace": "ns", "pod": "", "container": "", "claim": "d"}
    entries[1]["holders"] = [waiting, {**waiting, "pod": "elsewhere"}]
    inventory.add_plugin({"resources": [{"name": "example.com/gpu", "devices": entries}]})
    places = [(pool_name("node", "example.com/gpu"), device_name("0000:3b:00.0"))]
    places += [("node", "gpu-0")] * 2  # of a driver that is not ours
    parts = [
        pb.ClaimResource(driver_name="gpu.example.com", pool_name=pool, device_name=name)
        for pool, name in places
    ]
    claim = pb.DynamicResource(claim_name="c", claim_namespace="ns", claim_resources=parts)
    container = pb.ContainerResources(name="main", dynamic_resources=[claim])
    pod = pb.PodResources(name="p", namespace="ns", containers=[container])
    inventory.add_pods(pb.ListPodResourcesResponse(pod_resources=[pod]))
    inventory.close()
    assert [
        ("example.com/gpu", "0000:3b:00.0", "in use", ["ns/p/main (claim c)"]),
        ("example.com/gpu", "b", "in use", ["claim ns/d"]),
        ("gpu.example.com (DRA)", "node/gpu-0", "in use", ["ns/p/main (claim c)"]),
    ] == [(one.resource, one.id, one.state, list(map(str, one.holders))) for one in inventory]
    first, second, _ = (one["holders"] for one in _inventory.document(inventory)["devices"])
    expected = {"namespace": "ns", "pod": "p", "container": "main", "claim": "c"}
    assert ([expected], [waiting]) == (first, second)


@pytest.mark.parametrize("pod", ["p", ""])  # the plugin may not know it yet
def test_a_shared_device_is_its_shares_and_those_of_the_claim_are_in_use(pod: str) -> None:
    holder = {"namespace": "ns", "pod": pod, "container": "main" if pod else "", "claim": "c"}
    shares = [{"id": f"a::{n}", "healthy": True, "holders": [holder][n:]} for n in range(2)]
    page = {"resources": [{"name": R, "devices": shares}], "dra": {"driver": "camera.example.com"}}
    part = pb.ClaimResource(driver_name="camera.example.com", pool_name="n/r", device_name="a")
    claim = pb.DynamicResource(claim_name="c", claim_namespace="ns", claim_resources=[part])
    container = pb.ContainerResources(name="main", dynamic_resources=[claim])
    pods = [pb.PodResources(name="p", namespace="ns", containers=[container])]
    inventory = Inventory()
    inventory.add_plugin(page)
    inventory.add_pods(pb.ListPodResourcesResponse(pod_resources=pods))
    assert [("a::0", ["ns/p/main (claim c)"]), ("a::1", [])] == [
        (one.id, [*map(str, one.holders)]) for one in inventory
    ]


def test_what_a_plugin_says_of_itself_and_of_holders_is_shown() -> None:
    inventory = Inventory()
    # Names of holders may be anything.
    holders = [{"namespace": one, "pod": "", "claim": one} for one in (7, "a", True)]
    devices = [{"id": "a", "healthy": True}, {"id": "b", "healthy": True, "holders": holders}]
    problem = "waiting for the kubelet"
    inventory.add_plugin({"resources": [{"name": R, "devices": devices, "problem": problem}]})
    assert ["unknown", "in use"] == [device.state for device in inventory]
    assert f"unknown: {R}: {problem}" in "".join(_inventory.table(inventory, 99))
    assert "claim 7/7, claim True/True, claim a/a" in "".join(_inventory.table(inventory, 99))


NUMA = [{"id": "a", "healthy": True, "numa_nodes": [float("inf")]}]


@pytest.mark.parametrize(
    "page",
    [
        *([], {}, {"resources": [{}]}, {"resources": [{"devices": [1]}]}),
        {"resources": [{"name": R, "devices": NUMA}]},
    ],
)
def test_a_page_that_is_something_else_is_refused(page: object) -> None:
    with pytest.raises(NoAnswerError, match="is not a list of a plugin's devices"):
        decode(json.dumps(page).encode(), Inventory().add_plugin)


@pytest.fixture
def stranger() -> Iterator[str]:
    """The address of something that is no plugin."""
    statuses = {"/devices": 200}
    script = Script(otherwise=lambda asked: Answer(statuses.get(asked.path, 404), text="<html>"))
    with running(script):
        yield script.url


def test_who_does_not_answer_is_named_and_the_status_is_1(
    stranger: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    urls = [stranger, f"{stranger}/other", "http://127.0.0.1:1", "file:///etc/passwd", "http://["]
    words = [f"--plugin={url}" for url in urls]
    words += ["--timeout=3s", f"--pod-resources-socket={tmp_path}/none.sock"]
    assert 1 == main(words)
    told = capsys.readouterr()
    assert "" == told.out
    html, missing, refused, file, odd, kubelet = told.err.splitlines()
    assert f"{stranger}: is not a list of a plugin" in html
    assert f"{stranger}/other: 404 Not Found" in missing
    assert "Connection refused" in refused
    assert "is not an http:// address" in file
    assert "http://[: is not an address: Invalid IPv6 URL" in odd
    assert f"{tmp_path}/none.sock: does not exist" in kubelet


def test_a_kubelet_that_is_not_running_is_told(
    kubelet: Kubelet, capsys: pytest.CaptureFixture[str]
) -> None:
    socket = kubelet.simulated.pod_resources_socket
    kubelet.simulated.stop()
    assert socket.exists()
    assert 1 == main([f"--pod-resources-socket={socket}"])
    assert f"{socket}: UNAVAILABLE" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--timeout=0"], ["--timeout=100s"], ["--frobnicate"]])
def test_a_wrong_command_line_exits_with_2(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert 2 == main(words)
    assert "deviceplugin devices:" in capsys.readouterr().err


PAGE = Path(__file__).parents[2] / "common/docs/fleet.md"


def test_the_page_shows_what_the_command_prints(
    kubelet: Kubelet, capsys: pytest.CaptureFixture[str]
) -> None:
    near, far = dp.Topology([0]), dp.Topology([1])
    ill = dp.Device("cam1", health=dp.Health.unhealthy("lens cap is on"), topology=far)
    cameras = dp.Device("cam0", topology=near), ill, dp.Device("cam2", topology=far)
    plugin = ScriptedPlugin(*cameras, resource=R)
    with kubelet.running(plugin, http_address="127.0.0.1:0") as node:
        node.wait_for(R, {"cam0", "cam2"}, {"cam1"})
        eventually(lambda: not node.host.ready(), "readiness")
        assert node.kubelet.run(Pod.of("recorder", main={R: 1}))
        words = [
            f"--pod-resources-socket={kubelet.simulated.pod_resources_socket}",
            f"--plugin=http://127.0.0.1:{node.host.http_port}",
        ]
        assert 0 == main(words)
        table = capsys.readouterr().out
        assert 0 == main([*words, "--output=json"])
        entry = json.loads(capsys.readouterr().out)["devices"][1]
    page = PAGE.read_text(encoding="utf-8")
    since = re.compile(r"20[0-9T:.+-]{20,}")
    _, _, shown = page.partition("$ deviceplugin devices --plugin http://127.0.0.1:9494\n")
    assert since.sub("", shown.partition("```")[0]) == since.sub("", settled(table))
    _, _, named = page.partition("and `devices`, each with ")
    assert [*entry] == re.findall(r"`(\w+)`", named.partition(". ")[0])


def settled(table: str) -> str:
    """Give the device that the kubelet chose at random to be the last."""
    lines = table.splitlines(keepends=True)
    if " free " in lines[3]:
        lines[1] = lines[1].replace("cam0", "cam2").replace(" 0 ", " 1 ")
        lines[3] = lines[3].replace("cam2", "cam0").replace(" 1 ", " 0 ")
        lines[1], lines[3] = lines[3], lines[1]
    return "".join(lines)
