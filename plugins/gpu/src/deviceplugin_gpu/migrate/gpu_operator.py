"""NVIDIA's GPU operator: its ClusterPolicy, and the values of its chart."""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import deviceplugin as dp
from deviceplugin.kit.migration import Migration, Setting, Workload
from deviceplugin_gpu.migrate import settings as _settings
from deviceplugin_gpu.migrate.chart import mapping, named
from deviceplugin_gpu.migrate.profiles import Files, apart, chosen

DRIVER: Final = "/run/nvidia/driver"
"""Where the driver's container has its root."""
_INSTALLED: Final = "/usr/local/nvidia"
_PLUGIN: Final = "devicePlugin"
_IMAGE: Final = ("enabled", "repository", "image", "version", "imagePullPolicy")
_PATCH: Final = "not taken over: add it to ours by a patch"
_DROPPED: Final = {
    (_PLUGIN, "imagePullSecrets"): _PATCH,
    (_PLUGIN, "resources"): "not taken over; ours has its own requests and limit of memory",
    (_PLUGIN, "hostNetwork"): "not taken over: ours does not need it",
    (_PLUGIN, "nodeSelector"): _PATCH,
    (_PLUGIN, "affinity"): _PATCH,
    (_PLUGIN, "tolerations"): "not taken over; ours tolerates all taints",
    (_PLUGIN, "priorityClassName"): "not taken over; ours is system-node-critical",
    (_PLUGIN, "securityContext"): "not taken over; ours is not privileged",
    (_PLUGIN, "podSecurityContext"): "not taken over; ours has one of its own",
    ("daemonsets",): (
        "for all that the operator runs: not taken over; ours tolerates all taints, is "
        "system-node-critical and replaces 10 % of its pods at a time"
    ),
    ("hostPaths", "kubeletRootDir"): "not taken over: add the component kubelet-root for it",
}
_STAYS: Final = (
    *("driver", "toolkit", "dcgm", "dcgmExporter", "migManager", "nodeStatusExporter", "gds"),
    *("gdrcopy", "vgpuManager", "vgpuDeviceManager", "vfioManager", "kataManager", "ccManager"),
    *("sandboxWorkloads", "sandboxDevicePlugin", "kataSandboxDevicePlugin", "gfd", "validator"),
    *("operator", "cdi", "mig", "hostPaths", "platform", "psa", "psp", "nfd", "extraObjects"),
    *("node-feature-discovery", "clusterPolicy", "gpuCluster", "draDriver", "replicaCount"),
    *("imagePullSecrets", "dcgmPodExporter"),
)
_OLD: Final = re.compile(r"v0\.(\d|1[0-7])\.")
"""Releases of their plugin in operators before v25.10, where CDI was beside other strategies."""
_RUNTIME: Final = "nvidia"
"""Their runtime class, which the component gpu-driver-container sets."""


