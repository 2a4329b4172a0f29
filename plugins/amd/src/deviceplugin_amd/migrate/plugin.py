"""What becomes of AMD's plugin, whatever it was deployed by, and of its container."""

from collections.abc import Mapping
from typing import Final, get_args

from deviceplugin.kit.migration import (
    LOGGING,
    LOGGING_SWITCHES,
    Migration,
    Setting,
    Workload,
    flags,
)
from deviceplugin_amd.settings import NamingStrategy

NAMING: Final = "resource_naming_strategy"
"""The flag of resource names."""
NAME: Final = "k8s-device-plugin"
"""The last part of the image's name."""
_PUBLISHER: Final = "rocm"
"""A part of the image's name: others call theirs k8s-device-plugin, too."""
_LABELLER: Final = "labeller"
"""How the tags of another program in the same repository begin."""
DROPPED: Final[Mapping[str, str]] = {
    "pulse": "ours always checks health",
    **dict.fromkeys((*LOGGING, *LOGGING_SWITCHES), "log-level is the setting for logs here"),
}
"""Flags, and why they are not taken over."""
_UNREAD: Final = "not taken over: their program reads no variables; include and exclude choose GPUs"
_LABELLED: Final = (
    "no other DaemonSet here: the component amd-labels writes a file for Node Feature Discovery, "
    "which has to run"
)


def migrate(workload: Workload) -> Migration | None:
    """Return what becomes of a container of the plugin; None for anything else."""
    is_plugin = workload.name == NAME and _PUBLISHER in workload.image.split("/")
    if workload.values is not None or not is_plugin:
        return None
    if workload.tag.startswith(_LABELLER):
        workload.account.drop(workload.root, f"the labeller: {_LABELLED}")
        return None
    for name in workload.variables:
        workload.drop_variable(name, f"{name}: {_UNREAD}")
    given = dict(flags(workload, (NAMING, *DROPPED), LOGGING_SWITCHES))
    result = migration(given.pop(NAMING, None))
    for flag, one in given.items():
        if one.value != "false":
            result.differs(f"--{flag}", f"{one.value}; {DROPPED[flag]}")
    if _has_labeller(workload):
        add_labels("the labeller", result)
    return result


def migration(naming: Setting | None, *, has_partitions: bool = False) -> Migration:
    """Return what becomes of the plugin with a strategy of names; raise ``ConfigError``."""
    result = Migration(
        peer="the GPU plugin of AMD (ROCm/k8s-device-plugin)",
        plugin="amd",
        configuration={},
        differences=[
            "resource names: the same",
            (
                "device ids: those of whole GPUs are the same; those of partitions are others, "
                "so drain nodes whose GPUs are divided"
            ),
            "health: ours is that of each GPU, and does not ask AMD's metrics exporter",
        ],
    )
    if naming is not None:
        if naming.value not in get_args(NamingStrategy):
            raise naming.wrong(f"one of {', '.join(get_args(NamingStrategy))}")
        result.configuration = {"resource-naming-strategy": naming.value}
    why = "for partitions, links between GPUs and clean hand-over"
    if has_partitions or (naming is not None and naming.value == "mixed"):
        result.components.append("amd-privileged")
        result.differs("privileged", f"by the component amd-privileged, {why}")
    else:
        result.differs(
            "privileged", f"not needed for whole GPUs; add the component amd-privileged {why}"
        )
    return result


def add_labels(what: str, result: Migration) -> None:
    """Have the plugin write the labels of AMD's labeller."""
    result.components.append("amd-labels")
    result.differs(what, _LABELLED)


def _has_labeller(workload: Workload) -> bool:
    """Return whether a DaemonSet of the input is the labeller's."""
    account = workload.account
    for path, _ in account.objects("DaemonSet"):
        containers = account.get((*path, "spec", "template", "spec", "containers"))
        for one in containers if isinstance(containers, list) else ():
            image = str(one.get("image")) if isinstance(one, Mapping) else ""
            if f"{NAME}:{_LABELLER}" in image:
                return True
    return False
