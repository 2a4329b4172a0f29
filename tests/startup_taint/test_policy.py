"""What the token may do, by a real API server: with the policy, and with the role alone."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cluster.real_api_server import RealApiServer, running, why_not
from deviceplugin.apiserver import ApiServer, ForbiddenError, InvalidError
from deviceplugin.tools.startup_taint._keeper import Keeper, Readiness, TaintedNode
from manifests.kustomize import overlay, render
from patience import eventually

pytestmark = [
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "-"),
    pytest.mark.xdist_group("real-api-server"),
]
NAME = "gpu-device-plugin"
ACCOUNT = f"{NAME}-startup-taint"
KEY = f"startup.deviceplugin.dev/{NAME}"
OURS = {"key": KEY, "effect": "NoSchedule"}
OTHER = {"key": "startup.deviceplugin.dev/fpga-device-plugin", "effect": "NoSchedule"}
NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
"""Which the API server gives every new node."""
R = "example.com/gpu"
KINDS = {
    *("Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"),
    *("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
}
READY = Readiness(resources={R: True})


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealApiServer]:
    root = tmp_path_factory.mktemp("real")
    (root / "m").mkdir()
    with running(root) as server:
        rendered = render(overlay(root / "m", "gpu", "startup-taint"))
        server.create([one for one in rendered if one["kind"] in KINDS])
        server.create([node(name) for name in ("n1", "n2", "n3")])
        yield server


def node(name: str) -> dict[str, Any]:
    spec = {"taints": [OTHER, OURS], "podCIDR": "198.51.100.0/28"}
    notes = {"owner": "somebody"}
    metadata = {"name": name, "labels": {"a": "b"}, "annotations": notes}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec}


@pytest.fixture(scope="module")
def keeper(server: RealApiServer) -> ApiServer:
    """Return the API server as the pod sees it, once the policy is in force."""
    client = server.client("keeper", server.token_of_pod(NAME, ACCOUNT, "keeper", "n3"))
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


def boot(server: RealApiServer, name: str, boot: str) -> None:
    amounts = {"capacity": {R: "2"}, "allocatable": {R: "2"}}
    status = {**amounts, "nodeInfo": {"bootID": boot}}
    server.admin.merge(f"/api/v1/nodes/{name}/status", {"status": status})


@pytest.mark.parametrize("name", ["n1", "n2"])
def test_the_taint_is_removed_and_set_again(
    server: RealApiServer, keeper: ApiServer, name: str
) -> None:
    path = f"/api/v1/nodes/{name}"
    for number in ("boot-1", "boot-2"):
        boot(server, name, number)
        one = Keeper(TaintedNode(keeper, name, KEY), empty_after=0, after_reboot=True)
        one.act(Readiness("not yet"), 0)
        assert OURS in server.admin.get(path)["spec"]["taints"]
        one.act(READY._replace(boot=number), 1)
        found = server.admin.get(path)
        assert [OTHER, NOT_READY] == found["spec"]["taints"]
        assert {"owner": "somebody", KEY: number} == found["metadata"]["annotations"]


def test_a_node_that_has_changed_meanwhile_is_not_changed(
    server: RealApiServer, keeper: ApiServer
) -> None:
    stale = TaintedNode(keeper, "n1", KEY)
    before = stale.read()
    server.admin.merge("/api/v1/nodes/n1", {"metadata": {"labels": {"new": "label"}}})
    with pytest.raises(Exception, match="409"):
        stale.change(before, tainted=False, boot="")


AGAIN = f"{KEY} may be set once after a reboot only"
WRONG_NOTE = f"the annotation {KEY} may only have the id of the boot"


@pytest.mark.parametrize(
    ("before", "change", "text"),
    [
        # It is on a node that never had it, as n3 is without the annotation.
        ([NOT_READY], {"spec": {"taints": [NOT_READY, OURS]}}, AGAIN),
        # With the annotation at once, as if it had.
        (
            [NOT_READY],
            {"spec": {"taints": [NOT_READY, OURS]}, "metadata": {"annotations": {KEY: "boot-1"}}},
            AGAIN,
        ),
        ([OURS], {"spec": {"taints": [{**OURS, "effect": "NoExecute"}]}}, AGAIN),
        ([OURS], {"spec": {"taints": [OURS, {**OURS, "effect": "NoExecute"}]}}, AGAIN),
        ([OURS], {"metadata": {"annotations": {KEY: "boot-7"}}}, WRONG_NOTE),
        ([OURS], {"spec": {"taints": None}, "metadata": {"annotations": {KEY: "x"}}}, WRONG_NOTE),
    ],
)
def test_a_node_that_did_not_reboot_is_not_tainted(
    server: RealApiServer,
    keeper: ApiServer,
    before: list[dict[str, str]],
    change: dict[str, Any],
    text: str,
) -> None:
    server.admin.merge("/api/v1/nodes/n3", {"spec": {"taints": before}})
    boot(server, "n3", "boot-1")
    assert text in refused(keeper, "n3", change)


def test_a_node_is_tainted_once_in_a_boot(server: RealApiServer, keeper: ApiServer) -> None:
    node = "/api/v1/nodes/n3"
    boot(server, "n3", "boot-1")
    notes = {"annotations": {KEY: "boot-0"}}
    server.admin.merge(node, {"metadata": notes, "spec": {"taints": [NOT_READY]}})
    tainted = {"spec": {"taints": [NOT_READY, OURS]}}
    assert AGAIN in refused(keeper, "n3", tainted), "it has to be noted"
    keeper.merge(node, tainted | {"metadata": {"annotations": {KEY: "boot-1"}}})
    keeper.merge(node, {"spec": {"taints": [NOT_READY]}})
    assert AGAIN in refused(keeper, "n3", tainted)
    removed = {"metadata": {"annotations": {KEY: None}}}
    assert WRONG_NOTE in refused(keeper, "n3", removed)
    server.admin.merge(node, removed)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        *(
            ({"spec": {"taints": taints}}, f"of the taints only {KEY} may be changed")
            for taints in ([OURS, NOT_READY], None, [{**OTHER, "effect": "NoExecute"}, NOT_READY])
        ),
        *(
            ({"metadata": {"annotations": notes}}, f"of the annotations only {KEY} may be changed")
            for notes in ({"owner": None}, {"owner": "me"}, {"new": ""})
        ),
        *(
            ({"metadata": metadata}, "labels, finalizers and owners")
            for metadata in ({"labels": {"a": "c"}}, {"labels": None}, {"finalizers": ["x.y/z"]})
        ),
        ({"spec": {"unschedulable": True}}, "nothing of the spec but taints"),
        ({"spec": {"providerID": "x://y"}}, "nothing of the spec but taints"),
        ({"spec": {"externalID": "x"}}, "spec.externalID: Forbidden"),  # for everybody
    ],
)
def test_nothing_else_may_be_changed(keeper: ApiServer, change: dict[str, Any], text: str) -> None:
    assert text in refused(keeper, "n1", change)


@pytest.mark.parametrize(
    "act",
    [
        lambda api: api.delete("/api/v1/nodes/n1"),
        lambda api: api.list("/api/v1/nodes"),
        lambda api: api.replace("/api/v1/nodes/n1", node("n1")),
        lambda api: api.merge("/api/v1/nodes/n1/status", {"status": {"capacity": {R: "9"}}}),
        lambda api: api.list("/api/v1/pods"),
        lambda api: api.get(f"/api/v1/namespaces/{NAME}/pods/keeper"),
        lambda api: api.create(f"/api/v1/namespaces/{NAME}/events", {}),
        lambda api: api.list(f"/api/v1/namespaces/{NAME}/secrets"),
    ],
)
def test_what_the_role_does_not_allow_is_refused(
    keeper: ApiServer, act: Callable[[ApiServer], object]
) -> None:
    with pytest.raises(ForbiddenError, match="cannot"):
        act(keeper)


def test_others_change_nodes_as_before(server: RealApiServer, keeper: ApiServer) -> None:
    assert keeper is not None  # the policy is in force
    change = {"metadata": {"labels": {"x": "y"}}, "spec": {"unschedulable": True, "taints": None}}
    assert not refused(server.admin, "n2", change)


def test_the_pods_of_its_plugin_may_be_listed(keeper: ApiServer) -> None:
    found = keeper.list(f"/api/v1/namespaces/{NAME}/pods").items
    assert "keeper" in {one["metadata"]["name"] for one in found}


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
