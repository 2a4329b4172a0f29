"""Claims that are prepared and released, on a node that everything can happen to."""

import errno
import json
import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import deviceplugin as dp
from deviceplugin._attribution.ownership import Claim
from deviceplugin._dra.naming import pool_name
from deviceplugin._dra.serving.instances import FileLock
from deviceplugin._inventory.published import Resource
from deviceplugin._platform.api_errors import UnavailableError
from deviceplugin._platform.hooks import HookFailedError, HookTimeoutError
from drivers.driver_node import (
    DRIVER,
    NODE,
    POOL,
    RESOURCE,
    DriverNode,
    Gophers,
    cdi_name,
    gopher,
    result,
)
from full_disk import failing_syncs, full_disk
from patience import PATIENCE, eventually


@pytest.fixture
def node(tmp_path: Path) -> DriverNode:
    return DriverNode(tmp_path, gopher("gary"), gopher("gerd"), gopher("gina"))


# What a claim gets.


def test_devices_of_a_request_are_allocated_together_as_for_one_container(
    node: DriverNode, caplog: pytest.LogCaptureFixture
) -> None:
    mounts = [dp.Mount("/dev/snd"), dp.Mount("/lib/a", read_only=True)]
    gary = gopher("gary", mounts=mounts, annotations={"acme.com/a": "1"})
    node.resource.publish([gary, gopher("gina")])
    claim = node.allocate("one", result("gina"), result("gary"))
    given = node.prepare(claim)
    assert [("pre_start", ["gary", "gina"]), ("allocate", ["gary", "gina"])] == node.plugin.calls
    assert [("one", POOL, "gina"), ("one", POOL, "gary")] == [
        (one.request, one.pool, one.name) for one in given
    ]
    # The kubelet hides the health of a second device with the same names.
    assert [(cdi_name(claim),), ()] == [tuple(one.cdi_names) for one in given]
    (name,) = node.cdi_files()
    assert f"k8s.{DRIVER}-claim_uid-one.json" == name
    edits = {
        "env": ["BOTH=yes", "GOPHER=gary,gina"],
        "deviceNodes": [
            {"path": "/dev/gary", "permissions": "rw"},
            {"path": "/dev/gina", "permissions": "rw"},
        ],
        "mounts": [
            {"hostPath": path, "containerPath": path, "options": [mode, "rbind", "rprivate"]}
            for path, mode in (("/dev/snd", "rw"), ("/lib/a", "ro"))
        ],
    }
    assert {
        "cdiVersion": "0.3.0",
        "kind": f"k8s.{DRIVER}/claim",
        "devices": [{"name": "uid-one-one", "containerEdits": edits}],
    } == json.loads((node.cdi_dir / name).read_text())
    assert ["annotations have no way into a claim"] == [
        one.message for one in caplog.records if one.levelname == "WARNING"
    ]


def test_requests_and_resources_of_a_claim_have_cdi_devices_of_their_own(
    node: DriverNode, caplog: pytest.LogCaptureFixture
) -> None:
    other = Resource("example.com/marmot", Gophers())
    other.publish([gopher("mary")])
    node.resources[other.name] = other
    claim = node.allocate(
        "two",
        result("gary", "first"),
        result("mary", "second", pool_name(NODE, other.name)),
        result("gerd", "second"),
    )
    given = node.prepare(claim)
    assert [
        ("gary", [cdi_name(claim, "first")]),
        ("mary", [cdi_name(claim, "second.1")]),
        ("gerd", [cdi_name(claim, "second")]),
    ] == [(one.id, [*one.cdi_names]) for one in given]
    (warned,) = (one for one in caplog.records if one.levelname == "WARNING")
    assert "requests set different values of a variable" == warned.message
    assert {"resource": f"{RESOURCE}, {other.name}", "variables": "GOPHER"}.items() <= vars(
        warned
    ).items()


class Bare(Gophers):
    """Gives containers nothing but CDI names of its own."""

    def allocate(self, devices: Any) -> dp.Allocation:
        return dp.Allocation(cdi_names=[f"acme.com/npu={one.id}" for one in devices])


def test_cdi_names_of_the_plugin_are_given_even_if_there_is_nothing_else(tmp_path: Path) -> None:
    node = DriverNode(tmp_path)
    node.resources[RESOURCE] = Resource(RESOURCE, Bare())
    node.resources[RESOURCE].publish([dp.Device("a"), dp.Device("b")])
    claim = node.allocate("one", result("a"), result("b"))
    given = node.prepare(claim)
    assert [["acme.com/npu=a", "acme.com/npu=b"], []] == [[*one.cdi_names] for one in given]
    assert [] == node.cdi_files()
    node.restart()
    assert given == node.prepare(claim)


