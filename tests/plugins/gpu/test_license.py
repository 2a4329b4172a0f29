"""The license of a virtual GPU: health, metrics, attributes, and what is not one's absence."""

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

import deviceplugin as dp
from deviceplugin.tools.events._notice import Notice, read_facts
from deviceplugin_gpu.health.license import GRACE, MISSING, LicenseRules, LicenseState
from deviceplugin_gpu.plugin import GpuPlugin
from deviceplugin_gpu.snapshot import License
from deviceplugin_testing.fixture import Kubelet
from gpu.fake_nvml import FakeMig, Fleet
from gpu.rig import GPU, GpuRig, devices, uuid

SOUND, WORN = dp.Health(), dp.Health.degraded
BAD = partial(dp.Health.unhealthy, cause="license")
QUERY = "nvmlDeviceGetGridLicensableFeatures_v4"
ACQUIRING = "vGPU license is being acquired"
ENDED = "vGPU license expires at 2020-01-31T12:00:00Z, and was not renewed"
LEAP = ENDED.replace("01-31", "02-29")


@pytest.fixture
def virtual(rig: GpuRig) -> GpuRig:
    """A virtual machine that has run for long, with a vGPU without a license."""
    rig.now = 10 * GRACE
    return rig.has(Fleet.of(1, virtualization="vgpu", license="unlicensed"))


def until(end: str) -> dict[str, Any]:
    return {"license": "licensed", "license_expiry": end}


def seen(plugin: GpuPlugin) -> tuple[dp.Health, object, dict[str, float]]:
    """Return what a discovery finds of the GPU: health, attribute, and metrics of the license."""
    device = devices(plugin)[uuid(0)]
    found = {
        str(one.labels.get("state", "expires")): one.value
        for family in plugin.metrics()
        if "vgpu_license" in family.name
        for one in family.samples
    }
    return device.health, device.attributes.get("vgpuLicensed"), found


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"virtualization": "none"}, (SOUND, None, {})),
        ({"virtualization": "passthrough"}, (SOUND, None, {})),
        ({"virtualization": "host-vgpu"}, (SOUND, None, {})),
        ({"license": "unsupported"}, (SOUND, None, {})),
        ({}, (WORN(MISSING), False, {"unlicensed": 1})),
        ({"license_expiry": "2099-01-31T12:00:00"}, (WORN(MISSING), False, {"unlicensed": 1})),
        *(
            (until(one), (SOUND, True, {"licensed": 1}))
            for one in ("none", "invalid", "not-applicable", "permanent", "0-0-0T0:0:0")
        ),
        (until("2099-01-31T12:00:00"), (SOUND, True, {"licensed": 1, "expires": 4073544000})),
        (until("2020-01-31T12:00:00"), (WORN(ENDED), True, {"expiring": 1, "expires": 1580472000})),
        (until("2020-02-29T12:00:00"), (WORN(LEAP), True, {"expiring": 1, "expires": 1582977600})),
    ],
)
def test_a_virtual_gpu_is_degraded_without_a_license_or_when_it_expires(
    virtual: GpuRig, values: dict[str, Any], expected: tuple[dp.Health, object, object]
) -> None:
    virtual.fake.change(0, **values)
    assert expected == seen(virtual.plugin())
    required = BAD(MISSING) if expected[0] == WORN(MISSING) else expected[0]
    assert required == seen(virtual.plugin(vgpu_license_required=True))[0]


def test_a_date_that_is_none_is_logged_once(
    virtual: GpuRig, caplog: pytest.LogCaptureFixture
) -> None:
    plugin = virtual.plugin()
    virtual.fake.change(0, license="licensed")
    devices(plugin)
    assert "not answered" not in caplog.text
    virtual.fake.change(0, license_expiry="2027-13-45T12:00:00")
    for _ in range(3):
        devices(plugin)
    (problem,) = (one.problem for one in caplog.records if "not answered" in one.message)  # type: ignore[attr-defined]
    expected = "the license's expiry (2027, 13, 45, 12, 0, 0): month must be in 1..12"
    assert f"GPU {uuid(0)}: {expected}" == problem


def test_a_license_is_acquired_for_some_minutes_after_the_boot(virtual: GpuRig) -> None:
    virtual.now = GRACE - 1
    plugin, strict = virtual.plugin(), virtual.plugin(vgpu_license_required=True)
    assert (SOUND, False, {"acquiring": 1}) == seen(plugin)
    assert (BAD(ACQUIRING), False, {"acquiring": 1}) == seen(strict)
    virtual.now = GRACE
    assert (WORN(MISSING), False, {"unlicensed": 1}) == seen(plugin)
    assert (BAD(MISSING), False, {"unlicensed": 1}) == seen(strict)
    virtual.fake.change(0, license="licensed")
    for one in (plugin, strict):
        assert (SOUND, True, {"licensed": 1}) == seen(one)
    virtual.fake.change(0, license="unlicensed")
    assert WORN(MISSING) == seen(plugin)[0]


