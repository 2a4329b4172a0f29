"""Build the plugins' images, and write each as an OCI archive with its SBOM.

    images.py --names
    images.py [PLUGIN...] [--build-image IMAGE] [--base-image IMAGE] [--prefix PREFIX]

It uses buildah, podman or docker, whichever is found first, and passes arguments after `--` to its
build. It prints the size of each image. With ``--names`` it only prints the plugins, as JSON.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

import sbom
from archive import Archive, Sizes

ROOT: Final = Path(__file__).parents[1]
TARGET: Final = ROOT / "dist" / "images"
TOOLS: Final = ("buildah", "podman", "docker")
MIB: Final = 1024**2


def plugins() -> list[str]:
    """Return the plugins that are deployed."""
    folders = ROOT.glob("deployments/*/kustomization.yaml")
    return sorted(path.parent.name for path in folders if path.parent.name != "base")


def version(plugin: str) -> str:
    """Return the version of a plugin."""
    path = ROOT / "plugins" / plugin / "pyproject.toml"
    found: str = tomllib.loads(path.read_text(encoding="utf-8"))["project"]["version"]
    return found


def revision() -> str:
    """Return the commit that is built; ``unknown`` without git."""
    words = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def build(tool: str, name: str, arguments: dict[str, str], more: Sequence[str]) -> None:
    """Build the image ``name``."""
    words = [tool, "build", "--file", "build/Dockerfile", "--tag", name]
    if tool == "buildah":
        words[1:2] = ["build", "--layers", "--ignorefile", "build/Dockerfile.dockerignore"]
    for key, value in arguments.items():
        words += ["--build-arg", f"{key}={value}"]
    # Without this, docker adds attestations, and writes an archive of several images.
    environment = {**os.environ, "BUILDX_NO_DEFAULT_ATTESTATIONS": "1"}
    subprocess.run([*words, *more, "."], cwd=ROOT, env=environment, check=True, stdout=sys.stderr)


def save(tool: str, name: str, path: Path) -> None:
    """Write the image ``name`` to ``path``. Docker's own format contains the OCI format."""
    path.unlink(missing_ok=True)
    own = name if "/" in name else f"localhost/{name}"
    words = ["push", "--quiet", own, f"oci-archive:{path}:{in_full(name)}"]
    if tool == "docker":  # it adds the name by itself
        words = ["save", "--output", str(path), name]
    subprocess.run([tool, *words], check=True, stdout=sys.stderr)


def in_full(name: str) -> str:
    """Return the full name under which Kubernetes expects the image ``name`` on a node.

    An archive must contain it, because containerd imports an image under the archive's name only.
    """
    first, slash, _ = name.partition("/")
    if slash and (first == "localhost" or set(".:") & set(first)):
        return name
    return f"docker.io/{name}" if slash else f"docker.io/library/{name}"


def describe(plugin: str, path: Path) -> Sizes:
    """Write the SBOM and the sizes beside an archive, and return the sizes."""
    archive = Archive(path)
    with tempfile.TemporaryDirectory() as root:
        archive.extract(Path(root))
        folder = str(Path(root, "opt/plugin"))
        text = sbom.main([f"{plugin}-device-plugin", folder, root])
    path.with_suffix(".cdx.json").write_text(text, encoding="utf-8")
    sizes = archive.sizes()
    path.with_suffix(".sizes.json").write_text(json.dumps(asdict(sizes), indent=1) + "\n")
    return sizes


def row(name: str, sizes: Sizes) -> str:
    """Return a row of the table, in MiB."""
    numbers = (sizes.plugin, sizes.plugin_compressed, sizes.whole, sizes.whole_compressed)
    parts = [f"{part} {size / MIB:.1f}" for part, size in sizes.parts.items() if size > 0.1 * MIB]
    cells = [name, *(f"{number / MIB:.1f}" for number in numbers), ", ".join(parts)]
    return f"| {' | '.join(cells)} |"


def main(argv: Sequence[str]) -> int:
    """Build the images; return 0 if all of them were built."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("plugin", nargs="*", help="a folder in plugins/ (all that are deployed)")
    parser.add_argument("--build-image", help="image with Python, pip and ldd; see the Dockerfile")
    parser.add_argument("--base-image", help="the base of the images")
    parser.add_argument("--prefix", default="", help="prefix of names: registry.example.com/")
    parser.add_argument("--names", action="store_true", help="print the plugins, and build nothing")
    own = list(argv)
    more = [own.pop() for _ in own[own.index("--") :]][::-1][1:] if "--" in own else []
    options = parser.parse_args(own)
    if options.names:
        print(json.dumps(plugins()))
        return 0
    tool = os.environ.get("IMAGE_TOOL") or next(filter(shutil.which, TOOLS), None)
    if tool is None:
        sys.stderr.write(f"images.py: none of {', '.join(TOOLS)} is installed\n")
        return 1
    TARGET.mkdir(parents=True, exist_ok=True)
    print("| Image | Plugin | compressed | Image | compressed | Parts of the plugin |")
    print("|---|---|---|---|---|---|")
    for plugin in options.plugin or plugins():
        name = f"{options.prefix}{plugin}-device-plugin:{version(plugin)}"
        arguments = {"PLUGIN": plugin, "VERSION": version(plugin), "REVISION": revision()}
        for key in ("build_image", "base_image"):
            if getattr(options, key):
                arguments[key.upper()] = getattr(options, key)
        path = TARGET / f"{plugin}-device-plugin-{version(plugin)}.tar"
        try:
            build(tool, name, arguments, more)
            save(tool, name, path)
            print(row(plugin, describe(plugin, path)), flush=True)
        except subprocess.CalledProcessError as error:
            why = f"{tool} ended with status {error.returncode}; its output is above"
            sys.stderr.write(f"images.py: {name}: {why}; without a registry, see build/README.md\n")
            return 1
        except ValueError as error:
            sys.stderr.write(f"images.py: {error}\n")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
