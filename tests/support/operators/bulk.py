"""A roll-out on thousands of nodes, and what it costs: ``python -m operators.bulk 5000``.

Nodes and pods are kept as the bytes that are sent, in a process of their own beside the operator,
so that this stand-in is not what is measured. A deleted pod is replaced at once, by a ready one; a
node reports every five minutes. ``--code DIR`` measures the operator of another checkout.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from threading import Condition, Event, Thread
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

from typing_extensions import override

from cluster.api_server import KubectlAnswering, server
from cluster.kinds import ACCOUNT, DAEMON_SET, NAMESPACE, NODE_LABELS, Object
from deviceplugin_testing.simulator._control_plane.api_server.answering import Answer, Asked, Reply
from operators.fleet_cluster import SPACE, Fleet
from operators.pods import RESOURCE, lived, node_condition

_EVERY = 300.0
"""Seconds between two reports of a node."""
_KINDS = ("nodes", "pods", "daemonsets", "configmaps", "deviceplugins", "events")


class Bulk:
    """Objects of a kind, as bytes, and what has happened to them."""

    def __init__(self, changed: Condition) -> None:
        self.changed = changed
        self.found: dict[str, tuple[int, str]] = {}
        self.events: list[tuple[int, bytes]] = []

    def put(self, version: int, one: Object, kind: str = "MODIFIED") -> None:
        one["metadata"]["resourceVersion"] = str(version)
        name, text = one["metadata"]["name"], json.dumps(one)
        with self.changed:
            self.found[name] = (version, text)
            if kind == "DELETED":
                del self.found[name]
            self.events.append((version, f'{{"type":"{kind}","object":{text}}}\n'.encode()))
            self.changed.notify_all()

    def page(self, version: int, query: dict[str, list[str]]) -> str:
        start, size = int(query.get("continue", ["0"])[0]), int(query.get("limit", ["9999999"])[0])
        names = sorted(self.found)
        field, _, value = query.get("fieldSelector", [""])[0].partition("=")
        names = [value] if field == "metadata.name" and value in self.found else names
        more = str(start + size) if start + size < len(names) else ""
        items = ",".join(self.found[name][1] for name in names[start : start + size])
        head = json.dumps({"resourceVersion": str(version), "continue": more})
        return f'{{"kind":"List","apiVersion":"v1","metadata":{head},"items":[{items}]}}'


class Cost(NamedTuple):
    wall: float
    cpu: float
    peak: float
    asked: Counter[str]
    sent: Counter[str]


class BulkAnswering(KubectlAnswering):
    """Answers about nodes and pods from ``Bulk``, and about the rest as other fleets do."""

    def __init__(self, fleet: Fleet, nodes: int) -> None:
        super().__init__(fleet.store)
        self.fleet, self.changed, self.over = fleet, Condition(), Event()
        self.is_silent = False
        """Whether watches show nothing, and stay open."""
        self.kept = {"nodes": Bulk(self.changed), "pods": Bulk(self.changed)}
        self.count: Counter[str] = Counter()
        self.sent: Counter[str] = Counter()
        self._version = 10**6
        self._template: Object | None = None
        for number in range(nodes):
            name = f"ip-10-{number >> 16}-{number >> 8 & 255}-{number & 255}.eu-central-1.internal"
            self.kept["nodes"].put(self._next(), self._report(name), "ADDED")
        for name in (SPACE, "default"):
            made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            fleet.store.create(NAMESPACE, {**made, "metadata": {"name": name, "labels": {}}})
        account = {"apiVersion": "v1", "kind": "ServiceAccount"}
        place = {"name": "device-plugin", "namespace": SPACE}
        fleet.store.create(ACCOUNT, {**account, "metadata": place})

    def _next(self) -> int:
        self._version += 1
        return self._version

    def _report(self, name: str) -> Object:
        labels = {**NODE_LABELS, "kubernetes.io/hostname": name}
        metadata = {"name": name, "labels": labels, "annotations": {"padding": "x" * 7000}}
        amounts = {"cpu": "8", RESOURCE: "2"}
        status = {"capacity": amounts, "allocatable": amounts}
        return {"metadata": metadata, "status": {**status, "conditions": [_ready()]}}

    @override
    def answer(self, asked: Asked) -> Reply:
        address = urlsplit(asked.address)
        *_, last = parts = address.path.split("/")
        kind = next((one for one in _KINDS if one in parts), last)
        query = parse_qs(address.query)
        verb = "watch" if "watch" in query else asked.method
        self.count[f"{verb} {kind}"] += 1
        if kind not in self.kept:
            reply = super().answer(asked)
            self.sent[kind] += len(json.dumps(reply.body)) if isinstance(reply, Answer) else 0
            return reply
        with self.changed:
            if verb == "watch":
                return lambda connection: self._stream(connection, kind, query)
            if verb == "DELETE":
                if last not in self.kept[kind].found:
                    return Answer(404, {})
                self._replace(last)
                return Answer(200, {})
            kept = self.kept[kind]
            text = kept.found[last][1] if last != kind else kept.page(self._version, query)
        self.sent[kind] += len(text)
        return Answer(200, text)

    def _stream(
        self, connection: BaseHTTPRequestHandler, kind: str, query: dict[str, list[str]]
    ) -> None:
        connection.send_response(200)
        connection.send_header("Content-Type", "application/json")
        connection.end_headers()
        kept, after, at = self.kept[kind], int(query["resourceVersion"][0]), 0
        is_short = query["timeoutSeconds"] == ["1"]  # and so is its wait here
        while not self.over.is_set():
            with self.changed:
                if not is_short:
                    self.changed.wait_for(lambda at=at: self._has_news(kept, at), 30)  # type: ignore[misc]
                new, at = kept.events[at:], len(kept.events)
            body = b"".join(text for version, text in new if version > after)
            self.sent[f"{kind} watched"] += len(body)
            connection.wfile.write(body)
            if is_short:
                return

    def _has_news(self, kept: Bulk, at: int) -> bool:
        return (len(kept.events) > at and not self.is_silent) or self.over.is_set()

    def _replace(self, name: str) -> None:
        pods = self.kept["pods"]
        gone = json.loads(pods.found[name][1])
        pods.put(self._next(), gone, "DELETED")
        self._pod(gone["spec"]["nodeName"])

    def _pod(self, node: str) -> None:
        assert self._template
        number, labels = self._next(), self._template["metadata"]["labels"]
        metadata = {"name": f"p-{number}", "uid": f"u-{number}", "labels": labels}
        metadata["annotations"] = {"padding": "x" * 4000}
        made = {"metadata": metadata, "spec": {"nodeName": node}}
        self.kept["pods"].put(number, {**made, "status": lived(ready=True, said="")}, "ADDED")

    def run(self) -> None:
        """Play the kubelets and the DaemonSet's controller."""
        names, step = sorted(self.kept["nodes"].found), 0.25
        each = max(1, round(len(names) * step / _EVERY))
        turn = 0
        while not self.over.wait(step):
            with self.changed:
                for name in (names[(turn + n) % len(names)] for n in range(each)):
                    self.kept["nodes"].put(self._next(), self._report(name))
                turn += each
            for found in self.fleet.store.list(DAEMON_SET, SPACE):
                self._control(found, names)

    def _control(self, found: Object, names: list[str]) -> None:
        self._template = found["spec"]["template"]
        mark = json.dumps(self._template["metadata"]["labels"])
        with self.changed:
            for name in names if not self.kept["pods"].found else ():
                self._pod(name)
            done = sum(mark in text for _, text in self.kept["pods"].found.values())
        keys = ("desiredNumberScheduled", "currentNumberScheduled", "numberReady")
        status = {
            **dict.fromkeys(keys, len(names)),
            "updatedNumberScheduled": done,
            "numberMisscheduled": 0,
        }
        status["observedGeneration"] = found["metadata"]["generation"]
        name = found["metadata"]["name"]
        self.fleet.store.change(DAEMON_SET, SPACE, name, lambda one: one.update(status=status))


