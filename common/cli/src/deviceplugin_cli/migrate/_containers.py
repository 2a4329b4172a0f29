"""The containers of DaemonSets, as plugins see them."""

import posixpath
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from deviceplugin.kit.migration import Path, Setting, Workload
from deviceplugin_cli.migrate._documents import Document, Input, get, items, mapping, strings
from deviceplugin_cli.migrate._environment import Environment, contents

_SHELLS: Final = frozenset({"ash", "bash", "dash", "sh"})
_POD: Final = ("spec", "template", "spec")


@dataclass(frozen=True)
class Release:
    """What makes manifests of Helm values."""

    name: str = "RELEASE"
    namespace: str = ""
    removal: str = "helm uninstall RELEASE"
    """The command that removes it, or what to do."""
    rendered: str = "helm get manifest RELEASE"
    """The command that prints its manifests."""
    marks: Mapping[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]])
    """``labels`` and ``annotations`` by which its objects say that they are its."""
    numbers: frozenset[int] = frozenset()
    """The documents that it and its values are in."""
    application_set: tuple[str, str] | None = None
    """Name and namespace of the ApplicationSet that makes it."""
    notes: tuple[str, ...] = ()
    """What cannot be seen in its values, a sentence each."""


@dataclass(frozen=True)
class Found:
    """A container, Helm values or an object, with what surrounds it."""

    workload: Workload
    document: Document
    pod: Mapping[str, Any]
    """The pod's specification; for Helm values, the values; for an object, nothing."""
    pod_path: Path
    container: Mapping[str, Any]
    read_from: Collection[int] = ()
    """The numbers of the documents that its variables and its files come from."""
    missing: Collection[str] = ()
    """The names of ConfigMaps that its pod mounts and the input lacks."""
    release: Release | None = None
    """What it is installed by, if that is not a manifest."""
    parts: tuple[Path, ...] = ()
    """The paths of what a chart has made of its values."""
    scope: Path = ()
    """Where the values stand that are only about it."""


def of_daemon_set(document: Document, source: Input, configuration: str | None) -> Iterator[Found]:
    """Yield the containers of a DaemonSet; raise ``ConfigError``."""
    is_named = document.place.endswith(document.title)
    place = document.place if is_named else f"{document.place}: {document.title}"
    pod = get(document.content, place, ".".join(_POD), Mapping)
    path: Path = (document.number, *_POD)
    mounted = [name for one in items(pod, place, "volumes") for name in config_maps(one)]
    missing = [one for one in mounted if not source.find("ConfigMap", one, document.namespace)]
    for index, container in enumerate(items(pod, place, "containers")):
        inside, root = f"{place}: containers[{index}]", (*path, "containers", index)
        image, tag = split_image(get(container, inside, "image", str))
        environment = Environment(inside, root, source, document.namespace)
        environment.read(container)
        command = strings(container, inside, "command")
        arguments = [*command[1:], *strings(container, inside, "args")]
        files = dict(_files(container, pod, inside, source, document.namespace))
        workload = Workload(
            place=inside,
            image=image,
            tag=tag,
            shell=next((one for one in command[:1] if posixpath.basename(one) in _SHELLS), ""),
            arguments=tuple(map(environment.expanded, arguments)),
            variables=environment.variables,
            references=environment.references,
            files=files,
            configuration=configuration,
            account=source.account,
            root=root,
        )
        read_from = environment.read_from | {int(one.path[0]) for one in files.values()}
        yield Found(workload, document, pod, path, container, read_from, missing)


def split_image(text: str) -> tuple[str, str]:
    """Return the name and the tag of an image; a colon before a slash is that of a port."""
    name = text.partition("@")[0]
    head, colon, tag = name.rpartition(":")
    return (head, tag) if colon and "/" not in tag else (name, "")


def config_maps(volume: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of the ConfigMaps of a volume."""
    sources = mapping(volume, "projected").get("sources")
    for one in (volume, *(sources if isinstance(sources, list) else ())):
        if isinstance(one, Mapping) and mapping(one, "configMap"):
            yield str(mapping(one, "configMap").get("name"))


def _files(
    container: Mapping[str, Any], pod: Mapping[str, Any], place: str, source: Input, namespace: str
) -> Iterator[tuple[str, Setting]]:
    """Yield path and content of each file of a ConfigMap that is mounted."""
    volumes = {str(one.get("name")): one for one in items(pod, place, "volumes")}
    for mount in items(container, place, "volumeMounts"):
        volume = volumes.get(str(mount.get("name")), {})
        projected = items(mapping(volume, "projected"), place, "sources")
        path, only = str(mount.get("mountPath", "")), mount.get("subPath")
        for one in (volume, *projected):
            for name, file in _contents(mapping(one, "configMap"), place, source, namespace):
                if not only:
                    yield posixpath.normpath(posixpath.join(path, name)), file
                elif name == only:
                    yield posixpath.normpath(path), file


def _contents(
    volume: Mapping[str, Any], place: str, source: Input, namespace: str
) -> Iterator[tuple[str, Setting]]:
    config_map = source.find("ConfigMap", str(volume.get("name")), namespace)
    files = dict(contents(config_map)) if config_map else {}
    chosen = items(volume, place, "items")
    wanted = [(str(one.get("path")), str(one.get("key"))) for one in chosen]
    for path, key in wanted or zip(files, files, strict=True):
        if key in files:
            yield path, files[key]
