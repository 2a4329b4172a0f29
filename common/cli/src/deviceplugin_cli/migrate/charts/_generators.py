"""ConfigMaps that kustomize makes of files and of literals."""

import posixpath
from typing import Any

from deviceplugin.kit.migration import Path
from deviceplugin_cli.migrate._accounts import made_of
from deviceplugin_cli.migrate._documents import Document, Input, strings
from deviceplugin_cli.migrate.charts._rendering import as_text
from deviceplugin_cli.migrate.charts._wrapper import mappings


def generate(source: Input) -> None:
    """Add the ConfigMaps of all Kustomizations, as far as their files are in the input."""
    for one in [*source.documents]:
        if one.kind == "Kustomization" and "configMapGenerator" in one.content:
            if "helmCharts" not in one.content:
                source.account.drop((one.number,), "only the ConfigMaps that it makes are read")
            for index, given in mappings(one.content, "configMapGenerator"):
                _generate(one, source, given, (one.number, "configMapGenerator", index))


def _generate(document: Document, source: Input, given: Any, path: Path) -> None:
    data: dict[str, str] = {}
    origins: dict[Path, list[Path]] = {}
    place = f"{document.place}: {source.account.name(path)}"
    for index, text in enumerate(strings(given, place, "literals")):
        key, _, value = text.partition("=")
        data[key] = value
        origins["data", key] = [(*path, "literals", index)]
    for index, text in enumerate(strings(given, place, "files")):
        key, found, name = text.rpartition("=")
        file = source.file(name, document)
        if file is not None:
            key = key if found else posixpath.basename(name)
            data[key] = as_text(file.content)
            origins["data", key] = [(file.number,), (*path, "files", index)]
    if data:
        namespace = given.get("namespace") or document.content.get("namespace")
        metadata = {"name": given.get("name"), **({"namespace": namespace} if namespace else {})}
        content = {"kind": "ConfigMap", "metadata": metadata, "data": data}
        source.add(place, content, made_of(origins))
