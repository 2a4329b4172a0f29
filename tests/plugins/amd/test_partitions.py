"""Whole GPUs are divided for claims, and are whole again after the last one."""

import errno
import itertools
import random
import re
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Barrier, Lock

import pytest

import deviceplugin as dp
from amd.claims import Claims
from amd.machines import MI210, MI308, WHOLE, Machine
from amd.tree import AmdTree, Build
from deviceplugin_amd import AmdSettings
from deviceplugin_amd.division import Division, Size
from deviceplugin_amd.switch import Switch, put
from discovered import reasons
from patience import eventually
from served.cluster_node import served

FIRST, SECOND, THIRD = WHOLE.addresses
ALL = ("CPX", "QPX", "DPX")


@pytest.fixture
def node(build: Build) -> AmdTree:
    return build(WHOLE, links=False)


def part(number: int, mode: str = "cpx", address: str = FIRST) -> str:
    return f"{address}-{mode}_nps1-{number}"


def room(devices: list[dp.Device]) -> bool:
    """Return whether counters let all of these be given out at once."""
    parts = [one.part for one in devices if one.part]
    needed: Counter[str] = Counter()
    for one in parts:
        needed.update(one.consumes)
    return all(needed[name] <= most for name, most in parts[0].of.amounts.items())


def mode_of(device: dp.Device) -> str:
    return device.id.rpartition("-")[0]


def published(device: dp.Device) -> object:
    return device.attributes, device.capacity, device.resource, device.topology


# Which there are.


def test_a_whole_gpu_is_offered_with_the_partitions_of_each_mode(node: AmdTree) -> None:
    devices = Claims(node, *ALL).devices()
    modes = {"cpx": 8, "qpx": 4, "dpx": 2}
    expected = {FIRST} | {part(k, mode) for mode, count in modes.items() for k in range(count)}
    assert expected == {one for one in devices if one.startswith(FIRST)}
    whole, one = devices[FIRST], devices[part(3)]
    assert whole.part
    assert one.part
    assert (False, True) == (whole.part.on_demand, one.part.on_demand)
    assert (whole.part.of, whole.resource) == (one.part.of, one.resource)
    assert {"memory": 24 << 30, "simdUnits": 152, "computeUnits": 38} == one.capacity
    assert ("amdgpu-partition", "cpx_nps1", FIRST, "6.8.5") == tuple(
        one.attributes[name]
        for name in ("type", "partitionProfile", "parentPciAddr", "driverVersion")
    )
    assert ((), (f"pci/{FIRST}",)) == (one.nodes, one.hardware)
    assert all(device.health for device in devices.values())


@pytest.mark.parametrize(
    ("dies", "modes"),
    [(8, ALL), (8, ("CPX",)), (8, ("QPX", "DPX")), (6, ("TPX", "CPX")), (4, ("DPX", "CPX"))],
)
def test_counters_let_exactly_partitions_of_one_mode_be_together(
    node: AmdTree, dies: int, modes: tuple[str, ...]
) -> None:
    gpu = next(iter(node.plugin()._reader.read().gpus))
    every = tuple(mode.lower() for mode in ("SPX", "DPX", "TPX", "QPX", "CPX"))
    object.__setattr__(gpu, "modes", every)
    division = Division.of(gpu, Size(dies, 1, 1, 1), [mode.lower() for mode in modes])
    whole = dp.Device(FIRST, hardware=["pci"])
    parts = [division.part(whole, place, "") for place in division.consumed]
    assert {mode.lower() for mode in modes} == division.modes
    for _, group in itertools.groupby(parts, mode_of):
        assert room(list(group)), "all partitions of a mode"
    for one, other in itertools.combinations(parts, 2):
        assert room([one, other]) == (mode_of(one) == mode_of(other))
    amounts = division.counters.amounts
    full = dp.Device(FIRST, part=dp.Part(division.counters, amounts, on_demand=False))
    assert not any(room([full, one]) for one in parts)
    assert 32 >= len(amounts)


