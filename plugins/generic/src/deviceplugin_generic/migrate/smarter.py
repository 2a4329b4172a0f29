"""smarter-device-manager: its rules, in a ConfigMap or in Helm values."""

import posixpath
from collections.abc import Mapping
from typing import Any, Final

import deviceplugin as dp
from deviceplugin.kit.configuration import Place, anything, of_plain, of_text
from deviceplugin.kit.migration import Migration, Workload, checked, flags
from deviceplugin_generic.configuration import loading
from deviceplugin_generic.configuration.entries import Configuration

_NAME: Final = "smarter-device-manager"
_FILE: Final = "config/conf.yaml"
_HOME: Final = "/root"
_OWN: Final = {
    "^snd$": 20,
    "^gpiomem$": 40,
    "^gpiochip[0-9]*$": 20,
    "^hci[0-9]*$": 1,
    "^i2c-[0-9]*$": 1,
    "^rtc0$": 20,
    "^video[0-9]*$": 20,
    "^vchiq$": 20,
    "^vcsm.*$": 20,
    **dict.fromkeys((f"^tty{kind}[0-9]*$" for kind in ("USB", "ACM", "THS", "S")), 1),
    "nvidia-gpu": 10,
}
"""The rules in its image, of 1.1.2 to 1.20.12, which apply where no others are mounted."""
_FLAGS: Final = ("config", "v", "vmodule", "stderrthreshold", "log_dir", "log_backtrace_at")
_SWITCHES: Final = ("pass-device-specs", "logtostderr", "alsologtostderr")


def migrate(workload: Workload) -> Migration | None:
    """Return what becomes of smarter-device-manager; None for anything else."""
    if workload.name != _NAME or workload.values is not None:
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
    root = _rules(workload, result)
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


def _rules(workload: Workload, result: Migration) -> Place:
    for name in workload.variables:
        workload.drop_variable(name, "theirs does not read it")
    path = _FILE
    for name, one in flags(workload, _FLAGS, _SWITCHES):
        path = str(one.value) if name == "config" else path
    path = posixpath.normpath(posixpath.join(_HOME, path))
    if path == posixpath.join(_HOME, _FILE) and _has_no_file(workload, path):
        return _own(workload, result)
    file = workload.file(path, f"{path}, which is mounted there,")
    return of_text(str(file.value), file.place)


def _has_no_file(workload: Workload, path: str) -> bool:
    """Return whether nothing is mounted over a file of the image. What is rendered shows it."""
    if workload.configuration is not None or path in workload.files:
        return False
    image, mounts = (
        workload.account.get((*workload.root, key)) for key in ("image", "volumeMounts")
    )
    return isinstance(image, str) and not any(_is_over(path, one) for one in mounts or ())


def _is_over(path: str, mount: Any) -> bool:
    place = str(mount.get("mountPath", "")) if isinstance(mount, Mapping) else ""
    return bool(place) and f"{path}/".startswith(f"{posixpath.normpath(place)}/")


def _own(workload: Workload, result: Migration) -> Place:
    result.differs("rules", "those of its image, 1.1.2 to 1.20.12, since no others are mounted")
    rules = [{"devicematch": one, "nummaxdevices": count} for one, count in _OWN.items()]
    return of_plain(rules, f"{workload.place}: the rules of its image")
