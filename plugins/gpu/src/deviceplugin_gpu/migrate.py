"""What ``deviceplugin migrate`` knows of NVIDIA's plugin: flags, variables, Helm values, files."""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import PurePosixPath
from typing import Any, Final

import deviceplugin as dp
from deviceplugin.kit.configuration import Place, anything, of_plain, of_text
from deviceplugin.kit.migration import Migration, Setting, Workload, checked, flags
from deviceplugin_gpu.configuration.settings import GpuSettings, flags_of

_NAME: Final = "k8s-device-plugin"
_PUBLISHERS: Final = ("nvcr.io", "nvidia")
"""Parts of the image's name: others call theirs k8s-device-plugin, too."""
_CLASSIC: Final = {
    field.name.replace("_", "-"): field
    for field in fields(GpuSettings)
    if field.metadata.get("env")
}
"""The settings that their plugin has too."""
_SWITCHES: Final = frozenset(name for name, field in _CLASSIC.items() if field.type is bool)
_OF_CONTAINER: Final = ("driver-root-ctr-path", "kubelet-socket")
"""Settings about their container, which have no meaning in ours."""
_FLAGS: Final = {
    flag.removeprefix("--"): "" if name in _OF_CONTAINER else name
    for name, field in _CLASSIC.items()
    for flag in flags_of(field)
}
"""Their flags, and our settings. Variables are the same in capitals."""
_VALUES: Final = {
    ("compatWithCPUManager",): "pass-device-specs",
    ("migStrategy",): "mig-strategy",
    ("failOnInitError",): "fail-on-init-error",
    ("deviceListStrategy",): "device-list-strategy",
    ("deviceIDStrategy",): "device-id-strategy",
    ("nvidiaDriverRoot",): "driver-root",
    ("gdrcopyEnabled",): "gdrcopy-enabled",
    ("gdsEnabled",): "gds-enabled",
    ("mofedEnabled",): "mofed-enabled",
    ("deviceDiscoveryStrategy",): "device-discovery-strategy",
    ("cdi", "nvidiaHookPath"): "nvidia-cdi-hook-path",
    ("cdi", "featureFlags"): "cdi-feature-flags",
}
"""Helm values, and our settings."""
_SIGNS: Final = {"gfd", *(path[0] for path in _VALUES)}
"""Helm values that show whose they are, where no image is given."""
_HEALTH: Final = ("DP_DISABLE_HEALTHCHECKS", "DP_ENABLE_HEALTHCHECKS")
_RENAMED: Final = "this takes effect here and is ignored there, so check which names pods ask for"
_MPS_ROOT: Final = "/run/nvidia/mps"
_DRIVER_CONTAINER: Final = "/run/nvidia/driver"


def migrate(workload: Workload) -> Migration | None:
    """Return what becomes of NVIDIA's plugin; None for anything else."""
    if not _is_nvidias(workload):
        return None
    result = Migration(
        peer="k8s-device-plugin of NVIDIA",
        plugin="gpu",
        configuration={},
        differences=["resource names and device ids: the same"],
    )
    given = dict(_given(workload, result))
    files = dict(_files(workload, given.pop("config-file", None)))
    settings = {name: _value(name, one) for name, one in given.items()}
    texts = [_checked(one) for one in files.values()]
    _sharing(texts, settings, result)
    if len(files) > 1:
        result.components.append("gpu-node-config")
        result.config_maps["node-config"] = _named(workload, files)
        result.differs(
            "config-manager",
            "not needed: the component gpu-node-config chooses from the same files, by the same "
            "label, once it is copied to the pod",
        )
    _driver(settings, texts, result)
    if "fail-on-init-error" not in settings and not _flag(texts, "failOnInitError"):
        settings["fail-on-init-error"] = False
        result.differs("fail-on-init-error", "false, so that a node may get its driver later")
    checked(of_plain(settings, workload.place), GpuSettings.from_file)
    if texts:
        # As there, they override the file.
        for name, one in settings.items():
            result.variables[f"DP_{name.upper().replace('-', '_')}"] = _written(one)
    result.configuration = texts[0] if len(texts) == 1 else {} if texts else settings
    return result


def _is_nvidias(workload: Workload) -> bool:
    if workload.name == _NAME:
        return any(part in workload.image.split("/") for part in _PUBLISHERS)
    values = workload.values or {}
    return not workload.image and bool(_SIGNS & {*values})


def _given(workload: Workload, result: Migration) -> Iterator[tuple[str, Setting]]:
    """Yield our settings in the order in which later ones win."""
    yield from _of_values(workload, result)
    known = {**_FLAGS, "config-file": "config-file"}
    names = {name.upper().replace("-", "_"): name for name in known}
    set_here = ((name, workload.variable(key)) for key, name in names.items())
    variables = [(name, one) for name, one in set_here if one]
    for name, one in (*variables, *flags(workload, known, _SWITCHES)):
        if not one.value:
            continue  # charts set variables to nothing
        if known[name]:
            yield known[name], one
        else:
            result.differs(f"--{name}", f"{one.value} is about their container: not taken over")
    for name in _HEALTH:
        if found := workload.variable(name):
            result.variables[name] = str(found.value)


