"""Knowing a list of objects as it is, whatever becomes of the watch."""

import json
import queue
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from cluster.scripted_api import Answer, Asked, Script
from deviceplugin.apiserver import ApiServer, ApiServerError, Watch, _watch
from held_clock import HeldClock, are_within
from patience import PATIENCE, eventually

PATH = "/api/v1/nodes"


def node(name: str, version: int, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": str(version), "labels": labels}}


def line(kind: str, item: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": item}).encode() + b"\n"


def listed(*items: dict[str, Any], version: str) -> Answer:
    return Answer.of({"metadata": {"resourceVersion": version}, "items": items})


class Stream:
    """An answer that lasts until the test ends it."""

    def __init__(self) -> None:
        self.parts: queue.Queue[bytes | None] = queue.Queue()

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.parts.get, None)

    def send(self, *parts: bytes) -> None:
        for part in parts:
            self.parts.put(part)

    def end(self) -> None:
        self.parts.put(None)


class Watching:
    """A watch in its thread, what it was told, and the server's side of it."""

    def __init__(self, script: Script, **options: Any) -> None:
        self.script = script
        self.clock = HeldClock()
        self.known: queue.Queue[list[str]] = queue.Queue()
        self.errors: queue.Queue[ApiServerError] = queue.Queue()
        self.streams: queue.Queue[Stream] = queue.Queue()
        self.lists: list[Answer] = []
        self.headers: dict[str, str] = {}
        """Of streams. With a length that they do not have, their end is a broken connection."""
        script.otherwise = self._answer
        self.watch = Watch(
            ApiServer(script.url),
            PATH,
            {"fieldSelector": "x=y"},
            changed=lambda objects: self.known.put(sorted(objects)),
            failed=self.errors.put,
            clock=self.clock,
            **options,
        )
        self.thread = threading.Thread(target=self.watch.run)

    def _answer(self, asked: Asked) -> Answer:
        if "watch" not in asked.query:
            return self.lists.pop(0)
        stream = Stream()
        self.streams.put(stream)
        return Answer(parts=stream, headers=self.headers)

    def begin(self, *lists: Answer, skip: int = 0) -> Stream:
        """Start it, skip pauses, and return the first stream."""
        self.lists += lists
        self.thread.start()
        for _ in range(skip):
            self.clock.skip_wait()
        return self.stream()

    def stream(self) -> Stream:
        return self.streams.get(timeout=PATIENCE)

    def told(self) -> list[str]:
        return self.known.get(timeout=PATIENCE)

    def asked(self) -> list[str | None]:
        """Return the version that each watch began with; None for a list."""
        return [asked.query.get("resourceVersion") for asked in self.script.asked]


@pytest.fixture
def watching(script: Script) -> Iterator[Watching]:
    watching = Watching(script)
    yield watching
    watching.watch.stop()
    if watching.thread.ident:
        watching.thread.join(PATIENCE)
    while not watching.streams.empty():
        watching.streams.get().end()
    assert not watching.thread.is_alive()


def test_the_list_and_each_change_of_it_are_told(watching: Watching) -> None:
    elsewhere = node("a", 1)
    elsewhere["metadata"]["namespace"] = "one"
    stream = watching.begin(listed(elsewhere, node("a", 2), version="5"))
    assert ["a", "one/a"] == watching.told()
    whole = line("ADDED", node("ä", 6))  # whose line comes in two parts, the second with another
    stream.send(whole[:30], whole[30:] + line("DELETED", node("a", 7)) + b"\n")
    assert [["a", "one/a", "ä"], ["one/a", "ä"]] == [watching.told(), watching.told()]
    stream.send(line("MODIFIED", node("ä", 8, x="y")))
    assert ["one/a", "ä"] == watching.told()
    query = watching.script.asked[-1].query
    assert 300 <= int(query.pop("timeoutSeconds")) <= 600
    assert {
        "fieldSelector": "x=y",
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": "5",
    } == query
    stream.end()


def test_a_watch_that_ends_goes_on_where_it_was_also_after_a_bookmark(watching: Watching) -> None:
    stream = watching.begin(listed(version="5"))
    stream.send(line("ADDED", node("a", 6)), line("BOOKMARK", node("", 9)))
    assert [[], ["a"]] == [watching.told(), watching.told()]
    stream.end()
    assert watching.clock.skip_wait() <= 1
    watching.stream().end()
    assert [None, "5", "9"] == watching.asked()


def test_what_the_server_has_forgotten_is_listed_anew(watching: Watching) -> None:
    stream = watching.begin(listed(node("a", 1), version="5"), listed(node("b", 8), version="10"))
    assert ["a"] == watching.told()
    stream.send(line("ERROR", {"code": 410, "message": "too old resource version"}))
    stream.end()
    watching.clock.skip_wait()
    assert ["b"] == watching.told()
    watching.stream().end()
    assert [None, "5", None, "10"] == watching.asked()
    assert watching.errors.empty(), "nothing is wrong"


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (line("ERROR", {"code": 500, "message": "etcd is away"}), "answers 500: etcd is away"),
        (line("ADDED", {}), "sent 'ADDED' without 'metadata'"),
        (line("ADDED", {"metadata": None}), "sent 'ADDED' without"),
        (b"<html>\n", "the watch broke"),
        (b"[" * 100_000 + b"\n", "the watch broke"),
        (b"[]\n", "the watch sent what is not an event"),
        (b'{"type": "ADDED", "object": [1]}\n', "the watch sent what is not an event"),
        (b'{"type": "ERROR", "object": {"code": "x"}}\n', "answers 0: unknown status"),
    ],
)
def test_what_goes_wrong_is_told_and_tried_again(
    watching: Watching, part: bytes, text: str
) -> None:
    stream = watching.begin(listed(node("a", 1), version="5"))
    stream.send(part)
    stream.end()
    assert text in str(watching.errors.get(timeout=PATIENCE))
    watching.clock.skip_wait()
    watching.stream().send(line("ADDED", node("b", 6)))
    assert [["a"], ["a"], ["a", "b"]] == [watching.told() for _ in range(3)]


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"metadata": []},
        {"metadata": {"resourceVersion": "5"}, "items": {"a": 1}},
        {"metadata": {"resourceVersion": "5"}, "items": [1]},
        {"metadata": {"resourceVersion": "5"}, "items": [{"metadata": {}}]},
    ],
)
def test_what_is_not_a_list_is_an_error_and_asked_for_again(
    watching: Watching, answer: object
) -> None:
    stream = watching.begin(Answer.of(answer), listed(node("a", 1), version="5"), skip=1)
    assert f"{PATH}: the answer is not a list" in str(watching.errors.get(timeout=PATIENCE))
    assert ["a"] == watching.told()
    stream.end()