def _ready() -> Object:
    return node_condition("Ready", "True")


@contextmanager
def serving(nodes: int) -> Iterator[BulkAnswering]:
    """Serve ``nodes`` at the address of the fleet."""
    answering = BulkAnswering(Fleet(), nodes)
    api = server(answering)
    api.start()
    answering.fleet.url = api.url
    try:
        yield answering
    finally:
        answering.over.set()
        with answering.changed:
            answering.changed.notify_all()
        api.stop()
    assert not api.crashes, repr(api.crashes)


def _phases(answering: BulkAnswering, process: subprocess.Popen[bytes]) -> Iterator[Cost]:
    """Yield what it costs to install the plugin, to change it, and a minute of rest."""
    for settings in ({"seed": 1}, {"seed": 2}, None):
        answering.count.clear()
        answering.sent.clear()
        began, cpu = time.monotonic(), _used(process.pid)[0]
        if settings:
            answering.fleet.apply("sim", plugin="simulated", simulated=settings)
        while settings and not answering.fleet.is_ready("sim"):
            time.sleep(0.2)
        time.sleep(0 if settings else 60)
        used, peak = _used(process.pid)
        wall = time.monotonic() - began
        yield Cost(wall, used - cpu, peak, Counter(answering.count), Counter(answering.sent))


def _used(pid: int) -> tuple[float, float]:
    """Return the seconds of CPU that a process has used, and its peak memory in MiB."""
    with open(f"/proc/{pid}/stat") as stat, open(f"/proc/{pid}/status") as status:  # noqa: PTH123
        fields = stat.read().rpartition(")")[2].split()
        peak = next(line for line in status if line.startswith("VmHWM"))
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK"), int(peak.split()[1]) / 1024


def measure(nodes: int, code: str = "") -> Iterator[tuple[str, Cost]]:
    """Run the operator; yield what each phase has cost."""
    paths = [f"{code}/{one}" for one in ("operator/src", "common/node/src")] if code else []
    words = [sys.executable, "-m", "deviceplugin_operator", "run", f"--namespace={SPACE}"]
    environment = {**os.environ, "PYTHONPATH": ":".join(paths)}
    with serving(nodes) as answering:
        playing = Thread(target=answering.run)
        playing.start()
        words.append(f"--api-server={answering.fleet.url}")
        process = subprocess.Popen(words, env=environment, stderr=subprocess.DEVNULL)
        try:
            names = ("install", "roll-out", "a minute's rest")
            yield from zip(names, _phases(answering, process), strict=True)
        finally:
            process.terminate()
            process.wait(60)
            answering.over.set()
            playing.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("nodes", type=int)
    parser.add_argument("--code", default="", help="the checkout whose operator is measured")
    options = parser.parse_args()
    for name, one in measure(options.nodes, options.code):
        asked = ", ".join(f"{count} {what}" for what, count in one.asked.most_common(8))
        sent = ", ".join(f"{size / 1e6:.1f} of {what}" for what, size in one.sent.most_common(5))
        parts = f"{one.wall:.0f} s, {one.cpu:.1f} s of CPU, at most {one.peak:.0f} MiB"
        more = f"{one.asked.total()} requests: {asked}\n  {one.sent.total() / 1e6:.1f} MB: {sent}"
        print(f"{name}: {parts}\n  {more}", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
