"""Asking an API server: what is sent, and what is made of its answers."""

import json
from threading import Event
from typing import Any

import pytest
from urllib3.connection import HTTPConnection
from urllib3.connectionpool import HTTPConnectionPool
from urllib3.exceptions import ConnectTimeoutError, MaxRetryError

from cluster.scripted_api import Answer, Script
from deviceplugin.apiserver import (
    ApiServer,
    ApiServerError,
    ConflictError,
    ForbiddenError,
    GoneError,
    InvalidError,
    NotFoundError,
    UnavailableError,
    _client,
    devices_in,
)
from deviceplugin.apiserver._credentials import reason_of
from deviceplugin.errors import ConfigError
from held_clock import HeldClock

NODE = {"kind": "Node", "metadata": {"name": "n", "resourceVersion": "7"}}


def sent(script: Script) -> tuple[str, str, dict[str, str], Any]:
    """Return what the last request was."""
    asked = script.asked[-1]
    return asked.method, asked.path, asked.query, asked.body


def listed(*names: str, version: str = "9", more: str = "") -> Answer:
    metadata = {"resourceVersion": version} | ({"continue": more} if more else {})
    return Answer.of({"metadata": metadata, "items": [{"metadata": {"name": n}} for n in names]})


def names(items: list[dict[str, Any]]) -> list[str]:
    return [item["metadata"]["name"] for item in items]


def test_each_verb_is_one_request(script: Script) -> None:
    script.otherwise = lambda _: Answer.of(NODE)
    api = ApiServer(script.url)
    path = "/api/v1/nodes/n"
    assert api.get(path) == NODE
    assert ("GET", path, {}, None) == sent(script)
    api.create("/api/v1/nodes", NODE)
    assert ("POST", "/api/v1/nodes", {}, NODE) == sent(script)
    api.replace(path, NODE)
    assert ("PUT", path, {}, NODE) == sent(script)
    api.apply(path, NODE, "me")
    assert ("PATCH", path, {"fieldManager": "me", "force": "true"}, NODE) == sent(script)
    assert "application/apply-patch+yaml" == script.asked[-1].headers["Content-Type"]
    api.merge(path, {"spec": None})
    assert ("PATCH", path, {}, {"spec": None}) == sent(script)
    assert "application/merge-patch+json" == script.asked[-1].headers["Content-Type"]
    api.delete(path)
    assert ("DELETE", path, {}, None) == sent(script)
    api.delete(path, uid="u")
    assert ("DELETE", path, {}, {"preconditions": {"uid": "u"}}) == sent(script)


def test_a_name_with_odd_characters_stays_one_name(script: Script) -> None:
    script.otherwise = lambda _: Answer.of({})
    ApiServer(script.url).get("/api/v1/nodes/ä b?c")
    assert ("/api/v1/nodes/ä b?c", {}) == (script.asked[0].path, script.asked[0].query)


def test_a_list_is_read_in_pages(script: Script) -> None:
    empty = Answer.of({"metadata": {"resourceVersion": "1"}, "items": None})
    script.answers += [listed("a", "b", more="t1"), listed("c", version="9"), empty]
    api = ApiServer(script.url)
    page = api.list("/api/v1/nodes", {"labelSelector": "x=y"})
    assert (["a", "b", "c"], "9") == (names(page.items), page.version)
    assert [
        {"labelSelector": "x=y", "limit": "500"},
        {"labelSelector": "x=y", "limit": "500", "continue": "t1"},
    ] == [asked.query for asked in script.asked]
    assert ([], "1") == api.list("/api/v1/nodes")


def test_what_has_changed_since_a_version_is_what_a_watch_of_a_second_says(script: Script) -> None:
    event = {"type": "MODIFIED", "object": NODE}
    gone = {"type": "ERROR", "object": {"code": 410, "message": "too old"}}
    texts = "", f"{json.dumps(event)}\n\n5\nno json\n{json.dumps(event)}\n", json.dumps(gone)
    script.answers.extend(Answer(text=one) for one in texts)
    api, asked = ApiServer(script.url), ("/api/v1/nodes", {"fieldSelector": "x"}, "7")
    assert [] == api.changes(*asked)
    assert [event, event] == api.changes(*asked)
    with pytest.raises(GoneError, match="410: too old"):
        api.changes(*asked)
    query = {"watch": "true", "timeoutSeconds": "1", "resourceVersion": "7", "fieldSelector": "x"}
    assert ("GET", "/api/v1/nodes", query, None) == sent(script)