@pytest.mark.parametrize(
    ("machine", "modes", "why"),
    [
        (MI210, ("CPX",), "it cannot be divided"),
        (MI308, ("CPX",), "it is cpx_nps1 already"),
        (WHOLE, ("TPX",), "with nps1 it has no mode TPX"),
    ],
)
def test_gpus_that_cannot_be_divided_for_claims_are_named_and_offered_as_before(
    build: Build, machine: Machine, modes: tuple[str, ...], why: str
) -> None:
    tree = build(machine, links=False)
    before = reasons(tree.plugin())
    claims = Claims(tree, *modes, protocol="device-plugin")
    assert before == reasons(claims.plugin)
    assert all(device.part is None for device in claims.devices().values())
    first = tree.machine.addresses[0]
    assert {
        f"{first}: no partitions on demand: {why}",
        "partitions-on-demand: only claims get them: use protocol: dra",
    } <= {*claims.plugin.shortfalls}
    claims.settings |= {"exclude": tree.machine.addresses, "protocol": "dra"}
    claims.start()
    assert not any("on demand" in one for one in claims.plugin.shortfalls)


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda tree: tree.refuse(), "KFD does not say how many XCC it has"),
        (lambda _: None, "/sys is read-only"),
    ],
)
def test_without_privileges_the_component_is_named(
    node: AmdTree, spoil: Callable[[AmdTree], object], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(node)
    monkeypatch.setattr("os.access", lambda _path, _mode: False)
    claims = Claims(node, "CPX")
    assert list(WHOLE.addresses) == list(claims.devices())
    advice = f"{FIRST}: no partitions on demand: {why}: add deployments/components/amd-privileged"
    assert advice in claims.plugin.shortfalls


def test_a_gpu_whose_mode_the_driver_does_not_let_change_has_no_partitions(node: AmdTree) -> None:
    """Of a virtual function the file is read-only, and opening it to write fails even for root."""
    path = node.cards[FIRST].folder / "current_compute_partition"
    path.chmod(0o444)
    claims = Claims(node, "CPX")
    assert 9 * len(WHOLE.addresses) - 8 == len(claims.devices())
    why = "its driver does not let it be divided, as in a virtual machine"
    assert [f"{FIRST}: no partitions on demand: {why}"] == list(claims.plugin.shortfalls)


def test_settings_that_exclude_each_other_are_refused() -> None:
    for given, key in (({"shares": 2}, "shares: 2"), ({"state_file": None}, "state-file")):
        with pytest.raises(dp.ConfigError, match=key):
            AmdSettings(partitions_on_demand=("CPX",), **given)


# Making and unmaking.


def test_the_first_claim_divides_a_gpu_and_the_last_one_makes_it_whole(node: AmdTree) -> None:
    claims = Claims(node, *ALL)
    before = claims.devices()
    made = claims.prepare(part(3))
    assert ["/dev/kfd", "/dev/dri/card4", "/dev/dri/renderD131"] == [
        one.container_path for one in made.nodes
    ]
    claims.prepare(part(0))
    now = claims.devices()
    assert before.keys() == now.keys()
    assert {} == {key: str(one.health) for key, one in now.items() if not one.health}
    for key in before:
        assert published(before[key]) == published(now[key]), "slices stay as they are"
    assert made.nodes == now[part(3)].nodes
    claims.unprepare(part(3))
    assert "CPX" == claims.mode(FIRST)
    claims.unprepare(part(0))
    assert [f"{FIRST} CPX", f"{FIRST} SPX"] == node.writes
    assert before == claims.devices()
    claims.plugin.allocate([before[FIRST]])
    claims.prepare(part(1, "qpx"))
    assert "QPX" == claims.mode(FIRST)


def test_claims_that_end_at_the_same_time_leave_a_whole_gpu(node: AmdTree) -> None:
    """Records go after the hooks have returned, of a claim with two partitions after both."""
    claims = Claims(node, "CPX")
    for number in (2, 5):
        claims.prepare(part(number))
    for number in (2, 5, 5):  # the kubelet tries again
        claims.plugin.unmake_part(dp.Device(part(number)), claims.made[part(number)])
    assert "SPX" == claims.mode(FIRST)
    claims.made.clear()
    assert {} == {key: one for key, one in claims.devices().items() if not one.health}
    claims.prepare(part(2))
    claims.plugin.unmake_part(dp.Device(part(5)), "")
    assert "CPX" == claims.mode(FIRST)


def test_a_discovery_beside_the_end_of_a_claim_sees_the_gpu_as_it_is_then(node: AmdTree) -> None:
    claims = Claims(node, "CPX")
    before = claims.devices()
    claims.prepare(part(2))
    snapshot = claims.plugin._found

    def beside() -> object:
        found = snapshot()
        if claims.made:
            claims.plugin.unmake_part(dp.Device(part(2)), claims.made.pop(part(2)))
            claims.plugin.made = {}
        return found

    claims.plugin._found = beside  # type: ignore[assignment,method-assign]
    assert before == {device.id: device for device in claims.plugin.discover()}


def test_gpus_are_divided_one_at_a_time(node: AmdTree) -> None:
    claims, busy, start = Claims(node, "CPX"), Lock(), Barrier(3)
    wanted = [claims.begin(part(2, address=address)) for address in WHOLE.addresses]

    def alone(path: Path, text: str) -> None:
        assert busy.acquire(blocking=False)
        node.put(path, text)
        busy.release()

    def make(device: dp.Device) -> dp.Device:
        start.wait()
        return claims.plugin.make_part(device)

    switch(claims)._put = alone
    with ThreadPoolExecutor(3) as threads:
        made = list(threads.map(make, wanted))
    assert 3 == len({one.nodes[-1] for one in made})


def test_a_kernel_that_is_slow_is_waited_for(node: AmdTree) -> None:
    """The file says the mode at once here, and KFD's nodes are others some time later."""
    claims = Claims(node, "CPX")
    steps = itertools.count(1)

    def go_on(_seconds: float) -> None:
        if next(steps) == 3:
            node.divide(FIRST, "CPX")

    switch(claims)._put, switch(claims)._pause = put, go_on
    claims.prepare(part(7))
    assert 4 == next(steps)
    switch(claims)._pause = lambda _seconds: None
    hurry(claims)
    with pytest.raises(dp.DevicePluginError, match="its KFD nodes are 1 of another style"):
        claims.prepare(part(7, address=SECOND))
    with pytest.raises(FileNotFoundError):
        put(node.root / "absent", "CPX")


def test_making_and_unmaking_are_idempotent_over_restarts(node: AmdTree) -> None:
    claims = Claims(node, "CPX")
    made = claims.prepare(part(2))
    for _ in range(2):
        claims.start()
        assert made == claims.prepare(part(2))
    assert [f"{FIRST} CPX"] == node.writes
    identity = claims.made[part(2)]
    claims.unprepare(part(2))
    claims.plugin.unmake_part(dp.Device(part(2)), identity)
    claims.plugin.unmake_part(dp.Device(part(2)), "")
    assert [f"{FIRST} CPX", f"{FIRST} SPX"] == node.writes


def test_two_processes_forget_nothing_that_the_other_has_divided(node: AmdTree) -> None:
    one, other = Claims(node, "CPX"), Claims(node, "CPX")
    one.prepare(part(2))
    other.prepare(part(2, address=SECOND))
    other.made |= one.made
    other.prepare(part(3))
    assert [f"{FIRST} CPX", f"{SECOND} CPX"] == node.writes
    other.start()
    for held in [*other.made]:
        other.unprepare(held)
    assert ["SPX", "SPX"] == [other.mode(gpu) for gpu in (FIRST, SECOND)]
    one.made.clear()
    one.prepare(part(0, "dpx"))
    assert "DPX" == one.mode(FIRST)


def test_a_lost_file_costs_no_claim_its_partition(node: AmdTree) -> None:
    claims = Claims(node, "CPX")
    claims.prepare(part(2))
    claims.settings["state_file"] = node.root / "elsewhere/health.json"
    claims.start()
    assert claims.devices()[part(2)].health
    claims.prepare(part(3))
    claims.start()
    claims.unprepare(part(2))
    claims.unprepare(part(3))
    assert "SPX" == claims.mode(FIRST)


def test_after_a_reboot_partitions_are_made_again(node: AmdTree) -> None:
    claims = Claims(node, "CPX")
    first, _ = claims.prepare(part(2)), claims.prepare(part(3))
    claims.reboot()
    assert {} == {key: str(one.health) for key, one in claims.devices().items() if not one.health}
    again = claims.prepare(part(2))
    assert (first.nodes, "CPX") == (again.nodes, claims.mode(FIRST))
    assert first.part != again.part
    claims.unprepare(part(3))
    claims.unprepare(part(2))
    assert "SPX" == claims.mode(FIRST)


@pytest.mark.parametrize("is_written", [False, True])
def test_a_crash_while_a_gpu_is_divided_leaves_nothing(node: AmdTree, *, is_written: bool) -> None:
    class Crash(BaseException):
        pass

    def odd(path: Path, text: str) -> None:
        if is_written:
            node.put(path, text)
        raise Crash

    claims = Claims(node, "CPX")
    for finish in (claims.prepare, claims.unprepare, claims.made.pop):
        device = claims.begin(part(5))
        switch(claims)._put = odd
        with pytest.raises(Crash):
            claims.plugin.make_part(device)
        claims.start()
        finish(part(5))
        whole = claims.devices()[FIRST]
        lost = "it is cpx_nps1 for a claim that is not recorded any more: make it SPX"
        is_lost = is_written and part(5) not in claims.made and "CPX" == claims.mode(FIRST)
        assert (lost if is_lost else "") == whole.health.reason
        assert part(5) not in claims.made or "CPX" == claims.mode(FIRST)
        claims.prepare(part(5))
        claims.unprepare(part(5))
        assert "SPX" == claims.mode(FIRST)
        assert {} == {key: one for key, one in claims.devices().items() if not one.health}


@pytest.mark.parametrize(
    ("errors", "why"),
    [
        ([errno.EBUSY] * 999, "the driver is busy: a process that may use the GPU has /dev/kfd"),
        ([errno.EPERM], "it is in reset, or the container is not privileged"),
        ([errno.EROFS], "/sys is read-only: add deployments/components/amd-privileged"),
        ([errno.EINVAL], "the driver does not allow it for this GPU and its memory mode"),
        ([errno.EIO], "Input/output error"),
    ],
)
def test_what_the_driver_refuses_is_said_in_words_and_leaves_the_gpu_whole(
    node: AmdTree, errors: list[int], why: str
) -> None:
    claims = Claims(node, "CPX")
    hurry(claims)
    node.errors = errors
    with pytest.raises(dp.DevicePluginError, match=why):
        claims.prepare(part(1))
    node.errors = []
    claims.devices()
    assert ("SPX", {}, {}) == (claims.mode(FIRST), switch(claims).divided, claims.made)
    claims.prepare(part(1))


def hurry(claims: Claims) -> None:
    """Have waits of the plugin be over at once, with the clock that they go by."""
    switch(claims)._clock = itertools.count(step=5).__next__


def switch(claims: Claims) -> Switch:
    partitions = claims.plugin._on_demand()
    assert partitions
    return partitions._switch


def test_a_gpu_that_a_process_uses_is_waited_for_and_not_divided(node: AmdTree) -> None:
    claims = Claims(node, "CPX")
    hurry(claims)
    node.use(node.node(FIRST), 4711, 3 << 30)
    with pytest.raises(dp.DevicePluginError, match=r"still in use by process 4711 \(3.0 GiB\)"):
        claims.prepare(part(1))
    assert [] == node.writes
    switch(claims)._pause = lambda _seconds: node.end(4711)
    claims.prepare(part(1))
    switch(claims)._pause = lambda _seconds: None
    node.use(node.node(FIRST, 1), 4712, 3 << 30)
    with pytest.raises(dp.DevicePluginError, match="process 4712"):
        claims.unprepare(part(1))
    assert ("CPX", [part(1)]) == (claims.mode(FIRST), [*claims.made])
    node.end(4712)
    claims.unprepare(part(1))
    assert "SPX" == claims.mode(FIRST)


def test_a_partition_that_an_ended_pod_still_uses_is_not_given_to_the_next(node: AmdTree) -> None:
    claims = Claims(node, "CPX")
    claims.plugin._handover._clock = itertools.count(step=5).__next__
    claims.prepare(part(0))
    node.use(node.node(FIRST, 1), 4711, 3 << 30)
    with pytest.raises(dp.AllocationError, match="still in use by process 4711"):
        claims.prepare(part(1))
    assert "still in use" in claims.devices()[part(1)].health.reason
    assert claims.devices()[part(0)].health
    assert claims.devices()[FIRST].health
    node.end(4711)
    claims.prepare(part(1))


def test_a_gpu_in_reset_or_gone_gets_no_partition(node: AmdTree) -> None:
    claims = Claims(node, "CPX")
    device = claims.begin(part(1))
    path = node.cards[FIRST].folder / "current_compute_partition"
    node.kernel.faults[path] = errno.EPERM
    assert "in reset" == claims.devices()[part(1)].health.reason
    with pytest.raises(dp.AllocationError, match="Operation not permitted"):
        claims.plugin.make_part(device)
    del node.kernel.faults[path]
    node.vanish(FIRST)
    with pytest.raises(dp.AllocationError, match="it is gone"):
        claims.plugin.make_part(device)
    claims.unprepare(part(1))
    for odd in (FIRST, "nonsense", part(1, address="0000:ff:00.0")):
        with pytest.raises(dp.AllocationError, match="no such partition"):
            claims.plugin.make_part(dp.Device(odd))


def test_nothing_is_divided_that_could_not_be_remembered(node: AmdTree) -> None:
    (node.root / "file").write_text("")
    claims = Claims(node, "CPX", state_file=node.root / "file/health.json")
    with pytest.raises(dp.AllocationError, match="the state-file cannot be written"):
        claims.prepare(part(1))
    assert [] == node.writes


def test_a_partition_without_a_render_node_is_refused_at_once_and_then_unhealthy(
    build: Build,
) -> None:
    """A BMC's screen takes one of the 64 numbers that older kernels have."""
    tree = build(replace(WHOLE, minors=23), links=False)
    last = THIRD
    claims = Claims(tree, "CPX")
    with pytest.raises(dp.DevicePluginError, match="the kernel has no render node for it"):
        claims.prepare(part(7, address=last))
    assert "SPX" == claims.mode(last)
    claims.prepare(part(6, address=last))
    devices = claims.devices()
    assert [part(7, address=last)] == [key for key, one in devices.items() if not one.health]


def test_a_kernel_that_renumbers_other_gpus_divides_no_more(node: AmdTree) -> None:
    def odd(path: Path, text: str) -> None:
        node.put(path, text)
        moved = node.cards[SECOND].minors
        moved[1], moved[2] = moved[2], moved[1]
        node.topology()

    claims = Claims(node, "CPX")
    claims.prepare(part(1, address=SECOND))
    switch(claims)._put = odd
    for address in (FIRST, THIRD):
        with pytest.raises(
            dp.DevicePluginError, match="has renumbered the render nodes of 0000:27"
        ):
            claims.prepare(part(1, address=address))
    claims.devices()
    assert ("SPX", "SPX") == (claims.mode(FIRST), claims.mode(THIRD))


# What somebody else does.


@pytest.mark.parametrize(
    ("mode", "memory", "why"),
    [
        ("QPX", "NPS1", "somebody else has divided the GPU: it is qpx_nps1"),
        ("CPX", "NPS4", "somebody else has divided the GPU: it is cpx_nps4"),
        ("SPX", "NPS1", "somebody else has made the GPU whole, or has bound it anew"),
    ],
)
def test_what_an_administrator_changes_under_claims_is_theirs_and_the_claims_are_unhealthy(
    node: AmdTree, mode: str, memory: str, why: str
) -> None:
    claims = Claims(node, "CPX")
    claims.prepare(part(1))
    claims.prepare(part(1, address=SECOND))
    node.divide(FIRST, mode, memory)
    devices = claims.devices()
    assert (why, "partition-changed") == (
        devices[part(1)].health.reason,
        devices[part(1)].health.cause,
    )
    assert {FIRST} == {key.partition("-")[0] for key, one in devices.items() if not one.health}
    assert not [key for key in devices if "qpx" in key], "claims still have what it was"
    claims.unprepare(part(1))
    assert mode == claims.mode(FIRST)
    assert 2 == len(node.writes)
    assert all(one.health for one in claims.devices().values())


def test_partitions_of_a_driver_that_is_bound_anew_are_unhealthy(node: AmdTree) -> None:
    claims = Claims(node, "CPX")
    claims.prepare(part(1))
    node.divide(FIRST, "SPX")
    node.bind_anew(FIRST)
    assert "partition-changed" == claims.devices()[part(1)].health.cause
    claims.unprepare(part(1))
    assert all(one.health for one in claims.devices().values())


def test_a_gpu_that_an_administrator_has_divided_is_not_taken_for_the_plugins(
    node: AmdTree,
) -> None:
    claims = Claims(node, "CPX", resource_naming_strategy="mixed")
    device = claims.begin(part(1))
    node.divide(FIRST, "CPX")  # after the claim was allocated
    with pytest.raises(dp.AllocationError, match="the GPU is divided already: it is cpx_nps1"):
        claims.plugin.make_part(device)
    claims.unprepare(part(1))
    assert ([], "CPX") == (node.writes, claims.mode(FIRST))
    claims.prepare(part(1, address=SECOND))
    with pytest.raises(dp.AllocationError, match="the GPU's memory mode is nps1"):
        claims.plugin.make_part(dp.Device(f"{THIRD}-cpx_nps4-1"))
    static = claims.devices()[part(1)]
    assert (None, True) == (static.part, bool(static.health))


def test_a_setting_that_is_taken_away_ends_with_the_last_claim(node: AmdTree) -> None:
    claims = Claims(node, "CPX")
    claims.prepare(part(1))
    claims.settings["partitions_on_demand"] = ()
    claims.start()
    assert {*WHOLE.addresses, part(1)} == claims.devices().keys()
    claims.unprepare(part(1))
    assert "SPX" == claims.mode(FIRST)
    claims.start()
    assert list(WHOLE.addresses) == list(claims.devices())
    with pytest.raises(dp.AllocationError, match="partitions-on-demand is not set"):
        claims.plugin.make_part(dp.Device(part(1)))
    claims.plugin.unmake_part(dp.Device(part(1)), "")


class Story:
    """Claims that come and go beside crashes, errors, reboots and an administrator."""

    def __init__(self, node: AmdTree, seed: int) -> None:
        self.node, self.chance = node, random.Random(seed)
        self.claims = Claims(node, *ALL)
        self.foreign: set[str] = set()
        """GPUs that the administrator has divided."""

    def go_on(self) -> None:
        """Let something happen; nobody loses anything by it."""
        before = {address: self.claims.mode(address) for address in self.foreign}
        deeds = [self.prepare] * 3 + [self.unprepare] * 2
        deeds += [self.claims.start, self.reboot, self.divide, self.fail]
        deed = self.chance.choice(deeds)
        with suppress(dp.DevicePluginError):
            deed()
        devices = self.claims.devices()
        for key in self.claims.made:
            address, _, rest = key.partition("-")
            assert rest.partition("_")[0] == self.claims.mode(address).lower()
            assert devices[key].health, key
        if deed not in (self.divide, self.reboot):
            assert before == {address: self.claims.mode(address) for address in before}

    def end(self) -> None:
        """Let all claims end: GPUs are whole, but for the administrator's."""
        self.node.errors.clear()
        for one in [*self.claims.made]:
            self.claims.unprepare(one)
        whole = {address for address in self.node.cards if self.claims.mode(address) == "SPX"}
        assert whole == self.node.cards.keys() - self.foreign

    def prepare(self) -> None:
        devices, made = self.claims.devices(), self.claims.made
        demand = [one for one in devices.values() if one.part and one.part.on_demand]
        free = [one for one in demand if one.health and one.id not in made]
        wanted = self.chance.choice(free) if free else None
        if wanted and room([*(devices[one] for one in made if one[:7] == wanted.id[:7]), wanted]):
            self.claims.prepare(wanted.id)

    def unprepare(self) -> None:
        """End claims at the same time: their records go after all hooks."""
        made, ended = self.claims.made, []
        for one in self.chance.sample([*made], k=self.chance.randint(0, min(3, len(made)))):
            with suppress(dp.DevicePluginError):
                self.claims.plugin.unmake_part(dp.Device(one), made[one])
                ended.append(one)
        for one in ended:
            del made[one]

    def reboot(self) -> None:
        self.foreign.clear()
        self.node.errors.clear()
        self.claims.reboot()
        for one in [*self.claims.made]:
            self.claims.prepare(one)

    def divide(self) -> None:
        """Have the administrator divide a GPU that no claim has, or make it whole."""
        address = self.chance.choice([*self.node.cards])
        if not any(one.startswith(address) for one in self.claims.made):
            mode = self.chance.choice(("SPX", *ALL))
            self.node.divide(address, mode)
            self.foreign.discard(address)
            self.foreign.update({address} if mode != "SPX" else ())

    def fail(self) -> None:
        self.node.errors.append(self.chance.choice((errno.EPERM, errno.EIO, errno.EINVAL)))


@pytest.mark.parametrize(
    ("seed", "steps"),
    [
        (0, 8),
        (1, 8),
        *(pytest.param(seed, 40, marks=pytest.mark.slow) for seed in (*range(2, 12), 131)),
    ],
)
def test_whatever_happens_claims_have_their_partitions_and_others_lose_nothing(
    build: Build, seed: int, steps: int
) -> None:
    story = Story(build(replace(WHOLE, addresses=(FIRST, SECOND)), links=False), seed)
    for _ in range(steps):
        story.go_on()
    story.end()


@pytest.mark.slow
def test_pods_with_claims_get_partitions_and_the_last_one_leaves_a_whole_gpu(
    node: AmdTree, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The framework, a kubelet and an API server, on simulated hardware."""
    plugin = node.plugin(partitions_on_demand=("CPX", "DPX"), protocol="dra")
    mode = node.cards[FIRST].folder / "current_compute_partition"

    def crowded(device_id: str) -> bool:
        errors = [str(vars(record).get("error")) for record in caplog.records]
        return any(device_id in error and "without room" in error for error in errors)

    with served(root, plugin, protocol="dra") as home:
        home.await_offer()
        named = {device_id: place for place, (_, device_id) in home.offered().items()}
        one, other = (home.claim(*named[part(number)]) for number in (2, 5))
        given = [each.host_path for pod in (one, other) for each in home.got(pod).devices]
        assert {"dri/renderD130", "dri/renderD133"} == {
            f"dri/{Path(path).name}" for path in given if "renderD" in path
        }
        assert "CPX\n" == mode.read_text()
        assert {part(2), part(5)} == plugin.made.keys()
        wide, whole = (home.claim(*named[name]) for name in (part(0, "dpx"), FIRST))
        refused = {part(0, "dpx"), FIRST}
        eventually(lambda: refused == {one for one in refused if crowded(one)}, lambda: caplog.text)
        for pod in (wide, whole):
            assert "Running" != home.status(pod).get("phase"), "it has no room beside them"
        for pod in (whole, one, other):
            home.end(pod)
        home.got(wide)
        assert ["CPX", "SPX", "DPX"] == [line.split()[1] for line in node.writes]
        home.end(wide)
        eventually(lambda: "SPX\n" == mode.read_text() and not plugin.made)


@pytest.mark.slow
def test_a_claim_by_the_class_of_the_page_has_two_partitions_and_leaves_a_whole_gpu(
    node: AmdTree, root: Path
) -> None:
    """Beside a GPU that cannot be divided, whose devices have no attribute of partitions."""
    for path in node.cards[FIRST].folder.glob("*_partition"):
        path.unlink()
    page = (Path(__file__).parents[3] / "plugins/amd/README.md").read_text()
    (expression,) = re.findall(r"expression: >-\n((?: {8}.*\n)+)", page)
    requests = [{"name": "r", "exactly": {"deviceClassName": "amd-cpx", "count": 2}}]
    plugin = node.plugin(partitions_on_demand=("CPX", "DPX"), protocol="dra")
    driver = "amd-gpu.device-plugins"
    with served(root, plugin, protocol="dra", driver_name=driver) as home:
        for kind, name, spec in (
            ("DeviceClass", "amd-cpx", {"selectors": [{"cel": {"expression": expression}}]}),
            ("ResourceClaim", "two", {"devices": {"requests": requests}}),
        ):
            home.cluster.create({"kind": kind, "metadata": {"name": name}, "spec": spec})
        pod = home.claiming({"name": "c", "resourceClaimName": "two"})
        assert 2 == sum("renderD" in one.host_path for one in home.got(pod).devices)
        assert {f"{SECOND}-cpx_nps1"} == {one.rpartition("-")[0] for one in plugin.made}
        home.end(pod)
        eventually(lambda: not plugin.made, lambda: f"{plugin.made}")
        assert ["CPX", "SPX"] == [line.split()[1] for line in node.writes]
