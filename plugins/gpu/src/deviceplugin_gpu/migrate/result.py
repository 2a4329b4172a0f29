"""From what NVIDIA's plugin was given to our settings, components and profiles."""

from typing import Any, Final

import deviceplugin as dp
from deviceplugin.kit.migration import Migration, Setting, Workload
from deviceplugin_gpu.migrate import chart, gpu_operator, profiles, release, settings
from deviceplugin_gpu.migrate.peers import form_of, unwrapped
from deviceplugin_gpu.migrate.profiles import Files

_STRATEGY: Final = "device-list-strategy"
_ROOT: Final = "driver-root"
_LATER: Final = "fail-on-init-error"


def migrate(workload: Workload) -> Migration | None:
    """Return what becomes of NVIDIA's plugin; None for anything else."""
    form = form_of(workload)
    if form is None:
        return None
    result = Migration(
        peer="k8s-device-plugin of NVIDIA",
        plugin="gpu",
        configuration={},
        differences=["resource names and device ids: the same"],
    )
    if form == "operator":
        policy = gpu_operator.Policy(workload)
        given = dict(policy.settings(result))
        given.pop(settings.FILE, None)
        _write(workload, given, policy.files(), result)
        policy.note_pod(result)
    elif form == "chart":
        given = dict(chart.settings(workload, result))
        release.note(workload, result)
        _write(workload, given, chart.files(workload), result)
    else:
        _of_container(workload, result)
    return result


def _of_container(workload: Workload, result: Migration) -> None:
    workload, is_operators = unwrapped(workload)
    given: dict[str, Setting] = {}
    if is_operators:
        policy = gpu_operator.owner(workload.account.get((workload.root[0], "metadata")))
        result.stop += gpu_operator.stop(policy or "cluster-policy")
        given[_ROOT] = Setting(
            workload.place, gpu_operator.mounted(workload, "/driver-root") or gpu_operator.DRIVER
        )
        result.differs(
            "driver",
            "taken as the operator's container; if driver.enabled is false there, give the file "
            "again with the variable NVIDIA_DRIVER_ROOT=/",
        )
        result.differs(
            "gdrcopy-enabled, gds-enabled, mofed-enabled",
            "set there when the modules gdrdrv and nvidia_fs are loaded; here only by a setting",
        )
    given |= settings.of_container(workload, result)
    _compare_root(workload, given.get(_ROOT), result)
    release.note(workload, result)
    _write(workload, given, profiles.of_container(workload, given.pop(settings.FILE, None)), result)


def _compare_root(workload: Workload, root: Setting | None, result: Migration) -> None:
    """Say if their container sees another directory than the driver's root, as on NixOS."""
    mounted = gpu_operator.mounted(workload, "/driver-root").rstrip("/")
    if mounted and mounted != str(root.value if root else "/").rstrip("/"):
        result.differs(
            "/driver-root",
            f"theirs is {mounted} of the host: mount what the driver consists of there, as "
            "plugins/gpu/docs/cdi.md says",
        )


def _write(workload: Workload, given: dict[str, Setting], files: Files, result: Migration) -> None:
    """Write our configuration, one for each profile."""
    mps_root = given.pop("mps-root", None)
    if mps_root:
        settings.written("mps-root", mps_root)
    own = {name: settings.written(name, one) for name, one in given.items()}
    contents = {name: profiles.content(name, one, own, result) for name, one in files.texts.items()}
    general = contents[files.default] if files.default else dict(own)
    every = [*contents.values(), *([] if files.default else [general])]
    apart = _driver(workload, every, result)
    if any(_LATER not in one for one in every):
        result.differs(_LATER, "false, so that a node may get its driver later")
    for one in every:
        one.setdefault(_LATER, False)
        one.pop("mps-root", None)
        profiles.judge({**one, **apart, "mps-root": release.MPS_ROOT}, workload.place)
    if any("mps" in (one.get("sharing") or {}) for one in every):
        release.add_mps(workload, mps_root, result)
    elif mps_root and mps_root.value not in ("", release.MPS_ROOT):
        result.differs("mps-root", f"{mps_root.value}: no configuration shares by MPS")
    result.configuration = general
    if files.by_label:
        result.profile_label, result.profiles = files.label, dict(contents)
        result.differs(
            f"node label {files.label}",
            f"it chooses one of {', '.join(contents)}; nodes without it have "
            f"{files.default or 'none of them: the flags and variables alone'}",
        )


def _driver(workload: Workload, every: list[dict[str, Any]], result: Migration) -> dict[str, Any]:
    """Add what gives our pod the driver, and return the settings that a component has."""
    strategies, root = _only(workload, every, _STRATEGY), _root(workload, every)
    names = [name.strip() for one in strategies for name in str(one).split(",")]
    is_cdi = any(one.startswith("cdi-") for one in names)
    if root == gpu_operator.DRIVER:
        result.components.append("gpu-driver-container")
        result.differs("driver root", "mounted by the component gpu-driver-container")
    elif root != "/":
        result.mounts["/driver-root"] = root
        result.differs("driver root", f"{root} is mounted read-only at /driver-root, as there")
        result.components += ["cdi"] if is_cdi else []
        for one in every:
            one[_ROOT] = root
    elif is_cdi:
        result.components.append("gpu-cdi")
    if not {"gpu-driver-container", "gpu-cdi"} & {*result.components}:
        return {}
    for one in every:
        one.pop(_STRATEGY, None)
    result.variables["DP_DEVICE_LIST_STRATEGY"] = ",".join(names) or "envvar"
    result.differs("/var/run/cdi and the driver", f"mounted by {result.components[-1]}")
    return {_STRATEGY: names or ["envvar"]}


def _root(workload: Workload, every: list[dict[str, Any]]) -> str:
    """Take the driver's root out of all configurations, and return it."""
    (root,) = _only(workload, every, _ROOT) or ("/",)
    for one in every:
        one.pop(_ROOT, None)
        one.pop("driver-root-ctr-path", None)  # about their container
    return str(root or "/").rstrip("/") or "/"


def _only(workload: Workload, every: list[dict[str, Any]], name: str) -> list[Any]:
    """Return the values that all configurations have; raise ``ConfigError`` if they differ."""
    found = [one.get(name) for one in every]
    if any(one != found[0] for one in found):
        raise dp.ConfigError(
            f"{workload.place}: {name} differs between configurations: the pod's mounts depend on "
            "it: migrate each by itself with --config, and select its nodes by a nodeSelector"
        )
    values = found[0] if isinstance(found[0], list) else [found[0]]
    return [one for one in values if one not in (None, "")]
