"""Two processes of one driver, as while a pod is replaced with ``maxSurge``."""

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from cluster.dra_objects import RESOURCE
from deviceplugin_testing.simulator._errors import CallError
from drivers.dual_node import NODE, DualNode
from overlap import Served, always, running
from patience import eventually

DRIVER = "gopher.example.com"
ALL = {"gary", "gerd", "gina"}
REMARK = "DRA: another process of this driver publishes the slices"
STOP = signal.SIGTERM, signal.SIGKILL


class Drivers:
    """A node of a simulated cluster, with processes of one driver."""

    def __init__(self, node: DualNode, root: Path, stack: ExitStack) -> None:
        self.node, self._root, self._stack = node, root, stack
        self.gophers = root / "gophers"
        self.gophers.mkdir()
        for name in ALL:
            (self.gophers / name).touch()
        eventually(lambda: not node.kubelet.dra.wipes, "the first deletion of slices")

    def launch(self, protocol: str = "dra") -> Served:
        settings = self.node.settings()
        words = {
            "directory": self.gophers,
            "resource": RESOURCE,
            "protocol": protocol,
            "driver-name": DRIVER,
            "node-name": NODE,
            "registry-dir": settings.registry_dir,
            "pod-resources-socket": settings.pod_resources_socket,
            "pod-resources-interval": "1s",
            "cdi-dir": settings.cdi_dir,
            "driver-dir": settings.driver_dir,
            "api-server": settings.api_server,
        }
        given = [f"--{key}={value}" for key, value in words.items()]
        return self._stack.enter_context(running(settings.plugin_dir, *given))

    def start(self) -> Served:
        """Start one more process, and wait until it is ready and the slices are there."""
        found = self.launch()
        eventually(lambda: found.ready, lambda: f"{found.get('/readyz')} {found.log}")
        eventually(lambda: ALL == self.offered(), lambda: f"{found.log}")
        return found

    def pair(self) -> tuple[Served, Served]:
        """Start two, one after the other; return them once each knows its part."""
        older = self.start()
        newer = self.start()
        eventually(lambda: newer.get("/readyz") == (200, f"ok\n{REMARK}\n"), "the remark")
        eventually(lambda: 2 == len(self.connected()), "two instances")
        return older, newer

    def offered(self) -> set[str]:
        return self.node.by_dra()

    def connected(self) -> list[str]:
        return self.node.kubelet.dra.connected.get(DRIVER, [])

    def versions(self) -> Any:
        found = self.node.cluster.list("ResourceSlice")
        return [(one["metadata"]["uid"], one["metadata"]["resourceVersion"]) for one in found]

    def claim(self, device: str) -> Any:
        """Allocate a device to a claim, as the scheduler does, and return the claim."""
        (pool,) = {one["spec"]["pool"]["name"] for one in self.node.cluster.list("ResourceSlice")}
        result = {"request": "r", "driver": DRIVER, "pool": pool, "device": device}
        self.node.make.claim(f"c-{device}")
        status = {"allocation": {"devices": {"results": [result]}}}
        name = f"c-{device}"
        self.node.cluster.change("ResourceClaim", name, lambda one: one.update(status=status))
        return self.node.make.get("ResourceClaim", name)

    def prepare(self, claim: Any) -> str:
        """Prepare the claim; return what is wrong."""
        try:
            answers = self.node.kubelet.dra.prepare(DRIVER, claim)
        except CallError as error:
            return str(error)
        (answer,) = answers.values()
        return str(answer.error)

    def unprepare(self, claim: Any) -> str:
        (answer,) = self.node.kubelet.dra.unprepare(DRIVER, claim).values()
        return str(answer.error)

    def cdi_files(self) -> list[str]:
        return sorted(path.name for path in (self._root / "cdi").iterdir())


@pytest.fixture
def drivers(node: DualNode, root: Path) -> Iterator[Drivers]:
    with ExitStack() as stack:
        yield Drivers(node, root, stack)


