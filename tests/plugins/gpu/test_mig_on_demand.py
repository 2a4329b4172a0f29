"""MIG devices that are made for claims, on the fake driver."""

import json
import os
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest

import deviceplugin as dp
from deviceplugin.kit.containers import Container
from deviceplugin_gpu.parts.switching import Ours
from deviceplugin_gpu.usage import Row, by_holder
from gpu.fake_nvml import H100, FakeGpu, FakeMig, Fleet
from gpu.rig import GPU, GpuRig, devices, unhealthy
from patience import eventually

ID = FakeGpu(0).uuid
PLACES = "1g.10gb@0", "1g.10gb+me@6", "3g.40gb@4", "7g.80gb@0"
SMALL, MEDIA, HALF, ALL = (f"{ID}/{one}" for one in PLACES)
CREATE = "nvmlDeviceCreateGpuInstanceWithPlacement"
COMPLETE = "nvmlGpuInstanceCreateComputeInstance"


class Claims:
    """The framework: it keeps what claims have of one plugin after another."""

    def __init__(self, rig: GpuRig, **given: Any) -> None:
        self.rig, self.given = rig, {"mig_on_demand": "on", **given}
        self.plugin = rig.plugin(**self.given)

    def found(self) -> dict[str, dp.Device]:
        return devices(self.plugin)

    def make(self, part: str, before: str = "") -> dp.Device:
        others = {one: its for one, its in self.plugin.made.items() if one != part}
        device = self.found()[part]
        self.plugin.made = {**others, part: self.plugin.made.get(part, before)}
        try:
            made = self.plugin.make_part(device)
        except dp.AllocationError:
            self.plugin.made = others
            raise
        except dp.DevicePluginError:
            self.plugin.unmake_part(device, "")
            self.plugin.made = others
            raise
        assert made.part
        self.plugin.made = {**others, part: made.part.identity}
        return made

    def unmake(self, part: str) -> None:
        self.plugin.unmake_part(dp.Device(part, resource=GPU), self.plugin.made.get(part, ""))
        self.plugin.made = {one: its for one, its in self.plugin.made.items() if one != part}

    def restart(self, **given: Any) -> None:
        """Go on with another process's plugin, which gets what the records say."""
        made, self.given = self.plugin.made, {**self.given, **given}
        self.plugin = self.rig.plugin(**self.given)
        self.plugin.made = made

    def exist(self) -> list[str]:
        """Return what was made and is there, by GPU instance."""
        there: dict[str, str] = {}
        for line in self.rig.fake.made():
            word, _, rest = line.partition(" 0 ")
            values = dict(one.split("=") for one in rest.split())
            if word == "gone" and "ci" not in values:
                there.pop(values["gi"], None)
            elif word in {"instance", "mig"}:
                there[values["gi"]] = f"{values['profile']}@{values['start']}"
        return sorted(there.values())


@pytest.fixture
def claims(rig: GpuRig) -> Claims:
    """One H100 whose MIG mode is on."""
    return Claims(rig.has(Fleet.of(1, mig="on", **H100)))


@pytest.fixture
def switching(rig: GpuRig) -> Claims:
    """One H100 whose MIG mode is off, and may be switched."""
    return Claims(rig.has(Fleet.of(1, **H100)), mig_on_demand="switch")


def parts(found: Mapping[str, dp.Device]) -> dict[str, dp.Part]:
    return {one: device.part for one, device in found.items() if device.part}


def amounts(claims: Claims) -> Mapping[str, int]:
    found = [part.of for part in parts(claims.found()).values()]
    assert all(found[0] == one for one in found)
    return found[0].amounts


def slices(claims: Claims) -> str:
    """Return which memory slices there are for claims."""
    found = amounts(claims)
    return "".join(str(n) for n in range(8) if found[f"memory-slice-{n}"])


def mode(claims: Claims) -> str:
    modes = [line for line in claims.rig.fake.made() if line.startswith("gpu 0 mig")]
    return modes[-1].removeprefix("gpu 0 ") if modes else ""


def has_minors(rig: GpuRig, *, nodes: bool = True) -> None:
    """Have the numbers, and if wanted the nodes, of all that can be made of the first GPU."""
    lines, number = ["config 1", "monitor 2"], 12
    for gi in range(1, 15):
        lines += [f"gpu0/gi{gi}/access {number}", f"gpu0/gi{gi}/ci0/access {number + 1}"]
        number += 2
    folder = rig.roots.proc / "driver/nvidia-caps"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "mig-minors").write_text("\n".join([*lines, ""]))
    (rig.roots.dev / "nvidia-caps").mkdir(exist_ok=True)
    if nodes:
        rig.has_nodes(*(f"nvidia-caps/nvidia-cap{one}" for one in range(1, number)))


