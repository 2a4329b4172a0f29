"""Parts of simulated devices: which there are, how they are made, and what can go wrong."""

import json
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

import deviceplugin as dp
from deviceplugin.__main__ import main
from deviceplugin.kit.state import State
from deviceplugin_simulated import SimulatedPlugin, SimulatedSettings
from deviceplugin_testing.fixture import Kubelet
from patience import PATIENCE, eventually

GPU = "example.com/gpu"
PARTS: dict[str, Any] = {
    "counters": {"memory": 8, "compute": 7},
    "profiles": {
        "1g": {"consumes": {"memory": 1, "compute": 1}, "groups": "a"},
        "3g": {
            "consumes": {"memory": 4, "compute": 3},
            "groups": ["a"],
            "placements": [0, 4],
            "size": 4,
        },
        "red": {"consumes": {"memory": 2}, "groups": ["a", "b"]},
        "blue": {"consumes": {"memory": 2}, "groups": "c"},
    },
}
Make = Callable[..., SimulatedPlugin]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Return what makes a plugin with a device, whose hardware is a file that all of them share."""

    def made(parts: Any = PARTS, **more: Any) -> SimulatedPlugin:
        path, state = tmp_path / "devices.json", tmp_path / "hardware" / "parts.json"
        path.write_text(json.dumps({"resources": {GPU: {"parts": parts, **more}}}))
        return SimulatedPlugin(SimulatedSettings(devices=path, state_file=state))

    return made


def found(plugin: SimulatedPlugin) -> dict[str, dp.Device]:
    return {device.id: device for device in plugin.discover()}


def part_of(device: dp.Device) -> dp.Part:
    assert device.part is not None
    return device.part


def told(plugin: SimulatedPlugin, do: str, *devices: str, **more: Any) -> Any:
    """Return how the devices are after an order, or why it was refused."""
    order = {"do": do, **more, **({"devices": list(devices)} if devices else {})}
    reply = json.loads(plugin._obey(json.dumps(order).encode()))
    return reply.get("devices", reply.get("error"))


def claimed(plugin: SimulatedPlugin, device_id: str) -> dp.Device:
    """Make a part as the framework does."""
    plugin.made = {**plugin.made, device_id: ""}
    made = plugin.make_part(found(plugin)[device_id])
    plugin.made = {**plugin.made, device_id: part_of(made).identity}
    return made


def released(plugin: SimulatedPlugin, device_id: str) -> None:
    identity = plugin.made[device_id]
    plugin.unmake_part(found(plugin).get(device_id, dp.Device(device_id)), identity)
    plugin.made = {key: one for key, one in plugin.made.items() if key != device_id}


def unhealthy(plugin: SimulatedPlugin) -> Counter[str]:
    """Return how many devices of each profile are not healthy."""
    devices = found(plugin).values()
    return Counter(str(one.attributes.get("profile", "whole")) for one in devices if not one.health)


def test_a_device_is_there_as_a_whole_and_as_all_parts_that_it_has_room_for(make: Make) -> None:
    devices = found(make())
    profiles = Counter(one.attributes.get("profile") for one in devices.values())
    assert {"whole": 1, "1g": 7, "3g": 2, "red": 4, "blue": 4} == profiles
    whole, last = part_of(devices["gpu-0"]), part_of(devices["gpu-0/3g@4"])
    slots = {f"slot-{number}": 1 for number in range(8)}
    assert (slots | PARTS["counters"], whole.of.amounts) == (whole.of.amounts, whole.consumes)
    assert whole.of == last.of
    assert {"memory": 4, "compute": 3, **dict(list(slots.items())[4:])} == last.consumes
    assert (False, True) == (whole.on_demand, last.on_demand)
    part = devices["gpu-0/3g@4"]
    assert {"parent": "gpu-0", "profile": "3g", "placementStart": 4} == part.attributes
    assert {"memory": 4, "compute": 3} == part.capacity
    assert "gpu-0" not in found(make({**PARTS, "whole": False}))


ONE: Any = {"consumes": {"memory": 1}}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"profiles": {}}, "parts.profiles: is empty"),
        ({"counters": {"Memory": 1}}, "counters.Memory: is not the name of a counter, such as"),
        ({"counters": {"slot-1": 1}}, "counters.slot-1: names of slots are made for placements"),
        ({"profiles": {"A": ONE}}, "profiles.A: is not the name of a profile of parts, such as"),
        ({"profiles": {"whole": ONE}}, "profiles.whole: is not the name of a profile of parts"),
        ({"profiles": {"a": {}}}, "profiles.a: has neither consumes nor placements, so there"),
        ({"profiles": {"a": {**ONE, "size": 4}}}, "profiles.a.size: 4 is for placements: add"),
        (
            {"profiles": {"a": {"consumes": {"memry": 1}}, "b": {"consumes": {"memory": 9}}}},
            "'memry' is not a counter: did you mean 'memory'?; profiles.b.consumes.memory: 9 is",
        ),
        ({"profiles": {"a": {"placements": [1, 1]}}}, "profiles.a.placements: one is given twice"),
        ({"profiles": {"a": {"placements": [31]}}}, "34 counters and slots of placements are more"),
    ],
)
def test_parts_that_cannot_be_are_refused(make: Make, change: Any, expected: str) -> None:
    with pytest.raises(dp.ConfigError, match=r"devices\.json:1: ") as raised:
        make({**PARTS, **change})
    assert expected in str(raised.value)


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"count": 90_000}, "gpu: count: 90000 with their parts are more than 100000"),
        ({"attributes": {"profile": "x"}}, "gpu: attributes.profile: parts have their own: choose"),
    ],
)
def test_a_resource_that_does_not_fit_its_parts_is_refused(
    make: Make, more: Any, expected: str
) -> None:
    with pytest.raises(dp.ConfigError, match=expected):
        make(**more)


def test_a_part_is_made_once_and_says_in_the_container_which_it_is(make: Make) -> None:
    plugin = make()
    part = claimed(plugin, "gpu-0/3g@4")
    identity = part_of(part).identity
    assert {"PART_GPU_0_3G_4": identity} == plugin.allocate([part]).envs
    assert part == plugin.make_part(part)
    assert part == claimed(make(), "gpu-0/3g@4")  # the next process finds it
    listed = told(make(), "list")
    assert f"healthy, made for a claim ({identity})" == listed["gpu-0/3g@4"]
    released(plugin, "gpu-0/3g@4")
    make().unmake_part(part, identity)
    assert {"healthy"} == {*told(plugin, "list").values()}
    assert identity != part_of(claimed(plugin, "gpu-0/3g@4")).identity


def test_a_part_that_has_become_another_ones_is_not_removed(make: Make) -> None:
    plugin = make()
    part = claimed(plugin, "gpu-0/1g@0")
    plugin.unmake_part(part, "another identity")
    plugin.unmake_part(dp.Device("unknown", resource=GPU), "")
    assert "made for a claim" in told(plugin, "list")["gpu-0/1g@0"]
    plugin.unmake_part(dp.Device("gpu-0/1g@0", resource=GPU), "")  # only an id and a resource
    assert "healthy" == told(plugin, "list")["gpu-0/1g@0"]
    told(plugin, "make", "gpu-0/1g@0")
    plugin.unmake_part(part, "")
    assert "healthy, made by somebody else" == told(plugin, "list")["gpu-0/1g@0"]


def test_the_hardware_has_no_more_than_there_is_room_for(make: Make) -> None:
    plugin = make()
    for device_id in ("gpu-0/3g@0", "gpu-0/red@0", "gpu-0/red@1"):
        claimed(plugin, device_id)
    for device_id, why in (
        ("gpu-0/1g@0", "needs 1 of memory, and 0 is left beside gpu-0/3g@0, "),
        ("gpu-0", "is not a part that can be made"),
    ):
        with pytest.raises(dp.AllocationError, match=f"^{device_id}: {why}"):
            plugin.make_part(found(plugin)[device_id])
    released(plugin, "gpu-0/3g@0")
    with pytest.raises(dp.AllocationError, match="has no group in common with gpu-0/red@0, "):
        plugin.make_part(found(plugin)["gpu-0/blue@0"])
    with pytest.raises(dp.AllocationError, match="gpu-0: is not a part that can be made"):
        plugin.make_part(dp.Device("gpu-0", resource=GPU))


def test_parts_of_somebody_else_leave_less_for_claims(make: Make) -> None:
    plugin = make()
    assert "gpu-0/3g@9: is not" not in str(told(plugin, "make", "gpu-0/3g@0"))
    devices = found(plugin)
    amounts = part_of(devices["gpu-0"]).of.amounts
    assert (4, 4, 0, 1) == tuple(amounts[one] for one in ("memory", "compute", "slot-0", "slot-4"))
    assert {"whole": 1, "3g": 1, "blue": 4} == unhealthy(plugin)
    assert "somebody else made gpu-0/3g@0" == devices["gpu-0"].health.reason
    with pytest.raises(dp.AllocationError, match="gpu-0/3g@0: was made by somebody else"):
        plugin.make_part(devices["gpu-0/3g@0"])
    assert "gpu-0/3g@0: is there" == told(plugin, "make", "gpu-0/3g@0")
    told(plugin, "unmake")
    told(plugin, "make", "gpu-0/blue@0")
    assert {"whole": 1, "1g": 7, "3g": 2, "red": 4, "blue": 1} == unhealthy(plugin)
    told(plugin, "unmake")
    assert not unhealthy(plugin)


def test_a_part_that_no_claim_has_although_the_plugin_made_it_is_anothers(make: Make) -> None:
    claimed(make(), "gpu-0/3g@0")
    plugin = make()  # whose records are lost
    assert {"whole": 1, "3g": 1, "blue": 4} == unhealthy(plugin)
    assert "gpu-0/3g@4" == claimed(plugin, "gpu-0/3g@4").id


def test_of_many_parts_of_others_a_few_are_named(make: Make) -> None:
    plugin = make()
    told(plugin, "make", "gpu-0/1g@*")
    refused = told(plugin, "make", "gpu-0/1g@*")
    assert "gpu-0/1g@0: is there; gpu-0/1g@1: is there; gpu-0/1g@2: is there and 4 more" == refused
    reason = "somebody else made gpu-0/1g@0, gpu-0/1g@1, gpu-0/1g@2 and 4 more"
    assert reason == found(plugin)["gpu-0"].health.reason


def test_a_part_that_a_claim_has_is_listed_although_the_settings_have_it_no_more(
    make: Make,
) -> None:
    plugin = make()
    part = claimed(plugin, "gpu-0/3g@4")
    fewer = make({**PARTS, "profiles": {"1g": PARTS["profiles"]["1g"]}})
    fewer.made = plugin.made
    kept = found(fewer)["gpu-0/3g@4"]
    assert (GPU, part.hardware) == (kept.resource, kept.hardware)
    assert part_of(part).consumes == part_of(kept).consumes
    released(fewer, "gpu-0/3g@4")
    assert "gpu-0/3g@4" not in found(fewer)


def test_parts_go_with_their_hardware_and_are_made_again(make: Make) -> None:
    plugin = make()
    first = again = claimed(plugin, "gpu-0/1g@0")
    for order, devices in (("reboot", ()), ("unplug", ("gpu-0",))):
        told(plugin, order, *devices)
        told(plugin, "plug")
        device = found(plugin)["gpu-0/1g@0"]
        assert "degraded: the part is gone: the next start of the pod makes it" == str(
            device.health
        )
        again = claimed(plugin, "gpu-0/1g@0")
        assert part_of(first).identity != part_of(again).identity
        assert found(plugin)["gpu-0/1g@0"].health
    told(plugin, "unplug", "gpu-0")
    assert "gpu-0/1g@1: is unplugged" == told(plugin, "make", "gpu-0/1g@1")
    told(plugin, "stick", "gpu-0/*")
    assert [] == list(plugin.discover())
    with pytest.raises(dp.UnknownDeviceError):
        plugin.make_part(again)
    released(plugin, "gpu-0/1g@0")


def test_a_part_is_not_missing_while_its_claim_ends(make: Make) -> None:
    plugin = make()
    made = claimed(plugin, "gpu-0/1g@0")
    plugin.unmake_part(made, part_of(made).identity)
    for _ in range(2):
        assert {"healthy"} == {device.health.state for device in plugin.discover()}
    claimed(plugin, "gpu-0/1g@0")
    told(plugin, "reboot")
    assert "degraded" == found(plugin)["gpu-0/1g@0"].health.state


def test_making_and_removing_fail_until_they_recover(make: Make) -> None:
    plugin = make()
    failing = told(plugin, "fail", "gpu-0/1g@0", reason="busy")
    assert {"gpu-0/1g@0": "failing: busy"} == failing
    with pytest.raises(dp.AllocationError, match="device gpu-0/1g@0: busy"):
        claimed(plugin, "gpu-0/1g@0")
    told(plugin, "recover")
    part = claimed(plugin, "gpu-0/1g@0")
    sticking = told(plugin, "stick")["gpu-0/1g@0"]
    assert sticking.startswith("sticking: simulated fault, made for a claim (")
    with pytest.raises(dp.DevicePluginError, match="gpu-0/1g@0: simulated fault"):
        released(plugin, "gpu-0/1g@0")
    told(plugin, "fail", "gpu-0/1g@0")
    plugin.allocate([part])  # it fails when it is made, and not after
    with pytest.raises(dp.DevicePluginError) as raised:  # AllocationError: nothing of it is left
        claimed(plugin, "gpu-0/1g@0")
    assert not isinstance(raised.value, dp.AllocationError)
    told(plugin, "recover")
    released(plugin, "gpu-0/1g@0")
    told(plugin, "unhealthy", "gpu-0", reason="too hot")  # and a part is no better than its device
    assert "unhealthy: too hot" == told(plugin, "list")["gpu-0/1g@0"]
    with pytest.raises(dp.UnhealthyDeviceError, match="too hot"):
        claimed(plugin, "gpu-0/1g@0")


def test_a_part_that_vanishes_while_it_is_made_is_not_given_out(make: Make) -> None:
    plugin = make()
    told(plugin, "slow", "gpu-0/3g@0", by="1h")
    failed = threading.Event()

    def try_it() -> None:
        with pytest.raises(dp.AllocationError, match="gpu-0/3g@0: vanished while it was made"):
            claimed(plugin, "gpu-0/3g@0")
        failed.set()

    plugin.start(GPU)
    thread = threading.Thread(target=try_it)
    thread.start()
    eventually(lambda: "half made" in told(plugin, "list")["gpu-0/3g@0"])
    told(plugin, "reboot")
    plugin.stop(GPU)  # which ends the wait
    thread.join()
    assert failed.is_set()


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ({"do": "make"}, "request: devices: is needed: make which parts?"),
        (
            {"do": "make", "devices": "gpu-0"},
            "request.devices: 'gpu-0' is not a part: did you mean",
        ),
        ({"do": "reboot", "devices": "gpu-0"}, "reboot happens to the plugin, not to devices"),
        ({"do": "unmake", "for": "1s"}, "request.for: unmake has no duration"),
    ],
)
def test_an_order_that_fits_no_part_is_refused(make: Make, order: Any, expected: str) -> None:
    assert expected in json.loads(make()._obey(json.dumps(order).encode()))["error"]
    plain = SimulatedPlugin(SimulatedSettings(profile="8-gpus", state_file=None))
    assert "request.do: stick happens to parts, and no device has any" == told(plain, "stick")


def test_hardware_that_cannot_be_written_refuses_and_says_why(make: Make, tmp_path: Path) -> None:
    state = tmp_path / "hardware" / "parts.json"
    state.parent.touch()
    plugin = make()
    part = found(plugin)["gpu-0/1g@0"]
    for call in (lambda: plugin.make_part(part), lambda: plugin.unmake_part(part, "")):
        with pytest.raises(
            dp.DevicePluginError, match=r"^state-file .*/hardware/parts.json is not written"
        ):
            call()
    assert "state-file " in told(plugin, "make", "gpu-0/1g@0")
    state.parent.unlink()
    state.mkdir(parents=True)
    assert "is not written: see the log" in told(plugin, "make", "gpu-0/1g@0")


def test_a_file_that_somebody_keeps_locked_stops_nothing_for_long(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deviceplugin_simulated.parts._LIMIT", 0.1)
    plugin = make()
    told(plugin, "make", "gpu-0/1g@0")
    with State(tmp_path / "hardware" / "other", 1).alone():
        assert "another process keeps it locked" in told(plugin, "unmake")
    assert "healthy" == told(plugin, "unmake")["gpu-0/1g@0"]


def test_a_damaged_file_is_set_aside(make: Make, tmp_path: Path) -> None:
    plugin = make()
    claimed(plugin, "gpu-0/1g@0")
    state = tmp_path / "hardware" / "parts.json"
    document = json.loads(state.read_text())
    document["parts"]["gpu-0/1g@0"]["consumes"] = 5
    state.write_text(json.dumps(document))
    assert "healthy" == told(plugin, "list")["gpu-0/1g@0"]
    assert Path(f"{state}.unreadable").exists()


def test_a_hold_of_a_device_or_of_a_part_holds_all_that_can_be_made_of_it(
    kubelet: Kubelet, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = SimulatedSettings(profile="parts", state_file=None)
    with kubelet.running(SimulatedPlugin(settings), http_address="127.0.0.1:0") as node:
        node.wait_for(GPU, {"gpu-0", "gpu-1"})
        port = eventually(lambda: node.host.http_port)
        plugin_dir = f"--plugin-dir={kubelet.simulated.plugin_dir}"

        def held() -> set[str]:
            with urlopen(f"http://127.0.0.1:{port}/devices", timeout=PATIENCE) as answer:
                (resource,) = json.load(answer)["resources"]
            return {
                one["id"] for one in resource["devices"] if one["reason"].startswith("held: hot")
            }

        for name, whole in (("gpu-0", "gpu-0"), ("gpu-1/3g@0", "gpu-1")):
            assert 0 == main(["hold", plugin_dir, name, "--reason=hot"])
            eventually(lambda: 13 == len(held()), lambda: str(held()))
            assert {whole} == {one.partition("/")[0] for one in held()}
            assert 0 == main(["release", plugin_dir, name])
            eventually(lambda: not held())
    capsys.readouterr()


def test_a_script_makes_parts_for_a_time_and_says_what_does_not_fit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, now = tmp_path / "devices.json", [0.0]
    timeline = [
        {"at": "1s", "do": "make", "devices": "gpu-0/3g@0", "for": "10s"},
        {"at": "2s", "do": "make", "devices": "gpu-0/3g@0"},
    ]
    faults = {"every": "1s", "faults": ["make"], "until": "1m"}
    scenario = {"resources": {GPU: {"parts": PARTS}}, "timeline": timeline}
    path.write_text(json.dumps(scenario))
    plugin = SimulatedPlugin(SimulatedSettings(devices=path, state_file=None), clock=lambda: now[0])
    now[0] = 5.0
    assert {"whole": 1, "3g": 1, "blue": 4} == unhealthy(plugin)
    (record,) = [one for one in caplog.records if one.message == "event of parts failed"]
    assert "gpu-0/3g@0: is there" == vars(record)["error"]
    now[0] = 20.0
    assert not unhealthy(plugin)
    path.write_text(json.dumps({**scenario, "timeline": [], "random": faults}))
    plugin = SimulatedPlugin(SimulatedSettings(devices=path, state_file=None), clock=lambda: now[0])
    now[0] = 80.0
    assert unhealthy(plugin)
    now[0] = 1000.0
    assert not unhealthy(plugin)
