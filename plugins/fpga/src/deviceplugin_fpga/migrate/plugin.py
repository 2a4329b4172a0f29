"""What becomes of Intel's FPGA plugin: its flags, and its operator's objects."""

from collections.abc import Iterator, Mapping
from typing import Final

from deviceplugin.kit.migration import (
    LOGGING,
    LOGGING_SWITCHES,
    Migration,
    Setting,
    Workload,
    flags,
)
from deviceplugin_fpga.migrate.names import add_names
from deviceplugin_fpga.settings import MODES

KIND: Final = "FpgaDevicePlugin"
SPEC: Final[Mapping[str, str]] = {"mode": "mode", "logLevel": "v"}
"""Fields of the objects, and the flags that Intel's operator makes of them."""
UNUSED: Final[Mapping[str, str]] = {
    "image": "",
    "initImage": "not needed: the hook is in our own image",
    "nodeSelector": "",
    "tolerations": "",
}
"""Other fields, and why they are not taken over; "" if they are, or are ours to choose."""
_NAME: Final = "intel-fpga-plugin"
_API: Final = "not needed: ours does not ask the API server"
DROPPED: Final[Mapping[str, str]] = {
    **dict.fromkeys((*LOGGING, *LOGGING_SWITCHES, "debug"), "use the component verbose instead"),
    **dict.fromkeys(("kubeconfig", "master", "node-name"), _API),
}
"""Flags, and why they are not taken over."""
_SWITCHES: Final = (*LOGGING_SWITCHES, "debug")


def migrate(workload: Workload) -> Migration | None:
    """Return what becomes of the plugin; None for anything else. Raise ``ConfigError``."""
    if workload.kind != KIND and (workload.values is not None or workload.name != _NAME):
        return None
    mode = "af"
    result = Migration(
        peer="the FPGA plugin of intel-device-plugins-for-kubernetes",
        plugin="fpga",
        configuration={},
        differences=[
            "resource names and device ids: the same",
            (
                "annotation fpga.intel.com/device-plugin-mode of a node: not read, because ours "
                "has no token; if a node has it, add the component node-annotation"
            ),
            "container hook: ours is installed by our own init container at the same path",
            "host paths /dev and /sys/class: not mounted; sysfs is in every container",
        ],
    )
    for flag, given in _given(workload, result):
        if flag != "mode":
            _drop(workload, flag, given, result)
        elif given.value in tuple(MODES):
            mode = str(given.value)
        elif given.value != "" or not given.path:
            raise given.wrong(f"one of {', '.join(MODES)}")
    result.configuration = {"mode": mode}
    add_names(workload, mode, result)
    return result


def _given(workload: Workload, result: Migration) -> Iterator[tuple[str, Setting]]:
    if workload.values is None:
        workload.variable("NODE_NAME")
        yield from flags(workload, ("mode", *DROPPED), _SWITCHES)
        return
    workload.key("status")
    for field, why in UNUSED.items():
        if why:
            workload.drop(why, "spec", field)
        elif (given := workload.key("spec", field)) and field != "image":
            result.pod[field] = given.value
    for field, flag in SPEC.items():
        if given := workload.key("spec", field) if flag == "mode" else workload.has("spec", field):
            yield flag, given


def _drop(workload: Workload, flag: str, given: Setting, result: Migration) -> None:
    if given.path:
        workload.account.drop(given.path, DROPPED[flag])
    else:
        result.differs(f"--{flag}", DROPPED[flag])