def _of_values(workload: Workload, result: Migration) -> Iterator[tuple[str, Setting]]:
    for path, name in _VALUES.items():
        if one := workload.key(*path):
            yield name, one
    if workload.values is None:
        return
    if not workload.key("affinity"):
        result.differs(
            "affinity",
            "their chart runs on nodes only that Node Feature Discovery has labelled; ours runs on "
            "all, and is idle without a GPU",
        )
    if (enabled := workload.key("gfd", "enabled")) and enabled.value:
        result.differs(
            "gfd.enabled",
            "no other DaemonSet here: set labels-file, and mount the features.d of Node Feature "
            "Discovery",
        )
    if root := workload.key("mps", "root"):
        yield "mps-root", root
    given = workload.key("config", "name")
    if given and given.value and not workload.configuration:
        raise dp.ConfigError(
            f"{given.place}: the ConfigMap {given.value!r} is not in the values: give its file "
            "with --config, or write it as config.map"
        )


def _files(workload: Workload, named: Setting | None) -> Iterator[tuple[str, Setting]]:
    """Yield the configuration files, by name."""
    if (given := workload.key("config", "map")) and given.value:
        if not isinstance(given.value, Mapping):
            raise given.wrong("a mapping of files")
        for name, text in given.value.items():
            yield str(name), Setting(f"{given.place}.{name}", str(text))
    elif workload.configuration is not None:
        yield "config", Setting("--config", workload.configuration)
    elif named and named.value:
        yield "config", workload.file(str(named.value), f"the file {named.value} of --config-file")


def _named(workload: Workload, files: Mapping[str, Setting]) -> dict[str, str]:
    """Return the files, and the default one also under the name that means that here."""
    texts = {name: str(one.value) for name, one in files.items()}
    given = workload.key("config", "default")
    if given and given.value and "default" not in texts:
        if str(given.value) not in texts:
            raise given.wrong(f"one of {', '.join(texts)}")
        texts["default"] = texts[str(given.value)]
    return texts


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _checked(given: Setting) -> dict[str, Any]:
    """Return the content of a configuration file, all of whose keys are valid."""

    def read(root: Place) -> dict[str, Any]:
        GpuSettings.from_file(root)
        content: dict[str, Any] = anything().read(root)
        return content

    return checked(of_text(str(given.value), given.place), read)


def _sharing(texts: list[dict[str, Any]], settings: dict[str, Any], result: Migration) -> None:
    root = settings.pop("mps-root", None)
    sharing = [text.get("sharing") or {} for text in texts]
    if any("mps" in one for one in sharing):
        result.components.append("gpu-mps")
        result.differs("MPS control daemon", "none here: keep theirs, with the same mps-root")
        if root not in (None, _MPS_ROOT):
            result.variables["DP_MPS_ROOT"] = str(root)
            result.differs("mps-root", f"{root}: change the path in the component gpu-mps to it")
    shared = [
        one
        for kinds in sharing
        for kind in kinds.values()
        if isinstance(kind, Mapping)
        for one in kind.get("resources") or []
    ]
    for key in ("rename", "devices"):
        if any(key in one for one in shared):
            result.differs(f"sharing: {key}", _RENAMED)
    if any(text.get("resources") for text in texts):
        result.differs("resources", _RENAMED)


def _driver(settings: dict[str, Any], texts: list[dict[str, Any]], result: Migration) -> None:
    """Add what the plugin needs of the driver in the strategies that use CDI."""
    strategy = settings.get("device-list-strategy") or _flag(texts, "plugin", "deviceListStrategy")
    listed = strategy if isinstance(strategy, list) else [strategy or ""]
    strategies = [name.strip() for text in listed for name in str(text).split(",")]
    root = str(settings.get("driver-root") or _flag(texts, "nvidiaDriverRoot") or "/")
    if root.rstrip("/") == _DRIVER_CONTAINER:
        result.components.append("gpu-driver-container")
        settings.pop("driver-root", None)
        result.differs("driver root", "mounted by the component gpu-driver-container")
    elif any(one.startswith("cdi-") for one in strategies):
        result.components.append("gpu-cdi")
    elif root != "/":
        result.mounts["/driver-root"] = root
        result.differs("driver root", f"{root} is mounted read-only at /driver-root, as there")
    if result.components[-1:] in (["gpu-cdi"], ["gpu-driver-container"]):
        settings.pop("device-list-strategy", None)
        result.variables["DP_DEVICE_LIST_STRATEGY"] = ",".join(strategies) or "envvar"
        result.differs("/var/run/cdi and the driver", f"mounted by {result.components[-1]}")


def _flag(texts: list[dict[str, Any]], *path: str) -> Any:
    """Return the first value of a flag in the files; None if none has it."""
    for text in texts:
        found: Any = text.get("flags")
        for name in path:
            found = found.get(name) if isinstance(found, Mapping) else None
        if found is not None:
            return found
    return None


def _value(name: str, given: Setting) -> Any:
    """Return a setting as it stands in a file."""
    if name in _SWITCHES and not isinstance(given.value, bool):
        text = str(given.value).lower()
        if text not in {"1", "t", "true", "0", "f", "false", ""}:
            raise given.wrong("true or false")
        return text in {"1", "t", "true"}
    if name in {"imex-channel-ids", "cdi-feature-flags", "cdi-disable-hooks"}:
        return [part.strip() for part in str(given.value).split(",") if part.strip()]
    if name.endswith("-root") and not PurePosixPath(str(given.value or "/")).is_absolute():
        raise given.wrong("an absolute path")
    return given.value
