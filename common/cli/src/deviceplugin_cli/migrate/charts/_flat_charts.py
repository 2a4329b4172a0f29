"""Values of charts with the image at their top: of single peers, and of the older app-template."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from deviceplugin.errors import ConfigError
from deviceplugin.kit.migration import Path, Setting
from deviceplugin_cli.migrate._containers import Found, split_image
from deviceplugin_cli.migrate.charts._app_template import (
    CONTAINER_FIELDS,
    POD_OPTIONS,
    config_maps,
    env_from,
    others,
    single_volumes,
    texts,
)
from deviceplugin_cli.migrate.charts._rendering import (
    NOT_TAKEN,
    POD,
    Rendering,
    Values,
    as_text,
    written,
)

_CONTAINER: Final = (*POD, "containers", 0)


@dataclass(frozen=True)
class _Peer:
    """How charts configure a peer."""

    image: str
    file: str
    """Where they mount its configuration."""
    arguments: tuple[str, ...]


_GENERIC: Final = "generic-device-plugin"
_SMARTER: Final = "smarter-device-manager"
_PEERS: Final = {
    _GENERIC: _Peer(
        "ghcr.io/squat/generic-device-plugin",
        "/config/config.yaml",
        ("--config=/config/config.yaml",),
    ),
    _SMARTER: _Peer("ghcr.io/smarter-project/smarter-device-manager", "/root/config/conf.yaml", ()),
}
"""By the last part of the image's name, which is also that of the charts."""
_MARKS: Final = {
    _SMARTER: (("config",), re.compile(r"""(^|\n)\s*-\s+devicematch:|^\[\{.*"devicematch":""")),
    _GENERIC: (("config", "data"), re.compile(r"(^|\n)devices:\s*\n(.*\n)*\s+(-\s+)?groups:")),
}
"""By the same names, what no other chart has in its configuration, and where."""
_DOMAINS: Final = {
    "gabe565": "squat.ai",
    "alexlebens": "devic.es",
    "k8s-at-our-homes": "device.local",
}
"""The domain of a chart whose values have none, by a part of the repository's address."""
_DOMAIN_GIVEN: Final = re.compile(r"(^|\n)\s*[\"']?domain[\"']?\s*[:=]|--domain")
_DOMAIN_KEYS: Final = ("deviceDomain", "domain")
_NOT_TAKEN: Final = (
    *("labels", "annotations", "revisionHistoryLimit"),
    *("deployPodMonitor", "updateStrategy", "strategy", "application", "name", "enabled"),
    *("initContainers", "sidecars", "rbac", "serviceAccountName", "additionalContainers"),
)
_CONTROLLER: Final = ("labels", "annotations", "replicas", "strategy", "rollingUpdate")
_PROBES: Final = ("startupProbe", "livenessProbe", "readinessProbe")
_CRITICAL: Final = "system-node-critical"
"""The priority that these charts give their pods."""
_LABEL: Final = {"smarter-device-manager": "enabled"}
"""The nodes on which the chart of smarter-device-manager runs, if its values do not say so."""


def is_flat(values: Values) -> bool:
    """Return whether values are of a peer's own chart, or of an older app-template."""
    keys = values.see()
    old = {"controller", "controllerType"} & {*(keys if isinstance(keys, Mapping) else ())}
    return _peer(values) is not None or bool(old and image_of(values)[0])


def image_of(values: Values) -> tuple[str, str]:
    """Return name and tag of the image at the top of the values; empty if there is none."""
    given = values.see("image")
    image = given if isinstance(given, Mapping) else {"repository": given}
    name, tag = split_image(written(image.get("repository")))
    return name, written(image.get("tag") or tag)


def _peer(values: Values) -> _Peer | None:
    """Return whose chart it is: its image or its name says so, or what only its file has."""
    marked = (name for name, (at, mark) in _MARKS.items() if mark.search(as_text(values.see(*at))))
    named = image_of(values)[0] or values.chart or next(marked, "")
    return _PEERS.get(named.rpartition("/")[2])


def of_flat(values: Values, configuration: str | None) -> Iterator[Found]:
    """Yield the container that a chart makes; raise ``ConfigError``."""
    made, peer = Rendering(values, values.release.name), _peer(values)
    others(values)
    for key in _NOT_TAKEN:
        values.drop(NOT_TAKEN, key)
    for key in ("type", "enabled"):
        values.take("controller", key)
    values.take("controllerType")
    for key in _CONTROLLER:
        values.drop(NOT_TAKEN, "controller", key)
    made.put((*_CONTAINER, "name"), "main")
    made.image((*_CONTAINER, "image"), ("image",), peer.image if peer else "")
    _fields(made)
    names = config_maps(values)
    single_volumes(made, names)
    if peer:
        _configure(made, peer, configuration)
    yield from made.containers(configuration, "")


