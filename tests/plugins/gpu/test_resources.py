"""Which devices there are, and under which names."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import pynvml
import pytest

from deviceplugin._dra.slices.attributes import Describer
from deviceplugin.kit.sharing import MOST
from deviceplugin_gpu.advertised.units import advertise, names_gpu
from deviceplugin_gpu.configuration.settings import GpuSettings
from deviceplugin_gpu.snapshot import Gpu, Mig, Snapshot
from gpu.fake_nvml import FakeMig, Fleet
from gpu.rig import GpuRig, as_in_a_file

A100, H100 = "NVIDIA A100-SXM4-40GB", "NVIDIA H100 80GB HBM3"


def mig(number: int, profile: str, **values: Any) -> Mig:
    return Mig(f"MIG-{profile}-{number}", number, number, 0, profile, **values)


def gpu(index: int, name: str = A100, **values: Any) -> Gpu:
    return Gpu(index, f"GPU-{index}", name, pci=f"0000:{index:02x}:00.0", **values)


def card(index: int, *profiles: str, name: str = A100) -> Gpu:
    migs = tuple(mig(number, profile) for number, profile in enumerate(profiles))
    migs = tuple(Mig(f"{one.uuid}-{index}", one.index, one.index, 0, one.profile) for one in migs)
    return gpu(index, name, mig_enabled=True, migs=migs)


def settings(**given: Any) -> GpuSettings:
    return GpuSettings(**as_in_a_file(given))


def offered(*gpus: Gpu, **given: Any) -> dict[str, list[str]]:
    """Return the ids of what is offered, by resource."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for unit in advertise(Snapshot(gpus), settings(**given)).units:
        found[unit.resource].append(unit.id)
    return dict(found)


def warnings(*gpus: Gpu, **given: Any) -> list[str]:
    return advertise(Snapshot(gpus), settings(**given)).warnings


def slicing(*resources: dict[str, object], **given: object) -> dict[str, object]:
    return {"timeSlicing": {"resources": list(resources), **given}}


# MIG.


def test_mixed_names_a_resource_for_each_profile() -> None:
    expected = {
        "nvidia.com/gpu": ["GPU-0"],
        "nvidia.com/mig-1g.5gb": ["MIG-1g.5gb-0-1"],
        "nvidia.com/mig-1g.5gb.me": ["MIG-1g.5gb+me-1-1"],
        "nvidia.com/mig-1g.24gb-me": ["MIG-1g.24gb-me-2-1"],
        "nvidia.com/mig-1g.24gb.me.all": ["MIG-1g.24gb+me.all-3-1"],
    }
    profiles = ("1g.5gb", "1g.5gb+me", "1g.24gb-me", "1g.24gb+me.all")
    assert expected == offered(gpu(0), card(1, *profiles), mig_strategy="mixed")


def test_single_offers_mig_devices_as_gpus_and_without_any_mig_gpus() -> None:
    cards = card(0, "3g.20gb", "3g.20gb"), card(1, "3g.20gb")
    expected = ["MIG-3g.20gb-0-0", "MIG-3g.20gb-1-0", "MIG-3g.20gb-0-1"]
    assert {"nvidia.com/gpu": expected} == offered(*cards, mig_strategy="single")
    assert {"nvidia.com/gpu": ["GPU-0"]} == offered(gpu(0), mig_strategy="single")
    assert {"nvidia.com/gpu": ["GPU-0", "GPU-1"]} == offered(gpu(0), card(1, "1g.5gb"))


def test_single_leaves_out_what_is_unlike_most_and_says_so() -> None:
    cards = card(0, "3g.20gb", "3g.20gb"), card(1, "7g.40gb"), gpu(2), card(3)
    found = offered(*cards, mig_strategy="single")
    assert {"nvidia.com/gpu": ["MIG-3g.20gb-0-0", "MIG-3g.20gb-1-0"]} == found
    expected = """\
MIG device MIG-7g.40gb-0-1 is skipped: it is 7g.40gb, most are 3g.20gb, \
and mig-strategy is single: use mixed
GPU GPU-2 is skipped: it has no MIG devices, others have, and mig-strategy is single: use mixed
GPU GPU-3 is skipped: MIG is enabled, and it has no MIG devices"""
    assert expected == "\n".join(warnings(*cards, mig_strategy="single"))


@pytest.mark.parametrize(
    ("profile", "reason"),
    [("", "its profile is unknown"), ("1c.3g.20gb", "1c.3g.20gb is only a part of a GPU")],
)
def test_mixed_leaves_out_an_odd_profile_and_nothing_else(profile: str, reason: str) -> None:
    cards = gpu(0), card(1, profile, "1g.5gb")
    found = offered(*cards, mig_strategy="mixed")
    assert {"nvidia.com/gpu", "nvidia.com/mig-1g.5gb"} == found.keys()
    (warning,) = warnings(*cards, mig_strategy="mixed")
    assert reason in warning