def test_every_profile_is_offered_at_every_place(claims: Claims) -> None:
    found = claims.found()
    places = {one.removeprefix(f"{ID}/") for one in found}
    assert {f"1g.10gb@{n}" for n in range(7)} <= places
    assert {"1g.20gb@6", "2g.20gb@4", "3g.40gb@0", "3g.40gb@4", "4g.40gb@0", "7g.80gb@0"} <= places
    assert 7 + 7 + 4 + 3 + 2 + 1 + 1 == len(places)
    assert all(one.part and one.part.on_demand and len(one.id) <= 63 for one in found.values())
    facts = found[HALF].attributes
    names = "profile", "parentUUID", "placementStart", "placementSize", "type"
    assert ("3g.40gb", ID, 4, 4, "mig") == tuple(facts[name] for name in names)
    assert not {"uuid", "index"} & facts.keys()
    assert {GPU} == {one.resource for one in found.values()}
    assert not unhealthy(found)


@pytest.mark.parametrize(
    ("first", "second", "exceeded"),
    [
        ("3g.40gb@4", "1g.10gb@4", {"memory-slice-4"}),
        ("1g.10gb@0", "1g.10gb@1", set()),
        ("3g.40gb@4", "4g.40gb@0", set()),
        ("1g.10gb+me@0", "1g.10gb+me@1", {"1g.10gb+me", "jpeg-engines", "ofa-engines"}),
        ("1g.20gb@6", "1g.10gb@6", {"memory-slice-6"}),
        ("2g.20gb@0", "1g.20gb@2", set()),
    ],
)
def test_counters_exclude_what_the_driver_refuses(
    claims: Claims, first: str, second: str, exceeded: set[str]
) -> None:
    found = parts(claims.found())
    one, other = found[f"{ID}/{first}"], found[f"{ID}/{second}"]
    sums = {name: one.consumes.get(name, 0) + other.consumes.get(name, 0) for name in one.consumes}
    assert exceeded == {name for name, count in sums.items() if count > one.of.amounts[name]}
    claims.make(f"{ID}/{first}")
    if exceeded:
        with pytest.raises(dp.DevicePluginError, match=r"Insufficient Resources \(NVML error 23\)"):
            claims.make(f"{ID}/{second}")
    else:
        claims.make(f"{ID}/{second}")


def test_a_container_gets_the_mig_device_and_its_nodes(claims: Claims) -> None:
    has_minors(claims.rig)
    claims.restart(pass_device_specs=True, device_id_strategy="index")
    made = claims.make(HALF)
    assert made.part
    given = claims.plugin.allocate([made])
    assert {"NVIDIA_VISIBLE_DEVICES": made.part.identity} == dict(given.envs)
    assert made.part.identity.startswith("MIG-")
    caps = "/dev/nvidia-caps/nvidia-cap"
    nodes = [node.container_path for node in given.nodes]
    assert ["/dev/nvidia0", f"{caps}12", f"{caps}13"] == nodes


def cdi_devices(rig: GpuRig) -> set[str]:
    (file,) = rig.cdi_dir.glob("*gpu.json")
    return {one["name"] for one in json.loads(file.read_text())["devices"]}


@pytest.mark.usefixtures("driver_root")
@pytest.mark.parametrize("strategy", ["cdi-cri", "cdi-annotations", "envvar,cdi-cri"])
def test_cdi_has_a_part_from_prepare_to_unprepare(claims: Claims, strategy: str) -> None:
    has_minors(claims.rig)
    claims.rig.has_nodes("nvidiactl", "nvidia0")
    claims.restart(device_list_strategy=strategy)
    made = claims.make(SMALL)
    identity = claims.plugin.made[SMALL]
    given = claims.plugin.allocate([made])
    names = given.cdi_names or [*given.annotations.values()]
    assert [f"k8s.device-plugin.nvidia.com/gpu={identity}"] == list(names)
    assert {identity} == cdi_devices(claims.rig)
    claims.restart()
    claims.found()
    assert {identity} == cdi_devices(claims.rig)  # for containers that start again
    claims.unmake(SMALL)
    claims.found()
    assert not list(claims.rig.cdi_dir.glob("*gpu.json"))


def test_a_part_without_a_device_node_is_not_made(claims: Claims) -> None:
    has_minors(claims.rig, nodes=False)
    claims.restart(pass_device_specs=True)
    claims.plugin._clock = replace_pauses(claims)
    missing = r"no device node .*nvidia-cap12.*nvidia-modprobe"
    with pytest.raises(dp.DevicePluginError, match=missing):
        claims.make(HALF)
    assert [] == claims.exist()
    claims.plugin.made = {HALF: ""}
    with pytest.raises(dp.DevicePluginError, match=missing):
        claims.plugin.make_part(claims.found()[HALF])
    assert ["3g.40gb@4"] == claims.exist()  # the framework decides, as a pod may have it


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_the_node_of_a_part_is_made_if_nobody_else_does_it(claims: Claims) -> None:
    has_minors(claims.rig, nodes=False)
    (claims.rig.roots.proc / "devices").write_text("Character devices:\n236 nvidia-caps\n")
    claims.restart(pass_device_specs=True)
    claims.make(HALF)
    nodes = [claims.rig.roots.dev / f"nvidia-caps/nvidia-cap{minor}" for minor in (12, 13)]
    made = [node.stat().st_rdev for node in nodes]
    assert [(236, 12), (236, 13)] == [(os.major(one), os.minor(one)) for one in made]


