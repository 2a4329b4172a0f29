"""smarter-device-manager: its rules, in a ConfigMap or in Helm values."""

from typing import Final

import deviceplugin as dp
from deviceplugin.kit.configuration import Place, anything, of_plain, of_text
from deviceplugin.kit.migration import Migration, Workload, checked, flags
from deviceplugin_generic.configuration import loading
from deviceplugin_generic.configuration.entries import Configuration

_NAME: Final = "smarter-device-manager"
_FILE: Final = "config/conf.yaml"
_HOME: Final = "/root"
_FLAGS: Final = ("config", "v", "vmodule", "stderrthreshold", "log_dir", "log_backtrace_at")
_SWITCHES: Final = ("pass-device-specs", "logtostderr", "alsologtostderr")


def migrate(workload: Workload) -> Migration | None:
    """Return what becomes of smarter-device-manager; None for anything else."""
    if workload.name != _NAME:
        return None
    result = Migration(
        peer=_NAME,
        plugin="generic",
        configuration=[],
        components=["host-dev"],
        keeps_ids=False,
        differences=[
            "resource names: the same, smarter-devices/...",
            (
                "device ids: readable ones instead of control characters, so drain a node before "
                "you replace the plugin there"
            ),
            "host path /dev: mounted read-only, by the component host-dev",
            "host path /sys: not mounted; sysfs is in every container",
            "devices that appear later: advertised at once; theirs looks once, at its start",
        ],
    )
    root = _rules(workload)
    configuration: Configuration = checked(
        root, lambda found: loading.smarter_read(found)["configuration"]
    )
    rules = [anything().read(place) for place in root.items()]
    for reason in configuration.left_out:
        result.differs("devicematch", reason)
    if rules and not configuration.rules:
        raise dp.ConfigError(f"{workload.place}: has no rules for this plugin")
    result.configuration = [rule for rule in rules if rule["devicematch"] != loading.GPUS]
    return result


def _rules(workload: Workload) -> Place:
    values = workload.key("config")
    if values:
        return of_plain(values.value, values.place)
    path = _FILE
    for name, one in flags(workload, _FLAGS, _SWITCHES):
        path = str(one.value) if name == "config" else path
    path = path if path.startswith("/") else f"{_HOME}/{path}"
    file = workload.file(path, f"{path}, without which the image's own file applies,")
    return of_text(str(file.value), file.place)