def test_a_list_that_the_server_forgets_half_way_is_read_at_once(script: Script) -> None:
    script.answers += [listed("a", more="t1"), Answer(410, "too old"), listed("a", "b", "c")]
    assert ["a", "b", "c"] == names(ApiServer(script.url).list("/api/v1/nodes").items)
    assert {} == script.asked[-1].query


def test_pages_can_be_smaller_and_are_read_as_they_are_asked_for(script: Script) -> None:
    script.answers += [listed("a", more="t1"), listed("b")]
    pages = ApiServer(script.url).pages("/api/v1/nodes", size=1)
    assert ["a"] == names(next(pages).items)
    assert ["1"] == [asked.query["limit"] for asked in script.asked]
    assert ["b"] == names(next(pages).items)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        *((status, InvalidError) for status in (400, 405, 413, 415, 422)),
        *((status, ForbiddenError) for status in (401, 403)),
        (404, NotFoundError),
        (409, ConflictError),
        (410, GoneError),
        *((status, UnavailableError) for status in (429, 500, 599)),
    ],
)
def test_the_class_of_an_error_says_whether_to_try_again(
    script: Script, status: int, kind: type[ApiServerError]
) -> None:
    script.answers.append(Answer(status, "message: too\nlong"))
    with pytest.raises(ApiServerError) as error:
        ApiServer(script.url).get("/x")
    assert (kind, status) == (type(error.value), error.value.status)
    assert f"the API server answers {status}: message: too long" == str(error.value)


@pytest.mark.parametrize(
    ("details", "causes"),
    [
        (
            {"causes": [{"field": "spec.a", "message": "too long"}, {"reason": "x"}, 1]},
            [("spec.a", "too long"), ("", "")],
        ),
        ({"causes": "none"}, []),
        ({}, []),
        ([], []),
        (None, []),
    ],
)
def test_an_error_says_what_is_wrong_with_which_field(
    script: Script, details: object, causes: list[tuple[str, str]]
) -> None:
    script.answers.append(
        Answer(422, text=json.dumps({"kind": "Status", "message": "x", "details": details}))
    )
    with pytest.raises(InvalidError) as error:
        ApiServer(script.url).create("/x", {})
    assert causes == error.value.causes


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (Answer(503), "answers 503: Service Unavailable"),
        (Answer(500, text="<html>"), "answers 500: Internal Server Error"),
        (Answer(500, text="[]"), "answers 500: Internal Server Error"),
        (Answer(599, text=""), "answers 599: unknown status"),
        (Answer(200, text="<html>"), "the answer is not JSON"),
        (Answer(200, text="[]"), "the answer is not an object"),
        (Answer(headers={"Content-Length": "100"}, parts=[b"{"]), "IncompleteRead"),
    ],
)
def test_what_is_no_answer_of_an_api_server_is_for_now(
    script: Script, answer: Answer, text: str
) -> None:
    script.answers.append(answer)
    with pytest.raises(UnavailableError) as error:
        ApiServer(script.url).get("/x")
    assert text in str(error.value)


@pytest.mark.parametrize(
    ("said", "after"), [("7", 7), ("86400", 600), ("soon", 0), ("9" * 40, 0), ("-1", 0)]
)
def test_how_long_the_server_wants_us_to_wait(script: Script, said: str, after: float) -> None:
    script.answers.append(Answer(429, "too many", {"Retry-After": said}))
    with pytest.raises(UnavailableError) as error:
        ApiServer(script.url).get("/x")
    assert after == error.value.after
    assert 1 == len(script.asked), "it is not asked again"


def test_no_redirection_is_followed(script: Script) -> None:
    script.answers.append(Answer(302, headers={"Location": f"{script.url}/elsewhere"}))
    with pytest.raises(ApiServerError, match="answers 302"):
        ApiServer(script.url).get("/x")
    assert 1 == len(script.asked)


