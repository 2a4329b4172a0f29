"""The simulated API server, as our own client sees it: watches, pages, faults, tokens, rights."""

import json
import socket
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cluster import certificates
from cluster.dra_objects import Hurried, Simulated
from deviceplugin.apiserver import (
    Account,
    ApiServer,
    ApiServerError,
    ConflictError,
    ForbiddenError,
    GoneError,
    InvalidError,
    UnavailableError,
    Watch,
)
from deviceplugin_testing.simulator import RefusedError, SimulatedCluster
from patience import eventually

SLICES = "/apis/resource.k8s.io/v1/resourceslices"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"


class Seen:
    """What a watch has seen."""

    def __init__(self, api: ApiServer, **query: str) -> None:
        self.now: dict[str, Any] = {}
        self.errors: list[ApiServerError] = []
        self.watch = Watch(
            api, SLICES, query, changed=self._note, failed=self.errors.append, clock=Hurried()
        )

    def _note(self, found: dict[str, Any]) -> None:
        self.now = dict(found)

    def devices(self) -> list[str]:
        return sorted(
            one["name"] for found in self.now.values() for one in found["spec"]["devices"]
        )


@contextmanager
def watching(make: Simulated, **query: str) -> Iterator[Seen]:
    seen = Seen(make.api, **query)
    thread = threading.Thread(target=seen.watch.run)
    thread.start()
    try:
        yield seen
    finally:
        seen.watch.stop()
        thread.join()


def raw_events(make: Simulated, query: str) -> list[dict[str, Any]]:
    """Return the events of a watch that ends by itself."""
    with urllib.request.urlopen(
        f"{make.cluster.url}{SLICES}?watch=1&{query}", timeout=30
    ) as answer:
        return [json.loads(line) for line in answer]


# Watches


def test_a_watch_sees_what_happens_to_what_it_selects(make: Simulated) -> None:
    make.slice("a")
    with watching(make, fieldSelector="spec.nodeName=n1") as seen:
        eventually(lambda: seen.devices() == ["a"], "the list")
        made = make.slice("b")
        make.slice("other", nodeName="n2")
        eventually(lambda: seen.devices() == ["a", "b"], "a new slice")
        made["spec"]["devices"] = [{"name": "c"}]
        make.api.replace(f"{SLICES}/{made['metadata']['name']}", made)
        eventually(lambda: seen.devices() == ["a", "c"], "a changed slice")
        make.cluster.delete("ResourceSlice", made["metadata"]["name"])
        eventually(lambda: seen.devices() == ["a"], "a deleted slice")


def test_a_watch_survives_a_cut_and_an_absence(make: Simulated) -> None:
    url = make.cluster.url
    with watching(make) as seen:
        make.slice("a")
        eventually(lambda: seen.devices() == ["a"], "the first slice")
        make.cluster.cut_watches()
        make.slice("b")
        eventually(lambda: seen.devices() == ["a", "b"], "what came after the cut")
        make.cluster.go_away()
        make.cluster.go_away()
        make.slice("c")
        eventually(lambda: seen.errors, "an error")
        make.cluster.come_back()
        assert url == make.cluster.url
        eventually(lambda: seen.devices() == ["a", "b", "c"], "what came meanwhile")


def test_a_watch_of_a_forgotten_version_is_gone(make: Simulated) -> None:
    make.slice("a")
    make.cluster.forget_history()
    (event,) = raw_events(make, "resourceVersion=1&timeoutSeconds=30")
    assert "ERROR" == event["type"]
    assert {"code": 410, "reason": "Expired"}.items() <= event["object"].items()


def test_a_watch_ends_when_it_was_told_to(make: Simulated) -> None:
    make.slice("a")
    events = raw_events(make, "timeoutSeconds=1")
    assert ["ADDED"] == [event["type"] for event in events]


