"""What a driver's token may do, and that it is enough: on a real API server."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import pytest

from cluster.real_api_server import RealApiServer, running, why_not
from deviceplugin import Counters, Device, Part, Topology, Version
from deviceplugin._attribution.ownership import UNHEALTHY, OfferState
from deviceplugin._config.slices import HELD
from deviceplugin._dra.naming import pool_name, slice_name
from deviceplugin._dra.slices.attributes import NUMA_NODE, Describer
from deviceplugin._dra.slices.pools import Offers, PoolCatalogue, Site
from deviceplugin._dra.slices.publisher import Publisher
from deviceplugin.apiserver import ApiServer, ApiServerError, ForbiddenError, ResourceSlices
from manifests.kustomize import Manifest, overlay, render
from patience import eventually

pytestmark = [
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "-"),
    pytest.mark.xdist_group("real-api-server"),
]
NAME = "gopher-device-plugin"
DRIVER, RESOURCE = "gopher.example.com", "example.com/gopher"
OTHER = "gpu.example.com"
TAKEN = "consumesCounters"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
CLAIM = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
KINDS = {
    *("Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "DeviceClass"),
    *("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
}


def manifests(folder: Path) -> list[Manifest]:
    folder.mkdir()
    found = render(overlay(folder, "gopher", "dra", "gopher-device-class"))
    return [one for one in found if one["kind"] in KINDS]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealApiServer]:
    root = tmp_path_factory.mktemp("real")
    with running(root) as server:
        found = manifests(root / "m")
        (one,) = (one for one in found if one["kind"] == "DeviceClass")
        found.remove(one)
        server.admin.create("/apis/resource.k8s.io/v1/deviceclasses", one)
        server.create(found)
        for name in ("n1", "n2"):
            node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
            server.create([node])
        yield server


@pytest.fixture(scope="module")
def driver(server: RealApiServer) -> ApiServer:
    """Return the API server as the plugin's pod on n1 sees it, once the policy is in force."""
    client = server.client("driver", server.token_of_pod(NAME, NAME, "plugin", "n1"))
    eventually(lambda: refused(client, a_slice("n2")), "the policy", timeout=60)
    return client


def a_slice(node: str = "", **spec: Any) -> dict[str, Any]:
    where = {"nodeName": node} if node else {}
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"test-{node or 'all'}"},
        "spec": {"driver": DRIVER, "pool": pool, **where, **spec},
    }


def refused(client: ApiServer, one: dict[str, Any]) -> str:
    """Return why the slice is refused, if so; it is tried only."""
    try:
        client._ask("POST", SLICES, {"dryRun": "All"}, one)
    except ApiServerError as error:
        return str(error)
    return ""


def test_slices_of_the_own_node_may_be_written_and_no_others(
    server: RealApiServer, driver: ApiServer
) -> None:
    assert "" == refused(driver, a_slice("n1"))
    assert "" == refused(server.admin, a_slice("n2"))  # others are not concerned
    assert "a pod on node n1 may not write slices of node n2" in refused(driver, a_slice("n2"))
    several = a_slice(allNodes=True)
    assert "a pod on node n1 may not write slices of several nodes" in refused(driver, several)
    other = server.admin.create(SLICES, a_slice("n2"))
    with pytest.raises(ApiServerError, match="may not write slices of node n2"):
        driver.delete(f"{SLICES}/test-n2")
    with pytest.raises(ApiServerError, match="may not write slices of node n2"):
        driver.replace(f"{SLICES}/test-n2", other)
    server.admin.delete(f"{SLICES}/test-n2")


def test_slices_of_the_own_driver_may_be_written_and_no_others(
    server: RealApiServer, driver: ApiServer
) -> None:
    said = f"its roles do not let it publish driver {OTHER}"
    assert said in refused(driver, a_slice("n1", driver=OTHER))
    other = server.admin.create(SLICES, a_slice("n1", driver=OTHER))
    with pytest.raises(ApiServerError, match=said):
        driver.delete(f"{SLICES}/test-n1")
    with pytest.raises(ApiServerError, match=said):
        driver.replace(f"{SLICES}/test-n1", {**other, "metadata": other["metadata"]})
    # Somebody who claims that it was always theirs.
    stolen = {**other, "spec": {**other["spec"], "driver": DRIVER}}
    with pytest.raises(ApiServerError, match=f"immutable|{said}"):
        driver.replace(f"{SLICES}/test-n1", stolen)
    assert OTHER == server.admin.get(f"{SLICES}/test-n1")["spec"]["driver"]
    server.admin.delete(f"{SLICES}/test-n1")


