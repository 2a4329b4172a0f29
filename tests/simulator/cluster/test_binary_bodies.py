"""The simulated API server takes Kubernetes' binary format, which clients in Go send."""

import os
from collections.abc import Iterator
from typing import Any

import pytest

from cluster import real_api_server
from cluster.dra_api.asking import CLAIMS, MERGE, SLICES, Asker, Object, Step, normal
from cluster.dra_api.binary_objects import MEDIA, Pair, asked, record, recorded
from deviceplugin.proto.objects import resource_objects_pb2 as pb
from deviceplugin_testing.simulator._control_plane.api_server import bodies

RECORDED = recorded()
MISSING = real_api_server.why_not()


def enveloped(kind: str, raw: bytes) -> bytes:
    names = pb.TypeMeta(api_version="resource.k8s.io/v1", kind=kind)
    return b"k8s\0" + pb.Envelope(type_meta=names, raw=raw).SerializeToString()


def posted(server: Asker, body: bytes, path: str = SLICES) -> tuple[int, Object]:
    return server.ask(Step("POST", path, body, MEDIA))


def raw(pair: Pair) -> bytes:
    """Return a recorded object without its envelope."""
    return bytes(pb.Envelope.FromString(pair.binary.removeprefix(b"k8s\0")).raw)


def as_new(name: str) -> bytes:
    """Return what a client would send to create the recorded object."""
    pair = RECORDED[name]
    message: Any = getattr(pb, pair.json["kind"]).FromString(raw(pair))
    message.metadata.ClearField("resource_version")
    if "status" in pair.json:
        message.ClearField("status")
    return enveloped(pair.json["kind"], message.SerializeToString())


@pytest.mark.parametrize("name", RECORDED)
def test_what_go_wrote_is_read_as_the_same_in_json(name: str) -> None:
    pair = RECORDED[name]
    assert pair.json == bodies.read(pair.binary)


def test_every_field_is_in_a_recorded_object() -> None:
    found = {
        one
        for pair in RECORDED.values()
        for one in fields_of(getattr(pb, pair.json["kind"]).FromString(raw(pair)))
    }
    server = {"generate_name", "deletion_timestamp", "deletion_grace_period_seconds"}
    known = {
        (name, field.name)
        for name in {name for name, _ in found}
        for field in pb.DESCRIPTOR.message_types_by_name[name].fields
    }
    missing = known - found - {("ObjectMeta", name) for name in server}
    # Devices for administrators need a namespace of their own, no time has parts of a second, and
    # the recorded server is of 1.36.
    assert missing == {
        ("AllocationResult", "admin_access"),
        ("DeviceCounterConsumption", "compatibility_groups"),
        ("ExactDeviceRequest", "admin_access"),
        ("Time", "nanos"),
    }


def fields_of(message: Any) -> Iterator[tuple[str, str]]:
    """Yield each field that is set in a message, and in those in it."""
    for field, value in message.ListFields():
        yield message.DESCRIPTOR.name, field.name
        values = value.values() if hasattr(value, "values") else value
        for one in values if field.is_repeated else [value]:
            if hasattr(one, "ListFields"):
                yield from fields_of(one)


@pytest.mark.parametrize("name", RECORDED)
def test_an_object_is_created_or_refused_alike_in_either_format(
    simulated: Asker, name: str
) -> None:
    path = RECORDED[name].path
    plain = simulated.answers([Step("POST", path, RECORDED[name].wanted)])
    assert plain == simulated.answers([Step("POST", path, as_new(name), MEDIA)])
    assert (name in {"parts", "lists"}) == (plain[0][0] == 422)


def test_an_object_and_its_status_can_be_replaced(simulated: Asker) -> None:
    claim = accepted_claim()
    claim.metadata.ClearField("resource_version")
    assert 201 == posted(simulated, sent(claim), CLAIMS)[0]
    address = f"{CLAIMS}/claim"
    claim = binary_claim(simulated, address)
    claim.metadata.labels["new"] = "label"
    code, found = simulated.ask(Step("PUT", address, sent(claim), MEDIA))
    assert (200, {"a": "b", "new": "label"}) == (code, found["metadata"]["labels"])
    claim = binary_claim(simulated, address)
    code, found = simulated.ask(Step("PUT", f"{address}/status", sent(claim), MEDIA))
    simulated.remove(address)
    assert (200, RECORDED["claim"].json["status"]) == (code, found["status"])


def accepted_claim() -> Any:
    return pb.ResourceClaim.FromString(raw(RECORDED["claim"]))


def binary_claim(server: Asker, address: str) -> Any:
    """Return the recorded claim with the metadata that it has at the server."""
    claim = accepted_claim()
    metadata = server.ask(Step("GET", address))[1]["metadata"]
    claim.metadata.uid = metadata["uid"]
    claim.metadata.resource_version = metadata["resourceVersion"]
    return claim