def replace_pauses(claims: Claims) -> Any:
    class Impatient(type(claims.rig.clock)):  # type: ignore[misc]
        def pause(self, stop: object, seconds: float) -> None:
            """Return at once."""

    return Impatient(claims.rig)


def test_a_part_goes_with_its_claim_and_others_stay(claims: Claims) -> None:
    claims.make(SMALL)
    kept = claims.make(HALF)
    claims.unmake(SMALL)
    claims.unmake(SMALL)
    assert ["3g.40gb@4"] == claims.exist()
    assert kept == claims.make(HALF)  # it is prepared again
    claims.unmake(HALF)
    assert [] == claims.exist()


@pytest.mark.parametrize("done", [0, 1, 2])
def test_what_a_crash_left_is_finished_or_removed(claims: Claims, done: int) -> None:
    def crash() -> None:
        """End while the part is made, and before the framework knows its identity."""
        device = claims.found()[HALF]
        claims.plugin.made = {HALF: ""}
        if done == 1:
            claims.rig.fake.fail(COMPLETE, 999)
            claims.rig.fake.fail("nvmlGpuInstanceDestroy", 999)
        with suppress(dp.DevicePluginError):
            claims.plugin.make_part(device) if done else None
        claims.rig.fake.mend()
        claims.restart(mig_strategy="mixed")

    crash()
    assert ["3g.40gb@4"][:done] == claims.exist()
    assert not [one for one in claims.found() if one.startswith("MIG-")]
    assert "01234567" == slices(claims)
    claims.make(HALF)
    assert ["3g.40gb@4"] == claims.exist()
    claims.unmake(HALF)
    crash()
    claims.unmake(HALF)
    assert [] == claims.exist()


def test_after_a_reboot_nothing_is_left_and_what_is_there_is_of_others(claims: Claims) -> None:
    claims.make(HALF)
    old = claims.plugin.made[HALF]
    claims.rig.fake.reboot()
    (claims.rig.state_file.parent / "mig.json").unlink()
    claims.rig.fake.by_hand(f"mig 0 gi=1 profile=3g.40gb start=4 uuid={old}")
    claims.plugin.made = {HALF: ""}
    claims.restart(mig_strategy="mixed")
    for _ in range(2):
        with pytest.raises(dp.AllocationError, match=f"somebody else has made {old}"):
            claims.plugin.make_part(claims.found()[HALF])
        claims.plugin.unmake_part(dp.Device(HALF, resource=GPU), old)
        assert ["3g.40gb@4"] == claims.exist()
        claims.restart()
    claims.plugin.made = {}
    assert old in claims.found()


def test_what_others_made_is_offered_as_ever_and_takes_its_place(claims: Claims) -> None:
    claims.rig.fake.change(0, migs=(FakeMig(9, "2g.20gb", values={"start": 2}),))
    static = FakeMig(9).uuid(0)
    claims.restart(mig_strategy="mixed")
    found = claims.found()
    assert "nvidia.com/mig-2g.20gb" == found[static].resource
    assert not found[static].part
    assert "014567" == slices(claims)
    with pytest.raises(dp.DevicePluginError, match="Insufficient Resources"):
        claims.make(f"{ID}/1g.10gb@3")
    claims.make(HALF)
    claims.rig.fake.by_hand("instance 0 gi=11 profile=1g.10gb start=0")  # without a MIG device
    assert "14567" == slices(claims)
    claims.rig.fake.by_hand("gone 0 gi=11")
    claims.rig.fake.change(0, migs=())
    assert "01234567" == slices(claims)
    assert static not in claims.found()


def test_a_part_whose_claim_is_not_recorded_any_more_is_named_and_offered_to_nobody(
    claims: Claims,
) -> None:
    claims.restart(mig_strategy="mixed")
    made = claims.make(HALF).part
    assert made
    claims.plugin.made = {}
    claims.restart()
    found = claims.found()
    assert (False, "0123") == (made.identity in found, slices(claims))
    begins = f"{made.identity} was made as {HALF}, and no claim is known to have it"
    assert any(one.startswith(begins) for one in claims.plugin.shortfalls)
    claims.rig.fake.by_hand("gone 0 gi=1")
    assert "01234567" == slices(claims)
    assert not any(one.startswith(begins) for one in claims.plugin.shortfalls)


@pytest.mark.parametrize("line", ["instance", "mig"])
def test_what_others_made_in_the_place_of_a_part_stays(claims: Claims, line: str) -> None:
    claims.rig.fake.by_hand(f"{line} 0 gi=5 profile=3g.40gb start=4")
    claims.found()
    with pytest.raises(dp.AllocationError, match="somebody else has made"):
        claims.make(HALF)
    claims.unmake(HALF)
    assert ["3g.40gb@4"] == claims.exist()


def test_what_a_process_uses_was_made_by_others(claims: Claims) -> None:
    claims.plugin.made = {HALF: ""}
    claims.rig.fake.by_hand("mig 0 gi=5 profile=3g.40gb start=4")
    claims.rig.fake.by_hand("process 0 pid=4711 gi=5 ci=0")
    with pytest.raises(dp.AllocationError, match="somebody else has made MIG-"):
        claims.make(HALF)
    claims.unmake(HALF)
    assert ["3g.40gb@4"] == claims.exist()


