"""What each tool says of the same node in each mode, and in the middle of a switch each way.

The node has three devices, all healthy, of which a pod has one: by the device plugin or by DRA, and
in a switch by the protocol of before.
"""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from cluster.dra_objects import DRIVER, RESOURCE
from deviceplugin.apiserver import ApiServer
from deviceplugin.checks import Node, Verdict
from deviceplugin.tools._plugin_pods import Plugin
from deviceplugin.tools.doctor._check import run
from deviceplugin.tools.doctor.checks import KUBELET
from deviceplugin.tools.doctor.pods import _nodes
from deviceplugin.tools.startup_taint._keeper import AGAIN, Keeper, TaintedNode, readiness
from deviceplugin_cli.diagnosis._cluster import Asked, read_cluster
from deviceplugin_cli.fleet._cli import main as fleet
from deviceplugin_cli.fleet._progress import Progress
from deviceplugin_cli.fleet._question import Reader
from drivers.dual_node import IDS, NODE
from drivers.moded_node import HOLDER, ModedNode
from patience import PATIENCE, eventually

pytestmark = pytest.mark.slow
KEY = "startup.deviceplugin.dev/gopher-device-plugin"
TAINT = {"key": KEY, "effect": "NoSchedule"}


def page(moded: ModedNode) -> Any:
    return Plugin(NODE, moded.url).says(lambda found: found)


def test_the_plugin_says_which_protocol_offers_what(moded: ModedNode) -> None:
    eventually(lambda: (page(moded)["dra"] or {"published": True})["published"], "slices")
    (resource,), dra = page(moded)["resources"], page(moded)["dra"]
    state = {"driver": DRIVER, "registered": True, "published": True, "problem": ""}
    assert {
        "device-plugin": ({"device-plugin": 3, "dra": 0}, None),
        "dra": ({"device-plugin": 0, "dra": 3}, state),
        "to dra": ({"device-plugin": 0, "dra": 2}, state),
        "to device-plugin": ({"device-plugin": 2, "dra": 0}, state),
    }[moded.mode] == (resource["offered"], dra)


def test_the_startup_taint_goes(moded: ModedNode) -> None:
    moded.cluster.change("Node", NODE, lambda node: node["spec"].update(taints=[TAINT]))
    plugin, now = Plugin(NODE, moded.url), iter(range(0, 10**6, 300))
    keeper = Keeper(TaintedNode(ApiServer(moded.cluster.url), NODE, KEY), empty_after=60)
    eventually(lambda: keeper.act(readiness(plugin), next(now)) == AGAIN, "no taint")
    assert not moded.make.get("Node", NODE)["spec"].get("taints")


def test_the_fleet_has_three_healthy_devices_of_which_one_is_held(
    moded: ModedNode, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 0 == fleet([f"--api={moded.cluster.url}", "--check", "--output=json"])
    document = json.loads(capsys.readouterr().out)
    (row,) = document["nodes"]
    drivers = [DRIVER] if moded.mode in {"dra", "to dra"} else []
    assert (RESOURCE, NODE, 3, 3, 1, "", drivers) == tuple(
        row[key] for key in ("resource", "node", "healthy", "total", "held", "problem", "drivers")
    )
    assert [] == document["unknown"]


def test_the_fleet_and_the_doctor_find_the_device_that_fails(
    moded: ModedNode, capsys: pytest.CaptureFixture[str]
) -> None:
    free = max({*IDS} - moded.held(HOLDER))
    moded.fail(free, "it smokes")

    def found() -> Any:
        fleet([f"--api={moded.cluster.url}", "--output=json"])
        (row,) = json.loads(capsys.readouterr().out)["nodes"]
        return (row["healthy"], row["total"], row["held"], row["problem"])

    eventually(lambda: (2, 3, 1, "1 unhealthy") == found(), lambda: f"not {found()}")
    reader = Reader(ApiServer(moded.cluster.url), Progress(io.StringIO()))
    texts = [one.finding.found for one in read_cluster(Asked(), reader).located]
    assert "1 unhealthy of 3" in texts


def doctor(moded: ModedNode) -> dict[str, list[str]]:
    """Return what is not well by the doctors: of the cluster, the node, and a pod that waits."""
    api = ApiServer(moded.cluster.url)
    reader = Reader(api, Progress(io.StringIO()))
    located = read_cluster(Asked(), reader).located
    protocol = "dra" if moded.mode in {"dra", "to dra"} else "device-plugin"
    settings = moded.settings(http_address=moded.url.removeprefix("http://"), protocol=protocol)
    checks = [one for one in KUBELET if one.name in {"pod-resources", "checkpoint", "registration"}]
    results = run(Node(root=Path("/"), settings=settings, timeout=PATIENCE), checks)
    return {
        "cluster": [one.finding.found for one in located if one.check == "devices"],
        "node": [one.finding.found for one in results if one.finding.verdict is not Verdict.OK],
        "pod": [
            one.found.partition("; device plugins")[0] for one in _nodes.look(api, {RESOURCE: 3})
        ],
    }


def test_no_doctor_finds_fault_with_a_healthy_node(moded: ModedNode) -> None:
    of_pod = {
        "device-plugin": "the pod asks for 3; free: n1 2 of 3",
        "to device-plugin": "the pod asks for 3, and no node has more than 2 healthy ones",
    }.get(moded.mode, "is given through DRA, by the DeviceClass gopher")
    expected = {"cluster": [], "node": [], "pod": [of_pod]}
    eventually(lambda: expected == doctor(moded), lambda: f"not {doctor(moded)}")