def test_a_driver_of_another_name_needs_a_role_with_that_name(
    server: RealApiServer, driver: ApiServer
) -> None:
    rule = {
        "apiGroups": ["resource.k8s.io"],
        "resources": ["resourceslices/driver"],
        "resourceNames": [OTHER],
        "verbs": ["publish"],
    }
    grant(server, "more", [rule], NAME, NAME)
    eventually(lambda: not refused(driver, a_slice("n1", driver=OTHER)), "the role", timeout=60)
    assert "may not write slices of node n2" in refused(driver, a_slice("n2", driver=OTHER))
    assert "publish driver y.example.com" in refused(driver, a_slice("n1", driver="y.example.com"))
    server.admin.delete(f"{BINDINGS}/more")
    eventually(lambda: refused(driver, a_slice("n1", driver=OTHER)), "no role", timeout=60)


def test_an_account_of_the_same_name_in_another_namespace_is_not_the_drivers(
    server: RealApiServer,
) -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount"}
    server.create([{**account, "metadata": {"name": NAME, "namespace": "default"}}])
    write = {"apiGroups": ["resource.k8s.io"], "resources": ["resourceslices"], "verbs": ["*"]}
    grant(server, "elsewhere", [write], "default", NAME)
    client = server.client("elsewhere", server.token_of_pod("default", NAME, "plugin", "n1"))
    said = f"its roles do not let it publish driver {DRIVER}"
    eventually(lambda: said in refused(client, a_slice("n1")), "the role", timeout=60)


def grant(server: RealApiServer, name: str, rules: list[Any], space: str, account: str) -> None:
    """Give rights in the whole cluster to an account."""
    metadata, rbac = {"name": name}, "rbac.authorization.k8s.io"
    role = {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": metadata, "rules": rules}
    binding = {
        "apiVersion": f"{rbac}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": space}],
    }
    server.create([role, binding])


@pytest.mark.usefixtures("driver")  # the policy is in force
def test_a_token_that_is_of_no_node_may_write_none(server: RealApiServer) -> None:
    path = f"/api/v1/namespaces/{NAME}/serviceaccounts/{NAME}/token"
    token = server.admin.create(path, {"spec": {}})["status"]["token"]
    client = server.client("unbound", token)
    assert "does not say on which node" in refused(client, a_slice("n1"))


@pytest.mark.parametrize(
    "act",
    [
        lambda api: api.get("/api/v1/nodes/n1"),
        lambda api: api.list(CLAIM),
        lambda api: api.list("/api/v1/pods"),
        lambda api: api.get("/apis/resource.k8s.io/v1/deviceclasses/gopher.example.com"),
        lambda api: api.get(f"{SLICES}/test-n1"),
        lambda api: api._ask("DELETE", SLICES),
    ],
)
def test_nothing_else_is_allowed(driver: ApiServer, act: Callable[[ApiServer], object]) -> None:
    with pytest.raises(ForbiddenError):
        act(driver)


class Publishing:
    """A publisher with the token of a pod on n1."""

    def __init__(
        self, api: ApiServer, *states: OfferState, driver: str = DRIVER, lists: bool = False
    ) -> None:
        self.states = list(states)
        self.done = threading.Event()
        self.publisher = Publisher(
            ResourceSlices(api, driver, "n1"),
            Site(driver, "n1"),
            catalogue=PoolCatalogue(Describer(driver, lists=lists), "n1", "no-schedule"),
            offers=self.offers,
            published=lambda _keys: self.done.set(),
        )
        self.thread = threading.Thread(target=self.publisher.run)

    def offers(self) -> Offers:
        return {RESOURCE: {one.device.id: one for one in self.states}}

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.publisher.stop()
        self.thread.join(30)


def name(index: int) -> str:
    return slice_name(DRIVER, "n1", pool_name("n1", RESOURCE), index)


def devices(server: RealApiServer) -> dict[str, dict[str, Any]]:
    query = {"fieldSelector": f"spec.driver={DRIVER}"}
    items = server.admin.list(SLICES, query).items
    return {one["name"]: one for item in items for one in item["spec"].get("devices", ())}


