"""Pods, their containers and claims, and what they got."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb


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


_NONE: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Container:
    """A container and its limits: resource name to number of devices."""

    name: str
    limits: Mapping[str, int] = field(default_factory=lambda: _NONE)
    restarts_always: bool = False
    """Whether an init container is a sidecar, which runs as long as the pod."""
    claimed: frozenset[str] = frozenset()
    """Resources that come from a resource claim (DRA) instead of a device plugin. Those of the
    pod's ``extended`` claim are added."""
    claims: Sequence[ContainerClaim] = ()
    """The pod's claims that it uses."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "limits", MappingProxyType(dict(self.limits)))
        object.__setattr__(self, "claims", tuple(ContainerClaim(*one) for one in self.claims))


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod: its init containers and sidecars in order, then its other containers."""

    name: str
    containers: Sequence[Container] = ()
    init_containers: Sequence[Container] = ()
    namespace: str = "default"
    uid: str = ""
    """By default ``NAMESPACE/NAME``. A new pod of the same name needs a new UID."""
    claims: Sequence[PodClaim] = ()
    """The resource claims that its containers refer to."""
    extended: ExtendedClaim | None = None
    """The resource claim that satisfies limits of its containers, if the scheduler made one."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "containers", self._claiming(self.containers))
        object.__setattr__(self, "init_containers", self._claiming(self.init_containers))
        object.__setattr__(self, "claims", tuple(self.claims))
        object.__setattr__(self, "uid", self.uid or f"{self.namespace}/{self.name}")

    def _claiming(self, containers: Iterable[Container]) -> tuple[Container, ...]:
        if self.extended is None:
            return tuple(containers)
        mapped = self.extended.resources
        return tuple(replace(one, claimed=one.claimed | mapped(one.name)) for one in containers)

    @property
    def has_claims(self) -> bool:
        """Whether it has any resource claim."""
        return bool(self.claims or self.extended)

    @classmethod
    def of(cls, name: str, /, **limits: Mapping[str, int]) -> "Pod":
        """Return a pod with a container per keyword: ``Pod.of("p", main={"x.io/dev": 1})``."""
        return cls(name, [Container(container, wanted) for container, wanted in limits.items()])

    @property
    def all_containers(self) -> tuple[Container, ...]:
        """All containers in the order in which the kubelet allocates for them."""
        return (*self.init_containers, *self.containers)

    def container(self, name: str) -> Container:
        """Return the container called ``name``; raise ``LookupError`` if there is none."""
        for container in self.all_containers:
            if container.name == name:
                return container
        raise LookupError(f"pod {self.name} has no container {name}")

    def runs_once(self, container: Container) -> bool:
        """Return whether ``container`` is an init container that ends before others start."""
        return container in self.init_containers and not container.restarts_always

    def request(self, resource: str, *, claims: bool = True) -> int:
        """Return how many devices the pod needs at the same time.

        If ``claims`` is false, devices from resource claims do not count.
        """

        def of(container: Container) -> int:
            claimed = not claims and resource in container.claimed
            return 0 if claimed else container.limits.get(resource, 0)

        sidecars = peak = 0
        for container in self.init_containers:
            wanted = of(container)
            sidecars += wanted if container.restarts_always else 0
            peak = max(peak, sidecars if container.restarts_always else sidecars + wanted)
        return max(peak, sidecars + sum(map(of, self.containers)))

    @property
    def resources(self) -> frozenset[str]:
        """All resources that any container has a limit for."""
        return frozenset(name for container in self.all_containers for name in container.limits)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of an admission. It is true if the pod was admitted."""

    pod: Pod
    devices: Mapping[str, Mapping[str, frozenset[str]]] = field(default_factory=lambda: _NONE)
    """Container to resource to device ids, for an admitted pod."""
    options: Mapping[str, "RunOptions | None"] = field(default_factory=lambda: _NONE)
    """Container to what it was started with, for a pod that was run."""
    reason: str = ""
    """``status.reason`` of a rejected pod."""
    message: str = ""
    """``status.message`` of a rejected pod."""
    event: str = ""
    """The message of the warning event about a rejected pod, or about one that was admitted and
    whose claims could not be prepared."""

    def __bool__(self) -> bool:
        return not self.reason


