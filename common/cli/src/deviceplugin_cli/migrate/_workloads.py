"""Documents of manifests: the containers of DaemonSets, and Helm values, as plugins see them."""

import posixpath
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from deviceplugin._config.documents.nodes import MalformedError
from deviceplugin._config.documents.yaml_nodes import plain
from deviceplugin.errors import ConfigError
from deviceplugin.kit.migration import Setting, Workload

STANDARD_INPUT: Final = "-"
_MOST_BYTES: Final = 16 * 1024**2
_MOST_VALUES: Final = 500_000
"""Keys and values of a file. A DaemonSet has some 500."""
_VARIABLE: Final = re.compile(r"\$(\$|\(([-A-Za-z0-9_.]+)\))")
_SHELLS: Final = frozenset({"ash", "bash", "dash", "sh"})


@dataclass(frozen=True)
class Document:
    """A document of a file."""

    place: str
    """File and number, for messages."""
    content: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """Its Kubernetes kind; empty for Helm values."""
        return str(self.content.get("kind", ""))

    @property
    def name(self) -> str:
        """Namespace and name of the object."""
        found = mapping(self.content, "metadata")
        return "/".join(str(found[key]) for key in ("namespace", "name") if found.get(key))


def read_text(path: str) -> str:
    """Return the content of a file, or of standard input for ``-``; raise ``ConfigError``."""
    try:
        if path == STANDARD_INPUT:
            content = sys.stdin.buffer.read(_MOST_BYTES + 1)
        else:
            with Path(path).open("rb") as file:
                content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    if len(content) > _MOST_BYTES:
        raise ConfigError(f"{path}: is longer than {_MOST_BYTES} bytes")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8: byte {error.start}") from error


def documents(path: str, text: str) -> list[Document]:
    """Return the documents in a text, and those in a ``List``; raise ``ConfigError``."""
    found = [
        each
        for number, one in enumerate(_parsed(path, text), 1)
        for each in _of(f"{path}: document {number}", one)
    ]
    if not found:
        raise ConfigError(f"{path}: is empty")
    return found


def _of(place: str, content: Any) -> Iterator[Document]:
    if content is None:
        return
    if not isinstance(content, Mapping):
        raise ConfigError(f"{place}: is not a mapping with keys")
    items = content.get("items")
    if content.get("kind") == "List" and isinstance(items, list):
        for index, item in enumerate(items):
            yield from _of(f"{place}: items[{index}]", item)
    else:
        yield Document(place, content)


def _parsed(path: str, text: str) -> list[Any]:
    try:
        return plain(text, _MOST_VALUES)
    except MalformedError as error:
        line = f":{error.line}" if error.line else ""
        template = "; a Helm template has to be rendered first" if "{{" in text else ""
        raise ConfigError(f"{path}{line}: {error}{template}") from error


@dataclass(frozen=True)
class Found:
    """A container, or Helm values, with what surrounds it."""

    workload: Workload
    document: Document
    pod: Mapping[str, Any]
    """The pod's specification; for Helm values, the values."""
    container: Mapping[str, Any]


def workloads(documents: Sequence[Document], configuration: str | None) -> Iterator[Found]:
    """Yield the containers of all DaemonSets and pods, and Helm values; raise ``ConfigError``."""
    maps = {
        str(_get(one.content, one.place, "metadata.name", str)): one
        for one in documents
        if one.kind == "ConfigMap"
    }
    for one in documents:
        if one.kind == "DaemonSet":
            yield from _of_daemon_set(one, maps, configuration)
        elif not one.kind and "apiVersion" not in one.content:
            yield Found(_of_values(one, configuration), one, one.content, one.content)


def _of_daemon_set(
    document: Document, maps: Mapping[str, Document], configuration: str | None
) -> Iterator[Found]:
    place = f"{document.place}: DaemonSet {document.name}"
    pod = _get(document.content, place, "spec.template.spec", Mapping)
    for index, container in enumerate(items(pod, place, "containers")):
        inside = f"{place}: containers[{index}]"
        image, tag = _image(_get(container, inside, "image", str))
        variables = dict(_variables(container, inside))
        workload = Workload(
            place=inside,
            image=image,
            tag=tag,
            arguments=tuple(_expanded(one, variables) for one in _arguments(container, inside)),
            variables=variables,
            files=dict(_files(container, pod, inside, maps)),
            configuration=configuration,
        )
        yield Found(workload, document, pod, container)


