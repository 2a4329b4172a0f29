"""What a driver's token may write into the status of claims: on a real API server.

From Kubernetes 1.36 on the API server checks this by itself. The policy of the component has to say
the same where it does not.
"""

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from typing import Any

import pytest

from cluster.real_api_server import RealApiServer, running, why_not
from deviceplugin._app.dra_claims import Claims
from deviceplugin._attribution.ownership import Claim
from deviceplugin._dra.claim_status import edits
from deviceplugin.apiserver import ApiServer, ApiServerError, ConflictError
from dra.reporting import DRIVER, POOL, Reporting
from manifests.kustomize import overlay, render
from patience import eventually

pytestmark = [
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "-"),
    pytest.mark.xdist_group("real-api-server"),
]
NAME = "gopher-device-plugin"
OTHER = "gpu.example.com"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
KINDS = {"Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding"}
KINDS |= {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
OLD = "--feature-gates=DRAResourceClaimGranularStatusAuthorization=false"
Edit = Callable[[dict[str, Any]], Any]


@pytest.fixture(scope="module", params=["", OLD], ids=["checks", "leaves it to the policy"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RealApiServer]:
    root = tmp_path_factory.mktemp("real")
    with running(root, *filter(None, [request.param])) as server:
        (root / "m").mkdir()
        found = render(overlay(root / "m", "gopher", "dra"))
        server.create([one for one in found if one["kind"] in KINDS])
        yield server


@pytest.fixture(scope="module")
def driver(server: RealApiServer) -> ApiServer:
    """Return the API server as the plugin's pod on n1 sees it, once the policy is in force."""
    client = server.client("driver", server.token_of_pod(NAME, NAME, "plugin", "n1"))
    allocate(server, "first")
    eventually(lambda: refused(client, "first", unreserved), "the policy", timeout=60)
    return client


def conditions(status: str = "True", message: str = "") -> list[dict[str, str]]:
    at = "2026-01-01T00:00:00Z"
    found = {"type": "Healthy", "reason": "Said", "lastTransitionTime": at}
    return [{**found, "status": status, "message": message}]


def device(name: str, driver: str = DRIVER, **more: Any) -> dict[str, Any]:
    return {"driver": driver, "pool": POOL, "device": name, **more}


def allocate(server: RealApiServer, name: str, node: str = "n1", count: int = 1) -> Claim:
    """Create a claim with ``count`` devices of each driver, and say something of the other's."""
    request = {"name": "a", "exactly": {"deviceClassName": "g"}}
    spec = {"devices": {"requests": [request]}}
    kind = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
    made = server.admin.create(CLAIMS, {**kind, "metadata": {"name": name}, "spec": spec})
    results = [
        {"request": "a", **device(f"d{number}", each)}
        for each in (DRIVER, OTHER)
        for number in range(count)
    ]
    fields = [{"key": "metadata.name", "operator": "In", "values": [node]}]
    terms = {"nodeSelectorTerms": [{"matchFields": fields}]}
    made["status"] = {
        "allocation": {"devices": {"results": results}, "nodeSelector": terms if node else None},
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}],
        "devices": [device("d0", OTHER, conditions=conditions(), data={"a": {"b": 1}})],
    }
    made = server.admin.replace(f"{CLAIMS}/{name}/status", made)
    return Claim("default", name, made["metadata"]["uid"])


def unreserved(status: dict[str, Any]) -> None:
    status.pop("reservedFor")


def ours(status: dict[str, Any]) -> None:
    status["devices"].append(device("d0", conditions=conditions("False", "x" * 1024)))


REFUSED: Sequence[tuple[Edit, str]] = [
    (lambda status: status["devices"][0]["data"]["a"].update(b=2), f"driver {OTHER}"),
    (lambda status: status.update(devices=[device("d0")]), f"driver {OTHER}"),
    (unreserved, "only status.devices may be changed"),
    (dict.clear, "only status.devices may be changed"),
    (lambda status: status["allocation"].update(nodeSelector=None), "status.allocation: Invalid"),
]


def refused(client: ApiServer, name: str, edit: Edit) -> str:
    """Return why a change of the claim's status is refused, if so; it is tried only."""
    found = client.get(f"{CLAIMS}/{name}")
    status = deepcopy(found["status"])
    edit(status)
    changes = {"status": {**dict.fromkeys(found["status"]), **status}}
    try:
        path, query = f"{CLAIMS}/{name}/status", {"dryRun": "All"}
        client._ask("PATCH", path, query, changes, "application/merge-patch+json")
    except ApiServerError as error:
        return str(error)
    return ""


