"""What a user of the node may hand over to hold a device: the file of holds, and requests."""

import json
import os
import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from deviceplugin._app.hold_requests import Requests
from deviceplugin._app.hold_socket import SOCKET, HoldSocket, ShortPath, read_line
from deviceplugin._app.holding import Holding
from deviceplugin._attribution.held_devices import Holds
from deviceplugin._attribution.hold_file import HoldFile
from deviceplugin._attribution.holds import make
from deviceplugin._attribution.ownership import Ownership
from deviceplugin._inventory.published import Resource
from deviceplugin._telemetry.metrics import Metrics
from deviceplugin.model import Device, Version
from fuzzing.samples import Sample, seeds
from fuzzing.target import Read, Target, reads_file
from patience import PATIENCE
from scripted_plugin import ScriptedPlugin

_DEVICE: Final = Device("a", hardware=["pci/0000:3b:00.0"], attributes={"v": Version("1.2.3")})
_THERE: Final = {("example.com/a", "a"): ("P", _DEVICE)}


def _hold() -> Mapping[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        file = HoldFile(Path(folder, "holds.json"))
        file.save([make("a", "why", _THERE, 0.0)])
        return dict(json.loads(file.path.read_text()))


def _held(path: Path) -> None:
    file = HoldFile(path)
    holds, problem = file.load()
    assert not (holds and problem)
    found = Holds(lambda _held: None)
    found.set(holds, {})
    groups: dict[str, dict[str, Device]] = {}
    found.apply("P", groups)
    assert not any(one.health for each in groups.values() for one in each.values())
    file.save(holds)
    assert [one.keys for one in holds] == [one.keys for one in HoldFile(path).load()[0]]
    for one in path.parent.glob("sample*"):  # with what was set aside, and the copy
        one.unlink()


@contextmanager
def _requests(folder: Path) -> Iterator[Read]:
    """Ask over the socket of a plugin that has one device."""
    resource = Resource("example.com/a", ScriptedPlugin())
    resource.publish([_DEVICE])
    resources = {resource.name: resource}
    holding = Holding(
        folder=folder / "holds" / "a",
        ownership=Ownership(),
        resources=lambda: resources,
        metrics=Metrics(),
    )
    holding.open()
    served = HoldSocket(Requests(holding).answer)
    served.open(holding.folder)

    def read(sample: Sample) -> None:
        with socket.socket(socket.AF_UNIX) as client, ShortPath(holding.folder) as short:
            client.connect(f"{short}/{SOCKET}")
            with suppress(BrokenPipeError, ConnectionResetError):  # it is too long
                client.sendall(sample.content.replace(b"\n", b" ") + b"\n")
                reply = json.loads(read_line(client, PATIENCE))
                assert {"holds"} <= reply.keys() or str(reply["error"]).isprintable()

    try:
        yield read
    finally:
        served.close()
        os.close(holding.locked or -1)


_ASKED: Final = ({"do": "list"}, {"do": "hold", "device": "a", "reason": "b", "all": True})

TARGETS: Final = (
    Target("file of holds", seeds(_hold()), reads_file(_held)),
    Target("request to hold", seeds(*_ASKED), _requests),
)