def test_a_watch_has_bookmarks_if_it_asks_for_them(make: Simulated) -> None:
    make.cluster.send_bookmarks(every=0.3)
    make.slice("a")
    query = "resourceVersion=0&timeoutSeconds=1&allowWatchBookmarks=true"
    events = raw_events(make, query)
    assert ["ADDED", "BOOKMARK"] == [event["type"] for event in events[:2]]
    version = events[0]["object"]["metadata"]["resourceVersion"]
    assert {"resourceVersion": version} == events[1]["object"]["metadata"]
    assert ["ADDED"] == [
        event["type"] for event in raw_events(make, "resourceVersion=0&timeoutSeconds=1")
    ]


def test_a_watch_can_begin_with_what_is_there(make: Simulated) -> None:
    make.slice("a")
    query = "resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1&timeoutSeconds=1"
    events = raw_events(make, f"sendInitialEvents=true&{query}")
    assert ["ADDED", "BOOKMARK"] == [event["type"] for event in events]
    annotation = {"k8s.io/initial-events-end": "true"}
    assert annotation == events[1]["object"]["metadata"]["annotations"]
    assert [] == raw_events(make, f"sendInitialEvents=false&{query}&resourceVersion=99")


@pytest.mark.parametrize("query", ["sendInitialEvents=true", "resourceVersionMatch=NotOlderThan"])
def test_a_watch_with_half_the_options_is_invalid(make: Simulated, query: str) -> None:
    name, _, value = query.partition("=")
    with pytest.raises(InvalidError):
        make.api.get(SLICES, {"watch": 1, name: value})


def test_an_object_comes_and_goes_for_a_watch_as_it_is_selected(make: Simulated) -> None:
    make.pod("p")
    version = make.get("Pod", "p")["metadata"]["resourceVersion"]
    make.cluster.add_node("n2")
    make.cluster.change("Pod", "p", lambda draft: draft["spec"].update(nodeName="n1"))
    make.cluster.change("Pod", "p", lambda draft: draft["spec"].update(nodeName="n2"))
    path = "/api/v1/pods?watch=1&fieldSelector=spec.nodeName%3Dn1&timeoutSeconds=1"
    url = f"{make.cluster.url}{path}&resourceVersion={version}"
    with urllib.request.urlopen(url, timeout=30) as answer:
        events = [json.loads(line)["type"] for line in answer]
    assert ["ADDED", "DELETED"] == events


# Lists


def test_pages_are_of_one_moment(make: Simulated) -> None:
    for name in "abc":
        make.slice(name)
    pages = make.api.pages(SLICES, size=2)
    first = next(pages)
    for one in make.cluster.list("ResourceSlice"):
        make.cluster.delete("ResourceSlice", one["metadata"]["name"])
    second = next(pages)
    assert (2, 1) == (len(first.items), len(second.items))
    assert first.version == second.version


def test_a_page_of_a_forgotten_list_is_gone(make: Simulated) -> None:
    for name in "ab":
        make.slice(name)
    pages = make.api.pages(SLICES, {"fieldSelector": "spec.nodeName=n1"}, size=1)
    next(pages)
    make.cluster.forget_history()
    with pytest.raises(GoneError, match="continue parameter is too old"):
        next(pages)


def test_a_bad_token_of_a_page_is_refused(make: Simulated) -> None:
    with pytest.raises(ApiServerError, match="invalid continue token"):
        make.api.get(SLICES, {"limit": 1, "continue": "abc"})


def test_fields_with_boolean_values_can_be_selected(make: Simulated) -> None:
    make.cluster.add_node("n2")
    make.cluster.change("Node", "n2", lambda draft: draft["spec"].update(unschedulable=True))
    page = make.api.list("/api/v1/nodes", {"fieldSelector": "spec.unschedulable=true"})
    assert ["n2"] == [one["metadata"]["name"] for one in page.items]


def test_a_request_whose_end_never_comes_is_dropped(make: Simulated) -> None:
    host, port = make.cluster.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as client:
        client.sendall(b"PATCH /api/v1/nodes/n1 HTTP/1.1\r\nContent-Length: 10\r\n\r\n{")
        client.shutdown(socket.SHUT_WR)
        assert b"" == client.recv(1)
    make.cluster.stop()  # it raises what a request has raised


# Faults


