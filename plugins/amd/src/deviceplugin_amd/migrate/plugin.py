"""What ``deviceplugin migrate`` knows of AMD's plugin: flags, and values of its Helm chart."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, get_args

from deviceplugin.kit.migration import (
    LOGGING,
    LOGGING_SWITCHES,
    Migration,
    Setting,
    Workload,
    flags,
)
from deviceplugin_amd.settings import Naming

_NAME: Final = "k8s-device-plugin"
_PUBLISHER: Final = "rocm"
"""A part of the image's name: others call theirs k8s-device-plugin, too."""
_LABELLER: Final = "labeller"
"""How the tags of another program in the same repository begin."""
_SIGNS: Final = frozenset({"dp", "lbl", "labeller"})
"""Helm values that show whose they are."""
_NAMING: Final = "resource_naming_strategy"


def migrate(workload: Workload) -> Migration | None:
    """Return what becomes of AMD's plugin; None for anything else."""
    if not _is_amds(workload):
        return None
    configuration: dict[str, Any] = {}
    result = Migration(
        peer="the GPU plugin of AMD (ROCm/k8s-device-plugin)",
        plugin="amd",
        configuration=configuration,
        differences=[
            "resource names: the same",
            (
                "device ids: those of whole GPUs are the same; those of partitions are others, "
                "so drain nodes whose GPUs are divided"
            ),
            "health: ours is that of each GPU, and does not ask AMD's metrics exporter",
        ],
    )
    for name, given in _flags(workload):
        if name == _NAMING:
            if given.value not in get_args(Naming):
                raise given.wrong(f"one of {', '.join(get_args(Naming))}")
            configuration["resource-naming-strategy"] = given.value
        elif name == "pulse":
            result.differs("--pulse", f"{given.value}; ours always checks health")
        elif given.value != "false":
            result.differs(f"--{name}", f"{given.value}; log-level is the setting for logs here")
    _add_rights(configuration, result)
    _add_values(workload, result)
    return result


def _is_amds(workload: Workload) -> bool:
    if workload.values is not None:
        return not workload.image and bool(_SIGNS & {*workload.values})
    is_plugin = workload.name == _NAME and not workload.tag.startswith(_LABELLER)
    return is_plugin and _PUBLISHER in workload.image.split("/")


def _flags(workload: Workload) -> Iterator[tuple[str, Setting]]:
    given = workload.key("dp", "args") if workload.values is not None else None
    if given:
        if not isinstance(given.value, Sequence) or isinstance(given.value, str):
            raise given.wrong("a list of flags")
        workload = replace(workload, arguments=[str(one) for one in given.value])
    yield from flags(workload, ("pulse", _NAMING, *LOGGING), LOGGING_SWITCHES)


def _add_rights(configuration: dict[str, Any], result: Migration) -> None:
    why = "for partitions, links between GPUs and clean hand-over"
    if configuration.get("resource-naming-strategy") == "mixed":
        result.components.append("amd-privileged")
        result.differs("privileged", f"by the component amd-privileged, {why}")
    else:
        result.differs(
            "privileged", f"not needed for whole GPUs; add the component amd-privileged {why}"
        )


def _add_values(workload: Workload, result: Migration) -> None:
    """Take over what their chart does besides."""
    if workload.values is None:
        return
    if (labels := workload.key("labeller", "enabled")) and labels.value:
        result.components.append("amd-labels")
        result.differs(
            "labeller.enabled",
            "no other DaemonSet here: the component amd-labels writes a file for Node Feature "
            "Discovery, which has to run",
        )
    result.differs(
        "node_selector", "not taken over: ours runs everywhere, and is idle without a GPU"
    )
    workload.key("node_selector")
    workload.key("dp", "image")
