"""Beside NVIDIA's GPU operator: who gives way when, and what containers get before and after."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

import deviceplugin as dp
from cluster import controllers
from cluster.kinds import ACCOUNT, DAEMON_SET, NAMESPACE, NODE, NODE_LABELS, POD
from cluster.store import Store
from deviceplugin_operator.crd.specification import read
from deviceplugin_operator.fleet import NodeFacts
from deviceplugin_operator.rollout import desired
from gpu.fake_nvml import FakeGpu, FakeMig, Fleet
from gpu.rig import GpuRig, devices, uuid
from manifests.kustomize import Manifest, of_kind, overlay, pod_of, renderings

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "plugins/gpu/docs/beside-gpu-operator.md").read_text()
PLUGIN, CLIENT = "nvidia.com/gpu.deploy.device-plugin", "nvidia.com/gpu.deploy.client"
SPACE = "gpu-device-plugin"
MIG_CHANGE, UPGRADE = "paused-for-mig-change", "paused-for-driver-upgrade"
PAUSED = [MIG_CHANGE, UPGRADE, f"{MIG_CHANGE}_{UPGRADE}"]

Labels = dict[str, str]


# What NVIDIA's managers write: mig-parted's reconfigure.go, and main.go of k8s-driver-manager.


def mig_manager(labels: Labels) -> Iterator[Labels]:
    """Yield the labels while MIG is changed, and after that."""
    for value in (MIG_CHANGE, "true"):
        own = {
            name: "false" if labels.get(name) == "false" else value
            for name in (PLUGIN, CLIENT)
            if name == PLUGIN or labels.get(name)
        }
        yield labels | own


def driver_manager(labels: Labels) -> Iterator[Labels]:
    """Yield the labels while the driver is changed, and after that."""
    names = [name for name in (PLUGIN, CLIENT) if name == PLUGIN or labels.get(name)]
    paused = labels | {name: _paused(labels.get(name, "")) for name in names}
    yield paused
    yield paused | {name: re.sub(f"^{UPGRADE}$", "true", paused[name]) for name in names}


def _paused(value: str) -> str:
    if value in {"", "false"} or UPGRADE in value:
        return value
    return UPGRADE if value == "true" else f"{value}_{UPGRADE}"


def interrupted(labels: Labels) -> Iterator[Labels]:
    """Yield the labels when the MIG manager ends too early, the driver is changed, and later."""
    paused, _ = mig_manager(labels)
    both, _ = driver_manager(paused)
    yield both
    *_, restored = mig_manager(paused)
    yield restored


MANAGERS: Sequence[Callable[[Labels], Iterator[Labels]]] = (
    mig_manager,
    driver_manager,
    interrupted,
)
NODES: Mapping[str, Labels] = {
    "since 26.7": {PLUGIN: "true", CLIENT: "true"},
    "before 26.7": {PLUGIN: "true"},
    "moved by hand since 26.7": {PLUGIN: "false", CLIENT: "true"},
}


class Cluster:
    """A node, and the DaemonSet."""

    def __init__(self, manifests: Sequence[Manifest], labels: Labels) -> None:
        self.store = Store()
        node = {"metadata": {"name": "node-1", "labels": NODE_LABELS | labels}, "status": {}}
        self.store.create(NODE, {"apiVersion": "v1", "kind": "Node", "spec": {}, **node})
        for kind in (NAMESPACE, ACCOUNT, DAEMON_SET):
            self.store.create(kind, of_kind(manifests, kind.name))

    def label(self, labels: Labels) -> None:
        metadata = {"name": "node-1", "labels": NODE_LABELS | labels}
        self.store.change(NODE, "", "node-1", lambda found: found["metadata"].update(metadata))

    def pods(self) -> int:
        """Return how many pods there are; what is to end ends at once."""
        for _ in range(3):
            controllers.step(self.store)
            for one in self.store.list(POD, SPACE):
                if "deletionTimestamp" in one["metadata"]:
                    self.store.remove(POD, SPACE, one["metadata"]["name"])
        return len(self.store.list(POD, SPACE))


@pytest.fixture(scope="module", params=["ours", "kustomize"])
def manifests(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    place = overlay(tmp_path_factory.mktemp("overlay"), "gpu", "gpu-operator")
    found = dict(zip(("ours", "kustomize"), renderings(place), strict=False))
    return found.get(request.param) or pytest.skip("no kustomize")


@pytest.mark.parametrize(("where", "manager"), [*product(NODES, MANAGERS)])
def test_the_pod_gives_way_to_a_manager_and_comes_back(
    manifests: Any, where: str, manager: Callable[[Labels], Iterator[Labels]]
) -> None:
    cluster = Cluster(manifests, NODES[where])
    found = [cluster.pods()]
    for labels in manager(NODES[where]):
        cluster.label(labels)
        found.append(cluster.pods())
    assert [1, 0, 1] == found


def states() -> Iterator[tuple[list[Labels], int]]:
    """Yield of each row on the page the labels, and how many pods it says that there are."""
    rows = re.findall(r"^\| (.+) \| (.+) \| (runs|gone) \|$", PAGE, re.MULTILINE)
    for plugin, client, said in rows:
        both = product(_values(plugin), _values(client))
        given = [dict(zip((PLUGIN, CLIENT), values, strict=True)) for values in both]
        found = [{k: v for k, v in one.items() if v is not None} for one in given]
        yield found, int(said == "runs")


def _values(cell: str) -> list[str | None]:
    if cell == "any":
        return ["true", "false", "", None, *PAUSED]
    empty = [None, ""] if "empty or absent" in cell else []
    return [*re.findall("`([^`]+)`", cell), *empty, *(PAUSED if "paused" in cell else [])]


@pytest.mark.parametrize(("rows", "pods"), [*states()])
def test_the_pod_is_where_the_page_says_so(manifests: Any, rows: list[Labels], pods: int) -> None:
    cluster = Cluster(manifests, {})
    for labels in rows:
        cluster.label(labels)
        assert (labels, pods) == (labels, cluster.pods())


@pytest.mark.parametrize("image", [{}, {"image": "registry.example.com/mine:1"}])
@pytest.mark.parametrize(("rows", "pods"), [*states()])
def test_it_is_the_same_with_our_operator(rows: list[Labels], pods: int, image: Labels) -> None:
    spec = {"plugin": "gpu", "components": ["gpu-operator"], **image}
    wanted = read({"metadata": {"name": "gpus"}, "spec": spec})
    (variant,) = wanted.variants
    pod = desired.revision(wanted, variant).pod
    nodes = [NodeFacts("node-1", NODE_LABELS | labels, True, {}, {}) for labels in rows]
    assert pods * len(nodes) == len(desired.covered([pod], nodes))


def test_the_overlay_on_the_page_is_for_moved_nodes_alone(tmp_path: Path) -> None:
    (block,) = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    (tmp_path / "device-plugins").symlink_to(ROOT)
    given = yaml.safe_load(block)
    place = tmp_path / "mine"
    place.mkdir()
    for key in ("resources", "components"):
        given[key] = [f"../{one}" for one in given[key]]
    (place / "kustomization.yaml").write_text(json.dumps(given))
    for found in renderings(place):
        assert (0, 1) == tuple(
            Cluster(found, {PLUGIN: value}).pods() for value in ("true", "false")
        )
        # What the operator waits for, since 26.7, stands in nodeSelector.
        pod_of(found)["nodeSelector"] = {CLIENT: "true"}
        cluster = Cluster(found, NODES["since 26.7"])
        assert 1 == cluster.pods()
        cluster.label(next(driver_manager(NODES["since 26.7"])))
        assert 0 == cluster.pods()


# What containers get.

WHOLE = Fleet.of(2)
MIGS = [(slot, gi) for slot in (0, 1) for gi in (1, 2)]
"""Slots and GPU instances of MIG devices."""
DIVIDED = Fleet.of(2, migs=(FakeMig(1), FakeMig(2)))
MIXED = Fleet((FakeGpu(0), FakeGpu(1, (FakeMig(1), FakeMig(2, "2g.10gb")), {"mig": "on"})))
SHARES = {"resources": [{"name": "nvidia.com/gpu", "replicas": 2}]}
MPS_LIMITS = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"}
"""What this plugin adds for clients of MPS."""
KINDS: Mapping[str, tuple[Fleet, dict[str, Any], dict[str, list[tuple[str, str]]]]] = {
    "none": (
        WHOLE,
        {},
        {"nvidia.com/gpu": [(uuid(0), "0"), (uuid(1), "1")]},
    ),
    "single": (
        DIVIDED,
        {"mig_strategy": "single"},
        {"nvidia.com/gpu": [(FakeMig(gi).uuid(slot), f"{slot}:{gi - 1}") for slot, gi in MIGS]},
    ),
    "mixed": (
        MIXED,
        {"mig_strategy": "mixed"},
        {
            "nvidia.com/gpu": [(uuid(0), "0")],
            "nvidia.com/mig-1g.5gb": [(FakeMig(1).uuid(1), "1:0")],
            "nvidia.com/mig-2g.10gb": [(FakeMig(2).uuid(1), "1:1")],
        },
    ),
    "time-slicing": (
        WHOLE,
        {"sharing": {"timeSlicing": SHARES}},
        {"nvidia.com/gpu": [(uuid(slot), str(slot)) for slot in (0, 0, 1, 1)]},
    ),
    "renamed": (
        WHOLE,
        {"sharing": {"timeSlicing": {**SHARES, "renameByDefault": True}}},
        {"nvidia.com/gpu.shared": [(uuid(slot), str(slot)) for slot in (0, 0, 1, 1)]},
    ),
    "MPS": (
        WHOLE,
        {"sharing": {"mps": SHARES}, "mps_root": Path("/run/nvidia/mps")},
        {"nvidia.com/gpu": [(uuid(slot), str(slot)) for slot in (0, 0, 1, 1)]},
    ),
}
"""Nodes, settings, and of each resource the UUIDs and indices of its devices, in their order."""
STRATEGIES = (
    "envvar",
    "volume-mounts",
    "cdi-annotations",
    "cdi-cri",
    "cdi-annotations,cdi-cri",  # the operator's, unless cdi.enabled is false
)
CONTROL = ("/dev/nvidiactl", "/dev/nvidia-uvm")
CAPABILITIES = {
    FakeMig(gi).uuid(slot): [f"/dev/nvidia-caps/nvidia-cap{1 + slot}{gi}{end}" for end in (0, 1)]
    for slot, gi in MIGS
}
MINORS = [
    f"gpu{slot}/gi{gi}/{end}access {1 + slot}{gi}{number}"
    for slot, gi in MIGS
    for number, end in enumerate(("", "ci0/"))
]


def nvidias(kind: str, resource: str, strategy: str, by: str) -> dict[str, Any]:
    """Return what NVIDIA's plugin gives to a container with all devices of a resource, or one.

    As server.go of k8s-device-plugin has it, with PASS_DEVICE_SPECS as the operator sets it.
    """
    own = list(dict.fromkeys(KINDS[kind][2][resource]))
    own = own[:1] if kind == "MPS" else own
    ids = [one[0 if by == "uuid" else 1] for one in own]
    found: dict[str, Any] = {"envs": {}, "mounts": {}, "nodes": set(), "notes": [], "cdi": []}
    # The one exception, which the page names: here a CDI name is a UUID in either case.
    names = [f"k8s.device-plugin.nvidia.com/gpu={one}" for one, _ in own]
    if "cdi-annotations" in strategy:
        found["notes"] = [("cdi.k8s.io/nvidia-device-plugin_", ",".join(names))]
    if "cdi-cri" in strategy:
        found["cdi"] = names
    if kind == "MPS":
        pipe = f"{resource}/pipe"
        found["envs"]["CUDA_MPS_PIPE_DIRECTORY"] = f"/mps/{pipe}"
        found["mounts"] = {
            f"/mps/{pipe}": f"/run/nvidia/mps/{pipe}",
            "/dev/shm": "/run/nvidia/mps/shm",
        }
    if strategy.startswith("cdi"):
        return found
    slots = {int(index.partition(":")[0]) for _, index in own}
    capabilities = [path for one, _ in own for path in CAPABILITIES.get(one, ())]
    found["nodes"] = {*CONTROL, *(f"/dev/nvidia{slot}" for slot in slots), *capabilities}
    found["envs"]["NVIDIA_VISIBLE_DEVICES"] = ",".join(ids)
    if strategy == "volume-mounts":
        place = "/var/run/nvidia-container-devices"
        found["envs"]["NVIDIA_VISIBLE_DEVICES"] = place
        found["mounts"] |= {f"{place}/{one}": "/dev/null" for one in ids}
    return found


@pytest.mark.usefixtures("driver_root")
@pytest.mark.parametrize("kind", KINDS)
def test_a_container_gets_what_nvidias_plugin_gives(rig: GpuRig, kind: str) -> None:
    fleet, settings, resources = KINDS[kind]
    rig.has(fleet).has_nodes("nvidiactl", "nvidia-uvm", "nvidia0", "nvidia1")
    caps = rig.roots.proc / "driver/nvidia-caps"
    caps.mkdir(parents=True)
    (caps / "mig-minors").write_text("\n".join(MINORS))
    for strategy, by in product(STRATEGIES, ("uuid", "index")):
        own = {"device_list_strategy": strategy, "device_id_strategy": by}
        plugin = rig.plugin(**settings, **own, pass_device_specs=True)
        there = devices(plugin).values()
        assert {*resources} == {one.resource for one in there}
        for resource, named in resources.items():
            held = [one for one in there if one.resource == resource]
            shared = len(named) > len({*named})
            ids = [f"{one}::{n % 2}" if shared else one for n, (one, _) in enumerate(named)]
            assert sorted(ids) == sorted(one.id for one in held)
            given = plugin.allocate(held[:1] if kind == "MPS" else held)
            expected = own, nvidias(kind, resource, strategy, by)
            assert expected == (own, as_told(given))


def as_told(given: dp.Allocation) -> dict[str, Any]:
    return {
        "envs": {name: given.envs[name] for name in given.envs.keys() - MPS_LIMITS},
        "mounts": {one.container_path: one.host_path for one in given.mounts},
        "nodes": {one.container_path for one in given.nodes},
        "notes": [(key[:-32], value) for key, value in given.annotations.items()],
        "cdi": [*given.cdi_names],
    }
