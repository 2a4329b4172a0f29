"""What ``deviceplugin migrate`` knows of Intel's GPU plugin."""

from typing import Any, Final, get_args

from deviceplugin.kit.migration import Migration, Setting, Workload, flags
from deviceplugin_intelgpu.settings import ByPath, MonitoringMode

_NAME: Final = "intel-gpu-plugin"
_CHOICES: Final = {
    "allocation-policy": ("share-policy", ("none", "balanced", "packed")),
    "bypath": ("bypath", get_args(ByPath)),
    "monitoring-mode": ("monitoring-mode", get_args(MonitoringMode)),
}
_LISTS: Final = {"allow-ids": "include", "deny-ids": "exclude"}
_SHARES: Final = "shared-dev-num"
_MONITORING: Final = "enable-monitoring"
_OWN_HEALTH: Final = "not taken over: our plugin has checks of its own, which need no other program"
_OTHERS: Final = {
    "xpumd-endpoint": _OWN_HEALTH,
    "health-management": _OWN_HEALTH,
    "temp-limit": _OWN_HEALTH,
    "gpu-temp-limit": _OWN_HEALTH,
    "memory-temp-limit": _OWN_HEALTH,
    "wsl": "not supported",
    "prefix": "not supported: sysfs is read at /sys",
    "v": "use the component verbose instead",
}
_SWITCHES: Final = (_MONITORING, "health-management", "wsl")


def migrate(workload: Workload) -> Migration | None:
    """Return what becomes of Intel's GPU plugin; None for anything else."""
    if workload.values is not None or workload.name != _NAME:
        return None
    configuration: dict[str, Any] = {"device-ids": "card"}
    result = Migration(
        peer="the GPU plugin of intel-device-plugins-for-kubernetes",
        plugin="intelgpu",
        configuration=configuration,
        differences=[
            "resource names: the same, gpu.intel.com/i915 and gpu.intel.com/xe",
            (
                "device ids: the same, card0-0 and the like, so running pods keep their devices; "
                "without device-ids they are PCI addresses, which a reboot does not change"
            ),
            "CDI: none; containers get the device nodes",
        ],
    )
    for name, given in flags(workload, (_SHARES, *_CHOICES, *_LISTS, *_OTHERS), _SWITCHES):
        if name not in _OTHERS:
            key, value = _setting(name, given)
            configuration[key] = value
        elif given.value != "false":
            result.differs(f"--{name}", _OTHERS[name])
    # Ours prefers different GPUs by default; theirs has no preference among shares.
    configuration.setdefault("share-policy", "none")
    return result


def _setting(name: str, given: Setting) -> tuple[str, Any]:
    text = str(given.value)
    if name in _CHOICES:
        key, choices = _CHOICES[name]
        if text not in choices:
            raise given.wrong(f"one of {', '.join(choices)}")
        return key, text
    if name in _LISTS:
        return _LISTS[name], [part.strip() for part in text.split(",") if part.strip()]
    if name == _MONITORING:
        return _MONITORING, text != "false"
    if not text.isdecimal():
        raise given.wrong("a whole number")
    return "shares", int(text)
