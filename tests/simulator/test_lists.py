"""Device lists and what the node says of them."""

from collections.abc import Sequence

import pytest

from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from deviceplugin_testing.simulator import Behaviour, StubError
from kubelets.equipped import Kubelet, R


def node(kubelet: Kubelet) -> tuple[int | None, int | None]:
    kubelet.tick()
    return kubelet.node.capacity.get(R), kubelet.node.allocatable.get(R)


# As upstream's TestRun.
def test_lists_are_taken_in_order_with_their_healths(kubelet: Kubelet) -> None:
    stub = kubelet.plugin(devices={"a": "Healthy", "b": "Healthy", "c": "Unhealthy"})
    assert {"a": "Healthy", "b": "Healthy", "c": "Unhealthy"} == kubelet.devices(R)
    kubelet.relist(stub, {"a": "Unhealthy", "d": "Healthy"})
    assert 2 == kubelet.lists_received(R)


@pytest.mark.parametrize("health", ["healthy", "", "Healthy "])
def test_only_the_exact_word_is_healthy(kubelet: Kubelet, health: str) -> None:
    kubelet.plugin(devices={"a": health})
    kubelet.wait_for(R, (), {"a"})


def test_an_id_that_is_listed_with_two_healths_is_both_and_twice_counts_once(
    kubelet: Kubelet,
) -> None:
    well, ill = pb.Device(ID="a", health="Healthy"), pb.Device(ID="a", health="Unhealthy")
    stub = kubelet.plugin(devices=[well, ill])
    assert (2, 1) == node(kubelet)
    assert {"a": "Unhealthy"} == kubelet.devices(R)
    kubelet.admitted()
    stub.update([well, well])
    kubelet.wait_for(R, {"a"})
    assert (1, 1) == node(kubelet)


@pytest.mark.parametrize("id_", ["", "x" * 200])
def test_any_id_is_accepted_and_allocated(kubelet: Kubelet, id_: str) -> None:
    stub = kubelet.plugin(devices=[id_])
    kubelet.admitted()
    assert [[id_]] == stub.allocated


def test_an_empty_list_keeps_the_resource_and_before_the_first_it_is_unknown(
    kubelet: Kubelet,
) -> None:
    silent = kubelet.stub(devices=[])
    silent.hold("ListAndWatch")
    silent.register()
    kubelet.wait(lambda: kubelet.registered)
    assert (None, None) == node(kubelet)
    kubelet.admitted()
    assert [] == silent.allocated
    kubelet.after_a_list(R, silent.release)
    assert (0, 0) == node(kubelet)
    assert 1 == silent.streams


def test_a_list_of_nearly_4_mib_is_taken_and_a_larger_one_ends_the_stream(kubelet: Kubelet) -> None:
    # Not healthy, as those that are go into the checkpoint and its checksum.
    stub = kubelet.plugin(devices={f"{number:01000}": "" for number in range(4_000)})
    assert 4_000 == kubelet.capacity(R)
    stub.update({f"{number:01000}": "" for number in range(4_300)})
    kubelet.wait(lambda: not kubelet.registered)
    assert 4_000 == kubelet.capacity(R)


def test_every_list_writes_the_checkpoint_even_if_nothing_changed(kubelet: Kubelet) -> None:
    stub = kubelet.plugin()
    file = kubelet.plugin_dir / "kubelet_internal_checkpoint"
    before = file.stat().st_ino, file.stat().st_ctime_ns
    kubelet.relist(stub, "ab")
    assert before != (file.stat().st_ino, file.stat().st_ctime_ns)
    assert 0o600 == file.stat().st_mode & 0o777


# As upstream's TestUpdateCapacityAllocatable, and end-to-end tests: will set allocatable to zero
# and then back to 1, will lower allocatable to a number of unhealthy devices and back.
def test_capacity_is_all_devices_and_allocatable_the_healthy_ones(kubelet: Kubelet) -> None:
    stub = kubelet.plugin(devices={"a": "Healthy", "b": "Healthy", "c": "Unhealthy"})
    assert (3, 2) == node(kubelet)
    pod = kubelet.started()
    assert (3, 2) == node(kubelet)
    kubelet.relist(stub, {"a": "Unhealthy", "b": "Unhealthy"})
    assert {R: 3} == kubelet.node.capacity  # until the next status update
    assert (2, 0) == node(kubelet)
    kubelet.relist(stub, "ab")
    assert (2, 2) == node(kubelet)
    assert "Running" == kubelet.pod(pod).phase


# As upstream's TestEndpointSyncOnDisconnect.
def test_a_lost_plugin_is_kept_for_five_minutes_and_then_forgotten(kubelet: Kubelet) -> None:
    kubelet.lose(kubelet.plugin())
    kubelet.clock.advance(300)
    assert (2, 0) == node(kubelet)
    assert kubelet.options(R) is not None
    kubelet.clock.advance(1)
    assert 2 == kubelet.capacity(R)  # until the next status update
    assert (0, 0) == node(kubelet)
    assert R not in kubelet.resources
    assert (frozenset(), frozenset()) == (kubelet.healthy(R), kubelet.unhealthy(R))
    assert {"a": "Healthy", "b": "Healthy"} == kubelet.devices(R)
    with pytest.raises(TimeoutError):
        kubelet.wait_for(R, (), timeout=0)
    with pytest.raises(LookupError):
        kubelet.options(R)
    kubelet.plugin(name="2")
    assert (2, 2) == node(kubelet)


