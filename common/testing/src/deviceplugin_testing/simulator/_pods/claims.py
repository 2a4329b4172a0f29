"""Resource claims (DRA), as pods and their containers refer to them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class ContainerClaim(NamedTuple):
    """A claim that a container uses: an entry of its ``resources.claims``."""

    name: str
    """The name of a ``PodClaim`` of the pod."""
    request: str = ""
    """One request of the claim; empty for all."""


@dataclass(frozen=True, slots=True)
class PodClaim:
    """A claim of a pod: an entry of ``spec.resourceClaims``, with its ``ResourceClaim`` object."""

    name: str
    claim: str | None
    """The name of the object in the pod's namespace; empty if none is needed, None if it is not
    created yet."""
    from_template: bool = False
    """Whether the object was created for this pod, which then must be its owner."""


class RequestMapping(NamedTuple):
    """A request of an extended claim, and the container and resource that it is for."""

    container: str
    resource: str
    request: str


@dataclass(frozen=True, slots=True)
class ExtendedClaim:
    """The claim by which the scheduler satisfies limits: ``status.extendedResourceClaimStatus``."""

    claim: str
    """The name of the object in the pod's namespace."""
    mappings: Sequence[RequestMapping]

    def __post_init__(self) -> None:
        mappings = tuple(RequestMapping(*mapping) for mapping in self.mappings)
        object.__setattr__(self, "mappings", mappings)

    def resources(self, container: str) -> frozenset[str]:
        """Return the resources that ``container`` has from this claim."""
        return frozenset(each.resource for each in self.mappings if each.container == container)
