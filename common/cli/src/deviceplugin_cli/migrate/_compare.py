"""What is kept of a peer's pod, and what is different."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final

from deviceplugin.errors import ConfigError
from deviceplugin.kit.migration import Account, Migration, Path
from deviceplugin_cli.migrate import _meaning
from deviceplugin_cli.migrate._chart_keys import CHART, OF_CHARTS
from deviceplugin_cli.migrate._containers import Found
from deviceplugin_cli.migrate._documents import items, mapping
from deviceplugin_cli.migrate._environment import drop_harmless, origin, referred
from deviceplugin_cli.migrate._fields import FIELDS, known
from deviceplugin_cli.migrate._meaning import KEPT, Meaning, Place

PLUGIN_DIRECTORY: Final = "/var/lib/kubelet/device-plugins"
_POD_RESOURCES: Final = "/var/lib/kubelet/pod-resources"
_OURS: Final = {PLUGIN_DIRECTORY: "device-plugins", _POD_RESOURCES: "pod-resources"}
"""Our volumes, by where they are mounted."""


@dataclass
class Comparison:
    """Patches that keep what a peer's pod has, and differences in words."""

    pod: dict[str, Any] = field(default_factory=dict)
    """Fields of the pod's specification to patch."""
    container: dict[str, Any] = field(default_factory=dict)
    """Fields of our container to patch; ``env`` has variables with values from elsewhere."""
    spec: dict[str, Any] = field(default_factory=dict)
    """Fields of the DaemonSet's specification to patch, without its template."""
    metadata: dict[str, Any] = field(default_factory=dict)
    """``labels`` and ``annotations`` of the pods to patch."""
    volumes: list[dict[str, Any]] = field(default_factory=list)
    """Volumes to patch, by name."""
    differences: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Made:
    """A peer that was found, and all that becomes of it."""

    found: Found
    migration: Migration
    comparison: Comparison


def compare(found: Found, migration: Migration) -> Comparison:
    """Return what is kept of a peer's pod, and what is different.

    Raises:
        ConfigError: A value is of a type that the API server refuses, or our configuration would
            have a value that is not in the input.
    """
    result = Comparison()
    reading = _Reading(found, migration, result)
    if found.workload.values is None:
        reading.daemon_set()
        result.differences += _absent(found, migration)
        for name, path in _moved(found):
            result.volumes.append({"name": name, "hostPath": {"path": path}})
            result.differences.append(f"host path {path}: {KEPT}, for the volume {name}")
    else:
        if found.document.kind:
            reading.object_metadata()
        if not found.workload.kind:
            reading.chart()
            result.differences += _absent(found, migration)
    reading.others(migration.pod)
    drop_harmless(found.workload)
    result.container |= _references(found, migration, result)
    return result


