"""What comes over the kubelet's sockets and files, which every plugin of a node can write."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import grpc
from google.protobuf import json_format

from deviceplugin._attribution.checkpoint import Checkpoint, CheckpointHolds
from deviceplugin._attribution.ownership import Claim
from deviceplugin._attribution.podresources import Holdings, PodResources
from deviceplugin._config import parameters
from deviceplugin._dra.claims.parameters import head_of
from deviceplugin._dra.claims.reading import results
from deviceplugin._dra.claims.record import Record, RecordedDevice, RecordedParameters
from deviceplugin._dra.claims.records import Records
from deviceplugin._platform import rpc
from deviceplugin._platform.checkpoint import FILE_NAME, checksum
from deviceplugin.errors import AllocationError, ConfigError, KubeletUnavailableError
from deviceplugin.proto.podresources import podresources_pb2 as pod_pb
from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from deviceplugin.tools._devices_page import NoAnswerError
from deviceplugin.tools.devices import _inventory
from deviceplugin.tools.devices._cli import ask_kubelet
from deviceplugin.tools.devices._inventory import Inventory
from deviceplugin.tools.drain._cli import through_dra
from deviceplugin_simulated.plugin import SimulatedParameters
from deviceplugin_testing.simulator import SimulatedKubelet
from deviceplugin_testing.simulator._device_manager import records as simulated
from fuzzing.samples import Sample, Seed, seeds
from fuzzing.target import Read, Target, as_object, reads_object

_RESOURCE: Final = "example.com/gopher"
_DRIVER: Final = "gopher.example.com"
_CLAIM: Final = Claim("default", "one", "uid-one")
_ANSWER: Final = "CgYKAUESAUISDQoFL2EvYhIEL2MvZBgBGgwKBC9kZXYSBC9kZXY="
_ENTRY: Final = {
    "PodUID": "uid-one",
    "ContainerName": "main",
    "ResourceName": _RESOURCE,
    "DeviceIDs": {"-1": ["a", "b"], "0": ["a"]},
    "AllocResp": _ANSWER,
}
_DATA: Final = {"PodDeviceEntries": [_ENTRY, _ENTRY], "RegisteredDevices": {_RESOURCE: ["a", "b"]}}


@contextmanager
def _checkpoint(folder: Path) -> Iterator[Read]:
    checkpoint = Checkpoint(folder)
    holds = CheckpointHolds(checkpoint)

    def read(sample: Sample) -> None:
        path = folder / "new"
        path.write_bytes(sample.content)
        path.replace(folder / FILE_NAME)
        holds.held(Holdings(frozenset()), [_RESOURCE])
        holds.given((_RESOURCE, "a"))
        holds.remembers(_RESOURCE)
        with suppress(simulated.CheckpointError):
            simulated.read_checkpoint(folder)

    yield read


def _signed(document: Any) -> str:
    """Return a checkpoint with the checksum of its data, if data of such a form have one."""
    with suppress(LookupError, ValueError, TypeError, AttributeError):
        document = {**document, "Checksum": checksum(document["Data"])}
    return json.dumps(document)


@contextmanager
def _resigned(folder: Path) -> Iterator[Read]:
    with _checkpoint(folder) as read:

        def run(sample: Sample) -> None:
            if (found := as_object(sample.content)) is not None:
                read(sample._replace(content=_signed(found).encode()))

        yield run


def _messages(kind: type[Any], document: Any) -> list[Seed]:
    """Return a message on the wire, and the JSON of it."""
    written = json_format.ParseDict(document, kind()).SerializeToString()
    return seeds(document, written)


def _on_wire(kind: type[Any], sample: Sample) -> bytes:
    """Return the message of a sample; bytes that are not one's JSON are taken as they are."""
    try:
        return bytes(json_format.Parse(sample.content, kind()).SerializeToString())
    except (json_format.ParseError, ValueError, RecursionError):
        return sample.content


_CONTAINER: Final = {
    "name": "main",
    "devices": [
        {"resourceName": _RESOURCE, "deviceIds": ["a", "b"], "topology": {"nodes": [{"ID": "0"}]}}
    ],
    "dynamicResources": [
        {
            "claimName": "one",
            "claimNamespace": "default",
            "claimResources": [
                {"driverName": _DRIVER, "poolName": "node/gopher", "deviceName": "a"}
            ],
        }
    ],
}
_POD: Final = {"name": "pod", "namespace": "default", "containers": [_CONTAINER]}
_LISTED: Final = {"podResources": [_POD]}


