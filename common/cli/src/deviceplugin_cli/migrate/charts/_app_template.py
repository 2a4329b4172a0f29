"""Values of the chart app-template, and of others on the library chart that it is made with."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from deviceplugin.kit.migration import Path, Setting
from deviceplugin_cli.migrate._containers import Found
from deviceplugin_cli.migrate.charts._rendering import NOT_TAKEN, POD, Rendering, Values, written

POD_OPTIONS: Final = (
    *("affinity", "automountServiceAccountToken", "dnsConfig", "dnsPolicy", "enableServiceLinks"),
    *("hostAliases", "hostIPC", "hostNetwork", "hostPID", "hostUsers", "hostname"),
    *("imagePullSecrets", "nodeSelector", "priorityClassName", "resources", "restartPolicy"),
    *("runtimeClassName", "schedulerName", "securityContext", "shareProcessNamespace"),
    *("terminationGracePeriodSeconds", "tolerations", "topologySpreadConstraints"),
)
"""Fields of a pod that have the same names in the values."""
CONTAINER_FIELDS: Final = (
    *("lifecycle", "ports", "restartPolicy", "stdin", "terminationMessagePath"),
    *("terminationMessagePolicy", "tty", "workingDir"),
)
_WITH_DEFAULTS: Final = ("resources", "securityContext")
OTHERS: Final = {
    "service": "not taken over; metrics are those of the component monitoring",
    "serviceMonitor": "not taken over; the component monitoring has one",
    **dict.fromkeys(
        (
            *("global", "serviceAccount", "secrets", "ingress", "route", "networkpolicies"),
            *("rawResources", "rbac", "configMapsFromFolder", "podMonitor"),
            *("nameOverride", "fullnameOverride", "namespaceOverride"),
        ),
        NOT_TAKEN,
    ),
}
"""Values that are not about the pod, and why they are not taken over."""
_OF_CONTROLLER: Final = ("labels", "annotations", "replicas", "revisionHistoryLimit")
_NAMES: Final = ("forceRename", "prefix", "suffix", "nameOverride", "serviceAccount")
_HOST: Final = "hostPath"
_VOLUME_KEYS: Final = {
    "configMap": ("items", "defaultMode"),
    "secret": ("items", "defaultMode"),
    _HOST: (),
    "emptyDir": ("medium", "sizeLimit"),
    "nfs": ("server", "path"),
}
_MOUNT_KEYS: Final = ("subPath", "subPathExpr", "readOnly", "mountPropagation")


def is_app_template(values: Values) -> bool:
    """Return whether values have controllers with containers."""
    found = values.see("controllers")
    each = found.values() if isinstance(found, Mapping) else ()
    return any(isinstance(one, Mapping) and "containers" in one for one in each)


def of_app_template(values: Values, configuration: str | None) -> Iterator[Found]:
    """Yield the containers of all controllers; raise ``ConfigError``."""
    others(values)
    names = config_maps(values)
    controllers = [
        name for name in values.mapping("controllers") if _is_pod(values, "controllers", name)
    ]
    release = values.release.name
    for name in controllers:
        full = release if len(controllers) == 1 or name == release else f"{release}-{name}"
        made = Rendering(values, full, ("controllers", name))
        _controller(made, name)
        path: Path = ("controllers", name, "containers")
        each = [one for one in values.mapping(*path) if _is_pod(values, *path, one)]
        for index, container in enumerate(each):
            _container(made, index, name, container)
        _volumes(made, names, [(name, one) for one in each])
        places = [values.name(*path, one) for one in each]
        yield from made.containers(configuration, *places)


def others(values: Values) -> None:
    """Account for values that are not about the pod."""
    for key, why in OTHERS.items():
        if _all_disabled(values.see(key)):
            values.take(key)
        values.drop(why, key)


def _all_disabled(given: Any) -> bool:
    each = given.values() if isinstance(given, Mapping) else ()
    return bool(each) and all(isinstance(one, Mapping) and _is_off(one) for one in each)


def _is_off(given: Mapping[str, Any]) -> bool:
    return given.get("enabled") in (False, "false")


def _is_pod(values: Values, *path: str | int) -> bool:
    """Return whether a controller or a container is enabled; what is not is nobody's wish."""
    if not isinstance(values.see(*path), Mapping):
        return False
    if not values.is_enabled(*path):
        values.take(*path)
        return False
    return True


