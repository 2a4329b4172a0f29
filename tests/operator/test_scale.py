"""Thousands of nodes: what is remembered of them is bounded, and a watch shows what they are."""

import json
import logging
import math
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from cluster.kinds import RESOURCE_SLICE, Object
from cluster.real_api_server import running as real_server
from cluster.real_api_server import why_not
from deviceplugin.apiserver import Account, ApiServer
from deviceplugin_operator.cluster import progress_note
from deviceplugin_operator.cluster.access import Cluster
from deviceplugin_operator.crd.specification import read
from deviceplugin_operator.fleet import NODES, Fleet
from deviceplugin_operator.names import ROLLOUT
from deviceplugin_operator.observed import Seen
from deviceplugin_operator.reconciling.judge import Judge, Timing
from deviceplugin_operator.rollout.step import Member, Pod, Progress, Taken
from deviceplugin_testing.simulator._control_plane.refusals import RefusedError
from operators import bulk
from operators.fleet_cluster import SPACE
from operators.managed import Managed
from operators.pods import RESOURCE, Life, slice_of
from patience import eventually

COUNT = 10_000
RANDOM = random.Random(7)
CLOUD = [f"ip-10-{n >> 16}-{n >> 8 & 255}-{n & 255}.eu-central-1.internal" for n in range(COUNT)]
ODD = [f"{RANDOM.getrandbits(300):075x}" for _ in range(COUNT)]
"""Names that nothing can make shorter."""


def back(text: str) -> Progress:
    return progress_note.read({"metadata": {"annotations": {ROLLOUT: text}}})


def test_ten_thousand_nodes_that_were_taken_are_remembered_in_an_annotation() -> None:
    before = {f"nvidia.com/gpu-{n}": n for n in range(9)}
    taken = {name: Taken(1.5 + n % 7, before, well=True) for n, name in enumerate(CLOUD)}
    progress = Progress("new", "old", taken=taken)
    text = progress_note.written(progress)
    assert progress_note.fits(progress)
    assert len(text) <= progress_note.MAX_NOTE
    assert progress == back(text)


def test_of_what_does_not_fit_nodes_that_had_devices_are_remembered() -> None:
    had = {name: Taken(1.0, {"a/b": 1}) for name in ODD[:1000]}
    progress = Progress("new", "old", taken=had | {name: Taken(2.0) for name in ODD[1000:]})
    text = progress_note.written(progress)
    assert not progress_note.fits(progress)
    assert Progress("new", "old", taken=had) == back(text)
    everything = Progress("new", taken={name: Taken(1.0, {"a/b": 1}) for name in ODD})
    text = progress_note.written(everything)
    assert progress_note.MAX_NOTE * 0.8 < len(text) <= progress_note.MAX_NOTE
    assert back(text).taken.items() < everything.taken.items()


def test_no_step_takes_more_nodes_than_can_be_remembered_and_all_are_done_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(progress_note, "MAX_NOTE", 20_000)
    api = ApiServer("http://nowhere")
    judge = Judge(Cluster(api, Seen(), SPACE), Fleet(api), Timing(settle=0.0))
    rollout = {"maxUnavailable": "100%"}
    spec = {"plugin": "simulated", "rollout": rollout}
    wanted = read({"metadata": {"name": "sim", "generation": 1}, "spec": spec})
    revisions, steps = dict.fromkeys(ODD[:1000], "old"), 0
    progress = Progress("new", "old")
    while progress.good != "new":
        members = [
            Member(name, True, {"a/b": 1}, Pod(name, name, one, ready=True), reported="2")
            for name, one in revisions.items()
        ]
        step = judge._next(members, wanted, progress)
        assert progress_note.fits(step.progress)
        revisions |= {pod.name: "new" for pod in step.delete}
        progress, steps = step.progress, steps + 1
        assert steps < 20
    assert 3 < steps


@pytest.mark.parametrize(
    ("devices", "kept"),
    [
        (lambda _: {"nvidia.com/gpu": 8}, 2 * COUNT),
        (
            lambda n: {f"example.com/resource-{n}-{'x' * 60}": n for n in (n, n + 1)},
            2 * COUNT // 10,
        ),
    ],
)
def test_the_baseline_fits_into_the_status(devices: object, kept: int) -> None:
    assert callable(devices)
    found = {f"gke-pool-{n:05}-{n % 7919:04x}.c.internal": devices(n) for n in range(2 * COUNT)}
    groups = progress_note.of_baseline(found)
    assert len(json.dumps(groups)) <= progress_note.MAX_BASELINE
    assert len(groups) <= COUNT >= max(len(one["nodes"]) for one in groups)
    remembered = progress_note.baseline({"status": {"baseline": groups}})
    assert remembered.items() <= found.items()
    assert kept <= len(remembered)


