"""Many nodes that publish their slices to one simulated API server, in one process: see `Nodes`."""

import base64
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from io import BytesIO
from typing import Any, Final, NamedTuple, Self
from urllib.parse import urlsplit

from urllib3 import HTTPResponse
from urllib3.exceptions import ProtocolError

from deviceplugin import Device
from deviceplugin._attribution.ownership import OfferState
from deviceplugin._dra.slices.attributes import Describer
from deviceplugin._dra.slices.pools import Offers, PoolCatalogue, Site
from deviceplugin._dra.slices.publisher import Publisher
from deviceplugin.apiserver import ApiServer, ResourceSlices
from deviceplugin_testing.simulator import SimulatedCluster
from deviceplugin_testing.simulator._control_plane.api_server.answering import Answer, Asked
from deviceplugin_testing.simulator._control_plane.api_server.request import Watching
from dra.node_index import Dispatch, View, listed
from driven_clock import DrivenClock
from patience import PATIENCE

DRIVER: Final = "gopher.example.com"
RESOURCE: Final = "example.com/gopher"
_STACK: Final = 256 * 1024


class Sent(NamedTuple):
    """A request that a node has sent."""

    at: float
    node: str
    verb: str
    code: int
    """0 if the server was away."""


class Line:
    """What a node reaches the API server by: neither sockets nor time, but the real client."""

    def __init__(self, nodes: "Nodes", node: str) -> None:
        self._nodes = nodes
        self._node = node

    def token(self) -> str:
        """Return what a pod has: it says on which node, so that nobody needs to ask."""
        said = {"kubernetes.io": {"node": {"name": self._node, "uid": f"uid of {self._node}"}}}
        return f"x.{base64.urlsafe_b64encode(json.dumps(said).encode()).decode()}.x"

    def pool(self) -> Any:
        return self

    def request(
        self, method: str, url: str, *, body: str | None, headers: Mapping[str, str], **_: object
    ) -> Any:
        """Answer as a pool of connections does."""
        nodes, parts = self._nodes, urlsplit(url)
        if nodes.is_away:
            nodes.note(self._node, "refused", 0)
            raise ConnectionRefusedError(111, "Connection refused")
        address = f"{parts.path}?{parts.query}" if parts.query else parts.path
        asked = Asked(method, address, headers.get, (body or "").encode())
        answer = nodes.cluster._answering.answer(asked)
        if isinstance(answer, Watching):
            nodes.note(self._node, "watch", 200)
            return Stream(nodes, self._node, answer)
        assert isinstance(answer, Answer)
        verb = {"POST": "create", "PUT": "update", "DELETE": "delete"}.get(method)
        plural = parts.path.rsplit("/", 1)[1]
        verb = verb or ("list" if plural.endswith("slices") else "get")
        nodes.note(self._node, verb, answer.code)
        text = json.dumps(answer.body).encode()
        return HTTPResponse(BytesIO(text), dict(answer.headers), answer.code, preload_content=False)


class Stream:
    """The answer to a watch."""

    status = 200

    def __init__(self, nodes: "Nodes", node: str, watching: Watching) -> None:
        self._nodes = nodes
        self._node = node
        self._watching = watching
        self._is_closed = False
        view: Any = View(nodes.cluster._store, nodes.clock)
        watching._store = view
        self._changed = view.changed
        nodes.dispatch.by_node[node].add(self._changed)
        nodes.open_watches[node] += 1
        is_cut = watching.is_cut
        watching.is_cut = lambda: self._is_closed or is_cut()
        self._events = watching.events()

    def read1(self, _amount: int) -> bytes:
        for event in self._events:
            return json.dumps(event).encode() + b"\n"
        if self._watching.is_cut() and not self._is_closed:
            raise ProtocolError("Connection broken: IncompleteRead(0 bytes read)")
        return b""

    def shutdown(self) -> None:
        self._is_closed = True
        self._changed.poke()

    def close(self) -> None:
        self._is_closed = True
        self._nodes.dispatch.by_node[self._node].discard(self._changed)
        self._nodes.open_watches[self._node] -= 1