def test_an_odd_profile_can_be_given_a_name() -> None:
    naming = {"mig": [{"pattern": "1c.*", "name": "slice"}]}
    found = offered(card(0, "1c.3g.20gb"), mig_strategy="mixed", resources=naming)
    assert {"nvidia.com/slice": ["MIG-1c.3g.20gb-0-0"]} == found


# Names.


def test_resources_can_be_named_by_model() -> None:
    naming = {
        "gpus": [
            {"pattern": "*a100*", "name": "a100"},
            {"pattern": "*H*", "name": "example.com/other"},
        ]
    }
    expected = {
        "nvidia.com/a100": ["GPU-0"],
        "example.com/other": ["GPU-1"],
        "nvidia.com/gpu": ["GPU-2"],
    }
    assert expected == offered(gpu(0), gpu(1, H100), gpu(2, "Tesla T4"), resources=naming)


def test_a_gpu_without_a_known_model_is_not_named_by_guess() -> None:
    naming = {"gpus": [{"pattern": "*H100*", "name": "h100"}]}
    lost = gpu(0, "", problem="GPU is lost")
    assert {} == offered(lost, resources=naming)
    expected = ["GPU GPU-0 is skipped: its model cannot be read: GPU is lost"]
    assert expected == warnings(lost, resources=naming)


# Selection.


@pytest.mark.parametrize(
    "name", ["1", "GPU-1", "gpu-1", "0000:01:00.0", "00000000:01:00.0", "01:00.0", "*h100*"]
)
def test_a_gpu_can_be_named_in_many_ways(name: str) -> None:
    fleet = [gpu(0), gpu(1, H100), gpu(2)]
    assert ["GPU-1"] == [one.uuid for one in fleet if names_gpu(name, one)]
    assert {"nvidia.com/gpu": ["GPU-0", "GPU-2"]} == offered(*fleet, exclude=(name,))
    assert {"nvidia.com/gpu": ["GPU-1"]} == offered(*fleet, include=(name,))


def test_single_mig_devices_can_be_excluded_and_excluding_wins() -> None:
    fleet = card(0, "1g.5gb", "1g.5gb")
    found = offered(fleet, mig_strategy="mixed", exclude=("0:1",))
    assert {"nvidia.com/mig-1g.5gb": ["MIG-1g.5gb-0-0"]} == found
    found = offered(gpu(0), gpu(1), include=("*",), exclude=("0",))
    assert {"nvidia.com/gpu": ["GPU-1"]} == found


# Sharing.


def test_shared_gpus_are_numbered_and_can_have_a_name_of_their_own() -> None:
    entry = {"name": "nvidia.com/gpu", "replicas": 2}
    replicas = ["GPU-0::0", "GPU-0::1"]
    assert {"nvidia.com/gpu": replicas} == offered(gpu(0), sharing=slicing(entry))
    by_default = slicing(entry, renameByDefault=True)
    assert {"nvidia.com/gpu.shared": replicas} == offered(gpu(0), sharing=by_default)
    by_name = slicing({**entry, "rename": "slice"})
    assert {"nvidia.com/slice": replicas} == offered(gpu(0), sharing=by_name)
    alone = slicing({**entry, "replicas": 1}, renameByDefault=True)
    assert {"nvidia.com/gpu.shared": ["GPU-0"]} == offered(gpu(0), sharing=alone)


@pytest.mark.parametrize(
    ("chosen", "shared"),
    [
        ("all", {"GPU-0", "GPU-1", "GPU-2"}),
        (2, {"GPU-0", "GPU-1"}),
        ([1], {"GPU-1"}),
        (["GPU-2", "0"], {"GPU-0", "GPU-2"}),
        (["*H100*"], {"GPU-1"}),
    ],
)
def test_some_gpus_are_shared_and_others_are_not(chosen: object, shared: set[str]) -> None:
    fleet = [gpu(0), gpu(1, H100), gpu(2)]
    entry = {"name": "gpu", "replicas": 2, "rename": "shared", "devices": chosen}
    found = offered(*fleet, sharing=slicing(entry))
    assert shared == {name.partition("::")[0] for name in found["nvidia.com/shared"]}
    whole = {one.uuid for one in fleet} - shared
    assert whole == set(found.get("nvidia.com/gpu", []))


def test_gpus_can_have_different_numbers_of_replicas() -> None:
    sharing = slicing(
        {"name": "gpu", "replicas": 2, "devices": [0]},
        {"name": "gpu", "replicas": 3, "devices": ["*H100*"]},
    )
    expected = ["GPU-0::0", "GPU-0::1", "GPU-1::0", "GPU-1::1", "GPU-1::2"]
    assert {"nvidia.com/gpu": expected} == offered(gpu(0), gpu(1, H100), sharing=sharing)


def test_mig_devices_are_shared_by_the_name_of_their_profile() -> None:
    sharing = slicing({"name": "mig-1g.5gb", "replicas": 2})
    found = offered(card(0, "1g.5gb", "2g.10gb"), mig_strategy="mixed", sharing=sharing)
    expected = {
        "nvidia.com/mig-1g.5gb": ["MIG-1g.5gb-0-0::0", "MIG-1g.5gb-0-0::1"],
        "nvidia.com/mig-2g.10gb": ["MIG-2g.10gb-1-0"],
    }
    assert expected == found