def _fields(made: Rendering) -> None:
    for key in POD_OPTIONS:
        other = "podSecurityContext" if key == "securityContext" else key
        if key != "resources":
            made.copy((*POD, key), (other,))
    for key, name in (("podLabels", "labels"), ("podAnnotations", "annotations")):
        made.copy((*POD[:-1], "metadata", name), (key,))
    for key in ("resources", "securityContext", *CONTAINER_FIELDS, *_PROBES):
        if key != "restartPolicy":
            made.copy((*_CONTAINER, key), (key,))
    for key, name in (("messagePath", "Path"), ("messagePolicy", "Policy")):
        made.copy((*_CONTAINER, f"terminationMessage{name}"), ("termination", key))
    for key in ("command", "args"):
        texts(made, (*_CONTAINER, key), (key,))
    made.environment((*_CONTAINER, "env"), ("env",))
    env_from(made, (*_CONTAINER, "envFrom"), ("envFrom",))
    made.probes(_CONTAINER, ("probes",))


def _configure(made: Rendering, peer: _Peer, configuration: str | None) -> None:
    """Add the file and the arguments that a chart makes of further values."""
    values = made.values
    made.put((*POD, "priorityClassName"), values.see("priorityClassName") or _CRITICAL)
    values.take("priorityClassName")
    settings = [
        (flag, key)
        for flag, keys in (("domain", _DOMAIN_KEYS), ("log-level", ("logLevel",)))
        for key in keys
        if values.see(key)
    ]
    files = dict(_files(values, peer))
    given = values.listed("args")
    if not (files or given or configuration):
        raise ConfigError(
            f"{values.place}: has no devices, so those of the chart apply, which are not in the "
            f"values: {values.release.rendered} | deviceplugin migrate -"
        )
    arguments = [*(given or (peer.arguments if files else ()))]
    arguments += [f"--{flag}={values.see(key)}" for flag, key in settings]
    made.put((*_CONTAINER, "args"), [str(one) for one in arguments], ("args",))
    for _, key in settings:
        values.take(key)
    where, text = next(iter(files.items()), (("args",), ""))
    if files:
        _mount(made, peer, where, text)
    if peer is _PEERS[_SMARTER] and isinstance(values.see(*where), list):
        made.put((*POD, "nodeSelector"), values.see("nodeSelector") or _LABEL, ("nodeSelector",))
    if peer is _PEERS[_GENERIC] and not any(flag == "domain" for flag, _ in settings):
        _default_domain(made, where, text)


def _files(values: Values, peer: _Peer) -> Iterator[tuple[Path, str]]:
    """Yield the configuration, and where it stands in the values."""
    given = values.see("config")
    if isinstance(given, Mapping) and not {"enabled", "data"}.isdisjoint(given):
        if values.is_enabled("config") and (data := given.get("data")):
            yield ("config", "data"), as_text(data)
    elif given:
        yield ("config",), as_text(given)
    if devices := values.see("devices"):
        if not isinstance(devices, list):
            place = f"{values.place}: {values.name('devices')}"
            raise Setting(place, devices).wrong("a list of devices")
        yield ("devices",), as_text({"devices": devices} if peer is _PEERS[_GENERIC] else devices)


def _mount(made: Rendering, peer: _Peer, where: Path, text: str) -> None:
    folder, _, file = peer.file.rpartition("/")
    name = f"{made.values.release.name}-{where[0]}"
    made.config_map(name, {file: (text, where)})
    pod = made.content["spec"]["template"]["spec"]
    volumes, mounts = (
        len(one.get(key, ()))
        for one, key in ((pod, "volumes"), (pod["containers"][0], "volumeMounts"))
    )
    made.put((*POD, "volumes", volumes, "name"), "configuration-of-chart")
    made.put((*POD, "volumes", volumes, "configMap", "name"), name)
    made.put((*_CONTAINER, "volumeMounts", mounts, "name"), "configuration-of-chart")
    made.put((*_CONTAINER, "volumeMounts", mounts, "mountPath"), folder)


def _default_domain(made: Rendering, where: Path, text: str) -> None:
    """Add the domain that a chart has if its values have none; refuse what cannot be known."""
    values = made.values
    env = made.content["spec"]["template"]["spec"]["containers"][0].get("env", [])
    given = [str(one) for one in values.listed("args")]
    known = any(one.get("name") == "DOMAIN" for one in env)
    if known or any(_DOMAIN_GIVEN.search(one) for one in (text, *given)):
        return
    part = next((one for one in _DOMAINS if one in values.repository), None)
    if part:
        made.put((*_CONTAINER, "env", len(env), "name"), "DOMAIN")
        made.put((*_CONTAINER, "env", len(env), "value"), _DOMAINS[part])
    elif where != ("args",) or values.chart == _GENERIC:
        values.source.account.refuse(
            (*values.root, *where),
            "the domain of these resources is that of the chart's own values.yaml, which are not "
            "here: write it as env.DOMAIN, or as domain into the file; or add the HelmRepository "
            "or OCIRepository of the chart",
        )