@pytest.fixture
def many() -> Iterator[bulk.BulkAnswering]:
    with bulk.serving(150) as answering:
        yield answering


def labelled(answering: bulk.BulkAnswering, **labels: str) -> None:
    """Have the first node get labels."""
    nodes = answering.kept["nodes"]
    found: Object = json.loads(nodes.found[min(nodes.found)][1])
    found["metadata"]["labels"] |= labels
    nodes.put(answering._next(), found)


def test_many_nodes_are_listed_once_and_then_a_watch_shows_them_and_proves_it(
    many: bulk.BulkAnswering, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes: list[str] = []
    fleet = Fleet(ApiServer(many.fleet.url), lambda: changes.append("changed"))
    fleet.refresh()
    eventually(lambda: many.count["watch nodes"])
    assert (150, 2) == (len(fleet.nodes()), many.count["GET nodes"])
    labelled(many, zone="a")
    eventually(lambda: fleet.matching({"zone": "a"}))
    assert 2 == len(changes)
    fleet.refresh()
    assert (2 + 1, 1) == (many.count["GET nodes"], many.count["watch nodes"])
    labelled(many, zone="a")  # as before: a heartbeat
    many._next()  # somebody has written an object of another kind, as always in a cluster
    fleet.refresh()
    assert (2 + 2, 2) == (many.count["GET nodes"], len(changes))
    assert 2 == many.count["watch nodes"]
    many._next()
    fleet.look_at([node.name for node in fleet.nodes()[:3]])  # as they are at a later version
    fleet.refresh()
    assert (2 + 2 + 3 + 1, 3) == (many.count["GET nodes"], many.count["watch nodes"])
    monkeypatch.setattr("deviceplugin_operator.watched._LAG", 0.01)
    many.is_silent = True
    labelled(many, zone="b")
    listed = many.count["GET nodes"]
    fleet.refresh()
    assert listed + 1 + 2 == many.count["GET nodes"]
    assert fleet.matching({"zone": "b"})
    labelled(many, zone="c")
    (node,) = fleet.matching({"zone": "b"})
    fleet.look_at([node.name])
    assert fleet.matching({"zone": "c"})
    many.is_silent = False
    many.kept["nodes"].put(many._next(), {"metadata": {"name": node.name}}, "DELETED")
    fleet.look_at([node.name])
    eventually(lambda: len(fleet.nodes()) == 149)
    fleet.stop()


def test_many_nodes_of_a_store_that_was_restored_are_as_they_are_there(
    many: bulk.BulkAnswering, caplog: pytest.LogCaptureFixture
) -> None:
    """It says nothing to a watch from a version that it has not come to again."""
    nodes, fleet = many.kept["nodes"], Fleet(ApiServer(many.fleet.url))
    fleet.refresh()
    eventually(lambda: many.count["watch nodes"])
    before, there, shown = many._version, dict(nodes.found), len(nodes.events)
    for number in range(300):
        labelled(many, zone=f"lost-{number}")
    eventually(lambda: fleet.matching({"zone": "lost-299"}))
    with many.changed:
        many._version, nodes.found = before, there
        del nodes.events[shown:]
    labelled(many, zone="a")
    fleet.refresh()
    assert 1 == len(fleet.matching({"zone": "a"}))
    eventually(lambda: many.count["watch nodes"] == 2)
    labelled(many, zone="b")
    eventually(lambda: fleet.matching({"zone": "b"}))
    said = [one for one in caplog.records if "older state" in one.message]
    assert ["/api/v1/nodes"] == [one.path for one in said]  # type: ignore[attr-defined]
    fleet.stop()


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(bool(why_not()), reason=why_not() or "-")
@pytest.mark.xdist_group("real-api-server")
def test_a_real_server_proves_what_a_watch_shows_and_a_restored_one_is_believed(
    tmp_path: Path,
) -> None:
    """A lease makes the version of each list newer, and leaves nodes as they are."""
    asked: list[str] = []

    class Counted(ApiServer):
        @override
        def _open(self, method: str, path: str, query: Any, *rest: Any) -> Any:
            asked.append("watch" if "watch" in query else f"list {query['limit']}")
            return super()._open(method, path, query, *rest)

    with real_server(tmp_path) as server:
        for number in range(150):
            server.admin.create(NODES, {"metadata": {"name": f"n{number}"}})
        fleet = Fleet(Counted(server.url, Account(server.account("operator", "admin-token"))))
        fleet.refresh()
        place = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
        server.admin.create(place, {"metadata": {"name": "a"}})
        eventually(lambda: "watch" in asked)
        asked.clear()
        fleet.refresh()
        assert ["list 1", "watch"] == asked

        server.back_up()
        for zone in range(30):
            labels = {"metadata": {"labels": {"zone": f"lost-{zone}"}}}
            server.admin.merge(f"{NODES}/n1", labels)
        eventually(lambda: fleet.matching({"zone": "lost-29"}))
        server.restore()
        server.admin.merge(f"{NODES}/n2", {"metadata": {"labels": {"zone": "b"}}})
        eventually(lambda: fleet.matching({"zone": "b"}) and not fleet.matching(LOST))
        fleet.stop()


LOST = {"zone": "lost-29"}


def test_a_pod_that_was_deleted_is_leaving_whatever_a_watch_still_shows(
    many: bulk.BulkAnswering,
) -> None:
    many._template = {"metadata": {"labels": {"deviceplugin.dev/owner": "a", **PROFILE}}}
    many._pod("n")
    cluster = Cluster(ApiServer(many.fleet.url), Seen(), SPACE)
    (pod,) = cluster.pods("a", "").values()
    eventually(lambda: many.count["watch pods"])
    many.is_silent = True
    cluster.delete_pod(pod)
    assert {"n": True} == {node: one.leaving for node, one in cluster.pods("a", "").items()}
    many.is_silent = False
    many._pod("m")
    eventually(lambda: {"n": False, "m": False} == leaving(cluster.pods("a", "")))
    assert {} == cluster.pods("b", "")
    many.is_silent = True
    pod = cluster.pods("a", "")["m"]
    many._replace(pod.name)  # somebody else has deleted it
    cluster.delete_pod(pod)
    assert cluster.pods("a", "")["m"].leaving
    cluster.stop()


PROFILE = {"deviceplugin.dev/profile": ""}


def test_who_may_not_watch_lists_as_before_and_says_so_once(
    operator: Managed, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    operator.stop()
    faults = operator.fleet.answering.faults
    refusal = RefusedError(403, "Forbidden", "no watch", {})
    faults.refuse(refusal, math.inf, matches=lambda wanted: wanted.verb == "watch")
    operator.start()
    operator.install()
    operator.install({"number-devices": 5})
    assert ["node-0", "node-1", "node-2"] == operator.fleet.deleted
    said = [one.path for one in caplog.records if one.message == "watch unavailable"]  # type: ignore[attr-defined]
    assert {"/api/v1/nodes", f"/api/v1/namespaces/{SPACE}/pods"} == {*said}
    assert 2 == len(said)
    faults.end()
    operator.wait(lambda: "watch available again" in {one.message for one in caplog.records})


def leaving(pods: Mapping[str, Pod]) -> dict[str, bool]:
    return {node: one.leaving for node, one in pods.items()}


def test_slices_of_other_drivers_do_not_count_for_an_object(operator: Managed) -> None:
    """They are followed, because another object has that driver."""
    fleet = operator.fleet
    operator.install()
    spec = {"plugin": "gopher", "gopher": {"protocol": "dra"}, "nodeSelector": {"no": "node"}}
    fleet.apply("other", **spec)
    driver = read({"metadata": {"name": "other", "generation": 1}, "spec": spec}).driver
    fleet.store.create(RESOURCE_SLICE, slice_of("node-0", Life(devices=5, driver=driver)))
    controller = operator.controller
    assert controller is not None
    nodes = controller.fleet.nodes
    operator.wait(lambda: nodes([driver])[0].healthy.get(RESOURCE) == 7)
    fleet.label("node-1", seen="yes")
    operator.wait(lambda: controller.fleet.matching({"seen": "yes"}))
    operator.install({"number-devices": 3})
    assert "simple-device 9/9" == fleet.status("sim")["devices"]
