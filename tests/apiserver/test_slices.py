"""The slices of a driver on a node, over HTTP."""

import base64
import json
from typing import Any

import pytest

from cluster.scripted_api import Answer, Script
from deviceplugin.apiserver import ApiServer, ApiServerError, ResourceSlices, UnavailableError
from deviceplugin.apiserver._credentials import Anonymous, claims_in

PATH = "/apis/resource.k8s.io/v1/resourceslices"
SELECTOR = "spec.nodeName=n1,spec.driver=gopher.example.com"
ONE: dict[str, Any] = {"metadata": {"name": "s1", "uid": "u1", "resourceVersion": "4"}}


def token(claims: object) -> str:
    return f"x.{base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}.y"


class Known(Anonymous):
    """A user with a token, although over plain HTTP it is not sent."""

    def __init__(self, found: str | Exception) -> None:
        super().__init__()
        self._found = found

    def token(self) -> str:
        if isinstance(self._found, Exception):
            raise self._found
        return self._found


def slices(script: Script, found: str | Exception = "") -> ResourceSlices:
    api = ApiServer(script.url)
    api.credentials = Known(found)
    return ResourceSlices(api, "gopher.example.com", "n1")


def test_slices_are_listed_created_replaced_and_deleted(script: Script) -> None:
    store = slices(script)
    script.answers += [
        Answer.of({"metadata": {"resourceVersion": "5"}, "items": [ONE]}),
        Answer.of(ONE),
        Answer.of(ONE),
        Answer.of({}),
    ]
    assert ({"s1": ONE}, "5") == store.list()
    assert ONE == store.create(ONE)
    assert ONE == store.replace(ONE)
    store.delete("s1", "u1")
    assert [
        ("GET", PATH, None),
        ("POST", PATH, ONE),
        ("PUT", f"{PATH}/s1", ONE),
        ("DELETE", f"{PATH}/s1", {"preconditions": {"uid": "u1"}}),
    ] == [(asked.method, asked.path, asked.body) for asked in script.asked]
    assert SELECTOR == script.asked[0].query["fieldSelector"]


def test_a_watch_tells_the_slices_and_their_version(script: Script) -> None:
    script.answers.append(Answer.of({"metadata": {"resourceVersion": "5"}, "items": [ONE]}))
    told: list[tuple[dict[str, Any], str]] = []
    errors: list[ApiServerError] = []

    def changed(found: dict[str, Any], version: str) -> None:
        told.append((found, version))
        watch.stop()

    watch = slices(script).watch(changed, errors.append)
    watch.run()
    assert ([({"s1": ONE}, "5")], []) == (told, errors)
    assert [SELECTOR] * 2 == [asked.query["fieldSelector"] for asked in script.asked]


@pytest.mark.parametrize(
    ("found", "asked"),
    [
        (token({"kubernetes.io": {"node": {"name": "n1", "uid": "u-n1"}}}), []),
        *(
            (other, ["/api/v1/nodes/n1"])
            for other in (
                token({"kubernetes.io": {"node": {"name": "another", "uid": "u"}}}),
                token({"kubernetes.io": {"node": {"name": "n1"}}}),
                token({"kubernetes.io": {"node": "n1"}}),
                token({"kubernetes.io": []}),
                "",
            )
        ),
    ],
)
def test_without_a_token_that_has_the_uid_of_the_node_that_is_read(
    script: Script, found: str, asked: list[str]
) -> None:
    script.answers.append(Answer.of({"metadata": {"uid": "u-n1"}}))
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u-n1"}
    assert owner == slices(script, found).owner()
    assert asked == [one.path for one in script.asked]


def test_without_the_right_to_read_it_there_is_no_owner(script: Script) -> None:
    script.answers += [Answer(403), Answer(500)]
    assert slices(script).owner() is None
    with pytest.raises(ApiServerError, match="500"):
        slices(script).owner()
    with pytest.raises(UnavailableError, match="no token"):
        slices(script, OSError("no token")).owner()


@pytest.mark.parametrize("text", ["", "a.b", "a.!!!.c", token([1]), f"a.{'W' * 90_001}.c"])
def test_what_is_not_a_web_token_says_nothing(text: str) -> None:
    assert {} == claims_in(text)
