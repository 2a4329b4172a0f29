"""What a restart of the kubelet, of a driver and of the machine does to claims and slices."""

import json
import zlib

import pytest

from deviceplugin.proto.dra import dra_v1_pb2 as pb
from deviceplugin_testing.simulator import (
    ContainerCreateError,
    KubeletConfig,
    StubDriver,
    StubError,
)
from kubelets.equipped import Kubelet, sharing
from patience import eventually

# Claims.


def test_a_restart_leaves_running_pods_alone(kubelet: Kubelet) -> None:
    stub, pod = kubelet.prepared()
    kubelet.restart()
    kubelet.reconnect()
    kubelet.sync()
    assert {"main"} == kubelet.pod(pod).running
    assert not kubelet.dra.prepared("p")
    assert [["p"]] == stub.prepared
    kubelet.exit_container(pod, "main")
    got = kubelet.start_container(pod, "main")
    assert got
    assert {"CLAIM": "p"} == got.envs
    assert [["p"]] == stub.prepared


def test_after_a_restart_another_user_has_the_claim_prepared_again_and_devices_are_added(
    kubelet: Kubelet,
) -> None:
    stub = kubelet.driver()
    pods = [sharing(name, "c") for name in ("one", "two")]
    config = [{"source": "FromClaim", "opaque": {"driver": "y.io", "parameters": {}}}]
    kubelet.give("c", *pods, uid="u", config=config)
    kubelet.run(pods[0])
    kubelet.restart()
    kubelet.reconnect()
    stub.write_cdi("other", {"env": ["OTHER=1"]})
    stub.on_prepare = lambda claim: pb.NodePrepareResourceResponse(
        devices=[
            *stub.one_device(claim).devices,
            pb.Device(pool_name="pool", device_name="new", cdi_device_ids=["x.io/claim=other"]),
        ]
    )
    got = kubelet.run(pods[1]).options["main"]
    assert got
    ids = ["x.io/claim=u", "x.io/claim=u", "x.io/claim=other"]
    assert ids == list(got.claim_cdi_devices)
    assert {"CLAIM": "c", "OTHER": "1"} == got.envs
    assert ["device", "device", "new"] == [device.name for _, device in kubelet.dra.devices("c")]


def test_an_answer_that_is_not_the_same_as_before_breaks_the_container(kubelet: Kubelet) -> None:
    """The old CDI device stays in the kubelet's checkpoint, whatever the driver says later."""
    stub, pod = kubelet.prepared()
    kubelet.reboot()
    kubelet.reconnect()
    stub.on_prepare = lambda claim: stub.devices(pb.Claim(uid="fresh", name=claim.name), "device")
    with pytest.raises(ContainerCreateError, match="unresolvable CDI devices x"):
        kubelet.start_container(pod, "main")


def test_a_reboot_prepares_claims_again_for_new_sandboxes(kubelet: Kubelet) -> None:
    stub = kubelet.driver()
    pod = kubelet.claiming()
    done = kubelet.claiming("done")
    kubelet.run(pod)
    kubelet.run(done)
    kubelet.terminate(done)
    kubelet.reboot()
    assert [] == list(kubelet.cdi_dirs[0].iterdir())
    kubelet.sync()
    assert set() == kubelet.pod(pod).running
    kubelet.reconnect()
    kubelet.pod(pod).retry_at = 0
    kubelet.sync()
    assert {"main"} == kubelet.pod(pod).running
    assert [["p"], ["done"], ["p"]] == stub.prepared
    assert {"CLAIM": "p"} == kubelet.env(pod)


def test_a_driver_that_does_not_write_its_files_again_after_a_reboot_is_found(
    kubelet: Kubelet,
) -> None:
    stub, pod = kubelet.prepared()
    uid = kubelet.claims.claim("default", "p")["metadata"]["uid"]
    ids = [f"x.io/claim={uid}"]
    kubelet.reboot()
    kubelet.reconnect()
    stub.on_prepare = lambda _claim: pb.NodePrepareResourceResponse(
        devices=[pb.Device(pool_name="pool", device_name="device", cdi_device_ids=ids)]
    )
    kubelet.sync()
    assert set() == kubelet.pod(pod).running
    assert f"unresolvable CDI devices {ids[0]}" in kubelet.pod(pod).event
    stub.write_cdi(uid, {"env": ["CLAIM=p"]})
    kubelet.sync_after(10)
    assert {"main"} == kubelet.pod(pod).running


