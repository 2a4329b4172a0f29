"""Random sequences of events, and what must hold whatever happens.

With all defects fixed it does hold. With any single defect of Kubernetes 1.36 it does not, and the
search finds out how.
"""

import shutil
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from deviceplugin_testing.simulator import (
    Behaviour,
    Container,
    ContainerStartError,
    KubeletConfig,
    KubeletCrashed,
    Outcome,
    Pod,
    StubDriver,
    StubError,
    StubPlugin,
)
from kubelets.equipped import PRE_START, Kubelet, during_allocate, refusal
from patience import eventually

RESOURCES = ("x.io/one", "x.io/two")
IDS = ("a", "b", "c")

RARE = {"failed_allocation_leaks", "failed_registration_orphans", "collection_forgets_in_flight"}
"""The defects that are found after many histories only."""
LIFE = settings(
    stateful_step_count=25,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
SEARCH = settings(LIFE, max_examples=200, phases=[Phase.generate], derandomize=True)

resources = st.sampled_from(RESOURCES)
lists = st.dictionaries(st.sampled_from(IDS), st.sampled_from(["Healthy", "Unhealthy"]))


class Life(RuleBasedStateMachine):
    """A kubelet, a plugin for each of two resources with equal device ids, and pods."""

    behaviour: ClassVar = Behaviour.fixed()

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="dp"))
        quiet = KubeletConfig(watch_interval=None, sync_interval=None)
        self.kubelet = Kubelet(self.root, behaviour=self.behaviour, config=quiet)
        self.kubelet.start()
        self.incarnations = 0
        self.plugins: dict[str, StubPlugin] = {}
        self.active: dict[str, Outcome] = {}
        self.pods = 0
        self.driver: StubDriver | None = None
        for resource in RESOURCES:
            self.replace_plugin(resource, dict.fromkeys(IDS, "Healthy"))

    def teardown(self) -> None:
        self.kubelet.__exit__()
        shutil.rmtree(self.root)

    # Plugins

    def start_plugin(self, resource: str, devices: dict[str, str]) -> StubPlugin:
        self.incarnations += 1
        name = f"{self.incarnations}.sock"
        return self.kubelet.stub(resource, devices, name=name, options=PRE_START)

    def replace_plugin(self, resource: str, devices: dict[str, str]) -> None:
        plugin = self.start_plugin(resource, devices)
        self.kubelet.after_a_list(resource, plugin.register)
        self.plugins[resource] = plugin

    @rule(resource=resources, devices=lists)
    def surge(self, resource: str, devices: dict[str, str]) -> None:
        """A new plugin registers, sends its list, and only then does the old one end."""
        old = self.plugins[resource]
        self.replace_plugin(resource, devices)
        before = self.kubelet.devices(resource)
        old.update({"stale": "Healthy"})
        old.stop()
        self.kubelet.wait(lambda: self._streams(resource) < 2, what="the old stream to end")
        assert before == self.kubelet.devices(resource), "a replaced plugin has changed the list"
        assert resource in self.kubelet.registered, "the new plugin was disconnected"

    @rule(resource=resources, devices=lists)
    def restart_plugin(self, resource: str, devices: dict[str, str]) -> None:
        self.plugins[resource].stop()
        self.kubelet.wait(lambda: resource not in self.kubelet.registered)
        assert 0 == self.kubelet.allocatable(resource), "the death of a plugin went unnoticed"
        self.replace_plugin(resource, devices)

    @rule(resource=resources)
    def fail_to_register(self, resource: str) -> None:
        broken = self.start_plugin(resource, {})
        broken.failing["GetDevicePluginOptions"] = StubError("no")
        refusal(broken)
        broken.stop()

    @rule(resource=resources, devices=lists)
    def list_devices(self, resource: str, devices: dict[str, str]) -> None:
        holders = {
            uid
            for uid, outcome in self.active.items()
            if any(held.get(resource) for held in outcome.devices.values())
        }
        self.kubelet.take_pokes()
        self.kubelet.after_a_list(resource, lambda: self.plugins[resource].update(devices))
        poked = frozenset[str]().union(*self.kubelet.take_pokes())
        assert poked <= holders | (poked - self.active.keys()), "the wrong pod was poked"

    def _streams(self, resource: str) -> int:
        readers = self.kubelet._live().connections._readers
        return sum(reader.name == f"list-{resource}" for reader in readers)

    # Pods

    @rule(resource=resources, wanted=st.integers(0, 2), first=st.integers(0, 2))
    def admit(self, resource: str, wanted: int, first: int) -> None:
        self._admit(resource, wanted, first)

    def _admit(self, resource: str, wanted: int, first: int = 0) -> None:
        self.pods += 1
        pod = Pod(
            f"p{self.pods}",
            [Container("main", {resource: wanted})],
            [Container("init", {resource: first})],
        )
        healthy = self.kubelet.healthy(resource)
        outcome = self.kubelet.run(pod)
        if outcome:
            self.active[pod.uid] = outcome
            got = outcome.devices["main"].get(resource, frozenset())
            assert wanted == len(got)
            assert got <= healthy

    @rule(resource=resources)
    def admit_and_fail(self, resource: str) -> None:
        plugin = self.plugins[resource]
        plugin.failing["Allocate"] = StubError("no")
        self._admit(resource, 1)
        plugin.failing.clear()

    @rule(resource=resources)
    def admit_and_answer_for_no_container(self, resource: str) -> None:
        plugin = self.plugins[resource]
        answer, plugin.on_allocate = plugin.on_allocate, lambda _ids: pb.AllocateResponse()
        self._admit(resource, 1)
        plugin.on_allocate = answer

    def _admit_while(self, resource: str, act: Callable[[], None]) -> None:
        plugin = self.plugins[resource]
        answer = plugin.on_allocate
        during_allocate(plugin, act)
        self._admit(resource, 1)
        plugin.on_allocate = answer

    @rule(resource=resources)
    def admit_while_the_list_is_emptied(self, resource: str) -> None:
        empty = partial(self.plugins[resource].update, {})
        self._admit_while(resource, partial(self.kubelet.after_a_list, resource, empty))

    @rule(resource=resources)
    def admit_while_another_pod_is_collected(self, resource: str) -> None:
        def end_another() -> None:
            self.terminate()
            self.collect()

        self._admit_while(resource, end_another)

    @rule()
    def terminate(self) -> None:
        """The oldest pod comes to its end."""
        for uid in list(self.active)[:1]:
            self.kubelet.terminate(self.active.pop(uid).pod)

    @rule(early=st.booleans())
    def restart_kubelet(self, early: bool) -> None:
        """The plugins come back before the pods do, or after."""
        self.kubelet.restart(readmit=not early)
        for resource in RESOURCES:
            self.plugins[resource].stop()
            devices = {each.ID: each.health for each in self.plugins[resource]._list}
            self.replace_plugin(resource, devices)
        self.kubelet.readmit()
        for uid, outcome in list(self.active.items()):
            if self.kubelet.pod(outcome.pod).terminal:
                del self.active[uid]

    # Claims

    @rule(resource=resources)
    def start_a_container_whose_resource_is_claimed(self, resource: str) -> None:
        self.pods += 1
        claiming = Container("main", {resource: 1}, claimed=frozenset({resource}))
        pod = Pod(f"p{self.pods}", [claiming])
        try:
            assert self.kubelet.run(pod)
        except ContainerStartError as error:
            raise AssertionError(f"a plugin prevents the start: {error}") from None
        self.kubelet.delete(pod)

    @rule()
    def end_a_pod_that_only_refers_to_the_claim_of_another(self) -> None:
        if not self.driver:
            self.driver = self.kubelet.unnoticed()
        eventually(self.finds_the_driver, "the driver to be registered")
        user = self.kubelet.claims.pod("user", "x.io", "pool", ["device"])
        other = replace(user, name="other", uid=f"other-{user.uid}")
        assert self.kubelet.run(user).event == ""
        assert self.kubelet.run(other).event
        before = len(self.driver.unprepared)
        self.kubelet.delete(other)
        assert before == len(self.driver.unprepared), "the claim of a running pod was unprepared"
        self.kubelet.delete(user)

    def finds_the_driver(self) -> bool:
        """Look for it; on a busy machine it may answer too late, and is tried again later."""
        self.kubelet.watch()
        found = "x.io" in self.kubelet.dra.connected
        self.kubelet.clock.advance(0 if found else 1)
        return found

    # What must hold

    def collect(self) -> None:
        self.kubelet._live().manager.collect()

    @invariant()
    def no_device_is_given_to_two_pods(self) -> None:
        for resource in RESOURCES:
            held = [
                id_
                for outcome in self.active.values()
                for id_ in outcome.devices["main"].get(resource, ())
            ]
            assert len(set(held)) == len(held), f"{resource}: {held}"

    @invariant()
    def only_devices_of_pods_are_in_use(self) -> None:
        self.collect()
        for resource in RESOURCES:
            recorded = {
                id_
                for outcome in self.active.values()
                for held in outcome.devices.values()
                for id_ in held.get(resource, ())
            }
            assert recorded == self.kubelet.in_use(resource)

    @invariant()
    def the_node_has_at_least_what_is_allocatable(self) -> None:
        self.kubelet.tick()
        for resource in RESOURCES:
            assert self.kubelet.node.allocatable[resource] <= self.kubelet.node.capacity[resource]


@pytest.mark.parametrize("examples", [3, pytest.param(15, marks=pytest.mark.slow)])
def test_with_all_defects_fixed_nothing_goes_wrong(examples: int) -> None:
    run_state_machine_as_test(Life, settings=settings(LIFE, max_examples=examples))


DEFECTS = [
    pytest.param(one.name, marks=[pytest.mark.slow] if one.name in RARE else [])
    for one in fields(Behaviour)
    if one.name != "prepare_joins_unprepare"  # histories do one thing after the other
]


@pytest.mark.parametrize("defect", DEFECTS)
def test_every_single_defect_is_found(defect: str) -> None:
    found: list[Exception] = []

    class Defective(Life):
        behaviour: ClassVar = replace(Behaviour.fixed(), **{defect: True})

        def teardown(self) -> None:
            error = sys.exc_info()[1]
            if isinstance(error, (AssertionError, KubeletCrashed)):
                found.append(error)
            super().teardown()

    # What was found is tried once more, and that comes to another end if the machine is late.
    with suppress(AssertionError, KubeletCrashed, Flaky):
        run_state_machine_as_test(Defective, settings=SEARCH)
    assert found
