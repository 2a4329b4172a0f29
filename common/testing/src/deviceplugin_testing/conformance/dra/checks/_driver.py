"""Registration: how a driver introduces itself."""

from typing import Final

import grpc

from deviceplugin._platform import rpc
from deviceplugin.proto.dra import HEALTH, V1, V1BETA1
from deviceplugin.proto.pluginregistration import pluginregistration_pb2 as pb
from deviceplugin_testing.conformance._check import Failed, Group, NotApplicable
from deviceplugin_testing.conformance.dra._trial import DraTrial

GROUP: Final = Group("driver", "Driver registration")

_REGISTRATION: Final = pb.DESCRIPTOR.services_by_name["Registration"]


def _info(trial: DraTrial) -> pb.PluginInfo:
    node = trial.node()

    def sockets() -> list[str]:
        known = node.kubelet.watched_sockets.items()
        return [path for path, name in known if name == node.driver]

    node.require(sockets, "it does not take the notice that it is registered")
    with rpc.connect(sockets()[0]) as channel:
        info: pb.PluginInfo = rpc.calls(channel, _REGISTRATION)["GetInfo"](
            pb.InfoRequest(), timeout=trial.limits.call
        )
    return info


@GROUP.check(
    "up",
    "Registers soon after its start, serves, and publishes a device",
    why="Until then pods that need its devices wait, and all other checks are in vain.",
)
def _up(trial: DraTrial) -> str:
    try:
        node = trial.fresh()
    except NotApplicable:
        raise Failed(trial.hopeless) from None
    return f"registered {node.driver}, offers {len(node.devices)} devices"


@GROUP.check(
    "services",
    "Serves v1 and v1beta1, and lists v1 first",
    why="The kubelet takes the first service that it knows; before 1.34 that is v1beta1 only.",
)
def _services(trial: DraTrial) -> str:
    services = list(trial.once(_info).supported_versions)
    known = [service for service in services if service in {V1, V1BETA1}]
    if known != [V1, V1BETA1]:
        raise Failed(f"lists {', '.join(services)}")
    return ", ".join(services)


@GROUP.check(
    "health",
    "Streams the health of its devices, all of them in each message",
    why="The status of a pod shows it; a device that a message lacks is unknown after a while.",
)
def _health(trial: DraTrial) -> str:
    node = trial.node()
    if HEALTH not in trial.once(_info).supported_versions:
        raise NotApplicable(f"does not register {HEALTH}")
    pool, device = node.devices[0][:2]
    claim = node.claim(node.devices[0])
    node.prepare(claim)
    known = node.kubelet.dra

    def reported() -> bool:
        return known.report(node.driver, pool, device).health != "Unknown"

    node.require(reported, f"no health of {device}")
    missing = [
        one.device
        for one in node.devices
        if known.report(node.driver, one.pool, one.device).health == "Unknown"
    ]
    node.unprepare(claim)
    if missing:
        raise Failed(f"no health of {len(missing)} devices, such as {missing[0]}")
    return f"{len(node.devices)} devices"


@GROUP.check(
    "no-errors",
    "Answers a call for no claim",
    why="Monitoring calls a driver with an empty request to see whether it lives.",
)
def _no_errors(trial: DraTrial) -> str:
    node = trial.node()
    try:
        found = len(node.prepare()) + len(node.unprepare())
    except grpc.RpcError as error:
        raise Failed(rpc.status_text(error)) from error
    return f"{found} claims"