# As upstream's end-to-end test: when ListAndWatch fails immediately.
def test_a_stream_that_fails_at_once_is_not_tried_again(kubelet: Kubelet) -> None:
    failing = kubelet.stub()
    failing.failing["ListAndWatch"] = StubError("no")
    failing.register()
    kubelet.wait(lambda: not kubelet.registered)
    failing.wait(lambda: failing.streams == 0)
    kubelet.wait(lambda: node(kubelet) == (0, 0))
    assert ["GetDevicePluginOptions", "ListAndWatch"] == failing.calls
    kubelet.admitted(main={R: 0})  # as nothing is known of the resource


# As upstream's end-to-end tests: when ListAndWatch fails after provisioning, when device plugin
# is stopped.
@pytest.mark.parametrize("end", ["return", "error", "death"])
def test_all_ends_of_a_stream_are_the_same(kubelet: Kubelet, end: str) -> None:
    stub = kubelet.plugin()
    if end == "return":
        stub.end_streams()
    elif end == "error":
        stub.failing["ListAndWatch"] = StubError("gone")
        stub.update(["c"])
    else:
        stub.stop()
    kubelet.wait_for(R, (), {"a", "b"})
    assert (2, 0) == node(kubelet)
    assert ["GetDevicePluginOptions", "ListAndWatch"] == stub.calls


# As upstream's TestResetExtendedResource.
def test_without_checkpoint_the_node_keeps_what_it_had_unless_there_is_nothing_else(
    kubelet: Kubelet,
) -> None:
    kubelet.plugin()
    assert (2, 2) == node(kubelet)
    kubelet.stop()
    (kubelet.plugin_dir / "kubelet_internal_checkpoint").unlink()
    kubelet.start()
    assert (2, 2) == node(kubelet)
    kubelet.stop()
    for path in kubelet.plugin_dir.iterdir():
        path.unlink()
    (kubelet.plugin_dir / ".litter").touch()
    kubelet.start()
    assert ({R: 0}, {R: 0}) == (kubelet.node.capacity, kubelet.node.allocatable)


# As upstream's TestFeatureGateResourceHealthStatus and TestUpdateAllocatedResourcesStatus, and
# end-to-end test: Healthy then Unhealthy single device in pod status.
def test_a_change_of_health_pokes_the_pod_that_has_the_device_and_is_in_its_status(
    kubelet: Kubelet,
) -> None:
    stub = kubelet.plugin(devices=["a"])
    pod = kubelet.admitted()
    lists: Sequence[dict[str, str]] = (
        {"a": "Odd"},
        {"a": "Odd", "b": "Healthy"},
        {},
        {"a": "Healthy"},
    )
    seen = []
    for devices in lists:
        kubelet.relist(stub, devices)
        seen.append((kubelet.take_pokes(), kubelet.device_health(pod)["main"][R]["a"]))
    assert [
        ([frozenset({pod.uid})], "Unhealthy"),
        ([], "Unhealthy"),
        ([], "Healthy"),  # nobody is told of one that disappears
        ([frozenset({pod.uid})], "Healthy"),
    ] == seen
    kubelet.lose(stub)
    assert {"main": {R: {"a": "Healthy"}}} == kubelet.device_health(pod)
    kubelet.restart()
    assert [] == kubelet.take_pokes()


@pytest.mark.parametrize(("back", "poked"), [("Healthy", []), ("Odd", [{"default/p"}])])
def test_a_device_that_comes_back_after_the_grace_period_is_news_if_its_health_is(
    kubelet: Kubelet, back: str, poked: list[set[str]]
) -> None:
    stub = kubelet.plugin(devices=["a"], name="1")
    kubelet.admitted()
    kubelet.lose(stub)
    kubelet.expire()
    kubelet.plugin(devices={"a": back}, name="2")
    assert poked == kubelet.take_pokes()


def test_pokes_beyond_one_hundred_are_lost(kubelet: Kubelet) -> None:
    stub = kubelet.plugin(devices=["a"])
    kubelet.admitted()
    for number in range(105):
        kubelet.relist(stub, {"a": "Healthy" if number % 2 else "Unhealthy"})
    assert 100 == len(kubelet.take_pokes())


@pytest.mark.parametrize(
    ("behaviour", "poked"), [(Behaviour.v1_36(), "first"), (Behaviour.fixed(), "second")]
)
def test_equal_ids_of_two_resources_confuse_the_owner_of_a_device(
    kubelet: Kubelet, poked: str
) -> None:
    kubelet.plugin("x.io/one", ["a"], name="one")
    two = kubelet.plugin("x.io/two", ["a"], name="two")
    kubelet.admitted("first", main={"x.io/one": 1})
    kubelet.admitted("second", main={"x.io/two": 1})
    kubelet.relist(two, {"a": "Unhealthy"})
    assert [{f"default/{poked}"}] == kubelet.take_pokes()