def test_nothing_is_prepared_while_no_runtime_could_find_it(node: DriverNode) -> None:
    claim = node.allocate("one", result("gary"))
    node.unusable = "cdi has been renamed under its mount"
    assert node.unusable == node.refusal(claim)
    assert ([], [], {}) == (node.recorded(), node.cdi_files(), node.ownership.claims())
    node.unusable = ""
    assert node.prepare(claim)


def test_a_node_that_is_gone_is_not_given_and_holds_nothing(
    node: DriverNode, tmp_path: Path
) -> None:
    path = tmp_path / "gary-node"
    path.mkdir()
    gary = replace(gopher("gary"), nodes=[dp.DeviceNode(str(path))])
    node.resource.publish([gary])
    node.ownership.hardware.identify("P", {RESOURCE: {"gary": gary}})
    path.rmdir()
    claim = node.allocate("one", result("gary"))
    assert f"device node {path} of gary is gone" == node.refusal(claim)
    assert ([], {}) == (node.recorded(), node.ownership.claims())
    path.mkdir()
    assert node.prepare(claim)


# Once more.


def test_a_prepared_claim_gets_the_same_answer_and_files_without_hooks_or_api_server(
    node: DriverNode,
) -> None:
    claim, other = node.allocate("one", result("gary")), node.allocate("two", result("gerd"))
    given = node.prepare(claim)
    (name,) = node.cdi_files()
    node.plugin.calls.clear()
    node.store.away = True
    node.resource.publish([gopher("gary", health=dp.Health.unhealthy("hot"))])
    (node.cdi_dir / name).write_text("{}")
    assert given == node.prepare(claim)
    assert "gary" in (node.cdi_dir / name).read_text()
    node.restart()
    assert given == node.prepare(claim)
    assert [] == node.plugin.calls
    assert "the API server is away" == node.refusal(other)


def test_a_prepared_claim_gets_the_new_node_of_a_device_that_is_back(node: DriverNode) -> None:
    claim, other = node.allocate("one", result("gary")), node.allocate("two", result("gary"))
    node.ownership.hardware.identify("P", {RESOURCE: {"gary": gopher("gary")}})
    given, (name,) = node.prepare(claim), node.cdi_files()
    back = replace(gopher("gary"), nodes=[dp.DeviceNode("/dev/gary1")])
    node.ownership.hardware.identify("P", {RESOURCE: {"gary": back}})
    (reason,) = node.ownership.elsewhere(RESOURCE).values()
    assert "stale: claim default/one has /dev/gary, which is gone: restart the pod" == reason
    node.resource.publish([replace(back, health=dp.Health.unhealthy(reason))])
    assert "gary is held by claim default/one" == node.refusal(other)
    node.plugin.errors["allocate"] = dp.AllocationError("warming up")
    assert "warming up" == node.refusal(claim)
    assert reason == node.ownership.elsewhere(RESOURCE)["gary"]
    node.plugin.errors.clear()
    assert given == node.prepare(claim)
    assert '"/dev/gary1"' in (node.cdi_dir / name).read_text()
    assert {} == node.ownership.elsewhere(RESOURCE)


def test_after_a_reboot_a_claim_waits_for_the_discovery_and_hooks_are_called_for_the_same_names(
    node: DriverNode,
) -> None:
    claim, other = node.allocate("one", result("gary")), node.allocate("two", result("gary"))
    given, files = node.prepare(claim), node.cdi_files()
    node.plugin.calls.clear()
    node.resources.clear()
    node.discovered = False
    node.boot()
    assert files == node.cdi_files()
    expected = f"not known yet: device gary of pool {POOL}: devices are still being discovered"
    assert expected == node.refusal(claim)
    node.resources[RESOURCE] = node.resource
    node.plugin.errors["pre_start"] = dp.AllocationError("warming up")
    assert "warming up" == node.refusal(claim)
    assert "gary is held by claim default/one" == node.refusal(other)
    node.plugin.errors.clear()
    assert given == node.prepare(claim)
    calls = [("pre_start", ["gary"]), ("allocate", ["gary"])]
    assert [calls[0], *calls] == node.plugin.calls
    node.store.away = True
    assert given == node.prepare(claim)