def test_a_part_that_others_removed_is_unhealthy_and_made_again_when_prepared(
    claims: Claims,
) -> None:
    claims.make(HALF)
    first = claims.plugin.made[HALF]
    claims.rig.fake.by_hand("gone 0 gi=1 ci=0")
    reason = f"its MIG device {first} was removed by somebody else: a new pod gets a new one"
    assert {HALF: reason} == unhealthy(claims.found())
    assert "01234567" == slices(claims)
    claims.make(HALF)
    assert not unhealthy(claims.found())
    claims.rig.fake.by_hand("gone 0 gi=1")
    claims.unmake(HALF)  # nothing is left
    claims.make(HALF)
    claims.rig.fake.by_hand("gone 0 gi=1 ci=0")
    claims.unmake(HALF)
    assert [] == claims.exist()


def test_a_part_is_not_missing_while_its_claim_ends_and_is_when_others_remove_it_again(
    claims: Claims,
) -> None:
    for _ in range(2):  # the driver gives the same UUID again
        claims.make(HALF)
        claims.plugin.unmake_part(dp.Device(HALF, resource=GPU), claims.plugin.made[HALF])
        assert not unhealthy(claims.found()) | unhealthy(claims.found())
    claims.make(HALF)
    claims.rig.fake.by_hand("gone 0 gi=1 ci=0")
    assert [HALF] == [*unhealthy(claims.found())]


@pytest.mark.parametrize("gi", [1, 7])
def test_what_others_made_elsewhere_with_the_same_number_is_theirs(claims: Claims, gi: int) -> None:
    claims.make(HALF)
    claims.rig.fake.by_hand("gone 0 gi=1")
    claims.rig.fake.by_hand(f"mig 0 gi={gi} profile=3g.40gb start=0")  # its UUID has the number
    assert [HALF] == [*unhealthy(claims.found())]
    claims.unmake(HALF)
    assert ["3g.40gb@0"] == claims.exist()


def test_what_others_made_of_a_removed_part_stays(claims: Claims) -> None:
    claims.make(HALF)
    claims.rig.fake.by_hand("gone 0 gi=1")
    claims.rig.fake.by_hand("mig 0 gi=7 profile=3g.40gb start=4")
    assert [HALF] == [*unhealthy(claims.found())]
    with pytest.raises(dp.AllocationError, match="somebody else has made MIG-00000000-0007"):
        claims.make(HALF, before=claims.plugin.made[HALF])
    claims.plugin.made = {HALF: "MIG-ours"}
    claims.unmake(HALF)
    assert ["3g.40gb@4"] == claims.exist()


@pytest.mark.parametrize(
    ("function", "code"),
    [
        *((CREATE, code) for code in (2, 3, 4, 15, 19, 23, 999)),
        *((COMPLETE, code) for code in (2, 3, 4, 15, 19, 23, 999)),
        ("nvmlGpuInstanceGetInfo", 999),
        ("nvmlGpuInstanceGetComputeInstanceProfileInfo", 3),
        ("nvmlDeviceGetMinorNumber", 999),
        ("nvmlDeviceGetGpuInstances", 999),
    ],
)
def test_a_part_that_cannot_be_made_leaves_nothing(
    claims: Claims, function: str, code: int
) -> None:
    device = claims.found()[HALF]
    claims.rig.fake.fail(function, code)
    claims.plugin.made = {HALF: ""}
    message = rf"{HALF[-9:]}: {function}.*NVML error {code}"
    with pytest.raises(dp.DevicePluginError, match=message) as raised:
        claims.plugin.make_part(device)
    claims.rig.fake.mend()
    if not isinstance(raised.value, dp.AllocationError):
        claims.unmake(HALF)
    assert [] == claims.exist()
    claims.plugin.made = {}
    assert "01234567" == slices(claims)
    claims.make(HALF)


def test_a_part_with_the_number_of_what_others_removed_is_ours(claims: Claims) -> None:
    claims.rig.fake.by_hand("instance 0 gi=1 profile=3g.40gb start=4")
    device = claims.found()[HALF]
    claims.rig.fake.by_hand("gone 0 gi=1")
    claims.rig.fake.fail(COMPLETE, 999)
    claims.plugin.made = {HALF: ""}
    with suppress(dp.DevicePluginError):
        claims.plugin.make_part(device)
    claims.rig.fake.mend()
    assert ["3g.40gb@4"] == claims.exist()
    claims.unmake(HALF)
    assert [] == claims.exist()


def test_what_could_not_be_remembered_is_not_made(claims: Claims) -> None:
    (claims.rig.path / "file").touch()
    claims.restart(state_file=claims.rig.path / "file/health.json")
    with pytest.raises(dp.AllocationError, match=r"mig.json cannot be written"):
        claims.make(HALF)
    assert [] == claims.exist()
    claims.restart(state_file=None)
    claims.make(HALF)
    claims.restart()  # in the same boot the framework knows what was made
    assert "01234567" == slices(claims)
    claims.unmake(HALF)
    assert [] == claims.exist()


