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
    result.components += ["gpu-operator"] if is_operators else []


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
    own = {name: settings.written(name, one) for name, one in given.items()}
    contents = {name: profiles.content(name, one, own, result) for name, one in files.texts.items()}
    general = contents[files.default] if files.default else dict(own)
    every = [*contents.values(), *([] if files.default else [general])]
    apart = {**_driver(workload, every, result), **_mps(workload, every, result)}
    if any(_LATER not in one for one in every):
        result.differs(_LATER, "false, so that a node may get its driver later")
    for one in every:
        one.setdefault(_LATER, False)
        profiles.judge({**one, **apart}, workload.place)
    if any(one.get("mig-strategy", "none") != "none" for one in every):
        result.differs(
            "MIG",
            "where its devices are missing, add the component gpu-privileged and the variable "
            "NVIDIA_MIG_MONITOR_DEVICES=all, as theirs has",
        )
    result.configuration = general
    if files.by_label:
        # Nodes that the label gives the default have what those without it have.
        others = {name: one for name, one in contents.items() if name != files.default}
        result.profile_label, result.profiles = files.label, {**others}
        result.differs(
            f"node label {files.label}",
            f"it chooses one of {', '.join(contents)}; nodes without it have "
            f"{files.default or 'none of them: the flags and variables alone'}",
        )


def _mps(workload: Workload, every: list[dict[str, Any]], result: Migration) -> dict[str, Any]:
    """Take the directory of MPS out of all configurations, and add what sharing by it needs."""
    roots = [one.pop("mps-root", None) or release.MPS_ROOT for one in every]
    if any("mps" in (one.get("sharing") or {}) for one in every):
        release.add_mps(workload, str(_only(workload, "mps-root", roots)), result)
    elif any(one != release.MPS_ROOT for one in roots):
        result.differs("mps-root", "not taken over: no configuration shares by MPS")
    return {"mps-root": roots[0]}


def _driver(workload: Workload, every: list[dict[str, Any]], result: Migration) -> dict[str, Any]:
    """Add what gives our pod the driver, and return the settings that a component has."""
    roots = [str(one.pop(_ROOT, None) or "/").rstrip("/") or "/" for one in every]
    root, ways = _only(workload, _ROOT, roots), [_strategies(one) for one in every]
    is_cdi = any(name.startswith("cdi-") for way in ways for name in way)
    is_mounted = root not in {"/", gpu_operator.DRIVER}
    if is_mounted:
        result.mounts["/driver-root"] = root
        result.differs("driver root", f"{root} is mounted read-only at /driver-root, as there")
        result.components += ["cdi"] if is_cdi else []
    for one in every:
        one.pop("driver-root-ctr-path", None)  # about their container
        one.update({_ROOT: root} if is_mounted else {})
    if is_mounted or not (is_cdi or root == gpu_operator.DRIVER):
        return {}
    names = _only(workload, _STRATEGY, ways)
    component = "gpu-cdi" if root == "/" else "gpu-driver-container"
    result.components.append(component)
    result.variables["DP_DEVICE_LIST_STRATEGY"] = ",".join(names)
    result.differs("/var/run/cdi and the driver", f"mounted by the component {component}")
    for one in every:
        one.pop(_STRATEGY, None)
    return {_STRATEGY: names}


def _strategies(content: dict[str, Any]) -> list[str]:
    given = content.get(_STRATEGY) or "envvar"
    listed = given if isinstance(given, list) else [given]
    return [name.strip() for one in listed for name in str(one).split(",")]


def _only(workload: Workload, name: str, found: list[Any]) -> Any:
    """Return the value that all configurations have; raise ``ConfigError`` if they differ."""
    if any(one != found[0] for one in found):
        raise dp.ConfigError(
            f"{workload.place}: {name} differs between configurations: the pod's mounts depend on "
            "it: migrate each by itself with --config, and select its nodes by a nodeSelector"
        )
    return found[0]
