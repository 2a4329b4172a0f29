"""The variables of a container, in the order in which the kubelet sets them."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final

from deviceplugin.kit.migration import Path, Setting, Workload
from deviceplugin_cli.migrate._documents import Document, Input, get, items, mapping

_REFERENCE: Final = re.compile(r"\$(\$|\(([^)]*)\))")
_HARMLESS: Final = (
    *("TZ", "LANG", "LANGUAGE", "LC_*", "TERM", "HOME", "USER", "PATH", "PWD", "HOSTNAME"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "SSL_CERT_*", "KUBERNETES_*"),
    *("GOMAXPROCS", "GOGC", "GOMEMLIMIT", "GODEBUG", "GOTRACEBACK", "GRPC_*", "LD_LIBRARY_PATH"),
    *("NODE_NAME", "NODE_IP", "HOST_IP", "NAMESPACE", "POD_*", "CONTAINER_NAME", "MY_POD_*"),
    *("MY_NODE_NAME", "K8S_NODE_NAME"),
)
"""Patterns of variables that set nothing of a device plugin, in capitals."""
_NO_EFFECT: Final = "has no effect here"
_OF_THE_POD: Final = ("fieldRef", "resourceFieldRef")


@dataclass
class Environment:
    """The variables of the container at ``root``."""

    place: str
    root: Path
    source: Input
    namespace: str
    variables: dict[str, Setting] = field(default_factory=dict)
    references: dict[str, Setting] = field(default_factory=dict)

    def read(self, container: Mapping[str, Any]) -> None:
        """Set the variables of ``envFrom``, and then those of ``env``; raise ``ConfigError``."""
        for index, one in enumerate(items(container, self.place, "envFrom")):
            self._add_all(index, one)
        for index, one in enumerate(items(container, self.place, "env")):
            self._add(index, one)

    def expanded(self, text: str) -> str:
        """Return a text with variables filled in. Those that are not set stay, as there."""

        def value(found: re.Match[str]) -> str:
            if found[1] == "$":
                return "$"
            if found[2] not in self.variables:
                return found[0]
            self.source.account.take(self.variables[found[2]].path)
            return str(self.variables[found[2]].value)

        return _REFERENCE.sub(value, text)

    def _add_all(self, index: int, one: Mapping[str, Any]) -> None:
        path, prefix = (*self.root, "envFrom", index), str(one.get("prefix") or "")
        account = self.source.account
        account.get(path)
        if one.get("secretRef") is not None:
            name = mapping(one, "secretRef").get("name")
            why = f"the Secret {name} is not read: set in ours what the plugin takes from it"
            account.drop(path, why)
        elif one.get("configMapRef") is not None:
            wanted = mapping(one, "configMapRef")
            found = self.source.find("ConfigMap", str(wanted.get("name")), self.namespace)
            if found is None:
                optional = ", which is optional," if wanted.get("optional") else ""
                account.drop(
                    path,
                    f"the ConfigMap {wanted.get('name')}{optional} is not in the input, so its "
                    "variables are not taken over: add it as a document",
                )
                return
            account.take(path)
            for key, setting in contents(found):
                self._set(f"{prefix}{key}", setting)

    def _add(self, index: int, one: Mapping[str, Any]) -> None:
        name = get(one, f"{self.place}: env[{index}]", "name", str)
        place, path = f"{self.place}: env: {name}", (*self.root, "env", index)
        value, elsewhere = one.get("value"), one.get("valueFrom")
        if elsewhere is None:
            text = self.expanded(str(value)) if value is not None else ""
            self._set(name, Setting(place, text, path))
        elif isinstance(elsewhere, Mapping):
            self._set_from(name, Setting(place, elsewhere, path))
        else:
            raise Setting(f"{place}: valueFrom", elsewhere).wrong("a mapping")

    def _set_from(self, name: str, given: Setting) -> None:
        wanted = mapping(given.value, "configMapKeyRef")
        there = self.source.find("ConfigMap", str(wanted.get("name")), self.namespace)
        found = dict(contents(there)) if there else {}
        key = str(wanted.get("key"))
        if wanted and key in found:
            self.source.account.take(given.path)
            self._set(name, found[key])
        elif wanted and wanted.get("optional"):
            why = f"is not set: the ConfigMap {wanted.get('name')} with {key} is not in the input"
            self.source.account.drop(given.path, why)
        else:
            self._set(name, Setting(given.place, f"$({name})", given.path))
            self.references[name] = given

    def _set(self, name: str, given: Setting) -> None:
        before = self.variables.get(name)
        if before is not None and before.path != given.path:
            self.source.account.drop(before.path, f"{name} is set again: the last one counts")
        self.references.pop(name, None)
        self.variables[name] = given


def contents(config_map: Document) -> Iterator[tuple[str, Setting]]:
    """Yield the keys of a ConfigMap and their texts; raise ``ConfigError``."""
    place = f"{config_map.place}: ConfigMap {config_map.name}"
    data = config_map.content.get("data") or {}
    if not isinstance(data, Mapping):
        raise Setting(f"{place}: data", data).wrong("a mapping of strings")
    for key, text in data.items():
        yield str(key), Setting(f"{place}: data.{key}", str(text), (config_map.number, "data", key))


def drop_harmless(workload: Workload) -> None:
    """Account for variables that the plugin does not know, if they set nothing of a plugin."""
    for name, one in workload.variables.items():
        if workload.account.knows(one.path):
            continue
        of_pod = [key for key in _OF_THE_POD if key in _source(workload, name)]
        if of_pod or any(fnmatchcase(name.upper(), pattern) for pattern in _HARMLESS):
            workload.account.drop(one.path, _NO_EFFECT)


def referred(workload: Workload, text: str) -> Iterator[tuple[str, Setting]]:
    """Yield the variables with values from elsewhere that a text has as ``$(NAME)``."""
    for found in _REFERENCE.finditer(text):
        if found[2] in workload.references:
            yield found[2], workload.references[found[2]]


def origin(given: Setting) -> str:
    """Return where the value of a reference stands, in words without the value."""
    found = mapping(given.value, "secretKeyRef"), mapping(given.value, "configMapKeyRef")
    for kind, one in zip(("Secret", "ConfigMap"), found, strict=True):
        if one:
            return f"the {kind} {one.get('name')}, key {one.get('key')}"
    return "a field of the pod"


def _source(workload: Workload, name: str) -> Mapping[str, Any]:
    found = workload.references.get(name)
    return found.value if found else {}
