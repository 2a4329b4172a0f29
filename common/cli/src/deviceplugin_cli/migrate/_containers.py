"""The containers of DaemonSets, as plugins see them."""

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from deviceplugin.kit.migration import Account, Path, Setting, Workload
from deviceplugin_cli.migrate._documents import Document, Input, get, items, mapping, strings

_VARIABLE: Final = re.compile(r"\$(\$|\(([-A-Za-z0-9_.]+)\))")
_SHELLS: Final = frozenset({"ash", "bash", "dash", "sh"})
_ONE_COMMAND: Final = re.compile(r"(?:exec +)?(?P<command>[-A-Za-z0-9_./=,:@+ ]+)")
"""What a shell takes for one command, and leaves as it is."""
_POD: Final = ("spec", "template", "spec")


@dataclass(frozen=True)
class Found:
    """A container, Helm values or an object, with what surrounds it."""

    workload: Workload
    document: Document
    pod: Mapping[str, Any]
    """The pod's specification; for Helm values, the values; for an object, nothing."""
    pod_path: Path
    container: Mapping[str, Any]


def of_daemon_set(document: Document, source: Input, configuration: str | None) -> Iterator[Found]:
    """Yield the containers of a DaemonSet; raise ``ConfigError``."""
    place = f"{document.place}: DaemonSet {document.name}"
    pod = get(document.content, place, ".".join(_POD), Mapping)
    path: Path = (document.number, *_POD)
    for key in ("apiVersion", "kind", "metadata", "status"):
        source.account.take((document.number, key))
    for index, container in enumerate(items(pod, place, "containers")):
        inside, root = f"{place}: containers[{index}]", (*path, "containers", index)
        image, name = split_image(get(container, inside, "image", str)), container.get("name")
        variables = dict(_variables(container, inside, root))
        workload = Workload(
            place=inside,
            image=image[0],
            tag=image[1],
            arguments=tuple(
                _expanded(one, variables, source.account) for one in _arguments(container, inside)
            ),
            variables=variables,
            files=dict(_files(container, pod, inside, source)),
            configuration=configuration,
            account=source.account,
            root=root,
        )
        for key in ("image", *(["name"] if name else [])):
            source.account.take((*root, key))
        yield Found(workload, document, pod, path, container)


def split_image(text: str) -> tuple[str, str]:
    """Return the name and the tag of an image; a colon before a slash is that of a port."""
    name = text.partition("@")[0]
    head, colon, tag = name.rpartition(":")
    return (head, tag) if colon and "/" not in tag else (name, "")


def _arguments(container: Mapping[str, Any], place: str) -> list[str]:
    words = [*strings(container, place, "command"), *strings(container, place, "args")]
    if not container.get("command"):
        return words
    if posixpath.basename(words[0]) in _SHELLS:
        found = _ONE_COMMAND.fullmatch(" ".join(words[2:3]))
        if words[1:2] != ["-c"] or not found:
            raise Setting(f"{place}: command", words[0]).wrong(
                "a plugin: what a shell starts cannot be read"
            )
        words = found["command"].split()
    return words[1:]


def _expanded(text: str, variables: Mapping[str, Setting], account: Account) -> str:
    """Return an argument with variables filled in, as the kubelet does."""

    def value(found: re.Match[str]) -> str:
        if found[1] == "$":
            return "$"
        if found[2] not in variables:
            return found[0]
        account.take(variables[found[2]].path)
        return str(variables[found[2]].value)

    return _VARIABLE.sub(value, text)


def _variables(
    container: Mapping[str, Any], place: str, root: Path
) -> Iterator[tuple[str, Setting]]:
    for index, one in enumerate(items(container, place, "env")):
        name = get(one, f"{place}: env[{index}]", "name", str)
        if one.get("valueFrom") is None:
            value = one.get("value")
            text, path = "" if value is None else str(value), (*root, "env", index)
            yield name, Setting(f"{place}: env: {name}", text, path)


def _files(
    container: Mapping[str, Any], pod: Mapping[str, Any], place: str, source: Input
) -> Iterator[tuple[str, Setting]]:
    """Yield path and content of each file of a ConfigMap that is mounted."""
    volumes = {str(one.get("name")): one for one in items(pod, place, "volumes")}
    for mount in items(container, place, "volumeMounts"):
        volume = mapping(volumes.get(str(mount.get("name")), {}), "configMap")
        config_map = source.find("ConfigMap", str(volume.get("name")))
        if config_map is None:
            continue
        path, only = str(mount.get("mountPath", "")), mount.get("subPath")
        for name, file in _contents(config_map, volume).items():
            if not only:
                yield posixpath.normpath(posixpath.join(path, name)), file
            elif name == only:
                yield posixpath.normpath(path), file


def _contents(config_map: Document, source: Mapping[str, Any]) -> dict[str, Setting]:
    place = f"{config_map.place}: ConfigMap {config_map.name}"
    data = config_map.content.get("data") or {}
    if not isinstance(data, Mapping):
        raise Setting(f"{place}: data", data).wrong("a mapping of strings")
    files = {
        str(key): Setting(f"{place}: data.{key}", str(text), (config_map.number, "data", key))
        for key, text in data.items()
    }
    chosen = items(source, place, "items")
    found = {str(one.get("path")): files.get(str(one.get("key"))) for one in chosen}
    return {path: file for path, file in found.items() if file is not None} if chosen else files