def test_what_another_process_left_is_removed_without_a_discovery(switching: Claims) -> None:
    other = switching.rig.plugin(**switching.given)
    device = devices(other)[HALF]
    switching.found()
    switching.rig.fake.fail(COMPLETE, 999)
    with suppress(dp.DevicePluginError):
        switching.plugin.make_part(device)
    switching.rig.fake.mend()
    assert ["3g.40gb@4"] == switching.exist()
    other.made = {HALF: ""}
    other.unmake_part(device, "")
    assert [] == switching.exist()
    assert "mig=off mig-pending=off" == mode(switching)


def test_what_two_processes_remember_at_once_is_remembered(tmp_path: Path) -> None:
    def remember(process: int) -> None:
        ours = Ours(tmp_path / "health.json")
        for number in range(40):
            ours.add(f"{process} {number}")
            ours.refresh()

    with ThreadPoolExecutor(4) as pool:
        assert [None] * 4 == list(pool.map(remember, range(4)))
    assert 160 == len(Ours(tmp_path / "health.json").names)


@pytest.mark.parametrize("code", [3, 999])
def test_a_part_is_not_taken_for_removed_where_the_mode_cannot_be_read(
    claims: Claims, code: int
) -> None:
    claims.make(HALF)
    claims.rig.fake.fail("nvmlDeviceGetMigMode", code)
    with pytest.raises(dp.DevicePluginError, match="nvmlDeviceGetMigMode"):
        claims.unmake(HALF)


def test_a_part_in_use_is_removed_when_its_process_has_ended(claims: Claims) -> None:
    claims.make(HALF)
    claims.rig.fake.by_hand("process 0 pid=4711 gi=1 ci=0")
    with pytest.raises(dp.DevicePluginError, match="nvmlComputeInstanceDestroy: In use by another"):
        claims.unmake(HALF)
    claims.rig.fake.reboot()
    claims.unmake(HALF)
    claims.make(HALF)
    claims.rig.fake.fail("nvmlGpuInstanceDestroy", 19)
    for _ in range(3):
        with pytest.raises(dp.DevicePluginError, match="nvmlGpuInstanceDestroy: In use by another"):
            claims.unmake(HALF)
    claims.rig.fake.mend()
    claims.unmake(HALF)
    assert [] == claims.exist()


def test_mig_is_on_from_the_first_part_to_the_last(switching: Claims) -> None:
    whole = parts(switching.found())[ID]
    assert not whole.on_demand
    assert whole.consumes == whole.of.amounts
    switching.make(SMALL)
    assert "mig=on mig-pending=on" == mode(switching)
    found = switching.found()
    assert not unhealthy(found)
    assert whole == parts(found)[ID]
    with pytest.raises(dp.AllocationError, match=f"GPU {ID} is divided"):
        switching.plugin.allocate([found[ID]])
    switching.make(HALF)
    switching.unmake(SMALL)
    switching.restart()
    assert not unhealthy(switching.found())
    assert "mig=on mig-pending=on" == mode(switching)
    switching.unmake(HALF)
    assert "mig=off mig-pending=off" == mode(switching)
    switching.plugin.allocate([switching.found()[ID]])


@pytest.mark.parametrize("strategy", ["none", "single", "mixed"])
def test_labels_of_the_node_do_not_change_with_claims(switching: Claims, strategy: str) -> None:
    file = switching.rig.path / "labels"

    def labels() -> list[str]:
        switching.found()
        return [one for one in file.read_text().splitlines() if "timestamp" not in one]

    switching.restart(labels_file=file, mig_strategy=strategy)
    before = labels()
    switching.make(SMALL)
    assert before == labels()


@pytest.mark.parametrize("how", ["busy", "process"])
def test_a_gpu_in_use_is_not_switched(switching: Claims, how: str) -> None:
    if how == "busy":
        switching.rig.fake.change(0, busy=True)
    else:
        switching.rig.fake.by_hand("process 0 pid=4711")
    used = "In use by another client.*" + ("4711" if how == "process" else "")
    with pytest.raises(dp.AllocationError, match=used):
        switching.make(SMALL)
    assert "mig=off mig-pending=off" == mode(switching)
    switching.plugin.allocate([switching.found()[ID]])


def test_a_gpu_that_cannot_be_switched_back_is_unhealthy_until_it_can(switching: Claims) -> None:
    switching.make(SMALL)
    switching.rig.fake.change(0, busy=True)
    switching.unmake(SMALL)
    for _ in range(2):
        assert [ID] == [*unhealthy(switching.found())]
        assert "In use by another client" in unhealthy(switching.found())[ID]
        switching.restart()
    assert {ID: "MIG is not yet switched off"} == unhealthy(switching.found())
    switching.rig.fake.change(0, busy=False)
    switching.found()
    assert not unhealthy(switching.found())
    assert "mig=off mig-pending=off" == mode(switching)


def test_a_gpu_whose_mig_mode_an_admin_switched_off_is_whole_after_its_part(
    switching: Claims,
) -> None:
    switching.make(HALF)
    switching.rig.fake.by_hand("gone 0 gi=1")
    switching.rig.fake.by_hand("gpu 0 mig=off mig-pending=off")
    assert [HALF] == [*unhealthy(switching.found())]
    switching.unmake(HALF)
    switching.plugin.allocate([switching.found()[ID]])


