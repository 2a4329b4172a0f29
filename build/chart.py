"""The Helm charts: ``deployments/chart`` with the manifests of all plugins, and the operator's.

Kustomize renders the manifests into the chart's ``files/``. The templates are few and know no
plugin: they change what is in ``files/`` as the values say. So a plugin that has a folder in
``deployments/`` is in the chart. The operator's chart shares the templates that begin with ``_``.
"""

import gzip
import io
import json
import re
import shutil
import tarfile
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

import chart_schema
import packages
from deviceplugin_operator.manifests import KEYS, Manifest
from kustomize import DEPLOYMENTS, difference, identity

Render = Callable[[Path, Sequence[Path]], list[Manifest]]
"""Renders the kustomization in a folder with components."""

ROOT: Final = DEPLOYMENTS.parent
SOURCE: Final = DEPLOYMENTS / "chart"
OPERATOR: Final = DEPLOYMENTS / "operator" / "chart"
ICON: Final = "deployments/chart/icon.svg"
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


@dataclass(frozen=True)
class Chart:
    """What a chart has beyond the templates."""

    source: Path
    page: str
    """The page of the repository that is its README."""
    files: Mapping[str, Manifest]
    schema: Manifest
    said: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What Artifact Hub shows, by the names of its annotations."""

    @property
    def metadata(self) -> Manifest:
        """What is in Chart.yaml."""
        found = document(self.source / "Chart.yaml")
        images = sorted(one["image"] for one in self.files.values())
        parts = [re.fullmatch(".+/([^/:@]+).*", one) for one in images]
        pulled = [{"name": one[1], "image": one[0]} for one in parts if one]
        shown = {**self.said, **({"images": pulled} if pulled else {})}
        found["annotations"] |= {
            f"artifacthub.io/{key}": yaml.safe_dump(value, sort_keys=False)
            for key, value in shown.items()
        }
        return found


def write(folder: Path, render: Render, home: str = "") -> None:
    """Write the chart of all plugins into a folder that does not exist yet."""
    folders = sorted(path.parent for path in DEPLOYMENTS.glob("*/kustomization.yaml"))
    plugins = [path for path in folders if path.name != "base"]
    with ThreadPoolExecutor(4) as threads:
        made = [*threads.map(lambda path: plugin(path, render), plugins)]
    files = {one.name: one.content for one in made}
    everywhere = {one for content in files.values() for one in content["components"]}
    general = sorted(one for one in everywhere if owner(one) is None)
    schema = chart_schema.of_plugins(files, general)
    fill(folder, Chart(SOURCE, "deployments/chart/README.md", files, schema), home)
    with (folder / "values.yaml").open("a", encoding="utf-8") as values:
        values.writelines(default_values(one) for one in made)


def write_operator(folder: Path, render: Render, home: str = "") -> None:
    """Write the chart of the operator into a folder that does not exist yet."""
    kinds, objects = (render(OPERATOR.with_name(name), ()) for name in ("crd", "operator"))
    (deployment,) = (one for one in objects if one["kind"] == "Deployment")
    content = {
        "namespace": deployment["metadata"]["namespace"],
        "image": deployment["spec"]["template"]["spec"]["containers"][0]["image"],
        "keys": KEYS,
        "objects": objects,
        "kinds": kinds,
    }
    said = {
        "crds": [shown(one) for one in kinds if one["kind"] == "CustomResourceDefinition"],
        "crdsExamples": [document(path) for path in sorted(OPERATOR.parent.glob("samples/*.yaml"))],
    }
    schema = chart_schema.of_operator()
    fill(folder, Chart(OPERATOR, "operator/README.md", {"operator": content}, schema, said), home)


def fill(folder: Path, chart: Chart, home: str) -> None:
    """Write a chart, which says where it comes from if that is known."""
    shutil.copytree(chart.source, folder, ignore=shutil.ignore_patterns("values.schema.yaml"))
    for path in SOURCE.glob("templates/_*.tpl"):
        shutil.copy(path, folder / "templates")
    page, metadata = folder / "README.md", chart.metadata
    shutil.copy(ROOT / chart.page, page)
    at_version = f"{home}/blob/v{metadata['version']}"
    if home:
        packages.relink(page, str(Path(chart.page).parent), at_version)
        metadata |= {"home": home, "sources": [home], "icon": f"{at_version}/{ICON}?raw=true"}
        metadata["maintainers"] = [{"name": f"maintainers of {metadata['name']}", "url": home}]
    (folder / "Chart.yaml").write_text(yaml.safe_dump(metadata, sort_keys=False), encoding="utf-8")
    (folder / "files").mkdir()
    parts = {f"files/{name}.json": content for name, content in chart.files.items()}
    for name, content in {**parts, "values.schema.json": chart.schema}.items():
        text = json.dumps(content, indent=1) + "\n"
        (folder / name).write_text(text, encoding="utf-8")


def document(path: Path) -> Manifest:
    """Return the only document of a YAML file."""
    found: Manifest = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


def shown(kind: Manifest) -> Manifest:
    """Return what Artifact Hub shows of a kind."""
    (version,), name = kind["spec"]["versions"], kind["spec"]["names"]["kind"]
    described = version["schema"]["openAPIV3Schema"]["description"]
    named = {"kind": name, "version": version["name"], "name": kind["metadata"]["name"]}
    return {**named, "displayName": name, "description": described}


def pack(folder: Path, target: Path) -> Path:
    """Pack a chart into a folder as ``helm package`` does; the same chart gives the same bytes."""
    packed, metadata = io.BytesIO(), document(folder / "Chart.yaml")
    name = metadata["name"]
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            content = path.read_bytes()
            member = tarfile.TarInfo(f"{name}/{path.relative_to(folder)}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    made = target / f"{name}-{metadata['version']}.tgz"
    made.write_bytes(gzip.compress(packed.getvalue(), mtime=0))
    return made


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