def test_a_driver_that_comes_back_acquires_its_license_anew(virtual: GpuRig) -> None:
    plugin = virtual.plugin(discovery_deadline=timedelta(seconds=1))
    assert WORN(MISSING) == seen(plugin)[0]
    virtual.fake.drop_driver()
    for virtual.now in (11 * GRACE, 12 * GRACE):
        with pytest.raises(dp.DiscoveryError):
            devices(plugin)
    virtual.fake.mend()
    virtual.now = 13 * GRACE - 1
    assert (SOUND, {"acquiring": 1}) == seen(plugin)[::2]
    virtual.now = 13 * GRACE
    assert WORN(MISSING) == seen(plugin)[0]


@pytest.mark.parametrize("function", [QUERY, "nvmlDeviceGetVirtualizationMode"])
@pytest.mark.parametrize("code", [3, 4, 13, 999])
def test_a_query_that_fails_is_not_a_missing_license(
    virtual: GpuRig, function: str, code: int
) -> None:
    virtual.fake.fail(function, code)
    plugin = virtual.plugin(vgpu_license_required=True)
    assert (SOUND, None, {}) == seen(plugin)
    for license_, expected in (("licensed", SOUND), ("unlicensed", BAD(MISSING))):
        virtual.fake.mend()
        virtual.fake.change(0, license=license_)
        assert expected == seen(plugin)[0]
        virtual.fake.fail(function, code)
        assert expected == seen(plugin)[0], "what was known stays"


RULES = LicenseRules(warning=60)
NOON = datetime(2027, 1, 31, 12, tzinfo=UTC).timestamp()


@pytest.fixture(params=["UTC", "Asia/Kolkata", "PST8"])
def _zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setitem(os.environ, "TZ", request.param)
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("_zone")
def test_a_license_expires_by_the_clock_in_utc_wherever_the_node_is(virtual: GpuRig) -> None:
    why = "vGPU license expires at 2027-01-31T12:00:00Z, and was not renewed"
    for before, name in ((61, "licensed"), (60, "licensed"), (59, "expiring"), (-1, "expiring")):
        found = RULES.judge(License(True, NOON), NOON - before, acquiring=True)
        wear = why if name == "expiring" else ""
        assert LicenseState(name, wear, expires=NOON) == found
    virtual.fake.change(0, **until("2027-01-31T12:00:00"))
    assert NOON == seen(virtual.plugin())[2]["expires"]


def test_parts_of_a_virtual_gpu_and_its_shares_have_its_license(virtual: GpuRig) -> None:
    sharing = {"timeSlicing": {"resources": [{"name": "gpu", "replicas": 2}]}}
    virtual.fake.change(0, migs=(FakeMig(1), FakeMig(2)))
    for settings in ({"mig_strategy": "mixed"}, {"sharing": sharing}):
        found = devices(virtual.plugin(**settings)).values()
        assert 2 == len(found)
        assert {WORN(MISSING)} == {one.health for one in found}
        assert {False} == {one.attributes["vgpuLicensed"] for one in found}


def test_pods_get_a_gpu_without_a_license_and_people_get_an_event(
    virtual: GpuRig, kubelet: Kubelet
) -> None:
    with kubelet.running(virtual.plugin(), http_address="127.0.0.1:0") as node:
        node.wait_for(GPU, {uuid(0)})
        assert node.allocate(uuid(0)).envs
        url = f"http://127.0.0.1:{node.host.http_port}/devices"
        (fact,) = (one for one in read_facts(url, 5) if one.device)
        event = Notice((fact,), 0, 1)
    assert "DeviceDegraded" == event.reason
    assert f"{GPU}: {uuid(0)} is degraded: {MISSING} (0 of 1 unhealthy)" == event.message


def test_pods_do_not_get_one_that_is_required_and_missing(
    virtual: GpuRig, kubelet: Kubelet
) -> None:
    plugin = virtual.plugin(vgpu_license_required=True)
    with kubelet.running(plugin) as node:
        node.wait_for(GPU, set(), {uuid(0)})
        virtual.fake.change(0, license="licensed")
        node.wait_for(GPU, {uuid(0)}, set())