def _controller(made: Rendering, name: str) -> None:
    values, path = made.values, ("controllers", name)
    kind = values.see(*path, "type") or "deployment"
    values.take(*path, "type")
    if kind != "daemonset":
        values.drop(f"{kind}; ours is a DaemonSet, and runs on each node", *path, "type")
        values.source.account.refuse(
            (*values.root, *path, "type"),
            f"{kind} runs on some nodes only: make it a daemonset, or use --partial and a "
            "nodeSelector",
        )
    strategy = ("spec", "updateStrategy")
    made.copy((*strategy, "type"), (*path, "strategy"))
    for key, field in (("unavailable", "maxUnavailable"), ("surge", "maxSurge")):
        made.copy((*strategy, "rollingUpdate", field), (*path, "rollingUpdate", key))
    for key in (*_OF_CONTROLLER, *_NAMES, "initContainers"):
        values.drop(NOT_TAKEN, *path, key)
    merges = values.see("defaultPodOptionsStrategy") == "merge"
    values.take("defaultPodOptionsStrategy")
    for key in POD_OPTIONS:
        ways: list[Path] = [(*path, "pod", key), ("defaultPodOptions", key)]
        own, default = (values.see(*one) for one in ways)
        if merges and isinstance(own, Mapping) and isinstance(default, Mapping):
            made.put((*POD, key), {**default, **own}, *ways)
        else:
            made.copy((*POD, key), *ways)
    for key in ("labels", "annotations"):
        made.copy((*POD[:-1], "metadata", key), (*path, "pod", key), ("defaultPodOptions", key))


def _container(made: Rendering, index: int, controller: str, name: str) -> None:
    values = made.values
    target = (*POD, "containers", index)
    path: Path = ("controllers", controller, "containers", name)
    defaults: Path = ("controllers", controller, "defaultContainerOptions")
    values.take(*defaults[:-1], "defaultContainerOptionsStrategy")
    values.take(*defaults[:-1], "applyDefaultContainerOptionsToInitContainers")
    made.put((*target, "name"), values.see(*path, "nameOverride") or name, (*path, "nameOverride"))
    values.drop(NOT_TAKEN, *path, "dependsOn")
    has_image = values.see(*path, "image") or not values.see(*defaults, "image")
    made.image((*target, "image"), (*path, "image") if has_image else (*defaults, "image"))
    for key in ("command", "args"):
        where = next((one for one in (path, defaults) if values.see(*one, key)), path)
        texts(made, (*target, key), (*where, key))
    for key in _WITH_DEFAULTS:
        made.copy((*target, key), (*path, key), (*defaults, key))
    for key in CONTAINER_FIELDS:
        made.copy((*target, key), (*path, key))
    for key in ("env", "envFrom"):
        where = next((one for one in (path, defaults) if values.see(*one, key)), path)
        if key == "env":
            made.environment((*target, key), (*where, key))
        else:
            env_from(made, (*target, key), (*where, key))
    made.probes(target, (*path, "probes"))


def texts(made: Rendering, target: Path, path: Path) -> None:
    """Set a list of strings, which may be one string."""
    found = [written(one) for one in made.values.listed(*path)]
    made.put(target, found, path)


def env_from(made: Rendering, target: Path, path: Path) -> None:
    """Set what variables are taken from."""
    values = made.values
    for index, one in enumerate(values.listed(*path)):
        here: Path = (*path, index)
        given = values.mapping(*here)
        for kind in ("configMap", "secret"):
            ref = (*target, index, f"{kind}Ref")
            made.put((*ref, "name"), given.get(kind), (*here, kind))
            for key in ("name", "optional"):
                made.copy((*ref, key), (*here, f"{kind}Ref", key))
            identifier = values.mapping(*here, f"{kind}Ref").get("identifier")
            made.put((*ref, "name"), identifier, (*here, f"{kind}Ref", "identifier"))
        made.put((*target, index, "prefix"), one.get("prefix"), (*here, "prefix"))


