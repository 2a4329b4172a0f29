"""Registration: what a plugin sends first, and when."""

from pathlib import Path
from typing import Final
from urllib.parse import quote

from deviceplugin.proto.v1beta1 import KUBELET_SOCKET, VERSION
from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from deviceplugin_testing.conformance._check import FIRST_LANE, CheckGroup, Failed, NotApplicable
from deviceplugin_testing.conformance._kubelet import Registered
from deviceplugin_testing.conformance._trial import Trial
from deviceplugin_testing.conformance.checks._observing import quiet
from deviceplugin_testing.simulator._control_plane.rules.names import is_extended_resource
from deviceplugin_testing.simulator._wire import dialled_path, socket_path

GROUP: Final = CheckGroup("registration", "Registration", lane=FIRST_LANE)

_OPTIONS_REFUSED: Final = "failed to get device plugin options"


def _calls(trial: Trial) -> list[Registered]:
    """Return the calls of Register after the first start."""
    calls = trial.first().kubelet.registrations(trial.subject.resource or None)
    if not calls:
        raise NotApplicable(trial.hopeless or "no call of Register")
    return calls


@GROUP.check(
    "in-time",
    "Registers soon after its start",
    why="Until a plugin registers, its node has no devices and pods that need them wait.",
)
def _in_time(trial: Trial) -> str:
    node = trial.first()
    calls = node.kubelet.registrations(trial.subject.resource or None)
    if not calls or node.plugin is None:
        raise Failed(trial.hopeless)
    took = calls[0].at - node.plugin.started_at
    return f"registered {calls[0].resource} after {took:.2f} s"


@GROUP.check(
    "serves-first",
    "Serves on its socket before it calls Register",
    why="The kubelet dials back while Register waits; if nobody answers, 10 s are lost.",
)
def _serves_first(trial: Trial) -> str:
    calls = _calls(trial)
    # If an endpoint leads elsewhere, it is unknown where the plugin serves.
    known = [call for call in calls if call.served or _is_bare(call.endpoint)]
    if not known:
        raise NotApplicable(f"the endpoint {calls[0].endpoint!r} leads elsewhere")
    for call in known:
        if not call.served:
            raise Failed(f"nobody answered on {call.endpoint} when {call.resource} was registered")
    return f"answered on {known[0].endpoint} when it registered"


@GROUP.check(
    "version",
    f"Registers with version {VERSION}",
    why="The kubelet refuses any other version.",
)
def _version(trial: Trial) -> str:
    for call in _calls(trial):
        if call.version != VERSION:
            raise Failed(f"registered {call.resource} with version {call.version!r}")
    return f"version {VERSION}"


@GROUP.check(
    "name",
    "Registers a valid extended resource name",
    why="The kubelet refuses others: a DNS name, a slash, 63 characters, and no kubernetes.io.",
)
def _name(trial: Trial) -> str:
    names = sorted({call.resource for call in _calls(trial)})
    for name in names:
        if not is_extended_resource(name):
            raise Failed(f"registered {name!r}, which is not an extended resource name")
    return f"registered {', '.join(names)}"


@GROUP.check(
    "endpoint",
    "Registers its socket by a bare file name",
    why="The kubelet joins it to its own directory; paths, ?, # and % lead elsewhere.",
)
def _endpoint(trial: Trial) -> str:
    calls = _calls(trial)
    for call in calls:
        if not _is_bare(call.endpoint):
            raise Failed(f"registered {call.resource} with the endpoint {call.endpoint!r}")
    return f"endpoint {calls[0].endpoint}"


@GROUP.check(
    "options",
    "Answers GetDevicePluginOptions",
    why="The kubelet asks for them while Register waits, and drops a plugin that does not answer.",
)
def _options(trial: Trial) -> str:
    for call in _calls(trial):
        if call.refusal.startswith(_OPTIONS_REFUSED):
            raise Failed(call.refusal)
    node = trial.node()
    options = node.kubelet.call(
        node.resource, "GetDevicePluginOptions", pb.Empty(), trial.limits.call
    )
    offers = ["preferred allocation"] * options.get_preferred_allocation_available
    offers += ["pre-start"] * options.pre_start_required
    return f"offers {' and '.join(offers) or 'nothing optional'}"


@GROUP.check(
    "once",
    "Registers each resource once per kubelet",
    why="A second registration opens a second stream, whose end takes the first one with it.",
)
def _once(trial: Trial) -> str:
    seen = trial.once(quiet)
    for name in sorted({call.resource for call in seen.registrations}):
        times = sum(call.resource == name and not call.refusal for call in seen.registrations)
        if times > 1:
            raise Failed(f"registered {name} {times} times within {seen.seconds:.0f} s")
    return f"once within {seen.seconds:.0f} s"


def _is_bare(endpoint: str) -> bool:
    """Return whether the kubelet dials a file of this name in its directory, not its own socket."""
    directory = Path("/plugins")
    try:
        dialled = dialled_path(socket_path(directory, endpoint))
    except ValueError:
        return False
    named = "/" not in endpoint and endpoint != KUBELET_SOCKET
    return named and dialled == quote(f"{directory}/{endpoint}")
