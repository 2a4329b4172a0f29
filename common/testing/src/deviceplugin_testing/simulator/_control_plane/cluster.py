"""The simulated cluster, as tests and demonstrations see it."""

import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from threading import Event, Thread
from types import MappingProxyType
from typing import Any, Final, Self

from deviceplugin._platform.clock import MONOTONIC, Clock
from deviceplugin_testing.simulator._control_plane.api_server.access import (
    ACCOUNT,
    Access,
    ApiRequest,
    Faults,
    User,
)
from deviceplugin_testing.simulator._control_plane.api_server.answering import Answering
from deviceplugin_testing.simulator._control_plane.api_server.http_server import ApiHttpServer
from deviceplugin_testing.simulator._control_plane.api_server.objects import Objects
from deviceplugin_testing.simulator._control_plane.controllers import (
    ClaimControllers,
    DeviceEviction,
)
from deviceplugin_testing.simulator._control_plane.kinds import (
    KINDS,
    NAMESPACE,
    NODE,
    POD,
    Kind,
    Object,
)
from deviceplugin_testing.simulator._control_plane.rules.gates import Gates
from deviceplugin_testing.simulator._control_plane.scheduler.scheduler import Scheduler
from deviceplugin_testing.simulator._control_plane.store import Page, Store
from deviceplugin_testing.simulator._releases import COMPARED

_SPACES: Final = ("default", "kube-system")
_MOST_STEPS: Final = 100
_PAUSE: Final = 1.0