def _of_values(document: Document, configuration: str | None) -> Workload:
    values = document.content
    image = values.get("image")
    given = image if isinstance(image, Mapping) else {"repository": image}
    name, tag = _image(str(given.get("repository") or ""))
    return Workload(
        place=document.place,
        image=name,
        tag=str(given.get("tag") or tag),
        configuration=configuration,
        values=values,
    )


def _image(text: str) -> tuple[str, str]:
    """Return the name and the tag of an image; a colon before a slash is that of a port."""
    name = text.partition("@")[0]
    head, colon, tag = name.rpartition(":")
    return (head, tag) if colon and "/" not in tag else (name, "")


def _arguments(container: Mapping[str, Any], place: str) -> list[str]:
    command = strings(container, place, "command")
    if command and posixpath.basename(command[0]) in _SHELLS:
        raise Setting(f"{place}: command", command[0]).wrong(
            "a plugin: what a shell starts cannot be read"
        )
    return [*command[1:], *strings(container, place, "args")]


def _expanded(text: str, variables: Mapping[str, Setting]) -> str:
    """Return an argument with variables filled in, as the kubelet does."""

    def value(found: re.Match[str]) -> str:
        if found[1] == "$":
            return "$"
        return str(variables[found[2]].value) if found[2] in variables else found[0]

    return _VARIABLE.sub(value, text)


def _variables(container: Mapping[str, Any], place: str) -> Iterator[tuple[str, Setting]]:
    for index, one in enumerate(items(container, place, "env")):
        name = _get(one, f"{place}: env[{index}]", "name", str)
        if one.get("valueFrom") is None:
            value = one.get("value")
            yield name, Setting(f"{place}: env: {name}", "" if value is None else str(value))


def _files(
    container: Mapping[str, Any], pod: Mapping[str, Any], place: str, maps: Mapping[str, Document]
) -> Iterator[tuple[str, str]]:
    """Yield path and content of each file of a ConfigMap that is mounted."""
    volumes = {str(one.get("name")): one for one in items(pod, place, "volumes")}
    for mount in items(container, place, "volumeMounts"):
        source = volumes.get(str(mount.get("name")), {}).get("configMap")
        if not isinstance(source, Mapping) or str(source.get("name")) not in maps:
            continue
        path, only = str(mount.get("mountPath", "")), mount.get("subPath")
        for name, text in _contents(maps[str(source["name"])], source).items():
            if not only:
                yield posixpath.normpath(posixpath.join(path, name)), text
            elif name == only:
                yield posixpath.normpath(path), text


def _contents(config_map: Document, source: Mapping[str, Any]) -> dict[str, str]:
    place = f"{config_map.place}: ConfigMap {config_map.name}"
    data = config_map.content.get("data") or {}
    if not isinstance(data, Mapping):
        raise Setting(f"{place}: data", data).wrong("a mapping of strings")
    texts = {str(key): str(text) for key, text in data.items()}
    chosen = items(source, place, "items")
    found = {str(one.get("path")): texts.get(str(one.get("key"))) for one in chosen}
    return {path: text for path, text in found.items() if text is not None} if chosen else texts


def mapping(given: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return the mapping at ``key``; an empty one if there is something else."""
    found = given.get(key)
    return found if isinstance(found, Mapping) else {}


def strings(given: Mapping[str, Any], place: str, key: str) -> list[str]:
    """Return the strings in the list at ``key``; none if it is absent."""
    return _list(given, place, key, str, "strings")


def items(given: Mapping[str, Any], place: str, key: str) -> list[Mapping[str, Any]]:
    """Return the mappings in the list at ``key``; none if it is absent."""
    return _list(given, place, key, Mapping, "mappings")


def _list(given: Mapping[str, Any], place: str, key: str, kind: type[Any], what: str) -> list[Any]:
    found = given.get(key)
    if found is None:
        return []
    if not isinstance(found, list) or not all(isinstance(one, kind) for one in found):
        raise Setting(f"{place}: {key}", found).wrong(f"a list of {what}")
    return found


def _get(given: Mapping[str, Any], place: str, path: str, kind: type[Any]) -> Any:
    found: Any = given
    for name in path.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    if found is None:
        raise ConfigError(f"{place}: {path}: is missing")
    if not isinstance(found, kind):
        what = "a string" if kind is str else "a mapping"
        raise Setting(f"{place}: {path}", found).wrong(what)
    return found
