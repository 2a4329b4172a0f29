"""Watches of the stand-in for a cluster, as older and newer clients ask for them."""

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPResponse
from itertools import islice
from urllib.parse import urlencode

import pytest

from cluster.kinds import NAMESPACE, Object
from cluster.small_cluster import SmallCluster, running
from patience import PATIENCE

LIST = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
BOOKMARKS = {"allowWatchBookmarks": "true"}


@pytest.fixture
def cluster() -> Iterator[SmallCluster]:
    with running({}) as made:
        yield made


@contextmanager
def watch(cluster: SmallCluster, options: dict[str, str]) -> Iterator[HTTPResponse]:
    connection = HTTPConnection(cluster.url.removeprefix("http://"), timeout=PATIENCE)
    with closing(connection):
        connection.request("GET", f"/api/v1/namespaces?{urlencode({'watch': '1', **options})}")
        yield connection.getresponse()


def told(cluster: SmallCluster, count: int, **options: str) -> list[Object]:
    """Return the first events of a watch of namespaces, one of which is made meanwhile."""
    with watch(cluster, options) as response:
        made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "new", "labels": {}}}
        cluster.store.create(NAMESPACE, made)
        return [json.loads(line) for line in islice(response, count)]


def names(events: list[Object]) -> list[tuple[str, str]]:
    return [(one["type"], one["object"]["metadata"].get("name", "")) for one in events]


BEGINNING = [("ADDED", "default"), ("ADDED", "kube-system")]
NEW = [("ADDED", "new")]


def test_a_bookmark_ends_the_beginning_of_a_watch_list(cluster: SmallCluster) -> None:
    events = told(cluster, 4, **LIST, **BOOKMARKS)
    assert [*BEGINNING, ("BOOKMARK", ""), *NEW] == names(events)
    ended = events[2]["object"]
    assert ("v1", "Namespace") == (ended["apiVersion"], ended["kind"])
    assert {"k8s.io/initial-events-end": "true"} == ended["metadata"]["annotations"]
    versions = [int(one["object"]["metadata"]["resourceVersion"]) for one in events]
    assert max(versions[:2]) <= versions[2] < versions[3]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param({}, [*BEGINNING, *NEW], id="as clients asked before"),
        pytest.param({"resourceVersion": "0", **BOOKMARKS}, [*BEGINNING, *NEW], id="of any age"),
        pytest.param(LIST, [*BEGINNING, *NEW], id="without bookmarks"),
        pytest.param({**LIST, "resourceVersion": "1"}, [*BEGINNING, *NEW], id="not older than"),
        pytest.param(
            {**LIST, **BOOKMARKS, "sendInitialEvents": "false"}, NEW, id="without a beginning"
        ),
    ],
)
def test_a_watch_begins_as_it_is_asked_to(
    options: dict[str, str], expected: list[tuple[str, str]], cluster: SmallCluster
) -> None:
    assert expected == names(told(cluster, len(expected), **options))
