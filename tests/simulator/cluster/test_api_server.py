"""The simulated API server, as our own client sees it: watches, pages, faults, tokens, rights."""

import json
import socket
import threading
import urllib.request
from collections.abc import Iterator, Sequence
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


def raw_events(
    make: Simulated, query: str, path: str = SLICES
) -> Sequence[tuple[str, dict[str, Any]]]:
    """Return kinds and objects of the events of a watch, which ends after a second."""
    url = f"{make.cluster.url}{path}?watch=1&timeoutSeconds=1&{query}"
    with urllib.request.urlopen(url, timeout=30) as answer:
        events = [json.loads(line) for line in answer]
    return [(one["type"], one["object"]) for one in events]


def kinds(events: Sequence[tuple[str, Any]]) -> list[str]:
    return [kind for kind, _ in events]


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
    ((kind, status),) = raw_events(make, "resourceVersion=1")
    assert ("ERROR", 410, "Expired") == (kind, status["code"], status["reason"])


def test_a_watch_has_bookmarks_if_it_asks_for_them(make: Simulated) -> None:
    make.cluster.send_bookmarks(every=0.3)
    make.slice("a")
    events = raw_events(make, "resourceVersion=0&allowWatchBookmarks=true")
    assert ["ADDED", "BOOKMARK"] == kinds(events[:2])
    version = events[0][1]["metadata"]["resourceVersion"]
    assert {"resourceVersion": version} == events[1][1]["metadata"]
    assert ["ADDED"] == kinds(raw_events(make, "resourceVersion=0"))


def test_a_watch_can_begin_with_what_is_there(make: Simulated) -> None:
    make.slice("a")
    query = "resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1"
    events = raw_events(make, f"sendInitialEvents=true&{query}")
    assert ["ADDED", "BOOKMARK"] == kinds(events)
    annotation = {"k8s.io/initial-events-end": "true"}
    assert annotation == events[1][1]["metadata"]["annotations"]
    assert [] == raw_events(make, f"sendInitialEvents=false&{query}&resourceVersion=99")
    for half in ({"sendInitialEvents": "true"}, {"resourceVersionMatch": "NotOlderThan"}):
        with pytest.raises(InvalidError):
            make.api.get(SLICES, {"watch": 1, **half})


def test_an_object_comes_and_goes_for_a_watch_as_it_is_selected(make: Simulated) -> None:
    version = make.pod("p")["metadata"]["resourceVersion"]
    make.cluster.change("Pod", "p", lambda draft: draft["spec"].update(nodeName="n1"))
    make.cluster.change("Pod", "p", lambda draft: draft["spec"].update(nodeName="n2"))
    query = f"fieldSelector=spec.nodeName%3Dn1&resourceVersion={version}"
    assert ["ADDED", "DELETED"] == kinds(raw_events(make, query, "/api/v1/pods"))


# Lists


def test_pages_are_of_one_moment_until_that_is_forgotten(make: Simulated) -> None:
    for name in "abc":
        make.slice(name)
    pages = make.api.pages(SLICES, {"fieldSelector": "spec.nodeName=n1"}, size=2)
    forgotten = make.api.pages(SLICES, size=1)
    first = next(pages)
    next(forgotten)
    for one in make.cluster.list("ResourceSlice"):
        make.cluster.delete("ResourceSlice", one["metadata"]["name"])
    second = next(pages)
    assert (2, 1, first.version) == (len(first.items), len(second.items), second.version)
    make.cluster.forget_history()
    with pytest.raises(GoneError, match="continue parameter is too old"):
        next(forgotten)
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


def test_a_server_whose_caches_start_refuses_lists_and_watches_only(make: Simulated) -> None:
    path = "/apis/resource.k8s.io/v1/resourceslices"
    name = make.slice("a")["metadata"]["name"]
    make.cluster.faults.start_caches(1, after=3)
    with pytest.raises(UnavailableError, match=r"storage is \(re\)initializing") as raised:
        make.api.list(path)
    assert (3, 429) == (raised.value.after, raised.value.status)
    make.cluster.faults.start_caches()
    assert name == make.api.get(f"{path}/{name}")["metadata"]["name"]
    make.cluster.faults.end()
    assert 1 == len(make.api.list(path).items)


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
    assert [] == make.api.list(SLICES).items


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
def test_requests_need_a_token_that_is_accepted_and_the_authority_of_the_certificate(
    secured: Secured,
) -> None:
    secured.cluster.grant("one")
    secured.cluster.grant("two")
    api = secured.client("one")
    assert [] == api.list(SLICES).items
    secured.cluster.revoke("one")
    with pytest.raises(ApiServerError, match="Unauthorized"):
        api.list(SLICES)
    (secured.folder / "token").write_text("two")
    assert [] == api.list(SLICES).items
    context, authority = certificates.certificate(secured.root / "new")
    secured.cluster.use_certificate(context)
    secured.cluster.go_away()
    secured.cluster.come_back()
    with pytest.raises(UnavailableError):
        api.list(SLICES)
    (secured.folder / "ca.crt").write_text(authority)
    assert [] == api.list(SLICES).items


def role(secured: Secured, *rules: Any, namespace: str = "kube-system") -> None:
    """Give the account ``driver`` a role, and accept the token ``one`` as its own."""
    group = "rbac.authorization.k8s.io"
    of_role = {"apiVersion": f"{group}/v1", "metadata": {"name": "driver"}}
    subject = {"kind": "ServiceAccount", "namespace": namespace, "name": "driver"}
    if namespace == "default":
        subject = {"kind": "User", "name": "system:serviceaccount:default:driver"}
    reference = {"apiGroup": group, "kind": "ClusterRole", "name": "driver"}
    binding = {"kind": "ClusterRoleBinding", "roleRef": reference, "subjects": [subject]}
    secured.cluster.create({**of_role, "kind": "ClusterRole", "rules": rules})
    secured.cluster.create({**of_role, **binding})
    secured.cluster.grant("one", "driver", namespace)


