"""What claims can select MIG devices by, and that a GPU is never offered with its parts."""

from typing import Any

import pynvml
import pytest

from deviceplugin._dra.slices.attributes import Describer
from gpu.fake_nvml import FakeMig, Fleet
from gpu.rig import GpuRig

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