@pytest.mark.parametrize(
    ("given", "gpu", "reason"),
    [
        ({"mig_on_demand": "on"}, {}, "MIG is off: nvidia-smi -mig 1"),
        ({"mig_on_demand": "off"}, {}, "MIG is off: nvidia-smi -mig 1"),
        (
            {"sharing": {"timeSlicing": {"resources": [{"name": "gpu", "replicas": 2}]}}},
            {},
            "share",
        ),
        ({}, {"compute": "8.0"}, "has to be reset"),
    ],
)
def test_a_gpu_is_not_switched_for_a_claim_that_was_allocated_before_settings_changed(
    switching: Claims, given: Mapping[str, Any], gpu: Mapping[str, Any], reason: str
) -> None:
    device = switching.found()[HALF]
    switching.rig.fake.change(0, **gpu)
    switching.restart(**given)
    switching.found()
    with pytest.raises(dp.AllocationError, match=reason):
        switching.plugin.make_part(device)
    assert [] == switching.rig.fake.made()


def test_what_others_switched_on_stays_on(switching: Claims) -> None:
    switching.rig.fake.change(0, mig="on")
    assert ID not in switching.found()
    switching.make(SMALL)
    switching.unmake(SMALL)
    assert "" == mode(switching)
    assert ID not in switching.found()


NOTHING = "mig-on-demand has no effect: no GPU can be divided: "


@pytest.mark.parametrize(
    ("given", "gpu", "fault", "reason"),
    [
        ({}, {}, 0, f"{NOTHING}MIG is off: nvidia-smi -mig 1, or mig-on-demand: switch"),
        ({}, {"compute": "7.5"}, 0, f"{NOTHING}it has no MIG"),
        ({"exclude": ("*H100*",)}, {"mig": "on"}, 0, f"{NOTHING}it is excluded"),
        ({}, {"mig": "on", "virtualization": "vgpu"}, 0, "whose host divides it"),
        ({}, {"mig": "on", "virtualization": "host-vgpu"}, 0, "has it for virtual GPUs"),
        ({}, {"mig": "on", "mig_pending": "off"}, 0, "waits for a reset: nvidia-smi --gpu-reset"),
        ({"mig_on_demand": "switch"}, {"compute": "8.0"}, 0, "has to be reset to switch it on"),
        ({"mig_on_demand": "switch", "sharing": "shared"}, {}, 0, "it is shared by several"),
        ({}, {"mig": "on"}, 4, "Insufficient Permissions.*the component gpu-mig"),
        ({}, {"mig": "on"}, 3, "its driver lists no places for MIG devices"),
        ({}, {"mig": "on"}, 13, "its driver lists no places for MIG devices"),
        ({}, {"mig": "on"}, 999, "Unknown Error"),
    ],
)
def test_a_gpu_that_cannot_be_divided_is_as_without_and_says_why(
    rig: GpuRig, given: Mapping[str, Any], gpu: Mapping[str, Any], fault: int, reason: str
) -> None:
    if given.get("sharing"):
        shares = {"timeSlicing": {"resources": [{"name": "gpu", "replicas": 2}]}}
        given = {**given, "sharing": shares}
    rig.has(Fleet.of(1, **{**H100, **gpu}))
    if fault:
        rig.fake.fail("nvmlDeviceGetGpuInstancePossiblePlacements_v2", fault)
    divided = rig.plugin(**{"mig_on_demand": "on", "protocol": "dra", **given})
    plain = rig.plugin(**{**given, "mig_on_demand": "off"})
    assert devices(plain) == devices(divided)
    said = "\n".join(one for one in divided.shortfalls if one not in plain.shortfalls)
    assert re.search(reason, said), said


@pytest.mark.parametrize("strategy", ["none", "single", "mixed"])
def test_a_gpu_whose_mig_mode_is_on_is_not_given_as_a_whole(rig: GpuRig, strategy: str) -> None:
    off, on = Fleet.of(2, **H100).gpus
    rig.has(Fleet((off, replace(on, values={**H100, "mig": "on"}))))
    plugin = rig.plugin(mig_on_demand="on", mig_strategy=strategy)
    assert {off.uuid} == {one for one in devices(plugin) if "/" not in one}
    (said,) = plugin.shortfalls
    assert said.endswith("only claims get MIG devices that are made: use protocol: dra")
    plugin = rig.plugin(mig_on_demand="on", mig_strategy=strategy, protocol="dra")
    assert 1 < len(devices(plugin))
    assert [] == list(plugin.shortfalls)


def test_settings_that_turn_it_off_leave_what_claims_have(claims: Claims) -> None:
    made = claims.make(HALF)
    claims.restart(mig_on_demand="off", mig_strategy="mixed")
    assert [HALF] == [*claims.found()]
    assert not unhealthy(claims.found())
    assert made == claims.make(HALF)
    claims.unmake(HALF)
    assert [] == claims.exist()
    assert [] == [*claims.found()]
    with pytest.raises(dp.AllocationError, match="its GPU is not there"):
        claims.plugin.make_part(replace(made, id=f"GPU-other/{PLACES[0]}"))
    with pytest.raises(dp.AllocationError, match="its GPU has no such place"):
        claims.plugin.make_part(replace(made, id=f"{ID}/9g.90gb@0"))