def rule(*verbs: str, resources: str = "resourceslices", **fields: Any) -> Any:
    return {
        "apiGroups": ["resource.k8s.io"], "resources": [resources], "verbs": [*verbs], **fields
    }  # fmt: skip


@certificates.needs_openssl
def test_an_account_may_do_what_its_role_says_and_can_ask(secured: Secured) -> None:
    role(secured, rule("list"), rule("get", resources="resourceclaims"))
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
    user = "system:serviceaccount:kube-system:driver"
    assert [
        (user, "list", "resourceslices", "", 200),
        (user, "create", "resourceslices", "", 403),
        (user, "delete", "resourceclaims", "c", 403),
    ] == [
        (one.user, one.verb, one.resource, one.name, one.code) for one in secured.cluster.requests
    ]
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    answers = {}
    for verb, resource in (
        ("list", "resourceslices"),
        ("create", "resourceslices"),
        ("list", "foos"),
    ):
        asked = {"group": "resource.k8s.io", "verb": verb, "resource": resource}
        answer = api.create(path, {"spec": {"resourceAttributes": asked}})
        answers[verb, resource] = answer["status"]["allowed"]
    assert [True, False, False] == list(answers.values())


@certificates.needs_openssl
def test_a_role_may_name_objects_and_is_for_those_whom_a_binding_names(secured: Secured) -> None:
    role(secured, rule("*", resourceNames=["mine"]), namespace="default")
    secured.cluster.grant("two", "other")
    api = secured.client("one")
    with pytest.raises(ForbiddenError):
        api.get(f"{SLICES}/other")
    with pytest.raises(ApiServerError, match="not found"):
        api.get(f"{SLICES}/mine")
    with pytest.raises(ForbiddenError):
        secured.client("two").get(f"{SLICES}/mine")


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
    assert (
        "resourceslices resourceclaims resourceclaims/status resourceclaimtemplates deviceclasses"
    ) == " ".join(one["name"] for one in found)
    make.claim()
    with pytest.raises(ApiServerError, match="could not find the requested resource"):
        make.api.get(f"{CLAIMS}/c/scale")


def test_a_watch_of_a_namespace_sees_no_other(make: Simulated) -> None:
    make.claim("here")
    manifest = {"kind": "ResourceClaim", "metadata": {"name": "there"}, "spec": {}}
    make.cluster.create(manifest, "kube-system")
    events = raw_events(make, "resourceVersion=1", CLAIMS)
    assert ["here"] == [found["metadata"]["name"] for _, found in events]


# What a recorded answer would not show


def test_a_claim_and_its_allocation_and_a_template_never_change(make: Simulated) -> None:
    made = make.claim(), make.template()
    for path, found in zip((f"{CLAIMS}/c", f"{CLAIMS[:-1]}templates/t"), made, strict=True):
        assert found == make.api.replace(path, found)
        with pytest.raises(InvalidError, match="field is immutable"):
            make.api.replace(path, {**found, "spec": {}})
    found = {**made[0], "status": {"allocation": {"devices": {"results": []}}}}
    found = make.api.replace(f"{CLAIMS}/c/status", found)
    found["status"]["allocation"] = {"devices": {}}
    with pytest.raises(InvalidError, match="field is immutable"):
        make.api.replace(f"{CLAIMS}/c/status", found)


def test_the_status_of_a_pod_is_written_apart(make: Simulated) -> None:
    path = "/api/v1/namespaces/default/pods/p"
    make.pod()
    phases = []
    for place in (path, f"{path}/status"):
        changed = {**make.api.get(path), "status": {"phase": "Running"}}
        phases.append(make.api.replace(place, changed)["status"]["phase"])
    failed = make.api.merge(f"{path}/status", {"status": {"phase": "Failed"}})
    assert ["Pending", "Running", "Failed"] == [*phases, failed["status"]["phase"]]


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("device.foo == 1", "not simulated"),
        ("device.driver == 1", "not simulated"),
        (f"true && '{chr(233) * 5120}' == ''", "Too long: may not be more than 10240 bytes"),
    ],
)
def test_a_claim_that_the_scheduler_would_not_understand_is_refused(
    make: Simulated, expression: str, why: str
) -> None:
    selector = {"cel": {"expression": expression}}
    exactly = {"deviceClassName": "gopher", "selectors": [selector]}
    with pytest.raises(RefusedError, match=why):
        make.claim_of("c", [{"name": "r", "exactly": exactly}])


def test_a_list_of_strings_that_is_none_is_refused(make: Simulated) -> None:
    with pytest.raises(RefusedError, match=r"ObjectMeta\.metadata\.finalizers of type \[\]string"):
        make.slice("a", metadata={"name": "s", "finalizers": "x"})


# Without HTTP


def test_what_is_not_there_is_none_or_named(make: Simulated) -> None:
    assert None is make.cluster.get("Node", "n9")
    with pytest.raises(RefusedError, match='nodes "n9" not found'):
        make.cluster.change("Node", "n9", lambda _: None)
    with pytest.raises(RefusedError, match='nodes "n9" not found'):
        make.cluster.delete("Node", "n9")
    with pytest.raises(ValueError, match="'Job' is not a kind of the simulated cluster: Namespace"):
        make.cluster.list("Job")


def test_the_same_seed_makes_the_same_names() -> None:
    one, other = (Simulated(seed=7).slice("a")["metadata"]["name"] for _ in range(2))
    assert one == other