def test_an_overloaded_server_says_when_to_come_back(make: Simulated) -> None:
    make.cluster.faults.overload(1, after=7)
    with pytest.raises(UnavailableError) as error:
        make.api.list(SLICES)
    assert (7, 429) == (error.value.after, error.value.status)
    assert [] == make.api.list(SLICES).items
    make.cluster.faults.overload(code=503)
    for _ in range(2):
        with pytest.raises(UnavailableError):
            make.api.list(SLICES)
    make.cluster.faults.end()
    assert [] == make.api.list(SLICES).items


def test_single_requests_can_be_refused(make: Simulated) -> None:
    refusal = RefusedError(500, "InternalError", "no leader")
    make.cluster.faults.refuse(refusal, 1, matches=lambda wanted: wanted.verb == "list")
    found = make.slice("a")
    make.api.get(f"{SLICES}/{found['metadata']['name']}")
    with pytest.raises(ApiServerError, match="no leader"):
        make.api.list(SLICES)
    assert 1 == len(make.api.list(SLICES).items)


def test_a_slow_server_is_slow(make: Simulated) -> None:
    make.cluster.faults.latency = 5
    with pytest.raises(UnavailableError):
        ApiServer(make.cluster.url, timeout=0.2).list(SLICES)
    make.cluster.faults.latency = 0.01
    assert [] == ApiServer(make.cluster.url).list(SLICES).items


def test_a_server_that_is_away_refuses_connections(make: Simulated) -> None:
    make.cluster.go_away()
    with pytest.raises(UnavailableError):
        make.api.list(SLICES)
    make.cluster.come_back()
    assert [] == make.api.list(SLICES).items


def test_two_writers_do_not_overwrite_each_other(make: Simulated) -> None:
    found = make.slice("a")
    path = f"{SLICES}/{found['metadata']['name']}"
    make.api.replace(path, {**found, "metadata": {**found["metadata"], "labels": {"a": "b"}}})
    with pytest.raises(ConflictError):
        make.api.replace(path, found)


def test_an_error_of_the_simulation_is_raised_at_the_end() -> None:
    cluster = SimulatedCluster(controllers=False).start()
    api = ApiServer(cluster.url)
    refusal: Any = ValueError("a defect")
    cluster.faults.refuse(refusal, 1)
    with pytest.raises(UnavailableError):
        api.list(SLICES)
    with pytest.raises(ValueError, match="a defect"):
        cluster.stop()
    cluster.stop()


# Users