class Policy:
    """A ClusterPolicy, or the values from which the operator's chart makes one."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.top: tuple[str, ...] = ("spec",) if workload.kind else ()

    def has(self, *path: str) -> Any:
        """Return a value, or None."""
        found = self.workload.has(*self.top, *path)
        return found.value if found else None

    def is_on(self, *path: str, default: bool = True) -> bool:
        """Return a switch, which may be a string as in values that a tool has written."""
        found = self.has(*path)
        return default if found is None else str(found).lower() == "true"

    def setting(self, value: Any, *path: str) -> Setting:
        """Return a value that the operator gives the plugin because of what is at ``path``."""
        return Setting(f"{self.workload.place}: {'.'.join((*self.top, *path))}", value)

    def settings(self, result: Migration) -> Iterator[tuple[str, Setting]]:
        """Yield our settings, and account for the rest; raise ``ConfigError``."""
        if not self.is_on(_PLUGIN, "enabled") or not self.is_on("clusterPolicy", "deployCR"):
            raise dp.ConfigError(
                f"{self.workload.place}: {_PLUGIN}.enabled: false: the operator runs no device "
                "plugin; deploy ours as plugins/gpu/README.md says"
            )
        yield from self._of_operands(result)
        if root := self.has(_PLUGIN, "mps", "root"):
            yield "mps-root", self.setting(root, _PLUGIN, "mps", "root")
        yield from _settings.of_container(self._container(), result)
        result.stop += self._stop()
        self._note(result)

    def _of_operands(self, result: Migration) -> Iterator[tuple[str, Setting]]:
        strategy = self.has("mig", "strategy")
        if strategy is None and not self.workload.kind:
            strategy = "single"  # the default of the chart
        if strategy:
            yield "mig-strategy", self.setting(strategy, "mig", "strategy")
        yield "pass-device-specs", self.setting(value=True)
        yield from self._cdi(result)
        for operand, names in (("gds", ("gds", "mofed")), ("gdrcopy", ("gdrcopy",))):
            for name in names if self.is_on(operand, "enabled", default=False) else ():
                yield f"{name}-enabled", self.setting(value=True)
        yield "driver-root", self.setting(self._driver_root(), "hostPaths", "driverInstallDir")

    def _cdi(self, result: Migration) -> Iterator[tuple[str, Setting]]:
        version = self.has(_PLUGIN, "version")
        is_old = bool(_OLD.match(str(version)))
        if version is None and self.has("cdi", "enabled") is None:
            result.differs(
                "cdi.enabled",
                "taken as true, which it is since GPU operator v25.10: give it if yours is older",
            )
        if not self.is_on("cdi", "enabled", default=not is_old):
            return
        strategies = "envvar,cdi-annotations" if is_old else "cdi-annotations,cdi-cri"
        yield "device-list-strategy", self.setting(strategies, "cdi", "enabled")
        if is_old:
            prefix = "nvidia.cdi.k8s.io/"
            yield "cdi-annotation-prefix", self.setting(prefix, "cdi", "enabled")
        if self.is_on("toolkit", "enabled"):
            installed = str(self.has("toolkit", "installDir") or _INSTALLED).rstrip("/")
            hook = f"{installed}/toolkit/nvidia-cdi-hook"
            yield "nvidia-cdi-hook-path", self.setting(hook, "toolkit", "installDir")

    def _driver_root(self) -> str:
        installed = str(self.has("hostPaths", "driverInstallDir") or DRIVER)
        is_ours = self.is_on("driver", "enabled") or installed.rstrip("/") != DRIVER
        return installed if is_ours else "/"

    def _container(self) -> Workload:
        """Return the container that the operator makes of ``devicePlugin``."""
        place, path = f"{self.workload.place}: {_PLUGIN}", (*self.top, _PLUGIN)
        given, arguments = self.has(_PLUGIN, "env") or [], self.has(_PLUGIN, "args") or []
        for key, value, kind in (("env", given, Mapping), ("args", arguments, str)):
            if not isinstance(value, list) or not all(isinstance(one, kind) for one in value):
                raise Setting(f"{place}.{key}", value).wrong("a list, as of a container")
        variables = {
            str(one.get("name")): Setting(
                f"{place}.env: {one.get('name')}",
                "" if one.get("value") is None else str(one.get("value")),
                (*self.workload.root, *path, "env", index),
            )
            for index, one in enumerate(given)
            if one.get("valueFrom") is None
        }
        root = (*self.workload.root, *path)
        self.workload.account.take((*root, "args"))
        return replace(
            self.workload, place=place, arguments=arguments, variables=variables, root=root
        )

    def _stop(self) -> list[str]:
        if not self.workload.kind:
            upgrade = "helm upgrade RELEASE nvidia/gpu-operator"
            return [f"{upgrade} --reuse-values --set {_PLUGIN}.enabled=false"]
        name = self.workload.has("metadata", "name")
        return stop(str(name.value) if name else "cluster-policy")

    def note_pod(self, result: Migration) -> None:
        """Say what else our pod needs beside the operator."""
        result.components.append("gpu-operator")
        name = str(self.has("operator", "runtimeClass") or _RUNTIME)
        if self.is_on("cdi", "nriPluginEnabled", default=False):
            result.differs(
                "runtimeClassName",
                "none there, because of cdi.nriPluginEnabled: set it to null by a patch, and add "
                "the component gpu-privileged",
            )
        elif name != _RUNTIME or "gpu-driver-container" not in result.components:
            result.differs(
                "runtimeClassName",
                f"{name}, which the operator makes: set it by a patch if NVIDIA's runtime is not "
                "the default one of the nodes",
            )

    def _note(self, result: Migration) -> None:
        drop, top = self.workload.drop, self.top
        for key in _IMAGE:
            self.workload.key(*top, _PLUGIN, key)
        self.workload.key(*top, _PLUGIN, "mps", "root")
        for path, why in _DROPPED.items():
            drop(why, *top, *path)
        kept = [key for key in _STAYS if self.workload.key(*top, key)]
        if kept:
            result.differs(
                ", ".join(kept), f"stay with the operator: only {_PLUGIN}.enabled=false is changed"
            )
        if self.workload.kind:
            self.workload.key("status")

    def files(self) -> Files:
        """Return the files of ``devicePlugin.config``, and the one for nodes without a label."""
        path = (*self.top, _PLUGIN, "config")
        name, data = self.workload.key(*path, "name"), self.workload.key(*path, "data")
        default = self.workload.key(*path, "default")
        self.workload.key(*path, "create")
        if not name or not name.value:
            if any(self.has(_PLUGIN, "config", key) for key in ("data", "default")):
                config = Setting(f"{self.workload.place}: {'.'.join(path)}.name", "")
                raise config.wrong("a ConfigMap: without it the operator ignores config")
            return Files()
        if data and data.value:
            texts = mapping(data)
        elif file := apart(self.workload):
            return file
        else:
            texts = named(self.workload, name)
        return chosen(texts, default, ["empty"], f"{self.workload.place}: {'.'.join(path)}.default")


def stop(policy: str) -> list[str]:
    """Return the command that has the operator stop its device plugin."""
    patch = '{"spec":{"devicePlugin":{"enabled":false}}}'
    name = shlex.quote(f"clusterpolicy/{policy}")
    return [f"kubectl patch {name} --type merge --patch '{patch}'"]


def owner(metadata: Any) -> str:
    """Return the name of the ClusterPolicy that owns an object; empty if none does."""
    owners = metadata.get("ownerReferences") if isinstance(metadata, Mapping) else None
    for one in owners if isinstance(owners, list) else []:
        if isinstance(one, Mapping) and one.get("kind") == "ClusterPolicy":
            return str(one.get("name"))
    return ""


def mounted(workload: Workload, path: str) -> str:
    """Return what of the host a container has at a path; empty if there is nothing."""
    account, pod = workload.account, workload.root[:-2]
    mounts, volumes = (
        [one for one in account.get(at) or [] if isinstance(one, Mapping)]
        for at in ((*workload.root, "volumeMounts"), (*pod, "volumes"))
    )
    names = [one.get("name") for one in mounts if one.get("mountPath") == path]
    hosts = [one.get("hostPath") for one in volumes if one.get("name") in names]
    return str(hosts[0].get("path") or "") if hosts and isinstance(hosts[0], Mapping) else ""
