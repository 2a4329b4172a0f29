"""What is recorded of a claim that is prepared, as JSON."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, Self, get_args

from deviceplugin._attribution.ownership import Claim
from deviceplugin._attribution.poll_schedule import Key
from deviceplugin._dra.naming import device_name, former_name, is_former
from deviceplugin.model import Counters, Part

_VERSION: Final = 1
"""Raise it when an older release would take a record for something else than it is."""
_UID: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,126}[A-Za-z0-9])?")
_REQUEST: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
State = Literal["preparing", "prepared"]
Metadata = Mapping[str, Any]
"""What is said of the devices of a request, as JSON without its version."""


class OtherVersionError(ValueError):
    """A record of another version. The release that wrote it can read it."""

    def __init__(self, found: object) -> None:
        super().__init__(
            f"is of version {found!r}, and this release reads {_VERSION}: "
            "start the release that wrote it"
        )


def is_uid(text: str) -> bool:
    """Return whether ``text`` can be the uid of a claim: it becomes the name of a file."""
    return _UID.fullmatch(text) is not None


def is_request(text: str) -> bool:
    """Return whether ``text`` can be the name of a request: it becomes a part of a path."""
    return _REQUEST.fullmatch(text) is not None


class ResultKey(NamedTuple):
    """A result of a claim, as the kubelet knows it."""

    request: str
    pool: str
    device: str
    share: str


@dataclass(frozen=True, slots=True)
class RecordedDevice:
    """One device of a claim, with the answer that the kubelet gets about it.

    A share that consumes several ids is several of them, with one place.
    """

    resource: str
    id: str
    request: str
    """Empty if the claim had it before it was allocated again: it is held, and not given out."""
    pool: str
    name: str
    """Its name in the pool."""
    admin: bool = False
    """Whether it is access to a device that others may hold meanwhile."""
    share: str = ""
    cdi_names: Sequence[str] = ()
    part: Part | None = None
    """If it is made for the claim: what it takes of its hardware, whatever there is of that, and
    its identity, which is empty until it is made."""

    @property
    def key(self) -> Key:
        return self.resource, self.id

    @property
    def place(self) -> ResultKey:
        """What the kubelet calls it."""
        return ResultKey(self.request, self.pool, self.name, self.share)

    @property
    def is_share(self) -> bool:
        """Whether it is held as a share: its name in the pool is that of a shared device."""
        return self.name not in {device_name(self.id), former_name(self.id)}


_FIELDS: Final = [name for name in RecordedDevice.__slots__ if name != "part"]


@dataclass(frozen=True, slots=True)
class RecordedParameters:
    """The parameters of the devices of one resource that a request has."""

    request: str
    resource: str
    given: Any
    """What the claim said, as JSON; None if it said nothing."""
    used: Mapping[str, Any]
    """All parameters, with the defaults of that time."""


@dataclass(frozen=True, slots=True)
class Record:
    """One claim. Its devices are withheld from others for as long as it is recorded."""

    claim: Claim
    boot: str
    """Identifies the boot of the machine in which the claim was prepared."""
    state: State
    devices: Sequence[RecordedDevice]
    document: Mapping[str, Any] | None = None
    """The CDI specification; None if nothing but CDI names of the plugin's own is needed."""
    parameters: Sequence[RecordedParameters] = ()
    """Those of devices that take some."""
    metadata: Mapping[str, Metadata] = field(default_factory=dict[str, Metadata])
    """What its containers can read about the devices of each request, if they can."""

    @property
    def held(self) -> frozenset[Key]:
        """The devices that nobody else may have."""
        return frozenset(one.key for one in self.devices if not one.admin)

    @property
    def parts(self) -> Mapping[Key, Part]:
        """Those of ``held`` that are made for the claim."""
        return {one.key: one.part for one in self.devices if one.part is not None}

    @property
    def given(self) -> Sequence[RecordedDevice]:
        """The devices that the kubelet is told, one for each result of the claim."""
        places: dict[ResultKey, RecordedDevice] = {}
        for one in self.devices:
            if one.request:
                places.setdefault(one.place, one)  # the first has the names of all
        return [*places.values()]

    @property
    def shares(self) -> frozenset[Key]:
        """Those of ``held`` that are held as shares of another device."""
        return frozenset(one.key for one in self.devices if not one.admin and one.is_share)

    @property
    def formerly_named(self) -> frozenset[Key]:
        """Those of ``held`` that it has by names of earlier releases."""
        return frozenset(one.key for one in self.devices if not one.admin and is_former(one.name))

    @property
    def paths(self) -> Sequence[str]:
        """The device nodes on the host that its containers get."""
        try:
            edits = [device["containerEdits"] for device in (self.document or {})["devices"]]
            nodes = [node for one in edits for node in one.get("deviceNodes", ())]
            return [str(node.get("hostPath", node["path"])) for node in nodes]
        except (LookupError, TypeError, AttributeError):
            return ()

    def written(self) -> dict[str, Any]:
        return {
            "version": _VERSION,
            "state": self.state,
            "boot": self.boot,
            "claim": self.claim._asdict(),
            "devices": [_written(one) for one in self.devices],
            "document": self.document,
            "parameters": [_fields(one) for one in self.parameters],
            "metadata": dict(self.metadata),
        }

    @classmethod
    def read(cls, found: Any) -> Self:
        """Return the record that `written` made, of any release of this version, or ValueError."""
        if isinstance(found, dict) and found.get("version", _VERSION) != _VERSION:
            raise OtherVersionError(found["version"])
        try:
            state, document = found["state"], found["document"]
            record = cls(
                claim=Claim(**{name: _text(found["claim"][name]) for name in Claim._fields}),
                boot=_text(found["boot"]),
                state=state,
                devices=[_device(one) for one in found["devices"]],
                document=document,
                # Records of earlier versions have none.
                parameters=tuple(_parameters(one) for one in found.get("parameters", ())),
                metadata={
                    _request(name): {**one} for name, one in found.get("metadata", {}).items()
                },
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a record: {error!r}") from error
        if state not in get_args(State) or not isinstance(document, dict | None):
            raise ValueError(f"not a record: state {state!r}")
        return record


def _fields(one: RecordedDevice | RecordedParameters) -> dict[str, Any]:
    return {name: getattr(one, name) for name in one.__slots__}  # asdict would copy all


def _written(one: RecordedDevice) -> dict[str, Any]:
    found = _fields(one)
    part = found.pop("part")
    if part is not None:  # an older release holds the device, and does not know that it is made
        found["part"] = {
            "of": part.of.name,
            "consumes": dict(part.consumes),
            "groups": list(part.groups),
            "identity": part.identity,
        }
    return found


def _device(found: Mapping[str, Any]) -> RecordedDevice:
    given = {name: found[name] for name in _FIELDS}
    part = _part(found["part"]) if found.get("part") is not None else None
    device = RecordedDevice(**{**given, "cdi_names": tuple(given["cdi_names"])}, part=part)
    for text in (device.resource, device.id, device.request, device.pool, device.name):
        _text(text)
    for text in (device.share, *device.cdi_names):
        _text(text)
    if not isinstance(device.admin, bool):
        raise TypeError(f"admin: {device.admin!r}")
    return device


def _part(found: Mapping[str, Any]) -> Part:
    consumes, groups = dict(found["consumes"]), [_text(one) for one in found["groups"]]
    if not all(type(n) is int and n >= 0 and isinstance(name, str) for name, n in consumes.items()):
        raise TypeError(f"consumes: {consumes!r}")
    of = Counters(_text(found["of"]), {})
    return Part(of, consumes, groups, identity=_text(found["identity"]))


def _parameters(found: Mapping[str, Any]) -> RecordedParameters:
    used = found["used"]
    if not isinstance(used, dict):
        raise TypeError(f"used: {used!r}")
    return RecordedParameters(
        _text(found["request"]), _text(found["resource"]), found["given"], used
    )


def _request(name: str) -> str:
    if not is_request(name):
        raise TypeError(f"{name!r} is not the name of a request")
    return name


def _text(found: object) -> str:
    if not isinstance(found, str):
        raise TypeError(f"{found!r} is not a string")
    return found