def test_a_line_without_an_end_is_not_kept(
    watching: Watching, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_watch, "MAX_ANSWER", 100)
    stream = watching.begin(listed(version="5"))
    stream.send(b"x" * 101)
    assert "longer than 100 bytes" in str(watching.errors.get(timeout=PATIENCE))
    stream.end()


def test_a_server_that_is_away_is_asked_ever_less_or_when_it_asks_for_it(
    watching: Watching,
) -> None:
    later = Answer(429, headers={"Retry-After": "120"})
    watching.script.answers += [*[Answer(503)] * 8, later]
    watching.lists.append(listed(node("a", 1), version="5"))
    watching.thread.start()
    waits = [watching.clock.skip_wait() for _ in range(9)]
    assert [True] * 8 == are_within(waits[:8], [1, 2, 4, 8, 16, 32, 60, 60])
    assert 150 <= waits[8] <= 180, "and a little more by chance"
    assert ["a"] == watching.told()
    watching.stream().end()
    assert 9 == watching.errors.qsize()


def test_a_server_that_ends_each_watch_at_once_is_asked_ever_less(watching: Watching) -> None:
    watching.begin(listed(version="5")).end()
    waits = []
    for _ in range(4):
        waits.append(watching.clock.skip_wait())
        watching.stream().end()
    assert [True] * 4 == are_within(waits, [1, 2, 4, 8])


def test_a_silent_watch_is_resumed_where_it_was_and_nothing_is_wrong(script: Script) -> None:
    watching = Watching(script, silence=0.5)  # also for the first byte of an answer
    streams = [watching.begin(listed(version="5"))]
    watching.clock.skip_wait()
    streams.append(watching.stream())
    watching.watch.stop()
    for stream in streams:
        stream.end()
    watching.thread.join(PATIENCE)
    assert ([None, "5", "5"], True) == (watching.asked()[:3], watching.errors.empty())


def test_a_watch_that_lasted_is_resumed_at_once_however_often(watching: Watching) -> None:
    stream = watching.begin(listed(version="5"))
    for number in range(6, 11):
        stream.send(line("BOOKMARK", node("", number)))
        watching.clock.advance(600)
        stream.end()
        stream = watching.stream()
    assert 3000 == watching.clock.now()
    assert [None, *"5678", "9", "10"] == watching.asked()
    stream.end()