@pytest.mark.parametrize("way", ["timeSlicing", "mps"])
@pytest.mark.parametrize(
    ("share", "expected"),
    [
        ({"name": "nvidia.com/gpuu", "replicas": 3}, "the resources here are nvidia.com/gpu"),
        ({"name": "nvidia.com/mig-1g.5gb", "replicas": 3}, "here are nvidia.com/gpu"),
        (
            {"name": "nvidia.com/gpu", "replicas": 3, "devices": ["7", "GPU-of-before"]},
            "none of its devices is 7, GPU-of-before",
        ),
    ],
)
def test_sharing_that_nothing_here_matches_is_told(
    way: str, share: dict[str, object], expected: str
) -> None:
    sharing = {way: {"resources": [share]}}
    given: dict[str, Any] = {"sharing": sharing, "mps_root": Path("/mps")}
    assert {"nvidia.com/gpu": ["GPU-0"]} == offered(gpu(0), **given)
    (told,) = warnings(gpu(0), **given)
    assert told.startswith(f"sharing of {share['name']} has no effect: ")
    assert told.endswith(expected)
    assert [] == warnings(**given), "a node without GPUs lacks nothing"
    assert [] == warnings(gpu(0), sharing=slicing({"name": "gpu", "replicas": 2, "devices": 9}))


def test_the_list_of_the_kubelet_is_the_only_limit_of_replicas() -> None:
    many = slicing({"name": "gpu", "replicas": 16384})
    assert 16384 == len(offered(gpu(0), sharing=many)["nvidia.com/gpu"])
    two = slicing(
        {"name": "gpu", "replicas": MOST, "devices": [0, 1]},
        {"name": "gpu", "replicas": 3, "rename": "few", "devices": [2]},
    )
    found = offered(gpu(0), gpu(1), gpu(2), gpu(3), sharing=two)
    assert {"nvidia.com/few": 3} == {name: len(ids) for name, ids in found.items()}
    (told,) = warnings(gpu(0), gpu(1), gpu(2), gpu(3), sharing=two)
    assert told.startswith(f"nvidia.com/gpu: {2 * MOST + 1} shares have no room")


@pytest.mark.parametrize("given", [{"include": ("*H100*",)}, {"exclude": ("*",)}])
def test_a_choice_of_gpus_that_leaves_none_is_told(given: dict[str, Any]) -> None:
    assert {} == offered(gpu(0), gpu(1), **given)
    expected = "include and exclude choose none of the 2 GPUs that are here"
    assert [expected] == warnings(gpu(0), gpu(1), **given)
    assert [] == warnings(**given)


MIGS = (FakeMig(1, "1g.5gb", values={"start": 2}), FakeMig(2, "2g.10gb", values={"start": 4}))


def attributes(rig: GpuRig, **settings: Any) -> dict[str, dict[str, Any]]:
    """Return the attributes in slices of all devices, by id."""
    found = {}
    for device in rig.plugin(**settings).discover():
        body, cuts = Describer("gpu.nvidia.com").describe(device, device.resource)
        assert [] == cuts
        plain = {name: next(iter(one.values())) for name, one in body["attributes"].items()}
        found[device.id] = plain
    return found


def test_a_mig_device_says_its_profile_its_gpu_and_where_it_is_in_it(rig: GpuRig) -> None:
    rig.has(Fleet.of(2))
    rig.fake.change(1, migs=MIGS)
    found = attributes(rig, mig_strategy="mixed")
    first, second = (found[one.uuid(1)] for one in MIGS)
    assert ("1g.5gb", "2g.10gb") == (first["profile"], second["profile"])
    assert first["parentUUID"] == second["parentUUID"]
    assert first["parentUUID"] not in found, "a GPU in parts is not offered as a whole"
    assert (2, 1) == (first["placementStart"], first["placementSize"])
    assert (4, 2) == (second["placementStart"], second["placementSize"])
    (whole,) = (one for key, one in found.items() if not key.startswith("MIG-"))
    assert {"parentUUID", "profile", "placementStart"}.isdisjoint(whole)


@pytest.mark.parametrize("function", ["nvmlDeviceGetGpuInstanceById", "nvmlGpuInstanceGetInfo"])
@pytest.mark.parametrize(
    "error", [pynvml.NVML_ERROR_NO_PERMISSION, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND]
)
def test_a_driver_that_does_not_tell_where_it_is_costs_only_that(
    rig: GpuRig, function: str, error: int
) -> None:
    rig.has(Fleet.of(1, migs=MIGS))
    rig.fake.fail(function, error)
    found = attributes(rig, mig_strategy="mixed")
    assert {one.uuid(0) for one in MIGS} == found.keys()
    assert all("parentUUID" in one and "placementStart" not in one for one in found.values())