class Node:
    """A node: its publisher, and the devices that it offers."""

    def __init__(self, nodes: "Nodes", name: str, devices: Iterable[str]) -> None:
        self._nodes = nodes
        self.name = name
        self.offered = dict.fromkeys(devices, "")
        self._catalogue = PoolCatalogue(Describer(DRIVER), name, "no-schedule")

    def start(self) -> None:
        """Start the process of the driver: it publishes once the kubelet has registered it."""
        nodes = self._nodes
        api = ApiServer("https://simulated", Line(nodes, self.name), clock=nodes.clock)
        self.publisher = Publisher(
            ResourceSlices(api, DRIVER, self.name, clock=nodes.clock),
            Site(DRIVER, self.name),
            catalogue=self._catalogue,
            offers=self._offers,
            clock=nodes.clock,
        )
        self.thread = threading.Thread(target=self.publisher.run, daemon=True)
        self.publisher.registered()
        self.thread.start()

    def stop(self) -> None:
        self.publisher.stop()
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()

    def restart(self) -> None:
        self.stop()
        self.start()

    def change(self, device: str, taint: str) -> None:
        self.offered = {**self.offered, device: taint}
        self.publisher.poke()

    def _offers(self) -> Offers:
        states = {
            key: OfferState(Device(key, capacity={"memory": "1024Mi"}), True, taint, "")
            for key, taint in self.offered.items()
        }
        return {RESOURCE: states}


class Nodes:
    """So many nodes of a simulated cluster, whose time passes by ``clock.run``.

    Publishers, watches, client and API server are the real and the simulated ones; there is no
    network between them, so that thousands fit into a process.
    """

    def __init__(self, count: int, *devices: str) -> None:
        self._stack = threading.stack_size(_STACK)
        self.clock = DrivenClock()
        self.cluster = SimulatedCluster(controllers=False, waits=self.clock)
        store = self.cluster._store
        store.changed = self.dispatch = Dispatch(store, self.clock)
        store.list = partial(listed, store)  # type: ignore[method-assign]
        self.is_away = False
        self.sent: list[Sent] = []
        self.open_watches: Counter[str] = Counter()
        self.all = [Node(self, f"node-{number}", devices) for number in range(count)]
        for one in self.all:
            self.cluster.add_node(one.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.is_away = True
        for one in self.all:
            one.publisher.stop()
        for one in self.all:
            one.thread.join(PATIENCE)
            assert not one.thread.is_alive()
        threading.stack_size(self._stack)

    def note(self, node: str, verb: str, code: int) -> None:
        self.sent.append(Sent(self.clock.now(), node, verb, code))

    def start(self) -> None:
        """Start all at once, as after a power failure, and let them publish."""
        for one in self.all:
            one.start()
        self.clock.run(60, step=0.1)

    def one_by_one(self, act: Callable[[Node], object], seconds: float) -> None:
        """Act on all nodes, one after the other in ``seconds``."""
        for one in self.all:
            act(one)
            self.clock.run(seconds / len(self.all))

    def restart_server(self, seconds: float) -> None:
        """End the server and all watches, and start it again; it does not know old versions."""
        self.is_away = True
        self.cluster.cut_watches()
        self.clock.settle()
        self.cluster.add_node(f"another-{self.clock.now()}")  # of which watches have not heard
        self.cluster.forget_history()
        self.clock.run(seconds)
        self.is_away = False

    def devices(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield the devices in slices with their nodes."""
        for one in self.cluster.list("ResourceSlice"):
            for device in one["spec"]["devices"]:
                yield one["spec"]["nodeName"], device


class Figures:
    """What was asked since it was made."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._since = len(nodes.sent)

    @property
    def sent(self) -> list[Sent]:
        return self._nodes.sent[self._since :]

    def by_verb(self) -> Counter[str]:
        return Counter(one.verb for one in self.sent)

    def most(self) -> int:
        """Return the most requests of one node."""
        return max(Counter(one.node for one in self.sent).values(), default=0)

    def peak(self) -> int:
        """Return the most requests in a second that the server has answered."""
        return max(Counter(int(one.at) for one in self.sent if one.code).values(), default=0)

    def __str__(self) -> str:
        """Return them in a line, for the page about them."""
        count = len(self._nodes.all)
        verbs = ", ".join(f"{number} {verb}" for verb, number in sorted(self.by_verb().items()))
        most = f"most of a node {self.most()}, in a second {self.peak()}"
        return f"{count} nodes: {verbs or 'none'}; {most}"