@contextmanager
def _pod_resources(folder: Path) -> Iterator[Read]:
    """Ask as plugin and commands do, and be answered with the sample each time."""
    answer = b""
    lister = pod_pb.DESCRIPTOR.services_by_name["PodResourcesLister"]
    handlers = {
        one.name: grpc.unary_unary_rpc_method_handler(lambda _request, _context: answer)
        for one in lister.methods
    }
    with _served(folder, grpc.method_handlers_generic_handler(lister.full_name, handlers)) as path:
        service = PodResources(path, lambda _method, _code: None)
        inventory = Inventory()
        asks: list[Callable[[], object]] = [
            service.list,
            lambda: service.get([("default", "pod")]),
            service.allocatable,
            lambda: ask_kubelet(inventory, path, 5.0, with_plugins=False),
            lambda: ([*_inventory.table(inventory, 2)], json.dumps(_inventory.document(inventory))),
        ]

        def read(sample: Sample) -> None:
            nonlocal answer, inventory
            answer, inventory = _on_wire(pod_pb.ListPodResourcesResponse, sample), Inventory()
            for ask in asks:
                with suppress(KubeletUnavailableError, NoAnswerError):
                    ask()

        yield read


@contextmanager
def _served(folder: Path, handler: Any) -> Iterator[Path]:
    path = folder / "k.sock"
    server = grpc.server(ThreadPoolExecutor(2), handlers=[handler])
    server.add_insecure_port(f"unix:{path}")
    server.start()
    try:
        yield path
    finally:
        server.stop(None).wait()


_REGISTER: Final = {
    "version": "v1beta1",
    "endpoint": "gopher.sock",
    "resourceName": _RESOURCE,
    "options": {"preStartRequired": True},
}


@contextmanager
def _registration(folder: Path) -> Iterator[Read]:
    """Send a Register to a simulated kubelet, which answers with an error of its own."""
    with ExitStack() as stack:
        kubelet = stack.enter_context(SimulatedKubelet(folder, dial_timeout=0.01))
        channel = stack.enter_context(rpc.connect(kubelet.plugin_dir / "kubelet.sock"))
        call = channel.unary_unary("/v1beta1.Registration/Register", None, None)

        def read(sample: Sample) -> None:
            try:
                call(_on_wire(pb.RegisterRequest, sample), timeout=60.0)
            except grpc.RpcError as error:
                text = rpc.status_text(error)
                assert "Exception calling application" not in text, text

        yield read


_RESULT: Final = {
    "request": "one/big",
    "driver": _DRIVER,
    "pool": "pool",
    "device": "gary",
    "shareID": "s",
    "consumedCapacity": {"shares": "1"},
    "adminAccess": False,
    "tolerations": [{"operator": "Exists"}],
}
_CONFIGURATIONS: Final = [
    {"source": source, "requests": ["one"], "opaque": {"driver": _DRIVER, "parameters": {"a": 1}}}
    for source in ("FromClass", "FromClaim")
]
_OBJECT: Final = {
    "metadata": {"uid": "uid-one", "name": "one", "namespace": "default"},
    "status": {"allocation": {"devices": {"results": [_RESULT], "config": _CONFIGURATIONS}}},
}
_HEAD: Final = head_of(SimulatedParameters, _DRIVER)
_PARAMETERS: Final = {**_HEAD, "environment": {"A": "b"}, "delay": "1s", "refusal": ""}


def _parameters(found: Any) -> None:
    parameters.write(parameters.read(SimulatedParameters, found, "parameters", _HEAD))


_DEVICE: Final = RecordedDevice(_RESOURCE, "a", "one", "pool", "a", cdi_names=["example.com/a=b"])
_NODE: Final = {"path": "/dev/a", "hostPath": "/dev/b"}
_RECORD: Final = Record(
    _CLAIM,
    "boot",
    "prepared",
    [_DEVICE],
    {"devices": [{"name": "a", "containerEdits": {"deviceNodes": [_NODE]}}]},
    [RecordedParameters("one", _RESOURCE, {"a": 1}, {"a": 1})],
)


@contextmanager
def _records(folder: Path) -> Iterator[Read]:
    claims = folder / _DRIVER / "claims"
    claims.mkdir(parents=True)
    path = claims / f"{_CLAIM.uid}.json"

    def read(sample: Sample) -> None:
        path.write_bytes(sample.content)
        through_dra(folder, [])
        for record in Records(claims).load().values():
            assert record == Record.read(record.written())
            assert not {*record.held} - {one.key for one in record.devices}
            assert all(isinstance(path, str) for path in record.paths)
        assert {path.name, f"{path.name}.bad"} >= {one.name for one in claims.iterdir()}

    yield read


TARGETS: Final = (
    Target("kubelet's checkpoint", [Seed(_signed({"Data": _DATA}).encode())], _checkpoint),
    Target("kubelet's checkpoint, signed", seeds({"Data": _DATA, "Checksum": 0}), _resigned),
    Target("PodResources", _messages(pod_pb.ListPodResourcesResponse, _LISTED), _pod_resources),
    Target("Register", _messages(pb.RegisterRequest, _REGISTER), _registration),
    Target(
        "claim",
        seeds(_OBJECT),
        reads_object(lambda found: results(found, _CLAIM, _DRIVER)),
        (AllocationError,),
    ),
    Target("parameters of a claim", seeds(_PARAMETERS), reads_object(_parameters), (ConfigError,)),
    Target("record of a claim", seeds(_RECORD.written()), _records),
)
