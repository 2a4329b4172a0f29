"""What the token may do, by a real API server: with the role alone, and with the policy."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.real_api_server import RealApiServer, running, why_not
from deviceplugin.apiserver import ApiServer, ForbiddenError, InvalidError
from deviceplugin.tools.startup_taint import Keeper, Node, Readiness
from manifests.kustomize import Manifest, overlay, render
from patience import eventually

pytestmark = [
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "-"),
    pytest.mark.xdist_group("real-api-server"),
]
NAME = "gpu-device-plugin"
KEY = f"startup.deviceplugin.dev/{NAME}"
OURS = {"key": KEY, "effect": "NoSchedule"}
OTHER = {"key": "startup.deviceplugin.dev/fpga-device-plugin", "effect": "NoSchedule"}
NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
"""Which the API server gives every new node."""
R = "example.com/gpu"
KINDS = {
    *("Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding"),
    *("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
}
READY = Readiness(resources={R: True})


def manifests(folder: Path, *components: str) -> list[Manifest]:
    folder.mkdir()
    found = render(overlay(folder, "gpu", *components))
    return [one for one in found if one["kind"] in KINDS]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealApiServer]:
    root = tmp_path_factory.mktemp("real")
    with running(root) as server:
        both = manifests(root / "m", "startup-taint", "startup-taint-policy")
        server.create(both)
        for name in ("n1", "n2"):
            server.create([node(name)])
        yield server


def node(name: str) -> dict[str, Any]:
    spec = {"taints": [OTHER, OURS], "podCIDR": "198.51.100.0/28"}
    notes = {"owner": "somebody"}
    metadata = {"name": name, "labels": {"a": "b"}, "annotations": notes}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec}


@pytest.fixture(scope="module")
def sidecar(server: RealApiServer) -> ApiServer:
    """Return the API server as a pod of the plugin on n1 sees it, once the policy is in force."""
    token = server.token_of_pod(NAME, NAME, "plugin", "n1")
    client = server.client("sidecar", token)
    eventually(lambda: refused(client, "n2", {"spec": {"taints": None}}), "the policy")
    return client


def refused(client: ApiServer, name: str, change: dict[str, Any]) -> str:
    """Return why the change is refused, if so; it is tried only."""
    try:
        client._ask("PATCH", f"/api/v1/nodes/{name}", {"dryRun": "All"}, change, _MERGE)
    except (ForbiddenError, InvalidError) as error:
        return str(error)
    return ""


_MERGE = "application/merge-patch+json"


def test_the_taint_of_its_own_node_is_removed_and_set_again(
    server: RealApiServer, sidecar: ApiServer
) -> None:
    path = "/api/v1/nodes/n1"
    amounts = {"capacity": {R: "2"}, "allocatable": {R: "2"}}
    for boot in ("boot-1", "boot-2"):
        info = {"nodeInfo": {"bootID": boot}}
        server.admin.merge(f"{path}/status", {"status": {**amounts, **info}})
        keeper = Keeper(Node(sidecar, "n1", KEY), KEY, empty_after=0, boot=boot)
        keeper.act(Readiness("not yet"), 0)
        assert OURS in server.admin.get(path)["spec"]["taints"]
        keeper.act(READY, 1)
        found = server.admin.get(path)
        assert [OTHER, NOT_READY] == found["spec"]["taints"]
        assert {"owner": "somebody", KEY: boot} == found["metadata"]["annotations"]


def test_a_node_that_has_changed_meanwhile_is_not_changed(
    server: RealApiServer, sidecar: ApiServer
) -> None:
    stale = Node(sidecar, "n1", KEY)
    before = stale.read()
    server.admin.merge("/api/v1/nodes/n1", {"metadata": {"labels": {"new": "label"}}})
    with pytest.raises(Exception, match="409"):
        stale.clear(before)


@pytest.mark.parametrize(
    ("name", "change", "text"),
    [
        ("n2", {"spec": {"taints": [OTHER]}}, "a pod on node n1 may not change node n2"),
        ("n1", {"spec": {"taints": [OURS, NOT_READY]}}, f"of the taints only {KEY} may be changed"),
        ("n1", {"spec": {"taints": None}}, f"of the taints only {KEY} may be changed"),
        (
            "n1",
            {"spec": {"taints": [{**OTHER, "effect": "NoExecute"}, NOT_READY]}},
            f"of the taints only {KEY} may be changed",
        ),
        (
            "n1",
            {"metadata": {"annotations": {"owner": None}}},
            f"of the annotations only {KEY} may be changed",
        ),
        (
            "n1",
            {"metadata": {"annotations": {"owner": "me"}}},
            f"of the annotations only {KEY} may be changed",
        ),
        (
            "n1",
            {"metadata": {"annotations": {"new": ""}}},
            f"of the annotations only {KEY} may be changed",
        ),
        ("n1", {"metadata": {"labels": {"a": "c"}}}, "labels, finalizers and owners"),
        ("n1", {"metadata": {"labels": None}}, "labels, finalizers and owners"),
        ("n1", {"metadata": {"finalizers": ["x.y/z"]}}, "labels, finalizers and owners"),
        ("n1", {"spec": {"unschedulable": True}}, "nothing of the spec but taints"),
        ("n1", {"spec": {"providerID": "x://y"}}, "nothing of the spec but taints"),
        ("n1", {"spec": {"externalID": "x"}}, "spec.externalID: Forbidden"),  # for everybody
    ],
)
def test_nothing_else_may_be_changed(
    sidecar: ApiServer, name: str, change: dict[str, Any], text: str
) -> None:
    assert text in refused(sidecar, name, change)


@pytest.mark.parametrize(
    "act",
    [
        lambda api: api.delete("/api/v1/nodes/n1"),
        lambda api: api.list("/api/v1/nodes"),
        lambda api: api.replace("/api/v1/nodes/n1", node("n1")),
        lambda api: api.merge("/api/v1/nodes/n1/status", {"status": {"capacity": {R: "9"}}}),
        lambda api: api.list("/api/v1/pods"),
        lambda api: api.list(f"/api/v1/namespaces/{NAME}/secrets"),
    ],
)
def test_what_the_role_does_not_allow_is_refused(
    sidecar: ApiServer, act: Callable[[ApiServer], object]
) -> None:
    with pytest.raises(ForbiddenError, match="cannot"):
        act(sidecar)


def test_others_change_nodes_as_before(server: RealApiServer, sidecar: ApiServer) -> None:
    assert sidecar is not None  # the policy is in force
    change = {"metadata": {"labels": {"x": "y"}}, "spec": {"unschedulable": True, "taints": None}}
    assert not refused(server.admin, "n2", change)


def test_a_token_that_belongs_to_no_pod_may_change_no_node(
    server: RealApiServer, sidecar: ApiServer
) -> None:
    assert sidecar is not None
    path = f"/api/v1/namespaces/{NAME}/serviceaccounts/{NAME}/token"
    token = server.admin.create(path, {"spec": {}})["status"]["token"]
    loose = server.client("loose", str(token))
    found = refused(loose, "n1", {"spec": {"taints": [OTHER]}})
    assert "the token does not say on which node its pod is" in found


def test_without_the_policy_the_token_may_patch_any_node(server: RealApiServer) -> None:
    metadata = {"name": "bare", "namespace": NAME}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "bare"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": f"{NAME}:startup-taint",
        },
        "subjects": [{"kind": "ServiceAccount", "name": "bare", "namespace": NAME}],
    }
    server.create([account, binding])
    bare = server.client("bare", server.token_of_pod(NAME, "bare", "bare", "n1"))
    eventually(lambda: not refused(bare, "n1", {}), "the binding")
    assert not refused(bare, "n2", {"spec": {"unschedulable": True, "taints": None}})