def test_a_claim_that_was_allocated_again_keeps_what_it_had_until_it_is_released(
    node: DriverNode,
) -> None:
    node.prepare(node.allocate("one", result("gary"), result("gerd", "more")))
    claim = node.allocate("one", result("gerd", "more"), result("gina"))
    assert ["gerd", "gina"] == [one.id for one in node.prepare(claim)]
    for name in ("gary", "gerd", "gina"):
        assert f"{name} is held by claim default/one" == node.refusal(
            node.allocate("x", result(name))
        )
    node.restart()
    assert ["gerd", "gina"] == [one.id for one in node.prepare(claim)]
    node.unprepare(claim)
    assert ("released", ["gary", "gerd", "gina"]) == node.plugin.calls[-1]
    assert {} == node.ownership.claims()


# Who gets a device.


def test_a_device_is_never_given_to_two_claims(node: DriverNode) -> None:
    one, two = node.allocate("one", result("gary")), node.allocate("two", result("gary"))
    node.prepare(one)
    for _ in range(2):
        assert "gary is held by claim default/one" == node.refusal(two)
        node.restart()
    node.unprepare(one)
    assert ["gary"] == [each.id for each in node.prepare(two)]


def test_admin_access_holds_nothing_and_does_not_disturb_who_does(node: DriverNode) -> None:
    user, watcher = (
        node.allocate("user", result("gary")),
        node.allocate("watcher", result("gary", adminAccess=True)),
    )
    node.prepare(watcher)
    node.prepare(user)
    node.plugin.calls.clear()
    node.unprepare(watcher)
    node.prepare(watcher)
    assert [("allocate", ["gary"])] == node.plugin.calls  # neither pre_start nor released
    node.restart()
    assert {(RESOURCE, "gary"): user} == node.ownership.claims()


def test_a_device_with_and_without_admin_access_is_held(node: DriverNode) -> None:
    results = result("gary", "a"), result("gary", "b", adminAccess=True)
    claim = node.allocate("both", *results)
    given = node.prepare(claim)
    assert [(cdi_name(claim, "a"),), (cdi_name(claim, "b"),)] == [
        tuple(one.cdi_names) for one in given
    ]
    assert {(RESOURCE, "gary"): claim} == node.ownership.claims()


def run_all(*calls: Callable[[], object]) -> None:
    """Make ``calls`` at once, and wait until they have ended."""
    with ThreadPoolExecutor(len(calls)) as pool:
        for one in [pool.submit(call) for call in calls]:
            one.result(PATIENCE)


def test_two_calls_for_one_claim_prepare_it_once(node: DriverNode) -> None:
    claim = node.allocate("one", result("gary"))
    run_all(*[lambda: node.prepare(claim)] * 8)
    assert [("pre_start", ["gary"]), ("allocate", ["gary"])] == node.plugin.calls


def test_a_call_gives_up_while_an_earlier_one_for_the_claim_is_under_way(node: DriverNode) -> None:
    claim, wait = node.allocate("one", result("gary")), threading.Event()
    node.plugin.pre_start = lambda _devices: wait.wait(30)  # type: ignore[assignment, method-assign]
    first = threading.Thread(target=node.prepare, args=(claim,))
    first.start()
    eventually(node.recorded)
    with pytest.raises(dp.AllocationError, match="an earlier call for this claim is still"):
        node.prepare(claim, seconds=0.01)
    wait.set()
    first.join()


# Several claims of one call.


def three(node: DriverNode) -> list[Claim]:
    return [node.allocate(name, result(name)) for name in ("gary", "gerd", "gina")]


def test_what_fails_for_one_claim_costs_no_other_of_its_call(node: DriverNode) -> None:
    claims = [*three(node), node.allocate("odd", result("nobody")), Claim("default", "no", "no")]
    node.prepare(node.allocate("first", result("gerd")))
    expected = {
        "uid-gary": ["gary"],
        "uid-gerd": "gerd is held by claim default/first",
        "uid-gina": ["gina"],
        "uid-odd": f"unknown device: device nobody of pool {POOL}",
        "no": "the API server answers 404",
    }
    assert expected == node.prepare_all(*claims) == node.prepare_all(*reversed(claims))
    assert dict.fromkeys(expected) == node.unprepare_all(*claims)
    assert ["uid-first.json"] == node.recorded()


