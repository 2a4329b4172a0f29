"""What a driver reports about the health of devices, and when."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc
import pytest

import deviceplugin as dp
from deviceplugin._dra.serving import health
from deviceplugin._dra.serving.health import DeviceHealth, HealthStreams
from deviceplugin.proto.dra import dra_health_v1alpha1_pb2 as pb
from drivers.driver_node import POOL, DriverNode, gopher, result
from drivers.running_driver import DriverClient, connected
from held_clock import HeldClock
from patience import eventually


@pytest.fixture
def node(tmp_path: Path) -> DriverNode:
    return DriverNode(tmp_path, gopher("gary"), gopher("gerd"))


def report(node: DriverNode) -> Sequence[DeviceHealth]:
    return node.health().read()


def test_a_report_has_all_devices_with_their_reasons(node: DriverNode) -> None:
    worn, hot = dp.Health.degraded("spare blocks used up"), dp.Health.unhealthy("too hot")
    node.resource.publish([gopher("gina"), gopher("gerd", health=hot), gopher("gary", health=worn)])
    node.hold("gina")
    assert [
        (POOL, "gary", "healthy", "spare blocks used up"),
        (POOL, "gerd", "unhealthy", "too hot"),
        (POOL, "gina", "healthy", "held by pod default/pod through the device plugin"),
    ] == report(node)


def test_what_is_not_offered_is_not_reported_unless_a_claim_has_it(node: DriverNode) -> None:
    node.prepare(node.allocate("one", result("gary")))
    node.ownership.switch("device-plugin")
    assert ["gary"] == [one.device for one in report(node)]


def test_a_device_of_a_claim_that_is_gone_is_reported_until_it_is_released(
    node: DriverNode,
) -> None:
    claim = node.allocate("one", result("gary"))
    node.prepare(claim)
    node.resource.publish([])
    assert [(POOL, "gary", "unhealthy", "the device is gone")] == report(node)
    node.discovered = False
    node.restart()
    expected = "not known yet: devices are still being discovered"
    assert [(POOL, "gary", "unknown", expected)] == report(node)
    node.unprepare(claim)
    assert [] == report(node)


# The stream.


def test_devices_that_need_their_process_are_unhealthy_once_it_stops(node: DriverNode) -> None:
    found = node.health()
    before = found.read()
    found.stop()
    assert before == found.read()
    node.plugin.needs_process = True
    assert {("unhealthy", "its plugin has stopped")} == {
        (one.status, one.message) for one in found.read()
    }


class Stream:
    """A service of health, and a client that collects its reports."""

    def __init__(self, path: Path) -> None:
        self.clock = HeldClock()
        self.found = [DeviceHealth("pool", "a", "healthy", "")]
        self.streams = HealthStreams(lambda: list(self.found), self.clock)
        self._server = grpc.server(ThreadPoolExecutor(12), handlers=self.streams.handlers())
        self._server.add_insecure_port(f"unix:{path}")
        self._server.start()

    def stop(self) -> None:
        self.streams.close()
        self._server.stop(None).wait()


class Reader:
    """Collects what a stream sends."""

    def __init__(self, call: Any) -> None:
        self.call = call
        self.reports: list[pb.NodeWatchResourcesResponse] = []
        self.over = ""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.reports += self._appended()
            self.over = "ended"
        except grpc.RpcError as error:
            self.over = str(error.details())

    def _appended(self) -> Iterator[pb.NodeWatchResourcesResponse]:
        for one in self.call:
            self.reports.append(one)
        return
        yield

    def messages(self) -> list[list[str]]:
        return [[one.message for one in each.devices] for each in self.reports]


@pytest.fixture
def stream() -> Iterator[tuple[Stream, DriverClient]]:
    with TemporaryDirectory(prefix="dra-") as path:
        found = Stream(Path(path) / "health.sock")
        with connected(Path(path) / "health.sock") as client:
            yield found, client
            found.stop()


def test_a_report_is_sent_at_once_when_it_changes_and_again_every_ten_seconds(
    stream: tuple[Stream, DriverClient],
) -> None:
    service, client = stream
    reader = Reader(client.watch())
    eventually(lambda: [[""]] == reader.messages())
    service.found[0] = DeviceHealth("pool", "a", "unhealthy", "hot")
    service.clock.wait_for_wait()
    service.streams.poke()
    eventually(lambda: service.clock.skip_wait() < 1)  # changes are collected
    eventually(lambda: [[""], ["hot"]] == reader.messages())
    service.streams.poke()  # nothing has changed
    service.clock.skip_wait()
    eventually(lambda: service.clock.skip_wait() > 9)
    service.clock.skip_wait()
    eventually(lambda: [[""], ["hot"], ["hot"]] == reader.messages())
    (device,) = reader.reports[1].devices
    assert (pb.HealthStatus.UNHEALTHY, 30) == (device.health, device.health_check_timeout_seconds)
    assert ("pool", "a") == (device.device.pool_name, device.device.device_name)
    assert device.last_updated_time > 1_700_000_000


def test_the_last_change_is_sent_before_a_stream_ends(stream: tuple[Stream, DriverClient]) -> None:
    service, client = stream
    reader = Reader(client.watch())
    eventually(lambda: reader.reports)
    service.found[0] = DeviceHealth("pool", "a", "unhealthy", "its plugin has stopped")
    service.streams.close()
    eventually(lambda: reader.over)
    assert ("ended", [[""], ["its plugin has stopped"]]) == (reader.over, reader.messages())
    late = Reader(client.watch())
    eventually(lambda: late.over)
    assert [] == late.reports


def test_a_stream_that_the_kubelet_gave_up_is_over(stream: tuple[Stream, DriverClient]) -> None:
    service, client = stream
    reader = Reader(client.watch())
    eventually(lambda: reader.reports)
    assert 1 == service.streams.open
    reader.call.cancel()
    eventually(lambda: not service.streams.open)


class GoneContext:
    """The context of a call that is over before it is looked at."""

    def add_callback(self, _callback: Callable[[], None]) -> bool:
        return False


def test_a_stream_that_is_over_at_its_start_reports_nothing() -> None:
    streams = HealthStreams(lambda: [DeviceHealth("pool", "a", "healthy", "")])
    context: Any = GoneContext()
    assert [] == list(streams.NodeWatchResources(pb.NodeWatchResourcesRequest(), context))
    assert 0 == streams.open


def test_surplus_streams_are_refused(stream: tuple[Stream, DriverClient]) -> None:
    _, client = stream
    readers = [Reader(client.watch()) for _ in range(health.MAX_STREAMS)]
    eventually(lambda: all(one.reports for one in readers))
    surplus = Reader(client.watch())
    eventually(lambda: surplus.over)
    assert f"{health.MAX_STREAMS} streams are open already" == surplus.over


@pytest.mark.parametrize(
    ("text", "expected"), [("é" * 512, "é" * 512), ("é" * 513, "é" * 510 + "..."), ("\udcff", "?")]
)
def test_a_message_is_no_longer_than_the_kubelet_keeps(text: str, expected: str) -> None:
    encoded = health._encoded([DeviceHealth("pool", "a", "unknown", text)])
    assert expected == encoded.devices[0].message


def test_a_report_of_very_many_devices_fits_into_a_message() -> None:
    many = [DeviceHealth("pool", f"device-{one}", "unhealthy", "x" * 2000) for one in range(9000)]
    assert health._encoded(many).ByteSize() < 4 * 1024 * 1024