class Secured:
    """A cluster over TLS, and an account's folder."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "account"
        self.folder.mkdir()
        context, authority = certificates.certificate(root / "tls")
        (self.folder / "ca.crt").write_text(authority)
        self.cluster = SimulatedCluster(controllers=False, tls=context)
        self.root = root

    def client(self, token: str) -> ApiServer:
        (self.folder / "token").write_text(token)
        return ApiServer(self.cluster.url, Account(self.folder))


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Secured]:
    found = Secured(tmp_path)
    with found.cluster:
        yield found


@certificates.needs_openssl
def test_requests_need_a_token_that_is_accepted(secured: Secured) -> None:
    secured.cluster.grant("one")
    api = secured.client("one")
    assert [] == api.list(SLICES).items
    secured.cluster.revoke("one")
    with pytest.raises(ApiServerError, match="Unauthorized"):
        api.list(SLICES)
    secured.cluster.grant("two")
    (secured.folder / "token").write_text("two")
    assert [] == api.list(SLICES).items


@certificates.needs_openssl
def test_another_certificate_needs_another_authority(secured: Secured) -> None:
    secured.cluster.grant("one")
    api = secured.client("one")
    assert [] == api.list(SLICES).items
    context, authority = certificates.certificate(secured.root / "new")
    secured.cluster.use_certificate(context)
    secured.cluster.go_away()
    secured.cluster.come_back()
    with pytest.raises(UnavailableError):
        api.list(SLICES)
    (secured.folder / "ca.crt").write_text(authority)
    assert [] == api.list(SLICES).items


def role(secured: Secured, *rules: Any, subject: Any = None) -> None:
    group = "rbac.authorization.k8s.io"
    kind = f"{group}/v1"
    metadata = {"name": "driver"}
    account = {"kind": "ServiceAccount", "namespace": "kube-system", "name": "driver"}
    secured.cluster.create(
        {"apiVersion": kind, "kind": "ClusterRole", "metadata": metadata, "rules": rules}
    )
    secured.cluster.create(
        {
            "apiVersion": kind,
            "kind": "ClusterRoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "driver"},
            "subjects": [subject or account],
        }
    )


def rule(*verbs: str, resources: str = "resourceslices", **fields: Any) -> Any:
    return {
        "apiGroups": ["resource.k8s.io"], "resources": [resources], "verbs": [*verbs], **fields
    }  # fmt: skip


@certificates.needs_openssl
def test_an_account_may_do_what_its_role_says(secured: Secured) -> None:
    role(secured, rule("list"), rule("get", resources="resourceclaims"))
    secured.cluster.grant("one", "driver", "kube-system")
    api = secured.client("one")
    assert [] == api.list(SLICES).items
    with pytest.raises(ForbiddenError) as error:
        api.create(SLICES, {"metadata": {"name": "s"}})
    assert (
        'resourceslices.resource.k8s.io is forbidden: User "system:serviceaccount:kube-system:'
        'driver" cannot create resource "resourceslices" in API group "resource.k8s.io" at the '
        "cluster scope"
    ) in str(error.value)
    with pytest.raises(ForbiddenError, match=r'"c" is forbidden.* in the namespace "default"'):
        api.delete(f"{CLAIMS}/c")
    assert [
        ("list", "resourceslices", "", 200),
        ("create", "resourceslices", "", 403),
        ("delete", "resourceclaims", "c", 403),
    ] == [(one.verb, one.resource, one.name, one.code) for one in secured.cluster.requests]
    assert {"system:serviceaccount:kube-system:driver"} == {
        one.user for one in secured.cluster.requests
    }


@certificates.needs_openssl
def test_a_role_may_name_objects_and_is_for_those_whom_a_binding_names(secured: Secured) -> None:
    user = {"kind": "User", "name": "system:serviceaccount:default:driver"}
    role(secured, rule("*", resourceNames=["mine"]), subject=user)
    secured.cluster.grant("one", "driver")
    secured.cluster.grant("two", "other")
    api = secured.client("one")
    with pytest.raises(ForbiddenError):
        api.get(f"{SLICES}/other")
    with pytest.raises(ApiServerError, match="not found"):
        api.get(f"{SLICES}/mine")
    with pytest.raises(ForbiddenError):
        secured.client("two").get(f"{SLICES}/mine")


@certificates.needs_openssl
def test_an_account_can_ask_what_it_may_do(secured: Secured) -> None:
    role(secured, rule("list"))
    secured.cluster.grant("one", "driver", "kube-system")
    api = secured.client("one")
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    for verb, resource, allowed in (
        ("list", "resourceslices", True),
        ("create", "resourceslices", False),
        ("list", "foos", False),
    ):
        asked = {"group": "resource.k8s.io", "verb": verb, "resource": resource}
        answer = api.create(path, {"spec": {"resourceAttributes": asked}})
        assert allowed == answer["status"]["allowed"]


def test_a_watch_is_in_the_log_when_it_begins(make: Simulated) -> None:
    make.slice("a")
    with watching(make):
        eventually(
            lambda: ["list", "watch"] == [one.verb for one in make.cluster.requests], "two requests"
        )
    assert {"deviceplugin"} == {one.client for one in make.cluster.requests}


def test_the_kinds_can_be_discovered(make: Simulated) -> None:
    assert "36" == make.api.get("/version")["minor"]
    found = make.api.get("/apis/resource.k8s.io/v1")["resources"]
    assert [
        "resourceslices",
        "resourceclaims",
        "resourceclaims/status",
        "resourceclaimtemplates",
        "deviceclasses",
    ] == [one["name"] for one in found]


def test_there_is_no_other_part_of_an_object(make: Simulated) -> None:
    make.claim()
    with pytest.raises(ApiServerError, match="could not find the requested resource"):
        make.api.get(f"{CLAIMS}/c/scale")


def test_a_watch_of_a_namespace_sees_no_other(make: Simulated) -> None:
    make.claim("here")
    manifest = {"kind": "ResourceClaim", "metadata": {"name": "there", "namespace": "kube-system"}}
    make.cluster.create({**manifest, "spec": {}})
    url = f"{make.cluster.url}{CLAIMS}?watch=1&resourceVersion=1&timeoutSeconds=1"
    with urllib.request.urlopen(url, timeout=30) as answer:
        names = [json.loads(line)["object"]["metadata"]["name"] for line in answer]
    assert ["here"] == names


# What a recorded answer would not show


def test_a_claim_and_a_template_never_change(make: Simulated) -> None:
    for path, found in (
        (f"{CLAIMS}/c", make.claim()),
        (f"{CLAIMS.removesuffix('s')}templates/t", make.template()),
    ):
        assert found == make.api.replace(path, found)
        changed: dict[str, Any] = {**found, "spec": {}}
        with pytest.raises(InvalidError, match="field is immutable"):
            make.api.replace(path, changed)


def test_an_allocation_never_changes(make: Simulated) -> None:
    found = make.claim()
    found["status"] = {"allocation": {"devices": {"results": []}}}
    found = make.api.replace(f"{CLAIMS}/c/status", found)
    found["status"]["allocation"] = {"devices": {}}
    with pytest.raises(InvalidError, match="field is immutable"):
        make.api.replace(f"{CLAIMS}/c/status", found)


def test_the_status_of_a_pod_is_written_apart(make: Simulated) -> None:
    path = "/api/v1/namespaces/default/pods/p"
    found = make.pod()
    found["status"] = {"phase": "Running"}
    assert "Pending" == make.api.replace(path, found)["status"]["phase"]
    found = make.api.get(path)
    found["status"] = {"phase": "Running"}
    assert "Running" == make.api.replace(f"{path}/status", found)["status"]["phase"]
    assert (
        "Failed"
        == make.api.merge(f"{path}/status", {"status": {"phase": "Failed"}})["status"]["phase"]
    )


@pytest.mark.parametrize(
    ("request_", "devices"),
    [
        ({}, {"constraints": [{"matchAttribute": "a.b/c"}]}),
        ({"selectors": [{"cel": {"expression": "device.foo == 1"}}]}, {}),
        ({"selectors": [{"cel": {"expression": "device.driver == 1"}}]}, {}),
    ],
)
def test_a_claim_that_the_scheduler_would_not_understand_is_refused(
    make: Simulated, request_: dict[str, Any], devices: dict[str, Any]
) -> None:
    exactly = {"deviceClassName": "gopher", **request_}
    with pytest.raises(RefusedError, match="not simulated"):
        make.claim_of("c", [{"name": "r", "exactly": exactly}], **devices)


def test_a_shared_capacity_may_have_a_policy(make: Simulated) -> None:
    capacity = {"memory": {"value": "1024Mi", "requestPolicy": {"default": "1Gi"}}}
    device = {"name": "a", "allowMultipleAllocations": True, "capacity": capacity}
    found = make.slice(devices=[device])
    assert "1Gi" == found["spec"]["devices"][0]["capacity"]["memory"]["value"]


def test_a_list_of_strings_that_is_none_is_refused(make: Simulated) -> None:
    with pytest.raises(RefusedError, match=r"ObjectMeta\.metadata\.finalizers of type \[\]string"):
        make.slice("a", metadata={"name": "s", "finalizers": "x"})


# Without HTTP


def test_an_unknown_kind_is_named(make: Simulated) -> None:
    with pytest.raises(ValueError, match="'Job' is not a kind of the simulated cluster: Namespace"):
        make.cluster.list("Job")


def test_what_is_not_there_is_none(make: Simulated) -> None:
    assert None is make.cluster.get("Node", "n9")
    with pytest.raises(RefusedError, match='nodes "n9" not found'):
        make.cluster.change("Node", "n9", lambda _: None)
    with pytest.raises(RefusedError, match='nodes "n9" not found'):
        make.cluster.delete("Node", "n9")


def test_the_same_seed_makes_the_same_names() -> None:
    one, other = (Simulated(seed=7).slice("a")["metadata"]["name"] for _ in range(2))
    assert one == other