def test_a_watch_that_never_said_anything_is_listed_anew_also_if_that_is_older(
    watching: Watching,
) -> None:
    """So is one of a server whose store was restored from a backup."""
    stream = watching.begin(listed(node("a", 96), version="96"))
    assert ["a"] == watching.told()
    away = Answer(status=500)
    watching.lists += [away, listed(node("b", 60), version="60")]
    watching.clock.advance(600)
    stream.end()
    assert "500" in str(watching.errors.get(timeout=PATIENCE))
    watching.clock.skip_wait()
    assert ["b"] == watching.told()
    watching.stream().end()
    assert [None, "96", None, None, "60"] == watching.asked()


@pytest.mark.parametrize(("version", "lists"), [("60", ["60", "60"]), ("97", ["97"])])
def test_a_careful_watch_that_broke_asks_whether_the_server_has_an_older_state(
    script: Script, version: str, lists: list[str]
) -> None:
    watching = Watching(script, is_careful=True)
    watching.headers = {"Content-Length": "100000"}
    watching.begin(listed(node("a", 96), version="96")).end()
    watching.lists += [listed(node("b", 60), version=one) for one in lists]
    watching.clock.skip_wait()
    stream = watching.stream()
    watching.watch.stop()
    stream.end()
    watching.thread.join(PATIENCE)
    is_older = version == "60"
    assert ["a"] + ["b"] * is_older == [one for _ in range(1 + is_older) for one in watching.told()]
    assert [None, "96", *[None] * len(lists), "60" if is_older else "96"] == watching.asked()
    assert watching.errors.empty()


def test_a_watch_can_be_asked_to_list_anew(watching: Watching) -> None:
    stream = watching.begin(listed(node("a", 96), version="96"))
    watching.lists.append(listed(node("b", 60), version="60"))
    watching.watch.again()
    stream.send(line("BOOKMARK", node("", 97)))
    watching.clock.skip_wait()
    assert (["a"], ["b"]) == (watching.told(), watching.told())
    stream.end()


def test_a_connection_that_ends_is_an_error_only_if_it_cannot_be_resumed(
    watching: Watching,
) -> None:
    watching.headers = {"Content-Length": "100000"}
    watching.begin(listed(version="5")).end()
    watching.clock.skip_wait()
    stream = watching.stream()
    assert watching.errors.empty()
    stream.end()  # nothing was heard of the server meanwhile
    assert "the watch broke" in str(watching.errors.get(timeout=PATIENCE))
    watching.clock.skip_wait()
    stream = watching.stream()
    stream.send(line("BOOKMARK", node("", 9)))
    eventually(lambda: watching.watch.version == "9")
    stream.end()
    watching.clock.skip_wait()
    watching.stream().end()
    assert watching.errors.empty()


def test_a_watch_that_is_back_after_an_error_says_so_although_nothing_has_changed(
    watching: Watching,
) -> None:
    stream = watching.begin(listed(node("a", 1), version="5"))
    assert ["a"] == watching.told()
    watching.script.answers += [Answer(503)]
    stream.end()
    watching.clock.skip_wait()
    assert "503" in str(watching.errors.get(timeout=PATIENCE))
    watching.clock.skip_wait()
    stream = watching.stream()
    assert ["a"] == watching.told()
    stream.end()
    watching.clock.skip_wait()
    watching.stream().end()
    assert watching.known.empty(), "there was no error"


def test_thousands_that_lose_their_watch_together_do_not_resume_it_together(script: Script) -> None:
    waits = []
    for _ in range(50):
        watching = Watching(script, spread=5.0)
        watching.begin(listed(version="5")).end()
        waits.append(watching.clock.skip_wait())
        stream = watching.stream()
        watching.watch.stop()
        stream.end()
        watching.thread.join(PATIENCE)
    assert min(waits) < 1.5
    assert max(waits) > 4.5


def test_it_can_be_stopped_while_the_server_says_nothing_and_twice(watching: Watching) -> None:
    stream = watching.begin(listed(version="5"))
    assert [] == watching.told()
    for _ in range(2):
        watching.watch.stop()
    watching.thread.join(PATIENCE)
    assert not watching.thread.is_alive()
    watching.watch.run()
    assert ([None, "5"], True) == (watching.asked(), watching.errors.empty())
    stream.end()


def test_what_goes_wrong_after_its_end_is_not_told(script: Script) -> None:
    script.answers += [listed(version="5"), Answer(status=500, message="late")]
    errors: list[ApiServerError] = []
    watch = Watch(
        ApiServer(script.url),
        PATH,
        changed=lambda _objects: watch.stop(),
        failed=errors.append,
        clock=HeldClock(),
    )
    watch.run()
    assert (2, []) == (len(script.asked), errors)