def config_maps(values: Values) -> dict[str, str]:
    """Add the ConfigMaps of the values, and return their names by how the values call them."""
    found: dict[str, str] = {}
    release = values.release.name
    for key in ("configMaps", "configmap"):
        for identifier in values.mapping(key):
            path: Path = (key, identifier)
            if not _is_pod(values, *path):
                continue
            for one in ("labels", "annotations", "includeInChecksum", *_NAMES, "binaryData"):
                values.drop(NOT_TAKEN, *path, one)
            data = {
                str(name): (values.filled(text, *path, "data", name), (*path, "data", name))
                for name, text in values.mapping(*path, "data").items()
            }
            name = f"{release}-{identifier}"
            Rendering(values, name).config_map(name, data)
            found |= dict.fromkeys((identifier, name), name)
    if len({*found.values()}) == 1:
        found.setdefault(release, next(iter(found.values())))
    return found


def _volumes(made: Rendering, names: Mapping[str, str], each: list[tuple[str, str]]) -> None:
    """Set volumes and mounts of all containers, each as controller and container."""
    values, number = made.values, 0
    for identifier in values.mapping("persistence"):
        path: Path = ("persistence", identifier)
        if not _is_pod(values, *path):
            continue
        mounts = {index: _mounts(values, path, *container) for index, container in enumerate(each)}
        if not any(mounts.values()):
            continue
        volume(made, number, identifier, names)
        number += 1
        for index, found in mounts.items():
            for one in found:
                _mount(made, (*POD, "containers", index), identifier, one)


def single_volumes(made: Rendering, names: Mapping[str, str]) -> None:
    """Set volumes and mounts of the only container, as older charts have them."""
    _volumes(made, names, [("main", "main")])


def _mounts(values: Values, path: Path, controller: str, container: str) -> list[Path]:
    """Return where the mounts of a volume in a container are written."""
    plain: Path = (*path, "globalMounts")
    advanced: Path = (*path, "advancedMounts", controller, container)
    if not values.see(*plain) and not values.see(*path, "advancedMounts"):
        return [path]
    return [
        (*one, index) for one in (plain, advanced) for index, _ in enumerate(values.listed(*one))
    ]


def _mount(made: Rendering, container: Path, identifier: str, path: Path) -> None:
    """Set a mount, with its path at ``path`` or at the key ``mountPath`` there, as it was once."""
    values = made.values
    where = next((one for one in ("path", "mountPath") if values.see(*path, one)), "path")
    volume_path: Path = ("persistence", identifier)
    if path == volume_path:
        where = "mountPath"
    default = values.see(*volume_path, _HOST) or f"/{identifier}"
    mounted = values.see(*path, where) or default
    if mounted == "-":
        values.take(*path, where)
        return
    found: Any = made.content
    for step in container:
        found = found[step]
    target: Path = (*container, "volumeMounts", len(found.get("volumeMounts", [])))
    made.put((*target, "name"), identifier)
    made.put((*target, "mountPath"), mounted, (*path, where))
    for key in _MOUNT_KEYS:
        made.copy((*target, key), (*path, key))


def volume(made: Rendering, index: int, identifier: str, names: Mapping[str, str]) -> None:
    """Set a volume."""
    values, path = made.values, ("persistence", identifier)
    kind = str(values.see(*path, "type") or ("hostPath" if values.see(*path, _HOST) else "pvc"))
    values.take(*path, "type")
    target = (*POD, "volumes", index)
    made.put((*target, "name"), identifier)
    if kind == "custom":
        made.copy((*target, *_spec(values, path)), (*path, "volumeSpec", *_spec(values, path)))
        return
    if kind not in _VOLUME_KEYS:
        values.drop(f"a volume of the type {kind}, which ours does not need", *path)
        return
    for key in _VOLUME_KEYS[kind]:
        made.copy((*target, kind, key), (*path, key))
    if kind == _HOST:
        made.copy((*target, kind, "path"), (*path, _HOST))
        made.copy((*target, kind, "type"), (*path, "hostPathType"))
    for key in ("identifier", "name") if kind in {"configMap", "secret"} else ():
        if given := values.see(*path, key):
            name = values.filled(given, *path, key)
            there = values.source.find("ConfigMap", name, values.release.namespace)
            name = name if there else names.get(name, name)
            field = "name" if kind == "configMap" else "secretName"
            made.put((*target, kind, field), name, (*path, key))


def _spec(values: Values, path: Path) -> Path:
    """Return the key of a volume that is written as in a pod."""
    found = values.mapping(*path, "volumeSpec")
    if len(found) != 1 or not all(isinstance(one, str) for one in found):
        raise Setting(f"{values.place}: {values.name(*path, 'volumeSpec')}", found).wrong(
            "one kind of volume"
        )
    return tuple(found)