def test_a_gpu_that_is_lost_has_no_parts_left(claims: Claims) -> None:
    claims.make(HALF)
    claims.rig.fake.change(0, state="lost")
    found = claims.found()
    assert len(found) > 20
    assert {*found} == {*unhealthy(found)}
    with pytest.raises(dp.AllocationError, match="GPU is lost"):
        claims.make(SMALL)
    claims.unmake(HALF)
    claims.rig.fake.reboot()
    claims.rig.fake.change(0, state="ok")
    assert "01234567" == slices(claims)
    assert not unhealthy(claims.found())


@pytest.mark.parametrize("code", [4, 999])
def test_parts_of_claims_are_not_missing_while_they_cannot_be_read(
    claims: Claims, code: int
) -> None:
    claims.make(HALF)
    claims.rig.fake.fail("nvmlDeviceGetGpuInstances", code)
    assert HALF in claims.found()
    claims.restart()
    if code == 4:  # that lasts: other devices must not wait for it
        assert [] == [*claims.found()]  # and nobody gets the GPU as a whole
        return
    with pytest.raises(dp.DiscoveryError, match="nvmlDeviceGetGpuInstances"):
        claims.found()
    claims.rig.fake.mend()
    assert HALF in claims.found()


@pytest.mark.parametrize("code", [79, 94])
def test_an_xid_makes_all_parts_unhealthy_if_the_gpu_has_to_be_reset(
    claims: Claims, code: int
) -> None:
    claims.restart(enable_healthchecks="94")
    claims.make(SMALL)
    claims.make(HALF)
    (made,) = (one for one in claims.rig.fake.made() if "3g.40gb" in one and "instance" in one)
    stop = Event()
    changes = claims.plugin.changes(stop)
    claims.found()
    next(changes)
    claims.rig.fake.xid(0, code, gi=int(made.split("gi=")[1].split()[0]), ci=0)
    next(changes)
    stop.set()
    found = claims.found()
    assert ({*found} if code == 79 else {HALF}) == {*unhealthy(found)}
    assert f"XID {code}" in unhealthy(found)[HALF]


def test_a_gpu_is_let_go_of_when_no_claim_has_a_part_of_it(rig: GpuRig) -> None:
    rig.has(Fleet.of(2, **H100))
    for slot in range(2):
        rig.has_card(FakeGpu(slot).pci, driver="nvidia")
        rig.has_nodes(f"nvidia{slot}")
    claims = Claims(rig, mig_on_demand="switch")
    whole = claims.found()[ID]
    claims.make(SMALL)
    claims.plugin.held = [whole]
    assert frozenset() == claims.plugin._let_go_of()
    claims.unmake(SMALL)
    assert {FakeGpu(0).pci} == claims.plugin._let_go_of()
    claims.plugin.let_go([whole])
    assert not rig.fake.is_open(0)
    with pytest.raises(dp.AllocationError, match="held"):
        claims.plugin.make_part(replace(whole, id=SMALL))
    claims.plugin.made = {SMALL: ""}
    with pytest.raises(dp.DevicePluginError, match="held"):
        claims.unmake(SMALL)  # it is there when the GPU is taken back


def test_a_container_is_charged_for_the_part_that_it_has() -> None:
    container = Container("ns", "pod", "main")
    row = Row(ID, "MIG-a", container, {"memory_used_bytes": 5.0, "utilization_ratio": 0.5})
    holder = (GPU, HALF, "ns", "pod", "main")
    assert {holder: row.used} == by_holder([row], [holder], {HALF: "MIG-a"})


def test_a_gpu_whose_driver_hangs_holds_up_no_other(rig: GpuRig) -> None:
    rig.has(Fleet.of(2, mig="on", **H100))
    claims = Claims(rig)
    claims.found()
    with claims.plugin._get_division()._turn(ID):  # as a call under way has it
        claims.make(f"{FakeGpu(1).uuid}/3g.40gb@4")
        claims.found()


def test_a_new_part_is_never_taken_for_that_of_others(claims: Claims) -> None:
    claims.restart(mig_strategy="mixed")
    claims.found()
    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(look_until, claims, done := Event())
        for number in range(12):
            part = (SMALL, HALF, ALL)[number % 3]
            device = dp.Device(part, resource=GPU)
            claims.plugin.made = {part: ""}
            made = claims.plugin.make_part(device)
            assert made.part is None
            identity = claims.plugin._get_division().units[part].uuid
            claims.plugin.made = {part: identity}
            claims.plugin.unmake_part(device, identity)
            claims.plugin.made = {}
        done.set()
        strange = looking.result(60)
    assert set() == strange
    assert [] == claims.exist()


def look_until(claims: Claims, done: Event) -> set[str]:
    """Return all ids but those of parts that discoveries find."""
    found: set[str] = set()
    while not done.is_set():
        found |= {one for one in claims.found() if "/" not in one}
    return found


