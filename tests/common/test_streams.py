"""The streams of a resource, without gRPC."""

import asyncio

import deviceplugin as dp
from deviceplugin._attribution.ownership import Ownership
from deviceplugin._inventory.published import Resource, encode_list
from deviceplugin._kubelet.offer import Offer
from deviceplugin._kubelet.streams import MAX_STREAMS, Streams
from loops import on_a_loop
from patience import PATIENCE
from scripted_plugin import ScriptedPlugin


class Served:
    """The streams of a resource, and what they sent."""

    def __init__(self) -> None:
        self.resource = Resource("x.io/dev", ScriptedPlugin())
        self.numbers: list[int] = []
        self.streams = Streams(Offer(self.resource, Ownership()), self.numbers.append)
        self.sent: asyncio.Queue[bytes] = asyncio.Queue()

    def open(self) -> "asyncio.Task[bool]":
        return asyncio.create_task(self.streams.serve(self.sent.put))

    async def next(self) -> bytes:
        return await asyncio.wait_for(self.sent.get(), PATIENCE)


def listed(*ids: str) -> bytes:
    return encode_list(map(dp.Device, ids))


@on_a_loop
async def test_a_stream_sends_each_list_once() -> None:
    served = Served()
    task = served.open()
    await asyncio.sleep(0)
    served.resource.publish([dp.Device("a")])
    assert listed("a") == await served.next()
    served.resource.publish([dp.Device("a", attributes={"x": "1"})])
    served.resource.publish([dp.Device("b")])
    assert listed("b") == await served.next()
    task.cancel()
    await asyncio.wait([task])
    assert served.sent.empty()
    assert [1, 0] == served.numbers


@on_a_loop
async def test_the_latest_list_is_sent_before_a_stream_ends() -> None:
    served = Served()
    served.resource.publish([dp.Device("a")])
    task = served.open()
    assert listed("a") == await served.next()
    served.resource.publish([dp.Device("b")])
    served.streams.close()
    assert await asyncio.wait_for(task, PATIENCE)
    assert listed("b") == await served.next()
    assert await asyncio.wait_for(served.open(), PATIENCE)  # one that opens later ends, too
    assert listed("b") == await served.next()


@on_a_loop
async def test_every_stream_gets_the_list_and_surplus_ones_are_refused() -> None:
    served = Served()
    tasks = [served.open() for _ in range(MAX_STREAMS)]
    await asyncio.sleep(0)
    assert not await served.open()
    served.resource.publish([dp.Device("a")])
    assert {listed("a")} == {await served.next() for _ in tasks}
    tasks.pop().cancel()
    served.streams.close()
    await asyncio.wait(tasks)
    assert 0 == served.numbers[-1]


@on_a_loop
async def test_the_next_stream_after_a_registration_is_the_kubelets() -> None:
    served = Served()
    served.resource.publish([dp.Device("a")])
    other = served.open()
    await served.next()
    assert not served.streams.watched
    served.streams.expect_kubelet()
    assert served.streams.awaiting_kubelet
    assert not served.streams.up_to_date
    kubelets = served.open()
    await served.next()
    await asyncio.sleep(0)
    assert (False, True, True) == (
        served.streams.awaiting_kubelet,
        served.streams.watched,
        served.streams.up_to_date,
    )
    served.resource.publish([dp.Device("b")])
    assert not served.streams.up_to_date
    kubelets.cancel()
    await asyncio.wait([kubelets])
    assert not served.streams.watched
    other.cancel()


@on_a_loop
async def test_a_client_that_reads_nothing_keeps_no_other_waiting() -> None:
    served, full = Served(), asyncio.Event()
    served.resource.publish([dp.Device("a")])

    async def block(_encoded: bytes) -> None:
        full.set()
        await asyncio.Event().wait()

    stuck = asyncio.create_task(served.streams.serve(block))
    await asyncio.wait_for(full.wait(), PATIENCE)
    task = served.open()
    assert listed("a") == await served.next()
    served.streams.close()
    assert await asyncio.wait_for(task, PATIENCE)
    assert not stuck.done()
    stuck.cancel()
