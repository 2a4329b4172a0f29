"""What ``deviceplugin migrate`` knows of the SR-IOV and the RDMA shared device plugin."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from deviceplugin.kit.configuration import Place, anything, of_text
from deviceplugin.kit.migration import (
    LOGGING,
    LOGGING_SWITCHES,
    Migration,
    Workload,
    checked,
    flags,
)
from deviceplugin_rdma.settings import RdmaSettings


@dataclass(frozen=True)
class _Peer:
    """What one of the two plugins has."""

    name: str
    file: str
    """Its configuration, unless a flag names another."""
    keys: tuple[str, ...]
    """What may be in that."""
    flags: tuple[str, ...]
    differences: tuple[str, ...]


_SRIOV: Final = _Peer(
    "the SR-IOV network device plugin",
    "/etc/pcidp/config.json",
    ("resourceList",),
    ("config-file", "resource-prefix", "log-dir", "log-level"),
    (
        "resource names, device ids and variables: the same",
        (
            "health: by the link of the card, theirs are always healthy; link-health: ignore turns "
            "that off"
        ),
        "functions that are created later: offered without a restart",
    ),
)
_SHARED: Final = _Peer(
    "the RDMA shared device plugin",
    "/k8s-rdma-shared-dev-plugin/config.json",
    ("configList", "periodicUpdateInterval"),
    ("config-file",),
    (
        "resource names: the same",
        "device ids: hca_shared::0 and the like in place of 0, so drain nodes first",
        "permissions of device nodes: rw in place of rwm",
        "links: not set up by ours",
        "health: by the ports of the cards",
    ),
)
_PEERS: Final = {
    "sriov-network-device-plugin": _SRIOV,
    "sriov-device-plugin": _SRIOV,
    "k8s-rdma-shared-dev-plugin": _SHARED,
    "k8s-rdma-shared-device-plugin": _SHARED,
}
"""By the last part of the image's name."""


def migrate(workload: Workload) -> Migration | None:
    """Return what becomes of one of the two plugins; None for anything else."""
    peer = _PEERS.get(workload.name)
    if workload.values is not None or peer is None:
        return None
    result = Migration(
        peer=peer.name, plugin="rdma", configuration={}, differences=[*peer.differences]
    )
    path, prefix = peer.file, ""
    known, switches = (*peer.flags, *LOGGING), ("use-cdi", *LOGGING_SWITCHES)
    for name, given in flags(workload, known, switches):
        if name == "config-file":
            path = str(given.value)
        elif name == "resource-prefix":
            prefix = str(given.value)
        elif name == "use-cdi" and given.value != "false":
            result.differs("--use-cdi", "not supported: containers get the device nodes")
        elif given.value != "false":
            result.differs(f"--{name}", f"{given.value}; log-level is the setting for logs here")
    file = workload.file(path, f"its configuration {path}")
    found = checked(of_text(str(file.value), file.place), lambda root: _read(root, peer))
    result.configuration = {**({"resource-prefix": prefix} if prefix else {}), **found}
    return result


def _read(root: Place, peer: _Peer) -> Mapping[str, Any]:
    """Return the configuration, whose resources are valid here."""
    root.keys(peer.keys)
    RdmaSettings.from_file(root)
    content: dict[str, Any] = anything().read(root)
    return content