SEEDS = [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 20))]
FAULTS = (
    *(CREATE, COMPLETE, "nvmlGpuInstanceDestroy", "nvmlComputeInstanceDestroy"),
    *("nvmlDeviceSetMigMode", "nvmlDeviceGetGpuInstances"),
)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_histories_leave_nothing_and_touch_nothing_of_others(rig: GpuRig, seed: int) -> None:
    """Calls fail at random, processes are replaced, and others make and remove instances."""
    chance = random.Random(seed)
    rig.has(Fleet.of(1, **H100))
    claims = Claims(rig, mig_on_demand="switch", mig_strategy="mixed")
    others: dict[int, str] = {}
    for _ in range(30):
        with suppress(dp.DevicePluginError):
            one_step(claims, chance, others)
        if chance.random() < 0.7:
            rig.fake.mend()
        there = claims.exist()
        assert not Counter(others.values()) - Counter(there)
        assert {one.partition("/")[2] for one, its in claims.plugin.made.items() if its} <= {*there}
    rig.fake.mend()
    for part in [*claims.plugin.made]:
        claims.unmake(part)
    assert sorted(others.values()) == claims.exist()


def one_step(claims: Claims, chance: random.Random, others: dict[int, str]) -> None:
    found = parts(claims.found())
    step = chance.choice(["make", "make", "unmake", "unmake", "restart", "fault", "other"])
    if step == "fault":
        claims.rig.fake.fail(chance.choice(FAULTS), chance.choice((4, 19, 23, 999)))
    elif step == "restart":
        claims.restart()
    elif step == "other":
        change_by_hand(claims, chance, others)
    elif step == "make" and (fitting := that_fit(claims, found)):
        claims.make(chance.choice(fitting))
    elif step == "unmake" and claims.plugin.made:
        claims.unmake(chance.choice(sorted(claims.plugin.made)))


def that_fit(claims: Claims, found: Mapping[str, dp.Part]) -> list[str]:
    """Return the parts that a scheduler could give now."""
    held = [found[one] for one in claims.plugin.made if one in found]

    def fits(part: dp.Part) -> bool:
        taken = {name: sum(one.consumes.get(name, 0) for one in held) for name in part.consumes}
        return all(part.of.amounts[n] >= taken[n] + count for n, count in part.consumes.items())

    return [one for one, part in found.items() if part.on_demand and fits(part)]


def change_by_hand(claims: Claims, chance: random.Random, others: dict[int, str]) -> None:
    """Have somebody else make an instance where there is room, or remove one of theirs."""
    if others and chance.random() < 0.5:
        gi = chance.choice(sorted(others))
        claims.rig.fake.by_hand(f"gone 0 gi={gi}")
        del others[gi]
        return
    used = {one.rpartition("@")[2] for one in claims.exist()}
    if mode(claims).startswith("mig=on") and not used:
        gi = 40 + len(claims.rig.fake.made())
        claims.rig.fake.by_hand(f"mig 0 gi={gi} profile=1g.10gb start=0")
        others[gi] = "1g.10gb@0"


SCRIPT = """
import sys
from pathlib import Path
import deviceplugin as dp
from deviceplugin_gpu.configuration.settings import GpuSettings
from deviceplugin_gpu.plugin import GpuPlugin
root, part, identity, do = sys.argv[1:]
driver, state = Path(root, "driver-root"), Path(root, "health.json")
settings = GpuSettings(mig_on_demand="switch", driver_root_ctr_path=driver, state_file=state)
plugin = GpuPlugin(settings)
plugin.made = {part: identity}
found = {one.id: one for one in plugin.discover()}
plugin.make_part(found[part]) if do == "make" else plugin.unmake_part(found[part], identity)
"""
KILLED_IN = [
    *(
        ("make", one)
        for one in ("nvmlDeviceSetMigMode", CREATE, COMPLETE, "nvmlGpuInstanceGetInfo")
    ),
    *(("unmake", f"nvml{one}Destroy") for one in ("ComputeInstance", "GpuInstance")),
    ("unmake", "nvmlDeviceSetMigMode"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("do", "function"), KILLED_IN)
def test_a_process_killed_in_any_step_leaves_what_the_next_one_finishes(
    switching: Claims, do: str, function: str
) -> None:
    fake, identity = switching.rig.fake, ""
    if do == "unmake":
        switching.make(HALF)
        identity = switching.plugin.made[HALF]
    fake.delay(function, milliseconds=600_000)
    before = fake.calls()[function]
    command = [sys.executable, "-c", SCRIPT, str(switching.rig.path), HALF, identity, do]
    with subprocess.Popen(command, env=fake.environment(switching.rig.library)) as process:
        eventually(lambda: fake.calls()[function] > before or process.poll() is not None)
        process.kill()
    fake.mend()
    switching.plugin.made = {HALF: identity}
    switching.restart(mig_strategy="mixed")
    assert not [one for one in switching.found() if one.startswith("MIG-")]
    switching.make(HALF)
    assert ["3g.40gb@4"] == switching.exist()
    switching.unmake(HALF)
    assert [] == switching.exist()
    switching.found()
    switching.found()
    assert "mig=off mig-pending=off" == mode(switching)
    assert not unhealthy(switching.found())
