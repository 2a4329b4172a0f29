"""The DaemonSet and ConfigMaps that a chart makes of its values, with what each part came from."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from deviceplugin.kit.migration import Path, Setting
from deviceplugin_cli.migrate._accounts import made_of
from deviceplugin_cli.migrate._containers import Found, Release, of_daemon_set
from deviceplugin_cli.migrate._documents import Document, Input
from deviceplugin_cli.migrate.charts._layers import assign

POD: Final = ("spec", "template", "spec")
NOT_TAKEN: Final = "not taken over"
_TEMPLATE: Final = (
    "is a template of Helm, which cannot be read: write what it becomes, or render the chart"
)
_RELEASE: Final = ("{{ .Release.Name }}", "{{.Release.Name}}", "{{ $.Release.Name }}")
_PROBES: Final = {
    "startup": "startupProbe",
    "liveness": "livenessProbe",
    "readiness": "readinessProbe",
}
_REFERENCES: Final = ("configMapKeyRef", "secretKeyRef", "fieldRef", "resourceFieldRef")


@dataclass(frozen=True)
class Values:
    """The values of a chart, or of a part of it."""

    source: Input
    place: str
    """For messages: file, document and what wraps the values."""
    root: Path
    release: Release
    document: Document
    """The document that they are in, or that names them."""
    chart: str = ""
    """The name of the chart, if it is known."""
    repository: str = ""
    """Where the chart comes from, if it is known."""

    def see(self, *path: str | int) -> Any:
        """Return a value; None if it is absent."""
        return self.source.account.get((*self.root, *path))

    def mapping(self, *path: str | int) -> Mapping[str, Any]:
        """Return the mapping at a path; raise ``ConfigError`` if there is something else."""
        found = self.see(*path)
        if found is not None and not isinstance(found, Mapping):
            raise Setting(f"{self.place}: {self.name(*path)}", found).wrong("a mapping")
        return found or {}

    def listed(self, *path: str | int) -> list[Any]:
        """Return the list at a path, in which a scalar is one; raise ``ConfigError``."""
        found = self.see(*path)
        if isinstance(found, Mapping):
            raise Setting(f"{self.place}: {self.name(*path)}", found).wrong("a list")
        return found if isinstance(found, list) else [] if found is None else [found]

    def name(self, *path: str | int) -> str:
        """Return a path for messages."""
        return self.source.account.name((*self.root, *path))

    def take(self, *path: str | int) -> None:
        """Note that a value is taken over."""
        self.source.account.take((*self.root, *path))

    def drop(self, why: str, *path: str | int) -> None:
        """Note that a value is not taken over, and why."""
        self.source.account.drop((*self.root, *path), why)

    def is_enabled(self, *path: str | int) -> bool:
        """Return whether something is enabled, as it is if it does not say so."""
        self.take(*path, "enabled")
        return self.see(*path, "enabled") not in (False, "false")

    def filled(self, text: Any, *path: str | int) -> str:
        """Return a text in which templates are filled in. What is another template is refused."""
        result = written(text)
        for one in _RELEASE:
            result = result.replace(one, self.release.name)
        if "{{" in result:
            self.source.account.refuse((*self.root, *path), _TEMPLATE)
        return result


def written(value: Any) -> str:
    """Return a value of YAML as Helm writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)


def as_text(given: Any) -> str:
    """Return a file, which may be written as YAML in YAML, as a text that is YAML."""
    return given if isinstance(given, str) else json.dumps(given, ensure_ascii=False, default=str)