def test_claims_of_a_call_are_read_side_by_side_and_those_that_wait_come_last(
    node: DriverNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    get, claims = node.store.get, three(node)
    together, failures = threading.Barrier(len(claims)), [UnavailableError("away")]
    prepared: list[list[str]] = []

    def read(namespace: str, name: str, timeout: float = 0.0) -> Mapping[str, Any]:
        if len(node.store.reads) < len(claims):
            found = get(namespace, name, timeout)
            together.wait(PATIENCE)
            if name == "gary":
                raise failures.pop()
            return found
        prepared.append(node.recorded())
        return get(namespace, name, timeout)

    monkeypatch.setattr(node.store, "get", read)
    assert {f"uid-{one}": [one] for one in ("gary", "gerd", "gina")} == node.prepare_all(*claims)
    assert [["uid-gerd.json", "uid-gina.json"]] == prepared


def test_a_call_has_one_sync_of_the_directory_and_each_record_one_of_its_own(
    node: DriverNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims, sync, synced = three(node), os.fsync, list[str]()

    def noting(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name.partition(".json")[0])
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", noting)
    node.prepare_all(*claims)
    assert ("claims", [".uid-gary", ".uid-gerd", ".uid-gina"]) == (synced.pop(), sorted(synced))
    synced.clear()
    node.unprepare_all(*claims)
    assert ["claims"] == synced


def test_calls_for_the_same_claims_in_another_order_all_end_and_prepare_each_once(
    node: DriverNode,
) -> None:
    claims, answers = three(node), list[Any]()
    orders = [claims[turn:] + claims[:turn] for turn in range(3)] + [claims[::-1]] * 3
    run_all(*(lambda order=one: answers.append(node.prepare_all(*order)) for one in orders))
    assert [{f"uid-{one}": [one] for one in ("gary", "gerd", "gina")}] * 6 == answers
    assert 3 == [hook for hook, _ in node.plugin.calls].count("allocate")


def test_a_call_that_may_change_no_claims_prepares_none(
    node: DriverNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = FileLock(node.path / "no" / "lock").take
    monkeypatch.setattr(node.preparing, "turn", lambda _left: turn())
    refused = f"{node.path / 'no' / 'lock'}: No such file or directory"
    assert {f"uid-{one}": refused for one in ("gary", "gerd", "gina")} == node.prepare_all(
        *three(node)
    )


# What is refused.


def refused(node: DriverNode, *results: Any, **more: Any) -> str:
    before = node.recorded(), node.cdi_files(), dict(node.ownership.claims())
    text = node.refusal(node.allocate("refused", *results, **more))
    assert before == (node.recorded(), node.cdi_files(), dict(node.ownership.claims()))
    return text


def test_devices_that_are_not_there_are_named(node: DriverNode) -> None:
    expected = f"unknown device: device nobody of pool {POOL}"
    assert expected == refused(node, result("nobody"))
    assert "unknown device: device gary of pool elsewhere" == refused(
        node, result("gary", pool="elsewhere")
    )


def test_an_unhealthy_device_is_given_only_to_claims_that_tolerate_that(node: DriverNode) -> None:
    node.resource.publish([gopher("gary", health=dp.Health.unhealthy("hot"))])
    assert "unhealthy device: gary (hot)" == refused(node, result("gary"))
    tolerating = node.allocate("one", result("gary", tolerations=[{"operator": "Exists"}]))
    assert ["gary"] == [one.id for one in node.prepare(tolerating)]
    watching = node.allocate("two", result("gary", adminAccess=True))
    assert ["gary"] == [one.id for one in node.prepare(watching)]


@pytest.mark.parametrize("hook", ["pre_start", "allocate"])
def test_whatever_a_hook_raises_gives_nothing_to_anybody(node: DriverNode, hook: str) -> None:
    for error, expected in (
        (dp.AllocationError("no"), "no"),
        (KeyError("model"), "KeyError: 'model'"),
        (SystemExit(3), "SystemExit: 3"),
    ):
        node.plugin.errors[hook] = error
        assert refused(node, result("gary")).startswith(expected)
    node.plugin.errors.clear()
    node.prepare(node.allocate("one", result("gary")))


def test_an_allocation_that_no_runtime_takes_is_refused(
    node: DriverNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong: Any = "nothing"
    monkeypatch.setattr(node.plugin, "allocate", lambda _devices: wrong)
    assert "must return an Allocation, not 'nothing'" in refused(node, result("gary"))
    wrong = dp.Allocation(nodes=[dp.DeviceNode("dev/relative")])
    assert "is not absolute" in refused(node, result("gary"))
    wrong = dp.Allocation(envs={"A": "1"})
    with pytest.raises(dp.AllocationError, match=r"no runtime would accept its CDI file: .*is not"):
        node.prepare(node.allocate("one", result("gary", "odd request")))


def test_a_hook_that_hangs_is_given_up(node: DriverNode, monkeypatch: pytest.MonkeyPatch) -> None:
    wait = threading.Event()
    monkeypatch.setattr(node.plugin, "allocate", lambda _devices: wait.wait(30))
    claim = node.allocate("one", result("gary"))
    with pytest.raises(HookTimeoutError, match=r"did not return within 0\.05 s"):
        node.prepare(claim, seconds=0.05)
    wait.set()
    assert [] == node.recorded()
    with pytest.raises(dp.AllocationError, match="no time is left"):
        node.prepare(claim, seconds=0)


def test_a_uid_that_is_a_path_is_refused(node: DriverNode) -> None:
    claim = Claim("default", "one", "../../etc/passwd")
    assert "'../../etc/passwd' is not the uid of a claim" == node.refusal(claim)
    node.unprepare(claim)


def test_a_directory_that_cannot_be_written_gives_nothing(node: DriverNode) -> None:
    claim = node.allocate("one", result("gary"))
    with full_disk():
        assert f"{node.claims_dir / 'uid-one.json'}: File too large" == node.refusal(claim)
    assert ([], [], {}) == (node.plugin.calls, node.recorded(), node.ownership.claims())
    node.cdi_dir.write_text("a file")
    assert "File exists" in node.refusal(claim)
    assert ([], {}) == (node.recorded(), node.ownership.claims())
    node.cdi_dir.unlink()
    node.prepare(claim)


def test_claims_whose_records_may_not_survive_are_answered_once_they_do(
    node: DriverNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = [node.allocate(name, result(name)) for name in ("gary", "gerd")]
    failed = {one.uid: f"{node.claims_dir}: Input/output error" for one in claims}
    for call in (node.prepare_all, node.unprepare_all):
        with failing_syncs(monkeypatch, errno.EIO):
            for _ in range(2):
                assert failed == {uid: str(one) for uid, one in call(*claims).items()}
        assert not {*failed.values()} & {*map(str, call(*claims).values())}
    assert ([], [], {}) == (node.recorded(), node.cdi_files(), node.ownership.claims())


def test_what_cannot_be_undone_stays_withheld(
    node: DriverNode, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_uid: str) -> None:
        raise OSError(30, "Read-only file system", "/claims")

    claim = node.allocate("one", result("gary"))
    node.plugin.errors["allocate"] = dp.AllocationError("no")
    with monkeypatch.context() as patch:
        patch.setattr(node.records, "remove", fail)
        assert "no" == node.refusal(claim)
        assert ["claim not released"] == [one.message for one in caplog.records]
        with pytest.raises(dp.AllocationError, match="/claims: Read-only file system"):
            node.unprepare(claim)
    other = node.allocate("two", result("gary"))
    assert "gary is held by claim default/one" == node.refusal(other)
    node.restart()
    assert "gary is held by claim default/one" == node.refusal(other)
    node.unprepare(claim)
    node.plugin.errors.clear()
    node.prepare(other)


# Release.


def test_a_released_claim_leaves_nothing_and_its_hook_is_called_once(node: DriverNode) -> None:
    claim = node.allocate("one", result("gina"), result("gary"))
    node.prepare(claim)
    node.store.objects.clear()  # the claim may be deleted by now
    node.unprepare(claim)
    node.unprepare(claim)
    assert [("released", ["gary", "gina"])] == [
        one for one in node.plugin.calls if one[0] == "released"
    ]
    assert ([], [], {}) == (node.recorded(), node.cdi_files(), node.ownership.claims())


def test_a_claim_stays_prepared_until_its_cleaning_up_succeeds(node: DriverNode) -> None:
    claim, other = node.allocate("one", result("gary")), node.allocate("two", result("gary"))
    given = node.prepare(claim)
    node.plugin.errors["released"] = OSError("stuck")
    with pytest.raises(HookFailedError, match="OSError: stuck"):
        node.unprepare(claim)
    assert "gary is held by claim default/one" == node.refusal(other)
    assert given == node.prepare(claim)  # a second pod may use it
    assert 1 == len(node.cdi_files())
    node.plugin.errors.clear()
    node.unprepare(claim)
    node.prepare(other)


def test_what_is_gone_is_cleaned_up_by_its_id_and_without_its_resource_by_nobody(
    node: DriverNode,
) -> None:
    claim, other = node.allocate("one", result("gary")), node.allocate("two", result("gina"))
    node.prepare(claim), node.prepare(other)
    node.resource.publish([])
    node.unprepare(claim)
    assert ("released", ["gary"]) == node.plugin.calls[-1]
    node.resources.clear()
    node.unprepare(other)
    assert ("released", ["gary"]) == node.plugin.calls[-1]
    assert ([], [], {}) == (node.recorded(), node.cdi_files(), node.ownership.claims())


def test_a_driver_that_stops_does_not_wait_for_hooks(node: DriverNode) -> None:
    node.preparing.close()
    with pytest.raises(HookTimeoutError, match="the plugin is stopping"):
        node.prepare(node.allocate("one", result("gary")))