class SimulatedCluster:
    """An API server of Kubernetes 1.36 at ``url``, with a scheduler and controllers for devices.

    It serves nodes, pods, resource slices, claims, their templates and device classes over HTTP,
    with the limits and messages of the real one. Nodes are what a test adds; pods that are bound to
    a node run only if something runs them.

    It is not Kubernetes: no server-side apply, no other patches than merge and JSON patches, no
    admission policies, dry runs of creations only, and of CEL only equality of ``device.driver``
    and attributes. It offers only slices with ``nodeName`` or ``allNodes``, and no devices with
    conditions.

    Args:
        controllers: Whether scheduler and controllers run in a thread. Otherwise call ``settle``.
        clock: Returns the time, in seconds since 1970.
        seed: Of the random parts of names and UIDs.
        tls: A server's certificate, for https. Clients send tokens over https only.
        waits: The clock by which watches end and bookmarks are sent.
        feature_gates: ``{"DRAConsumableCapacity": False}``: devices cannot be shared.
            ``{"DRAPartitionableDevices": False}``: they cannot consume counters.
            ``{"DRADeviceCompatibilityGroups": True}``, alpha in Kubernetes 1.37: what consumes
            counters can say which others may be beside it. ``{"DRAListTypeAttributes": True}``: an
            attribute can have several values. Others are not known here.
        release: Of Kubernetes, such as ``"1.35"``, whose defaults the other feature gates have.
    """

    def __init__(
        self,
        *,
        controllers: bool = True,
        clock: Callable[[], float] = time.time,
        seed: int = 0,
        tls: ssl.SSLContext | None = None,
        waits: Clock = MONOTONIC,
        feature_gates: Mapping[str, bool] = MappingProxyType({}),
        release: str = COMPARED,
    ) -> None:
        self._store = Store(KINDS, clock=clock, seed=seed, waits=waits)
        self._objects = Objects(self._store, Gates.of(feature_gates, release))
        self._access = Access(self._store)
        self.faults = Faults()
        """What is wrong with the API server."""
        self._answering = Answering(self._objects, self._access, self.faults)
        self._server = ApiHttpServer(self._answering, tls)
        controllers_ = ClaimControllers(self._objects)
        scheduler, eviction = Scheduler(self._objects), DeviceEviction(self._store)
        self._steps: tuple[Callable[[], None], ...] = (
            controllers_.step,
            eviction.step,
            scheduler.step,
        )
        self._runs = controllers
        self._over = Event()
        self._thread: Thread | None = None
        for name in _SPACES:
            self._store.create(
                NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            )

    # Life

    def start(self) -> Self:
        """Answer requests, and let the controllers run. Return the cluster."""
        self._server.start()
        if self._runs:
            self._over.clear()
            self._thread = Thread(target=self._run, name="simulated-controllers")
            self._thread.start()
        return self

    def stop(self) -> None:
        """Stop everything. The objects stay, for the next start at the same address.

        An error of the simulation itself is raised here.
        """
        self._over.set()
        self._store.changed.poke()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._server.stop()
        if self._server.crashes:
            raise self._server.crashes.pop()

    def __enter__(self) -> Self:
        """Start the cluster."""
        return self.start()

    def __exit__(self, *_: object) -> None:
        """Stop the cluster."""
        self.stop()

    def _run(self) -> None:
        while not self._over.is_set():
            seen = self._store.version
            self._step()
            self._store.changed.until(partial(self._is_due, seen), _PAUSE)

    def _is_due(self, seen: int) -> bool:
        return self._store.version > seen or self._over.is_set()

    def _step(self) -> None:
        with self._store.changed:
            for step in self._steps:
                step()

    def settle(self) -> None:
        """Let scheduler and controllers do all that there is to do now."""
        for _ in range(_MOST_STEPS):
            before = self._store.version
            self._step()
            if self._store.version == before:
                return
        raise RuntimeError(f"the controllers do not come to rest in {_MOST_STEPS} steps")

    # The API server

    @property
    def url(self) -> str:
        """The address of the API server."""
        return self._server.url

    @property
    def requests(self) -> list[ApiRequest]:
        """All requests since the start, in order."""
        with self._answering.state:
            return [*self._answering.log]

    def go_away(self) -> None:
        """Refuse connections and cut those that there are, until ``come_back``."""
        self._server.stop()

    def come_back(self) -> None:
        """Answer at the same address again."""
        self._server.start()

    def cut_watches(self) -> None:
        """Break all watches in the middle."""
        self._answering.cut_watches()

    def forget_history(self) -> None:
        """Forget old versions: watches and lists that continue from one are answered with 410."""
        self._store.forget()

    def send_bookmarks(self, every: float) -> None:
        """Send watches that begin from now on a bookmark ``every`` so many seconds."""
        self._answering.bookmarks = every

    def use_certificate(self, tls: ssl.SSLContext) -> None:
        """Present another certificate to connections from now on."""
        self._server.tls = tls

    def grant(self, token: str, account: str = "", namespace: str = "default") -> None:
        """Accept ``token`` as that of a service account, or of an administrator without one.

        From the first one on, requests need a token, and accounts the rights of their ClusterRoles.
        """
        name = f"{ACCOUNT}{namespace}:{account}" if account else "admin"
        self._access.grant(token, User(name, is_admin=not account))

    def revoke(self, token: str) -> None:
        """Answer requests with ``token`` with 401 from now on."""
        self._access.revoke(token)

    # Objects, without HTTP

    def create(self, manifest: Mapping[str, Any], namespace: str = "default") -> Object:
        """Create an object as a client would; raise ``RefusedError`` as the API server would."""
        given = manifest.get("metadata", {}).get("namespace", namespace)
        return self._objects.create(*self._place(str(manifest["kind"]), given), {**manifest})

    def get(self, kind: str, name: str, namespace: str = "default") -> Object | None:
        """Return an object, or None if there is none."""
        return self._store.find(*self._place(kind, namespace), name)

    def list(self, kind: str, namespace: str = "") -> Page:
        """Return all objects of a kind by name, in one namespace or all."""
        return self._store.list(self._kind(kind), namespace)

    def change(
        self,
        kind: str,
        name: str,
        edit: Callable[[Object], Object | None],
        namespace: str = "default",
    ) -> Object:
        """Let ``edit`` change an object in place, or return it anew, without any check."""
        return self._store.change(*self._place(kind, namespace), name, edit)

    def delete(
        self, kind: str, name: str, namespace: str = "default", *, grace: int | None = None
    ) -> None:
        """Delete an object as a client would. A pod on a node stays until ``grace`` is 0."""
        self._store.delete(*self._place(kind, namespace), name, grace)

    def add_node(
        self,
        name: str,
        allocatable: Mapping[str, int] | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Object:
        """Create a node."""
        amounts = {key: str(count) for key, count in (allocatable or {}).items()}
        return self._store.create(
            NODE,
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "labels": dict(labels or {})},
                "spec": {},
                "status": {"capacity": amounts, "allocatable": amounts},
            },
        )

    def pods_on(self, node: str) -> Page:
        """Return the pods that are bound to ``node``, in the order of their names."""
        return [one for one in self._store.list(POD) if one["spec"].get("nodeName") == node]

    def wait_for(self, condition: Callable[[], Any], seconds: float = 30.0) -> bool:
        """Wait until ``condition`` holds, and return whether it does. Each change makes it look."""
        return bool(self._store.changed.until(lambda: bool(condition()), seconds))

    def kinds(self) -> Iterable[str]:
        """Return the names of the kinds that there are."""
        return [kind.name for kind in KINDS]

    def _kind(self, name: str) -> Kind:
        for kind in KINDS:
            if kind.name == name:
                return kind
        raise ValueError(
            f"{name!r} is not a kind of the simulated cluster: {', '.join(self.kinds())}"
        )

    def _place(self, kind: str, namespace: str) -> tuple[Kind, str]:
        found = self._kind(kind)
        return found, namespace if found.namespaced else ""