@dataclass(slots=True)
class PodState:
    """A pod in the API server. It outlives the kubelet."""

    pod: Pod
    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    running: set[str] = field(default_factory=set)
    """Names of the containers that the container runtime runs."""
    started: dict[str, "RunOptions | None"] = field(default_factory=dict)
    """What each container got at its last start; None for nothing."""
    sandbox: bool = False
    """Whether the pod has a sandbox. Its claims are prepared before, and never again while it
    has one."""
    waiting: list[str] = field(default_factory=list)
    """Containers to start once the pod has a sandbox, in their order."""
    ending: str = ""
    """The phase of a pod that is terminating: what it will be once its claims are unprepared."""
    event: str = ""
    """Why the last attempt to prepare or unprepare its claims failed."""
    retry_at: float = 0.0
    """When the next attempt is due, by the kubelet's clock."""

    @property
    def terminal(self) -> bool:
        """Whether the pod has ended."""
        return self.phase in {"Succeeded", "Failed"}


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What the kubelet passes to the container runtime for a container's devices.

    The messages are unchanged from the plugins; paths are not checked. What a started container
    got also has the edits of its CDI devices.
    """

    envs: Mapping[str, str]
    mounts: Sequence[pb.Mount]
    devices: Sequence[pb.DeviceSpec]
    annotations: Mapping[str, str]
    cdi_devices: Sequence[str]
    """The names in the answers of plugins."""
    claim_cdi_devices: Sequence[str] = ()
    """The names in the answers of DRA drivers."""
    hooks: Sequence[Mapping[str, Any]] = ()
    """The hooks of its CDI devices, as in their specifications."""
    gids: Sequence[int] = ()
    """Supplementary groups from its CDI devices."""

    @classmethod
    def merge(cls, responses: Iterable[pb.ContainerAllocateResponse]) -> "RunOptions":
        """Merge the answers of several plugins. If they conflict, the first one wins."""
        envs: dict[str, str] = {}
        mounts: dict[str, pb.Mount] = {}
        devices: dict[str, pb.DeviceSpec] = {}
        annotations: dict[str, str] = {}
        cdi_devices: dict[str, None] = {}
        for response in responses:
            envs = {**response.envs, **envs}
            annotations = {**response.annotations, **annotations}
            for mount in response.mounts:
                mounts.setdefault(mount.container_path, mount)
            for device in response.devices:
                devices.setdefault(device.container_path, device)
            cdi_devices |= dict.fromkeys(device.name for device in response.cdi_devices)
        return cls(
            envs, tuple(mounts.values()), tuple(devices.values()), annotations, tuple(cdi_devices)
        )

    def with_claims(self, names: Sequence[str]) -> "RunOptions":
        """Return these options with the CDI names of claims."""
        return replace(self, claim_cdi_devices=tuple(names))

    @classmethod
    def of_claims(cls, names: Sequence[str]) -> "RunOptions | None":
        """Return the options of a container that has devices from claims only, or None."""
        return cls({}, (), (), {}, ()).with_claims(names) if names else None


def device_nodes(options: RunOptions) -> Iterable[Hashable]:
    """Return the paths of the device nodes on the host."""
    return [device.host_path for device in options.devices]


def double_bookings(
    pods: Iterable[PodState],
    devices: Callable[[RunOptions], Iterable[Hashable]] = device_nodes,
) -> dict[Hashable, list[str]]:
    """Return the devices that running containers of several pods have, and the UIDs of these pods.

    Args:
        pods: Such as ``kubelet.pods``.
        devices: Returns the devices in what a container got at its start, whether from a device
            plugin or from a claim.
    """
    users: dict[Hashable, dict[str, None]] = {}
    for state in pods:
        for container in state.running:
            if options := state.started.get(container):
                for device in devices(options):
                    users.setdefault(device, {})[state.pod.uid] = None
    return {device: list(found) for device, found in users.items() if len(found) > 1}