def test_devices_of_the_own_driver_may_be_written_on_the_own_node_and_nothing_else(
    server: RealApiServer, driver: ApiServer
) -> None:
    allocate(server, "here", count=16)
    allocate(server, "there", "n2")
    allocate(server, "anywhere", "")

    many = [device(f"d{one}", conditions=conditions()) for one in range(16)]
    assert "" == refused(driver, "here", ours)
    assert "" == refused(driver, "here", lambda status: status["devices"].extend(many))
    for edit, problem in REFUSED:
        found = refused(driver, "here", edit)
        assert problem in found or "requires resource=" in found, found
    for name in ("there", "anywhere"):
        found = refused(driver, name, ours)
        assert "not allocated on node n1" in found or "[arbitrary-node:patch]" in found, found
    assert "" == refused(server.admin, "there", ours)  # others are not concerned


def test_the_claim_itself_may_not_be_written(server: RealApiServer, driver: ApiServer) -> None:
    allocate(server, "itself")
    with pytest.raises(ApiServerError, match="cannot patch resource"):
        driver.merge(f"{CLAIMS}/itself", {"metadata": {"labels": {"a": "b"}}})
    with pytest.raises(ApiServerError, match="cannot update resource"):
        driver.replace(f"{CLAIMS}/itself/status", driver.get(f"{CLAIMS}/itself"))


def said(server: RealApiServer, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = server.admin.get(f"{CLAIMS}/{name}")["status"].get("devices", [])
    return found


def test_health_is_written_beside_what_others_say(server: RealApiServer, driver: ApiServer) -> None:
    claim = allocate(server, "lives")
    (theirs,) = said(server, "lives")
    reporting = Reporting(driver, [claim])
    reporting.say("healthy", "")
    added = {**conditions()[0], "type": "Cabled"}
    found = said(server, "lives")
    found[1] = {**found[1], "networkData": {"interfaceName": "eth1"}}
    found[1]["conditions"] += [added]
    server.admin.merge(f"{CLAIMS}/lives/status", {"status": {"devices": found}})
    reporting.say("unhealthy", "too hot: \N{DEGREE SIGN}C\n")
    (first, second) = said(server, "lives")
    assert theirs == first
    assert {"interfaceName": "eth1"} == second["networkData"]
    assert [
        ("Ready", "True", "Prepared", ""),
        ("Healthy", "False", "Unhealthy", "too hot: \N{DEGREE SIGN}C\n"),
        ("Cabled", "True", "Said", ""),
    ] == [
        (one["type"], one["status"], one["reason"], one["message"]) for one in second["conditions"]
    ]
    version = server.admin.get(f"{CLAIMS}/lives")["metadata"]["resourceVersion"]
    Reporting(driver, [claim]).say("unhealthy", "too hot: \N{DEGREE SIGN}C\n")  # another process
    assert version == server.admin.get(f"{CLAIMS}/lives")["metadata"]["resourceVersion"]


def test_the_api_server_removes_what_is_said_of_a_claim_that_is_deallocated(
    server: RealApiServer, driver: ApiServer
) -> None:
    claim = allocate(server, "ends")
    reporting = Reporting(driver, [claim])
    reporting.say("healthy", "")
    assert 2 == len(said(server, "ends"))
    found = server.admin.get(f"{CLAIMS}/ends")
    server.admin.replace(f"{CLAIMS}/ends/status", {**found, "status": {}})
    reporting.say("unhealthy", "")
    assert [] == said(server, "ends")


def test_a_change_in_between_is_a_conflict(server: RealApiServer, driver: ApiServer) -> None:
    claim = allocate(server, "again")
    version = driver.get(f"{CLAIMS}/again")["metadata"]["resourceVersion"]
    server.admin.merge(f"{CLAIMS}/again", {"metadata": {"labels": {"a": "b"}}})
    (other,) = said(server, "again")
    changes = [
        {"op": "replace", "path": "/metadata/resourceVersion", "value": version},
        *edits([other], DRIVER, {(POOL, "d0", ""): []}),
    ]
    with pytest.raises(ConflictError):
        Claims(driver, lambda: None).edit_status(claim, changes)


def test_without_the_right_it_is_said_once_with_advice(
    server: RealApiServer, driver: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    del driver
    claim = allocate(server, "refused")
    token = server.token_of_pod(NAME, NAME, "plugin-of-other", "n2")
    reporting = Reporting(server.client("other", token), [claim])
    for message in "ab":
        reporting.say("healthy", message)
    (line,) = caplog.records
    assert "claim status not written" == line.message
    assert str(line.__dict__["error"]).endswith("or set claim-status to false")