class _Reading:
    """Goes through the keys of a DaemonSet, or of Helm values that become those of one."""

    def __init__(self, found: Found, migration: Migration, result: Comparison) -> None:
        self._found = found
        self._migration = migration
        self._result = result
        self._account = found.workload.account
        patches = {
            "ObjectMeta": (_meaning.TEMPLATE, result.metadata),
            "DaemonSetSpec": (_meaning.SPEC, result.spec),
            "PodSpec": (_meaning.POD, result.pod),
            "Container": (_meaning.CONTAINER, result.container),
        }
        self._tables: Mapping[str, tuple[Mapping[str, Meaning], dict[str, Any]]] = patches

    def object_metadata(self) -> None:
        """Account for the metadata of the document."""
        number = self._found.document.number
        place = f"{self._found.document.place}: metadata"
        content = known(self._account, (number, "metadata"), ":ObjectMeta", place)
        self._all((number, "metadata"), content or {}, _meaning.METADATA, {})
        for key in ("apiVersion", "kind", "status"):
            self._account.take((number, key))

    def daemon_set(self) -> None:
        """Account for all that the DaemonSet has, but for what only its plugin understands."""
        self.object_metadata()
        number, place = self._found.document.number, self._found.document.place
        content = known(self._account, (number,), ":DaemonSet", place)
        spec: Mapping[str, Any] = content["spec"]
        template, root = mapping(spec, "template"), self._found.workload.root
        pod = mapping(template, "spec")
        self._all((number, "spec"), spec, *self._tables["DaemonSetSpec"])
        path: Path = (number, "spec", "template", "metadata")
        self._all(path, mapping(template, "metadata"), *self._tables["ObjectMeta"])
        self._all(self._found.pod_path, pod, *self._tables["PodSpec"])
        self._all(root, pod["containers"][root[-1]], *self._tables["Container"])

    def chart(self) -> None:
        """Account for the usual keys of charts."""
        start = self._found.pod_path
        others = self._migration.pod
        for name, (kind, field_name) in CHART.items():
            path = (*start, *name.split("."))
            if name in others:
                self._account.take(path)
                continue
            place = f"{self._found.workload.place}: {name}"
            content = known(self._account, path, FIELDS[kind][field_name], place)
            if content is not None:
                table, patch = self._tables[kind]
                self._one(path, field_name, content, table, patch)
        for name, why in OF_CHARTS.items():
            self._account.drop((*start, name), why)

    def others(self, fields: Mapping[str, Any]) -> None:
        """Take over fields of the pod that the plugin has found elsewhere in the input."""
        apart, place = Account([("", fields)]), self._found.workload.place
        for key in fields:
            content = known(apart, (0, key), FIELDS["PodSpec"][key], f"{place}: {key}")
            if not content:
                continue
            if key == "volumes":
                self._result.volumes += content
                words = [
                    f"host path {one['hostPath']['path']}: {KEPT}, for the volume {one['name']}"
                    for one in content
                ]
            else:
                where = Place(self._found, self._migration, key)
                words = [f"{key}: {_meaning.POD[key].of(content, where)}"]
            self._result.differences += [one for one in words if not one.endswith(": ")]
            if words[0].startswith(f"{key}: {KEPT}"):
                self._result.pod[key] = content

    def _all(
        self,
        path: Path,
        content: Mapping[str, Any],
        table: Mapping[str, Meaning],
        patch: dict[str, Any],
        above: str = "",
    ) -> None:
        for key, one in content.items():
            self._one((*path, key), f"{above}{key}", one, table, patch)

    def _one(
        self,
        path: Path,
        name: str,
        content: Any,
        table: Mapping[str, Meaning],
        patch: dict[str, Any],
    ) -> None:
        """Account for the field ``name`` of a table, which is at ``path``."""
        if content is None or content in ({}, []) or name in _meaning.ELSEWHERE:
            return
        meaning = table.get(name) or _by_pattern(table, name)
        if meaning is None:
            if isinstance(content, list):
                content = dict(enumerate(content))
            inside = content if isinstance(content, Mapping) else {}
            self._all(path, inside, table, patch, f"{name}.")
            return
        words = meaning.of(content, Place(self._found, self._migration, str(path[-1])))
        if not words:
            self._account.take(path)
            return
        self._account.drop(path, words)
        if words.startswith(KEPT):
            # Names of labels have dots.
            *above, key = name.split(".", 1 if table is _meaning.TEMPLATE else -1)
            for one in above:
                patch = patch.setdefault(one, {})
            patch[key] = content


def _by_pattern(table: Mapping[str, Meaning], name: str) -> Meaning | None:
    found = (one for key, one in table.items() if key.endswith("*") and fnmatchcase(name, key))
    return next(found, None)


def _absent(found: Found, migration: Migration) -> Iterator[str]:
    """Yield what ours has where a peer has nothing."""
    if not found.pod.get("tolerations") and not migration.pod.get("tolerations"):
        yield (
            "tolerations: none; ours tolerates all taints, so it also runs on nodes that are "
            "tainted with others: use a nodeSelector to keep it off"
        )
    if found.workload.values is None and not found.pod.get("priorityClassName"):
        yield "priorityClassName: none; ours is system-node-critical"


def _references(found: Found, migration: Migration, result: Comparison) -> dict[str, Any]:
    """Return the variables that ours refer to, whose values are not in the input."""
    workload = found.workload
    written = [*_strings([migration.configuration, migration.profiles, migration.config_maps])]
    for text in [*written, *migration.mounts.values()]:
        for name, given in referred(workload, text):
            raise ConfigError(
                f"{given.place}: its value is in {origin(given)}, which is not read, and our "
                f"configuration would need it: write it as the value of {name}"
            )
    needed = dict(one for text in migration.variables.values() for one in referred(workload, text))
    for name, given in needed.items():
        result.differences.append(
            f"variable {name}: stays a reference to {origin(given)}, which has to be in our "
            "namespace"
        )
    env = [{"name": name, "valueFrom": given.value} for name, given in needed.items()]
    return {"env": env} if env else {}


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        value = [*value.keys(), *value.values()]
    if isinstance(value, list | tuple):
        for one in value:
            yield from _strings(one)
    else:
        yield str(value)


def _moved(found: Found) -> Iterator[tuple[str, str]]:
    """Yield our volumes whose host paths are elsewhere, as for a kubelet with another root."""
    place = found.workload.place
    volumes = {str(one.get("name")): one for one in items(found.pod, place, "volumes")}
    for mount in items(found.container, place, "volumeMounts"):
        path = str(mount.get("mountPath", "")).rstrip("/")
        host = mapping(volumes.get(str(mount.get("name")), {}), "hostPath").get("path")
        host = str(host or "")
        if path in _OURS and host.rstrip("/") not in {"", path}:
            yield _OURS[path], host
