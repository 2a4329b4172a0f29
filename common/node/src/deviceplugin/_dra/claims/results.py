"""What the API server's object of a claim says about devices of one driver."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from deviceplugin._attribution.ownership import Claim
from deviceplugin._config.documents.faults import bounded
from deviceplugin._config.quantities import whole_number
from deviceplugin._dra.shares import SHARES
from deviceplugin.errors import AllocationError

_FROM_CLASS: Final = "FromClass"
_TOO_MANY: Final = 1_000_000
"""Shares that no device has."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """What a user says about devices of one driver."""

    source: str
    """Whose it is, in words."""
    parameters: object
    """An object of JSON."""


@dataclass(frozen=True, slots=True)
class Result:
    """One device that the scheduler has allocated to a request of a claim."""

    request: str
    """Without a subrequest: the kubelet knows requests only."""
    pool: str
    device: str
    share: str = ""
    """The id of the share, of a device that several claims may have at a time."""
    count: int = 1
    """Of how many of the device's shares that consists."""
    admin: bool = False
    """Whether it is access to a device that others may hold meanwhile."""
    tolerant: bool = False
    """Whether the claim tolerates some taint of the device."""
    configurations: tuple[Configuration, ...] = ()
    """Those that apply to it. The last one is valid, instead of the others."""

    @property
    def parameters(self) -> object:
        """The parameters that are valid, as an object of JSON; None if there are none."""
        return self.configurations[-1].parameters if self.configurations else None


def results(document: Mapping[str, Any], claim: Claim, driver: str) -> Sequence[Result]:
    """Return what ``document``, the object of ``claim``, allocates of ``driver``.

    Raises:
        AllocationError: It is another claim, it is not allocated, it has no device of ``driver``,
            or a configuration of an unknown kind. The message is for the status of the pod.
    """
    try:
        return _results(document, claim, driver)
    except (KeyError, TypeError, AttributeError) as error:
        raise AllocationError(f"{claim} cannot be read: {error!r}") from error


def _results(document: Mapping[str, Any], claim: Claim, driver: str) -> Sequence[Result]:
    uid = document["metadata"]["uid"]
    if uid != claim.uid:
        raise AllocationError(
            f"{claim} has uid {bounded(repr(uid))} instead of {claim.uid}: it was deleted and "
            "created again"
        )
    allocation = (document.get("status") or {}).get("allocation")
    if not allocation:
        raise AllocationError(f"{claim} is not allocated")
    devices = allocation.get("devices") or {}
    ours = [one for one in devices.get("results") or () if one["driver"] == driver]
    if not ours:
        raise AllocationError(f"{claim} has no device of driver {driver}")
    configurations = sorted(devices.get("config") or (), key=_rank)
    return [_result(one, tuple(_applicable(configurations, one, claim, driver))) for one in ours]


def _rank(configuration: Mapping[str, Any]) -> bool:
    """Return whether it is of the claim itself, and so prevails over those of its classes."""
    return configuration.get("source") != _FROM_CLASS


def _result(found: Mapping[str, Any], configurations: tuple[Configuration, ...]) -> Result:
    return Result(
        request=_parent(found["request"]),
        pool=found["pool"],
        device=found["device"],
        share=found.get("shareID") or "",
        count=_count((found.get("consumedCapacity") or {}).get(SHARES, "1")),
        admin=bool(found.get("adminAccess")),
        tolerant=bool(found.get("tolerations")),
        configurations=configurations,
    )


def _count(amount: str) -> int:
    with suppress(ValueError):
        if (count := whole_number(amount)) < _TOO_MANY:
            return count
    raise AllocationError(f"{bounded(repr(amount))} {SHARES}: not a number of shares")


def _parent(request: str) -> str:
    """Return the request of which ``request`` may be a subrequest."""
    return request.partition("/")[0]


def _applicable(
    configurations: Sequence[Mapping[str, Any]],
    result: Mapping[str, Any],
    claim: Claim,
    driver: str,
) -> Iterator[Configuration]:
    """Yield those for ``result``, the weakest first. What a user asks for is never ignored."""
    names = {result["request"], _parent(result["request"])}
    for one in configurations:
        requests = one.get("requests") or ()
        if requests and names.isdisjoint(requests):
            continue
        source = "its class" if one.get("source") == _FROM_CLASS else "the claim itself"
        opaque = one.get("opaque")
        if opaque is None:
            raise AllocationError(
                f"{claim}: it has a configuration of an unknown kind, from {source}: remove it"
            )
        if opaque["driver"] == driver:
            yield Configuration(source, opaque["parameters"])