@dataclass
class Rendering:
    """A DaemonSet in the making."""

    values: Values
    name: str
    scope: Path = ()
    """The key of the values that is only about it; the whole values without one."""
    content: dict[str, Any] = field(default_factory=dict)
    origins: dict[Path, list[Path]] = field(default_factory=dict)

    def put(self, target: Path, value: Any, *origins: Path) -> None:
        """Set a field, which is made of the values at ``origins``; nothing if it is absent."""
        if value is None or value in ({}, [], ""):
            return
        assign(self.content, target, value)
        self.origins[target] = [(*self.values.root, *one) for one in origins]

    def copy(self, target: Path, *origins: Path) -> None:
        """Set a field to the first value that is there of those at ``origins``."""
        given = (self.values.see(*one) for one in origins)
        found = next((one for one in given if one is not None and one not in ({}, [], "")), None)
        self.put(target, found, *origins)

    def image(self, target: Path, path: Path, default: str = "") -> None:
        """Set the image of a container."""
        given = self.values.see(*path)
        if not isinstance(given, Mapping):
            self.put(target, given or default, path)
            return
        for key in ("registry", "repository", "tag", "digest", "pullPolicy"):
            self.values.take(*path, key)
        name = "/".join(str(given[key]) for key in ("registry", "repository") if given.get(key))
        name = name if given.get("repository") else default
        tag, digest = given.get("tag"), given.get("digest")
        image = f"{name}{f':{tag}' if tag else ''}{f'@{digest}' if digest else ''}"
        self.put(target, image)

    def environment(self, target: Path, path: Path) -> None:
        """Set the variables of a container, which are a mapping or a list."""
        given = self.values.see(*path)
        if isinstance(given, Mapping):
            pairs = [(str(name), one, (*path, name)) for name, one in given.items()]
        else:
            pairs = []
            for index, one in enumerate(self.values.listed(*path)):
                if not isinstance(one, Mapping) or not one.get("name"):
                    place = f"{self.values.place}: {self.values.name(*path, index)}"
                    raise Setting(place, one).wrong("a variable with a name")
                self.values.take(*path, index, "name")
                pairs.append((str(one["name"]), one, (*path, index)))
        for index, (name, one, where) in enumerate(pairs):
            self.put((*target, index, "name"), name)
            self._variable((*target, index), one, where)

    def _variable(self, target: Path, given: Any, path: Path) -> None:
        if not isinstance(given, Mapping):
            self._text(target, given, path)
            return
        self.values.take(*path, "dependsOn")
        for key in _REFERENCES:
            self.put((*target, "valueFrom", key), given.get(key), (*path, key))
        if "valueFrom" in given:
            self.put((*target, "valueFrom"), given["valueFrom"], (*path, "valueFrom"))
        elif "value" in given:
            self._text(target, given["value"], (*path, "value"))

    def _text(self, target: Path, given: Any, path: Path) -> None:
        text = self.values.filled(given, *path)
        assign(self.content, (*target, "value"), text)
        self.origins[*target, "value"] = [(*self.values.root, *path)]

    def probes(self, target: Path, path: Path) -> None:
        """Set the probes of a container that are enabled."""
        for key, name in _PROBES.items():
            one = (*path, key)
            if self.values.mapping(*one) and self.values.is_enabled(*one):
                # Only that there is one counts, and its keys are the chart's.
                self.put((*target, name, "httpGet", "path"), "/", one)
            else:
                self.values.take(*one)

    def config_map(self, name: str, data: Mapping[str, tuple[str, Path]]) -> None:
        """Add a ConfigMap with texts, and where each comes from."""
        content = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": self.values.release.namespace},
            "data": {key: text for key, (text, _) in data.items()},
        }
        origins: dict[Path, list[Path]] = {
            ("data", key): [(*self.values.root, *path)] for key, (_, path) in data.items()
        }
        self.values.source.add(self.values.place, content, made_of(origins))

    def containers(self, configuration: str | None, *places: str) -> Iterator[Found]:
        """Yield the containers of the DaemonSet, as if it had been in the input.

        ``places`` are the keys of the values that the containers are made of.
        """
        release, values = self.values.release, self.values
        content = {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            **self.content,
            "metadata": {
                "name": self.name,
                **({"namespace": release.namespace} if release.namespace else {}),
                **(release.marks or {"annotations": {"meta.helm.sh/release-name": release.name}}),
            },
        }
        document = values.source.add(values.place, content, made_of(self.origins))
        found = of_daemon_set(document, values.source, configuration)
        for one, name in zip(found, places, strict=True):
            workload = replace(
                one.workload, place=f"{values.place}: {name}" if name else values.place
            )
            yield replace(
                one,
                workload=workload,
                release=release,
                parts=tuple(self.origins),
                scope=(*values.root, *self.scope),
            )
