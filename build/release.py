"""Make a release.

    release.py dist [--registry REGISTRY] [--home URL] [--sign KEY]
        write everything to dist/release, with checksums

        --registry   where the images are pushed: the manifests name them there, by digest, as they
                     are in dist/images (default: the nodes have the images, by name)
        --home       address of the repository: the packages name it, and the links of their pages
                     lead there
        --sign       a private key of ssh, by which the checksums are signed; the release workflow
                     signs them by its own identity instead

    release.py chart FOLDER [--operator] [--registry REGISTRY] [--home URL]
        write the Helm chart to FOLDER, which does not exist yet

        --operator   that of the operator, not that of the plugins

    release.py version [NEW]
        print the version, or write NEW wherever the version occurs

The version is that of common/node/pyproject.toml; versions.py has all other places.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

import chart
import kustomize
import packages
import runbooks
import versions
from archive import Archive
from deviceplugin_operator.manifests import Manifest

ROOT: Final = Path(__file__).parents[1]
TARGET: Final = ROOT / "dist" / "release"
IMAGES: Final = ROOT / "dist" / "images"
ARCHITECTURES: Final = (
    "/spec/template/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution"
    "/nodeSelectorTerms/0/matchExpressions/0/values"
)
"""Where a manifest says what its image is for."""


def installs() -> dict[str, Path]:
    """Return the folder of each install-NAME.yaml: to delete a kind is to delete its objects."""
    found = {
        path.parent.name: path.parent for path in ROOT.glob("deployments/*/kustomization.yaml")
    }
    del found["base"]
    operator = ROOT / "deployments/operator"
    return {**found, "operator-crd": operator / "crd", "operator": operator / "operator"}


def render_deployments(registry: str) -> None:
    """Write a file for `kubectl apply -f` for each plugin, the operator and its kind."""
    for name, folder in sorted(installs().items()):
        (TARGET / f"install-{name}.yaml").write_text(render(folder, registry), encoding="utf-8")


def write_chart(
    folder: Path, registry: str = "", home: str = "", *, operator: bool = False
) -> None:
    """Write a Helm chart: manifests as :func:`render` renders them, with links to runbooks."""
    base = runbooks.published(home, f"v{versions.current()}")

    def linked(plugin: Path, components: Sequence[Path]) -> list[Manifest]:
        found: list[Manifest] = runbooks.link(rendered(plugin, components), base)
        return found

    def rendered(plugin: Path, components: Sequence[Path]) -> list[Manifest]:
        if not registry:  # which takes less time, and no kubectl
            with tempfile.TemporaryDirectory() as scratch:
                write_overlay(Path(scratch).resolve(), plugin, registry, components)
                return kustomize.render(Path(scratch))
        found = kustomize.documents(render(plugin, registry, components))
        for one in found:
            if one["kind"] in kustomize.CLUSTER_WIDE:  # it puts kinds that it does not know in one
                one["metadata"].pop("namespace", None)
        return found

    (chart.write_operator if operator else chart.write)(folder, linked, home)


def render(folder: Path, registry: str, components: Sequence[Path] = ()) -> str:
    """Return the manifests of a folder. With ``registry``, they name its images, by digest."""
    words = ["kustomize", "build"] if shutil.which("kustomize") else ["kubectl", "kustomize"]
    if shutil.which(words[0]) is None:
        raise SystemExit("release.py: there is no kubectl and no kustomize in PATH: install one")
    with tempfile.TemporaryDirectory() as scratch:
        write_overlay(Path(scratch).resolve(), folder, registry, components)
        done = subprocess.run([*words, scratch], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"release.py: {folder}: {done.stderr.strip()}")
    return done.stdout


def write_overlay(place: Path, folder: Path, registry: str, components: Sequence[Path]) -> None:
    """Write a kustomization of a folder with components and the images of a registry."""
    overlay: dict[str, object] = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [os.path.relpath(folder, place)],
        "components": [os.path.relpath(component, place) for component in components],
        "images": [
            {"name": name, "newName": f"{registry}/{name}", "digest": archive_of(name).digest}
            for name in (image_names(folder) if registry else [])
        ],
        "patches": [*only_where_it_runs(folder), *of_plugins(registry)] if registry else [],
    }
    if components:  # whose objects are in no namespace yet
        overlay["namespace"] = kustomization(folder)["namespace"]
    (place / "kustomization.yaml").write_text(yaml.safe_dump(overlay), encoding="utf-8")


def only_where_it_runs(folder: Path) -> Iterator[dict[str, object]]:
    """Yield patches that keep pods off nodes of an architecture that an image is not for."""
    found = [set(archive_of(name).architectures) for name in image_names(folder)]
    if found:
        values = sorted(set.intersection(*found))
        patch = yaml.safe_dump([{"op": "replace", "path": ARCHITECTURES, "value": values}])
        for kind in ("DaemonSet", "Deployment"):
            yield {"target": {"kind": kind}, "patch": patch}


def of_plugins(registry: str) -> Iterator[dict[str, object]]:
    """Yield a patch by which the operator finds the images of plugins where its own is."""
    env = [{"name": "IMAGE_PREFIX", "value": f"{registry}/"}]
    spec = {"template": {"spec": {"containers": [{"name": "operator", "env": env}]}}}
    named = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "-"}}
    target = {"kind": "Deployment", "name": "deviceplugin-operator"}
    yield {"target": target, "patch": yaml.safe_dump({**named, "spec": spec})}


def image_names(folder: Path) -> list[str]:
    """Return the names of the images in a deployment."""
    return [image["newName"] for image in kustomization(folder).get("images", [])]


def kustomization(folder: Path) -> dict[str, Any]:
    """Return the kustomization in a folder."""
    found: dict[str, Any] = yaml.safe_load(
        (folder / "kustomization.yaml").read_text(encoding="utf-8")
    )
    return found


def archive_of(name: str) -> Archive:
    """Return the archive of an image in dist/images."""
    path = IMAGES / f"{name}-{versions.current()}.tar"
    if not path.is_file():
        raise SystemExit(f"release.py: there is no {path}; run `make images` first")
    return Archive(path)


def copy_bills(path: Path) -> None:
    """Copy the bills of materials of an image that was joined, which are one for each platform."""
    found = Archive(path)
    for architecture in found.architectures if found.is_joined else ():
        bill = IMAGES / architecture / f"{path.stem}.cdx.json"
        shutil.copy2(bill, TARGET / f"{path.stem}-{architecture}.cdx.json")


def add_up() -> None:
    """Write the checksums, in the form of sha256sum."""
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(TARGET.iterdir())
    ]
    (TARGET / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")


def sign(key: Path) -> None:
    """Sign the checksums by a private key of ssh, as SHA256SUMS.sig."""
    words = ["ssh-keygen", "-Y", "sign", "-n", "file", "-f", str(key), str(TARGET / "SHA256SUMS")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"release.py: {key}: {done.stderr.strip()}")


def dist(registry: str = "", home: str = "", key: Path | None = None) -> None:
    """Make the release."""
    version = versions.current()
    if differing := {place for place, found in versions.everywhere() if found != version}:
        raise SystemExit(f"release.py: not of version {version}: {', '.join(sorted(differing))}")
    shutil.rmtree(TARGET, ignore_errors=True)
    TARGET.mkdir(parents=True)
    render_deployments(registry)
    with tempfile.TemporaryDirectory() as scratch:
        for operator in (False, True):
            made = Path(scratch, f"chart-{operator}")
            write_chart(made, registry, home, operator=operator)
            chart.pack(made, TARGET)
    packages.build(TARGET, version, home)
    for path in sorted(IMAGES.glob(f"*-{version}.*")):
        shutil.copy2(path, TARGET)
        if path.suffix == ".tar":
            copy_bills(path)
    add_up()
    if key is not None:
        sign(key)
    for path in sorted(TARGET.iterdir()):
        print(path.name)


def published(command: str) -> argparse.ArgumentParser:
    """Return a parser of where things are published."""
    parser = argparse.ArgumentParser(f"release.py {command}", usage=__doc__)
    for name in ("--registry", "--home"):
        parser.add_argument(name, default="", type=lambda given: given.rstrip("/"))
    return parser


def main(argv: Sequence[str]) -> None:
    """Run the command."""
    match argv:
        case ["dist", *options]:
            parser = published("dist")
            parser.add_argument("--sign", type=Path)
            found = parser.parse_args(options)
            dist(found.registry, found.home, found.sign)
        case ["chart", *options]:
            parser = published("chart")
            parser.add_argument("folder", type=Path)
            parser.add_argument("--operator", action="store_true")
            found = parser.parse_args(options)
            if found.folder.exists():
                raise SystemExit(f"release.py: {found.folder} exists already: remove it first")
            try:
                write_chart(found.folder, found.registry, found.home, operator=found.operator)
            except OSError as error:
                raise SystemExit(f"release.py: {found.folder} cannot be written: {error}") from None
        case ["version"]:
            print(versions.current())
        case ["version", new]:
            versions.write(new)
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