@pytest.mark.slow
@pytest.mark.parametrize("how", STOP)
@pytest.mark.parametrize("which", [0, 1])
def test_whichever_of_two_processes_ends_claims_are_prepared_and_slices_stay(
    drivers: Drivers, which: int, how: int
) -> None:
    pair = drivers.pair()
    before, kept, tried = drivers.versions(), drivers.claim("gary"), drivers.claim("gerd")
    assert "" == drivers.prepare(kept)
    with always(drivers.versions, before) as slices, always(drivers.offered, ALL) as devices:
        pair[which].end(how)
        eventually(lambda: 1 == len(drivers.connected()), "the end of one")
        assert "" == drivers.prepare(tried)
        left = pair[1 - which]
        eventually(lambda: left.get("/readyz") == (200, "ok\n"), lambda: f"{left.log}")
    assert ([], []) == (slices, devices)
    assert left.events().count("driver registered") == 1
    eventually(lambda: 1 == len(drivers.node.sockets()), "the removal of sockets")
    assert 2 == len(drivers.cdi_files())
    assert ["", ""] == [drivers.unprepare(one) for one in (kept, tried)]
    assert [] == drivers.cdi_files()


@pytest.mark.slow
def test_each_process_knows_what_the_other_has_prepared_and_released(drivers: Drivers) -> None:
    older, newer = drivers.pair()
    first = drivers.claim("gary")
    assert "" == drivers.prepare(first)  # by the newer one
    newer.process.send_signal(signal.SIGSTOP)
    newer.end(signal.SIGKILL)
    eventually(lambda: 1 == len(drivers.connected()), "the end of the newer one")
    other = {**first, "metadata": {**first["metadata"], "name": "c-other", "uid": "other"}}
    rival = drivers.node.cluster.create(
        {key: other[key] for key in ("kind", "spec")} | {"metadata": {"name": "c-other"}}
    )
    drivers.node.cluster.change(
        "ResourceClaim", "c-other", lambda one: one.update(status=first["status"])
    )
    assert "held by claim default/c-gary" in drivers.prepare(rival)
    assert "" == drivers.unprepare(first)
    third = drivers.start()
    assert "" == drivers.prepare(rival)
    eventually(lambda: third.ready and older.ready)


@pytest.mark.slow
def test_a_kubelet_that_restarts_has_both_and_uses_either(drivers: Drivers) -> None:
    drivers.pair()
    claim = drivers.claim("gary")
    assert "" == drivers.prepare(claim)
    for _ in range(3):
        drivers.node.kubelet.restart()
        eventually(lambda: 2 == len(drivers.connected()), "both instances")
        assert ["", "", ""] == [
            drivers.prepare(claim),
            drivers.unprepare(claim),
            drivers.prepare(claim),
        ]
        eventually(lambda: ALL == drivers.offered(), "the slices")


@pytest.mark.slow
def test_processes_that_start_at_once_share_the_work(drivers: Drivers) -> None:
    found = [drivers.launch() for _ in range(3)]
    eventually(lambda: 3 == len(drivers.connected()), lambda: f"{[one.log for one in found]}")
    eventually(lambda: ALL == drivers.offered(), "the slices")
    eventually(lambda: all(one.ready for one in found), "readiness")
    eventually(lambda: 2 == sum(REMARK in one.get("/readyz")[1] for one in found), "one to lead")
    assert "" == drivers.prepare(drivers.claim("gary"))


@pytest.mark.slow
@pytest.mark.parametrize("how", STOP)
@pytest.mark.parametrize("protocols", [("device-plugin", "dra"), ("dra", "device-plugin")])
def test_a_newer_process_offers_by_its_protocol_once_the_older_one_with_another_is_gone(
    drivers: Drivers, protocols: tuple[str, str], how: int
) -> None:
    node = drivers.node
    offered = {"device-plugin": node.by_plugin, "dra": node.by_dra}
    before, after = (offered[one] for one in protocols)
    older = drivers.launch(protocols[0])
    eventually(lambda: ALL == before(), "the first offer")
    with always(lambda: bool(before()) and bool(after()), expected=False) as twice:
        newer = drivers.launch(protocols[1])
        eventually(lambda: newer.ready and "another process" in newer.get("/readyz")[1], "a remark")
        (drivers.gophers / "gus").touch()  # is no more the newer one's than the others
        eventually(lambda: ALL | {"gus"} == before(), "the new device")
        older.end(how)
        eventually(
            lambda: (set(), ALL | {"gus"}) == (before(), after()),
            lambda: f"the other protocol; {before()} {after()} {newer.get('/readyz')} {newer.log}",
        )
    assert [] == twice
    eventually(lambda: newer.get("/readyz") == (200, "ok\n"), "the end of the remark")