def test_the_checkpoint_is_the_kubelets(kubelet: Kubelet) -> None:
    kubelet.driver()
    kubelet.run(kubelet.claiming())
    written = json.loads((kubelet.root / "dra_manager_state").read_text())
    assert zlib.crc32(written["Data"].encode()) == written["Checksum"]
    data = json.loads(written["Data"])
    assert "DRACheckpoint" == data["kind"]
    (state,) = data["ClaimInfoStateList"]
    assert ("p", "default") == (state["ClaimName"], state["Namespace"])
    (device,) = state["DriverState"]["x.io"]["Devices"]
    assert ("pool", "device", None) == (
        device["PoolName"],
        device["DeviceName"],
        device["RequestNames"],
    )


@pytest.mark.parametrize("damage", ["{", '{"Data": "{}", "Checksum": 1}', '{"Data": 1}'])
def test_a_damaged_checkpoint_stops_the_kubelet(kubelet: Kubelet, damage: str) -> None:
    kubelet.stop()
    (kubelet.root / "dra_manager_state").write_text(damage)
    with pytest.raises(ValueError, match=r"create ResourceClaim cache: .*checkpoint is corrupted"):
        kubelet.start()
    assert not kubelet.running


# Slices.


@pytest.mark.parametrize(
    "config", [KubeletConfig(watch_interval=None, sync_interval=None, wipe_after=3)]
)
def test_the_deletion_at_the_start_can_come_after_the_registration(kubelet: Kubelet) -> None:
    kubelet.driver()
    kubelet.sync()
    assert [] == kubelet.claims.deleted_slices
    kubelet.sync_after(3)
    assert [""] == kubelet.claims.deleted_slices


def test_slices_of_a_driver_are_deleted_30_s_after_its_last_connection(kubelet: Kubelet) -> None:
    kubelet.wait(lambda: kubelet.claims.deleted_slices == [""])
    one, two = kubelet.driver(socket="one.sock"), kubelet.driver(socket="two.sock")
    one.kill()
    kubelet.wait(lambda: kubelet.dra.connected == {"x.io": [str(two.socket)]})
    assert {} == kubelet.dra.wipes
    two.stop()
    kubelet.wait(lambda: kubelet.dra.wipes)
    kubelet.sync_after(29.9)
    assert [""] == kubelet.claims.deleted_slices
    kubelet.sync_after(0.1)
    assert ["", "x.io"] == kubelet.claims.deleted_slices
    assert {"": 1, "x.io": 1} == dict(kubelet.metrics.slice_deletions)


def test_a_driver_that_is_back_within_30_s_keeps_its_slices(kubelet: Kubelet) -> None:
    kubelet.driver().kill()
    kubelet.wait(lambda: kubelet.dra.wipes)
    kubelet.clock.advance(29)
    kubelet.driver()
    assert {} == kubelet.dra.wipes
    kubelet.sync_after(60)
    assert [""] == kubelet.claims.deleted_slices
    kubelet.restart()
    kubelet.wait(lambda: kubelet.claims.deleted_slices == ["", ""])


def test_a_driver_that_never_answers_loses_its_slices_too(kubelet: Kubelet) -> None:
    stub = StubDriver(kubelet.registry_dir, "x.io")
    stub.info.endpoint = "/nowhere/dra.sock"
    with stub:
        kubelet.watch()
        kubelet.clock.advance(30)
        kubelet.sync()
    assert ["", "x.io"] == kubelet.claims.deleted_slices


def test_a_deletion_that_failed_is_tried_again_even_if_the_driver_is_back(kubelet: Kubelet) -> None:
    kubelet.wait(lambda: kubelet.claims.deleted_slices == [""])
    kubelet.driver().kill()
    kubelet.wait(lambda: kubelet.dra.wipes)
    kubelet.claims.failing = "the server is away"
    kubelet.sync_after(30)
    kubelet.driver()
    kubelet.claims.failing = ""
    kubelet.sync_after(1.3)
    assert ["", "x.io"] == kubelet.claims.deleted_slices


# By itself.


@pytest.mark.parametrize("config", [KubeletConfig(watch_interval=0.02, sync_interval=0.02)])
def test_all_of_this_happens_by_itself(kubelet: Kubelet) -> None:
    stub = kubelet.driver()
    stub.failing["NodePrepareResources"] = StubError("not yet")
    pod = kubelet.claiming()
    kubelet.run(pod)
    stub.failing.clear()

    def runs() -> bool:
        kubelet.clock.advance(90)  # again and again: an attempt that fails late waits from then on
        return bool(kubelet.pod(pod).running)

    kubelet.wait(runs)
    kubelet.terminate(pod)
    eventually(lambda: ["p"] in stub.unprepared)  # by the pod or by the loop, or by both at once
