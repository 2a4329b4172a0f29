"""The Helm chart: ``deployments/chart``, with the manifests of all plugins.

Kustomize renders the manifests into the chart's ``files/``. The templates are few and know no
plugin: they change what is in ``files/`` as the values say. So a plugin that has a folder in
``deployments/`` is in the chart.
"""

import gzip
import io
import json
import shutil
import tarfile
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from deviceplugin_operator.manifests import KEYS, Manifest
from kustomize import DEPLOYMENTS, difference, identity

Render = Callable[[Path, Sequence[Path]], list[Manifest]]
"""Renders the kustomization in a folder with components."""

SOURCE: Final = DEPLOYMENTS / "chart"
SCHEMA: Final = "values.schema.yaml"
NAME: Final = "device-plugins"
OWNERS: Final[Mapping[str, str | None]] = {
    "node-annotation": "fpga",
    "node-labels": None,
    "host-network-facts": "rdma",
}
"""What plugin a component is for, where its name does not begin with that; None if for all."""
NOT_OFFERED: Final = frozenset({"kubelet-root", "microk8s"})
"""Components for which there is a value."""


@dataclass(frozen=True)
class Plugin:
    """What the chart has of a plugin."""

    name: str
    content: Manifest
    """Its file in the chart."""
    config: str
    """Its configuration, as it is written in ``deployments/``."""


def write(folder: Path, render: Render, home: str = "") -> None:
    """Write the chart into a folder that does not exist yet."""
    shutil.copytree(SOURCE, folder, ignore=shutil.ignore_patterns(SCHEMA))
    folders = sorted(path.parent for path in DEPLOYMENTS.glob("*/kustomization.yaml"))
    plugins = [path for path in folders if path.name != "base"]
    with ThreadPoolExecutor(4) as threads:
        made = [*threads.map(lambda path: plugin(path, render), plugins)]
    (folder / "files").mkdir()
    for one in made:
        place = folder / "files" / f"{one.name}.json"
        place.write_text(json.dumps(one.content, indent=1) + "\n", encoding="utf-8")
    with (folder / "values.yaml").open("a", encoding="utf-8") as values:
        values.writelines(default_values(one) for one in made)
    schema = yaml.safe_load((SOURCE / SCHEMA).read_text(encoding="utf-8"))
    text = json.dumps(fill_schema(schema, made), indent=1) + "\n"
    (folder / "values.schema.json").write_text(text, encoding="utf-8")
    if home:
        with (folder / "Chart.yaml").open("a", encoding="utf-8") as file:
            file.write(yaml.safe_dump({"home": home, "sources": [home]}))


def pack(folder: Path, target: Path) -> None:
    """Pack a chart as ``helm package`` does; the same chart gives the same bytes."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            content = path.read_bytes()
            member = tarfile.TarInfo(f"{NAME}/{path.relative_to(folder)}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    target.write_bytes(gzip.compress(packed.getvalue(), mtime=0))


def plugin(folder: Path, render: Render) -> Plugin:
    """Return what the chart has of the plugin in a folder of ``deployments/``."""
    objects = render(folder, ())
    (daemon_set,) = (one for one in objects if one["kind"] == "DaemonSet")
    pod = daemon_set["spec"]["template"]["spec"]
    (container,) = (one for one in pod["containers"] if one["name"] == "device-plugin")
    (volume,) = (one for one in pod["volumes"] if one["name"] == "config")
    name = volume["configMap"]["name"]
    (config,) = (one for one in objects if identity(one) == f"ConfigMap/{name}")
    content = {
        "namespace": daemon_set["metadata"]["namespace"],
        "image": container["image"],
        "config": name,
        "keys": KEYS,
        "objects": objects,
        "components": dict(components(folder, objects, render)),
    }
    return Plugin(folder.name, content, config["data"]["config.yaml"])


def components(
    folder: Path, before: list[Manifest], render: Render
) -> Iterator[tuple[str, Manifest]]:
    """Yield what each component adds to a plugin; not those that it has already."""
    known = {identity(one): one for one in before}
    for component in sorted(DEPLOYMENTS.glob("components/*/kustomization.yaml")):
        name = component.parent.name
        if name in NOT_OFFERED or owner(name) not in {None, folder.name}:
            continue
        after = render(folder, (component.parent,))
        patches = {
            identity(one): change
            for one in after
            if (change := difference(known.get(identity(one), one), one))
        }
        added = [one for one in after if identity(one) not in known]
        if patches or added:
            yield name, {"objects": added, "patches": patches}


def owner(component: str) -> str | None:
    """Return the plugin that a component is for, or None if it is for all."""
    first = component.partition("-")[0]
    is_plugin = (DEPLOYMENTS / first / "kustomization.yaml").exists()
    return OWNERS.get(component, first if is_plugin else None)


def default_values(of: Plugin) -> str:
    """Return a plugin's part of values.yaml."""
    lines = f"enabled: false\nconfig:\n{textwrap.indent(of.config, '  ')}"
    return f"\n{of.name}:\n{textwrap.indent(lines, '  ')}"


def fill_schema(schema: Manifest, plugins: Sequence[Plugin]) -> Manifest:
    """Return the schema of values with the plugins that there are, and their components."""
    shared = {key: {"$ref": f"#/definitions/{key}"} for key in schema["definitions"]}
    for_all = {key: value for key, value in shared.items() if key not in {"enabled", "configMaps"}}
    everywhere = {one for made in plugins for one in made.content["components"]}
    general = sorted(one for one in everywhere if owner(one) is None)
    properties = {"defaults": closed(for_all | {"components": switches(general)})}
    for made in plugins:
        own = made.content["components"]
        properties[made.name] = closed(
            shared
            | {"components": switches(own)}
            | {"configMaps": closed(dict.fromkeys(config_maps(own), shared["configMaps"]))}
        )
    return schema | {"properties": schema["properties"] | properties}


def config_maps(components: Manifest) -> list[str]:
    """Return the names of the ConfigMaps that components bring."""
    objects = [one for component in components.values() for one in component["objects"]]
    return [one["metadata"]["name"] for one in objects if one["kind"] == "ConfigMap"]


def switches(names: Sequence[str] | Manifest) -> Manifest:
    """Return the schema of an object with these booleans."""
    return closed({name: {"type": "boolean"} for name in names})


def closed(properties: Manifest) -> Manifest:
    """Return the schema of an object that has these properties only."""
    return {"type": "object", "additionalProperties": False, "properties": properties}
