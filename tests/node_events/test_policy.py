"""What the token of the component events may do, by a real API server."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from cluster.real_api_server import RealApiServer, running, why_not
from deviceplugin.apiserver import ApiServer, ForbiddenError, InvalidError
from deviceplugin.tools.events._notice import Fact, Notice, as_event
from manifests.kustomize import overlay, render
from patience import eventually

pytestmark = [
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "-"),
    pytest.mark.xdist_group("real-api-server"),
]
NAME = "gpu-device-plugin"
KINDS = {
    *("Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding"),
    *("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealApiServer]:
    root = tmp_path_factory.mktemp("real")
    (root / "m").mkdir()
    with running(root) as server:
        rendered = render(overlay(root / "m", "gpu", "events"))
        server.create([one for one in rendered if one["kind"] in KINDS])
        server.create(
            [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": n}} for n in ("n1", "n2")]
        )
        yield server


@pytest.fixture(scope="module")
def sidecar(server: RealApiServer) -> ApiServer:
    """Return the API server as a pod of the plugin on n1 sees it, once the policy is in force."""
    client = server.client("sidecar", server.token_of_pod(NAME, NAME, "plugin", "n1"))
    eventually(lambda: "n1" in refused(client, event("n2")), "the policy")
    return client


def event(node: str, **changes: Any) -> dict[str, Any]:
    notice = Notice((Fact("example.com/gpu", "gpu0", good=False, reason="Xid 79"),))
    return as_event(notice, node, datetime.now(UTC)) | changes


def refused(client: ApiServer, item: dict[str, Any]) -> str:
    """Return why an Event is refused, if so; it is tried only."""
    namespace = item["metadata"]["namespace"]
    try:
        client.create(f"/api/v1/namespaces/{namespace}/events", item, dry_run=True)
    except (ForbiddenError, InvalidError) as error:
        return str(error)
    return ""


def test_events_of_its_own_node_are_created(sidecar: ApiServer) -> None:
    assert not refused(sidecar, event("n1"))


def of_pod(host: str = "n1", **changes: Any) -> dict[str, Any]:
    fact = Fact("example.com/gpu", "gpu0", good=False, pod=("default", "a", "u1"))
    item = as_event(Notice((fact,)), host, datetime.now(UTC))
    return item | changes


def test_an_event_of_a_pod_is_created_for_a_node_that_is_gone(sidecar: ApiServer) -> None:
    assert not refused(sidecar, of_pod())


ELSEWHERE = {"name": "x", "namespace": NAME}
NODE = {"kind": "Node", "name": "n1", "namespace": NAME}


@pytest.mark.parametrize(
    ("item", "text"),
    [
        (event("n2"), "a pod on node n1 may create Events of this node only"),
        (event("n1", involvedObject={"kind": "Pod", "name": "n1"}), "of this node only"),
        (event("n1", involvedObject={}), "of this node only"),
        (of_pod(reason="Evicted"), "of this node only"),
        (of_pod("n2"), "of this node only"),
        (
            event("n1", metadata=ELSEWHERE, involvedObject=NODE),
            "Events of nodes are in the namespace default",
        ),
        (event("n1", source={"component": "kubelet"}), "the source of the Event is not"),
    ],
)
def test_others_are_refused(sidecar: ApiServer, item: dict[str, Any], text: str) -> None:
    assert text in refused(sidecar, item)


def test_others_create_events_as_before(server: RealApiServer, sidecar: ApiServer) -> None:
    assert sidecar is not None  # the policy is in force
    assert not refused(server.admin, event("n2", source={"component": "kubelet"}))


def test_a_token_that_belongs_to_no_pod_may_create_none(
    server: RealApiServer, sidecar: ApiServer
) -> None:
    assert sidecar is not None
    path = f"/api/v1/namespaces/{NAME}/serviceaccounts/{NAME}/token"
    token = server.admin.create(path, {"spec": {}})["status"]["token"]
    loose = server.client("loose", str(token))
    assert "the token does not say on which node its pod is" in refused(loose, event("n1"))