def test_slices_live_on_a_real_api_server(server: RealApiServer, driver: ApiServer) -> None:
    rich = Device(
        "GPU:1",
        topology=Topology([1]),
        attributes={
            "model": "T" * 70,
            "lanes": 16,
            "v": Version("595.58.03"),
            "pci": "0000:3b:00.0",
        },
        capacity={"memory": "1024Mi", "x-y": "0.5", "n": 10**6},
    )
    plain = [OfferState(Device(f"d{i:03}"), True, "", "") for i in range(150)]
    with Publishing(driver, OfferState(rich, True, "", ""), *plain) as publishing:
        eventually(lambda: len(devices(server)) == 151, "the slices")
        slices = server.admin.list(SLICES, {"fieldSelector": "spec.nodeName=n1"}).items
        node = server.admin.get("/api/v1/nodes/n1")["metadata"]
        assert [name(0), name(1), name(2)] == sorted(one["metadata"]["name"] for one in slices)
        assert {node["uid"]} == {
            owner["uid"] for one in slices for owner in one["metadata"]["ownerReferences"]
        }
        versions = {one["metadata"]["name"]: one["metadata"]["resourceVersion"] for one in slices}

        publishing.states[5] = publishing.states[5]._replace(taint=UNHEALTHY)
        publishing.states[0] = publishing.states[0]._replace(taint=HELD)
        publishing.publisher.poke()
        eventually(lambda: "taints" in devices(server)["d004"], "the taint")
        after = server.admin.list(SLICES, {"fieldSelector": "spec.nodeName=n1"}).items
        changed = [
            one["metadata"]["name"]
            for one in after
            if one["metadata"]["resourceVersion"] != versions[one["metadata"]["name"]]
        ]
        assert [name(0)] == changed

        server.admin.delete(f"{SLICES}/{name(1)}")
        eventually(lambda: len(devices(server)) == 151, "the deleted slice")
        server.admin.merge(f"{SLICES}/{name(2)}", {"spec": {"devices": []}})
        eventually(lambda: len(devices(server)) == 151, "the edited slice")
        assert "" == publishing.publisher.problem()
    before = server.admin.list(SLICES).items
    with Publishing(driver, *publishing.states) as again:
        assert again.done.wait(30)
    assert before == server.admin.list(SLICES).items


def test_a_driver_without_the_right_says_so_and_offers_nothing(
    server: RealApiServer, driver: ApiServer
) -> None:
    state = OfferState(Device("a"), True, "", "")
    with Publishing(driver, state, driver="z.example.com") as publishing:
        eventually(publishing.publisher.problem, "what it says")
        said = publishing.publisher.problem()
        assert said.endswith("its roles do not let it publish driver z.example.com")
        assert {} == publishing.publisher.refused()
    assert [] == server.admin.list(SLICES, {"fieldSelector": "spec.driver=z.example.com"}).items


def test_the_class_of_the_devices_is_as_it_was_written(server: RealApiServer) -> None:
    found = server.admin.get("/apis/resource.k8s.io/v1/deviceclasses/gopher.example.com")
    (selector,) = found["spec"]["selectors"]
    assert RESOURCE == found["spec"]["extendedResourceName"]
    assert (
        f'device.attributes["{DRIVER}"].resource == "{RESOURCE}"' in selector["cel"]["expression"]
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("gate", "expected"),
    [
        ("true", {"a": {"ints": [1023]}, "b": {"ints": [*range(17)]}}),
        ("false", {"a": {"int": 1023}}),
    ],
)
def test_lists_are_published_where_a_real_api_server_keeps_them(
    tmp_path: Path, gate: str, expected: dict[str, Any]
) -> None:
    many = {f"a{number:02}": number for number in range(40)}
    near = {"a": Topology([1023]), "b": Topology(range(20))}
    found = [Device(one, topology=numa, attributes=many) for one, numa in near.items()]
    states = [OfferState(one, True, "", "") for one in found]
    with running(tmp_path, f"--feature-gates=DRAListTypeAttributes={gate}") as server:
        server.create([{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}])
        with Publishing(server.admin, *states, lists=True) as publishing:
            eventually(lambda: len(devices(server)) == 2, "the slice")
            assert {} == publishing.publisher.refused()
        values = {name: one["attributes"].get(NUMA_NODE) for name, one in devices(server).items()}
        assert expected == {name: value for name, value in values.items() if value}


@pytest.mark.slow
@pytest.mark.parametrize("gate", ["true", "false"])
def test_parts_are_published_where_a_real_api_server_counts_them(tmp_path: Path, gate: str) -> None:
    counters = {f"Slice {number}": 1 for number in range(31)} | {"memory": 2**63 - 1}
    hardware = [Counters(f"GPU-{number}", counters) for number in range(9)]
    wholes = [Device(of.name, part=Part(of, counters, on_demand=False)) for of in hardware]
    parts = [
        Device(f"{of.name}/{name}", part=Part(of, {name: 1}))
        for of in hardware
        for name in counters
    ]
    states = [OfferState(one, True, "", "") for one in (*wholes, *parts)]
    with running(tmp_path, f"--feature-gates=DRAPartitionableDevices={gate}") as server:
        server.create([{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}])
        with Publishing(server.admin, *states) as publishing:
            count = len(states) if gate == "true" else len(wholes)
            eventually(lambda: len(devices(server)) == count, "the slices", timeout=60)
            assert {} == publishing.publisher.refused()
            eventually(lambda: publishing.publisher.is_settled, "nothing more to write")
        found = [one["spec"] for one in server.admin.list(SLICES).items]
        sets = [one["name"] for spec in found for one in spec.get("sharedCounters", ())]
        assert (9 if gate == "true" else 0) == len(sets)
        assert {len(found)} == {spec["pool"]["resourceSliceCount"] for spec in found}
        used = {one["counterSet"] for d in devices(server).values() for one in d.get(TAKEN, ())}
        assert {*sets} == used