def test_a_server_out_of_reach_is_told_without_the_address_of_an_object() -> None:
    with pytest.raises(UnavailableError) as refused:
        ApiServer("http://127.0.0.1:1").get("/x")
    reason = "Failed to establish a new connection: [Errno 111] Connection refused"
    assert f"http://127.0.0.1:1: {reason}" == str(refused.value)
    error = ConnectTimeoutError(HTTPConnection("198.51.100.1"), "timed out")
    pool = HTTPConnectionPool("198.51.100.1")
    whole = MaxRetryError(pool, "/x", error)
    assert ["timed out", "timed out"] == [reason_of(error), reason_of(whole)]


def test_a_server_that_does_not_answer_is_not_waited_for(script: Script) -> None:
    script.silent = Event()
    with pytest.raises(UnavailableError, match="timed out"):
        ApiServer(script.url, timeout=0.1).get("/x")


def test_a_server_that_answers_a_byte_at_a_time_is_not_waited_for(script: Script) -> None:
    clock = HeldClock()

    def bytes_with_pauses() -> Any:
        for _ in range(20):
            yield b" "
            clock.advance(1)

    script.answers.append(Answer(parts=bytes_with_pauses()))
    with pytest.raises(UnavailableError, match="took too long"):
        ApiServer(script.url, clock=clock).get("/x")


def test_an_endless_answer_is_not_read(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_client, "MAX_ANSWER", 1000)
    script.answers.append(Answer(text="x" * 1001))
    with pytest.raises(UnavailableError, match="longer than 1000 bytes"):
        ApiServer(script.url).get("/x")


@pytest.mark.parametrize("method", ["create", "replace", "apply", "merge", "delete"])
@pytest.mark.parametrize(
    "answer",
    [
        Answer(headers={"Content-Length": "100"}, parts=[b"{"]),  # the connection is cut
        Answer(503, headers={"Retry-After": "1"}),
        Answer(429, headers={"Retry-After": "1"}),
    ],
)
def test_no_change_is_sent_twice_whatever_becomes_of_the_answer(
    script: Script, method: str, answer: Answer
) -> None:
    script.answers.append(answer)
    words: dict[str, tuple[Any, ...]] = {"apply": (NODE, "me"), "delete": ()}
    with pytest.raises(UnavailableError):
        getattr(ApiServer(script.url), method)("/x", *words.get(method, (NODE,)))
    assert 1 == len(script.asked)


def test_answers_are_counted_and_so_are_those_that_never_came(script: Script) -> None:
    counted: list[tuple[str, int]] = []
    script.answers += [Answer.of({}), Answer(404)]
    api = ApiServer(script.url, count=lambda *answer: counted.append(answer))
    api.get("/x")
    with pytest.raises(NotFoundError):
        api.delete("/x")
    with pytest.raises(UnavailableError):
        ApiServer("http://127.0.0.1:1", count=lambda *answer: counted.append(answer)).get("/x")
    assert [("GET", 200), ("DELETE", 404), ("GET", 0)] == counted


@pytest.mark.parametrize("url", ["x", "ftp://x", ""])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="is not http:// or https://"):
        ApiServer(url)


def test_a_pod_knows_the_api_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    for host, url in (("10.0.0.1", "https://10.0.0.1:443"), ("fd00::1", "https://[fd00::1]:443")):
        environ = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": "443"}
        assert url == ApiServer.of_pod(environ).url
    for other in (None, {"KUBERNETES_SERVICE_HOST": "h"}):
        with pytest.raises(ConfigError, match="this is not a pod"):
            ApiServer.of_pod(other)


def test_who_asks_is_said_and_no_token_without_tls_and_no_proxy_is_used(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    script.answers.append(Answer.of({}))
    ApiServer(script.url, name="test").get("/x")
    (asked,) = script.asked
    assert "test" == asked.headers["User-Agent"]
    assert "Authorization" not in asked.headers


def test_devices_are_counted_as_the_api_server_writes_them() -> None:
    not_plugged_in = {
        "cpu": "8",
        "hugepages-2Mi": "0",
        "kubernetes.io/batch-cpu": "4",
        "example.com/part": "500m",
        "example.com/half": "0.5",
    }
    amounts = {
        "nvidia.com/gpu": "8",
        "example.com/dongle": "1k",
        "example.com/none": "0",
        "example.com/number": 3,
    }
    expected = {
        "nvidia.com/gpu": 8,
        "example.com/dongle": 1000,
        "example.com/none": 0,
        "example.com/number": 3,
    }
    assert expected == devices_in({**not_plugged_in, **amounts})