def sent(claim: Any) -> bytes:
    return enveloped("ResourceClaim", claim.SerializeToString())


def test_a_deletion_keeps_its_conditions(simulated: Asker) -> None:
    posted(simulated, as_new("everywhere"))
    address = f"{SLICES}/everywhere"
    simulated.ask(Step("PATCH", address, {"metadata": {"finalizers": None}}, MERGE))
    options = pb.DeleteOptions(preconditions=pb.Preconditions(uid="another"))
    other = enveloped("DeleteOptions", options.SerializeToString())
    assert 409 == simulated.ask(Step("DELETE", address, other, MEDIA))[0]
    assert 200 == simulated.ask(Step("DELETE", address, enveloped("DeleteOptions", b""), MEDIA))[0]
    assert 404 == simulated.ask(Step("GET", address))[0]


TOO_LATE = pb.ResourceSlice(metadata=pb.ObjectMeta(creation_timestamp=pb.Time(seconds=1 << 62)))
NO_JSON = pb.OpaqueDeviceConfiguration(parameters=pb.Json(raw=b"{"))
NO_PARAMETERS = pb.DeviceClassConfiguration(device_configuration=pb.Configuration(opaque=NO_JSON))
REFUSED = {
    "no magic": (400, RECORDED["slice"].binary[1:], "does not begin as the binary format does"),
    "nothing": (400, b"", "does not begin as the binary format does"),
    "cut": (400, RECORDED["slice"].binary[:-40], "Error parsing"),
    "a cut object": (400, enveloped("ResourceSlice", b"\x0a\xff"), "Error parsing"),
    "a time in no year": (
        400,
        enveloped("ResourceSlice", TOO_LATE.SerializeToString()),
        "unrecognized",
    ),
    "parameters that are no JSON": (
        400,
        enveloped(
            "DeviceClass",
            pb.DeviceClass(spec=pb.DeviceClassSpec(config=[NO_PARAMETERS])).SerializeToString(),
        ),
        "Expecting property name",
    ),
    "another kind": (415, enveloped("Pod", b""), "reads Pod in JSON only"),
    "no kind": (415, b"k8s\0", "in JSON only"),
    "the kind of another place": (400, as_new("class"), "DeviceClass"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_body_that_cannot_be_read_is_refused(simulated: Asker, name: str) -> None:
    code, body, text = REFUSED[name]
    found, answer = posted(simulated, body)
    assert (code, True) == (found, text in answer["message"]), answer


@pytest.mark.parametrize("body", [b"", b'{"a":', b"[]"])
def test_json_that_is_no_object_is_refused(simulated: Asker, body: bytes) -> None:
    code, answer = simulated.ask(Step("POST", SLICES, body))
    assert (400, True) == (code, "json parse error" in answer["message"])


def test_a_field_without_a_value_is_there_if_json_has_it() -> None:
    pool = pb.ResourcePool(name="", generation=0, resource_slice_count=0)
    spec = pb.ResourceSliceSpec(driver="", pool=pool, all_nodes=False)
    metadata = pb.ObjectMeta(name="", creation_timestamp=pb.Time())
    raw = pb.ResourceSlice(metadata=metadata, spec=spec).SerializeToString()
    found = bodies.read(enveloped("ResourceSlice", raw))
    assert {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice"}.items() <= found.items()
    assert {} == found["metadata"]
    empty = {"name": "", "generation": 0, "resourceSliceCount": 0}
    assert {"driver": "", "pool": empty, "allNodes": False} == found["spec"]


def test_parameters_may_be_missing() -> None:
    opaque = pb.OpaqueDeviceConfiguration(driver="g", parameters=pb.Json())
    config = pb.DeviceClassConfiguration(device_configuration=pb.Configuration(opaque=opaque))
    spec = pb.DeviceClassSpec(config=[config])
    found = bodies.read(enveloped("DeviceClass", pb.DeviceClass(spec=spec).SerializeToString()))
    assert [{"opaque": {"driver": "g"}}] == found["spec"]["config"]


@pytest.mark.skipif(bool(MISSING), reason=MISSING or "-")
@pytest.mark.xdist_group("real-api-server")
def test_the_real_server_writes_as_recorded_and_takes_what_is_sent(
    real_with_lists: Asker,
) -> None:
    """With ``RECORD`` in the environment, what it writes is recorded."""
    real = real_with_lists
    if os.environ.get("RECORD"):
        record(real)
    found = asked(real)
    for name, pair in RECORDED.items():
        code, answer = posted(real, as_new(name), pair.path)
        assert 201 == code, (name, answer["message"])
    assert shown(recorded()) == shown(found)


def shown(pairs: dict[str, Pair]) -> Any:
    return {
        name: [normal(one.json), normal(bodies.read(one.binary))] for name, one in pairs.items()
    }
